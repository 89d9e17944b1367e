"""A fixed number of tasks, of which those are asked that the agent sometimes solves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.curriculum.gates import Accuracy, accuracy_of
from stepwell.errors import ConfigError, RunError
from stepwell.protocols import Domain
from stepwell.seeding import derive, generator
from stepwell.types import JSON, Episode, Group, Metrics, Task

__all__ = ["Pools"]


class Pools:
    """Tasks in three pools by their last success: too hard, within the range, too easy; those within the range are asked, and new ones.

    Source of the range: PRIME's accuracy filter, arXiv 2502.01456 (0.2 to 0.8). A task outside it rests for `again` steps, and then
    counts as new.

    Args:
        domain: With a list of training tasks, or a generator of them.
        difficulty: Range that tasks are generated from where the domain has no list.
        size: Tasks in all; of a list, its first.
        accuracy: The range.
        again: Steps that a task outside the range rests; 0 is for good.
        seed: Of the run.

    Raises:
        ConfigError: There is no task, or a value is out of range.
        RunError: (from `draw`) No task is left that may be asked.
    """

    def __init__(self, domain: Domain, difficulty: tuple[float, float], size: int, accuracy: Accuracy, again: int, seed: int) -> None:
        if size < 1 or again < 0:
            raise ConfigError(f"curriculum.size is {size} and curriculum.again {again}; allowed are at least 1 and at least 0.")
        self._range, self._again, self._seed = accuracy, again, seed
        listed = domain.tasks("train")
        low, high = difficulty
        if listed:
            self._tasks: list[Task] = list(listed[:size])
        else:
            self._tasks = [
                domain.task(round(float(generator(seed, "pool difficulty", n).uniform(low, high)), 4), derive(seed, "pool", n), "train")
                for n in range(size)
            ]
        self._number = {task.key: n for n, task in enumerate(self._tasks)}
        self._success: dict[int, float] = {}
        self._asked: dict[int, int] = {}
        self._drawn = self._step = 0

    def draw(self, n: int, step: int) -> list[Task]:
        """The next n training tasks; a task comes twice only where fewer than n may be asked."""
        self._step = step
        open_ = [number for number in range(len(self._tasks)) if self._may_be_asked(number)]
        if not open_:
            known = list(self._success.values())
            easy, hard = sum(p > self._range.high for p in known), sum(p < self._range.low for p in known)
            raise RunError(
                f"Step {step}: the pool is empty. Of {len(self._tasks)} tasks {easy} succeed more often than {self._range.high} and {hard} "
                f"less often than {self._range.low}. Widen curriculum.accuracy, raise curriculum.size, let tasks rest for a while only "
                "(curriculum.again above 0), or take another difficulty."
            )
        picked: list[int] = []
        while len(picked) < n:
            order = generator(self._seed, "pool draw", self._drawn, len(picked)).permutation(len(open_)).tolist()
            picked += [open_[i] for i in order[: n - len(picked)]]
        self._drawn += n
        return [self._tasks[number] for number in picked]

    def _may_be_asked(self, number: int) -> bool:
        success = self._success.get(number)
        if success is None or self._range(success):
            return True
        return self._again > 0 and self._step - self._asked[number] >= self._again

    def admit(self, group: Group[Episode]) -> bool:
        """True; the task's success is noted."""
        success, number = accuracy_of(group), self._number.get(group.task.key)
        if success is not None and number is not None:
            self._success[number], self._asked[number] = success, self._step
        return True

    def observe(self, groups: Sequence[Group[Episode]]) -> Metrics:
        """Sizes of the pools."""
        known = list(self._success.values())
        found = [p for p in map(accuracy_of, groups) if p is not None]
        return {
            "curriculum/difficulty": float(np.mean([group.task.difficulty for group in groups])) if groups else float("nan"),
            "curriculum/drawn": float(self._drawn),
            "curriculum/success": float(np.mean(found)) if found else float("nan"),
            "curriculum/new": float(len(self._tasks) - len(known)),
            "curriculum/too_easy": float(sum(p > self._range.high for p in known)),
            "curriculum/too_hard": float(sum(p < self._range.low for p in known)),
        }

    def state(self) -> dict[str, JSON]:
        """All between two steps."""
        rows: list[JSON] = [[number, success, self._asked[number]] for number, success in sorted(self._success.items())]
        return {"drawn": self._drawn, "seen": rows}

    def restore(self, state: dict[str, JSON]) -> None:
        """Goes on from `state`."""
        drawn, rows = state["drawn"], state["seen"]
        assert isinstance(drawn, int) and isinstance(rows, list)
        self._drawn = drawn
        self._success = {int(number): float(success) for number, success, _ in rows}
        self._asked = {int(number): int(step) for number, _, step in rows}
