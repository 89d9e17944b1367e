"""The critic's loss.

Legend: B row, N target (here: a state that the critic is asked about).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from stepwell.errors import CapabilityError, ConfigError
from stepwell.losses.policy import counting
from stepwell.types import Batch, Mean, Outputs, Tallies

__all__ = ["ValueLoss"]


@dataclass(frozen=True, slots=True)
class ValueLoss:
    """Half the squared error of values, clipped: `sum of w max((V - R)^2, (clip(V, V_old - clip, V_old + clip) - R)^2) / 2`.

    `V` is `outputs.values`, `R` `batch.returns`, `V_old` `batch.old_values`: the values that the returns were made with. A value that has
    moved further than `clip` towards its return has no gradient any more. Source: the PPO implementations (OpenAI baselines); the clip
    is not in the paper, arXiv 1707.06347. With `clip=None` it is half the squared error.

    Tallies, over targets that count: `critic/loss` (weighted mean) and `critic/clip_share` (share of values without gradient).

    Attributes:
        clip: In units of reward, above 0; None is no clip.

    Raises (when built):
        ConfigError: a clip that is not positive.
    Raises (when called):
        CapabilityError: the engine gave no values.
    """

    clip: float | None = 0.2

    def __post_init__(self) -> None:
        if self.clip is not None and not (math.isfinite(self.clip) and self.clip > 0):
            raise ConfigError(f"The clip of values is {self.clip}; it needs to be a positive number, or None for off.")

    @property
    def spans_rows(self) -> bool:
        """A plain sum over targets."""
        return False

    @property
    def wants(self) -> frozenset[str]:
        """Values."""
        return frozenset({"values"})

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        """The loss and its tallies."""
        if outputs.values is None:
            raise CapabilityError("The model gave no values; the critic's loss needs one with a head (kind head).")
        counts = counting(batch, outputs.values, batch.returns, batch.old_values)
        values, returns, old, weight = outputs.values[counts], batch.returns[counts], batch.old_values[counts], batch.weight[counts]
        square = (values - returns) ** 2
        is_clipped = torch.zeros_like(square, dtype=torch.bool)
        if self.clip is not None:
            near = old + torch.clamp(values - old, -self.clip, self.clip)
            held = (near - returns) ** 2
            is_clipped = ((values - old).abs() > self.clip) & (held > square)
            square = torch.where(is_clipped, held, square)
        loss = 0.5 * (weight * square).sum()
        return loss, {
            "critic/loss": Mean(loss.item(), weight.sum().item()),
            "critic/clip_share": Mean(float(is_clipped.sum()), float(is_clipped.numel())),
        }
