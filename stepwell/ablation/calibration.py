"""How far a judge's numbers can be taken for the probability that an episode succeeds. Legend: N episodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stepwell.evaluation.efficiency import brier_score
from stepwell.evaluation.step_metrics import calibration_error
from stepwell.rewards.confidence import auc
from stepwell.seeding import generator
from stepwell.tracking import EpisodeRecord
from stepwell.types import Bools, Floats

__all__ = ["Calibration", "calibration", "probabilities", "said_of"]

_RIDGE = 1e-3


class Calibration(NamedTuple):
    """Of a judge's opinion on episodes that it had not learnt from.

    Attributes:
        auc: How often an episode that succeeds has the higher number; 0.5 is chance.
        brier, ece: Of the number turned into a probability by a logistic curve that was fitted to other tasks.
    """

    auc: float
    brier: float
    ece: float
    episodes: int


def said_of(records: Sequence[EpisodeRecord]) -> tuple[Floats, Bools, list[str]]:
    """Of each graded episode with a scored step: the mean reward of these steps before shaping, whether it succeeded, its task."""
    said, good, tasks = [], [], []
    for record in records:
        steps = [step for step in record.steps if step.scored]
        if record.success is not None and steps and all(step.rewards for step in steps):
            said.append(float(np.mean([sum(value or 0.0 for value in step.rewards.values()) for step in steps])))
            good.append(record.success)
            tasks.append(record.key)
    return np.array(said, np.float64), np.array(good, np.bool_), tasks


def calibration(said_N: Floats, good_N: Bools, tasks: Sequence[str]) -> Calibration:
    """Area under the ROC curve, Brier score and calibration error; NaN where one half of the tasks knows only successes or failures."""
    made_N = probabilities(said_N, good_N, tasks)
    if not len(made_N) or np.isnan(made_N).any():
        return Calibration(auc(said_N, good_N), math.nan, math.nan, len(said_N))
    return Calibration(auc(said_N, good_N), brier_score(made_N, good_N), calibration_error(made_N, good_N), len(said_N))


def probabilities(said_N: Floats, good_N: Bools, tasks: Sequence[str]) -> Floats:
    """Logistic curves, fitted on one half of the tasks and read on the other, and the other way round (Platt 1999)."""
    keys = sorted(set(tasks))
    order = generator("halves of tasks").permutation(len(keys))
    second = {keys[at] for at in order[: len(keys) // 2]}
    half_N = np.array([task in second for task in tasks], np.bool_)
    made_N = np.full(len(said_N), math.nan)
    for half in (half_N, ~half_N):
        others = ~half
        if half.any() and others.any() and 0 < good_N[others].sum() < others.sum():
            made_N[half] = _curve(said_N[others], good_N[others], said_N[half])
    return made_N


def _curve(said_N: Floats, good_N: Bools, asked_N: Floats) -> Floats:
    """P(good) at the numbers asked: Newton's method on the log-likelihood less a small ridge."""
    centre, scale = said_N.mean(), said_N.std() or 1.0

    def design(values_N: Floats) -> Floats:
        return np.stack([np.ones(len(values_N)), (values_N - centre) / scale], axis=1)

    x, weights = design(said_N), np.zeros(2)
    for _ in range(50):
        p = _logistic(x @ weights)
        slope = x.T @ (good_N - p) / len(p) - _RIDGE * weights
        bend = (x * (p * (1 - p))[:, None]).T @ x / len(p) + _RIDGE * np.eye(2)
        step = np.linalg.solve(bend, slope)
        weights = weights + np.clip(step, -2.0, 2.0)
        if np.abs(step).max() < 1e-10:
            break
    return _logistic(design(asked_N) @ weights)


def _logistic(z_N: Floats) -> Floats:
    made: Floats = 0.5 * (1.0 + np.tanh(0.5 * z_N))
    return made
