"""A problem of a benchmark, whatever file it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stepwell.errors import DataError
from stepwell.types import JSON

__all__ = ["GradedBy", "Problem", "Row", "text_of"]

Row = Mapping[str, JSON]
GradedBy = Literal["maths", "numeric", "code", "numbers"]
"""How an answer is judged: a formula, a number, a program, or an expression in given numbers."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, what is right, and what is known about it.

    Attributes:
        key: Names the problem in its set.
        text: What is asked.
        gold: The right answer as text; "" where there are tests.
        tests: For programs, in a form that `stepwell.grading.code` reads; for `numbers`, {"numbers": [...], "target": ...}.
        solution: A worked solution; "" where there is none.
        difficulty: In [0, 1], from the set's own levels; None where it has none.
        title: A name that means the same problem in other sets too; "" where there is none.
        tolerance: How far a number may be off, in its own units.
    """

    key: str
    text: str
    gold: str = ""
    tests: JSON = None
    solution: str = ""
    difficulty: float | None = None
    title: str = ""
    tolerance: float = 0.0


Reader = Callable[[Row, str], Problem]
"""A row and its place in the file (for errors) to a problem."""


def text_of(row: Row, keys: Sequence[str], place: str) -> str:
    """The text under the first of the keys that the row has.

    Raises:
        DataError: It is no text, or empty.
    """
    for key in keys:
        value = row.get(key)
        if value is not None:
            if not isinstance(value, str) or not value.strip():
                raise DataError(f"{place}: {key} is {str(value)[:60]!r}; it must be a text that is not empty.")
            return value
    return ""
