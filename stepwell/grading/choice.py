"""Answers that are one of several letters."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from stepwell.errors import ConfigError
from stepwell.grading.exact import gold_text
from stepwell.grading.extract import boxed, said
from stepwell.grading.graded import Grade, Graded
from stepwell.grading.kinds import Reads
from stepwell.grading.tidy import tidy
from stepwell.types import JSON

__all__ = ["Choice"]

_BEHIND = r"\s*(?:$|[).:,;\]}*]|\s)"


@dataclass(frozen=True, slots=True)
class Choice:
    r"""Right is the same letter: B, (B), b), **B**, \text{(B)}, "B. seven", "the answer is B".

    Attributes:
        reads: `boxed`: in the last box. `any`: there, else behind "answer is" or `####`, else a text that begins with a letter and its
            bracket or full stop, or is a letter alone. A letter in the middle of a text is not taken for an answer ("a" is a word).
        letters: Those that there are to choose from.

    Raises:
        ConfigError: Fewer than two letters, or one twice.

    >>> Choice("any").grade("B", "So the answer is (b).").grade, Choice("any").grade("A", "I need a hint").grade
    (<Grade.RIGHT: 'right'>, <Grade.UNPARSED: 'unparsed'>)
    """

    reads: Reads = "boxed"
    letters: str = "ABCDEFGHIJ"

    def __post_init__(self) -> None:
        if len(set(self.letters.upper())) != len(self.letters) or len(self.letters) < 2 or not self.letters.isalpha():
            raise ConfigError(f"The letters to choose from are {self.letters!r}; give at least two different ones, such as 'ABCD'.")

    def grade(self, gold: JSON, answer: str) -> Graded:
        """Grades one answer."""
        start = time.perf_counter()
        text = gold_text(gold)
        wanted = self._letter(tidy(text))
        found = self._find(answer)
        took = time.perf_counter() - start
        if wanted is None:
            return Graded(Grade.ERROR, found, took, f"the gold answer {text[:60]!r} is none of the letters {self.letters}")
        if found is None:
            return Graded(Grade.UNPARSED, None, took, f"none of the letters {self.letters} was found in the answer")
        return Graded(Grade.RIGHT if found == wanted else Grade.WRONG, found, took)

    def _find(self, answer: str) -> str | None:
        box = boxed(answer)
        if box is not None or self.reads == "boxed":
            return None if box is None else self._letter(tidy(box))
        marked = answer.rpartition("####")
        for text in (marked[2] if marked[1] else None, said(answer), answer):
            if text is not None and (letter := self._letter(text)) is not None:
                return letter
        return None

    def _letter(self, text: str) -> str | None:
        """The letter that the text begins with and that stands by itself; a small one only with a bracket or full stop, or alone."""
        text = text.strip().lstrip("([*{ ").strip()[:200]
        found = re.match(rf"(?:(?i:option|choice)\s*\(?)?([{self.letters.upper()}{self.letters.lower()}]){_BEHIND}", text)
        if found is None:
            return None
        alone = re.fullmatch(r"[\s).:,;\]}*]*", text[found.end(1) :]) is not None
        bracketed = re.match(r"\s*[).:,\]*]", text[found.end(1) :]) is not None
        return found[1].upper() if alone or bracketed else None

    def grade_all(self, items: Sequence[tuple[JSON, str]]) -> list[Graded]:
        """Grades many answers, in order."""
        return [self.grade(gold, answer) for gold, answer in items]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        """Nothing is held."""
