"""The checker of a reasoning domain as a judge: what a perfect judge of steps would come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.credit import by_turn
from stepwell.envs.reasoning import ReasoningDomain
from stepwell.envs.reasoning.truth import labels
from stepwell.types import Episode, Group, Scored

__all__ = ["Oracle"]


@dataclass(frozen=True, slots=True)
class Oracle:
    """Says of each turn how probable it is that it is right: what is known (1 or 0 where a machine decides), and nothing of turns that
    cannot be checked or stand behind a wrong one.

    It judges steps, not answers: a right answer behind a wrong step has a wrong step, so that its best of n can be below pass@n.
    """

    domain: ReasoningDomain

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Attaches the component `checker`."""
        return [Group(group.task, tuple(self._scored(episode) for episode in group.members)) for group in groups]

    def _scored(self, episode: Episode) -> Scored:
        said = labels(self.domain.episode_truth(episode))
        rewards = np.array([0.0 if one is None else one for one in said])
        return Scored(episode, by_turn(episode), None, {"checker": rewards}, np.array([one is not None for one in said], np.bool_))
