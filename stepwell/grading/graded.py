"""What a grader says of an answer, and what a grader is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self

from stepwell.types import JSON, Verdict

__all__ = ["Grade", "Graded", "Grader"]


class Grade(StrEnum):
    """The five things that can be said of an answer.

    RIGHT: It is the gold answer.
    WRONG: It was read, and is another.
    UNPARSED: No answer could be read in the text.
    TIMEOUT: Comparing took longer than the limit.
    ERROR: It could not be graded through no fault of the answer: the gold answer cannot be read, a worker died.
    """

    RIGHT = "right"
    WRONG = "wrong"
    UNPARSED = "unparsed"
    TIMEOUT = "timeout"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Graded:
    """The grade of an answer.

    Attributes:
        grade: What is said of it.
        extracted: What was taken for the answer, or None where nothing was found.
        seconds: How long grading took, without waiting for a free worker.
        reason: Why, in a clause, where the grade is UNPARSED, TIMEOUT or ERROR; of a program, also where it is WRONG.
        own_doing: Whether a timeout is the answer's own doing, as it is of a program that runs too long, and of a formula where the gold
            answer alone is read in time. Otherwise hanging the grader would be a way out of a lost episode.
    """

    grade: Grade
    extracted: str | None
    seconds: float
    reason: str = ""
    own_doing: bool = False

    def verdict(self) -> Verdict:
        """The verdict of an episode that ends with this answer.

        1 where right, 0 where wrong or unparsed. A timeout and an error leave the episode unscored: what nobody could compare is no
        evidence against the policy, and counted apart it can be seen. A timeout of the answer's own doing is 0.

        >>> Graded(Grade.UNPARSED, None, 0.0, "no box").verdict()
        Verdict(score=0.0, success=False, reason='')
        >>> Graded(Grade.TIMEOUT, "2", 5.0, "the machine is too busy").verdict().score is None
        True
        >>> Graded(Grade.TIMEOUT, "9^{9^{9}}", 5.0, "cut after 5 s", own_doing=True).verdict().score
        0.0
        """
        if self.grade is Grade.ERROR or (self.grade is Grade.TIMEOUT and not self.own_doing):
            return Verdict.unscored(f"grading: {self.grade}: {self.reason}")
        return Verdict.of(float(self.grade is Grade.RIGHT))

    def to_json(self) -> dict[str, JSON]:
        """What `stepwell grade --json` writes of it."""
        return {"verdict": self.grade.value, "extracted": self.extracted, "seconds": round(self.seconds, 6)}


class Grader(Protocol):
    """Something that grades answers; a context manager, because some keep worker processes."""

    def grade(self, gold: JSON, answer: str) -> Graded:
        """One answer; may be called from several threads at once."""
        ...

    def grade_all(self, items: Sequence[tuple[JSON, str]]) -> list[Graded]:
        """Many answers (gold, answer), in order, in parallel where the grader can."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None: ...
