"""Targets joined to episodes, whatever rows they lie in.

Legend: B row, N target, E episode of the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from stepwell.types import Batch

__all__ = ["Episodes", "episodes_of"]


class Episodes(NamedTuple):
    """The episodes of a batch that have a target that counts.

    Attributes:
        counts: The targets that count. [B, N]
        owner: The episode of each row that has such a target, in the order of these rows.
        length: Number of targets that count. [E]
        weight: Mean weight of these targets. [E]
        label, group: [E]
    """

    counts: Tensor
    owner: Tensor
    length: Tensor
    weight: Tensor
    label: Tensor
    group: Tensor

    def sum(self, values: Tensor) -> Tensor:
        """Sum over the targets that count; what stands elsewhere, NaN included, does not matter. [B, N] -> [E]"""
        per_row = torch.where(self.counts, values, 0.0).sum(dim=1)[self.counts.any(dim=1)]
        return per_row.new_zeros(len(self.label)).index_add(0, self.owner, per_row)


def episodes_of(batch: Batch, counts: Tensor) -> Episodes:
    """Joins the rows of each episode.

    Args:
        batch: Rows of one episode have the same `episode`, `label` and `group`.
        counts: See `losses.policy.counting`. [B, N]
    """
    rows = counts.any(dim=1)
    episodes, owner = torch.unique(batch.episode[rows], return_inverse=True)
    nothing = batch.label.new_zeros(len(episodes))
    length = nothing.index_add(0, owner, counts.sum(dim=1)[rows].to(nothing.dtype))
    label = nothing.index_copy(0, owner, batch.label[rows])
    group = batch.group.new_zeros(len(episodes)).index_copy(0, owner, batch.group[rows])
    made = Episodes(counts, owner, length, nothing, label, group)
    return made._replace(weight=made.sum(batch.weight) / length)
