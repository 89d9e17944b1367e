"""Episodes of experts, and spoilt copies of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stepwell.errors import ConfigError, RunError
from stepwell.seeding import generator
from stepwell.types import Action, Episode, Invalid, Task

__all__ = ["Drawn", "Examples", "spoilt"]

Replay = Callable[[Task, Sequence[Action | Invalid]], Episode]


class Drawn(NamedTuple):
    """Demonstrations of one batch, and copies of them that went wrong."""

    experts: tuple[Episode, ...]
    spoilt: tuple[Episode, ...]


@dataclass(frozen=True, slots=True)
class Examples:
    """A stream of demonstrations, some of them spoilt.

    Attributes:
        demonstration: From a number to that demonstration of the run.
        size: Demonstrations of a batch.
        copies: Of each, how many are spoilt (ReGAIL has 2). A copy that succeeds all the same, or says nothing, is left out.
        replay: Plays actions in a task's environment; needed for copies.
        seed: Of the spoiling.

    Raises (when built):
        ConfigError: no demonstrations, or copies without a replay.
    """

    demonstration: Callable[[int], Episode]
    size: int = 8
    copies: int = 0
    replay: Replay | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"A batch has {self.size} demonstrations; it needs at least 1.")
        if self.copies < 0 or (self.copies and self.replay is None):
            raise ConfigError(f"There are to be {self.copies} spoilt copies of a demonstration; it needs at least 0, and a way to replay.")

    def drawn(self, first: int) -> Drawn:
        """Demonstrations `first`, `first + 1`, ...: the same for the same number.

        Raises:
            RunError: The environment failed in one.
        """
        experts = tuple(_played(self.demonstration(n), n) for n in range(first, first + self.size))
        copies = [self._spoilt(expert, n, k) for n, expert in enumerate(experts, first) for k in range(self.copies)]
        return Drawn(experts, tuple(copy for copy in copies if copy.num_tokens and not copy.failed and not copy.verdict.success))

    def _spoilt(self, expert: Episode, number: int, copy: int) -> Episode:
        assert self.replay is not None
        actions = [turn.action for turn in expert.turns]
        return self.replay(expert.task, spoilt(actions, generator(self.seed, "spoilt", number, copy)))


def _played(episode: Episode, number: int) -> Episode:
    if episode.failed:
        raise RunError(f"Demonstration {number}, of task {episode.task.key!r}, failed: {episode.ending.reason}")
    return episode


def spoilt(actions: Sequence[Action | Invalid], rng: np.random.Generator) -> list[Action | Invalid]:
    """The actions with one mistake: one of them left out, done twice, or exchanged with the next.

    >>> [action.name for action in spoilt([Action("a"), Action("b")], np.random.default_rng(0))]
    ['b', 'a']
    """
    if not actions:
        return []
    made = list(actions)
    mistake = ("left out", "twice", "exchanged")[rng.integers(3 if len(made) > 1 else 2)]
    at = int(rng.integers(len(made) - (mistake == "exchanged")))
    if mistake == "left out":
        del made[at]
    elif mistake == "twice":
        made.insert(at, made[at])
    else:
        made[at], made[at + 1] = made[at + 1], made[at]
    return made
