"""How far the trainer's log-probs are from the sampler's, measured on the way through a loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from stepwell.losses.policy import counting
from stepwell.protocols import Loss
from stepwell.types import Batch, Mean, Outputs, Tallies

__all__ = ["Watched"]


@dataclass(frozen=True, slots=True)
class Watched:
    """A loss, unchanged, that also reports `sampler/mismatch_ms` (mean square distance of log-probs, nats²) and `sampler/kl` (k3 of
    sampler and trainer, nats). Beyond rounding they say that rollouts and training do not compute the same model.
    """

    loss: Loss

    @property
    def spans_rows(self) -> bool:
        """As the loss."""
        return self.loss.spans_rows

    @property
    def wants(self) -> frozenset[str]:
        """As the loss."""
        return self.loss.wants

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        """The loss and its tallies, and two more where the rows know the sampler's log-probs."""
        value, tallies = self.loss(outputs, batch)
        if batch.sampler_logprobs is None:
            return value, tallies
        counts = counting(batch)
        distance = (outputs.logprobs.detach() - batch.sampler_logprobs)[counts].double()
        n = float(distance.numel())
        tallies["sampler/mismatch_ms"] = Mean(float((distance**2).sum()), n)
        tallies["sampler/kl"] = Mean(float((torch.expm1(distance) - distance).sum()), n)
        return value, tallies
