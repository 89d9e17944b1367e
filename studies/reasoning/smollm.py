"""The same question with real weights: SmolLM2-135M-Instruct, adapters of rank 8, two operations with numbers to nine, RLOO and rePIRL.

    python studies/reasoning/smollm.py                 # what is not there yet: minutes an arm on one core
    python studies/reasoning/smollm.py --table         # from what is there, runs nothing

Small: it shows that the loop and its judge work on real weights, not which arm is better. The policy has first imitated an expert who slips
in a fifth of its lines. One JSON a run under results/smollm/; settings were not tuned.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

import stepwell
from stepwell.build import first_tasks
from stepwell.evaluation.evaluate import evaluate
from stepwell.evaluation.intervals import bootstrap
from stepwell.files import read_json, write_atomic
from stepwell.trained import export
from stepwell.types import JSON

HERE = Path(__file__).parent
TASKS, ATTEMPTS = 20, 8
TASK = (
    *("domain.task=arithmetic", "domain.axes={operations: 2, largest: 9}", f"domain.test_tasks={TASKS}", "domain.difficulty=[0.0,0.1]"),
    *("evaluation.every=0", "rollout.turns=4", "rollout.max_tokens=14", "chat.tools=false", "curriculum.admit=all"),
    *("engine.kind=local", "engine.device=cpu", "engine.dtype=float32", "engine.threads=1", "engine.policy=lora", "engine.rank=8"),
)
CLONED = (
    *("reward.kind=outcome", "credit.kind=rloo", "domain.expert_slips=0.2", "steps=0", "seed=90", "evaluation.episodes=20"),
    *("cloning.steps=24", "cloning.batch=8", "cloning.optimizer.kind=adamw", "cloning.optimizer.lr=2e-3", "cloning.optimizer.warmup=2"),
    *("engine.model=smollm2-135m-instruct", "engine.micro_tokens=4096"),
)
LEARNT = (
    *("cloning.steps=0", "steps=12", "rollout.groups=4", "rollout.group_size=8", "optimizer.lr=5e-4", "optimizer.warmup=2"),
    *("domain.expert_slips=0", "evaluation.episodes=1", "engine.micro_tokens=4096", "checkpoint.every=4"),
)
ARMS: Mapping[str, Sequence[str]] = {
    "start": ("reward.kind=outcome", "credit.kind=rloo", "steps=0"),
    "rloo": ("reward.kind=outcome", "credit.kind=rloo"),
    "repirl": ("reward.kind=inverse", "reward.model=lora", "reward.batch=8", "reward.lr=1e-4", "credit.kind=repirl", "credit.alpha=0.3"),
}


def _trained(settings: Sequence[str], run: Path) -> list[dict[str, float]]:
    """All metrics of a run, which goes on where it was killed."""
    try:
        for _ in stepwell.train(stepwell.load("reasoning", settings), run, resume=True, show=True):
            pass
    except stepwell.NothingLeftError:
        pass
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def one(arm: str, seed: int, runs: Path) -> dict[str, JSON]:
    """Trains and measures."""
    model = runs / "base-model"
    if not model.exists():
        _trained([*TASK, *CLONED], runs / "base")
        export(runs / "base", model)
    began = time.process_time()
    settings = [*TASK, *LEARNT, *ARMS[arm], f"seed={seed}"]
    lines = _trained([*settings, f"engine.model={model}"], runs / f"{arm}-{seed}")
    spent = time.process_time() - began
    opened = stepwell.open_run(runs / f"{arm}-{seed}")
    tasks = first_tasks(opened.domain, "test", TASKS)
    groups = evaluate(opened.domain, tasks, opened.policy, opened.player.at(1.0), seed=("study",), samples=ATTEMPTS).groups
    learnt = [line for line in lines if "rollout/success" in line]
    return {
        "arm": arm,
        "seed": seed,
        "settings": list(settings),
        "success": [line["rollout/success"] for line in learnt],
        "pairs": [line.get("judge/fresh_pair_accuracy") for line in learnt],
        "step_s": [line["time/step"] for line in learnt if "time/step" in line],
        "cpu_s": round(spent, 1),
        "wins": [sum(bool(member.verdict.success) for member in group.members) for group in groups],
    }


def tell(results: Path) -> str:
    """The table; intervals are over tasks."""
    rows = ["| arm | seed | pass@1, % | training success, first and last four steps | processor seconds |", "|---|---|---|---|---|"]
    for arm in ARMS:
        for file in sorted(results.glob(f"{arm}-*.json")):
            run = read_json(file)
            found = bootstrap(np.array(run["wins"]) / ATTEMPTS)
            curve = run["success"]
            told = f"{100 * np.mean(curve[:4]):.0f}, {100 * np.mean(curve[-4:]):.0f}" if curve else ""
            cells = [
                arm,
                str(run["seed"]),
                f"{100 * found.mean:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]",
                told,
                f"{run['cpu_s']:.0f}",
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="the table of what is there, run nothing")
    parser.add_argument("--arms", nargs="*", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[50])
    parser.add_argument("--runs", type=Path, default=Path(tempfile.gettempdir()) / "stepwell-study-smollm", help="where run folders go")
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = HERE / "results" / "smollm"
    results.mkdir(parents=True, exist_ok=True)
    for seed in [] if args.table else args.seeds:
        for arm in args.arms:
            file = results / f"{arm}-{seed}.json"
            if not file.exists():
                print(f"{arm} {seed}", flush=True)
                write_atomic(file, json.dumps(one(arm, seed, args.runs)) + "\n")
    write_atomic(HERE / "smollm.md", tell(results))


if __name__ == "__main__":
    main()
