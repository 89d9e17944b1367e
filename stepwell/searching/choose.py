r"""Which of the candidates is given as the answer, and what a rule is worth with n of them.

What a rule is worth with n candidates is its mean over the subsets of size n of all that were sampled: unbiased for n candidates from the
start, so that one sample says it for every n. Of `best_of_n` and the ceiling (pass@n) it is known in closed form; votes take all subsets
where they are at most 2,000, else 2,000 random ones. Equal candidates share the chance to be chosen.

A candidate that is not eligible (unfinished, or without an answer) is never chosen and has no vote. One of which the judge says nothing is
chosen only where it says nothing of all, and weighs nothing in a weighted vote.

Legend: N candidate, M subset, C class of answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stepwell.evaluation.attempts import best_of_k, pass_at_k
from stepwell.evaluation.votes import leading, majority_at_k, subsets
from stepwell.searching.pool import Candidate, Pool
from stepwell.searching.settings import Method
from stepwell.types import Bools, Floats

__all__ = ["RULE", "Choice", "ceiling", "choose", "weights", "worth"]

RULE = (
    "In the curves, equal ones share the chance to be chosen; of the choice from all candidates, the first sampled of equal ones is taken."
)
"""How ties are broken."""
_UNSCORED, _INELIGIBLE = -1.0, -2.0
_ROUNDING = 1e-9


class Choice(NamedTuple):
    """What a rule takes of all candidates.

    Attributes:
        member: Its place among the candidates; None where none is eligible.
        tied: Whether others of another answer were as good, so that the order of sampling decided.
    """

    member: int | None
    tied: bool


def ceiling(pool: Pool, n: int) -> float:
    """The chance that one of n candidates is eligible and right: what a perfect judge of answers comes to."""
    return pass_at_k(len(pool.candidates), sum(one.right for one in pool.candidates), n)


def worth(pool: Pool, method: Method, n: int, generator: np.random.Generator, *, probability: bool) -> float:
    """How often the rule is right with n candidates.

    Args:
        pool: All candidates; at least n.
        method: Of `SAMPLED`.
        n: How many are sampled.
        generator: Draws the subsets.
        probability: Whether scores lie in [0, 1].
    """
    right = [float(one.right) for one in pool.candidates]
    if method == "best_of_n":
        return best_of_k(_ranks(pool.candidates), right, n)
    answers = [one.answer for one in pool.candidates]
    weights_N = weights(pool, method, probability=probability)
    if method == "group":
        return _group(pool, weights_N, n, generator)
    return majority_at_k(answers, [one.right for one in pool.candidates], n, generator, weights_N=weights_N)


def choose(pool: Pool, method: Method, *, probability: bool) -> Choice:
    """What the rule takes of all candidates; see `RULE`."""
    answers = [one.answer for one in pool.candidates]
    ranks = _ranks(pool.candidates)
    eligible = [at for at, answer in enumerate(answers) if answer is not None]
    if not eligible:
        return Choice(None, False)
    if method == "best_of_n":
        top = max(ranks[at] for at in eligible)
        best = [at for at in eligible if ranks[at] == top]
        return Choice(best[0], len({answers[at] for at in best}) > 1)
    known = _classes(pool)
    (leads,) = leading(np.ones((1, len(answers)), np.bool_), answers, weights(pool, method, probability=probability), known)
    taken = known[int(np.flatnonzero(leads)[0])]
    members = [at for at in eligible if answers[at] == taken]
    return Choice(max(members, key=lambda at: ranks[at]) if method == "group" else members[0], int(leads.sum()) > 1)


def weights(pool: Pool, method: Method, *, probability: bool) -> list[float]:
    """What each candidate's vote counts: 1 (`majority`); the score where it is a probability, else its sigmoid (`weighted`; Yuan et al.
    2024, arXiv 2412.01981); or in proportion to exp(score) (`group`; rePIRL, arXiv 2602.07832). 0 where the judge says nothing."""
    if method == "majority":
        return [1.0] * len(pool.candidates)
    scores = [one.score for one in pool.candidates]
    top = max((one for one in scores if one is not None), default=0.0)
    if method == "group":
        return [0.0 if one is None else math.exp(one - top) for one in scores]
    return [0.0 if one is None else one if probability else _sigmoid(one) for one in scores]


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _ranks(candidates: Sequence[Candidate]) -> list[float]:
    """The place of each score among all, from 0; below those whoever has none, and at the bottom whoever is not eligible. Scores that
    differ by rounding alone (means of one number over two and over three steps) are equal."""
    place: dict[float, float] = {}
    before, at = -math.inf, -1.0
    for score in sorted({one.score for one in candidates if one.score is not None}):
        at += not math.isclose(score, before, rel_tol=_ROUNDING)
        place[score] = at
        before = score
    return [_INELIGIBLE if one.answer is None else _UNSCORED if one.score is None else place[one.score] for one in candidates]


def _classes(pool: Pool) -> list[int]:
    """In order of first appearance."""
    return list(dict.fromkeys(one.answer for one in pool.candidates if one.answer is not None))


def _group(pool: Pool, weights_N: Sequence[float], n: int, generator: np.random.Generator) -> float:
    """The best member of the heaviest group, in the mean over subsets."""
    known = _classes(pool)
    if not known:
        return 0.0
    drawn_MN = subsets(len(pool.candidates), n, generator)
    tied_MC = leading(drawn_MN, [one.answer for one in pool.candidates], weights_N, known)
    worth_MC = np.stack([_best_member(pool, answer, drawn_MN) for answer in known], axis=1)
    return float(np.mean((tied_MC * worth_MC).sum(1) / np.maximum(tied_MC.sum(1), 1)))


def _best_member(pool: Pool, answer: int, drawn_MN: Bools) -> Floats:
    """How often the best-scored member of a class that was drawn is right; equal ones share. 0 where none was drawn. [M]"""
    rank_N = np.array(
        [rank if one.answer == answer else _INELIGIBLE for one, rank in zip(pool.candidates, _ranks(pool.candidates), strict=True)]
    )
    right_N = np.array([one.right for one in pool.candidates], np.float64)
    there_MN = np.where(drawn_MN, rank_N, _INELIGIBLE)
    best_MN = (there_MN == there_MN.max(1)[:, None]) & (there_MN > _INELIGIBLE)
    found: Floats = (best_MN * right_N).sum(1) / np.maximum(best_MN.sum(1), 1)
    return found
