"""What a run does beside its loop: when it stops, what it measures, what it writes down."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from kill_driver import Luck, Room

from stepwell.checkpoint import saved_steps
from stepwell.config import Config
from stepwell.configure import load
from stepwell.curriculum import Uniform
from stepwell.errors import ConfigError, RunError
from stepwell.protocols import Saveable
from stepwell.report import read_facts
from stepwell.rewards.outcome import OutcomeReward
from stepwell.run import NothingLeftError, train
from stepwell.trained import export, open_run
from stepwell.types import JSON, Episode, Group, Metrics, Scored, Task, Verdict

SMALL = (
    *(f"engine.{name}" for name in ("threads=1", "width=16", "layers=1", "corpus_tasks=6", "max_length=64", "vocabulary=256")),
    *(f"rollout.{name}" for name in ("groups=2", "group_size=4", "turns=2", "max_tokens=4")),
    *("domain.kind=test_run:Mortal", "cloning.steps=0", "evaluation.every=0", "evaluation.episodes=6", "checkpoint.every=1", "steps=3"),
)


class Mortal(Luck):
    """A domain whose server may be down, for some splits."""

    down: ClassVar[frozenset[str]] = frozenset()

    def environment(self, task: Task, member: int) -> Room:
        if task.split in self.down:
            raise ConnectionError("no route to the shop")
        return Room(task)


def config(*settings: str) -> Config:
    return load("smoke", [*SMALL, *settings])


def test_folders_may_be_named_by_a_text(tmp_path: Path) -> None:
    assert [step for step, _ in train(config("steps=1"), str(tmp_path / "run"))] == [1]
    assert open_run(str(tmp_path / "run")).origin == open_run(tmp_path / "run").origin
    assert export(str(tmp_path / "run"), str(tmp_path / "model")) == tmp_path / "model"


def test_a_dead_environment_stops_the_run_loudly_and_the_run_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U74: not a row of empty steps."""
    steps = train(config(), tmp_path / "run")
    assert next(steps)[0] == 1
    monkeypatch.setattr(Mortal, "down", frozenset({"train"}))
    sentence = "Step 1: all 8 episodes failed; nothing can be learnt. The first: starting the environment: ConnectionError: no route to"
    with pytest.raises(RunError, match=sentence):
        next(steps)
    assert saved_steps(tmp_path / "run" / "checkpoints") == [1]
    monkeypatch.undo()
    assert [step for step, _ in train(config(), tmp_path / "run", resume=True)] == [2, 3]


def test_a_run_whose_checkpoints_are_gone_says_that_it_begins_again(tmp_path: Path) -> None:
    assert len(list(train(config(), tmp_path / "run"))) == 3
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert [step for step, _ in train(config(), tmp_path / "run", resume=True)] == [1, 2, 3]
    assert "had logged 3 steps and holds no checkpoint; the run began again." in (tmp_path / "run" / "report.md").read_text()


def test_an_evaluation_in_a_dead_environment_measures_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mortal, "down", frozenset({"test"}))
    with pytest.raises(RunError, match="All 6 episodes of an evaluation failed, so nothing could be measured"):
        next(train(config(), tmp_path / "run"))


class Ungraded(Luck):
    """A domain whose grader sleeps for every second task."""

    def grade(self, episode: Episode) -> Verdict:
        odd = sum(map(ord, episode.task.key)) % 2
        return Verdict.unscored("the grader\n`slept` \x1b[31m") if odd else super().grade(episode)


def test_episodes_without_a_grade_are_told_in_the_report(tmp_path: Path) -> None:
    list(train(config("domain.kind=test_run:Ungraded", "steps=1"), tmp_path / "run"))
    notes = read_facts(tmp_path / "run").notes
    what = (
        "3 of 6 sampled held-out episodes {} training have no grade and enter no number (0 of them failed). The first: `the grader 'slept' "
    )
    assert len(notes) == 2
    assert notes[0].startswith(what.format("before")) and notes[1].startswith(what.format("after"))
    assert "\x1b" not in (tmp_path / "run" / "report.md").read_text()


def test_the_report_counts_the_tasks_that_there_were(tmp_path: Path) -> None:
    for _ in train(config("evaluation.episodes=200", "steps=1"), tmp_path / "run"):
        pass
    assert read_facts(tmp_path / "run").evaluated == "6 held-out tasks"


def test_a_validation_set_that_no_batch_divides(tmp_path: Path) -> None:
    """U74: 6 tasks with batches of 4."""
    (metrics,) = (m for _, m in train(config("rollout.rows=4", "evaluation.every=1", "evaluation.during=6", "steps=1"), tmp_path / "run"))
    assert 0.0 <= metrics["eval/success"] <= 1.0


class Counting:
    """A judge without weights that knows how many groups it has learnt from."""

    def __init__(self) -> None:
        self.seen = 0

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        return OutcomeReward().score(groups)

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics:
        self.seen += len(groups)
        return {"judge/seen": float(self.seen)}

    def models(self) -> dict[str, Saveable]:
        return {}

    def state(self) -> dict[str, JSON]:
        return {"seen": self.seen}

    def restore(self, state: dict[str, JSON]) -> None:
        assert isinstance(state["seen"], int)
        self.seen = state["seen"]


def test_what_a_judge_knows_beside_its_weights_is_resumed(tmp_path: Path) -> None:
    """U72."""
    counting = config("reward.kind=test_run:Counting", "credit.kind=grpo")
    seen = [metrics["judge/seen"] for _, metrics in train(counting, tmp_path / "whole")]
    assert seen == [2.0, 4.0, 6.0]
    next(begun := train(counting, tmp_path / "run"))
    begun.close()
    assert [metrics["judge/seen"] for _, metrics in train(counting, tmp_path / "run", resume=True)] == seen[1:]


class Sure(Luck):
    """Every episode ends alike."""

    def __init__(self, score: float = 0.0) -> None:
        self.score = score

    def grade(self, episode: Episode) -> Verdict:
        return Verdict.of(self.score)


class Mixed:
    """Admits groups in which some succeed and some do not."""

    def __init__(self, domain: Luck, seed: int) -> None:
        self.tasks = Uniform(domain, (0.5, 0.5), seed)
        self.draw, self.observe, self.state, self.restore = self.tasks.draw, self.tasks.observe, self.tasks.state, self.tasks.restore

    def admit(self, group: Group[Episode]) -> bool:
        return len({episode.verdict.success for episode in group.members}) > 1


@pytest.mark.parametrize("score", [0.0, 1.0], ids=["all failed", "all solved"])
def test_a_filter_that_finds_nothing_says_what_it_found_and_what_to_change(tmp_path: Path, score: float) -> None:
    """U73."""
    sure = config("domain.kind=test_run:Sure", f"domain.options.score={score}", "curriculum.kind=test_run:Mixed", "rollout.draw_budget=3")
    with pytest.raises(RunError, match=r"6 groups were drawn and 0 admitted .*; 2 are needed .* 3 x 2.*raise rollout\.draw_budget"):
        next(train(sure, tmp_path / "run"))


class Ragged(Luck):
    """Every second member of a group takes a step more."""

    def environment(self, task: Task, member: int) -> Room:
        room = Room(task)
        room.turns -= member % 2
        return room


def test_episodes_of_two_and_of_three_steps_are_learnt_from_together(tmp_path: Path) -> None:
    """U74."""
    (metrics,) = (m for _, m in train(config("domain.kind=test_run:Ragged", "rollout.turns=5", "steps=1"), tmp_path / "run"))
    assert metrics["rollout/turns"] == 2.5
    assert metrics["credit/flat_groups"] < 1
    assert metrics["policy/grad_norm"] > 0


def test_no_step_at_all_is_a_run_too(tmp_path: Path) -> None:
    """The base is measured, saved and can be opened."""
    run = tmp_path / "run"
    assert list(train(config("steps=0"), run)) == []
    facts = read_facts(run)
    assert facts.success.before == facts.success.after is not None
    assert open_run(run).step == 0
    with pytest.raises(NothingLeftError):
        list(train(config("steps=0"), run, resume=True))
    assert [step for step, _ in train(config("steps=1"), run, resume=True)] == [1]


def test_a_domain_without_held_out_tasks_is_refused_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mortal, "tasks", lambda self, split: ())
    with pytest.raises(ConfigError, match="split 'test' has no tasks"):
        next(train(config(), tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_everything_is_checked_before_the_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="context holds 16"):
        next(train(config("rollout.context=16", "rollout.max_tokens=15"), tmp_path / "run"))
    assert not (tmp_path / "run").exists()
