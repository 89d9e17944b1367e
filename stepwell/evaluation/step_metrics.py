"""How good a judge of steps is, where somebody has said which steps are right: the numbers of ProcessBench and PRMBench, and calibration.

Legend: S step of a solution, N steps of all solutions, I solution, K cluster, R resample, T threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stepwell.evaluation.intervals import Interval
from stepwell.rewards.confidence import auc
from stepwell.seeding import generator
from stepwell.types import Bools, Floats, Ids

__all__ = [
    "NOTHING",
    "Bounds",
    "Statistic",
    "auc_over",
    "best_threshold",
    "bounds_of",
    "calibration_error",
    "f1",
    "first_below",
    "harmonic",
    "last_minimum",
    "over_clusters",
    "share",
]

NOTHING = Interval(math.nan, math.nan, math.nan)
"""Where there is nothing to measure."""
_RESAMPLES = 2_000
_BLOCK = 1 << 22


# -- ProcessBench: where is the first error? ----------------------------------------------------------------------------------


def first_below(scores_S: Floats, threshold: float) -> int:
    """The first step with a score below the threshold, counted from 0; -1 where there is none.

    >>> first_below(np.array([0.9, 0.4, 0.1]), 0.5), first_below(np.array([0.9]), 0.5)
    (1, -1)
    """
    (below,) = np.nonzero(scores_S < threshold)
    return int(below[0]) if len(below) else -1


class Bounds(NamedTuple):
    """Between which thresholds the first step below them is the one that is wrong (or none, where none is): `low < threshold <= high`."""

    low: float
    high: float


def bounds_of(scores_S: Floats, first_error: int) -> Bounds:
    """The bounds of a solution; `first_error` is -1 where all is right.

    >>> bounds_of(np.array([0.9, 0.4, 0.1]), 1)
    Bounds(low=0.4, high=0.9)
    """
    if first_error < 0:
        return Bounds(-math.inf, float(scores_S.min(initial=math.inf)))
    return Bounds(float(scores_S[first_error]), float(scores_S[:first_error].min(initial=math.inf)))


def harmonic(a: Floats, b: Floats) -> Floats:
    """ProcessBench's F1: the harmonic mean of two accuracies. 0 where both are 0, NaN where one is unknown (no such solution).

    >>> harmonic(np.array([0.5, 0.0]), np.array([1.0, 0.0])).round(3).tolist()
    [0.667, 0.0]
    """
    total = a + b
    return np.where(total == 0, 0.0, 2 * a * b / np.where(total == 0, 1.0, total))


def share(part: Floats, whole: Floats) -> Floats:
    """A part of a whole; NaN of nothing."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), math.nan)


def best_threshold(bounds: Sequence[Bounds], wrong_I: Bools) -> float:
    """The threshold with the highest F1 on these solutions: of equals the lowest, halfway to the next place where anything changes.

    Where there are no solutions with an error, or none without, it is the one with the highest accuracy.
    """
    low_I, high_I = (np.array([getattr(one, name) for one in bounds]) for name in ("low", "high"))
    places = np.unique(np.concatenate([low_I, high_I]))
    places = places[np.isfinite(places)]
    if not len(places):
        return 0.0
    between = (places[:-1] + places[1:]) / 2
    tried_T = np.sort(np.concatenate([[places[0] - 1.0], between, [places[-1] + 1.0]]))
    right_IT = (low_I[:, None] < tried_T) & (tried_T <= high_I[:, None])
    shares = [right_IT[some].mean(0) for some in (wrong_I, ~wrong_I) if some.any()]
    reached_T = shares[0] if len(shares) == 1 else 2 * shares[0] * shares[1] / np.maximum(shares[0] + shares[1], 1e-300)
    return float(tried_T[int(np.argmax(reached_T))])


# -- single steps -------------------------------------------------------------------------------------------------------------


def f1(hit: Floats, wrongly: Floats, missed: Floats) -> Floats:
    """F1 of a class: `2 hit / (2 hit + wrongly + missed)`; NaN where the class neither is there nor was seen.

    >>> f1(np.array([3.0, 0.0]), np.array([1.0, 1.0]), np.array([2.0, 0.0])).round(4).tolist()
    [0.6667, 0.0]
    """
    return share(2 * hit, 2 * hit + wrongly + missed)


def calibration_error(said_N: Floats, good_N: Bools, bins: int = 10) -> float:
    """Expected calibration error: the mean distance between what is said and the share that is good, over bins of equal counts.

    Raises:
        ValueError: What is said is no probability.
    """
    if np.any((said_N < 0) | (said_N > 1)):
        raise ValueError(f"Calibration is of probabilities; these numbers lie in [{said_N.min()}, {said_N.max()}].")
    order = np.argsort(said_N, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(abs(said_N[part].mean() - good_N[part].mean()) * len(part) for part in parts) / len(order)) if len(order) else math.nan


def last_minimum(scores_S: Floats) -> float:
    """Whether the least score is that of the last step: 1 or 0, or a share where several are least. NaN below two steps."""
    if len(scores_S) < 2:
        return math.nan
    least = scores_S == scores_S.min()
    return float(least[-1] / least.sum())


# -- intervals ----------------------------------------------------------------------------------------------------------------

Statistic = Callable[[Floats], Floats]
"""From sums [..., M] to numbers [...]."""


def over_clusters(sums_KM: Floats, statistic: Statistic, *, confidence: float = 0.95) -> Interval:
    """A statistic of sums, with a percentile bootstrap that draws whole clusters (Efron 1979).

    Args:
        sums_KM: For each cluster (the solutions of a problem) the sums that the statistic is made of.
        statistic: From the sums of all clusters together to a number; NaN where it is undefined (such resamples are left out).
        confidence: Share of the resampled values that lie inside.
    """
    value = float(statistic(sums_KM.sum(0))) if len(sums_KM) else math.nan
    return NOTHING if math.isnan(value) else _interval(value, statistic(_draws(len(sums_KM)) @ sums_KM), confidence)


def auc_over(scores_N: Floats, good_N: Bools, cluster_N: Ids, *, confidence: float = 0.95) -> Interval:
    """How often a right step has a higher score than a wrong one (a tie is a half), with a bootstrap over clusters."""
    value = auc(scores_N, good_N)
    if math.isnan(value):
        return NOTHING
    order = np.argsort(scores_N, kind="stable")
    _, first = np.unique(scores_N[order], return_index=True)
    good, cluster = good_N[order].astype(np.float64), np.unique(cluster_N[order], return_inverse=True)[1]
    drawn = _draws(int(cluster.max()) + 1)
    rows = max(1, _BLOCK // len(order))
    areas = [_areas(drawn[at : at + rows, cluster], good, first) for at in range(0, len(drawn), rows)]
    return _interval(value, np.concatenate(areas), confidence)


def _areas(weight_RN: Floats, good_N: Floats, first: Ids) -> Floats:
    """Areas under the curve of steps sorted by score, each counted so often; `first` begins each run of equal scores. [R]"""
    good, every = (np.add.reduceat(weights, first, axis=1) for weights in (weight_RN * good_N, weight_RN))
    bad = every - good
    return share((good * (np.cumsum(bad, axis=1) - bad / 2)).sum(1), good.sum(1) * bad.sum(1))


@lru_cache(4)
def _draws(num_clusters: int) -> Floats:
    """How often each cluster is drawn in each resample; not to be written to. [R, K]"""
    even = np.full(num_clusters, 1.0 / num_clusters)
    return generator("judge benchmarks", num_clusters).multinomial(num_clusters, even, size=_RESAMPLES).astype(np.float64)


def _interval(value: float, values_R: Floats, confidence: float) -> Interval:
    known = values_R[~np.isnan(values_R)]
    low, high = np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(value, float(low), float(high))
