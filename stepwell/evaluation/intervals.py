"""How sure a measured number is: Wilson's interval for a share, the bootstrap for a mean, Newcombe's interval for a change.

Legend: N values, K clusters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from stepwell.seeding import generator as seeded
from stepwell.types import Floats, Ids

__all__ = ["Interval", "bootstrap", "difference", "wilson"]

_BLOCK = 1 << 20


class Interval(NamedTuple):
    """A mean and the interval around it."""

    mean: float
    low: float
    high: float


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    r"""Wilson's score interval of a share (Wilson 1927): honest near 0 and 1, where mean +- z sd is not.

    $$\frac{p + z^2/2n \pm z\sqrt{p(1-p)/n + z^2/4n^2}}{1 + z^2/n}$$

    With n = 0 nothing is known: mean NaN, interval [0, 1]. It assumes independent trials; for several episodes of each task use
    `bootstrap` with clusters.

    >>> tuple(round(x, 4) for x in wilson(5, 10))
    (0.5, 0.2366, 0.7634)
    """
    if not 0 <= successes <= n:
        raise ValueError(f"Got {successes} successes of {n}; allowed is 0 to n.")
    if n == 0:
        return Interval(math.nan, 0.0, 1.0)
    z, p = _z(confidence), successes / n
    centre, width = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if successes == 0 else (centre - width) / scale
    high = 1.0 if successes == n else (centre + width) / scale
    return Interval(p, low, high)


def bootstrap(
    values_N: Floats | Sequence[float],
    generator: np.random.Generator | None = None,
    *,
    cluster_N: Ids | Sequence[int] | None = None,
    confidence: float = 0.95,
    resamples: int = 10_000,
) -> Interval:
    """Percentile bootstrap of the mean (Efron 1979).

    Args:
        values_N: Finite numbers; what is missing is left out (and counted) by the caller. No number at all gives NaN three times.
        generator: Draws the resamples; None is one of a fixed seed, so that the same values give the same interval.
        cluster_N: Equal numbers mark values that belong together (episodes of one task): whole clusters are drawn, because values of
            one task say less than as many values of different tasks. None: each value on its own.
        confidence: Share of the resampled means that lie inside.
        resamples: Number of them.
    """
    values = np.asarray(values_N, np.float64)
    if not np.all(np.isfinite(values)):
        raise ValueError(
            f"The bootstrap needs finite values; {int(np.sum(~np.isfinite(values)))} of {values.size} are not. Leave them out."
        )
    if values.size == 0:
        return Interval(math.nan, math.nan, math.nan)
    draws = seeded("bootstrap") if generator is None else generator
    cluster = np.arange(values.size) if cluster_N is None else np.unique(np.asarray(cluster_N), return_inverse=True)[1]
    if cluster.shape != values.shape:
        raise ValueError(f"Got {cluster.size} cluster numbers for {values.size} values; each value needs one.")
    total_K, count_K = np.bincount(cluster, weights=values), np.bincount(cluster)
    num_clusters = len(total_K)
    rows = max(1, _BLOCK // num_clusters)
    means = []
    for start in range(0, resamples, rows):
        drawn = draws.integers(num_clusters, size=(min(rows, resamples - start), num_clusters))
        means.append(total_K[drawn].sum(1) / count_K[drawn].sum(1))
    low, high = np.quantile(np.concatenate(means), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(values.mean()), float(low), float(high))


def difference(before: Interval, after: Interval) -> Interval:
    r"""The change from one share to another, from their Wilson intervals (Newcombe 1998, method 10).

    $$d - \sqrt{(a - l_a)^2 + (u_b - b)^2}, \quad d + \sqrt{(u_a - a)^2 + (b - l_b)^2}, \quad d = a - b$$

    It takes the two samples as independent, so it is wider than needed where both were measured on the same tasks.

    >>> tuple(round(x, 3) for x in difference(wilson(48, 80), wilson(56, 70)))
    (0.2, 0.052, 0.334)
    """
    change = after.mean - before.mean
    down = math.hypot(after.mean - after.low, before.high - before.mean)
    up = math.hypot(after.high - after.mean, before.mean - before.low)
    return Interval(change, change - down, change + up)


def _z(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; allowed is between 0 and 1, such as 0.95.")
    return NormalDist().inv_cdf((1 + confidence) / 2)
