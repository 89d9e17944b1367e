"""The oracle: what a judge that knows the world would say of each step.

Legend: S step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from stepwell.credit.segment import Segment, by_turn, last_steps
from stepwell.errors import ConfigError
from stepwell.rewards.outcome import Pay, paid
from stepwell.types import Action, EndingKind, Episode, Group, Invalid, Scored, Task

__all__ = ["KnowsProgress", "ProgressReward"]


@runtime_checkable
class KnowsProgress(Protocol):
    """A domain that can tell how far an episode has come."""

    def progress(self, task: Task, actions: Sequence[Action | Invalid], member: int = 0) -> Sequence[float]:
        """At the start and after each action, in [0, 1]; after the end it is what the end was worth."""
        ...


@dataclass(frozen=True, slots=True)
class ProgressReward:
    r"""Pays each turn, on its last step (component `progress`), what it changed in the domain's own measure of progress.

    $$r_s = \phi(\text{after } s) - \phi(\text{before } s)$$

    By the domain's look at all that it holds, which no player has: a ceiling for what a judge could be worth, no judge. The shop's
    `progress` is 1 - (fewest actions to go) / (fewest at the start), 0 where success is out of reach, so a detour costs what it takes to
    mend and the step that spoils everything costs all that was gained. Episodes are replayed; the rewards of one sum to what its end
    was worth, less the progress at the start: nothing where the turns ran out.

    Attributes:
        domain: Where the episodes come from.
        pay: What the outcome is: `success` (1 or 0) or `score`.
        segment: Where steps begin and end.
    """

    domain: KnowsProgress
    pay: Pay = "success"
    segment: Segment = by_turn

    @classmethod
    def of(cls, domain: object, task: Task, pay: Pay, segment: Segment) -> ProgressReward:
        """For a domain that may know it, tried on one of its tasks.

        Raises:
            ConfigError: It does not.
        """
        if not isinstance(domain, KnowsProgress):
            raise ConfigError(
                f"reward.steps is 'progress', which the domain {type(domain).__name__} cannot tell; "
                "take a generated shop (domain.kind=shop or basket), or reward.steps=reward."
            )
        domain.progress(task, ())
        return cls(domain, pay, segment)

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Outcome and step rewards of every episode."""
        return [Group(group.task, tuple(self._score(episode) for episode in group.members)) for group in groups]

    def _score(self, episode: Episode) -> Scored:
        steps = self.segment(episode)
        rewards_S = np.zeros(len(steps))
        if not episode.failed:
            values = np.array(self.domain.progress(episode.task, [turn.action for turn in episode.turns], episode.member), np.float64)
            if episode.ending.kind is EndingKind.TURN_LIMIT:
                values[-1] = 0.0  # What is half done at the end is worth nothing; else it would pay never to finish.
            rewards_S[last_steps(episode, steps)] = np.diff(values)
        return Scored(episode, steps, paid(episode, self.pay), {"progress": rewards_S}, np.full(len(steps), not episode.failed))
