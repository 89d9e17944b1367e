"""The contract of a process reward."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from stepwell.protocols import ProcessReward
from stepwell.testing.demand import demand
from stepwell.types import Ending, EndingKind, Episode, Group, Scored, Verdict

__all__ = ["check_reward"]


def check_reward(reward: ProcessReward, groups: Sequence[Group[Episode]]) -> None:
    """Checks what credit relies on, for these groups and for variants of them with failed and unscored episodes.

    - One scored episode for each episode, in the same groups and order, with the very episode that came in.
    - One number for every step and component, finite; where there is none, `scored_S` is False and the number is 0.
    - A failed episode is unscored at every step and has no outcome; an unscored verdict gives no outcome (neither 0 nor NaN).
    - The input is not changed, and scoring twice gives the same.

    Raises:
        ContractViolation: A promise is broken; the sentence says which.
    """
    demand(any(group.members for group in groups), "check_reward needs at least one episode.")
    for variant in (list(groups), _spoilt(groups)):
        before = copy.deepcopy(variant)
        scored = reward.score(variant)
        _check_scored(variant, scored)
        _check_untouched(before, variant)
        _check_same(scored, reward.score(variant))


def _spoilt(groups: Sequence[Group[Episode]]) -> list[Group[Episode]]:
    """The same groups, with a failed, a failed and empty, and an unscored copy of an episode added to each."""
    failed = Ending(EndingKind.FAILED, "the server went away")
    spoilt = []
    for group in groups:
        members = list(group.members)
        for episode in group.members[:1]:
            lost = Verdict.unscored("the server went away")
            members.append(replace(episode, member=len(members), ending=failed, verdict=lost))
            members.append(replace(episode, member=len(members), ending=failed, verdict=lost, turns=()))
            members.append(replace(episode, member=len(members), verdict=Verdict.unscored("the grader timed out")))
        spoilt.append(Group(group.task, tuple(members)))
    return [*spoilt, *(Group(group.task, group.members[-2:-1]) for group in spoilt[:1])]


def _check_scored(groups: Sequence[Group[Episode]], scored: Sequence[Group[Scored]]) -> None:
    demand(len(scored) == len(groups), f"score returned {len(scored)} groups for {len(groups)}.")
    for g, (group, made) in enumerate(zip(groups, scored, strict=True)):
        demand(made.task == group.task, f"Group {g} came back with another task: {made.task.key!r}, not {group.task.key!r}.")
        demand(len(made.members) == len(group.members), f"Group {g} came back with {len(made.members)} of {len(group.members)} members.")
        for m, (episode, member) in enumerate(zip(group.members, made.members, strict=True)):
            where = f"Member {m} of group {g}"
            demand(isinstance(cast(object, member), Scored), f"{where} came back as {type(member).__name__}, not Scored.")
            demand(member.episode is episode, f"{where} came back with another episode; keep order and object.")
            _check_member(member, where)


def _check_member(member: Scored, where: str) -> None:
    episode, scored_S = member.episode, member.scored_S
    demand(scored_S.dtype == np.bool_, f"{where} has scored_S of type {scored_S.dtype}; it is a mask of booleans.")
    for name, values_S in member.rewards.items():
        demand(values_S.dtype == np.float64, f"{where}: reward {name!r} is {values_S.dtype}; rewards are float64.")
        demand(bool(np.all(np.isfinite(values_S))), f"{where}: reward {name!r} holds NaN or infinity.")
        stray = values_S[~scored_S]
        demand(not np.any(stray), f"{where}: reward {name!r} is {stray} at unscored steps; it must be 0 there, with scored_S False.")
    if member.outcome is not None:
        demand(bool(np.isfinite(member.outcome)), f"{where} has outcome {member.outcome}; where there is none it is None.")
    if episode.verdict.score is None:
        demand(member.outcome is None, f"{where} has no verdict ({episode.verdict.reason}), yet outcome {member.outcome}; it must be None.")
    else:
        demand(member.outcome is not None, f"{where} has verdict {episode.verdict.score}, yet no outcome.")
    if episode.failed:
        demand(not scored_S.any(), f"{where} failed ({episode.ending.reason}), yet {int(scored_S.sum())} of its steps are scored.")


def _check_untouched(before: Sequence[Group[Episode]], after: Sequence[Group[Episode]]) -> None:
    demand(len(before) == len(after), "score changed the list of groups that it was given.")
    for old_group, new_group in zip(before, after, strict=True):
        demand(len(old_group.members) == len(new_group.members), "score changed the members of a group that it was given.")
        for old, new in zip(old_group.members, new_group.members, strict=True):
            same = old.task == new.task and old.ending == new.ending and old.verdict == new.verdict and len(old.turns) == len(new.turns)
            for was, now in zip(old.turns, new.turns, strict=False):
                arrays = ((was.context_ids, now.context_ids), (was.token_ids, now.token_ids), (was.logprobs, now.logprobs))
                same = same and all(np.array_equal(a, b) for a, b in arrays) and (was.text, was.reply) == (now.text, now.reply)
            demand(same, f"score changed the episode of member {new.member} of task {new.task.key!r}; its input must stay as it is.")


def _check_same(scored: Sequence[Group[Scored]], again: Sequence[Group[Scored]]) -> None:
    for one_group, two_group in zip(scored, again, strict=True):
        for one, two in zip(one_group.members, two_group.members, strict=True):
            same = one.outcome == two.outcome and one.rewards.keys() == two.rewards.keys() and np.array_equal(one.scored_S, two.scored_S)
            same = same and all(np.allclose(one.rewards[name], two.rewards[name], rtol=0, atol=1e-6) for name in one.rewards)
            demand(same, f"Scoring member {one.episode.member} of task {one.episode.task.key!r} twice gave different rewards.")
