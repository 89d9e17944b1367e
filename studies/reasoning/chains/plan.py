"""What is run: the arms, their settings, and the seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stepwell.evaluation.aggregate import Aggregate

__all__ = [
    "ARMS",
    "CHOSEN",
    "GRID",
    "HARD",
    "PROBLEMS",
    "SEARCHED",
    "SIZES",
    "TUNED_ON",
    "Scale",
    "arm_settings",
    "base_settings",
    "chosen",
]

TUNED_ON = (90, 91)
_OUTCOME = ("reward.kind=outcome",)
_INVERSE = ("reward.kind=inverse", "reward.model=full", "reward.batch=16", "reward.lr=0.0001")
_REPIRL = (*_INVERSE, "credit.kind=repirl", "credit.alpha=0.3", "credit.unit=largest_return")
_TRUTH = ("reward.kind=chains.truth:TruthReward", "credit.kind=process_to_go", "credit.discount=0.0")
_CLONED = ("cloning.steps=20", "cloning.batch=16", "cloning.optimizer.lr=0.001", "cloning.optimizer.warmup=2")
_ARMS: Mapping[str, Sequence[str]] = {
    "start": (*_OUTCOME, "credit.kind=rloo", "steps=0"),
    "rloo": (*_OUTCOME, "credit.kind=rloo"),
    "truth": _TRUTH,
    "truth_slow": (*_TRUTH, "optimizer.lr=0.001"),
    "repirl": _REPIRL,
    "labelled": (
        *("reward.kind=labelled", "reward.data=LABELS", "reward.separator=<|end|>", "reward.judge=head", "reward.trunk=shared"),
        *("reward.lr=0.003", "reward.warm=300", "reward.held_out=0", "credit.kind=process_to_go"),
    ),
    "grpo_kl": (*_OUTCOME, "credit.kind=grpo", "loss.kl=k2", "loss.kl_coef=0.01"),
    "prl": (*_OUTCOME, "credit.kind=suffix", "credit.beta=0.01"),
    "montecarlo": ("reward.kind=montecarlo", "reward.continuations=2", "reward.form=progress", "credit.kind=process_to_go"),
    "prime": (
        *("reward.kind=implicit", "reward.objective=cross_entropy", "reward.reference=frozen", "reward.learn=before", "reward.lr=0.0001"),
        *("credit.kind=prime", "credit.alpha=1.0", "credit.unit=largest_return"),
    ),
    "prm_only": (*_INVERSE, "reward.correct=policy", "credit.kind=process_supervision"),
    "rloo_cloned": (*_OUTCOME, "credit.kind=rloo", *_CLONED),
    "grpo": (*_OUTCOME, "credit.kind=grpo"),
    "certainty": ("reward.kind=intrinsic", "credit.kind=process_supervision"),
}
_ON_HARD = ("start", "rloo", "repirl", "truth", "labelled", "prl", "grpo_kl")
ARMS: Mapping[str, Sequence[str]] = {**_ARMS, **{f"{arm}_hard": _ARMS[arm] for arm in _ON_HARD}}
"""Name -> settings on top of those of the preset `reasoning`; the first are the most important. `truth_slow` is `truth` at RLOO's rate."""


def _three(one: Sequence[str], other: Sequence[str], *, rate: float = 0.001) -> tuple[tuple[str, ...], ...]:
    """Two ways at one rate, and the first at twice the rate."""
    return ((f"optimizer.lr={rate}", *one), (f"optimizer.lr={rate}", *other), (f"optimizer.lr={2 * rate}", *one))


_RATES = tuple((f"optimizer.lr={rate}",) for rate in ("0.0005", "0.001", "0.002"))
_TO_COME, _OWN = ("credit.discount=1.0",), ("credit.discount=0.0",)
_FITTED = ("reward.judge=head", "reward.trunk=shared", "reward.lr=0.001", "reward.members=2", *_TO_COME)
_OWN_ALONE = ("credit.kind=process_to_go", "credit.baseline=none", "credit.alpha=30.0", *_OWN)
GRID: Mapping[str, Sequence[Sequence[str]]] = {
    "rloo": _RATES,
    "truth": _three(["credit.baseline=rloo"], ["credit.baseline=none"]),
    "labelled": _three(["reward.form=progress", *_TO_COME], ["reward.form=value", *_OWN]),
    "repirl": _three(["credit.alpha=0.3", *_TO_COME], ["credit.alpha=1.0", *_OWN]),
    "grpo_kl": _three(["loss.kl_coef=0.01"], ["loss.kl_coef=0.1"]),
    "prl": _three(["credit.beta=0.01"], ["credit.beta=0.05"]),
    "montecarlo": _three(_FITTED, ["reward.members=4", *_OWN]),
    "prime": _three(_TO_COME, _OWN),
    "prm_only": _three(["credit.kind=process_supervision"], _OWN_ALONE, rate=0.0005),
    "rloo_cloned": _three(["cloning.optimizer.lr=0.001"], ["cloning.optimizer.lr=0.002"]),
    "grpo": _RATES,
    "certainty": tuple((f"optimizer.lr={rate}",) for rate in ("0.0001", "0.0003", "0.001")),
    "repirl_hard": (
        *(("optimizer.lr=0.001", f"credit.alpha={alpha}", *_TO_COME) for alpha in ("0.1", "0.3")),
        ("optimizer.lr=0.001", "credit.alpha=1.0", *_OWN),
    ),
}
"""Arm -> what is tried on tuning seeds on top of its settings, three for each: two values of what matters most to the arm, and twice the
rate; three rates where it has no number of its own. What matters most to a judge is whether a step is paid its own reward or the sum of all
to come (with Monte Carlo, of the estimates themselves or of a head that is fitted to them), to the checker whether the outcome is paid
besides."""
CHOSEN: Mapping[str, int] = {
    **{"rloo": 1, "truth": 2, "labelled": 1, "repirl": 2, "grpo_kl": 1, "prl": 0, "montecarlo": 1, "prime": 1, "prm_only": 2},
    **{"rloo_cloned": 1, "grpo": 1, "certainty": 0, "repirl_hard": 2},
}
"""Arm -> number of its setting in `GRID`, by the rule of `tuning.choice`; an arm on hard tasks that has no grid takes its namesake's."""


def chosen(arm: str) -> Sequence[str]:
    """What an arm is run with on top of its settings."""
    name = arm if arm in CHOSEN else arm.removesuffix("_hard")
    return GRID[name][CHOSEN[name]] if name in CHOSEN else ()


_TASK = ("domain.task=recurrence", "domain.axes={modulus: 97, factors: 4}", "domain.test_tasks=50")
_LEARNT = ("domain.difficulty=[0.1,1.0]", "domain.expert_slips=0.2", "rollout.turns=15")
"""What the warm start imitates: three to twelve moves, by an expert that slips in a fifth of its lines."""
PROBLEMS = (*_TASK, "domain.difficulty=[0.3,0.5]", "domain.expert_slips=0", "rollout.turns=8")
"""Five to seven moves; whom the judges learn from does not slip."""
HARD = (*PROBLEMS, "domain.difficulty=[1.0,1.0]", "rollout.turns=13")
"""For arms whose name ends with `_hard`: twelve moves, where outcomes are rare."""
SEARCHED = ("repirl", "labelled", "prime", "prm_only")
"""Arms whose judge chooses among candidates at the end. Not Monte Carlo's, which reads verdicts of the candidates' own continuations."""
AGGREGATE: Aggregate = "min"
"""Of step rewards, when the best of n is chosen: the one of `measure.AGGREGATES` that was right most often with rePIRL's judges on the
validation tasks of tuning seeds, at every n of 2 and more."""
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
