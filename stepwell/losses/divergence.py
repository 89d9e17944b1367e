"""Estimators of KL(policy || reference) from the log-probs of sampled tokens.

With d = log pi - log pi_ref of a token sampled from pi (Schulman, "Approximating KL divergence", 2020):

| kind | value | as a loss |
|---|---|---|
| `k1` | d | refused: the expectation of its gradient is 0 whatever the reference |
| `k2` | d^2 / 2 | its gradient, d x grad log pi, is that of the reverse KL, unbiased: the default |
| `k3` | exp(-d) + d - 1 | unbiased as a value, biased as a gradient (it is that of the forward KL) |
| `k1+`, `k3+` | of the base estimator | gradient of k2 (straight through) |
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from stepwell.errors import ConfigError, nearest

__all__ = ["KlKind", "check_kl_loss", "kl"]

KlKind = Literal["k1", "k2", "k3", "k1+", "k3+"]
_KINDS: tuple[KlKind, ...] = ("k1", "k2", "k3", "k1+", "k3+")


def kl(logprobs: Tensor, ref_logprobs: Tensor, kind: KlKind, *, log_limit: float = math.inf, value_limit: float = math.inf) -> Tensor:
    """The estimate for each token, in nats; differentiable in `logprobs`. Shape of `logprobs`.

    Args:
        logprobs: Under the policy.
        ref_logprobs: Under the reference; constant.
        kind: See the module's table.
        log_limit: k3 alone: d is clamped to +- this many nats (verl: 20). Off by default.
        value_limit: k3 alone: the estimate is clamped to +- this (verl: 10); clamped places have no gradient. Off by default.

    Raises:
        ConfigError: unknown kind.
    """
    if kind not in _KINDS:
        raise ConfigError(f"Unknown KL estimator {kind!r}; {nearest(kind, _KINDS)}")
    d = logprobs - ref_logprobs.detach()
    if kind == "k1":
        return d
    k2 = 0.5 * d * d
    if kind == "k2":
        return k2
    value = d if kind == "k1+" else _k3(d, log_limit, value_limit)
    return value if kind == "k3" else value.detach() + k2 - k2.detach()


def check_kl_loss(kind: KlKind) -> None:
    """Refuses what cannot work as a loss.

    Raises:
        ConfigError: `k1`, or an unknown kind.
    """
    if kind not in _KINDS:
        raise ConfigError(f"Unknown KL estimator {kind!r}; {nearest(kind, _KINDS)}")
    if kind == "k1":
        raise ConfigError("kl_kind is 'k1', whose gradient is 0 on average as a loss; allowed are k2, k3, k1+ and k3+ (k1+ has its value).")


def _k3(d: Tensor, log_limit: float, value_limit: float) -> Tensor:
    d = torch.clamp(d, -log_limit, log_limit)
    return torch.clamp(torch.expm1(-d) + d, -value_limit, value_limit)
