"""How much longer is a training step with a judge than without? One process, steps interleaved, so that the ratio is of one moment.

    python bench/step.py [--steps 10]

Prints seconds of a step (median) of the outcome-only arm, and the ratio of each judge to it.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator

from stepwell.build import build
from stepwell.configure import load
from stepwell.trainer import StepResult

ARMS = {
    "outcome": ["reward.kind=outcome", "reward.pay=score", "credit.kind=grpo"],
    "implicit, moving reference": [],
    "implicit, moving reference, all groups judged": ["reward.judged=all"],
    "temporal, a head on the policy's hidden states": [
        "reward.kind=temporal",
        "reward.trunk=shared",
        "reward.pay=score",
        "credit.alpha=0.1",
    ],
}


def steps(settings: list[str], warm: int) -> Iterator[StepResult]:
    """The steps of reinforcement learning of `quick` after a short warm start."""
    trainer = build(load("quick", [*settings, f"cloning.steps={warm}", "steps=1000"])).trainer
    return (result for result in trainer.run() if result.phase == "learn")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm", type=int, default=300, help="demonstration steps before, so that groups are mixed")
    args = parser.parse_args()
    arms = {name: steps(settings, args.warm) for name, settings in ARMS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(args.steps + 1):
        for name, arm in arms.items():
            taken = next(arm).metrics["time/step_s"]
            if number:
                seconds[name].append(taken)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rows = {name: {"step_s": round(value, 3), "ratio": round(value / medians["outcome"], 2)} for name, value in medians.items()}
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
