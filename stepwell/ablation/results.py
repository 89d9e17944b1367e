"""From the results of single runs to each variant's numbers, and to differences from a baseline. Legend: S seed, T task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from stepwell.ablation.comparing import Curve, Ratio, Reached, areas, crossed, over_seeds, ratio_of, reached
from stepwell.ablation.plan import Plan
from stepwell.errors import ConfigError, DataError, nearest
from stepwell.evaluation.intervals import Interval
from stepwell.files import read_json
from stepwell.types import JSON, Floats

__all__ = ["OVER_SEEDS", "Arm", "Study", "read_study"]

OVER_SEEDS: Mapping[str, tuple[str, ...]] = {
    "recovery": ("perturbed", "recovery"),
    "recovery_turns": ("perturbed", "recovery_turns"),
    "recovery_given_clean": ("perturbed", "recovery_given_clean"),
    "judge_auc": ("judge", "auc"),
    "judge_brier": ("judge", "brier"),
    "judge_ece": ("judge", "ece"),
    "divergences": ("divergences",),
    "alarms": ("alarms",),
    "difficulty_first": ("curriculum", "difficulty_first"),
    "difficulty_last": ("curriculum", "difficulty_last"),
    "success_asked": ("curriculum", "success_asked"),
    "in_zone": ("curriculum", "in_zone"),
    "train_seconds": ("train_seconds",),
}
"""Name -> where a run's result has the number."""
_WORLDS = ("clean", "perturbed")
_BINS = 5


@dataclass(frozen=True, slots=True)
class Arm:
    """The runs of a variant, by seed."""

    name: str
    runs: Mapping[int, Mapping[str, JSON]]

    def values(self, path: Sequence[str], seeds: Sequence[int]) -> list[float]:
        """A number of each run; NaN where it has none."""
        return [_number(self.runs[seed], *path) for seed in seeds]

    def success(self, world: str, seeds: Sequence[int], bin_: str | None = None) -> Floats:
        """Success on each task, or on those of a bin of difficulty, NaN without grade; no column where nothing was played. [S, T]"""
        rows = []
        for seed in seeds:
            played = self.runs[seed].get(world)
            tasks = cast("list[tuple[str, float, bool | None]]", played["tasks"]) if isinstance(played, Mapping) else []
            chosen = [good for _, difficulty, good in tasks if bin_ is None or _bin(difficulty) == bin_]
            rows.append([math.nan if good is None else float(good) for good in chosen])
        return np.array(rows, np.float64)

    def bins(self) -> list[str]:
        """Of the held-out tasks."""
        played = cast("Mapping[str, list[tuple[str, float, bool]]]", next(iter(self.runs.values()))["clean"])
        return sorted({_bin(difficulty) for _, difficulty, _ in played["tasks"]})

    def curve(self, seed: int) -> Curve:
        found = cast("Mapping[str, list[float]]", self.runs[seed]["curve"])
        return found["episodes"], found["success"]


@dataclass(frozen=True, slots=True)
class Study:
    """All runs that are through, and what they are compared with.

    Attributes:
        target: Validation success to which episodes are counted.
        areas: Arm -> seed -> mean success over the stretch of episodes that all curves have in common.
    """

    arms: Mapping[str, Arm]
    baseline: str
    target: float
    areas: Mapping[str, Mapping[int, float]]

    def seeds(self, name: str, other: str | None = None) -> list[int]:
        """Seeds of an arm, or those that two have in common."""
        return sorted(set(self.arms[name].runs) & set(self.arms[other or name].runs))

    def difference(self, name: str, other: str, world: str = "clean", bin_: str | None = None) -> Interval:
        """Success of one less that of the other, paired by seed and task."""
        seeds = self.seeds(name, other)
        return _over(*(self.arms[one].success(world, seeds, bin_) for one in (name, other)))

    def disturbance(self, name: str) -> Interval:
        """Perturbed less clean success, on the same tasks."""
        clean, rough = (self.arms[name].success(world, self.seeds(name)) for world in _WORLDS)
        return _over(rough, clean)

    def paired(self, name: str, other: str, path: Sequence[str]) -> Interval:
        """A number of one less that of the other, paired by seed."""
        seeds = self.seeds(name, other)
        mine, theirs = (self.arms[one].values(path, seeds) for one in (name, other))
        return over_seeds([a - b for a, b in zip(mine, theirs, strict=True)])

    def reached(self, name: str, seeds: Sequence[int]) -> list[Reached]:
        return [reached(self.arms[name].curve(seed), self.target) for seed in seeds]

    def ratio(self, name: str, other: str) -> Ratio:
        """Episodes of the other to the target, over this one's."""
        seeds = self.seeds(name, other)
        return ratio_of(self.reached(other, seeds), self.reached(name, seeds))

    def area(self, name: str, other: str) -> Interval:
        """Mean success over the curve, of one less that of the other."""
        return over_seeds([self.areas[name][seed] - self.areas[other][seed] for seed in self.seeds(name, other)])

    def to_json(self, name: str) -> dict[str, JSON]:
        """Everything about an arm."""
        arm, seeds = self.arms[name], self.seeds(name)
        first = self.reached(name, seeds)
        return {
            "seeds": seeds,
            **{f"success_{world}": told(_over(arm.success(world, seeds))) for world in _WORLDS},
            "success_by_difficulty": {bin_: told(_over(arm.success("clean", seeds, bin_))) for bin_ in arm.bins()},
            "perturbed_less_clean": told(self.disturbance(name)),
            "area": told(over_seeds([self.areas[name][seed] for seed in seeds])),
            "episodes_to_target": float(np.mean([one.episodes for one in first])),
            "runs_at_target": sum(one.is_reached for one in first),
            "episodes": float(np.mean([arm.curve(seed)[0][-1] for seed in seeds])),
            **{key: told(over_seeds(arm.values(path, seeds))) for key, path in OVER_SEEDS.items()},
            "against_baseline": None if name == self.baseline else self._against(name),
        }

    def _against(self, name: str) -> dict[str, JSON]:
        ratio = self.ratio(name, self.baseline)
        return {
            "seeds": self.seeds(name, self.baseline),
            **{f"success_{world}": told(self.difference(name, self.baseline, world)) for world in _WORLDS},
            "success_by_difficulty": {b: told(self.difference(name, self.baseline, bin_=b)) for b in self.arms[name].bins()},
            "area": told(self.area(name, self.baseline)),
            "episodes_ratio": {**told(ratio.value), "bound": ratio.bound},
        }


def read_study(plan: Plan, baseline: str | None = None, target: float | None = None) -> Study:
    """The plan's runs that are through.

    Args:
        plan: Its variants and seeds.
        baseline: A variant; None is `vanilla_grpo`, or where that is not there the first one.
        target: Validation success in [0, 1]; None is what the baseline reaches at its last validation, on average.

    Raises:
        ConfigError: No such baseline; a target that is no share.
        DataError: Nothing is through, or runs played other tasks.
    """
    names = [variant.name for variant in plan.variants]
    check_baseline(names, baseline, target)
    found = {name: {job.seed: read_json(job.result) for job in plan.jobs if job.variant == name and job.result.exists()} for name in names}
    arms = {name: Arm(name, runs) for name, runs in found.items() if runs}
    if not arms:
        raise DataError(f"{plan.out} holds no result of these variants and seeds yet; run stepwell ablate to the end.")
    _check_tasks(arms)
    chosen = baseline or ("vanilla_grpo" if "vanilla_grpo" in arms else next(iter(arms)))
    if chosen not in arms:
        raise DataError(f"No run of the baseline {chosen!r} is through; run stepwell ablate to the end.")
    ends = [arms[chosen].curve(seed)[1][-1] for seed in arms[chosen].runs]
    return Study(arms, chosen, float(np.mean(ends)) if target is None else target, _areas(arms))


def check_baseline(names: Sequence[str], baseline: str | None, target: float | None) -> None:
    """Before anything is run."""
    if baseline is not None and baseline not in names:
        raise ConfigError(f"The baseline {baseline!r} is none of the variants that are run; {nearest(baseline, names)}.")
    if target is not None and not 0 < target <= 1:
        raise ConfigError(f"--target is {target}; it is a share of episodes that succeed, above 0 and at most 1.")


def _check_tasks(arms: Mapping[str, Arm]) -> None:
    runs = [(f"{arm.name}-{seed}", run["clean"]) for arm in arms.values() for seed, run in arm.runs.items()]
    played = [(name, [task[0] for task in cast("Mapping[str, list[list[JSON]]]", clean)["tasks"]]) for name, clean in runs]
    for name, tasks in played[1:]:
        if tasks != played[0][1]:
            raise DataError(f"The runs {played[0][0]} and {name} were measured on different tasks; run one of them again.")


def _areas(arms: Mapping[str, Arm]) -> dict[str, dict[int, float]]:
    places = [(arm.name, seed) for arm in arms.values() for seed in arm.runs]
    made: dict[str, dict[int, float]] = {name: {} for name in arms}
    for (name, seed), area in zip(places, areas([arms[name].curve(seed) for name, seed in places]), strict=True):
        made[name][seed] = area
    return made


def _bin(difficulty: float) -> str:
    low = min(int(difficulty * _BINS), _BINS - 1) / _BINS
    return f"{low:.1f}-{low + 1 / _BINS:.1f}"


def _over(one_ST: Floats, other_ST: Floats | None = None) -> Interval:
    if not one_ST.size or (other_ST is not None and not other_ST.size):
        return Interval(math.nan, math.nan, math.nan)
    return crossed(one_ST if other_ST is None else one_ST - other_ST)


def told(interval: Interval) -> dict[str, JSON]:
    """For JSON: None where nothing is known."""
    return {name: float(value) if math.isfinite(value) else None for name, value in interval._asdict().items()}


def _number(found: Mapping[str, JSON], *path: str) -> float:
    """A number deep in a result; NaN where there is none."""
    inner: JSON = dict(found)
    for name in path:
        inner = inner.get(name) if isinstance(inner, Mapping) else None
    return float(inner) if isinstance(inner, int | float) and not isinstance(inner, bool) else math.nan
