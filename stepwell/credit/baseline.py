"""Baselines: what a value of a group is compared with, and what the difference is divided by.

Legend: N values compared with each other (members of a group, or steps of a group).

A baseline sees only values that count: failed and unscored ones have been left out before. Nothing to compare with (N = 1) gives an
advantage of 0, as do equal values, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from stepwell.errors import ConfigError
from stepwell.types import Floats, Ids

__all__ = ["Baseline", "Centred", "Fit", "LeaveOneOut", "Raw", "Standardised", "compare", "compare_each"]


class Fit(NamedTuple):
    """The advantage of value x_n is `(x_n - offset[n]) / scale`; offset is [N]."""

    offset: Floats
    scale: float


class Baseline(Protocol):
    """A rule that compares values of one group."""

    @property
    def min_members(self) -> int:
        """Groups that are smaller than this by configuration are an error."""
        ...

    @property
    def name(self) -> str: ...

    def fit(self, values_N: Floats) -> Fit:
        """Offset and scale for N >= 1 finite values that are not all equal or N = 1."""
        ...


@dataclass(frozen=True, slots=True)
class Centred:
    """Minus the group's mean: `x_n - mean(x)`.

    Source: Dr.GRPO, arXiv 2503.20783, section 3.2 (no division by the standard deviation). The unit of the reward is kept.
    A group of one gets 0.
    """

    name: ClassVar[str] = "group_mean"
    min_members: ClassVar[int] = 1

    def fit(self, values_N: Floats) -> Fit:
        """Mean, and 1."""
        return Fit(np.full(len(values_N), values_N.mean()), 1.0)


@dataclass(frozen=True, slots=True)
class Standardised:
    """Minus the mean, divided by the standard deviation: `(x_n - mean(x)) / (std(x) + noise_floor)`.

    Source: GRPO, arXiv 2402.03300, section 4.1.2. Without unit. A group of one, or of equal values, gets 0.

    Attributes:
        ddof: The standard deviation divides by `N - ddof`; 1 as in all training code that we know.
        noise_floor: Added to the standard deviation, in units of the values: differences well below it are noise and are not blown up.
            verl has 1e-6, TRL 1e-4.
    """

    ddof: int = 1
    noise_floor: float = 1e-6
    name: ClassVar[str] = "group_std"
    min_members: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.ddof not in (0, 1):
            raise ConfigError(f"ddof is {self.ddof}; allowed are 0 (divide by N) and 1 (divide by N - 1).")
        if not (np.isfinite(self.noise_floor) and self.noise_floor >= 0):
            raise ConfigError(f"noise_floor is {self.noise_floor}; it needs to be a finite number of at least 0.")

    def fit(self, values_N: Floats) -> Fit:
        """Mean, and standard deviation plus noise floor."""
        std = float(values_N.std(ddof=self.ddof)) if len(values_N) > self.ddof else 0.0
        return Fit(np.full(len(values_N), values_N.mean()), std + self.noise_floor)


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """Minus the mean of the others: `x_n - mean_(m != n)(x_m)` = N / (N - 1) x centred.

    Source: RLOO, arXiv 2402.14740. Unbiased, as the baseline of a member does not depend on it. The unit of the reward is
    kept. Where all others failed or are unscored nothing is left to compare with: 0.
    """

    name: ClassVar[str] = "leave_one_out"
    min_members: ClassVar[int] = 2

    def fit(self, values_N: Floats) -> Fit:
        """Mean of the others, and 1."""
        n = len(values_N)
        return Fit((values_N.sum() - values_N) / (n - 1) if n > 1 else values_N.copy(), 1.0)


@dataclass(frozen=True, slots=True)
class Raw:
    """No baseline: the value itself, also where it stands alone or all are equal. Unbiased, with the variance of REINFORCE."""

    name: ClassVar[str] = "raw"
    min_members: ClassVar[int] = 1

    def fit(self, values_N: Floats) -> Fit:
        """0, and 1."""
        return Fit(np.zeros(len(values_N)), 1.0)


def compare(baseline: Baseline, values_N: Floats) -> Floats:
    """Advantages of the values; exactly 0 where there is nothing to compare with or all values are equal. [N]

    >>> compare(LeaveOneOut(), np.array([1.0, 0.0]))
    array([ 1., -1.])
    """
    if isinstance(baseline, Raw):
        return values_N.copy()
    if len(values_N) < 2 or values_N.min() == values_N.max():
        return np.zeros(len(values_N))
    offset, scale = baseline.fit(values_N)
    return (values_N - offset) / scale


def compare_each(baseline: Baseline, values_N: Floats, key_N: Ids) -> Floats:
    """`compare` among the values of equal key, for all keys at once. [N]

    Args:
        baseline: The rule; one of the user's own is called key by key.
        values_N: In any order. [N]
        key_N: Whole numbers from 0. [N]

    >>> compare_each(Centred(), np.array([1.0, 5.0, 2.0, 5.0]), np.array([0, 1, 0, 1]))
    array([-0.5,  0. ,  0.5,  0. ])
    """
    order = np.argsort(key_N, kind="stable")
    starts = np.flatnonzero(np.diff(key_N[order], prepend=-1))
    compared = np.zeros(len(values_N))
    if isinstance(baseline, Raw) or not len(values_N):
        return values_N.copy()
    if not isinstance(baseline, Centred | Standardised | LeaveOneOut):
        for places in np.split(order, starts[1:]):
            compared[places] = compare(baseline, values_N[places])
        return compared
    value = values_N[order]
    size = np.diff(starts, append=len(value))
    mean = np.add.reduceat(value, starts) / size
    centred = value - np.repeat(mean, size)
    scale = np.ones(len(starts))
    if isinstance(baseline, Standardised):
        free = np.maximum(size - baseline.ddof, 1)
        scale = np.sqrt(np.add.reduceat(centred**2, starts) / free) + baseline.noise_floor
    elif isinstance(baseline, LeaveOneOut):
        scale = np.maximum(size - 1, 1) / size
    differ = np.minimum.reduceat(value, starts) < np.maximum.reduceat(value, starts)
    compared[order] = np.where(np.repeat(differ, size), centred, 0.0) / np.where(np.repeat(differ, size), np.repeat(scale, size), 1.0)
    return compared
