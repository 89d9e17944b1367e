"""What the runs say: numbers of an arm, and differences between arms, with intervals over seeds and tasks.

Legend: R run (seed), K task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.evaluation.attempts import pass_at_k
from stepwell.evaluation.intervals import Interval
from stepwell.seeding import generator
from stepwell.types import Floats

__all__ = ["Arm", "over", "ratio", "read_arms"]

_RESAMPLES = 4000
_ATTEMPTS = 16


@dataclass(frozen=True)
class Arm:
    """The runs of an arm by seed, each the object that is in its file."""

    name: str
    runs: Mapping[int, Mapping[str, Any]]

    def success(self, k: int, seeds: Sequence[int]) -> Floats:
        """pass@k of each task. [R, K]"""
        return np.array([[pass_at_k(_ATTEMPTS, wins, k) for wins in self.runs[seed]["test"]["wins"]] for seed in seeds])

    def greedy(self, seeds: Sequence[int]) -> Floats:
        """[R, K]"""
        return np.array([self.runs[seed]["test"]["greedy"] for seed in seeds], np.float64)

    def chosen(self, method: str, n: int, seeds: Sequence[int]) -> Floats:
        """How often the rule is right with n candidates. [R, K]"""
        return np.array([self.runs[seed]["test"]["chosen"][method][str(n)] for seed in seeds])

    @property
    def says_best_by(self) -> bool:
        """Whether all runs know what other aggregates than the mean would choose."""
        return all("best_by" in run["test"] for run in self.runs.values())

    def best_by(self, how: str, n: int, seeds: Sequence[int]) -> Floats:
        """How often best of n is right with step rewards put together so. [R, K]"""
        if how == "mean":
            return self.chosen("best_of_n", n, seeds)
        return np.array([self.runs[seed]["test"]["best_by"][how][str(n)] for seed in seeds])

    def curve(self, name: str, seeds: Sequence[int]) -> Floats:
        """A metric of each step of training; NaN where there is none. [R, step]"""
        return np.array([self.runs[seed]["curve"][name] for seed in seeds], np.float64)

    def step_s(self, seeds: Sequence[int]) -> Floats:
        """Processor seconds of a step, the median of each run. [R]"""
        return np.median(self.curve("cpu_s", seeds), axis=1)


def read_arms(folder: Path) -> dict[str, Arm]:
    """All runs of a folder, by arm."""
    runs: dict[str, dict[int, Mapping[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        run = json.loads(path.read_text())
        runs.setdefault(run["arm"], {})[run["seed"]] = run
    return {name: Arm(name, found) for name, found in runs.items()}


def over(values_RK: Floats) -> Interval:
    """The mean, with a 95 % interval from drawing seeds and tasks anew, both with replacement."""
    means = _redrawn(values_RK)
    return Interval(float(values_RK.mean()), *(float(x) for x in np.quantile(means, (0.025, 0.975))))


def ratio(one_RK: Floats, other_RK: Floats) -> Interval:
    """Of two means over the same seeds and tasks, redrawn together."""
    redrawn = _redrawn(one_RK) / _redrawn(other_RK)
    return Interval(float(one_RK.mean() / other_RK.mean()), *(float(x) for x in np.quantile(redrawn, (0.025, 0.975))))


def _redrawn(values_RK: Floats) -> Floats:
    """Means of resamples; the same draws for tables of the same shape."""
    rng = generator("studies/reasoning", *values_RK.shape)
    runs, tasks = values_RK.shape
    rows = rng.integers(runs, size=(_RESAMPLES, runs))
    columns = rng.integers(tasks, size=(_RESAMPLES, tasks))
    often_R, often_K = (np.array([np.bincount(one, minlength=size) for one in drawn]) for drawn, size in ((rows, runs), (columns, tasks)))
    found: Floats = ((often_R @ values_RK) * often_K).sum(1) / values_RK.size
    return found
