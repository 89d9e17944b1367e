"""What a model says a target is worth: a log-ratio, or a scalar.

Legend: B row, N target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from stepwell.errors import CapabilityError, ConfigError, nearest
from stepwell.types import Batch, Outputs

__all__ = ["Form", "LogRatio", "Scalar", "check_beta"]

_BOUNDS = ("tanh", "none")


class Form(Protocol):
    """From outputs to the reward of each target, in units of reward. [B, N]"""

    @property
    def wants(self) -> frozenset[str]:
        """Outputs that it reads beside log-probs."""
        ...

    def __call__(self, outputs: Outputs, batch: Batch) -> Tensor: ...


def check_beta(beta: float) -> None:
    """Whether it can scale a log-ratio.

    Raises:
        ConfigError: It is not positive.
    """
    if not (math.isfinite(beta) and beta > 0):
        raise ConfigError(f"The judge's beta is {beta}; it needs to be a positive number.")


@dataclass(frozen=True, slots=True)
class LogRatio:
    """`r = beta (log pi_judge - log pi_ref)` of a language model; the reference is `batch.ref_logprobs`.

    Attributes:
        beta: In reward per nat.

    Raises (when built):
        ConfigError: beta is not positive.
    """

    beta: float = 0.05

    def __post_init__(self) -> None:
        check_beta(self.beta)

    @property
    def wants(self) -> frozenset[str]:
        """Log-probs alone."""
        return frozenset()

    def __call__(self, outputs: Outputs, batch: Batch) -> Tensor:
        """Rewards. [B, N]"""
        return self.beta * (outputs.logprobs - batch.ref_logprobs)


@dataclass(frozen=True, slots=True)
class Scalar:
    """`r = tanh(v)` in (-1, 1), or `r = v`, of a head's value v.

    Attributes:
        bound: `tanh` or `none`.

    Raises (when built):
        ConfigError: an unknown bound.
    Raises (when called):
        CapabilityError: the engine gave no values.
    """

    bound: Literal["tanh", "none"] = "tanh"

    def __post_init__(self) -> None:
        if self.bound not in _BOUNDS:
            raise ConfigError(f"Unknown bound {self.bound!r}; {nearest(self.bound, _BOUNDS)}")

    @property
    def wants(self) -> frozenset[str]:
        """Values."""
        return frozenset({"values"})

    def __call__(self, outputs: Outputs, batch: Batch) -> Tensor:
        """Rewards. [B, N]"""
        if outputs.values is None:
            raise CapabilityError("The model gave no values; a scalar reward needs one with a head (kind head).")
        if self.bound == "none":
            return outputs.values
        return torch.tanh(torch.where(batch.mask & (batch.weight != 0), outputs.values, 0.0))  # else NaN of padding has a gradient: NaN
