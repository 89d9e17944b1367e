"""From pools of candidates to curves: every rule for every number of candidates, from one sample.

Legend: K problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stepwell.engine.batch import parts_of
from stepwell.evaluation.intervals import Interval, bootstrap, wilson
from stepwell.protocols import Domain
from stepwell.searching.answers import answering
from stepwell.searching.choose import ceiling, choose, worth
from stepwell.searching.found import CEILING, FLOOR, Cost, Curve, Made, Point
from stepwell.searching.pool import Pool
from stepwell.searching.settings import Method
from stepwell.seeding import generator
from stepwell.types import Episode

__all__ = ["Floors", "Prices", "choices", "floors_of", "mean_over", "over_floor", "prices", "sampled_curves"]


class Prices(NamedTuple):
    """What one candidate costs, in the mean, and what a problem costs once.

    Attributes:
        prompt: Tokens of the first context.
        sampled, seen: Tokens that the policy samples, and all that it sees behind the prompt.
        read, judged: Positions that the judge reads, and forward passes that this takes.
    """

    prompt: float
    sampled: float
    seen: float
    read: float
    judged: float

    def cost(self, n: int, *, judged: bool) -> Cost:
        """Of n candidates, with or without a judge."""
        read, passes = (n * self.read, n * self.judged) if judged else (0.0, 0.0)
        return Cost(n * self.sampled, read, self.prompt + n * self.seen + passes)


def prices(episodes: Sequence[Episode], read: int, passes: int) -> Prices:
    """Of these candidates, which a judge has read with so many positions in all."""
    played = [one for one in episodes if one.turns]
    num = max(1, len(episodes))
    prompts = [len(one.turns[0].context_ids) for one in played]
    seen = sum(len(part.ids) for one in played for part in parts_of(one)) - sum(prompts)
    sampled = sum(one.num_tokens for one in played)
    return Prices(sum(prompts) / max(1, len(prompts)), sampled / num, seen / num, read / num, read * passes / num)


Floors = Mapping[int, Mapping[str, float]]
"""Number of candidates -> problem -> how often the majority is right; empty where answers are not counted."""


def floors_of(pools: Sequence[Pool], sizes: Sequence[int], seed: int) -> Floors:
    """The floor, of candidates that were sampled independently."""
    return {n: _values(pools, FLOOR, n, seed, probability=False) for n in sizes}


def sampled_curves(
    pools: Sequence[Pool], methods: Sequence[Method], sizes: Sequence[int], floors: Floors, price: Prices, *, seed: int, probability: bool
) -> dict[str, Curve]:
    """The ceiling and these rules, of candidates that were sampled independently."""
    curves: dict[str, Curve] = {}
    names: list[Method | None] = [None, *methods]
    for name in names:
        points = []
        for n in sizes:
            values = floors[n] if name == FLOOR else _values(pools, name, n, seed, probability=probability)
            over = None if name == FLOOR or n not in floors else over_floor(values, floors[n])
            cost = price.cost(n, judged=name not in (None, FLOOR))
            points.append(Point(n, mean_over([*values.values()]), over, cost, len(values)))
        curves[name or CEILING] = tuple(points)
    return curves


def over_floor(values: Mapping[str, float], floor: Mapping[str, float]) -> Interval:
    """How much more than by majority, paired by problem."""
    return bootstrap([value - floor[key] for key, value in values.items() if key in floor])


def mean_over(values_K: Sequence[float]) -> Interval:
    """A bootstrap over problems; where all values are 0, or all 1, Wilson's interval."""
    if values_K and set(values_K) in ({0.0}, {1.0}):
        return wilson(int(sum(values_K)), len(values_K))
    return bootstrap(values_K)


def _values(pools: Sequence[Pool], method: Method | None, n: int, seed: int, *, probability: bool) -> dict[str, float]:
    """Of each problem with n candidates or more: how often the rule is right, or the ceiling."""
    enough = [pool for pool in pools if len(pool.candidates) >= n]
    if method is None:
        return {pool.task.key: ceiling(pool, n) for pool in enough}
    draws = {pool.task.key: generator(seed, "subsets", pool.task.key, n) for pool in enough}
    return {pool.task.key: worth(pool, method, n, draws[pool.task.key], probability=probability) for pool in enough}


def choices(pools: Sequence[Pool], methods: Sequence[Method], domain: Domain, *, probability: bool) -> list[Made]:
    """What each rule takes of all candidates of each problem."""
    made, answers = [], answering(domain)
    for pool in pools:
        for method in methods:
            member, tied = choose(pool, method, probability=probability)
            taken = None if member is None else pool.candidates[member]
            answer = answers.answer(taken.episode) if taken is not None and answers is not None else None
            place = None if taken is None else taken.episode.member
            made.append(Made(pool.task.key, method, place, answer, taken is not None and taken.right, tied))
    return made
