"""Losses that teach an implicit judge: pairs of episodes, or outcomes.

Legend: B row, N target, E episode of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from stepwell.errors import ConfigError
from stepwell.losses.episodes import episodes_of
from stepwell.losses.forms import check_beta
from stepwell.losses.policy import counting
from stepwell.types import Batch, Mean, Outputs, Tallies

__all__ = ["OutcomeLoss", "PreferenceLoss"]


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
        check_beta(self.beta)

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
        episodes = episodes_of(batch, counting(batch, outputs.logprobs, batch.ref_logprobs))
        score_E, label_E = episodes.sum(outputs.logprobs - batch.ref_logprobs), episodes.label
        groups, number_E = torch.unique(episodes.group, return_inverse=True)
        better, worse = torch.nonzero((label_E[:, None] > label_E[None, :]) & (number_E[:, None] == number_E[None, :]), as_tuple=True)
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


@dataclass(frozen=True, slots=True)
class OutcomeLoss:
    """Cross-entropy of outcomes: the sigmoid of an episode's log-ratio is to be its label.

    `-[y log sigmoid(beta R) + (1 - y) log(1 - sigmoid(beta R))]`, `R = sum over the episode's tokens of (log pi_judge - log pi_ref)`,
    averaged over episodes. Its gradient with respect to R is `beta (sigmoid(beta R) - y)`: a soft label y in (0, 1), such as the share of
    tests that pass, has its minimum at `R = log(y / (1 - y)) / beta`. log 2 where judge equals reference.

    Source: PRIME, arXiv 2502.01456, and ImplicitPRM, arXiv 2412.01981. Differs from the authors' code in that the sigmoid is
    not computed before its log: far from the label there is still a gradient.

    Reads `batch.label` (NaN is unscored and counts nowhere), `batch.episode` (rows of one episode are summed) and `batch.ref_logprobs`.
    The size of `batch.weight` is not used; tokens of weight 0 and episodes without tokens do not count.

    Tallies, means over episodes: `judge/loss`, and of those whose label is not 1/2 `judge/accuracy` (whether R and y - 1/2 have the same
    sign; R = 0 is a half).

    Attributes:
        beta: Scale of the log-ratios.

    Raises (when built):
        ConfigError: beta is not positive.
    Raises (when called):
        ConfigError: a label lies outside [0, 1].
    """

    beta: float = 0.05

    def __post_init__(self) -> None:
        check_beta(self.beta)

    @property
    def spans_rows(self) -> bool:
        """An episode may lie in several rows, and the mean is over all episodes."""
        return True

    @property
    def wants(self) -> frozenset[str]:
        """Log-probs alone."""
        return frozenset()

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        """The loss and its tallies."""
        counts = counting(batch, outputs.logprobs, batch.ref_logprobs) & ~torch.isnan(batch.label)[:, None]
        episodes = episodes_of(batch, counts)
        label_E, num = episodes.label, len(episodes.label)
        check_labels(label_E)
        logit_E = self.beta * episodes.sum(outputs.logprobs - batch.ref_logprobs)
        total = binary_cross_entropy_with_logits(logit_E, label_E, reduction="sum")
        return total / max(num, 1), {"judge/loss": Mean(total.item(), num), "judge/accuracy": accuracy(logit_E, label_E)}


def check_labels(label: Tensor) -> None:
    """Whether labels are probabilities.

    Raises:
        ConfigError: One is not.
    """
    if bool(((label < 0) | (label > 1)).any()):
        raise ConfigError(
            f"Labels of a cross-entropy lie in [0, 1], and these reach from {label.min().item():g} to {label.max().item():g}; "
            "scale the domain's scores, pay success (reward.pay=success), or learn from pairs (reward.objective=preference)."
        )


def accuracy(logit: Tensor, label: Tensor) -> Mean:
    """Share of logits on the side of their label, a logit of 0 being a half; labels of 1/2 have no side."""
    side = torch.sign(label - 0.5)
    right = 0.5 * (1.0 + torch.sign(logit.detach()) * side)
    return Mean(float(right[side != 0].sum()), float((side != 0).sum()))
