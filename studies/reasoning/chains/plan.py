"""What is run: the arms, their settings, and the seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["ARMS", "HARD", "PROBLEMS", "SEARCHED", "SIZES", "TUNED_ON", "Scale", "arm_settings", "base_settings"]

TUNED_ON = (90, 91)
_OUTCOME = ("reward.kind=outcome",)
_INVERSE = ("reward.kind=inverse", "reward.model=full", "reward.batch=16", "reward.lr=0.001")
_REPIRL = (*_INVERSE, "credit.kind=repirl", "credit.alpha=0.3", "credit.unit=largest_return")
_CLONED = ("cloning.steps=20", "cloning.batch=16", "cloning.optimizer.lr=0.001", "cloning.optimizer.warmup=2")
ARMS: Mapping[str, Sequence[str]] = {
    "start": (*_OUTCOME, "credit.kind=rloo", "steps=0"),
    "rloo": (*_OUTCOME, "credit.kind=rloo"),
    "repirl": _REPIRL,
    "rloo_cloned": (*_OUTCOME, "credit.kind=rloo", *_CLONED),
    "prm_only": (*_INVERSE, "reward.correct=policy", "credit.kind=process_supervision", "optimizer.lr=0.0005"),
    "grpo_kl": (*_OUTCOME, "credit.kind=grpo", "loss.kl=k2", "loss.kl_coef=0.01"),
    "prl": (*_OUTCOME, "credit.kind=suffix", "credit.beta=0.01"),
    "rloo_hard": (*_OUTCOME, "credit.kind=rloo"),
    "repirl_hard": _REPIRL,
    "grpo": (*_OUTCOME, "credit.kind=grpo"),
    "prime": (
        *("reward.kind=implicit", "reward.objective=cross_entropy", "reward.reference=frozen", "reward.learn=before", "reward.lr=0.001"),
        *("credit.kind=prime", "credit.alpha=1.0"),
    ),
    "labelled": (
        *("reward.kind=labelled", "reward.data=LABELS", "reward.separator=<|end|>", "reward.judge=head", "reward.trunk=shared"),
        *(
            "reward.form=progress",
            "reward.lr=0.003",
            "reward.warm=300",
            "reward.held_out=0",
            "credit.kind=process_to_go",
            "credit.alpha=1.0",
        ),
    ),
    "montecarlo": (
        *("reward.kind=montecarlo", "reward.continuations=2", "reward.members=2", "reward.form=progress", "reward.judge=head"),
        *("reward.trunk=shared", "reward.lr=0.001", "credit.kind=process_to_go", "credit.alpha=1.0"),
    ),
    "certainty": ("reward.kind=intrinsic", "credit.kind=process_supervision"),
}
"""Name -> settings on top of those of the preset `reasoning`; the first are the most important."""
_TASK = ("domain.task=recurrence", "domain.axes={modulus: 97, factors: 4}", "domain.test_tasks=50")
_LEARNT = ("domain.difficulty=[0.1,1.0]", "domain.expert_slips=0.2", "rollout.turns=15")
"""What the warm start imitates: three to twelve moves, by an expert that slips in a fifth of its lines."""
PROBLEMS = (*_TASK, "domain.difficulty=[0.3,0.5]", "domain.expert_slips=0", "rollout.turns=8")
"""Five to seven moves; whom the judges learn from does not slip."""
HARD = (*PROBLEMS, "domain.difficulty=[0.9,1.0]", "rollout.turns=13")
"""For arms whose name ends with `_hard`: eleven or twelve moves, where outcomes are rare."""
SEARCHED = ("repirl", "prm_only", "prime", "labelled")
"""Arms whose judge chooses among candidates at the end."""
SIZES = (1, 2, 4, 8, 16)
"""Numbers of attempts."""


class Scale(NamedTuple):
    """How much.

    Attributes:
        clone: Steps of the warm start.
        steps: Of reinforcement learning.
        tasks: Test tasks, each attempted 16 times.
        seeds: That are reported.
        labels: Labelled solutions.
    """

    clone: int = 1200
    steps: int = 20
    tasks: int = 50
    seeds: tuple[int, ...] = (50, 51, 52, 53, 54)
    labels: int = 1000

    @classmethod
    def mini(cls) -> Scale:
        """Everything once, in seconds; the numbers mean nothing."""
        return cls(clone=5, steps=2, tasks=4, seeds=(50, 51), labels=20)


def base_settings(scale: Scale) -> list[str]:
    """Of the one policy that every run begins as."""
    return [
        *(*_TASK, *_LEARNT, "seed=90", "steps=0", f"cloning.steps={scale.clone}"),
        *("reward.kind=outcome", "credit.kind=rloo"),
        *("engine.threads=1", "evaluation.every=0", "evaluation.episodes=40", "checkpoint.every=250"),
    ]


def arm_settings(arm: str, seed: int, scale: Scale, *, model: str, labels: str) -> list[str]:
    """Of one run."""
    chosen = [one.replace("=LABELS", f"={labels}") for one in ARMS[arm]]
    problems = HARD if arm.endswith("_hard") else PROBLEMS
    begun = (
        "engine.kind=local",
        f"engine.model={model}",
        "engine.device=cpu",
        "engine.dtype=float32",
        "engine.threads=1",
        "engine.micro_rows=64",
        "engine.micro_tokens=16384",
        "cloning.steps=0",
    )
    return [*begun, "curriculum.admit=all", "optimizer.lr=0.001", f"seed={seed}", f"steps={scale.steps}", *chosen, *problems]
