"""Success by difficulty, as it is now: what adaptive curricula go by.

Legend: B bins of difficulty, from easy to hard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from stepwell.errors import ConfigError
from stepwell.protocols import Domain
from stepwell.seeding import derive, generator
from stepwell.types import JSON, Floats, Task

__all__ = ["Bins", "Tells", "falling"]


@runtime_checkable
class Tells(Protocol):
    """A curriculum that says in words what it has decided."""

    def news(self) -> list[str]:
        """Sentences since the last call."""
        ...


class Bins:
    """Tasks drawn by weights over bins of difficulty, and how often they succeed.

    Success of bin b is the mean of a beta distribution: `p_b = (1 + wins_b) / (2 + tries_b)`, where what was seen counts `keep` times less
    with every step that has passed since: estimates follow an agent that learns, and a bin that is not visited goes back to 1/2, so that it
    is tried again.

    Args:
        domain: Where tasks come from.
        difficulty: Range (low, high) within [0, 1], cut into `number` equal bins.
        number: Of bins.
        keep: What a step leaves of the counts, in (0, 1].
        seed: Of the run; the n-th task of a run is a function of (seed, n) and its bin.

    Raises:
        ConfigError: A value out of range.
    """

    def __init__(self, domain: Domain, difficulty: tuple[float, float], number: int, keep: float, seed: int) -> None:
        low, high = difficulty
        if not 0.0 <= low < high <= 1.0:
            raise ConfigError(
                f"curriculum.difficulty is {list(difficulty)}; a curriculum that adapts needs a range [low, high] with "
                "0 <= low < high <= 1."
            )
        if number < 2:
            raise ConfigError(f"curriculum.bins is {number}; a curriculum that adapts needs at least 2.")
        if not 0.0 < keep <= 1.0:
            raise ConfigError(f"curriculum.keep is {keep}; allowed is above 0 to 1 (1 forgets nothing).")
        self._domain, self._low, self._high, self._keep, self._seed = domain, low, high, keep, seed
        self.number = number
        self.drawn = 0
        self.wins_B, self.tries_B, self.visits_B = np.zeros(number), np.zeros(number), np.zeros(number, np.int64)
        self._fresh: list[tuple[float, float]] = []

    @property
    def success_B(self) -> Floats:
        """Estimated success of each bin, in (0, 1)."""
        return (1.0 + self.wins_B) / (2.0 + self.tries_B)

    def middle(self, b: int) -> float:
        """The difficulty in the middle of a bin."""
        return self._low + (b + 0.5) * (self._high - self._low) / self.number

    def draw(self, n: int, weights_B: Floats) -> list[Task]:
        """The next n tasks."""
        share_B = weights_B / weights_B.sum()
        tasks = [self._task(self.drawn + i, share_B) for i in range(n)]
        self.drawn += n
        return tasks

    def _task(self, number: int, share_B: Floats) -> Task:
        rng = generator(self._seed, "difficulty", number)
        b = int(np.searchsorted(np.cumsum(share_B)[:-1], rng.random(), side="right"))
        width = (self._high - self._low) / self.number
        difficulty = min(max(round(self._low + (b + float(rng.random())) * width, 4), self._low), self._high)
        return self._domain.task(difficulty, derive(self._seed, "task", number), "train")

    def see(self, task: Task, accuracy: float | None) -> None:
        """Takes note of a played task; it counts from the end of the step on."""
        if accuracy is not None:
            self._fresh.append((task.difficulty, accuracy))

    def end_step(self) -> tuple[float, float]:
        """Counts what was seen; returns the mean difficulty and the mean success of it (NaN where nothing was graded)."""
        fresh, self._fresh = self._fresh, []
        self.wins_B, self.tries_B = self.wins_B * self._keep, self.tries_B * self._keep
        for difficulty, accuracy in fresh:
            b = min(int((difficulty - self._low) / (self._high - self._low) * self.number), self.number - 1)
            self.wins_B[b] += accuracy
            self.tries_B[b] += 1.0
            self.visits_B[b] += 1
        if not fresh:
            return float("nan"), float("nan")
        difficulty, accuracy = np.mean(fresh, axis=0)
        return float(difficulty), float(accuracy)

    def state(self) -> dict[str, JSON]:
        """All between two steps."""
        counts: dict[str, JSON] = {
            name: value.tolist() for name, value in (("wins", self.wins_B), ("tries", self.tries_B), ("visits", self.visits_B))
        }
        return {"drawn": self.drawn, **counts}

    def restore(self, state: dict[str, JSON]) -> None:
        """Goes on from `state`."""
        drawn = state["drawn"]
        assert isinstance(drawn, int)
        self.drawn = drawn
        self.wins_B, self.tries_B = np.array(state["wins"], np.float64), np.array(state["tries"], np.float64)
        self.visits_B = np.array(state["visits"], np.int64)
        self._fresh = []


def falling(success_B: Floats, weights_B: Floats | Sequence[float]) -> Floats:
    """The nearest success (weighted least squares) that does not rise with difficulty: isotonic regression by pooling neighbours.

    Source: Barlow, Bartholomew, Bremner and Brunk (1972), pool adjacent violators. Difficulty that is real makes noise the only reason for
    a harder bin to look easier. Bins of weight 0 go with the others; among themselves each counts alike.

    >>> falling(np.array([0.9, 0.4, 0.6, 0.1]), np.ones(4)).tolist()
    [0.9, 0.5, 0.5, 0.1]
    """
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(success_B.tolist(), np.asarray(weights_B).tolist(), strict=True):
        block = (value, weight, 1)
        while blocks and blocks[-1][0] < block[0]:
            before = blocks.pop()
            total, size = before[1] + block[1], before[2] + block[2]
            share = before[1] / total if total else before[2] / size
            block = (before[0] * share + block[0] * (1 - share), total, size)
        blocks.append(block)
    return np.concatenate([np.full(size, value) for value, _, size in blocks])
