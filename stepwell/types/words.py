"""Text: what environments know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stepwell.errors import RecordError
from stepwell.types.values import JSON

__all__ = [
    "Action",
    "Invalid",
    "Observation",
    "Reply",
    "Task",
    "Tool",
    "Verdict",
]


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
            raise RecordError(f"Task {self.key!r} has difficulty {self.difficulty}; difficulty lies in [0, 1].")


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
            raise RecordError(f"A verdict is scored or unscored as a whole; got score {self.score} with success {self.success}.")
        if self.score is None and not self.reason:
            raise RecordError("An unscored verdict needs a reason.")
        if self.score is not None and not np.isfinite(self.score):
            raise RecordError(f"A verdict's score must be finite, got {self.score}; use Verdict.unscored(reason) where there is none.")

    @classmethod
    def of(cls, score: float, success: bool | None = None) -> Verdict:
        """A scored verdict; `success` defaults to `score >= 1`."""
        return cls(float(score), bool(score >= 1.0) if success is None else success)

    @classmethod
    def unscored(cls, reason: str) -> Verdict:
        """No score, and why."""
        return cls(None, None, reason)
