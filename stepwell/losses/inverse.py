"""Losses of inverse reinforcement learning: what would make the experts' episodes better than the policy's?

A row's `label` says whose it is: 1 an expert's, 0 the policy's. Legend: B row, N target, E episode of the batch, K transition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from stepwell.errors import CapabilityError, ConfigError, nearest
from stepwell.losses.episodes import Episodes, episodes_of
from stepwell.losses.forms import Form
from stepwell.losses.judge import accuracy, check_labels
from stepwell.losses.policy import counting
from stepwell.types import Batch, Mean, Outputs, Tallies

__all__ = ["DiscriminatorLoss", "InverseLoss", "InverseQLoss", "Total", "Weights"]

Weights = Literal["raw", "tempered", "length", "uniform"]
Total = Literal["cumulative", "average"]
_WEIGHTS: tuple[Weights, ...] = ("raw", "tempered", "length", "uniform")
_TOTALS: tuple[Total, ...] = ("cumulative", "average")


@dataclass(frozen=True, slots=True)
class InverseLoss:
    """Maximum likelihood of the experts under `p(tau) ~ exp(R(tau))`, the partition function estimated by the policy's episodes.

    `sum over policy episodes of w_i R~_i - mean over expert episodes of R~`, with `R` the sum of an episode's rewards, `R~ = R`
    (`cumulative`) or `R` over its number of targets (`average`), and weights without gradient, normalised over the whole batch:

    | weights | w_i is proportional to |
    |---|---|
    | `raw` | `exp(R_i - log pi(tau_i))` |
    | `tempered` | `exp(temper (R_i - log pi(tau_i)))`; 1 is `raw`, 0 is `uniform` |
    | `length` | `exp((R_i - log pi(tau_i)) / number of targets)` |
    | `uniform` | 1: a critic of Wasserstein kind, no partition function |

    With `raw`, `cumulative` and many episodes the gradient is that of `log Z - E_experts[R]`. Raw weights grow with an episode's
    length in nats, and one episode soon has all of them: read `judge/ess`.

    Source: rePIRL, arXiv 2602.07832 (guided cost learning, arXiv 1603.00448). The authors' code is `raw` and `average`. Differs from it in
    that weights and means are taken over the batch, not over each micro-batch: with one row each, as released, all weights are 1.

    Reads `batch.label` (more than 1/2: an expert's), `batch.episode` (rows are summed), `batch.old_logprobs` (log pi of what a target
    stands for; not by `uniform`), and what the form reads. `batch.weight`: how often an episode counts, the same at all its targets;
    targets of weight 0 do not count. Where there are no experts, or nothing else, that term is missing.

    Tallies: `judge/loss`; `judge/expert_reward` and `judge/policy_reward`, unweighted means of R~; `judge/ess`, the effective number
    `1 / sum w^2` of policy episodes, and `judge/ess_share`, of their number.

    Attributes:
        form: From outputs to rewards.
        weights: See above.
        temper: In [0, 1], of `tempered` alone.
        total: What is summed.

    Raises (when built):
        ConfigError: an unknown choice, or a temper outside [0, 1].
    """

    form: Form
    weights: Weights = "length"
    temper: float = 0.1
    total: Total = "average"

    def __post_init__(self) -> None:
        for what, value, known in (("weights", self.weights, _WEIGHTS), ("total", self.total, _TOTALS)):
            if value not in known:
                raise ConfigError(f"Unknown {what} {value!r}; {nearest(value, known)}")
        if not 0.0 <= self.temper <= 1.0:
            raise ConfigError(f"The temper of the weights is {self.temper}; it lies in [0, 1] (0 is uniform, 1 is raw).")

    @property
    def spans_rows(self) -> bool:
        """Weights are normalised over the whole batch."""
        return True

    @property
    def wants(self) -> frozenset[str]:
        """What the form wants."""
        return self.form.wants

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        """The loss and its tallies."""
        rewards = self.form(outputs, batch)
        episodes = episodes_of(batch, counting(batch, rewards, batch.old_logprobs))
        reward_E = episodes.sum(rewards)
        total_E = reward_E / episodes.length if self.total == "average" else reward_E
        is_expert_E = episodes.label > 0.5
        experts_E, others_E = episodes.weight * is_expert_E, episodes.weight * ~is_expert_E
        share_E = self._shares(reward_E.detach(), episodes, batch)
        num_experts, num_others = experts_E.sum().item(), others_E.sum().item()
        loss = (share_E * total_E).sum() - (experts_E * total_E).sum() / (num_experts or 1.0)
        ess = 1.0 / (share_E**2 / episodes.weight).sum().item() if num_others else 0.0
        return loss, {
            "judge/loss": Mean(loss.item(), 1.0),
            "judge/expert_reward": Mean((experts_E * total_E).sum().item(), num_experts),
            "judge/policy_reward": Mean((others_E * total_E).sum().item(), num_others),
            "judge/ess": Mean(ess, float(num_others > 0)),
            "judge/ess_share": Mean(ess, num_others),
        }

    def _shares(self, reward_E: Tensor, episodes: Episodes, batch: Batch) -> Tensor:
        """The normalised weight of each policy episode; 0 for an expert's. [E]"""
        is_policy_E = episodes.label <= 0.5
        if not bool(is_policy_E.any()):
            return torch.zeros_like(reward_E)
        log_weight_E = torch.zeros_like(reward_E)
        if self.weights != "uniform":
            log_weight_E = reward_E - episodes.sum(batch.old_logprobs)
        if self.weights == "length":
            log_weight_E = log_weight_E / episodes.length
        elif self.weights == "tempered":
            log_weight_E = self.temper * log_weight_E
        return torch.softmax(torch.where(is_policy_E, log_weight_E + torch.log(episodes.weight), -torch.inf), dim=0)


@dataclass(frozen=True, slots=True)
class DiscriminatorLoss:
    """Which steps are an expert's? `BCE(sigmoid(f), y)`, the mean over an episode's targets, then the weighted mean over episodes.

    With `logit="f"` the best f is `log p_expert - log p_policy` of the step; with `logit="airl"` the logit is `f - log pi`, and the best f
    is `log p_expert` (up to the shares of the two in the batch). There is no partition function.

    Source: ReGAIL, arXiv 2510.01857, and AIRL, arXiv 1710.11248 (`D = exp f / (exp f + pi)`).

    Reads `batch.label`, in [0, 1] (smoothed: `(1 - smoothing) label + smoothing / 2`), `batch.episode` (rows are joined),
    `batch.old_logprobs` (for `airl`: log pi of what a target stands for) and what the form reads. `batch.weight`: that of the
    episode, the same at all its targets; targets of weight 0 do not count.

    Tallies, weighted means over episodes: `judge/loss`, and over targets `judge/accuracy`.

    Attributes:
        form: From outputs to f.
        smoothing: In [0, 1).
        logit: `f` or `airl`.

    Raises (when built):
        ConfigError: an unknown logit, or smoothing outside [0, 1).
    """

    form: Form
    smoothing: float = 0.1
    logit: Literal["f", "airl"] = "f"

    def __post_init__(self) -> None:
        if self.logit not in ("f", "airl"):
            raise ConfigError(f"Unknown logit {self.logit!r}; {nearest(self.logit, ('f', 'airl'))}")
        if not 0.0 <= self.smoothing < 1.0:
            raise ConfigError(f"The smoothing of labels is {self.smoothing}; it lies in [0, 1).")

    @property
    def spans_rows(self) -> bool:
        """The mean is over all episodes."""
        return True

    @property
    def wants(self) -> frozenset[str]:
        """What the form wants."""
        return self.form.wants

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        """The loss and its tallies."""
        logits = self.form(outputs, batch)
        counts = counting(batch, logits, batch.old_logprobs)
        logits = torch.where(counts, logits - batch.old_logprobs if self.logit == "airl" else logits, 0.0)
        episodes = episodes_of(batch, counts)
        check_labels(episodes.label)
        smooth = (1.0 - self.smoothing) * batch.label + 0.5 * self.smoothing
        token_loss = binary_cross_entropy_with_logits(logits, smooth[:, None].expand_as(logits), reduction="none")
        total = (episodes.weight * episodes.sum(token_loss) / episodes.length).sum()
        norm = episodes.weight.sum().item()
        return total / (norm or 1.0), {
            "judge/loss": Mean(total.item(), norm),
            "judge/accuracy": accuracy(logits[counts], batch.label[:, None].expand_as(logits)[counts]),
        }


@dataclass(frozen=True, slots=True)
class InverseQLoss:
    """A discriminator whose logit is a reward implied by action values: `r_s = Q_s - discount Q_(s+1)`, `BCE(sigmoid(r_s), y)`.

    The value after an episode's last transition is 0. The mean is over transitions, by weight; both Q have a gradient.

    Source: InversePRM in arXiv 2502.10325 (IQ-Learn, arXiv 2106.12142). Differs from the paper in that the next action is the one that was
    taken next in the same episode; there, next actions of experts are the policy's.

    Reads `outputs.values` (Q of the step that a target ends), `batch.label` in [0, 1], `batch.episode`, and `batch.step`, which rises
    along an episode and has one target for each step. A target of weight 0 is no transition to learn from (what comes after it is not
    known: the episode was cut there), but its Q is the next one of the target before it.

    Tallies, weighted means over transitions: `judge/loss`; `judge/accuracy` over transitions.

    Attributes:
        discount: In [0, 1], per step.

    Raises (when built):
        ConfigError: the discount lies outside [0, 1].
    Raises (when called):
        CapabilityError: the engine gave no values.
    """

    discount: float = 0.95

    def __post_init__(self) -> None:
        if not (math.isfinite(self.discount) and 0.0 <= self.discount <= 1.0):
            raise ConfigError(f"The discount is {self.discount}; it lies in [0, 1].")

    @property
    def spans_rows(self) -> bool:
        """The next step of an episode may lie in another row."""
        return True

    @property
    def wants(self) -> frozenset[str]:
        """Values."""
        return frozenset({"values"})

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        """The loss and its tallies."""
        if outputs.values is None:
            raise CapabilityError("The model gave no values; action values need one with a head (kind head).")
        counts = counting(batch, outputs.values)
        order = torch.argsort(batch.step[batch.mask], stable=True)
        q_K, weight_K, learnt_K = (values[batch.mask][order] for values in (outputs.values, batch.weight, counts))
        episode_K, label_K = (values[:, None].expand_as(batch.mask)[batch.mask][order] for values in (batch.episode, batch.label))
        check_labels(label_K[learnt_K])
        goes_on_K = torch.zeros_like(learnt_K)
        goes_on_K[:-1] = episode_K[1:] == episode_K[:-1]
        next_K = torch.where(goes_on_K, torch.roll(q_K, -1), 0.0)
        logit, label, weight = (values[learnt_K] for values in (q_K - self.discount * next_K, label_K, weight_K))
        total = (weight * binary_cross_entropy_with_logits(logit, label, reduction="none")).sum()
        norm = weight.sum().item()
        return total / (norm or 1.0), {"judge/loss": Mean(total.item(), norm), "judge/accuracy": accuracy(logit, label)}
