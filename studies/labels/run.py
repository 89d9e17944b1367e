"""Judges of steps from PRM800K's labels on SmolLM2-135M, a few minutes each on one core, where the field measures judges.

    python studies/labels/run.py --data DIR                       # both arms; DIR holds the files named below
    python studies/labels/run.py --data DIR --arms frozen --seeds 0
    python studies/labels/run.py --data DIR --arms                # what reads nothing reaches, on all solutions: seconds
    python studies/labels/run.py --table                          # the table of what is there, runs nothing

Arms: `frozen`, a scalar on the frozen hidden states; `adapter`, a scalar and an adapter that learn together. No problem of PRM800K's
training set is in ProcessBench's or PRM800K's test file. One JSON a run under results/; a run that was killed is resumed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import stepwell
from stepwell.evaluation.judge_benchmarks import prmbench, processbench, steps
from stepwell.evaluation.judged import Judged
from stepwell.step_labels import read_step_labels

HERE = Path(__file__).parent
RESULTS = HERE / "results"
COMMON = ["reward.max_length=256", "reward.held_out=0.02", "reward.limit=5000", "checkpoint.every=1000", "engine.threads=1"]
ARMS = {
    "frozen": ["reward.trunk=shared", "reward.lr=1e-3", "reward.batch=16", "reward.warm=220"],
    "adapter": ["reward.trunk=own", "reward.lr=3e-4", "reward.batch=8", "reward.warm=110"],
}
BENCHMARKS: dict[str, tuple[Any, str, int | None]] = {
    "processbench_gsm8k": ("processbench", "processbench_gsm8k.json.gz", None),
    "prm800k_test": ("prm800k", "prm800k_phase1_test.parquet", 300),
    "prmbench_circular": ("prmbench", "prmbench_circular.jsonl.gz", 150),
    "prmbench_step_contradiction": ("prmbench", "prmbench_step_contradiction.jsonl.gz", 150),
}
"""Name -> benchmark, file, and how many solutions are drawn (None: all)."""


def run(arm: str, seed: int, data: Path, runs: Path) -> None:
    """Teaches one judge, or goes on with it, measures it, and notes what it says."""
    result = RESULTS / f"{arm}-{seed}.json"
    if result.exists():
        return
    folder = runs / f"labels-{arm}-{seed}"
    settings = [*COMMON, *ARMS[arm], f"seed={seed}"]
    try:
        labels = f"reward.data={data / 'prm800k_phase1_train.parquet'}"
        for _ in stepwell.teach(stepwell.load("judge", [*settings, labels]), folder, resume=True, show=True):
            pass
    except stepwell.NothingLeftError:
        pass
    judge, found = stepwell.open_judge(folder), {}
    for name, (on, file, limit) in BENCHMARKS.items():
        start = time.perf_counter()
        found[name] = stepwell.evaluate_judge(judge, on, data / file, limit=limit).to_json() | {
            "file": file,
            "origin": f"{arm}, seed {seed}",
        }
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    report = json.loads((folder / "report.json").read_text())
    result.write_text(json.dumps({"settings": settings, "taught": report, "measured": found}, indent=1, sort_keys=True) + "\n")


def baselines(data: Path) -> None:
    """What reads nothing reaches, on all solutions of each benchmark."""
    found: dict[str, Any] = {}
    for name, (on, file, _) in BENCHMARKS.items():
        labelled = [one for one in read_step_labels(data / file) if any(label is not None for label in one.labels)]
        silent = [
            Judged(" ".join(one.prompt.split()), one.subset, (0.5,) * len(one.steps), one.labels, tuple(map(len, one.steps)))
            for one in labelled
        ]
        results = [] if on == "prm800k" else (processbench if on == "processbench" else prmbench)(silent, threshold=0.5)[0]
        rows = [
            {"who": one.who, "subset": one.subset, **{number: value._asdict() for number, value in one.numbers.items()}}
            for one in [*results, *steps(silent)]
            if one.who != "judge"
        ]
        found[name] = {"file": file, "solutions": len(silent), "results": rows}
    (RESULTS / "baselines.json").write_text(json.dumps({"measured": found}, indent=1, sort_keys=True) + "\n")


def table() -> str:
    """Every judge and baseline on every benchmark, with 95 % intervals over problems."""
    made = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    lines = ["| on | number | who | value | 95 % |", "|---|---|---|---|---|"]
    for name, (on, _, _) in BENCHMARKS.items():
        numbers = {"processbench": ("f1", "error_accuracy", "correct_accuracy", "auc"), "prmbench": ("prmscore", "auc")}.get(on, ("auc",))
        for number in numbers:
            rows: dict[str, dict[str, float | None]] = {}
            for who, one in made.items():
                for row in one["measured"][name]["results"]:
                    if number in row:
                        rows.setdefault(who if row["who"] == "judge" else row["who"], row[number])
            lines += [
                f"| {name} | {number} | {who} | {_shown(v['mean'])} | {_shown(v['low'])} to {_shown(v['high'])} |"
                for who, v in rows.items()
            ]
        for who, one in made.items():
            found = one["measured"][name]
            if "minimum_last" not in found:
                continue
            lines.append(
                f"| {name} | least score at the last step; by chance | {who} | {_shown(found['minimum_last'])}; "
                f"{_shown(found['minimum_last_by_chance'])} | {found['solutions']} solutions, {found['truncated']} cut |"
            )
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def main() -> None:
    """Runs what is asked for and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the benchmark files")
    parser.add_argument("--arms", nargs="*", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if not args.table:
        if args.data is None:
            parser.error("--data DIR says where the files are; --table runs nothing")
        RESULTS.mkdir(exist_ok=True)
        baselines(args.data)
        for arm in args.arms:
            for seed in args.seeds:
                run(arm, seed, args.data, args.runs)
    print(table())


if __name__ == "__main__":
    main()
