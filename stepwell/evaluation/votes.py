"""Choosing among several answers: by score, by votes, by weighted votes; and what a vote of k is worth.

An answer is the number of its class: answers that mean the same are one (`classes`), because a vote by letters splits 1/2 and 0.5. None is
an attempt without an answer: it has no vote.

Legend: N attempts at one problem, M subsets of them, C classes of answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from stepwell.errors import ConfigError
from stepwell.types import Bools

__all__ = ["best", "classes", "leading", "majority", "majority_at_k", "subsets", "weighted"]

_SUBSETS = 2000


def classes(answers_N: Sequence[str | None], same: Callable[[str, str], bool]) -> list[int | None]:
    """The number of each answer's class, in order of first appearance.

    An answer is compared with the first of each class, the largest class first. Where `same` is not transitive (a tolerance), the first
    that it is the same as decides.

    >>> classes(["1/2", "3", None, "0.5"], lambda a, b: eval(a) == eval(b))
    [0, 1, None, 0]
    """
    known: dict[str, int] = {}
    firsts: list[str] = []
    sizes: list[int] = []
    found: list[int | None] = []
    for answer in answers_N:
        if answer is None:
            found.append(None)
            continue
        if answer not in known:
            order = sorted(range(len(firsts)), key=lambda one: -sizes[one])
            at = next((one for one in order if same(firsts[one], answer)), None)
            if at is None:
                at = len(firsts)
                firsts.append(answer)
                sizes.append(0)
            known[answer] = at
        sizes[known[answer]] += 1
        found.append(known[answer])
    return found


def best(scores_N: Sequence[float], answers_N: Sequence[int | None] | None = None) -> int:
    """Which attempt has the highest score; the first of equal ones.

    Args:
        scores_N: Of the attempts; finite.
        answers_N: The class of each answer. An attempt without one (None) is not chosen: where steps are multiplied, an attempt that broke
            off early has few of them and so a high score.

    Raises:
        ConfigError: There is nothing to choose from, lists of different lengths, or a score that is not finite.

    >>> best([0.2, 0.9, 0.9]), best([0.81, 0.774], [None, 0])
    (1, 1)
    """
    if not len(scores_N):
        raise ConfigError("There is no attempt to choose from.")
    answers = [0] * len(scores_N) if answers_N is None else answers_N
    if len(answers) != len(scores_N):
        raise ConfigError(f"Got {len(scores_N)} scores for {len(answers)} answers; each attempt needs one of each.")
    eligible = [n for n, answer in enumerate(answers) if answer is not None]
    if not eligible:
        raise ConfigError(f"None of the {len(scores_N)} attempts has an answer, so that none can be chosen.")
    return max(eligible, key=_finite(scores_N).__getitem__)


def majority(answers_N: Sequence[int | None]) -> int | None:
    """The answer that most attempts give; of equally many, the first one met. None where there is no answer.

    >>> majority([2, 0, None, 0, 2]), majority([None])
    (2, None)
    """
    return weighted(answers_N, [1.0] * len(answers_N))


def weighted(answers_N: Sequence[int | None], weights_N: Sequence[float]) -> int | None:
    """The answer with the largest sum of weights (a judge's scores, their exponentials or sigmoids); of equal sums, the first one met.

    Raises:
        ConfigError: Lists of different lengths, or a weight that is not finite.

    >>> weighted([0, 1, 1], [0.9, 0.3, 0.4])
    0
    """
    totals = _totals(answers_N, weights_N)
    return max(totals, key=lambda answer: totals[answer]) if totals else None


def majority_at_k(
    answers_N: Sequence[int | None],
    right_N: Sequence[bool],
    k: int,
    generator: np.random.Generator,
    *,
    weights_N: Sequence[float] | None = None,
) -> float:
    """How often a vote among k of the attempts is right (maj@k, or with weights weighted maj@k).

    The mean over the subsets of size k: over all of them where there are at most 2,000, else over 2,000 random ones. The first k attempts
    alone, which some take, are one subset and noisy. Answers with equally many votes share the chance to be taken. A subset without any
    answer is not right.

    Args:
        answers_N: The class of each answer; None where an attempt gave none.
        right_N: Whether it is right; of a class, the share of its attempts that are.
        k: How many vote.
        generator: Draws the subsets.
        weights_N: What each vote counts; 1 by default.

    Raises:
        ConfigError: Lists of different lengths, or not 1 <= k <= n.

    >>> majority_at_k([0, 0, 1], [True, True, False], 3, np.random.default_rng(0))
    1.0
    """
    n = len(answers_N)
    weights = [1.0] * n if weights_N is None else list(weights_N)
    if not len(right_N) == len(weights) == n:
        raise ConfigError(f"Got {n} answers, {len(right_N)} verdicts and {len(weights)} weights; each attempt needs one of each.")
    if not 1 <= k <= n:
        raise ConfigError(f"maj@{k} was asked for with {n} attempts at a problem; k may be 1 to {n}.")
    share: dict[int, list[bool]] = {}
    for answer, right in zip(answers_N, right_N, strict=True):
        if answer is not None:
            share.setdefault(answer, []).append(bool(right))
    worth = {answer: sum(verdicts) / len(verdicts) for answer, verdicts in share.items()}
    if not worth:
        return 0.0
    drawn_MN = subsets(n, k, generator)
    tied_MC = leading(drawn_MN, answers_N, _finite(weights), list(worth))
    num_tied_M = tied_MC.sum(1)
    return float(np.mean(tied_MC @ np.array([*worth.values()]) / np.maximum(num_tied_M, 1)))


def subsets(n: int, k: int, generator: np.random.Generator) -> Bools:
    """Subsets of size k of n attempts, True where an attempt is drawn: all where there are at most 2,000, else 2,000 random ones. [M, N]"""
    if math.comb(n, k) <= _SUBSETS:
        chosen = np.array([*combinations(range(n), k)], np.int64)
    else:
        chosen = generator.random((_SUBSETS, n)).argsort(axis=1)[:, :k]
    drawn_MN = np.zeros((len(chosen), n), np.bool_)
    np.put_along_axis(drawn_MN, chosen, True, axis=1)
    return drawn_MN


def leading(drawn_MN: Bools, answers_N: Sequence[int | None], weights_N: Sequence[float], classes_C: Sequence[int]) -> Bools:
    """Which classes of answers have the largest sum of weights in each subset: several where they are equal, none where no answer was
    drawn. [M, C]"""
    votes_NC = np.array([[answer == one for one in classes_C] for answer in answers_N], np.float64)
    there_MC = drawn_MN @ votes_NC > 0
    totals_MC = np.where(there_MC, drawn_MN @ (np.asarray(weights_N, np.float64)[:, None] * votes_NC), -np.inf)
    top_M1 = np.where(there_MC.any(1), totals_MC.max(1), 0.0)[:, None]
    leads: Bools = totals_MC >= top_M1 - np.maximum(1e-12 * np.abs(top_M1), 1e-300)
    return leads


def _totals(answers: Sequence[int | None], weights: Sequence[float]) -> dict[int, float]:
    """Answer -> sum of weights, in order of first appearance."""
    if len(answers) != len(weights):
        raise ConfigError(f"Got {len(weights)} weights for {len(answers)} answers; each attempt needs one of each.")
    totals: dict[int, float] = {}
    for answer, weight in zip(answers, _finite(weights), strict=True):
        if answer is not None:
            totals[answer] = totals.get(answer, 0.0) + weight
    return totals


def _finite(scores: Sequence[float]) -> list[float]:
    """The scores, of which NaN would be above all others or below all, as it happens to be met."""
    found = [float(score) for score in scores]
    if not all(map(math.isfinite, found)):
        raise ConfigError("A score of an attempt is not finite; leave unscored attempts out (and count them).")
    return found
