"""The checker as a judge: what step rewards are worth where nothing has to be learnt about them.

Legend: S step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

import stepwell
from chains.plan import PROBLEMS
from stepwell.credit import by_turn
from stepwell.domains import reasoning_domain
from stepwell.envs.reasoning import ReasoningDomain, Truth
from stepwell.rewards.outcome import paid
from stepwell.types import Episode, Group, Scored

__all__ = ["TruthReward"]


def _domain() -> ReasoningDomain:
    """Which of the tasks are drawn makes no difference to what is true of a line."""
    config = stepwell.load("reasoning", PROBLEMS).domain
    assert config.kind == "reasoning"
    return reasoning_domain(config)


@dataclass(frozen=True)
class TruthReward:
    """Pays 1 for a right line and 0 for the first wrong one; lines behind that, and those that say nothing, are unscored.

    A ceiling for judges that learn from labels: it sees what no player can.
    """

    domain: ReasoningDomain = field(default_factory=_domain)

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Outcome and step rewards of every episode."""
        return [Group(group.task, tuple(self._score(episode) for episode in group.members)) for group in groups]

    def _score(self, episode: Episode) -> Scored:
        truths = [one.truth for one in self.domain.episode_truth(episode)]
        known_S = np.array([truth is not Truth.UNKNOWN for truth in truths], np.bool_) & (not episode.failed)
        right_S = np.array([float(truth is Truth.RIGHT) for truth in truths])
        return Scored(episode, by_turn(episode), paid(episode, "success"), {"judge": np.where(known_S, right_S, 0.0)}, known_S)
