"""How well scores of steps agree with the truth.

Legend: N steps of all episodes, S steps of an episode, K seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stepwell.evaluation.efficiency import episodes_to
from stepwell.evaluation.intervals import Interval, bootstrap
from stepwell.types import Floats
from truth.world import TIE

__all__ = ["auc", "brier", "calibration_error", "interval", "located", "paired", "ranks", "spearman", "spearman_within", "to_target"]


def ranks(values_N: Floats) -> Floats:
    """Ranks from 0, equal values sharing the mean of theirs. Values are rounded to 1e-9 first.

    >>> ranks(np.array([3.0, 1.0, 3.0]))
    array([1.5, 0. , 1.5])
    """
    _, inverse, counts = np.unique(np.round(values_N, 9), return_inverse=True, return_counts=True)
    first = np.cumsum(counts) - counts
    return np.asarray((first + (counts - 1) / 2)[inverse])


def spearman(said_N: Floats, true_N: Floats) -> float:
    """Correlation of ranks. NaN where the truth is constant; 0 where what is said is.

    >>> round(spearman(np.array([1.0, 2.0, 4.0]), np.array([1.0, 5.0, 3.0])), 3)
    0.5
    """
    said, true = ranks(np.asarray(said_N)), ranks(np.asarray(true_N))
    if len(true) < 2 or not true.std():
        return math.nan
    return float(np.corrcoef(said, true)[0, 1]) if said.std() else 0.0


def spearman_within(episodes: Sequence[tuple[Floats, Floats]]) -> float:
    """Mean over episodes of `spearman`, of those in which the truth is not constant: whether the step is found, not the episode."""
    found = [spearman(said_S, true_S) for said_S, true_S in episodes]
    kept = [value for value in found if not math.isnan(value)]
    return float(np.mean(kept)) if kept else math.nan


def auc(said_N: Floats, good_N: Floats) -> float:
    """How often a good step (`good_N` above `TIE`) is scored above a bad one (below `-TIE`); ties of the score count a half, steps that
    are neither do not count. NaN where one of the two kinds is missing.

    >>> auc(np.array([0.9, 0.1, 0.5, 0.9]), np.array([1.0, -1.0, 0.0, -1.0]))
    0.75
    """
    good, bad = said_N[good_N > TIE], said_N[good_N < -TIE]
    if not len(good) or not len(bad):
        return math.nan
    order = ranks(np.concatenate([good, bad]))
    return float((order[: len(good)].sum() - len(good) * (len(good) - 1) / 2) / (len(good) * len(bad)))


def located(episodes: Sequence[tuple[Floats, Floats]]) -> float:
    """Of episodes with a bad step, the share whose lowest score is at a step that is as bad as the worst one. Where several steps share the
    lowest score, the share of those."""
    found = []
    for said_S, true_S in episodes:
        if len(true_S) and true_S.min() < -TIE:
            lowest = np.abs(said_S - said_S.min()) < 1e-9
            found.append(float((np.abs(true_S - true_S.min()) < TIE)[lowest].mean()))
    return float(np.mean(found)) if found else math.nan


def brier(said_N: Floats, happened_N: Floats) -> float:
    """Mean squared distance of a probability from what happened."""
    return float(np.mean((said_N - happened_N) ** 2)) if len(said_N) else math.nan


def calibration_error(said_N: Floats, happened_N: Floats, bins: int = 10) -> float:
    """Expected calibration error: `sum over bins of n_b / n |mean said - mean happened|`, bins of equal width on [0, 1].

    >>> round(calibration_error(np.array([0.05, 0.05, 0.95, 0.95]), np.array([0.0, 1.0, 1.0, 1.0])), 3)
    0.25
    """
    if not len(said_N):
        return math.nan
    which = np.clip((said_N * bins).astype(np.int64), 0, bins - 1)
    gaps = [abs(said_N[which == b].sum() - happened_N[which == b].sum()) for b in range(bins)]
    return float(sum(gaps) / len(said_N))


# -- over seeds ---------------------------------------------------------------------------------------------------------------


def interval(values_K: Sequence[float]) -> Interval:
    """Mean over seeds and its bootstrap interval (95 %, 10,000 resamples of seeds); seeds without a number are left out."""
    return bootstrap([value for value in values_K if not math.isnan(value)])


def paired(values_K: Sequence[float], against_K: Sequence[float]) -> Interval:
    """Mean difference over the same seeds and its bootstrap interval."""
    return interval([a - b for a, b in zip(values_K, against_K, strict=True)])


class Reached(NamedTuple):
    """When a target was reached.

    Attributes:
        episodes: Played by then; the budget where it was not reached.
        is_reached: Whether it was.
    """

    episodes: float
    is_reached: bool


def to_target(episodes: Sequence[float], success: Sequence[float], target: float, budget: float) -> Reached:
    """The number of episodes at which a curve first reaches a target, as `evaluation.episodes_to` has it; the budget where it does not.

    >>> to_target([0, 10, 20], [0.0, 0.4, 0.8], 0.6, 100)
    Reached(episodes=15.0, is_reached=True)
    """
    found = episodes_to(target, episodes, success)
    return Reached(min(found, float(budget)), found <= budget)
