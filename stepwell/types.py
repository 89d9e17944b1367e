"""The nouns of Stepwell.

Legend of shape suffixes, used in the whole library: G group, S step, B batch row, L row length, N target, T sampled token, V vocabulary.

An episode is a list of turns. A turn is one message of the policy, made of sampled tokens, and the environment's reply to it.
A **step** is a half-open span of the episode's sampled tokens inside one turn; steps partition the sampled tokens, in order.
Stages are types: `Group[Episode] -> Group[Scored] -> Group[Credited] -> rows -> loss`. A skipped stage is a type error.

All data types are frozen. Log-probabilities are natural logs of sampled tokens under the sampling distribution (temperature included),
float64 on the host. "Unscored" is `None` (or `False` in a `scored` mask): neither 0 nor NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "JSON",
    "Action",
    "Batch",
    "Bools",
    "Completion",
    "Credited",
    "Ending",
    "EndingKind",
    "Episode",
    "Floats",
    "Group",
    "Ids",
    "Invalid",
    "Mean",
    "Metrics",
    "Observation",
    "Outputs",
    "Reply",
    "Row",
    "Sampling",
    "Scored",
    "Steps",
    "Stop",
    "Tallies",
    "Task",
    "Tool",
    "Turn",
    "Verdict",
]

JSON = None | bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"]
Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Metrics = dict[str, float]
"""`area/name` -> value; every name is documented in `docs/metrics.md`."""


# -- text: what environments know ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Task:
    """One problem to solve.

    Attributes:
        key: Identifies the task; the group key. Two rollouts belong to one group if and only if their tasks have equal keys.
        prompt: What is asked, for people and reports. Environments put what the policy must see into the first observation.
        difficulty: In [0, 1].
        split: `train`, `test`, ...
        payload: For environment and grader alone; JSON-able.

    >>> Task(key="shop/train/7", prompt="buy a red cotton shirt", difficulty=0.25, split="train", payload={"seed": 7}).key
    'shop/train/7'
    """

    key: str
    prompt: str
    difficulty: float
    split: str
    payload: Mapping[str, JSON] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0.0 <= self.difficulty <= 1.0:
            raise ValueError(f"Task {self.key!r} has difficulty {self.difficulty}; difficulty lies in [0, 1].")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that an environment offers: its name, what it does, and its arguments as a JSON schema of type object.

    >>> Tool("search", "Search the shop.", {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}).arguments
    ('query',)
    """

    name: str
    description: str
    schema: Mapping[str, JSON]

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments, in the order of the schema."""
        properties = self.schema.get("properties", {})
        return tuple(properties) if isinstance(properties, Mapping) else ()


@dataclass(frozen=True, slots=True)
class Observation:
    """What the environment shows.

    Attributes:
        text: What the policy reads.
        state_key: Equal keys mean equal environment states (anchor-state credit groups by it); "" if the environment cannot tell.
        admissible: Actions that would be accepted here, in the bracket form, where the environment can list them.
    """

    text: str
    state_key: str = ""
    admissible: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """A well-formed call of a tool, `Action("search", {"query": "red shirt"})`."""

    name: str
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Invalid:
    """A text that is no action. The environment answers it like any other step; it is counted, never replaced by a default."""

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The environment's answer to one action.

    Attributes:
        observation: What is shown next.
        reward: The environment's own reward for this step (0.0 where it has none).
        done: The task is over (terminated, not truncated).
        valid: False where the action had no meaning here.
        event: Names an interruption that happened in this step, or None.
    """

    observation: Observation
    reward: float = 0.0
    done: bool = False
    valid: bool = True
    event: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The grade of a whole episode: a finite score (that of our domains lies in [0, 1]) and whether that is a success, or unscored.

    >>> Verdict.of(0.5), Verdict.unscored("grader timed out").score is None
    (Verdict(score=0.5, success=False, reason=''), True)
    """

    score: float | None
    success: bool | None
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.score is None) != (self.success is None):
            raise ValueError(f"A verdict is scored or unscored as a whole; got score {self.score} with success {self.success}.")
        if self.score is None and not self.reason:
            raise ValueError("An unscored verdict needs a reason.")
        if self.score is not None and not np.isfinite(self.score):
            raise ValueError(f"A verdict's score must be finite, got {self.score}; use Verdict.unscored(reason) where there is none.")

    @classmethod
    def of(cls, score: float, success: bool | None = None) -> Verdict:
        """A scored verdict; `success` defaults to `score >= 1`."""
        return cls(float(score), bool(score >= 1.0) if success is None else success)

    @classmethod
    def unscored(cls, reason: str) -> Verdict:
        """No score, and why."""
        return cls(None, None, reason)


# -- tokens: what the policy did ----------------------------------------------------------------------------------------------


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
            raise ValueError(f"temperature is {self.temperature}; allowed is a finite number >= 0 (0 is greedy).")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; a turn needs at least 1 token.")


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
            raise ValueError(
                f"A turn has {len(self.token_ids)} token ids and {len(self.logprobs)} log-probs; the two must be equally long."
            )
        if len(self.context_ids) == 0:
            raise ValueError("A turn has an empty context; the model must have seen at least one token.")


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


# -- stages -------------------------------------------------------------------------------------------------------------------


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
            raise ValueError(
                f"Steps have {len(self.turn_S)} turns, {len(self.start_S)} starts and {len(self.stop_S)} stops; all must be equal."
            )
        if len(self) and (self.start_S[0] != 0 or np.any(self.start_S[1:] != self.stop_S[:-1]) or np.any(self.stop_S < self.start_S)):
            raise ValueError(
                "Steps must partition the sampled tokens in order: first start 0, each start the stop before it, no stop before its start."
            )
        if np.any(np.diff(self.turn_S) < 0):
            raise ValueError("Steps must lie in the order of their turns.")

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
            raise ValueError(f"Steps cover {self.steps.num_tokens} sampled tokens, the episode has {num_tokens}.")
        per_step = {**{f"rewards[{k!r}]": v for k, v in self.rewards.items()}, "scored_S": self.scored_S, "values_S": self.values_S}
        for name, values in per_step.items():
            if values is not None and len(values) != num_steps:
                raise ValueError(f"{name} has {len(values)} entries; the episode has {num_steps} steps.")
        for name, values in {"ref_logprobs_T": self.ref_logprobs_T, "old_logprobs_T": self.old_logprobs_T}.items():
            if values is not None and len(values) != num_tokens:
                raise ValueError(f"{name} has {len(values)} entries; the episode has {num_tokens} sampled tokens.")
        for name, values in self.rewards.items():
            if not np.all(np.isfinite(values)):
                raise ValueError(f"Reward {name!r} holds NaN or infinity; a step without a reward is marked in scored_S, not by NaN.")
        for name, number in {"values_S": self.values_S, "final_value": self.final_value}.items():
            if number is not None and not np.all(np.isfinite(number)):
                raise ValueError(f"{name} holds NaN or infinity; values are finite, and None where there is no critic.")

        if self.confidence is not None and not 0.0 <= self.confidence <= 1.0:
            raise ValueError(f"The judge's confidence is {self.confidence}; it lies in [0, 1], and is None where it is unknown.")

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
            raise ValueError(f"Got {len(self.advantages_S)} advantages for {len(self.scored.steps)} steps; every step needs one.")
        if not np.isfinite(self.advantages_S).all():
            raise ValueError("Advantages hold NaN or infinity.")
        if self.told_S is not None and len(self.told_S) != len(self.advantages_S):
            raise ValueError(f"told_S has {len(self.told_S)} entries for {len(self.advantages_S)} steps; every step needs one.")


Member = TypeVar("Member", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Group(Generic[Member]):
    """All rollouts of one task. Baselines are taken across members, each rollout once, whatever its number of steps."""

    task: Task
    members: tuple[Member, ...]


# -- what the engine sees -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """The engine's currency: token ids, and at some of their positions targets to be predicted from what stands before.

    Attributes:
        ids: [L]
        targets: Positions p in `ids`, 1 <= p < L, ascending: token `ids[p]` is predicted from `ids[:p]`. [N]
        weight: The loss is the plain sum of weight x token loss: every averaging rule is in here. [N]
        advantage, old_logprobs, ref_logprobs, returns, old_values: [N], zeros where not used.
        step: Index of the step within the whole batch of episodes, equal for tokens of one step. [N]
        episode, group: Index of the episode and group within the batch.
        label: A number for the whole row, used by judges (outcome, preference side).
        sampler_logprobs: What the sampler said, where it is known; to measure how far the trainer is from it. [N]

    >>> row = Row.of(ids=np.array([5, 6, 7, 8]), targets=np.array([2, 3]))
    >>> row.weight
    array([1., 1.])
    """

    ids: Ids
    targets: Ids
    weight: Floats
    advantage: Floats
    old_logprobs: Floats
    ref_logprobs: Floats
    returns: Floats
    old_values: Floats
    step: Ids
    episode: int = 0
    group: int = 0
    label: float = 0.0
    sampler_logprobs: Floats | None = None

    def __post_init__(self) -> None:
        n = len(self.targets)
        columns = {
            "weight": self.weight,
            "advantage": self.advantage,
            "old_logprobs": self.old_logprobs,
            "ref_logprobs": self.ref_logprobs,
            "returns": self.returns,
            "old_values": self.old_values,
            "step": self.step,
            "sampler_logprobs": self.sampler_logprobs,
        }
        for name, values in columns.items():
            if values is not None and len(values) != n:
                raise ValueError(f"Row.{name} has {len(values)} entries for {n} targets; ids, masks and log-probs must line up.")
        if n and (self.targets[0] < 1 or self.targets[-1] >= len(self.ids) or np.any(np.diff(self.targets) <= 0)):
            raise ValueError(
                f"Row.targets must be ascending positions in [1, {len(self.ids)}); got {self.targets[:3]} ... {self.targets[-1]}."
            )

    @classmethod
    def of(
        cls,
        ids: Ids,
        targets: Ids,
        weight: Floats | None = None,
        step: Ids | None = None,
        episode: int = 0,
        group: int = 0,
    ) -> Row:
        """A row with weight 1 (or `weight`) at every target and nothing else set."""
        zero = np.zeros(len(targets))
        weight = np.ones(len(targets)) if weight is None else weight
        step = np.zeros(len(targets), np.int64) if step is None else step
        return cls(ids, targets, weight, zero, zero, zero, zero, zero, step, episode, group)


class Mean(NamedTuple):
    """A sum and what to divide it by, so that metrics of micro-batches add up exactly."""

    total: float
    weight: float

    @property
    def value(self) -> float:
        """The mean; NaN if nothing was counted."""
        return self.total / self.weight if self.weight else float("nan")


Tallies = dict[str, Mean]
"""What a loss reports: `area/name` -> Mean."""


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """What a model says at the targets of a batch; padded places hold 0.

    Attributes:
        logprobs: Of the target tokens, at the sampling temperature. [B, N]
        entropy: Of the next-token distribution, in nats. [B, N]
        values: Of a scalar head. [B, N]
        certainty: `KL(U || pi)` of the next-token distribution, U being uniform over the vocabulary, in nats. [B, N]
    """

    logprobs: Tensor
    entropy: Tensor | None = None
    values: Tensor | None = None
    certainty: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows padded to tensors, per target: all [B, N] but those marked. `mask` is True where a target is; padding elsewhere."""

    mask: Tensor
    weight: Tensor
    advantage: Tensor
    old_logprobs: Tensor
    ref_logprobs: Tensor
    returns: Tensor
    old_values: Tensor
    step: Tensor
    episode: Tensor
    """[B]"""
    group: Tensor
    """[B]"""
    label: Tensor
    """[B]"""
    sampler_logprobs: Tensor | None = None
    """[B, N], or None where a row does not know them"""
