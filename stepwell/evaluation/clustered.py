r"""Standard errors where values belong together: attempts at one problem say less than as many problems.

Legend: N values, K clusters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stepwell.evaluation.intervals import Interval
from stepwell.types import Floats, Ids

__all__ = ["clustered_error", "clustered_wilson", "student", "student_interval"]


def clustered_error(values_N: Sequence[float] | Floats, cluster_N: Sequence[int] | Ids) -> float:
    r"""Standard error of a mean with values in clusters (Miller 2024, arXiv 2411.00640).

    $$\sqrt{\frac{K}{K-1} \sum_k \Big(\sum_{i \in k} (x_i - \bar x)\Big)^2} \Big/ n$$

    With each value a cluster of its own it is the usual s / sqrt(n). With one cluster nothing is known: NaN.

    >>> round(clustered_error([0, 1, 0, 1], [0, 1, 2, 3]), 6)
    0.288675
    """
    values, cluster = _checked(values_N, cluster_N)
    sums = np.bincount(cluster, weights=values - values.mean())
    num = len(sums)
    return math.sqrt(num / (num - 1) * float(np.sum(sums**2))) / len(values) if num > 1 else math.nan


def student_interval(
    values_N: Sequence[float] | Floats, cluster_N: Sequence[int] | Ids | None = None, confidence: float = 0.95
) -> Interval:
    """The mean and Student's interval around it; K - 1 degrees of freedom.

    Without clusters each value is one. With one cluster the interval is NaN.
    """
    values, cluster = _checked(values_N, np.arange(len(values_N)) if cluster_N is None else cluster_N)
    num = int(cluster.max()) + 1
    mean = float(values.mean())
    if num < 2:
        return Interval(mean, math.nan, math.nan)
    width = student((1 + confidence) / 2, num - 1) * clustered_error(values, cluster)
    return Interval(mean, mean - width, mean + width)


def clustered_wilson(wins_N: Sequence[float] | Floats, cluster_N: Sequence[int] | Ids, confidence: float = 0.95) -> Interval:
    r"""Wilson's interval of a share with as many trials as the clusters are worth (Korn and Graubard 1998).

    The effective number of trials is p (1 - p) over the clustered variance, at most n; the quantile is Student's with K - 1 degrees of
    freedom. Where that variance is 0 they are n, or one for each cluster where all are 0 or all 1.

    >>> tuple(round(x, 3) for x in clustered_wilson([1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 2, 2]))
    (0.667, 0.044, 0.989)
    """
    wins, cluster = _checked(wins_N, cluster_N)
    num, share = int(cluster.max()) + 1, float(wins.mean())
    if num < 2:
        return Interval(share, 0.0, 1.0)
    variance = clustered_error(wins, cluster) ** 2
    trials = min(float(len(wins)), share * (1 - share) / variance) if variance > 0 else float(len(wins) if 0 < share < 1 else num)
    z2 = student((1 + confidence) / 2, num - 1) ** 2
    centre = share + z2 / (2 * trials)
    width = math.sqrt(z2) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials))
    scale = 1 + z2 / trials
    return Interval(share, (centre - width) / scale, (centre + width) / scale)


def student(probability: float, freedom: int) -> float:
    """The quantile of Student's distribution, to about ten digits.

    >>> round(student(0.975, 9), 6), round(student(0.95, 1), 6)
    (2.262157, 6.313752)
    """
    if not 0.5 <= probability < 1 or freedom < 1:
        raise ValueError(f"Got probability {probability} and {freedom} degrees of freedom; allowed are [0.5, 1) and 1 or more.")
    nodes, weights = np.polynomial.legendre.leggauss(80)
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)

    def below(angle: float) -> float:
        """P(T <= sqrt(freedom) tan(angle)): with t = sqrt(freedom) tan, the density is a power of the cosine."""
        return 0.5 + scale * float(np.sum(weights * np.cos((nodes + 1) * angle / 2) ** (freedom - 1))) * angle / 2

    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < probability else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _checked(values_N: Sequence[float] | Floats, cluster_N: Sequence[int] | Ids) -> tuple[Floats, Ids]:
    values, cluster = np.asarray(values_N, np.float64), np.unique(np.asarray(cluster_N), return_inverse=True)[1].astype(np.int64)
    if values.size == 0 or values.shape != cluster.shape:
        raise ValueError(f"Got {values.size} values and {cluster.size} cluster numbers; there must be as many, and at least one.")
    if not np.all(np.isfinite(values)):
        raise ValueError("A value is not finite; leave unscored ones out.")
    return values, cluster
