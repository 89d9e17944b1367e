"""The simple rewards: what the end is paid, and what the environment pays at every step.

Legend: S step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stepwell.credit.segment import Segment, by_turn, last_steps
from stepwell.errors import ConfigError, nearest
from stepwell.types import Episode, Floats, Group, Ids, Invalid, Scored

__all__ = ["EnvironmentReward", "OutcomeReward", "Pay", "paid"]

Pay = Literal["success", "score"]
_KINDS: tuple[Pay, ...] = ("success", "score")


def paid(episode: Episode, pay: Pay) -> float | None:
    """What the end of the episode is paid: 1 or 0 for success, or the score; None where it failed or is unscored."""
    verdict = episode.verdict
    if episode.failed or verdict.score is None or verdict.success is None:
        return None
    return float(verdict.success) if pay == "success" else verdict.score


@dataclass(frozen=True, slots=True)
class OutcomeReward:
    """Pays the end alone: no step has a process reward.

    Attributes:
        pay: `success` (1 or 0) or `score`.
        segment: Where steps begin and end.

    Raises (when built):
        ConfigError: unknown `pay`.
    """

    pay: Pay = "success"
    segment: Segment = by_turn

    def __post_init__(self) -> None:
        _check_pay(self.pay)

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Outcome and steps of every episode."""
        return [Group(group.task, tuple(self._score(episode) for episode in group.members)) for group in groups]

    def _score(self, episode: Episode) -> Scored:
        steps = self.segment(episode)
        return Scored(episode, steps, paid(episode, self.pay), {}, np.zeros(len(steps), np.bool_))


@dataclass(frozen=True, slots=True)
class EnvironmentReward:
    """The environment's own reward of each turn, on the turn's last step (component `environment`); the outcome beside it.

    Where `invalid_penalty` is above 0, a turn whose text was no action or whose action had no meaning is charged it (component
    `invalid`). All steps of an episode that did not fail are scored: where the environment pays nothing the reward is a real 0.

    Attributes:
        pay: What the outcome is: `success` (1 or 0) or `score`.
        segment: Where steps begin and end.
        invalid_penalty: At least 0, in the environment's unit of reward.

    Raises (when built):
        ConfigError: unknown `pay`, or a penalty below 0.
    """

    pay: Pay = "success"
    segment: Segment = by_turn
    invalid_penalty: float = 0.0

    def __post_init__(self) -> None:
        _check_pay(self.pay)
        if not (np.isfinite(self.invalid_penalty) and self.invalid_penalty >= 0):
            raise ConfigError(f"invalid_penalty is {self.invalid_penalty}; allowed is a finite number of at least 0 (it is subtracted).")

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Outcome and step rewards of every episode."""
        return [Group(group.task, tuple(self._score(episode) for episode in group.members)) for group in groups]

    def _score(self, episode: Episode) -> Scored:
        steps = self.segment(episode)
        last = last_steps(episode, steps)
        rewards = {"environment": _at(last, [turn.reply.reward for turn in episode.turns], len(steps))}
        if self.invalid_penalty > 0:
            invalid = [not turn.reply.valid or isinstance(turn.action, Invalid) for turn in episode.turns]
            rewards["invalid"] = _at(last, [-self.invalid_penalty if wrong else 0.0 for wrong in invalid], len(steps))
        if episode.failed:
            rewards = {name: np.zeros(len(steps)) for name in rewards}
        return Scored(episode, steps, paid(episode, self.pay), rewards, np.full(len(steps), not episode.failed))


def _at(places: Ids, values: Sequence[float], size: int) -> Floats:
    """Zeros but for `values` at `places`. [size]"""
    result = np.zeros(size)
    result[places] = values
    return result


def _check_pay(pay: Pay) -> None:
    if pay not in _KINDS:
        raise ConfigError(f"Unknown pay {pay!r}; {nearest(pay, _KINDS)}")
