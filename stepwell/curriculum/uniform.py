"""What to ask next, and which groups may train."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.errors import ConfigError
from stepwell.protocols import Domain
from stepwell.seeding import derive, generator
from stepwell.types import JSON, Episode, Group, Metrics, Task

__all__ = ["Uniform"]


class Uniform:
    """Tasks of uniformly drawn difficulty; every group may train.

    Args:
        domain: Where tasks come from.
        difficulty: Range (low, high) within [0, 1].
        seed: Of the run; the n-th task of a run is a function of (seed, n).
    """

    def __init__(self, domain: Domain, difficulty: tuple[float, float], seed: int) -> None:
        low, high = difficulty
        if not 0.0 <= low <= high <= 1.0:
            raise ConfigError(f"curriculum.difficulty is {difficulty}; allowed is a range (low, high) with 0 <= low <= high <= 1.")
        self._domain, self._low, self._high, self._seed = domain, low, high, seed
        self._drawn = 0

    def draw(self, n: int, step: int) -> list[Task]:
        """The next n training tasks."""
        tasks = [self._task(self._drawn + i) for i in range(n)]
        self._drawn += n
        return tasks

    def _task(self, number: int) -> Task:
        difficulty = round(float(generator(self._seed, "difficulty", number).uniform(self._low, self._high)), 4)
        return self._domain.task(difficulty, derive(self._seed, "task", number), "train")

    def admit(self, group: Group[Episode]) -> bool:
        """True: every group may train."""
        return True

    def observe(self, groups: Sequence[Group[Episode]]) -> Metrics:
        """Mean difficulty of what was asked."""
        return {
            "curriculum/difficulty": float(np.mean([group.task.difficulty for group in groups])),
            "curriculum/drawn": float(self._drawn),
        }

    def state(self) -> dict[str, JSON]:
        """Position in the stream of tasks."""
        return {"drawn": self._drawn}

    def restore(self, state: dict[str, JSON]) -> None:
        """Goes on from `state`."""
        drawn = state["drawn"]
        assert isinstance(drawn, int)
        self._drawn = drawn
