"""Process rewards on solutions of several steps: rePIRL, PRIME, PRL, Monte Carlo and labelled steps against outcomes alone.

    python studies/reasoning/run.py                         # every run that is not there yet, then the tables and pictures
    python studies/reasoning/run.py --table                 # from what is there, runs nothing
    python studies/reasoning/run.py --arms rloo repirl --seeds 50 51
    python studies/reasoning/run.py --grid                  # tries equally many settings of every arm on seeds 90 and 91
    python studies/reasoning/run.py --tune repirl credit.alpha=0.3 reward.lr=0.003   # prints the validation of a setting on these seeds

All runs begin as one policy, trained by imitating a scripted expert (folder `base` of --runs). One JSON a run under results/ (of the
grid under results/tuning/); a run that was killed begins again, those that are done are not repeated.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from chains.plan import ARMS, GRID, TUNED_ON, Scale, chosen
from chains.report import write_report
from chains.train import one
from chains.tuning import finish_grid

from stepwell.files import write_atomic

HERE = Path(__file__).parent


def finish(scale: Scale, arms: Sequence[str], runs: Path, out: Path) -> None:
    """Runs what is missing, all arms of a seed before the next seed."""
    (out / "results").mkdir(parents=True, exist_ok=True)
    for seed in scale.seeds:
        for arm in arms:
            file = out / "results" / f"{arm}-{seed}.json"
            if not file.exists():
                print(f"{arm} {seed}", flush=True)
                write_atomic(file, json.dumps(one(arm, seed, scale, runs, chosen(arm))) + "\n")


def tune(arm: str, settings: Sequence[str], scale: Scale, runs: Path) -> None:
    """Success of a setting, on top of what was chosen for the arm, on validation tasks by tuning seeds."""
    for seed in TUNED_ON:
        found = one(arm, seed, scale, runs, [*chosen(arm), *settings], split="validation")
        test, curve = found["test"], found["curve"]
        assert isinstance(test, dict) and isinstance(curve, dict)
        wins = np.array(test["wins"], np.float64)
        rules = test.get("chosen")
        best = {rule: round(float(np.mean(rules[rule]["8"])), 4) for rule in rules} if isinstance(rules, dict) else {}
        print(
            json.dumps(
                {
                    "arm": arm,
                    "seed": seed,
                    "settings": list(settings),
                    "pass@1": round(float(wins.mean()) / 16, 4),
                    "pass@16": float((wins > 0).mean()),
                    "greedy": float(np.mean(test["greedy"])),
                    "of 8": best,
                    "step_cpu_s": float(np.median(np.array(curve["cpu_s"], np.float64))),
                    "entropy": [curve["policy/entropy"][at] for at in (0, -1)],
                }
            ),
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="tables and pictures of what is there, run nothing")
    parser.add_argument("--tune", nargs="+", metavar=("ARM", "KEY=VALUE"), help="try settings of an arm on the tuning seeds")
    parser.add_argument("--grid", action="store_true", help="what each arm is tuned by, instead of the runs that are reported")
    parser.add_argument("--arms", nargs="*", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--seeds", nargs="*", type=int)
    parser.add_argument("--mini", action="store_true", help="everything once, in seconds; the numbers mean nothing")
    parser.add_argument("--runs", type=Path, default=Path(tempfile.gettempdir()) / "stepwell-study-reasoning", help="where run folders go")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of results/, table.md and plots/")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    scale = Scale.mini() if args.mini else Scale()
    scale = scale if args.seeds is None else scale._replace(seeds=tuple(args.seeds))
    if args.tune:
        tune(args.tune[0], args.tune[1:], scale, args.runs)
        return
    if args.grid:
        finish_grid([arm for arm in GRID if arm in args.arms], scale, args.runs, args.out)
    elif not args.table:
        finish(scale, args.arms, args.runs, args.out)
    write_report(args.out)


if __name__ == "__main__":
    main()
