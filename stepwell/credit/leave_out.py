"""Process rewards to come, compared with the other members step by step: PRIME and rePIRL.

Legend: N members of a group, S steps of all members of a group, end to end, P place of a step in its episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from stepwell.credit.baseline import LeaveOneOut, Standardised, compare_each
from stepwell.credit.returns import to_go
from stepwell.credit.rule import Flat, Need, Part, Parts, check_alpha, check_size, credited, outcome_part
from stepwell.errors import ConfigError, nearest
from stepwell.types import Bools, Credited, Floats, Group, Scored

__all__ = ["Prime", "RePIRL", "largest_return"]

Unit = Literal["reward", "largest_return"]
_RLOO = LeaveOneOut()


@dataclass(frozen=True, slots=True)
class Prime:
    """Outcome and process, each against the other members: `A_s = R_i - mean_(j != i) R_j + alpha * sum over k >= s of (r_k - b_i)`.

    `b_i = mean_(j != i) mean(r of j)`: what a step of another member earned on average, each member once; later differences are
    discounted. The unit that is a step here is a token in the paper (`by_token`); a whole turn is as good.

    Source: PRIME, arXiv 2502.01456, equation 5; there whitened afterwards, which is `Whitened(Prime())`. With alpha = 0 it is RLOO.

    Differs from the authors' code, whose process part is `r_k * N / (N - 1) - sum_j mean(r of j) / (N - 1)` (`form="released"`: equal to
    the paper's where the rewards of an episode are all equal, and at first steps with discount 1), and which divides the process rewards
    by the largest return of the batch (`unit="largest_return"`: one outlier rescales all).

    Bias: biased where the policy decides how many steps it takes, as b_i is taken away once for every step that is left: with positive
    rewards short episodes are favoured. Unbiased for R + alpha x the sum of process rewards where all episodes have equally many
    steps. The released form is biased even there.

    Raises (when built):
        ConfigError: alpha is negative or not finite, the discount lies outside [0, 1], or `form` or `unit` is unknown.
    Raises (when called):
        CreditError: a group of one.

    Attributes:
        alpha: Weight of the process part.
        discount: Per step, in [0, 1].
        form: `paper` or `released`.
        unit: `reward`: process rewards as they are; `largest_return`: divided by `largest_return` of the batch.
    """

    alpha: float = 1.0
    discount: float = 1.0
    form: Literal["paper", "released"] = "paper"
    unit: Unit = "reward"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        to_go(np.zeros(0), self.discount)
        _check_choice("form", self.form, ("paper", "released"))
        _check_choice("unit", self.unit, ("reward", "largest_return"))

    def parts(self, groups: Sequence[Group[Scored]]) -> list[Parts]:
        """Outcome and process."""
        flats = [Flat.of(group) for group in groups]
        alpha = self.alpha / _unit(flats, self.unit)
        return [Parts(flat, {"outcome": outcome_part(flat, _RLOO), "process": self._process(flat, alpha)}) for flat in flats]

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return credited(self.parts(groups))

    def _process(self, flat: Flat, alpha: float) -> Part:
        judged = np.flatnonzero(flat.judged_N)
        told_S = flat.scored_S & (len(judged) > 1)
        if not told_S.any():
            return Part(np.zeros(flat.num_steps), told_S)
        steps_N = np.bincount(flat.member_S[told_S], minlength=len(flat.sizes))
        mean_N = np.bincount(flat.member_S, weights=flat.process_S, minlength=len(flat.sizes)) / np.maximum(steps_N, 1)
        others = len(judged) - 1
        if self.form == "paper":
            compared_S = flat.process_S - flat.spread((mean_N.sum() - mean_N) / others)
        else:
            compared_S = flat.process_S * (len(judged) / others) - mean_N.sum() / others
        compared_S = np.where(told_S, compared_S, 0.0)
        process_S = flat.each(lambda values: to_go(values, self.discount), compared_S)
        return Part(np.where(told_S, alpha * process_S, 0.0), told_S)


@dataclass(frozen=True, slots=True)
class RePIRL:
    """Sums to come, against those of the others that are still going at the same step: `A_s = A^out_s + alpha * (G_s - b)`.

    `b` at the p-th step of member i is the mean of G at the p-th step of the other members that have one that is scored. The outcome
    is treated alike: its return is R at every step, and its baseline the mean R of the others that are still going.

    Where member i alone is still going, `alone="episode"` compares with the whole episodes of all others (their G at the first step,
    their R), and `alone="raw"` with nothing, as the released code does: what the longest episode earned is then its advantage.

    Source: rePIRL, arXiv 2602.07832; there whitened afterwards, which is `Whitened(RePIRL())`. Its alpha is 0.05 or 0.1.

    Differs from the authors' code, which divides the process rewards by the largest return of the batch (`unit="largest_return"`);
    discounts over observation tokens too; and puts the outcome at the wrong token where observations lie between (here steps hold
    sampled tokens alone). Its other variant divides by the deviation of all that are still going at the step
    (`step_baseline=Standardised()`), with a floor that lets the value of whoever is left alone explode; here one who is alone is not
    divided.

    Bias: none before whitening, with discount 1, for R + alpha x the sum of process rewards: who is still going at a step is decided
    before the step, and the baseline holds none of the episode's own rewards.

    Raises (when built):
        ConfigError: alpha is negative or not finite, the discount lies outside [0, 1], or `alone` or `unit` is unknown.
    Raises (when called):
        CreditError: a group of one.

    Attributes:
        alpha: Weight of the process part.
        discount: Per step, in [0, 1].
        alone: `episode` or `raw`.
        unit: As in `Prime`.
        step_baseline: `LeaveOneOut`, or `Standardised`: the same, divided by the deviation.
    """

    alpha: float = 0.05
    discount: float = 1.0
    alone: Literal["episode", "raw"] = "episode"
    unit: Unit = "reward"
    step_baseline: LeaveOneOut | Standardised = _RLOO
    needs: ClassVar[frozenset[Need]] = frozenset()

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        to_go(np.zeros(0), self.discount)
        _check_choice("alone", self.alone, ("episode", "raw"))
        _check_choice("unit", self.unit, ("reward", "largest_return"))

    def parts(self, groups: Sequence[Group[Scored]]) -> list[Parts]:
        """Outcome and process."""
        for group in groups:
            check_size(group, _RLOO)
        flats = [Flat.of(group) for group in groups]
        alpha = self.alpha / _unit(flats, self.unit)
        outcome = self._compared(flats, [_outcomes(flat) for flat in flats], 1.0)
        process = self._compared(flats, [self._sums(flat) for flat in flats], alpha)
        return [Parts(flat, {"outcome": o, "process": p}) for flat, o, p in zip(flats, outcome, process, strict=True)]

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return credited(self.parts(groups))

    def _sums(self, flat: Flat) -> _Going:
        returns_S = flat.each(lambda rewards: to_go(rewards, self.discount), flat.process_S)
        return _Going(returns_S, np.append(returns_S, 0.0)[np.array(flat.bounds[:-1], np.int64)], flat.scored_S)

    def _compared(self, flats: Sequence[Flat], goings: Sequence[_Going], alpha: float) -> list[Part]:
        """Minus the mean of the others of the group that are going at the same place; all groups at once."""
        if not flats:
            return []
        group = np.repeat(np.arange(len(flats)), [len(flat.sizes) for flat in flats])
        sizes = np.concatenate([flat.sizes for flat in flats])
        whole, going = (np.concatenate(columns) for columns in ([g.whole_N for g in goings], [g.going_S for g in goings]))
        member = np.repeat(np.arange(len(sizes)), sizes)[going]
        place = (np.arange(len(going)) - np.repeat(np.cumsum(sizes) - sizes, sizes))[going]
        value, key = np.concatenate([g.returns_S for g in goings])[going], group[member] * (max(sizes, default=0) + 1) + place
        others = np.bincount(key, minlength=1)[key] - 1
        told, compared = others > 0, compare_each(self.step_baseline, value, key)
        if isinstance(self.step_baseline, Standardised):
            compared *= (others + 1) / np.maximum(others, 1)
        lone = np.flatnonzero(~told)
        if self.alone == "raw":
            compared[lone], told[lone] = value[lone], True
        else:
            taking_part = np.unique(member)
            advantage = np.zeros(len(sizes))
            advantage[taking_part] = compare_each(_RLOO, whole[taking_part], group[taking_part])
            compared[lone] = value[lone] - whole[member[lone]] + advantage[member[lone]]
            told[lone] = np.bincount(group[taking_part], minlength=len(flats))[group[member[lone]]] > 1
        values_S, told_S = np.zeros(len(going)), np.zeros(len(going), np.bool_)
        values_S[going], told_S[going] = np.where(told, alpha * compared, 0.0), told
        cuts = np.cumsum([flat.num_steps for flat in flats])[:-1]
        return [Part(*parts) for parts in zip(np.split(values_S, cuts), np.split(told_S, cuts), strict=True)]


class _Going(NamedTuple):
    """What is compared step by step: the value of each step, that of the whole episode, and the steps at which an episode is going."""

    returns_S: Floats
    whole_N: Floats
    going_S: Bools


def _outcomes(flat: Flat) -> _Going:
    return _Going(flat.spread(flat.outcome_N), flat.outcome_N, flat.counts_N[flat.member_S] & (flat.lengths_S > 0))


def largest_return(flats: Sequence[Flat]) -> float:
    """The largest size of a sum of process rewards to come, over all steps of the batch; 0 without any."""
    return max((float(np.abs(flat.each(to_go, flat.process_S)).max(initial=0.0)) for flat in flats), default=0.0)


def _unit(flats: Sequence[Flat], unit: Unit) -> float:
    return 1.0 if unit == "reward" else largest_return(flats) + 1e-6


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} is {value!r}; {nearest(value, allowed)}.")
