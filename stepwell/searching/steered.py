"""Searches that a judge steers, measured: one of its own for every number of candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from stepwell.evaluation.aggregate import Aggregate
from stepwell.protocols import Domain
from stepwell.searching.answers import answering
from stepwell.searching.choose import choose
from stepwell.searching.curves import Prices, mean_over, over_floor
from stepwell.searching.found import Cost, Made, Point
from stepwell.searching.grow import Grow
from stepwell.searching.judge import Judge
from stepwell.searching.pool import pool_of
from stepwell.searching.settings import Method, SearchSettings
from stepwell.searching.trees import Plan, Tree, grown
from stepwell.types import Task

__all__ = ["Steered", "Steering", "plan_of"]


class Steered(NamedTuple):
    """A method with n candidates: its point, its choices, and how often equal scores decided on the way."""

    point: Point
    made: list[Made]
    ties: int


def plan_of(method: Method, n: int, asked: SearchSettings) -> Plan:
    """The shape of the trees of this method."""
    width = asked.width(n)
    if method == "dvts":
        return Plan(n, width, 1)
    return Plan(n, 1, width, asked.looks_ahead if method == "lookahead" else 0)


@dataclass(frozen=True, slots=True)
class Steering:
    """What all searches of a call have in common.

    Attributes:
        tasks: The problems.
        grow: Takes steps.
        judge, how: Who scores, and how the scores of steps become one.
        seed: Names the draws, as those of plain sampling.
        together: Problems that are searched side by side, at most: so many that the keys and values of all their candidates are held.
        votes: Whether answers are counted.
    """

    domain: Domain
    tasks: Sequence[Task]
    grow: Grow
    judge: Judge
    how: Aggregate
    seed: tuple[int | str, ...]
    together: int
    votes: bool

    def search(self, method: Method, plan: Plan, price: Prices, floor: Mapping[str, float]) -> Steered:
        """One search.

        Args:
            method: Its name.
            plan: The shape of its trees.
            price: Of plain sampling: what a prompt costs, and what the policy sees for each token that it samples.
            floor: Problem -> how often the majority of as many is right.
        """
        before = self.judge.positions
        trees = list(chain.from_iterable(self._some(plan, at) for at in range(0, len(self.tasks), self.together)))
        scores = iter(self.judge.scores([one for tree in trees for one in tree.episodes], self.how))
        read = self.judge.positions - before
        values: dict[str, float] = {}
        made: list[Made] = []
        answers = answering(self.domain)
        for task, tree in zip(self.tasks, trees, strict=True):
            pool = pool_of(self.domain, task, tree.episodes, [next(scores) for _ in tree.episodes], votes=self.votes)
            member, tied = choose(pool, "best_of_n", probability=self.judge.probability)
            taken = None if member is None else pool.candidates[member]
            answer = answers.answer(taken.episode) if taken is not None and answers is not None else None
            made.append(Made(task.key, method, member, answer, taken is not None and taken.right, tied))
            if pool.candidates:
                values[task.key] = float(made[-1].right)
        over = over_floor(values, floor) if floor else None
        cost = self._cost(trees, read, price)
        return Steered(Point(plan.n, mean_over([*values.values()]), over, cost, len(values)), made, sum(tree.ties for tree in trees))

    def _some(self, plan: Plan, at: int) -> list[Tree]:
        some = range(at, min(at + self.together, len(self.tasks)))
        seeds = [(*self.seed, slot) for slot in some]
        return grown([self.tasks[slot] for slot in some], plan, self.grow, self.judge, self.how, seeds=seeds)

    def _cost(self, trees: Sequence[Tree], read: int, price: Prices) -> Cost:
        num = len(trees)
        sampled = sum(tree.sampled for tree in trees) / num
        seen = sampled * price.seen / price.sampled if price.sampled else 0.0
        return Cost(sampled, read / num, price.prompt + seen + read * self.judge.passes / num)
