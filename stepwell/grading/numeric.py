"""Answers that are a number, within a tolerance."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import TracebackType
from typing import Self

from stepwell.errors import ConfigError
from stepwell.grading.exact import gold_text
from stepwell.grading.extract import extract
from stepwell.grading.graded import Grade, Graded
from stepwell.grading.kinds import Reads
from stepwell.grading.numbers import last_number, read_number
from stepwell.grading.tidy import tidy, without_unit
from stepwell.types import JSON

__all__ = ["Numeric"]


@dataclass(frozen=True, slots=True)
class Numeric:
    r"""Right is the same number, or one close enough to it. Numbers are fractions: nothing is rounded on the way.

    An answer $a$ to the gold answer $g$ is right if $|a - g| \le$ `absolute` or $|a - g| \le$ `relative` $|g|$, or, where `rounded`, if $a$
    rounded to as many decimals as $g$ is written with (half away from zero) is $g$.

    Attributes:
        reads: `boxed`: the number in the last box. `any`: see `stepwell.grading.extract`; in a longer text the last number.
        absolute: Tolerance in the units of the answer.
        relative: Tolerance as a share of the gold answer.
        rounded: Whether more decimals than the gold answer has are rounded first.

    Raises:
        ConfigError: A tolerance is below 0 or not finite.

    >>> Numeric("any").grade("72", "The total is 72 clips, altogether.").grade, Numeric("any").grade("3", "#### -3").grade
    (<Grade.RIGHT: 'right'>, <Grade.WRONG: 'wrong'>)
    >>> Numeric("any", rounded=True).grade("71.1", "71.08").grade
    <Grade.RIGHT: 'right'>
    """

    reads: Reads = "boxed"
    absolute: float = 0.0
    relative: float = 0.0
    rounded: bool = False

    def __post_init__(self) -> None:
        for name, value in (("absolute", self.absolute), ("relative", self.relative)):
            if not 0 <= value < float("inf"):
                raise ConfigError(f"The {name} tolerance is {value}; give a number of 0 or more.")

    def grade(self, gold: JSON, answer: str) -> Graded:
        """Grades one answer."""
        start = time.perf_counter()
        text = gold_text(gold)
        wanted = _number(text)
        found = extract(answer, self.reads)
        number = None if found is None else _number(found)
        if number is None and found is not None and self.reads == "any":
            found = last_number(found)
            number = None if found is None else read_number(found)
        took = time.perf_counter() - start
        if wanted is None:
            return Graded(Grade.ERROR, found, took, f"the gold answer {text[:60]!r} is no number")
        if found is None:
            return Graded(
                Grade.UNPARSED, None, took, "there is no closed box in the answer" if self.reads == "boxed" else "there is no number in it"
            )
        if number is None:
            return Graded(Grade.UNPARSED, found, took, f"{found[:60]!r} is no number")
        return Graded(Grade.RIGHT if self._close(wanted, number, text) else Grade.WRONG, found, took)

    def _close(self, wanted: Fraction, number: Fraction, text: str) -> bool:
        apart = abs(number - wanted)
        if apart <= Fraction(str(self.absolute)) or apart <= Fraction(str(self.relative)) * abs(wanted):
            return True
        if not self.rounded:
            return False
        unit = 10 ** len(text.strip().partition(".")[2].rstrip("%$ ")) if "." in text else 1
        scaled = number * unit
        nearest = (abs(scaled) + Fraction(1, 2)).__floor__() * (-1 if scaled < 0 else 1)
        return Fraction(nearest, unit) == wanted

    def grade_all(self, items: Sequence[tuple[JSON, str]]) -> list[Graded]:
        """Grades many answers, in order."""
        return [self.grade(gold, answer) for gold, answer in items]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        """Nothing is held."""


def _number(text: str) -> Fraction | None:
    plain = tidy(without_unit(text))
    found = read_number(plain)
    return read_number(plain.rpartition("=")[2]) if found is None and "=" in plain else found
