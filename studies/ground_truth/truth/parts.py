"""The parts of the study as jobs: what is computed for each cell and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from stepwell.evaluation.efficiency import area_under
from stepwell.types import JSON
from truth import plan
from truth.arms import JUDGES, Setting
from truth.cells import Cell
from truth.loop import train
from truth.quality import measured
from truth.records import Job, read_all
from truth.weighting import weighed
from truth.world import StudyError

__all__ = [
    "Scale",
    "area",
    "arm_jobs",
    "chosen",
    "chosen_judges",
    "efficiency_jobs",
    "judge_jobs",
    "map_jobs",
    "quality_jobs",
    "run",
    "weight_jobs",
]

POINTS = 40
"""Of a stored curve, at most."""
CHANCES = ("montecarlo value", "temporal value")
"""Judges that say chances, for calibration; the critic does, too."""


NOTHING_TO_TUNE = ("entropy", "intrinsic", "visits")
"""Judges that learn nothing."""


class Scale(NamedTuple):
    """How much of the plan is run."""

    seeds: Sequence[int] = plan.SEEDS
    tuning_seeds: Sequence[int] = plan.TUNING_SEEDS
    budget: int = plan.BUDGET
    tuning_budget: int = plan.TUNING_BUDGET
    steps: int = plan.QUALITY_STEPS
    judge_steps: int = 30
    repeats: int = 40
    quality: Sequence[Cell] = plan.QUALITY
    efficiency: Sequence[Cell] = plan.EFFICIENCY
    cells: Sequence[Cell] = plan.MAP
    anchors: Sequence[Cell] = plan.ANCHORS
    arms: Sequence[str] = plan.ARMS
    map_arms: Sequence[str] = plan.MAP_ARMS
    rates: Sequence[float] = plan.RATES
    judge_settings: Sequence[Setting] = tuple(plan.judge_settings())
    horizons: Sequence[int] = (2, 4, 8, 16)

    @classmethod
    def mini(cls) -> Scale:
        """Seconds: two seeds, two short cells, few arms."""
        cell = Cell(4, "common", 0.0)
        return cls(
            seeds=(0, 1),
            tuning_seeds=(100,),
            budget=48,
            tuning_budget=32,
            steps=3,
            judge_steps=3,
            repeats=4,
            quality=(cell,),
            efficiency=(cell,),
            cells=(cell, Cell(4, "graded", 0.4)),
            anchors=plan.ANCHORS,
            arms=("grpo", "oracle", "temporal", "repirl"),
            map_arms=("grpo", "oracle", "temporal"),
            rates=(0.3,),
            judge_settings=({"judge_lr": 0.1, "sees": "view"},),
            horizons=(2, 4),
        )

    @property
    def judges(self) -> list[str]:
        """Those of the arms that have one."""
        return [arm for arm in self.arms if arm in JUDGES]


# -- tuning -------------------------------------------------------------------------------------------------------------------


def judge_jobs(results: Path, scale: Scale) -> list[Job]:
    """Every judge with every setting of its own, as an onlooker."""
    learners = [name for name in scale.judges if name not in NOTHING_TO_TUNE]

    def job(setting: Setting, seed: int) -> JSON:
        found = measured(plan.JUDGE_TUNING, dict.fromkeys(learners, setting), seed, scale.judge_steps)
        return {name: float(np.nanmean([_number(part, "auc_now") for part in phases.values()])) for name, phases in found.items()}

    return [
        (results / "judges" / f"{setting['judge_lr']}-{setting['sees']}-s{seed}.json", partial(job, setting, seed))
        for setting in scale.judge_settings
        for seed in scale.tuning_seeds
    ]


def _number(part: Mapping[str, float], name: str) -> float:
    value = part.get(name, 0.5)
    return 0.5 if np.isnan(value) else value


def chosen_judges(results: Path, scale: Scale) -> dict[str, Setting]:
    """Learning rate and sight of each judge: the best mean AUC over tuning seeds."""
    made: dict[str, Setting] = {}
    found = cast(dict[str, dict[str, float]], read_all(results / "judges"))
    for name in scale.judges:
        if name in NOTHING_TO_TUNE:
            made[name] = {}
            continue
        means = {}
        for setting in scale.judge_settings:
            prefix = f"{setting['judge_lr']}-{setting['sees']}-s"
            values = [one[name] for file, one in found.items() if file.startswith(prefix)]
            if values:
                means[prefix] = (float(np.mean(values)), setting)
        if not means:
            raise StudyError("No judge has been tuned yet; run the part `judges` first.")
        made[name] = max(means.values(), key=lambda one: one[0])[1]
    return made


def arm_jobs(results: Path, scale: Scale) -> list[Job]:
    """Every arm with every setting, on short trails."""

    def job(cell: Cell, arm: str) -> JSON:
        judge = chosen_judges(results, scale).get(arm, {}) if arm in JUDGES else {}
        made: list[JSON] = []
        for setting in plan.settings(arm):
            if setting["lr"] in scale.rates:
                whole = {**judge, **setting}
                areas = [run(cell, arm, whole, seed, scale.tuning_budget)["area"] for seed in scale.tuning_seeds]
                made.append({"setting": dict(whole), "areas": areas})
        return made

    return [
        (results / "arms" / f"{cell.name}--{arm}.json", partial(job, cell, arm))
        for cell in scale.anchors
        for arm in scale.arms
        if arm in plan.arms_at(cell)
    ]


def chosen(results: Path, cell: Cell, arm: str) -> Setting:
    """The setting of an arm in a cell: the largest mean area under the curve over tuning seeds, in the cell's anchor."""
    path = results / "arms" / f"{plan.anchor_of(cell).name}--{arm}.json"
    if not path.exists():
        raise StudyError(f"Arm {arm!r} has not been tuned for {cell.name}; run the part `arms` first.")
    tried = cast(list[dict[str, JSON]], read_all(path.parent)[path.stem])
    best = max(tried, key=lambda one: float(np.mean(cast(list[float], one["areas"]))))
    return cast(Setting, best["setting"])


# -- what is reported ---------------------------------------------------------------------------------------------------------


def run(cell: Cell, arm: str, setting: Setting, seed: int, budget: int) -> dict[str, JSON]:
    """One training run: its curve, thinned, and the area under it.

    It ends early where the success has been above 0.99 three times in a row; the curve goes on from there as a straight line.
    """
    episodes, success = [], []
    for moment in train(cell, arm, setting, seed):
        episodes.append(moment.episodes)
        success.append(moment.success)
        if moment.episodes >= budget or (len(success) > 3 and min(success[-3:]) > 0.99):
            break
    kept = sorted({0, len(episodes) - 1, *np.linspace(0, len(episodes) - 1, POINTS).round().astype(int).tolist()})
    return {
        "area": round(area(episodes, success, budget), 4),
        "episodes": [episodes[i] for i in kept],
        "success": [round(success[i], 4) for i in kept],
    }


def area(episodes: Sequence[float], success: Sequence[float], budget: float) -> float:
    """Mean success over the budget: the area under the curve; from 0 episodes on, and after its end at its last value.

    >>> area([0, 10], [0.0, 1.0], 20)
    0.75
    """
    at = np.linspace(0.0, budget, 801)
    return area_under(at, np.interp(at, episodes, success))


def quality_jobs(results: Path, scale: Scale) -> list[Job]:
    """All judges as onlookers of one run."""

    def job(cell: Cell, seed: int) -> JSON:
        judges = dict(chosen_judges(results, scale))
        judges |= {name: judges[name.split()[0]] for name in CHANCES if name.split()[0] in judges}
        return cast(JSON, measured(cell, {**judges, "oracle": {}}, seed, scale.steps))

    return [(results / "quality" / f"{cell.name}-s{seed}.json", partial(job, cell, seed)) for cell in scale.quality for seed in scale.seeds]


def weight_jobs(results: Path, scale: Scale) -> list[Job]:
    """Importance weights against the exact partition function."""
    return [
        (results / "weights" / f"h{horizon}-s{seed}.json", partial(weighed, horizon, seed, scale.repeats))
        for horizon in scale.horizons
        for seed in scale.seeds
    ]


def efficiency_jobs(results: Path, scale: Scale) -> list[Job]:
    """Every arm where the question is asked most."""
    return _runs(results, "efficiency", scale.efficiency, scale.arms, scale)


def map_jobs(results: Path, scale: Scale) -> list[Job]:
    """Some arms everywhere."""
    return _runs(results, "map", scale.cells, scale.map_arms, scale)


def _runs(results: Path, part: str, cells: Sequence[Cell], arms: Sequence[str], scale: Scale) -> list[Job]:
    def job(cell: Cell, seed: int) -> JSON:
        return {arm: run(cell, arm, chosen(results, cell, arm), seed, scale.budget) for arm in arms}

    return [(results / part / f"{cell.name}-s{seed}.json", partial(job, cell, seed)) for cell in cells for seed in scale.seeds]
