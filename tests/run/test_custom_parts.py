"""Parts of the user's own, named in the config: the wrong ones are refused before training, and none may drop an episode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from stepwell.build import build
from stepwell.config import Config
from stepwell.configure import load
from stepwell.credit import Centred, OutcomeOnly, by_turn
from stepwell.curriculum import Uniform
from stepwell.errors import ConfigError, ContractViolation, RecordError
from stepwell.protocols import Domain
from stepwell.rewards.outcome import OutcomeReward
from stepwell.run import train
from stepwell.tracking.metrics import read_metrics
from stepwell.types import Credited, Episode, Group, Scored, Task

SMALL = (
    *(f"engine.{name}" for name in ("threads=1", "width=16", "layers=1", "corpus_tasks=6", "max_length=64", "vocabulary=256")),
    *(f"rollout.{name}" for name in ("groups=2", "group_size=2", "turns=2", "max_tokens=4")),
    *("domain.kind=kill_driver:Luck", "cloning.steps=0", "evaluation.every=0", "steps=1", "reward.kind=outcome", "credit.kind=grpo"),
)


def config(*settings: str) -> Config:
    return load("smoke", [*SMALL, *settings])


class Nothing:
    """Has none of the methods."""

    def __init__(self, **options: object) -> None: ...


class Forgetful:
    """A judge that loses a group."""

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        return OutcomeReward().score(groups)[1:]


class Hasty:
    """A judge whose server answers with a number too few."""

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        return [Group(g.task, tuple(self._scored(episode) for episode in g.members)) for g in groups]

    def _scored(self, episode: Episode) -> Scored:
        steps = by_turn(episode)
        return Scored(episode, steps, episode.verdict.score, {"judge": np.zeros(len(steps) - 1)}, np.ones(len(steps), np.bool_))


class Down:
    """A judge whose server answers with an error."""

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        raise ConnectionError("500: the judge is down")


class Lone:
    """A credit rule that keeps the first member of every group."""

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        return [Group(group.task, group.members[:1]) for group in OutcomeOnly(Centred())(groups)]


class Short(Uniform):
    """A curriculum that draws one task too few."""

    def __init__(self, domain: Domain, seed: int) -> None:
        super().__init__(domain, (0.0, 1.0), seed)

    def draw(self, n: int, step: int) -> list[Task]:
        return super().draw(n - 1, step)


WRONG = {
    "domain": "a Nothing without task, tasks, environment, grade, expert; see stepwell.protocols.",
    "reward": "a Nothing without score; see stepwell.protocols.",
    "credit": "a Nothing without __call__; see stepwell.protocols.",
    "curriculum": "a Nothing without draw, admit, observe, state, restore; see stepwell.protocols.",
}


@pytest.mark.parametrize("section", WRONG)
def test_a_class_without_the_methods_is_refused_before_anything_is_sampled(section: str) -> None:
    with pytest.raises(ConfigError, match=f"{section}.kind is 'test_custom_parts:Nothing', {WRONG[section]}"):
        build(config(f"{section}.kind=test_custom_parts:Nothing"))


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("reward.kind=test_custom_parts:Forgetful", "The judge returned 2 episodes in 1 groups for 4 in 2, or others;"),
        ("credit.kind=test_custom_parts:Lone", "The credit rule returned 2 episodes in 2 groups for 4 in 2, or others;"),
        ("curriculum.kind=test_custom_parts:Short", "The curriculum drew 1 tasks where 2 were asked for;"),
    ],
)
def test_no_episode_is_dropped_without_a_word(setting: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ContractViolation, match=sentence):
        list(train(config(setting), tmp_path / "run"))


@pytest.mark.parametrize(
    ("judge", "error", "sentence"),
    [
        ("Hasty", RecordError, r"member 0: rewards\['judge'\] has \d entries; the episode has \d steps"),
        ("Down", ConnectionError, "500: the judge is down"),
    ],
)
def test_a_judge_that_does_not_answer_for_every_step_stops_the_run(
    judge: str, error: type[Exception], sentence: str, tmp_path: Path
) -> None:
    """U07: no step is trained on made-up zeros, and nothing is logged."""
    with pytest.raises(error, match=sentence):
        list(train(config(f"reward.kind=test_custom_parts:{judge}"), tmp_path / "run"))
    assert [line for line in read_metrics(tmp_path / "run") if line.step > 0] == []
