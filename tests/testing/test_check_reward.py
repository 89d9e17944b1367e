"""The reward's contract holds for right rewards and catches each fault of a wrong one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Literal

import numpy as np
import pytest
import torch
from builders import make_episode, make_task

from stepwell.credit import by_turn
from stepwell.engine.local import LocalEngine, Text
from stepwell.engine.tiny import TinySpec, tiny_model
from stepwell.protocols import ModelSpec, ProcessReward
from stepwell.rewards.implicit import ImplicitReward, ImplicitSettings
from stepwell.rewards.outcome import EnvironmentReward, OutcomeReward
from stepwell.testing import ContractViolation, check_reward
from stepwell.types import Episode, Floats, Group, Scored

TICKS = count()


class Lengths:
    """The reward of a step is its number of tokens. Faults are switched on by name."""

    def __init__(self, *faults: str) -> None:
        self.faults = set(faults)

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        has = self.faults.__contains__
        kept: Any = groups
        made = [Group(group.task, tuple(self.one(episode) for episode in group.members)) for group in groups]
        if has("a group is lost"):
            made = made[1:]
        if has("members are lost"):
            made = [Group(group.task, group.members[1:]) for group in made]
        if has("members change places"):
            made = [Group(group.task, group.members[::-1]) for group in made]
        if has("tasks are mixed up"):
            made = [Group(make_task("other"), group.members) for group in made]
        if has("episodes are not scored"):
            made = [Group(group.task, group.members) for group in kept]
        if has("input is emptied"):
            kept.clear()
        if has("input is changed"):
            kept[0].members[0].turns[0].logprobs[:] = 0.0
        return made

    def one(self, episode: Episode) -> Scored:
        has = self.faults.__contains__
        steps = by_turn(episode)
        values: Floats = steps.lengths_S.astype(np.float64)
        scored_S = np.full(len(steps), not episode.failed or has("failed is scored"))
        outcome = episode.verdict.score
        if not has("unscored has a number"):
            values = np.where(scored_S, values, 0.0)
        if has("scores draw"):
            values = values + scored_S * next(TICKS)
        if has("scores are integers"):
            values = values.astype(np.int64)
        if has("mask is a number"):
            scored_S = scored_S.astype(np.int64)
        if has("unscored verdict is zero") and outcome is None:
            outcome = 0.0
        if has("unscored verdict is NaN") and outcome is None:
            outcome = float("nan")
        if has("verdict is dropped"):
            outcome = None
        if has("episode is copied"):
            episode = replace(episode)
        return Scored(episode, steps, outcome, {"judge": values}, scored_S)


FAULTS = {
    "a group is lost": "groups for 2",
    "members are lost": "members",
    "members change places": "another episode",
    "tasks are mixed up": "another task",
    "episodes are not scored": "as Episode, not Scored",
    "episode is copied": "another episode",
    "input is emptied": "list of groups|groups for",
    "input is changed": "score changed the episode",
    "failed is scored": "failed .* yet",
    "unscored has a number": "at unscored steps",
    "scores draw": "twice gave different rewards",
    "scores are integers": "rewards are float64",
    "mask is a number": "mask of booleans",
    "unscored verdict is zero": "no verdict .* yet outcome 0.0",
    "unscored verdict is NaN": "has outcome nan",
    "verdict is dropped": "yet no outcome",
}


def groups() -> list[Group[Episode]]:
    first = Group(make_task("a"), (make_episode([2, 3], score=1.0), make_episode([1], member=1, score=0.0)))
    return [first, Group(make_task("b"), (make_episode([4, 1, 1], score=0.5), make_episode([2], member=1, score=0.25)))]


def test_a_right_reward_passes() -> None:
    check_reward(Lengths(), groups())


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_is_caught(fault: str) -> None:
    with pytest.raises(ContractViolation, match=FAULTS[fault]):
        check_reward(Lengths(fault), groups())


@pytest.mark.parametrize("reward", [OutcomeReward(), EnvironmentReward(), EnvironmentReward(invalid_penalty=0.1)])
def test_outcome_and_environment(reward: ProcessReward) -> None:
    check_reward(reward, groups())


@pytest.mark.parametrize("reference", ["moving", "frozen"])
def test_implicit_judge(reference: Literal["moving", "frozen"]) -> None:
    torch.set_num_threads(1)
    module = tiny_model(64, TinySpec(width=32, feedforward=48, layers=1), seed=0)
    engine = LocalEngine(module, Text(str, frozenset({2})))
    policy = engine.model("policy", ModelSpec())
    judge = engine.model("judge", ModelSpec(of="policy"))
    check_reward(ImplicitReward(judge, policy, ImplicitSettings(reference=reference)), groups())


def test_no_episodes() -> None:
    with pytest.raises(ContractViolation, match="at least one episode"):
        check_reward(Lengths(), [])
