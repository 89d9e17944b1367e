"""What the engine sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepwell.errors import RecordError
from stepwell.types.values import Floats, Ids

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Batch",
    "Mean",
    "Outputs",
    "Row",
    "Tallies",
]


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
                raise RecordError(f"Row.{name} has {len(values)} entries for {n} targets; ids, masks and log-probs must line up.")
        if n and (self.targets[0] < 1 or self.targets[-1] >= len(self.ids) or np.any(np.diff(self.targets) <= 0)):
            raise RecordError(
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
