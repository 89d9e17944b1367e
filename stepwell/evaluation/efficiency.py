"""How fast a run learns: pure functions of its learning curve. Legend: K points of a curve."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stepwell.errors import ConfigError
from stepwell.types import Bools, Floats

__all__ = ["area_under", "brier_score", "efficiency_ratio", "episodes_to"]


def episodes_to(target: float, episodes_K: Sequence[float] | Floats, success_K: Sequence[float] | Floats, *, stays: int = 1) -> float:
    """Episodes until success reaches the target and stays there for `stays` points; between two points in a straight line. inf: never.

    A single lucky point counts with `stays=1`; two or three say more.

    >>> episodes_to(0.5, [0, 100, 200], [0.1, 0.3, 0.7])
    150.0
    """
    x, y = _curve(episodes_K, success_K)
    if stays < 1:
        raise ConfigError(f"stays is {stays}; it counts points from 1.")
    for k in range(len(y) - stays + 1):
        if np.all(y[k : k + stays] >= target):
            if k == 0 or y[k - 1] >= target:
                return float(x[k])
            return float(x[k - 1] + (target - y[k - 1]) / (y[k] - y[k - 1]) * (x[k] - x[k - 1]))
    return math.inf


def area_under(episodes_K: Sequence[float] | Floats, success_K: Sequence[float] | Floats) -> float:
    """Mean success over the curve: the area under it by trapezia, divided by its length.

    >>> area_under([0, 100, 200], [0.0, 0.5, 0.5])
    0.375
    """
    x, y = _curve(episodes_K, success_K)
    if len(x) == 1:
        return float(y[0])
    return float(np.sum((y[1:] + y[:-1]) / 2.0 * np.diff(x)) / (x[-1] - x[0]))


def efficiency_ratio(baseline: float, other: float) -> float:
    """How many times fewer episodes the other needs than the baseline; NaN where neither reaches the target.

    >>> efficiency_ratio(3000.0, 1000.0), efficiency_ratio(float("inf"), 1000.0)
    (3.0, inf)
    """
    if math.isinf(baseline) and math.isinf(other):
        return math.nan
    return baseline / other if other > 0 else math.inf


def brier_score(said_N: Floats, good_N: Bools) -> float:
    """Mean squared distance between a probability and what came (Brier 1950); NaN of nothing. 0 is perfect, 0.25 that of always 1/2.

    >>> brier_score(np.array([0.8, 0.4]), np.array([True, False]))
    0.1
    """
    if len(said_N) and not np.all((said_N >= 0) & (said_N <= 1)):
        raise ConfigError("The Brier score is of probabilities, which lie in [0, 1]; turn scores into probabilities first.")
    return round(float(np.mean((said_N - good_N) ** 2)), 12) if len(said_N) else math.nan


def _curve(episodes_K: Sequence[float] | Floats, success_K: Sequence[float] | Floats) -> tuple[Floats, Floats]:
    x, y = np.asarray(episodes_K, np.float64), np.asarray(success_K, np.float64)
    if x.shape != y.shape or x.ndim != 1 or not len(x) or np.any(np.diff(x) <= 0) or not np.all(np.isfinite(y)):
        raise ConfigError(
            f"A learning curve is a number of episodes, growing, and a finite success for each; got {len(x)} and {len(y)} numbers."
        )
    return x, y
