"""Losses that teach a judge.

Legend: B row, N target, E episode of the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from stepwell.errors import ConfigError
from stepwell.losses.policy import counting
from stepwell.types import Batch, Mean, Outputs, Tallies

__all__ = ["PreferenceLoss"]


@dataclass(frozen=True, slots=True)
class PreferenceLoss:
    """Trajectory preference: within each group, better episodes are to be more likely, against the reference, than worse ones.

    `-log sigmoid(beta (R+ - R-))`, `R = sum over the episode's tokens of (log pi_judge - log pi_ref)`, over all pairs of a group
    with label+ > label-; averaged over the pairs of a group and then over groups with a pair. log 2 where judge equals reference.

    Source: iStar, arXiv 2509.19199 (there the reference is the policy that sampled); with one pair per group it is DPO,
    arXiv 2305.18290, equation 7. Differs from the authors' code, which averages over steps and detaches the scores, so that no gradient
    reaches the judge.

    Reads `batch.label` (the outcome; NaN is unscored and pairs with nothing), `batch.group`, `batch.episode` (rows of one episode are
    summed) and `batch.ref_logprobs`. The size of `batch.weight` is not used; tokens of weight 0 and episodes without tokens do not count.

    Tallies: `judge/loss` (mean over groups), `judge/pair_accuracy` (share of pairs in the right order, ties count a half; mean over
    groups), `judge/margin` (mean of beta (R+ - R-)), `judge/mixed_groups` (share of groups with a pair).

    Attributes:
        beta: Scale of the log-ratios.

    Raises (when built):
        ConfigError: beta is not positive.
    """

    beta: float = 0.05

    def __post_init__(self) -> None:
        if not (math.isfinite(self.beta) and self.beta > 0):
            raise ConfigError(f"The judge's beta is {self.beta}; it needs to be a positive number.")

    @property
    def spans_rows(self) -> bool:
        """Pairs lie in different rows."""
        return True

    @property
    def wants(self) -> frozenset[str]:
        """Log-probs alone."""
        return frozenset()

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        """The loss and its tallies."""
        counts = counting(batch)
        log_ratio = torch.where(counts, outputs.logprobs - batch.ref_logprobs, 0.0).sum(dim=1)
        rows = counts.any(dim=1)
        episodes, owner = torch.unique(batch.episode[rows], return_inverse=True)
        score_E = log_ratio.new_zeros(len(episodes)).index_add(0, owner, log_ratio[rows])
        label_E = batch.label.new_zeros(len(episodes)).index_copy(0, owner, batch.label[rows])
        group_E = batch.group.new_zeros(len(episodes)).index_copy(0, owner, batch.group[rows])
        groups, number_E = torch.unique(group_E, return_inverse=True)
        better, worse = torch.nonzero((label_E[:, None] > label_E[None, :]) & (group_E[:, None] == group_E[None, :]), as_tuple=True)
        pairs_per_group = torch.bincount(number_E[better], minlength=len(groups))
        share = 1.0 / pairs_per_group[number_E[better]].to(score_E.dtype)
        num_mixed = int((pairs_per_group > 0).sum())
        margin = self.beta * (score_E[better] - score_E[worse])
        total = -(share * logsigmoid(margin)).sum()
        right = (margin > 0).to(share.dtype) + 0.5 * (margin == 0).to(share.dtype)
        return total / max(num_mixed, 1), {
            "judge/loss": Mean(total.item(), num_mixed),
            "judge/pair_accuracy": Mean((share * right).sum().item(), num_mixed),
            "judge/margin": Mean((share * margin).sum().item(), num_mixed),
            "judge/mixed_groups": Mean(num_mixed, len(groups)),
        }
