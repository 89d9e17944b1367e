"""What a credit rule is, and what all rules share.

Legend: N members of a group, S steps of all members of a group, end to end.

A rule takes all groups of a training step and gives them back with advantages. What every rule keeps to:

- A member **counts** in the outcome's baseline if it did not fail, its outcome is scored and it has sampled tokens. Each rollout counts
  once, whatever its number of steps.
- A failed episode gets zero advantages and enters no statistic.
- An unscored outcome gives no outcome part, an unscored step no process part; the other part stays. Statistics leave both out.
- Nothing to compare with gives 0, and `credit_metrics` counts it.

Every rule says under *Bias* what its gradient estimates where the policy decides how many steps it takes; a test computes it exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stepwell.credit.baseline import Baseline, Raw, compare
from stepwell.errors import ConfigError, CreditError
from stepwell.types import Bools, Credited, Floats, Group, Ids, Scored

__all__ = [
    "Flat",
    "Need",
    "Needing",
    "Part",
    "Parts",
    "Rule",
    "check_alpha",
    "check_size",
    "credited",
    "needs_of",
    "outcome_counts",
    "outcome_part",
    "outcomes_differ",
]

Need = Literal["reference", "old_logprobs", "values", "confidence"]
"""What a rule reads beside outcome and process rewards: the field of `Scored` of that name (`reference` is `ref_logprobs_T`)."""

Kind = TypeVar("Kind", np.float64, np.int64, np.bool_)


@runtime_checkable
class Needing(Protocol):
    """A rule that says what it needs, so that it is checked, or supplied, before any token is sampled."""

    @property
    def needs(self) -> frozenset[Need]: ...


class Rule(Needing, Protocol):
    """A rule that can be wrapped by another: it tells the parts of its advantages before they are summed."""

    def parts(self, groups: Sequence[Group[Scored]]) -> list[Parts]: ...
    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]: ...


def needs_of(rule: object) -> frozenset[Need]:
    """What the rule says that it needs; a rule of the user's may say nothing."""
    return rule.needs if isinstance(rule, Needing) else frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Flat:
    """The steps of all members of a group, end to end.

    Attributes:
        group: Where they are from.
        bounds: Member n has the steps `[bounds[n], bounds[n + 1])`. [N + 1]
        sizes: Steps of each member. [N]
        member_S: Which member each step is of.
        lengths_S: Sampled tokens of each step.
        process_S: Process reward; 0 where it does not count.
        scored_S: Where it counts: scored, in an episode that did not fail, on a step that has tokens.
        outcome_N: 0 where it does not count.
        counts_N: See `outcome_counts`.
    """

    group: Group[Scored]
    bounds: tuple[int, ...]
    sizes: Ids
    member_S: Ids
    lengths_S: Ids
    process_S: Floats
    scored_S: Bools
    outcome_N: Floats
    counts_N: Bools

    @classmethod
    def of(cls, group: Group[Scored]) -> Flat:
        """Joins the members of a group."""
        bounds, members = [0], group.members
        for member in members:
            bounds.append(bounds[-1] + len(member.steps))
        sizes = np.array([len(member.steps) for member in members], np.int64)
        member_S = np.repeat(np.arange(len(members)), sizes)
        lengths_S = _joined([member.steps.lengths_S for member in members], np.int64)
        alive_N = np.array([not member.episode.failed for member in members], np.bool_)
        scored_S = _joined([member.scored_S for member in members], np.bool_) & alive_N[member_S] & (lengths_S > 0)
        process_S = np.where(scored_S, _joined([member.process_S for member in members], np.float64), 0.0)
        counts_N = np.array([outcome_counts(member) for member in members], np.bool_)
        outcome_N = np.array([0.0 if member.outcome is None else member.outcome for member in members], np.float64)
        if not np.isfinite(outcome_N).all():
            raise CreditError(
                f"Task {group.task.key!r} has outcomes {[member.outcome for member in members]}; outcomes are finite, "
                "and None where there is no score."
            )
        outcome_N = np.where(counts_N, outcome_N, 0.0)
        return cls(group, tuple(bounds), sizes, member_S, lengths_S, process_S, scored_S, outcome_N, counts_N)

    @property
    def num_steps(self) -> int:
        return self.bounds[-1]

    @property
    def judged_N(self) -> Bools:
        """Members with a process reward that counts. [N]"""
        return np.bincount(self.member_S[self.scored_S], minlength=len(self.sizes)) > 0

    def spread(self, values_N: Floats) -> Floats:
        """Every step gets the value of its member. [S]"""
        return values_N[self.member_S]

    def each(self, make: Callable[[Floats], Floats], values_S: Floats) -> Floats:
        """Applies a function [steps of a member] -> [the same] to every member. [S]"""
        return _joined([make(values_S[a:b]) for a, b in pairwise(self.bounds)], np.float64)

    def last_steps(self) -> Ids:
        """The last step that has tokens of every member that has one. [at most N]"""
        has = np.flatnonzero(self.lengths_S > 0)
        member = self.member_S[has]
        return has[np.flatnonzero(np.diff(member, append=-1))]


class Part(NamedTuple):
    """One summand of the advantages of a group.

    Attributes:
        values_S: 0 where there is nothing to tell.
        told_S: Where there is something to tell (which may well be 0).
    """

    values_S: Floats
    told_S: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """What a rule says about one group: the advantages are the sum of the parts, by name (`outcome`, `process`, `offset`)."""

    flat: Flat
    parts: Mapping[str, Part]


def credited(made: Sequence[Parts]) -> list[Group[Credited]]:
    """Sums the parts, and gives every member its own."""
    return [_group(one) for one in made]


def _group(made: Parts) -> Group[Credited]:
    flat, parts = made.flat, made.parts
    total_S = np.zeros(flat.num_steps)
    for part in parts.values():
        total_S = total_S + part.values_S
    process = parts.get("process")
    members = tuple(
        Credited(
            member,
            total_S[a:b],
            {name: part.values_S[a:b] for name, part in parts.items()},
            None if process is None else process.told_S[a:b],
        )
        for member, (a, b) in zip(flat.group.members, pairwise(flat.bounds), strict=True)
    )
    return Group(flat.group.task, members)


def outcome_part(flat: Flat, baseline: Baseline) -> Part:
    """The outcome's advantage, equal for all steps of an episode; nothing to tell where it does not count or stands alone.

    Raises:
        CreditError: the group is smaller than the baseline needs.
    """
    check_size(flat.group, baseline)
    counted = np.flatnonzero(flat.counts_N)
    advantage_N = np.zeros(len(flat.sizes))
    advantage_N[counted] = compare(baseline, flat.outcome_N[counted])
    told = len(counted) > 1 or isinstance(baseline, Raw)
    told_N = flat.counts_N & told
    return Part(flat.spread(advantage_N), told_N[flat.member_S])


def outcome_counts(member: Scored) -> bool:
    """Whether a member takes part in the outcome's baseline: not failed, outcome scored, some token sampled."""
    return not member.episode.failed and member.outcome is not None and member.steps.num_tokens > 0


def outcomes_differ(group: Group[Scored]) -> bool:
    """Whether the members that count have at least two different outcomes."""
    return len({member.outcome for member in group.members if outcome_counts(member)}) > 1


def check_size(group: Group[Scored], baseline: Baseline) -> None:
    """A group that is smaller by configuration than the baseline needs is an error, not a silent 0."""
    if len(group.members) < baseline.min_members:
        raise CreditError(f"rollout.group_size is {len(group.members)}; {baseline.name} needs at least {baseline.min_members}.")


def check_alpha(alpha: float) -> None:
    """A weight of the process part is finite and not negative."""
    if not (np.isfinite(alpha) and alpha >= 0):
        raise ConfigError(f"credit.alpha is {alpha}; allowed is a finite number of at least 0 (0 switches the process part off).")


def _joined(arrays: Sequence[NDArray[Kind]], dtype: type[Kind]) -> NDArray[Kind]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)
