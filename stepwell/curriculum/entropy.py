"""Discovery, refinement, mastery: a curriculum by the entropy of success.

Legend: B bins of difficulty, from easy to hard.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from stepwell.curriculum.bins import Bins
from stepwell.curriculum.gates import accuracy_of
from stepwell.errors import ConfigError
from stepwell.types import JSON, Episode, Floats, Group, Metrics, Task

__all__ = ["EntropyCurriculum", "Phase", "success_entropy"]

MASTERED = 0.8
_STEEPEST = 40.0


class Phase(StrEnum):
    """Where the curriculum is."""

    DISCOVERY = "discovery"
    """Everything is tried alike."""
    REFINEMENT = "refinement"
    """Where the outcome is least certain."""
    MASTERY = "mastery"
    """The hardest that succeeds at all, and a share of what is mastered."""


def success_entropy(success: Floats) -> Floats:
    """Entropy of the outcome in bits: `-p log2 p - (1 - p) log2 (1 - p)`.

    >>> success_entropy(np.array([0.0, 0.5, 1.0])).tolist()
    [0.0, 1.0, 0.0]
    """
    p = np.clip(success, 1e-12, 1.0 - 1e-12)
    entropy = -p * np.log2(p) - (1.0 - p) * np.log2(1.0 - p)
    return np.where((success <= 0.0) | (success >= 1.0), 0.0, entropy)


class EntropyCurriculum:
    """Phases by the entropy of success; Stepwell's own form of what others name without a formula.

    - *discovery*: all bins alike, until each has `visits` visits and the mean entropy over bins has not risen for `patience` steps.
    - *refinement*: bins by `H_b^gamma`, tilted so that the expected success is `target` where the bins allow it, until a bin at or above
      the `edge` (a share of the range) is mastered: success of at least 0.8.
    - *mastery*: the frontier, which is what is not mastered yet, by `H_b^gamma`, and `rehearsal` of the draws from mastered bins; tilted
      alike. Where the success of bins that were mastered drops by `drop`, it falls back to refinement.

    Every transition is kept with its step and its cause (`transitions`, also in the state) and told once by `news`.

    Args:
        bins: Of the domain.
        gamma: Sharpness of refinement.
        visits: See discovery.
        patience: See discovery, in steps.
        edge: Share of the range that counts as its end, in (0, 1].
        rehearsal: Share of mastered bins in mastery, in [0, 1).
        drop: See mastery, in (0, 1).
        target: Expected success of what is drawn, in (0, 1).

    Raises:
        ConfigError: A value out of range.
    """

    def __init__(
        self,
        bins: Bins,
        *,
        gamma: float = 4.0,
        visits: int = 4,
        patience: int = 3,
        edge: float = 0.8,
        rehearsal: float = 0.2,
        drop: float = 0.2,
        target: float = 0.5,
    ) -> None:
        if not (math.isfinite(gamma) and gamma > 0) or visits < 1 or patience < 1:
            raise ConfigError(
                f"curriculum.gamma is {gamma}, visits {visits}, patience {patience}; gamma is positive, the others at least 1."
            )
        if not (0.0 < edge <= 1.0 and 0.0 <= rehearsal < 1.0 and 0.0 < drop < 1.0 and 0.0 < target < 1.0):
            raise ConfigError(
                f"curriculum.edge is {edge}, rehearsal {rehearsal}, drop {drop}, target {target}; all are shares between 0 and 1."
            )
        self.bins, self._gamma, self._visits, self._patience = bins, gamma, visits, patience
        self._edge, self._rehearsal, self._drop, self._target = edge, rehearsal, drop, target
        self.phase = Phase.DISCOVERY
        self.transitions: list[dict[str, JSON]] = []
        self._highest, self._since_rise, self._peak, self._steps = 0.0, 0, 0.0, 0
        self._untold: list[str] = []

    @property
    def share_B(self) -> Floats:
        """The distribution that tasks are drawn from."""
        success_B = self.bins.success_B
        if self.phase is Phase.DISCOVERY:
            return np.full(self.bins.number, 1.0 / self.bins.number)
        sharp_B = success_entropy(success_B) ** self._gamma
        if self.phase is Phase.REFINEMENT:
            return _tilted(sharp_B, success_B, self._target)
        mastered_B = success_B >= MASTERED
        left_B = ~mastered_B
        frontier_B = np.where(left_B, sharp_B, 0.0) if left_B.any() else sharp_B
        if not mastered_B.any():
            return _tilted(frontier_B, success_B, self._target)
        share = self._rehearsal
        rehearsed_B = mastered_B / mastered_B.sum()
        wanted = (self._target - share * float(rehearsed_B @ success_B)) / (1.0 - share)
        drawn_B: Floats = (1.0 - share) * _tilted(frontier_B, success_B, wanted) + share * rehearsed_B
        return drawn_B

    def draw(self, n: int, step: int) -> list[Task]:
        """The next n training tasks."""
        return self.bins.draw(n, self.share_B)

    def admit(self, group: Group[Episode]) -> bool:
        """True; the group's success is noted."""
        self.bins.see(group.task, accuracy_of(group))
        return True

    def observe(self, groups: Sequence[Group[Episode]]) -> Metrics:
        """Counts the step, and goes to another phase where it is time."""
        difficulty, success = self.bins.end_step()
        self._steps += 1
        entropy = float(success_entropy(self.bins.success_B).mean())
        self._since_rise = 0 if entropy > self._highest + 1e-3 else self._since_rise + 1
        self._highest = max(self._highest, entropy)
        self._move()
        mastered = np.flatnonzero(self.bins.success_B >= MASTERED)
        return {
            "curriculum/difficulty": difficulty,
            "curriculum/drawn": float(self.bins.drawn),
            "curriculum/success": success,
            "curriculum/entropy": entropy,
            "curriculum/phase": float(list(Phase).index(self.phase)),
            "curriculum/mastered": self.bins.middle(int(mastered[-1])) if len(mastered) else 0.0,
        }

    def _move(self) -> None:
        success_B = self.bins.success_B
        mastered = np.flatnonzero(success_B >= MASTERED)
        if self.phase is Phase.DISCOVERY:
            fewest = int(self.bins.visits_B.min())
            if fewest >= self._visits and self._since_rise >= self._patience:
                cause = f"every bin has at least {fewest} visits, and the mean entropy has not risen for {self._since_rise} steps"
                self._go(Phase.REFINEMENT, cause)
        elif self.phase is Phase.REFINEMENT:
            hardest = int(mastered[-1]) if len(mastered) else -1
            if hardest >= math.ceil(self._edge * self.bins.number) - 1:
                self._peak = float(success_B[: hardest + 1].mean())
                self._go(
                    Phase.MASTERY,
                    f"success at difficulty {self.bins.middle(hardest):.2f} is {success_B[hardest]:.2f}, and that is the edge",
                )
        else:
            upto = math.ceil(self._edge * self.bins.number)
            now = float(success_B[:upto].mean())
            self._peak = max(self._peak, now)
            if now < self._peak - self._drop:
                self._go(Phase.REFINEMENT, f"success in bins that were mastered fell from {self._peak:.2f} to {now:.2f}")

    def _go(self, phase: Phase, cause: str) -> None:
        self.transitions.append({"step": self._steps, "from": self.phase.value, "to": phase.value, "cause": cause})
        self._untold.append(f"After {self._steps} steps the curriculum went from {self.phase.value} to {phase.value}: {cause}.")
        self.phase = phase

    def news(self) -> list[str]:
        """Transitions since the last call, in words."""
        told, self._untold = self._untold, []
        return told

    def state(self) -> dict[str, JSON]:
        """All between two steps."""
        return {
            **self.bins.state(),
            "phase": self.phase.value,
            "transitions": list(self.transitions),
            "highest": self._highest,
            "since_rise": self._since_rise,
            "peak": self._peak,
            "steps": self._steps,
        }

    def restore(self, state: dict[str, JSON]) -> None:
        """Goes on from `state`."""
        self.bins.restore(state)
        phase, moves, highest, since, peak, steps = (state[n] for n in ("phase", "transitions", "highest", "since_rise", "peak", "steps"))
        assert isinstance(moves, list) and isinstance(since, int) and isinstance(steps, int)
        assert isinstance(highest, float | int) and isinstance(peak, float | int)
        self.phase, self.transitions = Phase(str(phase)), list(moves)
        self._highest, self._since_rise, self._peak, self._steps = float(highest), since, float(peak), steps
        self._untold = []


def _tilted(weights_B: Floats, success_B: Floats, target: float) -> Floats:
    """`weights * exp(theta * success)`, normalised, with theta such that the expected success is the target, or as near as bins allow."""
    if not weights_B.any():
        weights_B = np.ones_like(weights_B)

    def share(theta: float) -> Floats:
        tilted_B = weights_B * np.exp(theta * (success_B - success_B.max() if theta > 0 else success_B - success_B.min()))
        share_B: Floats = tilted_B / tilted_B.sum()
        return share_B

    low, high = -_STEEPEST, _STEEPEST
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if float(share(middle) @ success_B) < target else (low, middle)
    return share((low + high) / 2.0)
