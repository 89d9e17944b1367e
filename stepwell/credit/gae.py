"""Generalised advantage estimation: what a step earned, against what a critic expected before it.

Legend: S step of an episode, F step with tokens of all episodes that count (end to end), E episode that counts, C column.

Steps are those of sampled tokens, whatever their size: one step a turn is turn-level GAE, one step a token is token-level GAE over the
trained tokens. What the environment says is no step, so nothing is discounted across it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from stepwell.credit.rule import Flat, Need, Part, Parts, credited
from stepwell.errors import ConfigError, CreditError, nearest
from stepwell.types import Bools, Credited, EndingKind, Floats, Group, Ids, Scored

__all__ = ["GAE", "Estimate", "lambda_advantages"]

Truncated = Literal["bootstrap", "graded"]
_COLUMNS = ("outcome", "process", "values")
_TRUNCATED: tuple[Truncated, ...] = ("bootstrap", "graded")


def lambda_advantages(rewards_S: Floats, values_S: Floats, *, after: float = 0.0, discount: float = 1.0, lam: float = 1.0) -> Floats:
    """Advantages of the steps of one episode: `A_s = sum over k of (discount lam)^k delta_(s+k)`. [S]

    `delta_s = r_s + discount V_(s+1) - V_s`, where V after the last step is `after`. Source: GAE, arXiv 1506.02438, equation 16.

    With `lam=1` it is the sum of rewards to come minus the value, with `lam=0` the one-step temporal difference delta. `A + V` is the
    lambda-return, the target of the critic.

    Args:
        rewards_S: Reward of each step. [S]
        values_S: Value of the state before each step. [S]
        after: Value of the state after the last step: 0 where the episode is over, the critic's where it was cut.
        discount: In [0, 1], per step.
        lam: In [0, 1]: how far rewards are trusted (1) or values (0).

    Raises:
        ConfigError: discount or lam lies outside [0, 1].
        CreditError: the numbers of rewards and values differ, or something is not finite.

    >>> lambda_advantages(np.array([0.0, 0.0, 1.0]), np.array([0.4, 0.5, 0.8]))
    array([0.6, 0.5, 0.2])
    >>> lambda_advantages(np.array([0.0, 0.0, 1.0]), np.array([0.4, 0.5, 0.8]), lam=0.0).round(3)
    array([0.1, 0.3, 0.2])
    """
    _check_factors(discount, lam)
    if len(rewards_S) != len(values_S):
        raise CreditError(f"Got {len(rewards_S)} rewards and {len(values_S)} values; every step needs one of each.")
    if not (np.all(np.isfinite(rewards_S)) and np.all(np.isfinite(values_S)) and np.isfinite(after)):
        raise CreditError("Rewards, values or the value after the last step hold NaN or infinity; all are finite numbers.")
    if not len(rewards_S):
        return np.zeros(0)
    delta_S = rewards_S + discount * np.append(values_S[1:], after) - values_S
    advantages_S: Floats = _to_come(delta_S[None], np.array([len(rewards_S) - 1]), discount * lam)[0]
    return advantages_S


class Estimate(NamedTuple):
    """What GAE says about one episode.

    Attributes:
        advantages_S: 0 where `counts_S` is False. [S]
        returns_S: Targets of the critic, `advantage + value`; 0 where `counts_S` is False. [S]
        counts_S: Steps with tokens of an episode that counts. [S]
    """

    advantages_S: Floats
    returns_S: Floats
    counts_S: Bools


@dataclass(frozen=True, slots=True)
class GAE:
    """PPO's credit: generalised advantage estimation with a critic's values.

    The reward of a step is `alpha x process reward`, and the last step is paid `outcome_weight x outcome` besides; advantages are those
    of `lambda_advantages`. By its ending, an episode

    - that **terminated**, or met the **turn limit** (a part of the task), is over: the value after its last step is 0;
    - that was **truncated** (context, wall clock) might have gone on: the value after its last step is the critic's (`final_value`), in
      place of the outcome, which it has not reached. With `truncated="graded"` it is over as it stands, and paid what it was graded;
    - that **failed** counts nowhere and gets zeros.

    An episode that should be paid an outcome and has none (unscored) counts nowhere either: the values speak of the outcome too, so that
    without it every step would seem a failure. An unscored step adds nothing to the sums and keeps what comes after it. A step without
    tokens is no decision: it gets 0, and its reward goes to the step before it.

    Source: GAE, arXiv 1506.02438; with the clipped surrogate PPO, arXiv 1707.06347. With `lam=1`, `discount=1` and values that are 0 it
    is the sum of rewards to come (REINFORCE). `Whitened(GAE())` is what PPO is in most libraries; the critic's targets are made before.

    Bias: with `lam=1` and `discount=1` unbiased for any values that depend on what stands before the step alone. With `lam` below 1
    unbiased for the true values of the policy, and biased for others. A `discount` below 1 is another objective. (Weights of tokens
    must not depend on the length: averaging `constant`.)

    Raises (when built):
        ConfigError: a number out of range, or nothing is paid.
    Raises (when called):
        CreditError: an episode has no values, or was truncated and has no value of its last state.

    Attributes:
        discount: Per step, in [0, 1].
        lam: In [0, 1]; lower trusts the critic more: less variance, more bias.
        outcome_weight: Of the outcome; 0 where step rewards hold it already.
        alpha: Of the process rewards.
        truncated: What an episode is that was cut from outside.
    """

    discount: float = 1.0
    lam: float = 1.0
    outcome_weight: float = 1.0
    alpha: float = 1.0
    truncated: Truncated = "bootstrap"

    needs: ClassVar[frozenset[Need]] = frozenset({"values"})

    def __post_init__(self) -> None:
        _check_factors(self.discount, self.lam)
        for name, weight in {"outcome_weight": self.outcome_weight, "alpha": self.alpha}.items():
            if not (np.isfinite(weight) and weight >= 0):
                raise ConfigError(f"credit.{name} is {weight}; allowed is a finite number of at least 0.")
        if not self.outcome_weight and not self.alpha:
            raise ConfigError("credit.outcome_weight and credit.alpha are both 0: nothing is paid; make one of them positive.")
        if self.truncated not in _TRUNCATED:
            raise ConfigError(f"credit.truncated is {self.truncated!r}; {nearest(self.truncated, _TRUNCATED)}")

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return credited(self.parts(groups))

    def parts(self, groups: Sequence[Group[Scored]]) -> list[Parts]:
        """What `outcome`, `process` rewards and `values` add to the advantages."""
        flats = [Flat.of(group) for group in groups]
        terms = self._terms([member for group in groups for member in group.members])
        bounds = np.cumsum([0, *(len(group.members) for group in groups)])
        return [self._joined(flat, terms[a:b]) for flat, (a, b) in zip(flats, pairwise(bounds), strict=True)]

    def _joined(self, flat: Flat, terms: Sequence[_Terms]) -> Parts:
        columns_CS = np.concatenate([np.zeros((3, 0)), *(term.columns_CS for term in terms)], axis=1)
        counts_S = np.concatenate([np.zeros(0, np.bool_), *(term.counts_S for term in terms)])
        return Parts(flat, {name: Part(column_S, counts_S) for name, column_S in zip(_COLUMNS, columns_CS, strict=True)})

    def estimate(self, members: Sequence[Scored]) -> list[Estimate]:
        """Advantages, and the critic's targets; one for each member, in order."""
        made = []
        for member, term in zip(members, self._terms(members), strict=True):
            advantages_S = term.columns_CS.sum(axis=0)
            values_S = np.zeros(len(advantages_S)) if member.values_S is None else member.values_S
            made.append(Estimate(advantages_S, np.where(term.counts_S, advantages_S + values_S, 0.0), term.counts_S))
        return made

    def counts(self, member: Scored) -> bool:
        """Whether an episode takes part: it did not fail, has sampled tokens, and what its end is worth is known."""
        alive = not member.episode.failed and member.steps.num_tokens > 0
        return alive and (not self.outcome_weight or self.bootstraps(member) or member.outcome is not None)

    def bootstraps(self, member: Scored) -> bool:
        """Whether the critic says what comes after the last step."""
        return member.episode.ending.kind is EndingKind.TRUNCATED and self.truncated == "bootstrap"

    def _terms(self, members: Sequence[Scored]) -> list[_Terms]:
        """One for each member, in order."""
        counted = [n for n, member in enumerate(members) if self.counts(member)]
        made = [_Terms(np.zeros((3, len(m.steps))), np.zeros(len(m.steps), np.bool_)) for m in members]
        for n, term in zip(counted, self._counted_terms([members[n] for n in counted]), strict=True):
            made[n] = term
        return made

    def _counted_terms(self, members: Sequence[Scored]) -> list[_Terms]:
        if not members:
            return []
        num_steps_E = np.array([len(member.steps) for member in members])
        is_step = np.concatenate([member.steps.lengths_S for member in members]) > 0
        number = np.cumsum(is_step) - 1  # of the step with tokens that a step is, or follows
        last_E = number[np.cumsum(num_steps_E) - 1]
        first_E = np.append(0, last_E[:-1] + 1)
        follows = number >= np.repeat(first_E, num_steps_E)
        process = self.alpha * np.concatenate([member.process_S for member in members])
        values_F = np.concatenate([_values(member) for member in members])[is_step]
        next_F = np.append(values_F[1:], 0.0)
        next_F[last_E] = [self._after(member) for member in members]
        delta_CF = np.zeros((3, len(values_F)))
        delta_CF[0, last_E] = [self._paid(member) for member in members]
        delta_CF[1] = np.bincount(number[follows], weights=process[follows], minlength=len(values_F))
        delta_CF[2] = self.discount * next_F - values_F
        every = np.zeros((3, len(is_step)))
        every[:, is_step] = _to_come(delta_CF, last_E, self.discount * self.lam)
        bounds = np.cumsum([0, *num_steps_E])
        return [_Terms(every[:, a:b], is_step[a:b]) for a, b in pairwise(bounds)]

    def _paid(self, member: Scored) -> float:
        """What the end itself pays."""
        if member.outcome is None or self.bootstraps(member):
            return 0.0
        if not np.isfinite(member.outcome):
            raise CreditError(f"{_named(member)} has outcome {member.outcome}; outcomes are finite, and None where there is no score.")
        return self.outcome_weight * member.outcome

    def _after(self, member: Scored) -> float:
        """Value of the state after the last step."""
        if not self.bootstraps(member):
            return 0.0
        if member.final_value is None:
            raise CreditError(
                f"{_named(member)} was truncated and has no final_value, the critic's value of the state after its last step; "
                "supply it, or take such episodes as they are graded (credit.truncated=graded)."
            )
        return member.final_value


class _Terms(NamedTuple):
    """What outcome, process rewards and values add to the advantages of one episode: the advantages are their sum. [3, S], [S]"""

    columns_CS: Floats
    counts_S: Bools


def _to_come(delta_CF: Floats, last_E: Ids, factor: float) -> Floats:
    """`sum over k of factor^k delta_(s+k)` within each episode; they lie end to end, and `last_E` are their last steps. [C, F]"""
    length_E = np.diff(last_E, prepend=-1)
    order_E = np.argsort(-length_E, kind="stable")
    last_E, length_E = last_E[order_E], length_E[order_E]
    sums_CF = np.empty_like(delta_CF)
    later_CE = np.zeros((len(delta_CF), len(last_E)))
    for back in range(int(length_E[0])):  # from the last steps backwards, all episodes that are that long at once
        num = int(np.searchsorted(-length_E, -back, side="left"))
        at = last_E[:num] - back
        later_CE[:, :num] = delta_CF[:, at] + factor * later_CE[:, :num]
        sums_CF[:, at] = later_CE[:, :num]
    return sums_CF


def _values(member: Scored) -> Floats:
    if member.values_S is None:
        raise CreditError(
            f"{_named(member)} has no values, and GAE compares with a critic's: let credit.kind=gae make one, "
            "or wrap the reward in stepwell.rewards.critic.Critic."
        )
    return member.values_S


def _named(member: Scored) -> str:
    return f"Member {member.episode.member} of task {member.episode.task.key!r}"


def _check_factors(discount: float, lam: float) -> None:
    for name, value in {"discount": discount, "lam": lam}.items():
        if not 0.0 <= value <= 1.0:
            raise ConfigError(f"credit.{name} is {value}; it lies in [0, 1].")
