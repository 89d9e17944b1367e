"""Answers are told through interruptions, by what has reached the world."""

from __future__ import annotations

import pytest
from scribes import scribe

import stepwell
from stepwell.envs.interrupt import Interrupted, Plan
from stepwell.envs.maze import MazeDomain
from stepwell.envs.reasoning import ReasoningDomain
from stepwell.errors import ConfigError
from stepwell.rollout import demonstrate
from stepwell.searching.answers import answering
from stepwell.searching.settings import SearchSettings
from stepwell.types import Action

FAILING = Plan(("tool_error",), at=(1,), steps=1)


def test_an_answer_that_a_failing_tool_has_swallowed_is_none() -> None:
    model = scribe()
    assert isinstance(model.domain, ReasoningDomain)
    task = model.domain.tasks("test")[0]
    right = (model.domain.solution(task) or [])[-1].removeprefix("answer: ")
    lines = ["1 = 1", "answer: 1", f"answer: {right}"]
    around = Interrupted(model.domain, FAILING)
    episode = demonstrate(around, task, model.player, [Action("write", {"line": line}) for line in lines])
    assert len(episode.turns) == 3 and episode.verdict.success, "the first answer has never arrived"
    found = answering(around)
    assert found is not None and found.answer(episode) == right
    assert [turn.action for turn in around.carried_out(episode).turns] == [Action("write", {"line": lines[at]}) for at in (0, 2)]
    assert found.same(task, right, f"{right}.0") == model.domain.same(task, right, f"{right}.0")
    calm = demonstrate(model.domain, task, model.player, [Action("write", {"line": line}) for line in lines[:2]])
    assert model.domain.answer(calm) == "1" and not calm.verdict.success


def test_a_search_counts_votes_through_interruptions() -> None:
    model = scribe()
    around = model._replace(domain=Interrupted(model.domain, FAILING))
    found = stepwell.search(around, None, SearchSettings(n=4, methods=("majority",)))
    assert 0.0 < found.curves["majority"][-1].success.mean <= 1.0 and found.unfinished < 48
    with pytest.raises(ConfigError, match=r"interrupted reasoning tasks have no checker.*interruptions\.kinds=\[\]"):
        stepwell.search(around, "oracle", SearchSettings(n=2))


def test_who_has_no_answers_has_none_around_them_either() -> None:
    maze = MazeDomain(num_test_tasks=5)
    assert answering(maze) is None and answering(Interrupted(maze, Plan(("tool_error",)))) is None
