"""The loss of the soft Q judge.

Legend: B row, N target (a sampled token), M step that counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from stepwell.errors import ConfigError
from stepwell.losses.policy import counting
from stepwell.types import Batch, Mean, Outputs, Tallies

__all__ = ["SoftQLoss"]


@dataclass(frozen=True, slots=True)
class SoftQLoss:
    """Soft Bellman residuals of steps: `sum over steps of w (beta x sum over the step's tokens of [log pi - log pi_ref] - y)^2 / 2`.

    `y` is what the step should have been worth above the state before it, the same at all its tokens (`batch.returns`), as is `w`
    (`batch.weight`); `batch.step` numbers the steps of a row, and a step lies in one row.

    Source: DQO, arXiv 2410.09302: the residual is `beta log pi/pi_ref + V(s) - r - V(s')`, with `y = r + V(s') - V(s)`. V has a model of
    its own, so that this is the residual's gradient with respect to the policy alone.

    Tallies: `judge/loss` (weighted mean over steps), `judge/residual` (weighted mean size of the residual, in reward).

    Attributes:
        beta: Reward per nat.

    Raises (when built):
        ConfigError: beta is not positive.
    """

    beta: float = 0.05

    def __post_init__(self) -> None:
        if not (math.isfinite(self.beta) and self.beta > 0):
            raise ConfigError(f"The judge's beta is {self.beta}; it needs to be a positive number.")

    @property
    def spans_rows(self) -> bool:
        """A step lies in one row."""
        return False

    @property
    def wants(self) -> frozenset[str]:
        """Log-probs alone."""
        return frozenset()

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        """The loss and its tallies."""
        counts = counting(batch, batch.returns)
        row = torch.arange(len(batch.mask), device=batch.mask.device)[:, None].expand_as(batch.step)
        keys, owner = torch.unique(torch.stack([row[counts], batch.step[counts]], dim=1), dim=0, return_inverse=True)
        log_ratio = torch.where(counts, outputs.logprobs - batch.ref_logprobs, 0.0)[counts]
        total_M = log_ratio.new_zeros(len(keys)).index_add(0, owner, log_ratio)
        target_M = batch.returns.new_zeros(len(keys)).index_copy(0, owner, batch.returns[counts])
        weight_M = batch.weight.new_zeros(len(keys)).index_copy(0, owner, batch.weight[counts])
        residual_M = self.beta * total_M - target_M
        loss = 0.5 * (weight_M * residual_M**2).sum()
        weight = weight_M.sum().item()
        return loss, {
            "judge/loss": Mean(loss.item(), weight),
            "judge/residual": Mean((weight_M * residual_M.detach().abs()).sum().item(), weight),
        }
