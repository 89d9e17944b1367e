"""How a contract check speaks."""

from __future__ import annotations

import numpy as np

from stepwell.errors import ContractViolation
from stepwell.types import Floats

__all__ = ["demand", "demand_close"]


def demand(kept: bool, sentence: str) -> None:
    """Raises the sentence unless the promise is kept."""
    if not kept:
        raise ContractViolation(sentence)


def demand_close(got: Floats, expected: Floats, tolerance: float, sentence: str) -> None:
    """Raises the sentence, with the largest difference, unless the two arrays are equally long, finite, and close everywhere."""
    demand(got.shape == expected.shape, f"{sentence} Got {got.shape} numbers, expected {expected.shape}.")
    apart = float(np.max(np.abs(got - expected))) if got.size else 0.0
    demand(apart <= tolerance, f"{sentence} The largest difference is {apart:.3g}; allowed is {tolerance:g}.")
