"""Credit around interruptions: what happens to an agent in the middle of an episode is not the doing of its steps before.

An event is a turn whose reply names one (`Reply.event`); the action of that turn was chosen before it. These come after a rule and change
the outcome's part of its advantages; the process part stays, and so does every member to which nothing happened.

Legend: N members of a group, S step of an episode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

import numpy as np

from stepwell.credit.baseline import Baseline, compare
from stepwell.credit.rule import outcome_counts
from stepwell.errors import ConfigError, CreditError
from stepwell.types import Credited, Episode, Floats, Group, Ids, Metrics

__all__ = ["Around", "Undisturbed", "WeighedByEvents", "Without", "Worth", "events_after"]


class Around(Protocol):
    """Changes credit around interruptions, and says in numbers what it did."""

    def __call__(self, groups: Sequence[Group[Credited]]) -> tuple[list[Group[Credited]], Metrics]: ...


class Worth(NamedTuple):
    """What an episode would have come to, and what came of where it stood then.

    Attributes:
        without: Mean outcome of the same actions up to the event and the policy's own after it, in a world in which nothing happens.
        after: Mean outcome where the policy goes on from right after the event.
        episodes: How many were played to find out.
    """

    without: float
    after: float
    episodes: int


Without = Callable[[Sequence[Episode]], Sequence[Worth | None]]
"""Of interrupted episodes; None where it cannot be known. See `stepwell.crediting.undisturbed`."""


def events_after(member: Credited) -> Ids:
    """How many events happen after the action of each step. [S]"""
    happens = np.array([turn.reply.event is not None for turn in member.scored.episode.turns], np.int64)
    to_come = np.cumsum(happens[::-1])[::-1]
    return np.asarray(to_come[member.scored.steps.turn_S] if len(happens) else np.zeros(0), np.int64)


@dataclass(frozen=True, slots=True)
class WeighedByEvents:
    """The outcome counts less for steps before an event: `A^E_s * factor^(events after s)`.

    `decay` leaves it at that. `segment` multiplies all steps of the episode by one number, so that the sum of `|A^E_s|` over its steps is
    what it was: credit moves from before the event to after it. Factor 1, and an episode without an event, change nothing.

    Stepwell's own (segment-weighted and decayed credit).

    Bias: biased in general. Steps before an event learn a part of what they led to; that is right only where what is lost through the event
    says nothing about them.

    Raises (when built):
        ConfigError: The factor is not in (0, 1].

    Attributes:
        form: `segment` or `decay`.
        factor: For each event, in (0, 1].
    """

    form: Literal["segment", "decay"]
    factor: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 < self.factor <= 1.0:
            raise ConfigError(f"interrupted_credit.factor is {self.factor}; it lies in (0, 1], where 1 changes nothing.")

    def __call__(self, groups: Sequence[Group[Credited]]) -> tuple[list[Group[Credited]], Metrics]:
        """Credit, and `credit/interrupted`: the share of episodes in which something happened."""
        made = [Group(group.task, tuple(map(self._weighed, group.members))) for group in groups]
        return made, _share([_first_event(member) is not None for group in groups for member in group.members])

    def _weighed(self, member: Credited) -> Credited:
        outcome_S = np.where(member.scored.steps.lengths_S > 0, _outcome(member), 0.0)
        if _first_event(member) is None:
            return member
        weighed_S = outcome_S * self.factor ** events_after(member)
        size = float(np.abs(weighed_S).sum())
        if self.form == "segment" and size > 0:
            weighed_S = weighed_S * (float(np.abs(outcome_S).sum()) / size)
        return _with_outcome(member, weighed_S)


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """Steps before an event are credited with what the episode would have come to without it, steps after with what they made of it.

    `A^E_s = R'_i - baseline(R')` up to the event's turn, and `R_i - V(right after the event)` from there on, where R' has the mean outcome
    without the event in the place of R for each interrupted member. Where an event changes nothing, nor what the policy does next, R' and R
    have one expectation, and V is a baseline that does not depend on what comes after: the expected gradient is that of the rule. An event
    in an episode's last turn leaves nothing to find out; its member keeps what the rule gave, as does one of which nothing can be known
    (both are counted).

    Stepwell's own (counterfactual credit around an event).

    Bias: steps after an event: none. Steps before it learn the value of their world without events, not of the one they are in: biased
    where a step can prepare for an event, or bring one on.

    Attributes:
        without: Plays what would have come.
        baseline: Of the outcome; one that does not divide.
    """

    without: Without
    baseline: Baseline

    def __call__(self, groups: Sequence[Group[Credited]]) -> tuple[list[Group[Credited]], Metrics]:
        """Credit, and numbers.

        `credit/interrupted`: share of episodes in which something happened. `credit/event_unknown`: number of those that keep the rule's
        credit. `credit/event_episodes`: number of episodes played to find out.
        """
        hit = [(g, n) for g, group in enumerate(groups) for n, member in enumerate(group.members) if _can_ask(member)]
        found = self.without([groups[g].members[n].scored.episode for g, n in hit])
        known = {place: worth for place, worth in zip(hit, found, strict=True) if worth is not None}
        made = [self._group(group, {n: worth for (at, n), worth in known.items() if at == g}) for g, group in enumerate(groups)]
        happened = [_first_event(member) is not None for group in groups for member in group.members]
        episodes = float(sum(worth.episodes for worth in known.values()))
        return made, _share(happened) | {"credit/event_unknown": float(sum(happened) - len(known)), "credit/event_episodes": episodes}

    def _group(self, group: Group[Credited], known: dict[int, Worth]) -> Group[Credited]:
        if not known:
            return group
        counted = [n for n, member in enumerate(group.members) if outcome_counts(member.scored)]
        would_be = np.array([known[n].without if n in known else group.members[n].scored.outcome for n in counted], np.float64)
        if not (np.isfinite(would_be).all() and all(np.isfinite(worth.after) for worth in known.values())):
            raise CreditError(f"Task {group.task.key!r}: an outcome without the event is NaN or infinite; None is what cannot be known.")
        before = dict(zip(counted, compare(self.baseline, would_be).tolist(), strict=True))
        members = list(group.members)
        for n, worth in known.items():
            member, event = members[n], _first_event(members[n])
            assert event is not None and member.scored.outcome is not None
            later_S = member.scored.steps.turn_S > event
            members[n] = _with_outcome(member, np.where(later_S, member.scored.outcome - worth.after, before[n]))
        return Group(group.task, tuple(members))


def _can_ask(member: Credited) -> bool:
    """Whether something happened before the last turn of an episode with an outcome."""
    event = _first_event(member)
    return event is not None and outcome_counts(member.scored) and event < len(member.scored.episode.turns) - 1


def _first_event(member: Credited) -> int | None:
    """The turn in whose reply something first happened."""
    return next((n for n, turn in enumerate(member.scored.episode.turns) if turn.reply.event is not None), None)


def _outcome(member: Credited) -> Floats:
    """The outcome's part.

    Raises:
        CreditError: The rule tells none.
    """
    if "outcome" not in member.parts:
        raise CreditError(
            "Credit around interruptions changes the outcome's part of advantages, and this rule tells none (parts: "
            f"{', '.join(member.parts) or 'none'}); use a rule that does, such as istar, or set interrupted_credit.kind to 'none'."
        )
    return member.parts["outcome"]


def _with_outcome(member: Credited, outcome_S: Floats) -> Credited:
    changed_S = np.where(member.scored.steps.lengths_S > 0, outcome_S - _outcome(member), 0.0)
    parts = {**member.parts, "outcome": member.parts["outcome"] + changed_S}
    return replace(member, advantages_S=member.advantages_S + changed_S, parts=parts)


def _share(happened: Sequence[bool]) -> Metrics:
    return {"credit/interrupted": float(np.mean(happened))} if happened else {}
