"""Sums of rewards to come.

Legend: S step.
"""

from __future__ import annotations

import numpy as np

from stepwell.errors import ConfigError
from stepwell.types import Floats

__all__ = ["to_go"]


def to_go(rewards_S: Floats, discount: float = 1.0) -> Floats:
    """Discounted sum of this and all later rewards: `G_s = r_s + discount * G_(s+1)`, `G_S = 0`. [S]

    Computed from the end, never as a quotient of powers of the discount (that underflows for long episodes). An unscored step enters as 0.

    Args:
        rewards_S: Reward of each step of one episode. [S]
        discount: In [0, 1], per step.

    Raises:
        ConfigError: the discount lies outside [0, 1].

    >>> to_go(np.array([0.2, 0.0, 1.0]))
    array([1.2, 1. , 1. ])
    """
    if not 0.0 <= discount <= 1.0:
        raise ConfigError(f"The discount is {discount}; it lies in [0, 1].")
    if discount == 1.0:
        return np.cumsum(rewards_S[::-1])[::-1].astype(np.float64)
    later, returns = 0.0, []
    for reward in reversed(rewards_S.tolist()):
        later = reward + discount * later
        returns.append(later)
    return np.array(returns[::-1], np.float64)
