"""The lists of tasks that a domain is tested on, where those to train on are drawn without end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepwell.errors import ConfigError, nearest
from stepwell.types import Task

__all__ = ["SPLITS", "FiniteSplits"]

SPLITS = ("train", "validation", "test")


class FiniteSplits:
    """The tasks of `test` and `validation`, made when they are first asked for; none of `train`.

    Args:
        place: Begins the sentence of an error: "The maze has".
        make: From a split to its tasks.

    >>> splits = FiniteSplits("The maze has", lambda split: (Task(f"{split}/0", "find the way", 0.5, split, {}),))
    >>> [task.key for task in splits("test")], splits("train")
    (['test/0'], ())
    """

    def __init__(self, place: str, make: Callable[[str], Sequence[Task]]) -> None:
        self._place, self._make = place, make
        self._made: dict[str, Sequence[Task]] = {}

    def __call__(self, split: str) -> Sequence[Task]:
        """The tasks of this split.

        Raises:
            ConfigError: There is no such split, or there are too few tasks for it.
        """
        if split not in SPLITS:
            raise ConfigError(f"{self._place} no split {split!r}; {nearest(split, SPLITS)}.")
        if split == "train":
            return ()
        if split not in self._made:
            self._made[split] = self._make(split)
        return self._made[split]
