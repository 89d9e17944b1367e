"""Losses that teach the policy: a surrogate with KL and entropy terms, and cloning.

Legend: B row, N target. A loss is a plain sum of weight x token loss over the targets that count (`mask`, and weight not 0); whatever
stands elsewhere, NaN included, does not matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from stepwell.errors import CapabilityError, ConfigError, ContractViolation, nearest
from stepwell.losses.divergence import KlKind, check_kl_loss, kl
from stepwell.losses.importance import Correction
from stepwell.losses.surrogate import Clip, Reinforce, Surrogate
from stepwell.types import Batch, Mean, Outputs, Tallies

__all__ = ["CloningLoss", "PolicyLoss", "counting"]

_LOG_RATIO_LIMIT = 20.0
"""Nats. Log-ratios beyond it are clamped (exp would overflow in float32) and have no gradient; far outside any clip range."""


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """Surrogate, KL to a reference, entropy bonus: `sum of w (-c surrogate(log pi, rho, A) + kl_coef KL - entropy_coef H)`.

    The choices are independent: the surrogate (`losses.surrogate`), what shares a ratio (`level`, `pooling`), what the ratio is
    against (`old`), the correction c of the sampler's mismatch (`losses.importance`), the KL estimator (`losses.divergence`), and the
    weights w (`losses.reduce`, outside).

    The log-ratio is pooled over the tokens of a step or episode: `rho_t = sg[exp(pool(log pi - log old))] pi_t / sg[pi_t]`. With `mean` at
    the level of episodes this is GSPO-token (arXiv 2507.18071); with `sum` at the level of steps the product of
    the step's ratios (iStar, arXiv 2509.19199). At ratio 1 all levels and surrogates have the gradient of REINFORCE:
    `-sum of w A grad log pi`.

    Tallies, over targets that count: `policy/loss` (weighted mean), `policy/ratio_mean`, `policy/clip_share` (share where a clip binds),
    `policy/approx_kl_old` (k3 of old and new, nats), and where they are computed `policy/kl_ref` (the chosen estimator),
    `policy/entropy`, and of the correction `sampler/weight_mean` and `sampler/corrected_share`.

    Attributes:
        surrogate: See `losses.surrogate`.
        level, pooling: What shares one ratio, and how its tokens' log-ratios are joined (unused at `token`).
        old: `detached`: the ratio is 1 by construction, for one update per batch. `given`: `batch.old_logprobs`.
        correction: None for off. Weighs the surrogate alone, by the distance of old and `batch.sampler_logprobs`.
        kl_coef: None: no reference is needed; 0: reported only.
        kl_kind: See `losses.divergence`.
        entropy_coef: None: entropy is not asked of the engine; 0: reported only.

    Raises (when built):
        ConfigError: a value out of range, an estimator that cannot work as a loss, or a pooled ratio for a surrogate without one.

    Raises (when called):
        ConfigError: the batch lacks what the loss reads (reference, old or sampler's log-probs are NaN or None at a target that counts).
        CapabilityError: the engine gave no entropy.
        ContractViolation: outputs and columns differ in shape.
    """

    surrogate: Surrogate = field(default_factory=Clip)
    level: Literal["token", "step", "episode"] = "token"
    pooling: Literal["sum", "mean"] = "mean"
    old: Literal["detached", "given"] = "detached"
    correction: Correction | None = None
    kl_coef: float | None = None
    kl_kind: KlKind = "k2"
    entropy_coef: float | None = None

    def __post_init__(self) -> None:
        choices = {"level": ("token", "step", "episode"), "pooling": ("sum", "mean"), "old": ("detached", "given")}
        for name, value in {"level": self.level, "pooling": self.pooling, "old": self.old}.items():
            if value not in choices[name]:
                raise ConfigError(f"PolicyLoss.{name} is {value!r}; {nearest(value, choices[name])}")
        if isinstance(self.surrogate, Reinforce) and self.level != "token":
            raise ConfigError(f"PolicyLoss.level is {self.level!r}, but Reinforce has no ratio that could be shared; set level to 'token'.")
        for name, coef in {"kl_coef": self.kl_coef, "entropy_coef": self.entropy_coef}.items():
            if coef is not None and not (math.isfinite(coef) and coef >= 0.0):
                raise ConfigError(f"{name} is {coef}; allowed are finite numbers of at least 0, or None for off.")
        check_kl_loss(self.kl_kind)

    @property
    def spans_rows(self) -> bool:
        """True where an episode, which may lie in several rows, shares one ratio or one correction."""
        return (self.level == "episode" and self.old == "given") or (self.correction is not None and self.correction.spans_rows)

    @property
    def wants(self) -> frozenset[str]:
        """`entropy`, unless it is off."""
        return frozenset() if self.entropy_coef is None else frozenset({"entropy"})

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        """The loss and its tallies."""
        counts = counting(batch, outputs.logprobs, batch.advantage)
        logprobs, weight = outputs.logprobs[counts], batch.weight[counts]
        advantage = _known(batch.advantage, counts, "advantages")
        old = logprobs.detach() if self.old == "detached" else _known(batch.old_logprobs, counts, "old log-probs")
        log_ratio = torch.clamp(_shared(logprobs, old, self._owner(batch, counts), self.pooling), -_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
        ratio = torch.exp(log_ratio)
        value, clipped = self.surrogate(logprobs, ratio, advantage)
        tallies = {
            "policy/ratio_mean": _mean(ratio),
            "policy/clip_share": _mean(clipped),
            "policy/approx_kl_old": _mean(torch.expm1(log_ratio) - log_ratio),
        }
        if self.correction is not None:
            sampler = _known(batch.sampler_logprobs, counts, "sampler's log-probs")
            corrected = self.correction(old - sampler, batch.episode[:, None].expand_as(counts)[counts])
            value = corrected.weight_N * value
            tallies |= {"sampler/weight_mean": _mean(corrected.weight_N), "sampler/corrected_share": _mean(corrected.touched_N)}
        loss = -(weight * value).sum()
        if self.kl_coef is not None:
            reference = _known(batch.ref_logprobs, counts, "reference's log-probs")
            divergence = kl(logprobs, reference, self.kl_kind, old_logprobs=old)
            loss = loss + self.kl_coef * (weight * divergence).sum()
            tallies["policy/kl_ref"] = _mean(divergence)
        if self.entropy_coef is not None:
            if outputs.entropy is None:
                raise CapabilityError("The engine gave no entropy; set entropy_coef to None or use an engine that carries entropy.")
            entropy = outputs.entropy[counts]
            loss = loss - self.entropy_coef * (weight * entropy).sum()
            tallies["policy/entropy"] = _mean(entropy)
        return loss, {"policy/loss": Mean(loss.item(), weight.sum().item()), **tallies}

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
        counts = counting(batch, outputs.logprobs)
        logprobs, weight = outputs.logprobs[counts], batch.weight[counts]
        loss = -(weight * logprobs).sum()
        return loss, {
            "cloning/loss": Mean(loss.item(), weight.sum().item()),
            "cloning/probability": _mean(logprobs.exp()),
            "cloning/accuracy": _mean(logprobs > math.log(0.5)),
        }


def counting(batch: Batch, *columns: Tensor) -> Tensor:
    """The targets that count: those of the mask with a weight that is not 0. [B, N] bool

    Args:
        batch: Of a loss.
        columns: What the loss reads beside mask and weight; only their shapes are looked at.

    Raises:
        ContractViolation: mask, weight and columns differ in shape.
    """
    shapes = [tuple(values.shape) for values in (batch.mask, batch.weight, *columns)]
    if len(set(shapes)) > 1:
        raise ContractViolation(f"A loss got a mask of shape {shapes[0]}, weights and columns of {shapes[1:]}; all need the mask's [B, N].")
    return batch.mask & (batch.weight != 0)


def _known(values: Tensor | None, counts: Tensor, what: str) -> Tensor:
    """The column at the targets that count, if it is known at all of them."""
    known = torch.zeros_like(counts) if values is None else ~torch.isnan(values)
    missing = int((counts & ~known).sum())
    if missing or values is None:
        raise ConfigError(
            f"The loss reads the {what}, and {missing} of {int(counts.sum())} targets have none (NaN, or no such column); "
            "fill them before the rows are made, or switch off the term that reads them."
        )
    return values[counts]


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
