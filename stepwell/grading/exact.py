"""Answers that must be the gold answer letter for letter."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from stepwell.errors import DataError
from stepwell.grading.extract import extract
from stepwell.grading.graded import Grade, Graded
from stepwell.grading.kinds import Reads
from stepwell.grading.numbers import written
from stepwell.types import JSON

__all__ = ["Exact", "gold_text"]


@dataclass(frozen=True, slots=True)
class Exact:
    r"""Right is the same text; white space around it, and how much of it stands between words, says nothing.

    Attributes:
        reads: `boxed`: the text in the last box. `any`: that, else what follows `####`, else the whole text.

    >>> Exact("boxed").grade("the cat", r"\boxed{the  cat}").grade, Exact("any").grade("cat", "a cat").grade
    (<Grade.RIGHT: 'right'>, <Grade.WRONG: 'wrong'>)
    """

    reads: Reads = "boxed"

    def grade(self, gold: JSON, answer: str) -> Graded:
        """Grades one answer."""
        start = time.perf_counter()
        wanted = " ".join(gold_text(gold).split())
        found = extract(answer, "boxed")
        if found is None and self.reads == "any":
            found = answer.rpartition("####")[2]
        said = None if found is None else " ".join(found.split())
        took = time.perf_counter() - start
        if not wanted:
            return Graded(Grade.ERROR, said, took, "the gold answer is empty")
        if not said:
            return Graded(Grade.UNPARSED, None, took, "there is no box in the answer" if self.reads == "boxed" else "the answer is empty")
        return Graded(Grade.RIGHT if said == wanted else Grade.WRONG, said, took)

    def grade_all(self, items: Sequence[tuple[JSON, str]]) -> list[Graded]:
        """Grades many answers, in order."""
        return [self.grade(gold, answer) for gold, answer in items]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        """Nothing is held."""


def gold_text(gold: JSON) -> str:
    """A gold answer as text: numbers of data files (27.0) are written as people do (27).

    Raises:
        DataError: It is neither text nor number.
    """
    if isinstance(gold, str):
        return gold
    if isinstance(gold, int | float) and not isinstance(gold, bool):
        return written(gold)
    raise DataError(f"A gold answer is {str(gold)[:80]!r}; it must be a text or a number.")
