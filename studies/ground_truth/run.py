"""Judges against exact truth: what they know, what their importance weights estimate, how many episodes they save, and where.

    python studies/ground_truth/run.py                  # all that is missing, then the tables and plots
    python studies/ground_truth/run.py quality map      # some parts
    python studies/ground_truth/run.py table            # from what is there, runs nothing

Parts: `judges` and `arms` (tuning, on other seeds), `quality`, `weights`, `efficiency`, `map`, `table`. One JSON for each cell and seed
under results/. It may be killed at any time and started again, also several times at once: what is there is not run again, and what another
process is at is left to it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from truth import parts
from truth.records import Job, finish
from truth.report import write_report

HERE = Path(__file__).parent


def jobs_of(name: str, results: Path, scale: parts.Scale) -> Sequence[Job]:
    """What a part consists of."""
    made: dict[str, Callable[[Path, parts.Scale], Sequence[Job]]] = {
        "judges": parts.judge_jobs,
        "arms": parts.arm_jobs,
        "quality": parts.quality_jobs,
        "weights": parts.weight_jobs,
        "efficiency": parts.efficiency_jobs,
        "map": parts.map_jobs,
    }
    return made[name](results, scale)


PARTS = ("judges", "arms", "quality", "weights", "efficiency", "map", "table")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[], help="default: all, in this order")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results/, table.md and plots/")
    parser.add_argument("--seeds", nargs="*", type=int, help="of the reported parts; default: all of the plan")
    parser.add_argument("--mini", action="store_true", help="a miniature of every part, in seconds")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    scale = parts.Scale.mini() if args.mini else parts.Scale()
    scale = scale if args.seeds is None else scale._replace(seeds=tuple(args.seeds))
    for name in args.parts or PARTS:
        print(f"== {name}", flush=True)
        if name == "table":
            write_report(args.out, scale)
            continue
        jobs = jobs_of(name, args.out / "results", scale)
        finish(jobs, say=lambda text: print(text, flush=True))


if __name__ == "__main__":
    main()
