r"""How many different right approaches a policy has to a problem: for each problem by itself, and at a fixed number of attempts.

A count of distinct approaches grows with the number of attempts, so two policies are compared at the same number m (rarefaction), and a
count over all problems together measures the problems. Attempts that are wrong are attempts without an approach.

Legend: A approaches to one problem.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from stepwell.errors import ConfigError
from stepwell.evaluation.intervals import Interval, bootstrap

__all__ = ["Breadth", "breadth", "coverage", "hill", "rarefied"]


class Breadth(NamedTuple):
    """Breadth in the mean over problems, each with a 95 % bootstrap interval over them.

    Attributes:
        distinct: Expected number of distinct right approaches in m attempts.
        entropy: Hill number of order 1 of the right attempts: as many equally common approaches would be as mixed. Over problems with a
            right attempt.
        common: Hill number of order 2: as many equally common ones would make two right attempts agree as often. Over the same problems.
        attempts: m.
    """

    distinct: Interval
    entropy: Interval
    common: Interval
    attempts: int


def breadth(approaches: Sequence[Sequence[Hashable | None]], attempts: int) -> Breadth:
    """Breadth over problems.

    Args:
        approaches: For each problem, what each attempt's approach is (anything that compares), or None where the attempt is wrong.
        attempts: m: the number of attempts at which breadth is compared.

    Raises:
        ConfigError: No problem; or a problem has fewer than m attempts.
    """
    if not approaches:
        raise ConfigError("There is no problem to measure breadth on.")
    counted = [(Counter(one for one in problem if one is not None), len(problem)) for problem in approaches]
    distinct = [rarefied([*counts.values()], n, attempts) for counts, n in counted]
    solved = [[*counts.values()] for counts, _ in counted if counts]
    return Breadth(
        bootstrap(distinct),
        bootstrap([hill(counts, 1) for counts in solved]),
        bootstrap([hill(counts, 2) for counts in solved]),
        attempts,
    )


def rarefied(counts_A: Sequence[int], n: int, m: int) -> float:
    r"""Expected number of distinct approaches in m of n attempts (Hurlbert 1971).

    $$\sum_a 1 - \binom{n - n_a}{m} / \binom{n}{m}$$

    Each term is pass@m of one approach. With m = 1 it is the share of right attempts; with m = n the number of approaches.

    Args:
        counts_A: How many attempts took each approach.
        n: All attempts, wrong ones too; at least the sum of the counts.
        m: The fixed number of attempts.

    Raises:
        ConfigError: Counts that do not fit n, or not 1 <= m <= n.

    >>> rarefied([2, 1], 4, 1), rarefied([2, 1], 4, 4)
    (0.75, 2.0)
    """
    if any(count < 0 for count in counts_A) or sum(counts_A) > n:
        raise ConfigError(f"Approaches with {list(counts_A)} attempts do not fit into {n} attempts.")
    if not 1 <= m <= n:
        raise ConfigError(f"Breadth at {m} attempts was asked for, and a problem has {n}; it may be 1 to {n}.")
    whole = math.comb(n, m)
    return sum(1.0 - math.comb(n - count, m) / whole for count in counts_A)


def hill(counts_A: Sequence[int], order: float) -> float:
    r"""Hill number (Hill 1973): the effective number of approaches. 0: their number; 1: exp of the entropy; 2: inverse Simpson.

    $$\Big(\sum_a p_a^q\Big)^{1/(1-q)}$$

    Raises:
        ConfigError: There is no attempt; or the order is below 0.

    >>> hill([3, 3], 0), round(hill([3, 3], 1), 6), round(hill([8, 1, 1], 2), 6)
    (2.0, 2.0, 1.515152)
    """
    counts = np.asarray([count for count in counts_A if count > 0], np.float64)
    if counts.size == 0:
        raise ConfigError("A Hill number needs at least one attempt with an approach.")
    if not order >= 0:
        raise ConfigError(f"The order of a Hill number is {order}; allowed is 0 or more.")
    shares = counts / counts.sum()
    if math.isclose(order, 1.0):
        return float(np.exp(-np.sum(shares * np.log(shares))))
    return float(np.sum(shares**order) ** (1 / (1 - order)))


def coverage(counts_A: Sequence[int]) -> float:
    """How much of what the policy would do next has been seen: 1 less the share of approaches met once (Good 1953). 0 for no attempt.

    >>> coverage([3, 1]), coverage([1, 1])
    (0.75, 0.0)
    """
    total = sum(counts_A)
    return 1.0 - sum(count == 1 for count in counts_A) / total if total else 0.0
