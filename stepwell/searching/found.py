"""What a search comes to: curves of success over the number of candidates and over what they cost, and the choices that were made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from stepwell.evaluation.intervals import Interval
from stepwell.searching.choose import RULE
from stepwell.types import JSON

__all__ = ["CEILING", "FLOOR", "Cost", "Curve", "Found", "Made", "Point"]

CEILING: Final = "pass_at_n"
FLOOR: Final = "majority"


class Cost(NamedTuple):
    """What is spent on a problem, in the mean over problems.

    Attributes:
        policy_tokens: Sampled.
        judge_tokens: Positions that the judge read, prompts included; again each time that it was asked.
        forwards: Forward passes of a token position: the prompt once, all that the policy saw and sampled, and what the judge read, twice
            where it is compared with a reference. A pass through a judge counts like one through the policy, whatever their sizes.
    """

    policy_tokens: float
    judge_tokens: float
    forwards: float


class Point(NamedTuple):
    """A rule with n candidates.

    Attributes:
        success: Share of problems that are answered rightly, with a 95 % bootstrap interval over problems.
        over_majority: How much more than by majority with as many candidates, paired by problem. None of the floor itself, and where
            answers are not counted.
        problems: On how many it is measured; fewer than all where candidates have no verdict.
    """

    n: int
    success: Interval
    over_majority: Interval | None
    cost: Cost
    problems: int


Curve = tuple[Point, ...]


class Made(NamedTuple):
    """The choice from all candidates of a problem.

    Attributes:
        member: Its place among those that were sampled; None where none is eligible.
        answer: Its text, where the domain has answers.
        tied: Whether others of another answer were as good.
    """

    task: str
    method: str
    member: int | None
    answer: str | None
    right: bool
    tied: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search.

    Attributes:
        model, judge: Who sampled, who judged, in words; judge is "" where nobody did.
        aggregate: How the scores of steps became one.
        curves: By the name of the rule; `pass_at_n` is the ceiling, and `majority` (where answers are counted) the floor.
        made: The choices from all candidates, by each rule for each problem.
        unfinished, left_out, unscored: Candidates that are not eligible, that have no verdict, and finished ones of which the judge says
            nothing.
        ties: Rule -> problems in which the order of sampling decided.
        seconds: Of sampling, judging and choosing, on the clock.
    """

    model: str
    judge: str
    domain: str
    split: str
    problems: int
    n: int
    seed: int
    temperature: float
    aggregate: str
    curves: Mapping[str, Curve]
    made: tuple[Made, ...]
    unfinished: int
    left_out: int
    unscored: int
    ties: Mapping[str, int]
    seconds: Mapping[str, float]

    def to_json(self) -> dict[str, JSON]:
        """All but the choices, which are a line each in `choices_json`."""
        return {
            "model": self.model,
            "judge": self.judge or None,
            "domain": self.domain,
            "split": self.split,
            "problems": self.problems,
            "n": self.n,
            "seed": self.seed,
            "temperature": self.temperature,
            "aggregate": self.aggregate or None,
            "curves": {name: [_point(point) for point in curve] for name, curve in self.curves.items()},
            "candidates": {"unfinished": self.unfinished, "left_out": self.left_out, "unscored": self.unscored},
            "ties": dict(self.ties),
            "rule_of_ties": RULE,
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
        }

    def choices_json(self) -> list[dict[str, JSON]]:
        """A choice a line."""
        return [dict(one._asdict()) for one in self.made]


def _point(point: Point) -> dict[str, JSON]:
    over = None if point.over_majority is None else _interval(point.over_majority)
    cost: dict[str, JSON] = {name: round(value, 1) for name, value in point.cost._asdict().items()}
    return {"n": point.n, "success": _interval(point.success), "over_majority": over, "problems": point.problems, **cost}


def _interval(interval: Interval) -> dict[str, JSON]:
    return {name: None if math.isnan(value) else value for name, value in interval._asdict().items()}
