"""The intrinsic reward: how sure the policy is of what it says, whatever comes of it.

Legend: S step, T sampled token of an episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.credit.segment import Segment, by_turn, pool
from stepwell.engine.batch import episode_rows, join
from stepwell.errors import CapabilityError, ConfigError
from stepwell.protocols import Capabilities, Model, Saveable
from stepwell.rewards.outcome import Pay, paid
from stepwell.types import JSON, Episode, Floats, Group, Metrics, Scored

__all__ = ["IntrinsicReward", "IntrinsicSettings", "check_certainty"]

_CERTAINTY = frozenset({"certainty"})


def check_certainty(capabilities: Capabilities) -> None:
    """Whether an engine can say how sure a model is.

    Raises:
        CapabilityError: It sees the log-probs of sampled tokens alone.
    """
    if not capabilities.certainty:
        raise CapabilityError(
            "reward.kind is 'intrinsic', which needs the whole next-token distribution, and this engine says log-probs of sampled tokens "
            "alone; choose another reward, or engine local."
        )


@dataclass(frozen=True, slots=True)
class IntrinsicSettings:
    """What certainty is paid.

    Attributes:
        scale: Reward per nat.
        pay: What the end of an episode is paid (certainty does not look at it).

    Raises (when built):
        ConfigError: a scale that is not finite, or 0. Below 0 it pays for doubt.
    """

    scale: float = 1.0
    pay: Pay = "success"

    def __post_init__(self) -> None:
        if not np.isfinite(self.scale) or self.scale == 0:
            raise ConfigError(f"reward.scale is {self.scale}; allowed is a finite number other than 0 (below 0 it pays for doubt).")


class IntrinsicReward:
    """Self-certainty: `scale x mean over the step's tokens of KL(U || pi(. | before))`, U being uniform over the vocabulary.

    `KL(U || pi) = -(1/V) sum over v of log(V pi_v)`: 0 where the policy finds all tokens alike, and without bound as it rules tokens out.

    No verdict is looked at. That is its promise (no labels, no grader) and its fault: a policy can raise it without doing anything better,
    by being sure. It **collapses**: trained on it, entropy goes to 0 and success to whatever the policy happens to repeat. It is here to be
    measured against, and for credit that mixes it in at a small weight.

    Differs from uses of self-certainty as the reward of whole answers in that each step has its own. `learn` reports
    `judge/certainty`, the mean over tokens.

    Args:
        policy: Who sampled: asked as it is now.
        settings: As above.
        segment: Where steps begin and end.
    """

    def __init__(self, policy: Model, settings: IntrinsicSettings, segment: Segment = by_turn) -> None:
        self._policy, self._settings, self._segment = policy, settings, segment
        self._metrics: Metrics = {}

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Attaches the component `judge`; failed episodes and steps without tokens are unscored."""
        episodes = [e for group in groups for e in group.members if not e.failed and e.num_tokens]
        per_episode = [episode_rows(episode) for episode in episodes]
        said = self._policy.forward([row for made in per_episode for row in made], _CERTAINTY)
        joined = join([made["certainty"] for made in said], [len(made) for made in per_episode])
        certainty = {id(episode): values for episode, values in zip(episodes, joined, strict=True)}
        self._metrics = {"judge/certainty": float(np.concatenate(joined).mean())} if joined else {}
        return [Group(group.task, tuple(self._attach(e, certainty.get(id(e))) for e in group.members)) for group in groups]

    def _attach(self, episode: Episode, certainty_T: Floats | None) -> Scored:
        steps, outcome = self._segment(episode), paid(episode, self._settings.pay)
        if certainty_T is None:
            return Scored(episode, steps, outcome, {"judge": np.zeros(len(steps))}, np.zeros(len(steps), np.bool_))
        reward_S = self._settings.scale * pool(certainty_T, steps, "mean")
        return Scored(episode, steps, outcome, {"judge": reward_S}, steps.lengths_S > 0)

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics:
        """Nothing is learnt; says how sure the policy was on the episodes that were scored last."""
        return dict(self._metrics)

    def models(self) -> dict[str, Saveable]:
        """None of its own."""
        return {}

    def state(self) -> dict[str, JSON]:
        """None."""
        return {}

    def restore(self, state: dict[str, JSON]) -> None:
        """Nothing to restore."""
