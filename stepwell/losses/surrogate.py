"""Surrogates: what stands in for the advantage's pull on a token. Functions of log-prob, ratio and advantage, free of all other choices.

With rho the ratio of new to old probability (pooled over a token, step or episode, see `losses.policy`) and A the advantage:

| surrogate | to be maximised | gradient by log pi |
|---|---|---|
| `Reinforce` | A log pi | A |
| `Clip` | min(rho A, clip(rho) A) | rho A, 0 where the clip binds |
| `Clip` with `dual` | the same, at least dual A where A < 0 | rho A, 0 where a clip binds |
| `Cispo` | sg[clip(rho)] A log pi | clip(rho) A |

At ratio 1 all have the gradient of `Reinforce`. A surrogate of your own is any callable of this shape; see `Surrogate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from stepwell.errors import ConfigError

__all__ = ["Cispo", "Clip", "Objective", "Reinforce", "Surrogate"]


class Objective(NamedTuple):
    """What a surrogate says of each token: a value to be maximised, and whether a clip binds there."""

    value: Tensor
    clipped: Tensor


class Surrogate(Protocol):
    """From log-prob, ratio and advantage of each token to an `Objective` of the same shape.

    `ratio` has the gradient of the token's own log-prob: d ratio / d log pi = ratio, at every pooling.
    """

    def __call__(self, logprobs: Tensor, ratio: Tensor, advantage: Tensor) -> Objective: ...


@dataclass(frozen=True, slots=True)
class Reinforce:
    """`A log pi`: Williams 1992. The ratio is not used, so tokens sampled by an older policy pull as if the present one had."""

    def __call__(self, logprobs: Tensor, ratio: Tensor, advantage: Tensor) -> Objective:
        """The objective; nothing is clipped."""
        return Objective(advantage * logprobs, torch.zeros_like(logprobs, dtype=torch.bool))


@dataclass(frozen=True, slots=True)
class Clip:
    """`min(rho A, clip(rho, 1 - low, 1 + high) A)`: PPO, arXiv 1707.06347, equation 7.

    `high` above `low` is DAPO's clip-higher, arXiv 2503.14476, section 3.1. With `dual` c the objective is at least c A for A < 0:
    dual clip, arXiv 1912.09729; positive advantages never meet it. `low=1, high=inf` clips nothing: plain importance sampling.

    Attributes:
        low: In [0, 1].
        high: At least 0.
        dual: Above 1, or None for off.

    Raises (when built):
        ConfigError: a value out of range.
    """

    low: float = 0.2
    high: float = 0.2
    dual: float | None = None

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)
        if self.dual is not None and not (math.isfinite(self.dual) and self.dual > 1.0):
            raise ConfigError(f"The dual clip is {self.dual}; it needs to be a number above 1, or None for off.")

    def __call__(self, logprobs: Tensor, ratio: Tensor, advantage: Tensor) -> Objective:
        """The objective, and where the clip removes its gradient."""
        free = ratio * advantage
        bound = torch.clamp(ratio, 1.0 - self.low, 1.0 + self.high) * advantage
        value, clipped = torch.minimum(free, bound), bound < free
        if self.dual is None:
            return Objective(value, clipped)
        floor = self.dual * advantage
        floored = (advantage < 0) & (value < floor)
        return Objective(torch.where(floored, floor, value), clipped | floored)


@dataclass(frozen=True, slots=True)
class Cispo:
    """`sg[clip(rho, 1 - low, 1 + high)] A log pi`: the clip bounds a token's weight and never removes its gradient.

    Source: MiniMax-M1, arXiv 2506.13585, section 3.1; there `low` is 1 (no lower bound).

    Attributes:
        low: In [0, 1].
        high: At least 0. The weight is at most 1 + high.

    Raises (when built):
        ConfigError: a value out of range.
    """

    low: float = 1.0
    high: float = 0.2

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)

    def __call__(self, logprobs: Tensor, ratio: Tensor, advantage: Tensor) -> Objective:
        """The objective, and where the weight is not the ratio."""
        ratio = ratio.detach()
        weight = torch.clamp(ratio, 1.0 - self.low, 1.0 + self.high)
        return Objective(weight * advantage * logprobs, weight != ratio)


def _check_range(low: float, high: float) -> None:
    if not 0.0 <= low <= 1.0 or not high >= 0.0:
        raise ConfigError(f"The clip range is [1 - {low}, 1 + {high}]; low lies in [0, 1], high is a number of at least 0.")
