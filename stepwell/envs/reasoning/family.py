"""What a kind of reasoning task is: how tasks are drawn, solved, got wrong, and how every line of a solution is checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from stepwell.envs.reasoning.truth import StepTruth
from stepwell.errors import ConfigError, DataError, nearest
from stepwell.types import JSON

__all__ = ["Axes", "Family", "Payload", "Stumbling", "as_written", "at_difficulty", "number_in", "text_in", "whole_numbers_in"]

Payload = Mapping[str, JSON]
Axes = Mapping[str, int]


class Family(Protocol):
    """A kind of task. Lines are the steps of a solution, without the line that gives the answer.

    Attributes:
        name: Of `domain.task`.
        axes: What makes its tasks hard: name -> the value at difficulty 0 and at 1.
    """

    name: str
    axes: Mapping[str, tuple[int, int]]

    def draw(self, axes: Axes, rng: np.random.Generator) -> dict[str, JSON]:
        """The payload of a task."""
        ...

    def ask(self, payload: Payload) -> str:
        """What is asked."""
        ...

    def solve(self, payload: Payload) -> list[str] | None:
        """The expert's lines, right by construction, the last being the answer's text; None where there is no expert."""
        ...

    def slip(self, payload: Payload, at: int, rng: np.random.Generator) -> list[str]:
        """The expert's lines with the `at`-th wrong, and a solution that goes on from there; the last is the answer's text."""
        ...

    def judge(self, payload: Payload, lines: Sequence[str]) -> list[StepTruth]:
        """The truth of each line."""
        ...

    def answers(self, payload: Payload, answer: str) -> bool:
        """Whether this is the right answer."""
        ...

    def meaning(self, payload: Payload, answer: str) -> str:
        """What an answer comes to, in one way of writing it: answers that mean the same are one in a vote, and are right or wrong together.
        An answer that cannot be read is itself."""
        ...

    def shortcut(self, payload: Payload) -> str | None:
        """The answer of a player that takes the tempting short way; None where it finds none."""
        ...

    def possible(self, payload: Payload, lines: Sequence[str]) -> tuple[str, ...] | None:
        """All lines that could come next and are no nonsense, where they can be listed."""
        ...


@runtime_checkable
class Stumbling(Protocol):
    """A family whose expert can go on from a wrong line as from any, so that several lines of one solution may be wrong."""

    def stumble(self, payload: Payload, at: Collection[int], rng: np.random.Generator) -> list[str]:
        """The expert's lines with these wrong, each found from the line before it; the last is the answer's text."""
        ...


def at_difficulty(family: Family, difficulty: float, fixed: Axes) -> dict[str, int]:
    """The axes of a task: those that are fixed, the others by difficulty.

    Raises:
        ConfigError: An axis that the family has not, or a value outside its range.
    """
    for name, at in fixed.items():
        if name not in family.axes:
            raise ConfigError(f"{name} is no axis of {family.name} tasks; {nearest(name, family.axes)}.")
        low, high = sorted(family.axes[name])
        if not low <= at <= high:
            raise ConfigError(f"domain.axes.{name} is {at}; {family.name} tasks have {low} to {high}.")
    return {name: fixed.get(name, low + round(difficulty * (high - low))) for name, (low, high) in family.axes.items()}


def as_written(answer: str) -> str:
    """An answer that cannot be read, as it stands: how much white space it has says nothing."""
    return " ".join(answer.split())


def text_in(payload: Payload, key: str) -> str:
    """A text of a payload."""
    found = payload.get(key)
    if not isinstance(found, str):
        raise DataError(f"The payload of a reasoning task has {key} = {found!r:.60}; it must be a text.")
    return found


def number_in(payload: Payload, key: str) -> int:
    """A whole number of a payload."""
    found = payload.get(key)
    if not isinstance(found, int):
        raise DataError(f"The payload of a reasoning task has {key} = {found!r:.60}; it must be a whole number.")
    return found


def whole_numbers_in(payload: Payload, key: str) -> list[int]:
    """A list of whole numbers of a payload."""
    found = payload.get(key)
    if not isinstance(found, Sequence) or isinstance(found, str) or not all(isinstance(one, int) for one in found):
        raise DataError(f"The payload of a reasoning task has {key} = {found!r:.60}; it must be a list of whole numbers.")
    return [one for one in found if isinstance(one, int)]
