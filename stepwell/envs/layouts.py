"""Generated worlds of small domains: which split a layout belongs to, and finite lists of different ones.

A layout's split is decided by the layout itself, so no two splits share one, whatever the seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TypeVar

from stepwell.envs.splits import SPLITS
from stepwell.errors import ConfigError, nearest
from stepwell.seeding import derive, generator
from stepwell.types import Task

__all__ = ["check_settings", "different_tasks", "drawn_for", "split_of"]

Layout = TypeVar("Layout")

_TENTHS = {0: "test", 1: "test", 2: "validation"}
_ATTEMPTS = 1000
_REPEATED = 50
"""So many drawn layouts in a row that were known already say that there are hardly any others."""


def split_of(layout: str) -> str:
    """The split of the layout that this text describes: 1 in 5 is for the test, 1 in 10 for validation.

    >>> split_of("a maze") == split_of("a maze")
    True
    """
    return _TENTHS.get(derive("split of a layout", layout) % 10, "train")


def drawn_for(split: str, draw: Callable[[int], Layout], describe: Callable[[Layout], str]) -> Layout:
    """The first of `draw(0)`, `draw(1)`, ... that belongs to the split.

    Raises:
        ConfigError: There is no such split, or no such layout among the first thousand.
    """
    if split not in SPLITS:
        raise ConfigError(f"There is no split {split!r} here; {nearest(split, SPLITS)}.")
    for attempt in range(_ATTEMPTS):
        layout = draw(attempt)
        if split_of(describe(layout)) == split:
            return layout
    raise ConfigError(f"None of {_ATTEMPTS} layouts belongs to split {split!r}: there are too few of this size; raise the difficulty.")


def different_tasks(split: str, number: int, difficulty: tuple[float, float], task: Callable[[float, int, str], Task]) -> tuple[Task, ...]:
    """`number` tasks of different payloads, difficulties drawn from the range, seeds counting up.

    Raises:
        ConfigError: There are not as many.
    """
    found: dict[str, Task] = {}
    repeated = 0
    for seed in count():
        if len(found) == number:
            return tuple(found.values())
        made = task(round(float(generator("layout difficulty", split, seed).uniform(*difficulty)), 4), seed, split)
        repeated = repeated + 1 if repr(made.payload) in found else 0
        if repeated == _REPEATED:
            break
        found.setdefault(repr(made.payload), made)
    raise ConfigError(
        f"There are hardly more than {len(found)} different tasks of difficulty {difficulty} in split {split!r}, and {number} are wanted: "
        "ask for fewer (num_test_tasks), or raise the difficulty."
    )


def check_settings(difficulty: tuple[float, float], num_test_tasks: int) -> None:
    """Refuses a range of difficulties outside [0, 1], and an empty list to test on."""
    low, high = difficulty
    if not 0.0 <= low <= high <= 1.0:
        raise ConfigError(f"The difficulty is {difficulty}; allowed is a range (low, high) with 0 <= low <= high <= 1.")
    if num_test_tasks < 1:
        raise ConfigError(f"num_test_tasks is {num_test_tasks}; a domain needs at least 1 task to test on.")
