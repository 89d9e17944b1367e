"""Credit by the worst step: PURE's minimum form.

Legend: S steps of all members of a group, end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.credit.advantage import returns_part
from stepwell.credit.baseline import Baseline, Centred, LeaveOneOut
from stepwell.credit.returns import to_go
from stepwell.credit.rule import Flat, Need, Parts, check_alpha, credited, outcome_part
from stepwell.errors import ConfigError
from stepwell.types import Credited, Floats, Group, Scored

__all__ = ["MinForm", "least_to_go"]

_RLOO = LeaveOneOut()


@dataclass(frozen=True, slots=True)
class MinForm:
    """An episode is worth what its worst step is: `A_s = A^E_i + alpha * (M_s - b_i)`.

    With `temperature = T > 0` the rewards of an episode are weighed, `w = softmax(-r / T)` over its scored steps, and `M_s` is the sum of
    `w_k r_k` over k >= s: up to the worst step all steps are credited with about its reward, later ones with about 0. With
    `temperature = 0`, `M_s` is the minimum of r_k over k >= s. The baseline compares the whole `M` of the members, each once.

    Good steps cannot be piled up to outweigh a bad one, and writing the same reasoning in more steps gains nothing: the minimum does not
    depend on how the text is cut, as a sum or a mean does.

    Source: PURE, arXiv 2504.15275 (temperature 0.1; the value of a state is the least reward to come).

    Bias: biased. A minimum is no sum of rewards: a step's credit leaves out what its episode's earlier steps make of it.

    Raises (when built):
        ConfigError: alpha or the temperature is negative or not finite, or `return_baseline` divides by a deviation.
    Raises (when called):
        CreditError: a group is smaller than a baseline needs.

    Attributes:
        baseline: For the outcome; None leaves the outcome out.
        alpha: Weight of the process part.
        temperature: Of the weights, in units of reward.
        return_baseline: For the episodes' minima.
    """

    baseline: Baseline | None = _RLOO
    alpha: float = 1.0
    temperature: float = 0.1
    return_baseline: Baseline = _RLOO
    needs: ClassVar[frozenset[Need]] = frozenset()

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        if not (np.isfinite(self.temperature) and self.temperature >= 0):
            raise ConfigError(f"credit.temperature is {self.temperature}; allowed is a finite number of at least 0 (0 is the minimum).")
        allowed = (LeaveOneOut.name, Centred.name)
        if self.return_baseline.name not in allowed:
            raise ConfigError(f"The baseline of minima is {self.return_baseline.name}; allowed are {', '.join(allowed)}.")

    def parts(self, groups: Sequence[Group[Scored]]) -> list[Parts]:
        """Outcome, where it has a baseline, and process."""
        return [self._parts(flat) for flat in map(Flat.of, groups)]

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return credited(self.parts(groups))

    def _parts(self, flat: Flat) -> Parts:
        outcome = {} if self.baseline is None else {"outcome": outcome_part(flat, self.baseline)}
        least_S = _least_to_go(flat, self.temperature)
        return Parts(flat, {**outcome, "process": returns_part(flat, least_S, self.return_baseline, self.alpha)})


def least_to_go(rewards_S: Floats, temperature: float = 0.0) -> Floats:
    """The least reward of this and all later steps of one episode, or its smooth form; see `MinForm`. [S]

    >>> least_to_go(np.array([0.8, 0.1, 0.6]))
    array([0.1, 0.1, 0.6])
    >>> least_to_go(np.array([0.8, 0.1, 0.6]), temperature=0.01).round(3)
    array([0.1, 0.1, 0. ])
    """
    if temperature == 0.0 or not len(rewards_S):
        return np.minimum.accumulate(rewards_S[::-1])[::-1]
    weight_S = np.exp(-(rewards_S - rewards_S.min()) / temperature)
    return to_go(weight_S / weight_S.sum() * rewards_S)


def _least_to_go(flat: Flat, temperature: float) -> Floats:
    """The same for every member, from its scored steps; other steps have the value of the next one that is scored, or 0. [S]"""
    if temperature == 0.0:
        least_S = flat.each(least_to_go, np.where(flat.scored_S, flat.process_S, np.inf))
        return np.where(np.isfinite(least_S), least_S, 0.0)
    least_N = np.full(len(flat.sizes), np.inf)
    np.minimum.at(least_N, flat.member_S[flat.scored_S], flat.process_S[flat.scored_S])
    weight_S = np.where(flat.scored_S, np.exp((flat.spread(least_N) - flat.process_S) / temperature), 0.0)
    total_N = np.bincount(flat.member_S, weights=weight_S, minlength=len(flat.sizes))
    return flat.each(to_go, flat.process_S * weight_S / flat.spread(np.where(total_N > 0, total_N, 1.0)))
