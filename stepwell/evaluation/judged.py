"""Labelled solutions with what a judge says of their steps, and sums over them.

Legend: S step of a solution, I solution, K problem.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stepwell.evaluation.intervals import Interval
from stepwell.evaluation.step_metrics import Bounds, Statistic, bounds_of, over_clusters
from stepwell.seeding import generator
from stepwell.types import Bools, Floats

__all__ = ["Judged", "Result", "Threshold", "by_subset", "halves", "length_baseline", "position_baseline", "with_scores"]


@dataclass(frozen=True, slots=True)
class Judged:
    """A labelled solution, and what a judge says of its steps.

    Attributes:
        problem: Solutions of the same problem have the same: they are drawn together in a bootstrap.
        subset: Of the benchmark.
        scores: A number for each step; None where the judge says none. [S]
        labels: Of each step, in [0, 1]; None where nobody has said. [S]
        sizes: Characters of each step. [S]
        cut: Whether a step did not fit into the judge's context, so that nothing is known about what follows.
    """

    problem: str
    subset: str
    scores: tuple[float | None, ...]
    labels: tuple[float | None, ...]
    sizes: tuple[int, ...]
    cut: bool = False

    def __post_init__(self) -> None:
        if not len(self.scores) == len(self.labels) == len(self.sizes):
            raise ValueError(
                f"A solution has {len(self.scores)} scores, {len(self.labels)} labels and {len(self.sizes)} sizes; every step needs one."
            )

    @property
    def first_error(self) -> int:
        """Of the first step whose label is 0, from 0 on; -1 where there is none."""
        return next((at for at, label in enumerate(self.labels) if label == 0), -1)

    @property
    def bounds(self) -> Bounds:
        """Thresholds at which the judge is right about the first error.

        Steps without a score are passed over. Where the wrong one has none, or a solution without error was cut before its end, the judge
        is right at no threshold.
        """
        said = np.array([math.inf if score is None else score for score in self.scores])
        error = self.first_error
        if (error >= 0 and self.scores[error] is None) or (error < 0 and self.cut):
            return Bounds(math.inf, -math.inf)
        return bounds_of(said, error)


class Threshold(NamedTuple):
    """Below which score a step is called wrong: for each solution its own, as no solution's threshold may have seen the solution.

    Attributes:
        values: Of each solution. [I]
        told: Where they come from, in words.
    """

    values: Floats
    told: str

    @classmethod
    def fixed(cls, value: float, num: int, told: str) -> Threshold:
        """The same for all."""
        return cls(np.full(num, value), told)


class Result(NamedTuple):
    """Numbers of one judge (or baseline) on one subset, with intervals."""

    who: str
    subset: str
    solutions: int
    numbers: Mapping[str, Interval]


def length_baseline(judged: Sequence[Judged]) -> list[Judged]:
    """A judge that finds a step the worse the longer it is."""
    return [with_scores(one, [-float(size) for size in one.sizes]) for one in judged]


def position_baseline(judged: Sequence[Judged]) -> list[Judged]:
    """A judge that finds a step the worse the later it comes."""
    return [with_scores(one, [-float(at) for at in range(len(one.labels))]) for one in judged]


def with_scores(one: Judged, scores: Sequence[float]) -> Judged:
    """The same solution, judged by somebody who reads to its end."""
    return Judged(one.problem, one.subset, tuple(scores), one.labels, one.sizes)


def halves(judged: Sequence[Judged]) -> Bools:
    """Which half each solution's problem is in, drawn at random (always the same draw)."""
    problems = sorted({one.problem for one in judged})
    order = generator("halves of problems").permutation(len(problems))
    second = {problems[i] for i in order[: len(problems) // 2]}
    return np.array([one.problem in second for one in judged], np.bool_)


def by_subset(who: str, judged: Sequence[Judged], columns: Sequence[tuple[float, ...]], numbers: Mapping[str, Statistic]) -> list[Result]:
    """Numbers made of sums over solutions, for each subset, and for all together where there are several; intervals over problems.

    Args:
        who: Whose they are.
        judged: The solutions. [I]
        columns: M numbers of each solution, which are summed. [I]
        numbers: From the sums, [..., M], to numbers.
    """
    subsets: list[str] = sorted({one.subset for one in judged})
    if len(subsets) > 1:
        subsets.append("all")
    made = []
    for subset in subsets:
        chosen = [i for i, one in enumerate(judged) if subset == "all" or one.subset == subset]
        cluster = np.unique([judged[i].problem for i in chosen], return_inverse=True)[1]
        table = np.array([columns[i] for i in chosen], np.float64)
        sums = np.stack([np.bincount(cluster, weights=column).astype(np.float64) for column in table.T], axis=1)
        found = {name: over_clusters(sums, number) for name, number in numbers.items()}
        made.append(Result(who, subset, len(chosen), found))
    return made
