"""Corrections for a sampler that does not compute the trainer's model: constant weights of tokens.

With d = log pi_old - log mu of each sampled token, pi_old as the trainer computes it and mu as the sampler said:

| correction | weight of a token |
|---|---|
| `Truncated` | min(exp(d), cap) |
| `Masked` | exp(d) in episodes whose geometric mean exp(mean d) lies in [low, high]; 0 in others |

Where sampler and trainer agree (d = 0) the weight is 1. Legend: N counting target, of all rows joined.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from stepwell.errors import ConfigError

__all__ = ["Corrected", "Correction", "Masked", "Truncated"]

_LOG_LIMIT = 20.0
"""Nats; exp would overflow in float32 beyond."""


class Corrected(NamedTuple):
    """Constant weights, and where the correction had to step in. [N]"""

    weight_N: Tensor
    touched_N: Tensor


class Correction(Protocol):
    """From d and the number of the episode of each token to weights."""

    @property
    def spans_rows(self) -> bool:
        """Whether tokens of an episode, which may lie in several rows, need each other."""
        ...

    def __call__(self, d_N: Tensor, episode_N: Tensor) -> Corrected: ...


@dataclass(frozen=True, slots=True)
class Truncated:
    """Truncated importance sampling, a token at a time: `min(exp(d), cap)`.

    Unbiased for one token at cap = infinity, at the price of variance; a cap makes the weights too small where the sampler was much less
    likely to say the token. Source: Ionides, "Truncated importance sampling", 2008. Touched are the tokens at the cap.

    Attributes:
        cap: At least 1.

    Raises (when built):
        ConfigError: a cap below 1.
    """

    cap: float = 2.0

    def __post_init__(self) -> None:
        if not self.cap >= 1.0:
            raise ConfigError(f"The cap of importance weights is {self.cap}; it needs to be at least 1, the weight where nothing is wrong.")

    @property
    def spans_rows(self) -> bool:
        """A token at a time."""
        return False

    def __call__(self, d_N: Tensor, episode_N: Tensor) -> Corrected:
        """The weights."""
        ratio_N = _ratio(d_N)
        return Corrected(torch.clamp(ratio_N, max=self.cap), ratio_N > self.cap)


@dataclass(frozen=True, slots=True)
class Masked:
    """Leaves out the episodes that sampler and trainer see too differently; the others weigh exp(d), token by token.

    As OpenRLHF's `seq-mask-tis`. Touched are the tokens left out.

    Attributes:
        low, high: Bounds of the geometric mean of exp(d) over an episode's tokens; low in [0, 1], high at least 1.

    Raises (when built):
        ConfigError: a bound out of range.
    """

    low: float = 0.5
    high: float = 2.0

    def __post_init__(self) -> None:
        if not (0.0 <= self.low <= 1.0 <= self.high):
            raise ConfigError(f"Episodes are kept in [{self.low}, {self.high}]; the bounds need to hold 1 between them, low at least 0.")

    @property
    def spans_rows(self) -> bool:
        """An episode may lie in several rows."""
        return True

    def __call__(self, d_N: Tensor, episode_N: Tensor) -> Corrected:
        """The weights."""
        owner_N = torch.unique(episode_N, return_inverse=True)[1]
        num_owners = int(owner_N.max()) + 1 if len(owner_N) else 0
        mean = d_N.new_zeros(num_owners).index_add_(0, owner_N, d_N) / torch.bincount(owner_N, minlength=num_owners)
        kept_N = ((mean >= _log(self.low)) & (mean <= _log(self.high)))[owner_N]
        return Corrected(torch.where(kept_N, _ratio(d_N), 0.0), ~kept_N)


def _ratio(d_N: Tensor) -> Tensor:
    return torch.exp(torch.clamp(d_N, -_LOG_LIMIT, _LOG_LIMIT))


def _log(bound: float) -> float:
    return math.log(bound) if bound > 0 else -math.inf
