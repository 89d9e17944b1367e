"""How unlikely a difference is, where there is none."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stepwell.types import Floats

__all__ = ["Change", "change", "normal_tail", "student_tail"]

_MANY = 200
"""Degrees of freedom from which the normal distribution stands in (Abramowitz and Stegun 26.7.8)."""


def student_tail(t: float, df: float) -> float:
    """P(T > t) of Student's t with `df` (at least 1) degrees of freedom, by its integral over the angle atan(t / sqrt(df)).

    >>> round(student_tail(2.0, 10), 5), round(student_tail(-2.0, 10), 5), student_tail(0.0, 3)
    (0.03669, 0.96331, 0.5)
    """
    if t <= 0:
        return 0.5 if t == 0 else 1.0 - student_tail(-t, df)
    if df > _MANY:
        return normal_tail(t * (1.0 - 0.25 / df) / math.sqrt(1.0 + 0.5 * t * t / df))
    angles = np.linspace(math.atan(t / math.sqrt(df)), math.pi / 2, 401)
    area = float(np.trapezoid(np.cos(angles) ** (df - 1), angles))
    return area / (math.sqrt(math.pi) * math.exp(math.lgamma(df / 2) - math.lgamma((df + 1) / 2)))


def normal_tail(z: float) -> float:
    """P(Z > z) of the standard normal distribution."""
    return 0.5 * math.erfc(z / math.sqrt(2.0))


class Change(NamedTuple):
    """Two means, the standard error of their difference (Welch) and its degrees of freedom."""

    before: float
    now: float
    error: float
    df: float

    @property
    def rise(self) -> float:
        return self.now - self.before

    def tail(self, more: float = 0.0) -> float:
        """How likely so large a rise is where the true one is `more`."""
        distance = self.rise - more
        if self.error == 0.0:
            return 0.0 if distance > 0 else 1.0
        return student_tail(distance / self.error, self.df)


def change(before: Floats, now: Floats) -> Change | None:
    """From the values of one window to those of the next (Welch's test); missing ones (NaN) are left out. None: fewer than 3 in one."""
    before, now = before[~np.isnan(before)], now[~np.isnan(now)]
    if min(len(before), len(now)) < 3:
        return None
    parts = [float(values.var(ddof=1)) / len(values) for values in (before, now)]
    total = sum(parts)
    spread = sum(part**2 / (len(values) - 1) for part, values in zip(parts, (before, now), strict=True))
    return Change(float(before.mean()), float(now.mean()), math.sqrt(total), total**2 / spread if spread > 0 else 1.0)
