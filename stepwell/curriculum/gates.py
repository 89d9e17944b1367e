"""Which groups may train, by how many of their episodes succeed. A gate goes with any curriculum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.curriculum.bins import Tells
from stepwell.errors import ConfigError
from stepwell.protocols import Curriculum
from stepwell.types import JSON, Episode, Group, Metrics, Task

__all__ = ["Accuracy", "Gate", "Gated", "accuracy_of", "mixed"]

Gate = Callable[[float | None], bool]
"""Success of a group (None: no graded episode) -> whether it may train."""


def accuracy_of(group: Group[Episode]) -> float | None:
    """Share of the group's graded episodes that succeeded; None where none is graded."""
    found = [float(e.verdict.success) for e in group.members if not e.failed and e.verdict.success is not None]
    return float(np.mean(found)) if found else None


def mixed(accuracy: float | None) -> bool:
    """DAPO's dynamic sampling (arXiv 2503.14476, equation 11): neither all episodes succeed nor none.

    >>> [mixed(p) for p in (0.0, 0.125, 1.0, None)]
    [False, True, False, False]
    """
    return accuracy is not None and 0.0 < accuracy < 1.0


@dataclass(frozen=True, slots=True)
class Accuracy:
    """PRIME's filter (arXiv 2502.01456, section 3.3): success within [low, high]; the published range is [0.2, 0.8].

    Raises (when built):
        ConfigError: No range within [0, 1].
    """

    low: float = 0.2
    high: float = 0.8

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= self.high <= 1.0:
            raise ConfigError(f"curriculum.accuracy is {[self.low, self.high]}; allowed is [low, high] with 0 <= low <= high <= 1.")

    def __call__(self, accuracy: float | None) -> bool:
        return accuracy is not None and self.low <= accuracy <= self.high


class Gated:
    """A curriculum with a gate: a group trains where both the curriculum and the gate admit it.

    Metrics: `curriculum/refused` is the share of the groups drawn since the last step that the gate turned away.
    """

    def __init__(self, inner: Curriculum, gate: Gate) -> None:
        self.inner, self._gate = inner, gate
        self._seen = self._refused = 0

    def draw(self, n: int, step: int) -> list[Task]:
        """The curriculum's own."""
        return self.inner.draw(n, step)

    def admit(self, group: Group[Episode]) -> bool:
        """Whether both admit it. The curriculum sees every group, so that it learns from those that do not train as well."""
        passes = self._gate(accuracy_of(group))
        self._seen += 1
        self._refused += not passes
        return self.inner.admit(group) and passes

    def observe(self, groups: Sequence[Group[Episode]]) -> Metrics:
        """The curriculum's own, and what was refused."""
        refused = self._refused / self._seen if self._seen else 0.0
        self._seen = self._refused = 0
        return {**self.inner.observe(groups), "curriculum/refused": refused}

    def state(self) -> dict[str, JSON]:
        """The curriculum's own: between two steps a gate remembers nothing."""
        return self.inner.state()

    def restore(self, state: dict[str, JSON]) -> None:
        """Goes on from `state`."""
        self.inner.restore(state)

    def news(self) -> list[str]:
        """The curriculum's own."""
        return self.inner.news() if isinstance(self.inner, Tells) else []
