"""What can be said of a step: right, wrong, or unknown, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeVar

__all__ = ["AFTER", "StepTruth", "Truth", "first_wrong", "labels", "right", "unknown", "walk", "wrong"]

State = TypeVar("State")


class Truth(StrEnum):
    """Of a step."""

    RIGHT = "right"
    """It follows, and the goal can still be reached."""
    WRONG = "wrong"
    """It does not follow, or the goal is lost by it."""
    UNKNOWN = "unknown"
    """It states nothing that can be checked, or stands behind a wrong step."""


class StepTruth(NamedTuple):
    """What is known of a step.

    Attributes:
        truth: Right, wrong or unknown.
        confidence: The probability that `truth` is so, in [0, 1]: 1 where a machine decides it, measured on labelled steps where only the
            equations of a text are checked (`references`), 0 for unknown.
        reason: Why, in words; empty for a right step.
    """

    truth: Truth
    confidence: float
    reason: str = ""


def right(confidence: float = 1.0) -> StepTruth:
    """A right step."""
    return StepTruth(Truth.RIGHT, confidence)


def wrong(reason: str, confidence: float = 1.0) -> StepTruth:
    """A wrong step, and why."""
    return StepTruth(Truth.WRONG, confidence, reason)


def unknown(reason: str) -> StepTruth:
    """A step of which nothing is known, and why."""
    return StepTruth(Truth.UNKNOWN, 0.0, reason)


AFTER = unknown("it stands behind a wrong step")


def walk(state: State, lines: Sequence[str], advance: Callable[[State, str], tuple[StepTruth, State]]) -> list[StepTruth]:
    """The truth of each line by a state machine; behind the first wrong line the state means nothing, and all is unknown."""
    found: list[StepTruth] = []
    for line in lines:
        if found and (found[-1].truth is Truth.WRONG or found[-1] is AFTER):
            found.append(AFTER)
            continue
        truth, state = advance(state, line)
        found.append(truth)
    return found


def first_wrong(truths: Sequence[StepTruth]) -> int:
    """The first wrong step, counted from 0; -1 where there is none (ProcessBench's form).

    >>> first_wrong([right(), wrong("2 + 2 is 4"), AFTER]), first_wrong([right()])
    (1, -1)
    """
    return next((at for at, one in enumerate(truths) if one.truth is Truth.WRONG), -1)


def labels(truths: Sequence[StepTruth]) -> list[float | None]:
    """The probability that each step is right, None where that is unknown: the labels that a judge learns from.

    >>> labels([right(), wrong("2 + 2 is 4", 0.75), AFTER])
    [1.0, 0.25, None]
    """
    return [None if one.truth is Truth.UNKNOWN else one.confidence if one.truth is Truth.RIGHT else 1.0 - one.confidence for one in truths]
