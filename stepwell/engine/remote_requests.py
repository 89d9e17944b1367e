"""Which rows of a call share a request: those that continue one prompt in the same way, with seeds that follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepwell.engine.service import Asked
from stepwell.seeding import PLACES, Seed

__all__ = ["Shared", "request_seed", "shared"]

_SEEDS = 2**31


class Shared(NamedTuple):
    """A request, and the rows that get its samples, in order."""

    asked: Asked
    rows: tuple[int, ...]


def request_seed(seed: int) -> int:
    """A row's seed as a server takes it, in [0, 2**31): siblings' follow each other, as their places do.

    >>> from stepwell.seeding import among
    >>> first, second = (request_seed(among((0, "slot", member), 3)) for member in range(2))
    >>> second - first
    1
    """
    if isinstance(seed, Seed):
        return seed.family % (_SEEDS - PLACES) + seed.place
    return seed % _SEEDS


def shared(asked: Sequence[Asked], most: int | None) -> list[Shared]:
    """Rows of one sample each as requests, in the order of their first rows.

    A request of seed s for n samples stands for n rows of the same context, limit, temperature and stops, whose seeds are s, s + 1, ...,
    s + n - 1. Rows whose seeds do not follow each other stay apart, and so do two of the same seed.

    Args:
        asked: One sample each.
        most: Samples of a request, at most; None is any number.
    """
    alike: dict[tuple[object, ...], list[int]] = {}
    for row, one in enumerate(asked):
        alike.setdefault((one.context.tobytes(), one.max_tokens, one.temperature, one.stop), []).append(row)
    made: list[list[int]] = []
    for rows in alike.values():
        run: list[int] = []
        for row in sorted(rows, key=lambda row: asked[row].seed):
            if not run or asked[row].seed != asked[run[-1]].seed + 1 or len(run) == most:
                run = []
                made.append(run)
            run.append(row)
    return [Shared(asked[run[0]]._replace(samples=len(run)), tuple(run)) for run in sorted(made, key=min)]
