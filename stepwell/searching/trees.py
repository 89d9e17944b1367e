"""Searches that a judge steers step by step: beam search, diverse subtrees, and looking ahead.

A tree of n candidates begins with n first steps, drawn independently. After each step those that are over keep their place and take no part
any more; of the others the best by the judge's score so far go on, and share the places that are left, in order. With as many going on as
there are places (a beam of n) nothing is ever dropped, and the candidates are those of plain sampling, to the token.

- `beam`: one tree of n places, of which `width` go on (Snell et al. 2024, arXiv 2408.03314, section 5.2).
- `dvts`: `width` trees of n / width places, of each of which one goes on (diverse verifier tree search, Beeching et al. 2024).
- `lookahead`: a beam whose judge sees each candidate some steps further, taken greedily (Snell et al. 2024).

Branches of one past share its keys and values: the sampler finds the longest beginning that it holds, and copies it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from stepwell.evaluation.aggregate import Aggregate
from stepwell.rollout import GOES_ON, begun
from stepwell.searching.grow import Grow
from stepwell.searching.judge import Judge
from stepwell.types import Episode, Task

__all__ = ["Plan", "Tree", "grown"]


class Plan(NamedTuple):
    """The shape of a search.

    Attributes:
        n: Candidates of a problem.
        trees: Independent trees of n / trees places each (as nearly as that goes).
        keep: How many candidates of a tree go on, at most; they share the places of all that would.
        ahead: Steps that the judge sees further.
    """

    n: int
    trees: int
    keep: int
    ahead: int = 0

    def places(self) -> list[list[int]]:
        """The places of each tree."""
        bounds = [self.n * at // self.trees for at in range(self.trees + 1)]
        return [list(range(a, b)) for a, b in pairwise(bounds)]


class Tree(NamedTuple):
    """What a search of a problem came to.

    Attributes:
        episodes: In the order of their places. [n]
        sampled: Tokens that were sampled on the way, dropped ones and looked-ahead ones included.
        ties: Times that candidates of equal score stood where only some went on; those of the first places did.
    """

    episodes: list[Episode]
    sampled: int
    ties: int


def grown(
    tasks: Sequence[Task], plan: Plan, grow: Grow, judge: Judge, how: Aggregate, *, seeds: Sequence[tuple[int | str, ...]]
) -> list[Tree]:
    """Searches all these problems side by side, so that sampling and judging are each one call a step.

    Args:
        tasks: The problems.
        plan: The shape.
        grow: Takes steps.
        judge: Scores what stands so far.
        how: How the scores of steps become one.
        seeds: One for each problem; a place adds its number.
    """
    rows = [[begun(task, place) for place in range(plan.n)] for task in tasks]
    sampled, ties = [0] * len(tasks), [0] * len(tasks)
    draws = [[(*seed, place) for place in range(plan.n)] for seed in seeds]
    while any(one.ending == GOES_ON for row in rows for one in row):
        taken = grow.steps([one for row in rows for one in row], [draw for row in draws for draw in row])
        for at in range(len(tasks)):
            new = taken[at * plan.n : (at + 1) * plan.n]
            sampled[at] += sum(b.num_tokens - a.num_tokens for a, b in zip(rows[at], new, strict=True))
            rows[at] = new
        if plan.keep * plan.trees >= plan.n and plan.ahead == 0:
            continue
        looked = _ahead(rows, plan, grow, draws, sampled)
        scores = _scores(rows, looked, judge, how)
        for at, row in enumerate(rows):
            rows[at], equal = _kept(row, scores[at], plan)
            ties[at] += equal
    return [Tree(row, tokens, tied) for row, tokens, tied in zip(rows, sampled, ties, strict=True)]


def _ahead(
    rows: list[list[Episode]], plan: Plan, grow: Grow, draws: list[list[tuple[int | str, ...]]], sampled: list[int]
) -> list[list[Episode]]:
    """Each candidate that goes on, as it would stand some steps further; their tokens are added to `sampled`."""
    looked = rows
    for _ in range(plan.ahead):
        going = [(at, place) for at, row in enumerate(looked) for place, one in enumerate(row) if one.ending == GOES_ON]
        further = grow.greedily([looked[at][place] for at, place in going], [draws[at][place] for at, place in going])
        looked = [list(row) for row in looked]
        for (at, place), one in zip(going, further, strict=True):
            sampled[at] += one.num_tokens - looked[at][place].num_tokens
            looked[at][place] = one
    return looked


def _scores(rows: list[list[Episode]], looked: list[list[Episode]], judge: Judge, how: Aggregate) -> list[list[float | None]]:
    """Of those that go on."""
    going = [(at, place) for at, row in enumerate(rows) for place, one in enumerate(row) if one.ending == GOES_ON]
    said = dict(zip(going, judge.scores_so_far([looked[at][place] for at, place in going], how), strict=True))
    return [[said.get((at, place)) for place in range(len(row))] for at, row in enumerate(rows)]


def _kept(row: Sequence[Episode], scores: Sequence[float | None], plan: Plan) -> tuple[list[Episode], int]:
    """The row after the worse ones are dropped, and how often the order of places decided."""
    made, ties = list(row), 0
    for places in plan.places():
        open_ = [place for place in places if row[place].ending == GOES_ON]
        num = min(plan.keep, len(open_))
        ranked = sorted(open_, key=lambda place: (-_number(scores[place]), place))
        ties += 0 < num < len(ranked) and _equal(_number(scores[ranked[num - 1]]), _number(scores[ranked[num]]))
        parents = sorted(ranked[:num])
        for at, place in enumerate(open_):
            made[place] = row[parents[at * num // len(open_)]]
    return made, ties


def _equal(one: float, other: float) -> bool:
    """To rounding."""
    return one == other or math.isclose(one, other, rel_tol=1e-9)


def _number(score: float | None) -> float:
    """Whoever the judge says nothing of comes last."""
    return float("-inf") if score is None else score
