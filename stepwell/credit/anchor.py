"""Steps taken in the same state, compared with each other: GiGPO.

Legend: S steps of all members of a group, end to end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from stepwell.credit.baseline import Baseline, Standardised, compare_each
from stepwell.credit.returns import to_go
from stepwell.credit.rule import Flat, Need, Part, Parts, check_alpha, credited, outcome_part
from stepwell.errors import ConfigError, nearest
from stepwell.types import Bools, Credited, Episode, Floats, Group, Ids, Scored

__all__ = ["GiGPO"]

Pays = Literal["outcome", "process", "both"]
_PAYS: tuple[Pays, ...] = ("outcome", "process", "both")
_GRPO = Standardised()


@dataclass(frozen=True, slots=True)
class GiGPO:
    """Episode credit, and beside it a comparison of what was done in the same state: `A_s = A^E_i + alpha * A^S_s`.

    Turns of a group that begin in the same environment state (equal `Observation.state_key`, never "") are an anchor group. A turn's return
    is the discounted sum of what is paid from it on, and `A^S` compares the returns of an anchor group by `step_baseline`; all steps of a
    turn share it. A state that was met once gives 0, as nothing can be compared, and `credit/untold_steps` counts it.

    Source: GiGPO, arXiv 2505.10978, equations 3 to 8. With alpha = 0, or where no state is met twice, it is `OutcomeOnly`. Statistics of
    `A^E` are over episodes, each once.

    Differs from the authors' code, whose default takes mean and deviation of the outcome over step rows, so that an episode counts as often
    as it has steps.

    Bias: biased. An anchor group's mean holds the step's own return, how large the group is depends on what its episodes did, and the
    discount forgets.

    Raises (when built):
        ConfigError: alpha is negative or not finite, the discount lies outside [0, 1], or `pays` is unknown.
    Raises (when called):
        CreditError: a group is smaller than the baseline needs.

    Attributes:
        baseline: For the outcome.
        alpha: Weight of the step part (omega in the paper; 1).
        step_baseline: For the returns of an anchor group; the paper has `Standardised` and `Centred`.
        discount: Per turn, in [0, 1].
        pays: What a return is made of: the `outcome` at the last turn, the `process` rewards, or `both`.
    """

    baseline: Baseline = _GRPO
    alpha: float = 1.0
    step_baseline: Baseline = _GRPO
    discount: float = 0.95
    pays: Pays = "outcome"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        to_go(np.zeros(0), self.discount)
        if self.pays not in _PAYS:
            raise ConfigError(f"pays is {self.pays!r}; {nearest(self.pays, _PAYS)}.")

    def parts(self, groups: Sequence[Group[Scored]]) -> list[Parts]:
        """Outcome and process."""
        flats = [Flat.of(group) for group in groups]
        turns: list[_Turns] = []
        for flat in flats:
            turns.append(self._turns(flat, first_anchor=turns[-1].next_anchor if turns else 0))
        return [
            Parts(flat, {"outcome": outcome_part(flat, self.baseline), "process": process})
            for flat, process in zip(flats, self._process(flats, turns), strict=True)
        ]

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return credited(self.parts(groups))

    def _turns(self, flat: Flat, *, first_anchor: int) -> _Turns:
        """Returns and anchors of the turns of a group."""
        members = flat.group.members
        sizes = np.array([len(member.episode.turns) for member in members], np.int64)
        bounds = [0, *np.cumsum(sizes).tolist()]
        of_S = np.concatenate([np.zeros(0, np.int64), *(m.steps.turn_S + first for m, first in zip(members, bounds, strict=False))])
        paid = np.zeros(bounds[-1])
        told = np.repeat(flat.counts_N, sizes)
        if self.pays != "outcome":
            paid += np.bincount(of_S, weights=flat.process_S, minlength=bounds[-1])
            told = told if self.pays == "both" else np.bincount(of_S[flat.scored_S], minlength=bounds[-1]) > 0
        if self.pays != "process":
            last = flat.last_steps()
            paid[of_S[last]] += flat.outcome_N[flat.member_S[last]]
        returns = [to_go(paid[a:b], self.discount) for a, b in pairwise(bounds)]
        numbers: dict[str, int] = {}
        keys = (key for member in members for key in _states(member.episode))
        anchor = np.array([first_anchor + numbers.setdefault(key, len(numbers)) if key else -1 for key in keys], np.int64)
        return _Turns(of_S, np.concatenate([np.zeros(0), *returns]), told & (anchor >= 0), anchor, first_anchor + len(numbers))

    def _process(self, flats: Sequence[Flat], turns: Sequence[_Turns]) -> Iterator[Part]:
        told = np.concatenate([np.zeros(0, np.bool_), *(one.told for one in turns)])
        anchor = np.concatenate([np.zeros(0, np.int64), *(one.anchor for one in turns)])[told]
        values = np.zeros(len(told))
        values[told] = self.alpha * compare_each(
            self.step_baseline, np.concatenate([np.zeros(0), *(one.returns for one in turns)])[told], anchor
        )
        told[told] = np.bincount(anchor, minlength=1)[anchor] > 1
        first = 0
        for flat, one in zip(flats, turns, strict=True):
            of_S = first + one.of_S
            told_S = told[of_S] & (flat.lengths_S > 0)
            yield Part(np.where(told_S, values[of_S], 0.0), told_S)
            first += len(one.told)


class _Turns(NamedTuple):
    """The turns of all members of a group, end to end.

    Attributes:
        of_S: The turn of each step.
        returns: Discounted sum of what is paid from each turn on.
        told: Where there is a return, and a state to compare it in.
        anchor: Number of the state that the turn begins in, different in different groups; -1 where the environment cannot tell.
        next_anchor: The first number that is free.
    """

    of_S: Ids
    returns: Floats
    told: Bools
    anchor: Ids
    next_anchor: int


def _states(episode: Episode) -> list[str]:
    """The key of the state that each turn begins in."""
    return [episode.start.state_key, *(turn.reply.observation.state_key for turn in episode.turns)][: len(episode.turns)]
