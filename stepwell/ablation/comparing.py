"""Numbers over seeds and tasks, with intervals. Legend: S seed, T task, R resample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stepwell.evaluation.efficiency import area_under, episodes_to
from stepwell.evaluation.intervals import Interval, bootstrap
from stepwell.seeding import generator
from stepwell.types import Floats

__all__ = ["Ratio", "Reached", "areas", "crossed", "over_seeds", "ratio_of", "reached"]

_RESAMPLES = 5_000
_UNKNOWN = Interval(math.nan, math.nan, math.nan)


def crossed(values_ST: Floats, *, confidence: float = 0.95) -> Interval:
    """The mean over seeds and tasks, with a percentile bootstrap that draws seeds and tasks anew, each as a whole.

    Every seed has played the same tasks, so neither are 5 x 200 numbers as many independent ones, nor may only one of the two be drawn
    (Owen 2007, the pigeonhole bootstrap; its interval is on the wide side). For a comparison give the differences, which pairs the two
    runs by seed and task. NaN marks what has no grade and counts for nothing. Of one seed only tasks can be drawn: how runs differ is
    then not in the interval.

    >>> crossed(np.array([[1.0, 0.0], [1.0, 0.0]])).mean
    0.5
    """
    known_ST = np.isfinite(values_ST)
    if not known_ST.any():
        return _UNKNOWN
    filled_ST, counted_ST = np.where(known_ST, values_ST, 0.0), known_ST.astype(np.float64)
    seeds_RS, tasks_RT = _draws(values_ST.shape[0], "seeds"), _draws(values_ST.shape[1], "tasks")
    total_R = ((seeds_RS @ filled_ST) * tasks_RT).sum(1)
    count_R = ((seeds_RS @ counted_ST) * tasks_RT).sum(1)
    means_R = total_R[count_R > 0] / count_R[count_R > 0]
    low, high = np.quantile(means_R, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(filled_ST.sum() / counted_ST.sum()), float(low), float(high))


@lru_cache(16)
def _draws(number: int, what: str) -> Floats:
    """How often each of so many is drawn in each resample; not to be written to. [R, number]"""
    drawn = generator("ablation", what, number).multinomial(number, np.full(number, 1 / number), size=_RESAMPLES)
    return drawn.astype(np.float64)


def over_seeds(values_S: Sequence[float]) -> Interval:
    """The mean over the seeds that have the number; the interval of fewer than two is NaN.

    >>> over_seeds([0.5]).mean, over_seeds([math.nan, math.nan]).mean
    (0.5, nan)
    """
    known = [value for value in values_S if not math.isnan(value)]
    if len(known) < 2:
        return Interval(known[0] if known else math.nan, math.nan, math.nan)
    return bootstrap(known)


# -- learning curves ----------------------------------------------------------------------------------------------------------

Curve = tuple[Sequence[float], Sequence[float]]
"""Episodes, growing, and validation success."""


def areas(curves_S: Sequence[Curve]) -> list[float]:
    """Mean success over each curve, from where the last begins to where the first ends; NaN where they have no stretch in common."""
    begin, end = max(x[0] for x, _ in curves_S), min(x[-1] for x, _ in curves_S)
    return [area_under(*_cut(curve, begin, end)) if begin < end else math.nan for curve in curves_S]


def _cut(curve: Curve, begin: float, end: float) -> tuple[list[float], list[float]]:
    x, y = (np.asarray(values, np.float64) for values in curve)
    points = [begin, *x[(x > begin) & (x < end)].tolist(), end]
    return points, np.interp(points, x, y).tolist()


class Reached(NamedTuple):
    """Episodes to a target; all that were played where it was not reached, which is then a bound."""

    episodes: float
    is_reached: bool


def reached(curve: Curve, target: float) -> Reached:
    """When the curve first is at the target.

    >>> reached(([0, 100, 200], [0.1, 0.3, 0.7]), 0.5), reached(([0, 100], [0.1, 0.3]), 0.5)
    (Reached(episodes=150.0, is_reached=True), Reached(episodes=100.0, is_reached=False))
    """
    found = episodes_to(target, *curve)
    return Reached(float(curve[0][-1]), False) if math.isinf(found) else Reached(found, True)


class Ratio(NamedTuple):
    """How many times the episodes: the baseline's over the other's.

    Attributes:
        value: Of the means over seeds, with a paired bootstrap over them (NaN of fewer than two).
        bound: `at least` where a run of the baseline never got there, `at most` where one of the other did not, `unknown` where one of
            each did not.
    """

    value: Interval
    bound: str = ""


def ratio_of(baseline_S: Sequence[Reached], other_S: Sequence[Reached]) -> Ratio:
    """Seeds are drawn in pairs. NaN where the other is at the target before anything is learnt, which compares warm starts.

    >>> ratio_of([Reached(300, True)] * 2, [Reached(100, True)] * 2).value
    Interval(mean=3.0, low=3.0, high=3.0)
    """
    short = [not all(one.is_reached for one in some) for some in (baseline_S, other_S)]
    bound = {(False, False): "", (True, False): "at least", (False, True): "at most", (True, True): "unknown"}[short[0], short[1]]
    a_S, b_S = (np.array([one.episodes for one in some], np.float64) for some in (baseline_S, other_S))
    if b_S.mean() <= 0 or not (a_S > 0).any():
        return Ratio(_UNKNOWN, bound)
    value = float(a_S.mean() / b_S.mean())
    if len(a_S) < 2:
        return Ratio(Interval(value, math.nan, math.nan), bound)
    drawn = generator("ratio of episodes").integers(len(a_S), size=(_RESAMPLES, len(a_S)))
    under_R = b_S[drawn].mean(1)
    ratios_R = np.where(under_R > 0, a_S[drawn].mean(1) / np.where(under_R > 0, under_R, 1.0), np.inf)
    low, high = np.quantile(ratios_R, [0.025, 0.975], method="nearest")
    return Ratio(Interval(value, float(low), float(high)), bound)
