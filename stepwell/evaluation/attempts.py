r"""What several attempts at a problem are worth, in closed form: no resampling, no noise.

All are means over the subsets of size k that can be drawn of n attempts without replacement, which makes them unbiased for k attempts
from the start. k above n is an error: nothing was measured there.

Legend: N attempts at one problem.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stepwell.errors import ConfigError
from stepwell.types import Floats

__all__ = ["best_of_k", "g_pass_at_k", "pass_at_k", "pass_hat_k"]


def pass_at_k(n: int, c: int, k: int) -> float:
    r"""The chance that one of k attempts is right, from n attempts of which c are (Chen et al. 2021, arXiv 2107.03374, equation 1).

    $$1 - \binom{n-c}{k} / \binom{n}{k}$$

    Raises:
        ConfigError: Not 0 <= c <= n, or not 1 <= k <= n.

    >>> round(pass_at_k(8, 3, 4), 3), pass_at_k(4, 1, 4)
    (0.929, 1.0)
    """
    _check(n, c, k)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    r"""The chance that k attempts are all right: how reliable a policy is (Yao et al. 2024, arXiv 2406.12045).

    $$\binom{c}{k} / \binom{n}{k}$$

    Raises:
        ConfigError: As `pass_at_k`.

    >>> round(pass_hat_k(8, 4, 2), 4), pass_hat_k(4, 3, 4)
    (0.2143, 0.0)
    """
    _check(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def g_pass_at_k(n: int, c: int, k: int, threshold: float) -> float:
    r"""The chance that at least a share `threshold` of k attempts is right (G-Pass@k, Liu et al. 2024, arXiv 2412.13147).

    $$\sum_{j \ge \max(1, \lceil \tau k \rceil)} \binom{c}{j}\binom{n-c}{k-j} / \binom{n}{k}$$

    Threshold 0 asks for one of them and is pass@k; 1 is pass^k.

    Raises:
        ConfigError: As `pass_at_k`; or the threshold is not in [0, 1].

    >>> round(g_pass_at_k(10, 4, 2, 0.0), 4), round(g_pass_at_k(10, 4, 4, 0.5), 4)
    (0.6667, 0.5476)
    """
    _check(n, c, k)
    if not 0 <= threshold <= 1:
        raise ConfigError(f"The threshold of G-Pass@k is {threshold}; allowed is a share from 0 to 1.")
    least = max(1, math.ceil(threshold * k - 1e-9))
    return sum(math.comb(c, j) * math.comb(n - c, k - j) for j in range(least, min(c, k) + 1)) / math.comb(n, k)


def best_of_k(scores_N: Sequence[float] | Floats, values_N: Sequence[float] | Floats, k: int) -> float:
    r"""What the best-scored of k attempts is worth, in the mean over all subsets of size k.

    With attempts in descending order of score,

    $$\sum_{i=1}^{n} v_{(i)} \binom{n-i}{k-1} / \binom{n}{k}$$

    because $v_{(i)}$ is chosen where it is drawn and none of the i - 1 above it is. Equal scores share their chances: each of them is as
    likely to be taken as another. With k = 1 it is the mean of the values; with the value as score, the expected maximum.

    Args:
        scores_N: By what the best is chosen, such as a judge's score; finite.
        values_N: What each attempt is worth, such as 1 where it is right.
        k: How many are chosen from.

    Raises:
        ConfigError: Different numbers of scores and values, a number that is not finite, or not 1 <= k <= n.

    >>> best_of_k([0.9, 0.1, 0.5], [1, 0, 0], 2)
    0.6666666666666666
    """
    scores, values = np.asarray(scores_N, np.float64), np.asarray(values_N, np.float64)
    if scores.shape != values.shape or scores.ndim != 1:
        raise ConfigError(f"Got {scores.size} scores for {values.size} values; each attempt needs one of each.")
    if not (np.all(np.isfinite(scores)) and np.all(np.isfinite(values))):
        raise ConfigError("A score or a value of an attempt is not finite; leave unscored attempts out (and count them).")
    n = len(values)
    _check(n, 0, k)
    _, tied_N = np.unique(-scores, return_inverse=True)
    mean_of_tie = np.bincount(tied_N, weights=values) / np.bincount(tied_N)
    ordered = mean_of_tie[np.sort(tied_N)]
    whole = math.comb(n, k)
    return float(sum(value * (math.comb(n - i, k - 1) / whole) for i, value in enumerate(ordered, 1)))


def _check(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n:
        raise ConfigError(f"{c} of {n} attempts are said to be right; allowed is 0 to {n}.")
    if not 1 <= k <= n:
        raise ConfigError(f"k is {k} with {n} attempts at a problem; k may be 1 to {n}. Sample more, or ask for a smaller k.")
