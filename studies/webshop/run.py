"""A tiny agent on the real WebShop products: cloned, then trained, on the test goals.

    python studies/webshop/run.py --data DIR            # both variants
    python studies/webshop/run.py --data DIR --variants clean --seeds 0
    python studies/webshop/run.py --table               # the table of what is there, runs nothing

One JSON a run under results/; a run that was killed is resumed. The players without learning are `players.py`'s.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import stepwell

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SETTINGS = {
    "clean": ["cloning.steps=1500", "steps=10", "evaluation.episodes=193", "evaluation.every=0"],
    "compat": [
        "variant=compat",
        "engine.max_length=4096",
        "cloning.steps=800",
        "steps=5",
        "evaluation.episodes=500",
        "evaluation.every=0",
        "rollout.rows=128",
    ],
}
SMOLLM = [
    "steps=2",
    "cloning.steps=2",
    "rollout.groups=1",
    "rollout.group_size=4",
    "rollout.turns=5",
    "evaluation.episodes=4",
    "evaluation.every=0",
]


def run(name: str, preset: str, settings: list[str], seed: int, runs: Path) -> None:
    """Trains one setting, or goes on with it, and notes its report."""
    folder = runs / f"{name}-{seed}"
    config = stepwell.load(preset, [*settings, f"seed={seed}"])
    try:
        for _ in stepwell.train(config, folder, resume=True, show=True):
            pass
    except stepwell.NothingLeftError:
        pass
    report = json.loads((folder / "report.json").read_text())
    report["settings"] = [setting for setting in settings if not setting.startswith("data=")]
    (RESULTS / f"{name}-{seed}.json").write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")


def table() -> str:
    """Success of every run, before (cloned) and after (trained), in percent with 95 % intervals."""
    lines = [
        "| run | seed | cloned, T=1 | trained, T=1 | cloned, greedy | trained, greedy | training s | episodes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for path in sorted(RESULTS.glob("*.json")):
        report = json.loads(path.read_text())
        name, _, seed = path.stem.rpartition("-")
        parts = [report[how][when] for how in ("success", "success_greedy") for when in ("before", "after")]
        cells = [f"{100 * p['mean']:.1f} [{100 * p['low']:.1f}, {100 * p['high']:.1f}]" for p in parts]
        lines.append(f"| {name} | {seed} | {' | '.join(cells)} | {report['train_seconds']:.0f} | {report['episodes']} |")
    return "\n".join(lines)


def main() -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the products")
    parser.add_argument("--variants", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--smollm", action="store_true", help="two steps of webshop-smollm as a smoke row")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of a run; other numbers round differently")
    parser.add_argument("--runs", type=Path, default=Path(tempfile.gettempdir()) / "stepwell-study-webshop")
    args = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    if not args.table:
        if args.data is None:
            parser.error("say where the products are: --data DIR")
        for seed in args.seeds:
            for variant in args.variants:
                if not (RESULTS / f"{variant}-{seed}.json").exists():
                    run(variant, "webshop", [f"data={args.data}", f"engine.threads={args.threads}", *SETTINGS[variant]], seed, args.runs)
        if args.smollm and not (RESULTS / "smollm_smoke-0.json").exists():
            run("smollm_smoke", "webshop-smollm", [f"data={args.data}", f"engine.threads={args.threads}", *SMOLLM], 0, args.runs)
    (HERE / "table.md").write_text(table() + "\n")
    print(table())


if __name__ == "__main__":
    main()
