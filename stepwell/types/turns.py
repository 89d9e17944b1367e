"""Tokens: what the policy did."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np

from stepwell.errors import RecordError
from stepwell.types.values import Floats, Ids
from stepwell.types.words import Action, Invalid, Observation, Reply, Task, Verdict

__all__ = [
    "Completion",
    "Ending",
    "EndingKind",
    "Episode",
    "Sampling",
    "Stop",
    "Turn",
]


class Stop(StrEnum):
    """Why sampling of a turn stopped."""

    EOS = "eos"
    """The model sampled its end-of-turn token (it is the last of `token_ids`)."""
    STRING = "stop_string"
    """The last token completed one of the stop strings (text of that token behind it stays)."""
    LENGTH = "length"
    """The turn's token limit, or the context's, was reached."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. `temperature` 0 is greedy (log-probs are then those at temperature 1).

    Top-p and top-k are left out on purpose: a trainer cannot recompute their log-probs without knowing the kept set.

    Attributes:
        stop: A turn ends with the token that completes one of these.
        purpose: What is to be trained on must be sampled at the temperature of the model's log-probs; an evaluation may choose.
    """

    temperature: float = 1.0
    max_tokens: int = 64
    stop: tuple[str, ...] = ()
    purpose: Literal["training", "evaluation"] = "training"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.temperature) and self.temperature >= 0):
            raise RecordError(f"temperature is {self.temperature}; allowed is a finite number >= 0 (0 is greedy).")
        if self.max_tokens < 1:
            raise RecordError(f"max_tokens is {self.max_tokens}; a turn needs at least 1 token.")


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """What `Policy.sample` returns for one context: exactly the sampled ids, their log-probs, decoded text, and why it stopped."""

    token_ids: Ids
    logprobs: Floats
    text: str
    stop: Stop


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One message of the policy and the reply to it.

    Attributes:
        context_ids: Everything that the model saw before this turn.
        token_ids: Exactly what was sampled; never decoded and encoded again. [T]
        logprobs: Of the sampled tokens, by the sampler. [T]
        text: `token_ids` decoded, without the end-of-turn token.
        version: Version of the weights that sampled this turn.
    """

    context_ids: Ids
    token_ids: Ids
    logprobs: Floats
    text: str
    action: Action | Invalid
    reply: Reply
    stop: Stop
    version: int

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.logprobs):
            raise RecordError(
                f"A turn has {len(self.token_ids)} token ids and {len(self.logprobs)} log-probs; the two must be equally long."
            )
        if len(self.context_ids) == 0:
            raise RecordError("A turn has an empty context; the model must have seen at least one token.")


class EndingKind(StrEnum):
    """How an episode ended."""

    TERMINATED = "terminated"
    """The environment said done."""
    TURN_LIMIT = "turn_limit"
    """The task's limit of turns: part of the task, so terminal and graded."""
    TRUNCATED = "truncated"
    """Cut from outside (context full, wall clock): graded as it stands; a critic bootstraps."""
    FAILED = "failed"
    """Infrastructure failed: unscored, leaves baselines and metrics, counted apart."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How an episode ended, and why where that needs words."""

    kind: EndingKind
    reason: str = ""

    @property
    def terminal(self) -> bool:
        """True where nothing of value comes after the last turn (no bootstrap)."""
        return self.kind in (EndingKind.TERMINATED, EndingKind.TURN_LIMIT)


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """One rollout of one task. `member` is its place in the group."""

    task: Task
    member: int
    start: Observation
    turns: tuple[Turn, ...]
    ending: Ending
    verdict: Verdict

    @property
    def num_tokens(self) -> int:
        """Number of sampled tokens T."""
        return sum(len(turn.token_ids) for turn in self.turns)

    @property
    def logprobs_T(self) -> Floats:
        """The sampler's log-probs of all sampled tokens, in order."""
        return np.concatenate([turn.logprobs for turn in self.turns]) if self.turns else np.zeros(0)

    @property
    def failed(self) -> bool:
        """True where infrastructure failed; such an episode takes part in nothing."""
        return self.ending.kind is EndingKind.FAILED
