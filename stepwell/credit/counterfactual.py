"""Credit by leaving a turn out: what would the same actions have earned without it?

Legend: S steps of all members of a group, end to end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.credit.baseline import Baseline, Standardised
from stepwell.credit.rule import Flat, Need, Part, Parts, check_alpha, credited, outcome_part
from stepwell.errors import CreditError
from stepwell.types import Credited, Episode, Floats, Group, Scored

__all__ = ["Counterfactual", "Replay"]

Replay = Callable[[Episode, int], float | None]
"""(episode, turn) -> the outcome of the episode's other actions, played without that turn; None where this cannot be known."""

_GRPO = Standardised()


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """What the outcome owes to each turn: `A_s = A^E_i + alpha * (R_i - R_i without the turn of s)`.

    The episode is replayed with the turn's action left out and all others as they were. A turn without which the episode fails is worth
    R, one that changes nothing 0, one that did harm less than 0. All steps of a turn share its credit. Turns that cannot be left
    out (the world cannot tell) have no process part, and `credit/untold_steps` counts them. Process rewards are not read.

    Stepwell's own; leave-one-out effects are an old idea. Replays cost about `turns / 2` episodes of the environment, without a model.

    Bias: biased. What the later actions earn without the turn depends on the turn, as they were chosen after it.

    Raises (when built):
        ConfigError: alpha is negative or not finite.
    Raises (when called):
        CreditError: a group is smaller than the baseline needs, or a replay's outcome is not finite.

    Attributes:
        replay: Plays an episode without one turn.
        baseline: For the outcome.
        alpha: Weight of the counterfactual part.
    """

    replay: Replay
    baseline: Baseline = _GRPO
    alpha: float = 1.0
    needs: ClassVar[frozenset[Need]] = frozenset()

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def parts(self, groups: Sequence[Group[Scored]]) -> list[Parts]:
        """Outcome and process."""
        return [
            Parts(flat, {"outcome": outcome_part(flat, self.baseline), "process": self._process(flat)}) for flat in map(Flat.of, groups)
        ]

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return credited(self.parts(groups))

    def _process(self, flat: Flat) -> Part:
        without_S = np.concatenate([np.zeros(0), *(self._without(flat, n) for n in range(len(flat.sizes)))])
        told_S = np.isfinite(without_S) & (flat.lengths_S > 0)
        effect_S = flat.spread(flat.outcome_N) - np.where(told_S, without_S, 0.0)
        return Part(np.where(told_S, self.alpha * effect_S, 0.0), told_S)

    def _without(self, flat: Flat, n: int) -> Floats:
        """The outcome without the turn of each step; NaN where it is not known (inside this module only)."""
        member = flat.group.members[n]
        if not flat.counts_N[n]:
            return np.full(len(member.steps), np.nan)
        found = [self.replay(member.episode, turn) for turn in range(len(member.episode.turns))]
        if any(value is not None and not np.isfinite(value) for value in found):
            raise CreditError(
                f"Replaying task {flat.group.task.key!r} without a turn gave the outcomes {found}; outcomes are finite, and None where "
                "there is none."
            )
        return np.array([np.nan if value is None else value for value in found], np.float64)[member.steps.turn_S]
