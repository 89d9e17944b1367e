"""Estimators of KL(policy || reference) from the log-probs of sampled tokens.

With d = log pi - log pi_ref of a token, sampled from pi or from an older policy (Schulman, "Approximating KL divergence", 2020):

| kind | value | as a loss |
|---|---|---|
| `k1` | d | refused: the expectation of its gradient is 0 whatever the reference. It belongs in the reward |
| `k2` | d^2 / 2 | its gradient, d x grad log pi, is that of the reverse KL, unbiased: the default |
| `k3` | exp(-d) + d - 1 | unbiased as a value, biased as a gradient (it is that of the forward KL) |
| `k1+`, `k3+` | of the base estimator | gradient of k2 (straight through) |
| `k1x`, `k3x` | rho x the base estimator | rho = pi / pi_old, with gradient through both: exact on tokens of an older policy too |

All but the last are for tokens that the present policy sampled: on tokens of an older one (several updates on a batch) they estimate
another number. E_old[rho f] = E_pi[f], so the gradient of `k1x` and `k3x` is that of the reverse KL whichever policy sampled.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from stepwell.errors import ConfigError, nearest

__all__ = ["KlKind", "check_kl_loss", "kl"]

KlKind = Literal["k1", "k2", "k3", "k1+", "k3+", "k1x", "k3x"]
_KINDS: tuple[KlKind, ...] = ("k1", "k2", "k3", "k1+", "k3+", "k1x", "k3x")
_LOG_RATIO_LIMIT = 20.0
"""Nats; exp would overflow in float32 beyond."""


def kl(
    logprobs: Tensor,
    ref_logprobs: Tensor,
    kind: KlKind,
    *,
    old_logprobs: Tensor | None = None,
    log_limit: float = math.inf,
    value_limit: float = math.inf,
) -> Tensor:
    """The estimate for each token, in nats; differentiable in `logprobs`. Shape of `logprobs`.

    Args:
        logprobs: Under the policy.
        ref_logprobs: Under the reference; constant.
        kind: See the module's table. `k3x` is the estimator of DeepSeek-V3.2 (arXiv 2512.02556), TRL's `use_bias_correction_kl`.
        old_logprobs: `k1x` and `k3x` alone: under the policy that sampled; None is the present one (rho is 1 and has a gradient).
        log_limit: k3 alone: d is clamped to +- this many nats (verl: 20). Off by default.
        value_limit: The estimate is clamped to +- this (verl: 10 for k3; OpenRLHF: 10 for all); clamped places have no gradient, but
            those of `k1+` and `k3+`. Off by default.

    Raises:
        ConfigError: unknown kind.
    """
    if kind not in _KINDS:
        raise ConfigError(f"Unknown KL estimator {kind!r}; {nearest(kind, _KINDS)}")
    d = logprobs - ref_logprobs.detach()
    half_square = 0.5 * d * d
    base = {"k1": lambda: d, "k2": lambda: half_square, "k3": lambda: _k3(torch.clamp(d, -log_limit, log_limit))}[kind[:2]]()
    value = torch.clamp(base, -value_limit, value_limit)
    if kind.endswith("x"):
        old = logprobs if old_logprobs is None else old_logprobs
        return torch.exp(torch.clamp(logprobs - old.detach(), -_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)) * value
    return value.detach() + half_square - half_square.detach() if kind.endswith("+") else value


def check_kl_loss(kind: KlKind) -> None:
    """Refuses what cannot work as a loss.

    Raises:
        ConfigError: `k1`, or an unknown kind.
    """
    if kind not in _KINDS:
        raise ConfigError(f"Unknown KL estimator {kind!r}; {nearest(kind, _KINDS)}")
    if kind == "k1":
        raise ConfigError(
            "kl_kind is 'k1', whose gradient is 0 on average as a loss; allowed are k2, k3, k1+, k3+, k1x and k3x (k1+ has its value). "
            "In the reward it is right: loss.kl_in=reward."
        )


def _k3(d: Tensor) -> Tensor:
    return torch.expm1(-d) + d
