"""Does the judge pay in `quick`? Three arms from the same warm start, at about the same training time.

    python studies/quick/run.py            # every run that is not there yet, then the table
    python studies/quick/run.py --table    # the table alone

- `judge`: the preset as it is: GRPO with iStar's step credit from a learned implicit judge.
- `outcome`: the same without a judge; the time that it saves goes into more steps.
- `cloning`: no reinforcement learning; all the time goes into more demonstrations of the same kind.

One JSON a run under results/; a run that was killed is resumed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

import stepwell

HERE = Path(__file__).parent
RESULTS = HERE / "results"
ARMS = {
    "judge": [],
    "outcome": ["reward.kind=outcome", "reward.pay=score", "credit.kind=grpo", "steps=100"],
    "cloning": ["reward.kind=outcome", "reward.pay=score", "credit.kind=grpo", "steps=0", "cloning.steps=1800"],
}
SEEDS = (20, 21, 22)


def run(arm: str, seed: int, runs: Path, threads: int) -> None:
    """Trains one arm, or goes on with it, and notes its report."""
    folder = runs / f"{arm}-{seed}"
    config = stepwell.load("quick", [*ARMS[arm], f"seed={seed}", f"engine.threads={threads}"])
    try:
        for _ in stepwell.train(config, folder, resume=True, show=True):
            pass
    except stepwell.NothingLeftError:
        pass
    report = json.loads((folder / "report.json").read_text())
    report |= {"arm": arm, "threads": threads}
    (RESULTS / f"{arm}-{seed}.json").write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    if arm == "judge" and seed == SEEDS[0]:
        plots = HERE / "plots"
        shutil.copytree(folder / "plots", plots, dirs_exist_ok=True)


def table() -> str:
    """Success before and after, mean over seeds, with the smallest gain of a seed."""
    lines = [
        "| arm | seeds | T=1 before | after | gain (worst seed) | greedy before | after | gain (worst seed) | training s | episodes |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for arm in ARMS:
        reports = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{arm}-*.json"))]
        if not reports:
            continue
        cells = [arm, str(len(reports))]
        for name in ("success", "success_greedy"):
            before, after = (np.array([100 * r[name][when]["mean"] for r in reports]) for when in ("before", "after"))
            gain = after - before
            if arm == "cloning":  # Nothing is learnt after the demonstrations: there is no before.
                cells += ["", f"{after.mean():.1f}", ""]
            else:
                cells += [f"{before.mean():.1f}", f"{after.mean():.1f}", f"{gain.mean():+.1f} ({gain.min():+.1f})"]
        cells += [f"{np.mean([r['train_seconds'] for r in reports]):.0f}", f"{np.mean([r['episodes'] for r in reports]):.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print the table of what is there, run nothing")
    parser.add_argument("--seeds", nargs="*", type=int, default=list(SEEDS))
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of a run; other numbers round differently")
    parser.add_argument("--runs", type=Path, default=Path(tempfile.gettempdir()) / "stepwell-study-quick", help="where run folders go")
    args = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    for seed in () if args.table else args.seeds:
        for arm in ARMS:
            if not (RESULTS / f"{arm}-{seed}.json").exists():
                run(arm, seed, args.runs, args.threads)
    (HERE / "table.md").write_text(table() + "\n")
    print(table())


if __name__ == "__main__":
    main()
