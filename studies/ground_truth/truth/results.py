"""From the JSON files of the study to numbers over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from stepwell.evaluation.intervals import Interval
from stepwell.seeding import generator
from truth.arms import EXPERTS, JUDGES, OUTCOME_ONLY
from truth.cells import Cell
from truth.measures import interval, paired, to_target
from truth.records import read_all

__all__ = ["Arm", "CellRuns", "Ratio", "quality_of", "ratio", "runs_of", "weights_of"]

Numbers = dict[str, float]


class Ratio(NamedTuple):
    """How many times the episodes.

    Attributes:
        value: Of the means over seeds.
        low, high: Bootstrap interval over seeds, paired.
        is_bound: Whether some run of the first arm never got there, so that the true number is larger.
    """

    value: float
    low: float
    high: float
    is_bound: bool


@dataclass(frozen=True)
class Arm:
    """Runs of an arm in a cell, one for each seed.

    Attributes:
        name: Of the arm.
        areas: Under the curves.
        reached: Episodes to the target; the budget where it was not reached.
        is_reached: Whether it was.
    """

    name: str
    areas: list[float]
    reached: list[float]
    is_reached: list[bool]

    @property
    def episodes(self) -> float:
        """To the target, on average."""
        return float(np.mean(self.reached))


@dataclass(frozen=True)
class CellRuns:
    """All arms of a cell."""

    cell: Cell
    seeds: list[int]
    arms: dict[str, Arm]
    curves: dict[str, list[tuple[list[float], list[float]]]]

    @property
    def baseline(self) -> Arm:
        """The best outcome-only arm: the fewest episodes to the target, then the largest area; chosen by the seeds that are reported."""
        return self.best([arm for arm in OUTCOME_ONLY if arm in self.arms])

    def best(self, names: Sequence[str]) -> Arm:
        """Of these arms."""
        return min((self.arms[name] for name in names), key=lambda arm: (arm.episodes, -float(np.mean(arm.areas))))

    def judges(self, *, told: bool) -> list[str]:
        """Judges that are told more than outcomes (`EXPERTS`), or the others."""
        return [name for name in self.arms if name in JUDGES and (name in EXPERTS) == told]

    def saving(self, arm: Arm) -> Ratio:
        """How many times the episodes of this arm the best outcome-only arm needs."""
        return ratio(self.baseline, arm)

    def gain(self, arm: Arm) -> Interval:
        """Area above the best outcome-only arm's, over the same seeds."""
        return paired(arm.areas, self.baseline.areas)


def ratio(one: Arm, other: Arm) -> Ratio:
    """Episodes of the first over episodes of the second; seeds are drawn again in pairs, 10,000 times."""
    a, b = np.array(one.reached), np.array(other.reached)
    drawn = generator("ratio").integers(len(a), size=(10_000, len(a)))
    low, high = np.quantile(a[drawn].mean(axis=1) / b[drawn].mean(axis=1), [0.025, 0.975])
    return Ratio(float(a.mean() / b.mean()), float(low), float(high), not all(one.is_reached))


def runs_of(folder: Path, cells: Sequence[Cell], *, target: float, budget: float) -> list[CellRuns]:
    """The cells of which there are results, in the plan's order."""
    found = cast(Mapping[str, dict[str, dict[str, list[float]]]], read_all(folder))
    made = []
    for cell in cells:
        prefix = f"{cell.name}-s"
        seeds = sorted(int(name.removeprefix(prefix)) for name in found if name.startswith(prefix))
        if not seeds:
            continue
        runs = [found[f"{prefix}{seed}"] for seed in seeds]
        arms, curves = {}, {}
        for name in runs[0]:
            reached = [to_target(run[name]["episodes"], run[name]["success"], target, budget) for run in runs]
            areas = [float(cast(float, run[name]["area"])) for run in runs]
            arms[name] = Arm(name, areas, [one.episodes for one in reached], [one.is_reached for one in reached])
            curves[name] = [(run[name]["episodes"], run[name]["success"]) for run in runs]
        made.append(CellRuns(cell, seeds, arms, curves))
    return made


def quality_of(folder: Path, cell: Cell) -> dict[str, dict[str, dict[str, Interval]]]:
    """Judge -> phase -> measure -> interval over seeds."""
    found = cast(Mapping[str, dict[str, dict[str, Numbers]]], read_all(folder))
    runs = [one for name, one in found.items() if name.startswith(f"{cell.name}-s")]
    made: dict[str, dict[str, dict[str, Interval]]] = {}
    for judge in runs[0] if runs else ():
        for phase in runs[0][judge]:
            names = {name for run in runs for name in run[judge][phase]}
            values = {name: interval([run[judge][phase].get(name, math.nan) for run in runs]) for name in sorted(names)}
            made.setdefault(judge, {})[phase] = values
    return made


def weights_of(folder: Path) -> dict[int, dict[str, dict[str, Interval]]]:
    """Horizon -> scheme and batch -> measure -> interval over seeds."""
    found = cast(Mapping[str, dict[str, Numbers]], read_all(folder))
    horizons = sorted({int(name[1:].split("-")[0]) for name in found})
    made: dict[int, dict[str, dict[str, Interval]]] = {}
    for horizon in horizons:
        runs = [one for name, one in found.items() if name.startswith(f"h{horizon}-")]
        made[horizon] = {k: {m: interval([run[k][m] for run in runs]) for m in runs[0][k]} for k in runs[0]}
    return made
