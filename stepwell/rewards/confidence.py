"""How far a judge can be trusted: how often it was right about episodes that it had not learnt from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.errors import ConfigError
from stepwell.types import JSON, Bools, Floats, Group, Metrics, Scored

__all__ = ["Confidence", "auc", "pair_accuracy", "ranked_by_reward"]


def pair_accuracy(groups: Sequence[Sequence[tuple[float, float]]]) -> float | None:
    """Share of pairs of a group, one with the better outcome, that have their scores in the same order; a tie is a half.

    Args:
        groups: Outcome and the judge's score of each episode of a task.

    Returns:
        the mean over the groups with a pair; None where there is none.

    >>> pair_accuracy([[(1.0, 0.3), (0.0, 0.1), (0.0, 0.3)], [(1.0, 9.0)]])
    0.75
    """
    found = []
    for group in groups:
        pairs = [(a, b) for better, a in group for worse, b in group if better > worse]
        if pairs:
            found.append(np.mean([(a > b) + 0.5 * (a == b) for a, b in pairs]))
    return float(np.mean(found)) if found else None


def ranked_by_reward(groups: Sequence[Group[Scored]]) -> list[list[tuple[float, float]]]:
    """Outcome and mean process reward over scored steps, of each episode that has both: what `pair_accuracy` compares."""
    return [
        [(m.outcome, float(m.process_S[m.scored_S].mean())) for m in group.members if m.outcome is not None and m.scored_S.any()]
        for group in groups
    ]


def auc(scores_N: Floats, good_N: Bools) -> float:
    """How often one that is good has a higher score than one that is not; a tie is a half. NaN where there is not one of each.

    The area under the ROC curve, by ranks (Mann and Whitney 1947).

    >>> auc(np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, True, False, True]))
    0.875
    """
    num_good = int(good_N.sum())
    num_bad = len(good_N) - num_good
    if not num_good or not num_bad:
        return float("nan")
    _, place_N, count = np.unique(scores_N, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2
    return float((rank[place_N][good_N].sum() - num_good * (num_good + 1) / 2) / (num_good * num_bad))


class Confidence:
    """The running mean, over batches, of the pair accuracy on episodes before the judge learns from them.

    Args:
        memory: Weight of the past, in [0, 1): at 0.9 half of it is forgotten in 7 batches.

    Attributes:
        value: What batches so far have shown; None as long as none held a pair.
    """

    def __init__(self, memory: float) -> None:
        if not 0.0 <= memory < 1.0:
            raise ConfigError(f"The judge's memory is {memory}; it lies in [0, 1).")
        self.memory = memory
        self.value: float | None = None

    def remember(self, fresh: float | None) -> Metrics:
        """Takes a batch in; one without a pair says nothing. `judge/confidence` is the mean with it."""
        if fresh is not None:
            self.value = fresh if self.value is None else self.memory * self.value + (1.0 - self.memory) * fresh
        return {} if self.value is None else {"judge/confidence": self.value}

    def state(self) -> JSON:
        """For the checkpoint."""
        return self.value

    def restore(self, state: JSON) -> None:
        """Takes the state back."""
        assert state is None or isinstance(state, int | float)
        self.value = state
