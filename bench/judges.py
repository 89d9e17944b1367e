"""How much longer is a training step with each kind of judge, and how much more memory does it need? One process; steps are interleaved, so
that a ratio is of one moment.

    python bench/judges.py [--steps 10] [--only labelled,temporal]       step times, tiny model, generated shop
    python bench/judges.py --processor                                   the same in processor time, one thread
    python bench/judges.py --memory [--model smollm2-135m-instruct]      memory of policy, judge and reference, each in a process of its own

Prints, for each judge, the median of step time over the median of the outcome-only step (`ratio`; `limit` is what the project aims at: 1.1
for a head on the policy's hidden states, 1.75 for a second model), and the peak memory over that of the policy alone (limit 1.3).

The policy's learning rate is next to nothing, so that every arm plays the same episodes at the same step. `ratio` counts as a judge's cost
that it lets more episodes pull at the policy. `own_ratio` does not: it is the median of a step's time over the same step's without
scoring and the judge's learning. `score_s` and `learn_s` are the medians of these two.

On a machine that others use, say --processor: the seconds are then those that this process has computed, on one thread.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from stepwell.build import build
from stepwell.configure import load
from stepwell.protocols import Saveable
from stepwell.trainer import StepResult, Trainer
from stepwell.types import JSON

HEAD, SECOND, MEMORY = 1.1, 1.75, 1.3
STILL = ["optimizer.lr=1e-12"]
COMMON = ["reward.pay=score", "credit.kind=istar", "credit.alpha=0.1"]
LABELS = [{"prompt": f"buy item {n}", "steps": ["search[item]", "click[it]"], "labels": [True, n % 2 == 0]} for n in range(64)]
KINDS: dict[str, tuple[float | None, list[str]]] = {
    "outcome": (None, ["reward.kind=outcome", "reward.pay=score", "credit.kind=grpo"]),
    "environment": (HEAD, ["reward.kind=environment"]),
    "implicit": (SECOND, ["reward.kind=implicit", "reward.lr=1e-4", "reward.judged=all"]),
    "implicit mixed": (SECOND, ["reward.kind=implicit", "reward.lr=1e-4", "reward.judged=mixed"]),
    "implicit frozen": (SECOND, ["reward.kind=implicit", "reward.lr=1e-4", "reward.reference=frozen"]),
    "inverse head": (HEAD, ["reward.kind=inverse", "reward.learn=after"]),
    "inverse full": (SECOND, ["reward.kind=inverse", "reward.model=full", "reward.learn=after"]),
    "temporal head": (HEAD, ["reward.kind=temporal", "reward.trunk=shared"]),
    "temporal full": (SECOND, ["reward.kind=temporal", "reward.trunk=own"]),
    "labelled head": (
        HEAD,
        ["reward.kind=labelled", "reward.separator=;", "reward.trunk=shared", "reward.warm=20", "reward.updates=1", "reward.held_out=0"],
    ),
    "labelled full": (SECOND, ["reward.kind=labelled", "reward.separator=;", "reward.warm=20", "reward.updates=1", "reward.held_out=0"]),
    "soft_q": (SECOND, ["reward.kind=soft_q", "reward.lr=1e-4"]),
    "entropy": (SECOND, ["reward.kind=entropy"]),
    "intrinsic": (SECOND, ["reward.kind=intrinsic"]),
    "montecarlo": (None, ["reward.kind=montecarlo", "reward.continuations=2", "reward.members=2"]),
    "mixture": (
        None,
        [
            *("reward.kind=mixture", "reward.judges.a.kind=implicit", "reward.judges.a.lr=1e-4"),
            *("reward.judges.b.kind=temporal", "reward.judges.b.trunk=shared"),
        ],
    ),
}
"""Kind -> limit of its ratio (None: none is set; continuations cost episodes), settings."""

PLACES = {
    "policy alone": ["reward.kind=outcome", "credit.kind=grpo"],
    "policy, head, reference": ["reward.kind=temporal", "reward.trunk=shared", "loss.kl=k2", "loss.kl_coef=0.01"],
    "policy, judge, reference (adapters)": ["reward.kind=implicit", "reward.model=lora", "loss.kl=k2", "loss.kl_coef=0.01"],
}


class Laps(NamedTuple):
    """Seconds of one step, and of its parts that are the judge's."""

    step_s: float
    score_s: float
    learn_s: float


class Start(NamedTuple):
    """A policy after a short warm start, the same for every kind: how far its trainer is, and where its weights lie."""

    state: dict[str, JSON]
    weights: Path

    def load(self, models: Mapping[str, Saveable]) -> None:
        """Gives a trainer the weights."""
        models["policy"].load(self.weights)


def trainer_of(settings: list[str], warm: int) -> Trainer:
    """That of `quick`, with a judge."""
    shared = [] if "reward.kind=outcome" in settings else COMMON
    return build(load("quick", [*settings, *shared, *STILL, f"cloning.steps={warm}", "steps=1000"])).trainer


def warmed(warm: int, folder: Path) -> Start:
    """Clones demonstrations, so that groups are mixed."""
    trainer = trainer_of(KINDS["outcome"][1], warm)
    steps = trainer.run()
    for _ in range(warm):
        next(steps)
    trainer.models()["policy"].save(folder)
    return Start(trainer.state(), folder)


def steps_of(settings: list[str], warm: int, start: Start) -> Iterator[StepResult]:
    """The steps of reinforcement learning from there."""
    trainer = trainer_of(settings, warm)
    trainer.restore(start.state, start.load)
    return trainer.run()


def times(num_steps: int, warm: int, only: list[str]) -> dict[str, dict[str, float | None]]:
    """Of each kind, see `said`."""
    with tempfile.TemporaryDirectory() as folder:
        labels = Path(folder) / "labels.jsonl"
        labels.write_text("\n".join(map(json.dumps, LABELS)), encoding="utf-8")
        chosen = {name: kind for name, kind in KINDS.items() if not only or name == "outcome" or name.split()[0] in only or name in only}
        data = {name: [f"reward.data={labels}"] if name.startswith("labelled") else [] for name in chosen}
        start = warmed(warm, Path(folder) / "policy")
        arms = {name: steps_of([*settings, *data[name]], warm, start) for name, (_, settings) in chosen.items()}
        laps: dict[str, list[Laps]] = {name: [] for name in arms}
        for number in range(num_steps + 1):
            for name, arm in arms.items():
                metrics = next(arm).metrics
                if number:  # the first step makes the judge
                    laps[name].append(Laps(*(metrics[f"time/{part}_s"] for part in ("step", "score", "judge"))))
    base = statistics.median(lap.step_s for lap in laps["outcome"])
    return {name: {**said(taken, base), "limit": KINDS[name][0]} for name, taken in laps.items()}


def said(laps: list[Laps], base: float) -> dict[str, float | None]:
    """Medians, and their ratios to `base` and to the same steps without their judge."""
    median = {name: statistics.median(getattr(lap, name) for lap in laps) for name in ("step_s", "score_s", "learn_s")}
    own = statistics.median(lap.step_s / (lap.step_s - lap.score_s - lap.learn_s) for lap in laps)
    return {
        **{name: round(seconds, 3) for name, seconds in median.items()},
        "ratio": round(median["step_s"] / base, 2),
        "own_ratio": round(own, 2),
    }


def memory(model: str) -> dict[str, dict[str, float]]:
    """Peak memory of two training steps over that of the same without judge and reference, each in a process of its own."""
    peaks = {}
    for name in PLACES:
        said = subprocess.run([sys.executable, __file__, "--place", name, "--model", model], check=True, capture_output=True, text=True)
        peaks[name] = float(said.stdout.strip().splitlines()[-1])
    alone = peaks["policy alone"]
    return {name: {"peak_mib": round(peak), "ratio": round(peak / alone, 3), "limit": MEMORY} for name, peak in peaks.items()}


def peak_mib(name: str, model: str) -> float:
    """Of this process after two steps."""
    adapters = [f"engine.model={model}", "engine.policy=lora"] if model else ["engine.policy=lora"]
    kind = ["engine.kind=local"] if model else []
    small = ["domain.products=200", "cloning.steps=0", "steps=2", "rollout.groups=2", "rollout.group_size=4", "rollout.turns=3"]
    config = load("quick", [*kind, *adapters, *PLACES[name], *small])
    for _ in build(config).trainer.run():
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 * (1024 if sys.platform == "darwin" else 1))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm", type=int, default=300, help="demonstration steps before, so that groups are mixed")
    parser.add_argument("--only", default="", help="kinds, separated by commas")
    parser.add_argument("--processor", action="store_true", help="processor time on one thread in place of the clock")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--model", default="smollm2-135m-instruct", help='of --memory; "" is the tiny model')
    parser.add_argument("--place", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.processor:
        torch.set_num_threads(1)
        time.perf_counter = time.process_time
    if args.place:
        print(peak_mib(args.place, args.model))
    elif args.memory:
        print(json.dumps(memory(args.model), indent=1))
    else:
        print(json.dumps(times(args.steps, args.warm, [one for one in args.only.split(",") if one]), indent=1))


if __name__ == "__main__":
    main()
