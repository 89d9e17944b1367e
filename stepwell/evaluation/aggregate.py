"""One score of an attempt from the scores of its steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from stepwell.errors import ConfigError

__all__ = ["Aggregate", "of_steps"]

Aggregate = Literal["last", "min", "mean", "sum", "product", "log_odds"]


def of_steps(scores: Sequence[float], how: Aggregate) -> float:
    """`last`: that of the last step; `min`: the worst step's; `mean`; `sum`; `product` and `log_odds` (the sum of them): for probabilities.

    A step of exactly 0 or 1, as a checker says it and a sure judge rounds to, would have infinite odds, and two of them could not be
    added; it counts as far from certain as float64 can tell from 1, which is 36.7 nats.

    Raises:
        ConfigError: There is no step; or a score that is no probability where one is needed.

    >>> of_steps([0.5, 0.8], "product"), of_steps([0.9, 0.2, 0.7], "min")
    (0.4, 0.2)
    """
    if not scores:
        raise ConfigError("An attempt without steps has no score; leave it out (and count it).")
    if how in ("product", "log_odds") and not all(0 <= score <= 1 for score in scores):
        raise ConfigError(f"The {how} of steps needs probabilities in [0, 1]; got {min(scores):g} to {max(scores):g}.")
    return float(_WAYS[how](scores))


_SURE = 2.0**-53


def _log_odds(scores: Sequence[float]) -> float:
    within = [min(max(score, _SURE), 1 - _SURE) for score in scores]
    return math.fsum(math.log(score) - math.log1p(-score) for score in within)


_WAYS: Mapping[Aggregate, Callable[[Sequence[float]], float]] = {
    "last": lambda scores: scores[-1],
    "min": min,
    "mean": lambda scores: sum(scores) / len(scores),
    "sum": math.fsum,
    "product": math.prod,
    "log_odds": _log_odds,
}
