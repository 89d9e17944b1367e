"""Losses that teach the policy: the clipped surrogate with KL and entropy terms, and cloning.

Legend: B row, N target. A loss is a plain sum of weight x token loss over the targets that count (`mask`, and weight not 0); whatever
stands elsewhere, NaN included, does not matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from stepwell.errors import CapabilityError, ConfigError, nearest
from stepwell.losses.divergence import KlKind, check_kl_loss, kl
from stepwell.types import Batch, Mean, Outputs, Tallies

__all__ = ["CloningLoss", "PolicyLoss"]

_LOG_RATIO_LIMIT = 20.0
"""Nats. Log-ratios beyond it are clamped (exp would overflow in float32) and have no gradient; far outside any clip range."""


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """Clipped surrogate, KL to a reference, entropy bonus.

    `sum of w (-min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A) + kl_coef KL - entropy_coef H)`: PPO, arXiv 1707.06347, equation 7,
    with the asymmetric clip of DAPO, arXiv 2503.14476. With `dual_clip` c the surrogate is at least c A for A < 0 (arXiv 1912.09729).

    The log-ratio is pooled over the tokens of a step or episode: `rho_t = sg[exp(pool(log pi - log old))] pi_t / sg[pi_t]`. With `mean` at
    the level of episodes this is GSPO-token (arXiv 2507.18071); with `sum` at the level of steps the product of
    the step's ratios (iStar, arXiv 2509.19199). At ratio 1 all levels have the gradient of REINFORCE: `-sum of w A grad log pi`.

    Tallies, over targets that count: `policy/loss` (weighted mean), `policy/ratio_mean`, `policy/clip_share` (share whose gradient is
    clipped away), `policy/approx_kl_old` (k3 of old and new, nats), and where they are computed `policy/kl_ref` (the chosen estimator)
    and `policy/entropy`.

    Attributes:
        clip_low, clip_high: The ratio is clipped to [1 - clip_low, 1 + clip_high].
        dual_clip: Above 1, or None for off.
        level, pooling: What shares one ratio, and how its tokens' log-ratios are joined (unused at `token`).
        old: `detached`: the ratio is 1 by construction, for one update per batch. `given`: `batch.old_logprobs`.
        kl_coef: None: no reference is needed; 0: reported only.
        kl_kind: See `losses.divergence`.
        entropy_coef: None: entropy is not asked of the engine; 0: reported only.

    Raises (when built):
        ConfigError: a value out of range, or an estimator that cannot work as a loss.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    level: Literal["token", "step", "episode"] = "token"
    pooling: Literal["sum", "mean"] = "mean"
    old: Literal["detached", "given"] = "detached"
    kl_coef: float | None = None
    kl_kind: KlKind = "k2"
    entropy_coef: float | None = None

    def __post_init__(self) -> None:
        choices = {"level": ("token", "step", "episode"), "pooling": ("sum", "mean"), "old": ("detached", "given")}
        for name, value in {"level": self.level, "pooling": self.pooling, "old": self.old}.items():
            if value not in choices[name]:
                raise ConfigError(f"PolicyLoss.{name} is {value!r}; {nearest(value, choices[name])}")
        if not 0.0 <= self.clip_low <= 1.0 or not self.clip_high >= 0.0:
            raise ConfigError(f"clip_low is {self.clip_low}, clip_high {self.clip_high}; allowed are [0, 1] and numbers of at least 0.")
        if self.dual_clip is not None and not self.dual_clip > 1.0:
            raise ConfigError(f"dual_clip is {self.dual_clip}; it needs to be above 1, or None for off.")
        for name, coef in {"kl_coef": self.kl_coef, "entropy_coef": self.entropy_coef}.items():
            if coef is not None and not (math.isfinite(coef) and coef >= 0.0):
                raise ConfigError(f"{name} is {coef}; allowed are finite numbers of at least 0, or None for off.")
        check_kl_loss(self.kl_kind)

    @property
    def spans_rows(self) -> bool:
        """True where an episode, which may lie in several rows, shares one ratio."""
        return self.level == "episode" and self.old == "given"

    @property
    def wants(self) -> frozenset[str]:
        """`entropy`, unless it is off."""
        return frozenset() if self.entropy_coef is None else frozenset({"entropy"})

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        """The loss and its tallies."""
        counts = counting(batch)
        logprobs, advantage = outputs.logprobs[counts], batch.advantage[counts]
        weight = batch.weight[counts]
        old = logprobs.detach() if self.old == "detached" else batch.old_logprobs[counts]
        log_ratio = torch.clamp(_shared(logprobs, old, self._owner(batch, counts), self.pooling), -_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
        surrogate, clipped = self._surrogate(torch.exp(log_ratio), advantage)
        loss = -(weight * surrogate).sum()
        tallies = {
            "policy/ratio_mean": _mean(torch.exp(log_ratio)),
            "policy/clip_share": _mean(clipped),
            "policy/approx_kl_old": _mean(torch.expm1(log_ratio) - log_ratio),
        }
        if self.kl_coef is not None:
            divergence = kl(logprobs, batch.ref_logprobs[counts], self.kl_kind)
            loss = loss + self.kl_coef * (weight * divergence).sum()
            tallies["policy/kl_ref"] = _mean(divergence)
        if self.entropy_coef is not None:
            if outputs.entropy is None:
                raise CapabilityError("The engine gave no entropy; set entropy_coef to None or use an engine that carries entropy.")
            entropy = outputs.entropy[counts]
            loss = loss - self.entropy_coef * (weight * entropy).sum()
            tallies["policy/entropy"] = _mean(entropy)
        return loss, {"policy/loss": Mean(loss.item(), weight.sum().item()), **tallies}

    def _surrogate(self, ratio: Tensor, advantage: Tensor) -> tuple[Tensor, Tensor]:
        """The surrogate to be maximised, and where it has no gradient because of a clip."""
        free = ratio * advantage
        clipped = torch.clamp(ratio, 1.0 - self.clip_low, 1.0 + self.clip_high) * advantage
        surrogate, is_clipped = torch.minimum(free, clipped), clipped < free
        if self.dual_clip is None:
            return surrogate, is_clipped
        floor = self.dual_clip * advantage
        is_floored = (advantage < 0) & (surrogate < floor)
        return torch.where(is_floored, floor, surrogate), is_clipped | is_floored

    def _owner(self, batch: Batch, counts: Tensor) -> Tensor | None:
        """Number of the step or episode that each counting target belongs to; None at the level of tokens."""
        if self.level == "token":
            return None
        numbers = batch.step if self.level == "step" else batch.episode[:, None].expand_as(batch.step)
        owner: Tensor = torch.unique(numbers[counts], return_inverse=True)[1]
        return owner


@dataclass(frozen=True, slots=True)
class CloningLoss:
    """Negative log-likelihood of demonstrations: `-sum of w log pi`.

    Tallies: `cloning/loss` (weighted mean, nats), `cloning/probability` (mean probability of the target), `cloning/accuracy` (share of
    targets with a probability above one half: those are the greedy choice for certain, so greedy accuracy is at least this).
    """

    @property
    def spans_rows(self) -> bool:
        """A plain sum over tokens."""
        return False

    @property
    def wants(self) -> frozenset[str]:
        """Log-probs alone."""
        return frozenset()

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        """The loss and its tallies."""
        counts = counting(batch)
        logprobs, weight = outputs.logprobs[counts], batch.weight[counts]
        loss = -(weight * logprobs).sum()
        return loss, {
            "cloning/loss": Mean(loss.item(), weight.sum().item()),
            "cloning/probability": _mean(logprobs.exp()),
            "cloning/accuracy": _mean(logprobs > math.log(0.5)),
        }


def counting(batch: Batch) -> Tensor:
    """The targets that count: those of the mask with a weight that is not 0. [B, N] bool"""
    return batch.mask & (batch.weight != 0)


def _shared(logprobs: Tensor, old: Tensor, owner: Tensor | None, pooling: Literal["sum", "mean"]) -> Tensor:
    """Log-ratio of each token: its own, or the one pooled over its owner with the gradient of its own log-prob."""
    own = logprobs - old
    if owner is None:
        return own
    num_owners = int(owner.max()) + 1 if len(owner) else 0
    pooled = own.detach().new_zeros(num_owners).index_add_(0, owner, own.detach())
    if pooling == "mean":
        pooled = pooled / torch.bincount(owner, minlength=num_owners)
    return pooled[owner] + logprobs - logprobs.detach()


def _mean(values: Tensor) -> Mean:
    """Sum and number of the values."""
    return Mean(values.detach().double().sum().item(), float(values.numel()))
