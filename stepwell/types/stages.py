"""Stages: episode, scored, credited, and the group of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from stepwell.errors import RecordError
from stepwell.types.turns import Episode
from stepwell.types.values import Bools, Floats, Ids
from stepwell.types.words import Task

__all__ = [
    "Credited",
    "Group",
    "Scored",
    "Steps",
]


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Half-open spans `[start, stop)` of the episode's sampled tokens (all turns joined), and the turn that each lies in.

    They partition the sampled tokens, in order: `start[0] = 0`, `start[s+1] = stop[s]`, `stop[-1] = T`.
    """

    turn_S: Ids
    start_S: Ids
    stop_S: Ids

    def __post_init__(self) -> None:
        if not len(self.turn_S) == len(self.start_S) == len(self.stop_S):
            raise RecordError(
                f"Steps have {len(self.turn_S)} turns, {len(self.start_S)} starts and {len(self.stop_S)} stops; all must be equal."
            )
        if len(self) and (self.start_S[0] != 0 or np.any(self.start_S[1:] != self.stop_S[:-1]) or np.any(self.stop_S < self.start_S)):
            raise RecordError(
                "Steps must partition the sampled tokens in order: first start 0, each start the stop before it, no stop before its start."
            )
        if np.any(np.diff(self.turn_S) < 0):
            raise RecordError("Steps must lie in the order of their turns.")

    def __len__(self) -> int:
        return len(self.turn_S)

    @property
    def num_tokens(self) -> int:
        return int(self.stop_S[-1]) if len(self) else 0

    @property
    def lengths_S(self) -> Ids:
        return self.stop_S - self.start_S


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """An episode with a reward for every step.

    Attributes:
        outcome: What the end is paid (success or score, as configured); None is unscored.
        rewards: Raw components, name -> [S], e.g. `judge`, `environment`. Kept beside any shaped one. Unscored places hold 0 and
            are False in `scored_S`.
        scored_S: Where the process reward exists.
        values_S: A critic's value of the state before each step (0 at a step without tokens: nothing is decided there).
        ref_logprobs_T: Log-probs of the sampled tokens under the reference, by the trainer's own forward path.
        old_logprobs_T: The same under the rollout policy, where a stage has computed them.
        confidence: How far the judge can be trusted, measured on episodes before it learnt from them: the share of pairs that it ranks as
            the verdict does, in [0, 1]; 0.5 is chance. None is unknown.
        final_value: A critic's value of the state after the last step: what a truncated episode might still have earned.
    """

    episode: Episode
    steps: Steps
    outcome: float | None
    rewards: Mapping[str, Floats]
    scored_S: Bools
    values_S: Floats | None = None
    ref_logprobs_T: Floats | None = None
    old_logprobs_T: Floats | None = None
    final_value: float | None = None
    confidence: float | None = None

    def __post_init__(self) -> None:
        num_steps, num_tokens = len(self.steps), self.episode.num_tokens
        if self.steps.num_tokens != num_tokens:
            raise RecordError(f"{self._who}: Steps cover {self.steps.num_tokens} sampled tokens, the episode has {num_tokens}.")
        per_step = {**{f"rewards[{k!r}]": v for k, v in self.rewards.items()}, "scored_S": self.scored_S, "values_S": self.values_S}
        for name, values in per_step.items():
            if values is not None and len(values) != num_steps:
                raise RecordError(f"{self._who}: {name} has {len(values)} entries; the episode has {num_steps} steps.")
        for name, values in {"ref_logprobs_T": self.ref_logprobs_T, "old_logprobs_T": self.old_logprobs_T}.items():
            if values is not None and len(values) != num_tokens:
                raise RecordError(f"{self._who}: {name} has {len(values)} entries; the episode has {num_tokens} sampled tokens.")
        if not self.rewards and np.any(self.scored_S):
            raise RecordError(f"{self._who}: steps are marked as scored and there is no reward; give it in `rewards`, under a name.")
        for name, values in self.rewards.items():
            if not np.all(np.isfinite(values)):
                raise RecordError(
                    f"{self._who}: Reward {name!r} holds NaN or infinity; a step without a reward is marked in scored_S, not by NaN."
                )
        for name, number in {"values_S": self.values_S, "final_value": self.final_value}.items():
            if number is not None and not np.all(np.isfinite(number)):
                raise RecordError(f"{self._who}: {name} holds NaN or infinity; values are finite, and None where there is no critic.")
        if self.confidence is not None and not 0.0 <= self.confidence <= 1.0:
            raise RecordError(
                f"{self._who}: The judge's confidence is {self.confidence}; it lies in [0, 1], and is None where it is unknown."
            )

    @property
    def _who(self) -> str:
        return f"Task {self.episode.task.key!r}, member {self.episode.member}"

    @property
    def process_S(self) -> Floats:
        """Sum of the components; 0 where unscored (read together with `scored_S`)."""
        components = list(self.rewards.values())
        return np.where(self.scored_S, sum(components[1:], components[0]), 0.0) if components else np.zeros(len(self.steps))


@dataclass(frozen=True, slots=True, eq=False)
class Credited:
    """A scored episode with an advantage for every step.

    Attributes:
        advantages_S: What the policy learns from. [S]
        parts: What the advantages are the sum of, where the rule tells: `outcome`, `process`, `offset` (what whitening takes away) -> [S].
        told_S: Where the rule had a process part to tell: the step is scored and had something to be compared with. None where the rule
            has no process part. [S]
    """

    scored: Scored
    advantages_S: Floats
    parts: Mapping[str, Floats] = field(default_factory=dict)
    told_S: Bools | None = None

    def __post_init__(self) -> None:
        if len(self.advantages_S) != len(self.scored.steps):
            raise RecordError(
                f"{self._who}: got {len(self.advantages_S)} advantages for {len(self.scored.steps)} steps; every step needs one."
            )
        if not np.isfinite(self.advantages_S).all():
            raise RecordError(f"{self._who}: advantages hold NaN or infinity.")
        if self.told_S is not None and len(self.told_S) != len(self.advantages_S):
            raise RecordError(
                f"{self._who}: told_S has {len(self.told_S)} entries for {len(self.advantages_S)} steps; every step needs one."
            )

    @property
    def _who(self) -> str:
        return f"Task {self.scored.episode.task.key!r}, member {self.scored.episode.member}"


Member = TypeVar("Member", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Group(Generic[Member]):
    """All rollouts of one task. Baselines are taken across members, each rollout once, whatever its number of steps."""

    task: Task
    members: tuple[Member, ...]
