"""Numbers and their names, shared by all types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "JSON",
    "Bools",
    "Floats",
    "Ids",
    "Metrics",
]

JSON = None | bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"]
Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Metrics = dict[str, float]
"""`area/name` -> value; every name is documented in `docs/metrics.md`."""
