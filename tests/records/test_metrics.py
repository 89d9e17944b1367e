from __future__ import annotations

import errno
import json
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from stepwell.errors import DataError, MissingExtraError, RunError
from stepwell.tracking import (
    MetricsLine,
    Present,
    Tracker,
    episode_metrics,
    mean_present,
    progress,
    read_metrics,
    reward_metrics,
    tensorboard,
    wandb,
)
from stepwell.tracking.progress import Bar, Left, Lines
from stepwell.types import EndingKind, Group, Scored, Steps, Stop

Make = Callable[..., Any]


# -- means --------------------------------------------------------------------------------------------------------------------


def test_u33_a_missing_value_does_not_wipe_the_mean() -> None:
    assert mean_present([0.5, math.nan, 0.7]) == Present(pytest.approx(0.6), 2, 1)
    assert mean_present([0.5, None, 0.7]) == Present(pytest.approx(0.6), 2, 1)
    nothing = mean_present([math.nan])
    assert math.isnan(nothing.mean)
    assert nothing[1:] == (0, 1)
    assert mean_present([math.inf, 1.0]).mean == math.inf


def scored(make_episode: Make, make_turn: Make, rewards: list[float], outcome: float) -> Scored:
    episode = make_episode(*(make_turn(tokens=2) for _ in rewards), score=outcome)
    n = len(rewards)
    steps = Steps(np.arange(n), 2 * np.arange(n), 2 * np.arange(n) + 2)
    return Scored(episode, steps, outcome, {"environment": np.array(rewards)}, np.ones(n, np.bool_))


def test_u31_a_rollout_s_reward_counts_once(make_episode: Make, make_turn: Make) -> None:
    """Success of 2 steps, failure of 8: the mean is 0.5, not 0.2."""
    members = (scored(make_episode, make_turn, [0.0, 1.0], 1.0), scored(make_episode, make_turn, [0.0] * 8, 0.0))
    task = members[0].episode.task
    assert reward_metrics([Group(task, members)]) == {"reward/environment": 0.5, "reward/environment_step": 0.25}
    metrics = episode_metrics([Group(task, tuple(m.episode for m in members))])
    assert metrics["rollout/score"] == 0.5
    assert metrics["rollout/turns"] == 5.0


def test_unscored_steps_and_failed_episodes_pay_nothing_and_count_nowhere(make_episode: Make, make_turn: Make) -> None:
    whole = scored(make_episode, make_turn, [0.5, 0.25], 1.0)
    partly = Scored(whole.episode, whole.steps, 1.0, {"environment": np.array([1.0, 0.0])}, np.array([True, False]))
    never = Scored(whole.episode, whole.steps, 1.0, {"environment": np.zeros(2)}, np.zeros(2, np.bool_))
    failed_episode = make_episode(make_turn(tokens=2), score=None, kind=EndingKind.FAILED, reason="down")
    failed = Scored(
        failed_episode, Steps(np.array([0]), np.array([0]), np.array([2])), None, {"environment": np.array([9.0])}, np.ones(1, bool)
    )
    metrics = reward_metrics([Group(whole.episode.task, (whole, partly, never, failed))])
    assert metrics == {"reward/environment": (0.75 + 1.0) / 2, "reward/environment_step": (0.375 + 1.0) / 2}


def test_episode_metrics_by_hand(make_episode: Make, make_turn: Make) -> None:
    episodes = (
        make_episode(make_turn(tokens=3), make_turn(tokens=1, invalid="no bracket"), score=1.0),
        make_episode(make_turn(tokens=2, valid=False, stop=Stop.LENGTH), score=0.5, kind=EndingKind.TURN_LIMIT),
        make_episode(make_turn(tokens=6), score=None, kind=EndingKind.TRUNCATED, reason="grader timed out"),
        make_episode(make_turn(tokens=100), score=None, kind=EndingKind.FAILED, reason="server down"),
    )
    metrics = episode_metrics([Group(episodes[0].task, episodes[:2]), Group(episodes[0].task, episodes[2:])])
    assert metrics == {
        "rollout/episodes": 4.0,
        "rollout/success": 0.5,
        "rollout/score": 0.75,
        "rollout/unscored": 1.0,
        "rollout/turns": pytest.approx(4 / 3),
        "rollout/tokens": 4.0,
        "rollout/invalid_actions": 0.5,
        "rollout/cut_turns": 0.25,
        "rollout/turn_limit": 0.25,
        "rollout/truncated": 0.25,
        "rollout/failed": 0.25,
    }
    assert set(episode_metrics([], "eval")) == {name.replace("rollout", "eval") for name in metrics}
    assert math.isnan(episode_metrics([])["rollout/success"])


# -- the file -----------------------------------------------------------------------------------------------------------------


def test_one_json_object_for_each_step(tmp_path: Path) -> None:
    with Tracker(tmp_path) as tracker:
        tracker.log(1, {"rollout/success": 0.1 + 0.2, "judge/loss": math.nan})
        tracker.log(2, {"rollout/success": np.float64(0.5), "policy/count": 3})
    text = (tmp_path / "metrics.jsonl").read_text()
    assert [json.loads(line) for line in text.splitlines()] == [
        {"step": 1, "rollout/success": 0.30000000000000004, "judge/loss": None},
        {"step": 2, "rollout/success": 0.5, "policy/count": 3.0},
    ]
    assert "NaN" not in text
    first, second = read_metrics(tmp_path)
    assert math.isnan(first.metrics.pop("judge/loss"))
    assert [first, second] == [
        MetricsLine(1, {"rollout/success": 0.30000000000000004}),
        MetricsLine(2, {"rollout/success": 0.5, "policy/count": 3.0}),
    ]


def test_infinity_is_warned_about(tmp_path: Path) -> None:
    with Tracker(tmp_path) as tracker, pytest.warns(RuntimeWarning, match=r"Infinite at step 4, written as null: policy/grad_norm\."):
        tracker.log(4, {"policy/grad_norm": math.inf})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 4, "policy/grad_norm": null}\n'


@pytest.mark.parametrize("name", ["success", "rollout/", "/success", "Rollout/success", "rollout/suc cess", "step"])
def test_names_are_area_and_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"names are area/name"):
        Tracker(tmp_path).log(1, {name: 0.5})
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.parametrize("value", [True, "0.5", None, np.ones(2)])
def test_values_are_numbers(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ValueError, match=r"rollout/success is .* of type"):
        Tracker(tmp_path).log(1, {"rollout/success": value})


def test_steps_ascend_also_over_processes(tmp_path: Path) -> None:
    Tracker(tmp_path).log(3, {"a/b": 1.0})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "a/')
    tracker = Tracker(tmp_path)
    with pytest.raises(ValueError, match="step 3 come after those of step 3"):
        tracker.log(3, {"a/b": 1.0})
    tracker.log(4, {"a/b": 2.0})
    assert [line.metrics["a/b"] for line in read_metrics(tmp_path)] == [1.0, 2.0]


def test_a_full_disk_leaves_the_lines_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Tracker(tmp_path)
    tracker.log(1, {"a/b": 1.0})
    before = (tmp_path / "metrics.jsonl").read_bytes()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(RunError, match=r"The metrics of step 2 could not be written to .*: the disk is full"):
            tracker.log(2, {"a/b": 2.0})
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    tracker.log(2, {"a/b": 2.0})


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": "two"}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 2 is no metrics line \(step is 'two'\)"):
        read_metrics(tmp_path)
    assert read_metrics(tmp_path / "absent") == []


# -- what is shown ------------------------------------------------------------------------------------------------------------


def test_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        shown = progress(4, console=Console(file=file, width=200))
        assert isinstance(shown, Lines)
        now = iter([100.0, 110.0, 111.0, 120.0, 121.0])
        left = Left(4, 0, 0, clock=lambda: next(now))
        times = iter([110.0, 111.0, 120.0, 121.0])
        lines = Lines(4, Console(file=file, width=200), left, every_s=5.0, clock=lambda: next(times))
        for step, success in enumerate([0.25, 0.5, math.nan, 1.0], 1):
            lines.advance(step, {"rollout/success": success, "other/metric": 7.0})
        lines.close()
    assert (tmp_path / "log").read_text().splitlines() == [
        "step 1/4  success 0.25  left 0:30",
        "step 3/4  success 0.5  left 0:07",
        "step 4/4  success 1  left 0:00",
    ]


def told(total: int, start: int, warm: int, after: list[tuple[int, float]]) -> list[str]:
    """The time left after steps that ended at these seconds."""
    now = iter([0.0, *(seconds for _, seconds in after)])
    left = Left(total, start, warm, clock=lambda: next(now))
    return [left.after(step) for step, _ in after]


def test_a_resumed_run_reckons_the_time_left_from_its_own_steps() -> None:
    assert told(7200, 3590, 0, [(3600, 10.0)]) == ["left 1:00:00"]


def test_the_time_left_is_reckoned_for_each_phase() -> None:
    """Four fast steps of warm start, whose last is followed by an evaluation, then four slow ones."""
    after = [(1, 1.0), (2, 2.0), (3, 3.0), (4, 50.0), (5, 60.0), (6, 70.0), (8, 90.0)]
    warm, learning = ["left 0:03", "left 0:02", "left 0:01"], ["left -", "left 0:30", "left 0:20", "left 0:00"]
    assert told(8, 0, 4, after) == [f"{text} of the warm start" for text in warm] + learning
    assert told(4, 0, 4, after[2:4]) == ["left 0:01", "left 0:00"], "there is nothing but the warm start"
    assert told(8, 5, 4, [(6, 10.0)]) == ["left 0:20"]


def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        bar = progress(10, start=3, console=Console(file=file, force_terminal=True, width=120))
        assert isinstance(bar, Bar)
        bar.advance(4, {"rollout/success": 0.625, "judge/fresh_pair_accuracy": 0.75})
        bar.advance(5, {"rollout/success": 0.5})
        bar.close()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", (tmp_path / "log").read_text())
    assert " 5/10" in text
    assert "success 0.5  judge pairs 0.75" in text


# -- sinks --------------------------------------------------------------------------------------------------------------------


def test_tensorboard_gets_every_number_and_no_missing_one(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Tracker(tmp_path / "run", sinks=[tensorboard(tmp_path / "tb")]) as tracker:
        tracker.log(1, {"rollout/success": 0.25, "judge/loss": math.nan})
        tracker.log(2, {"rollout/success": 0.5, "judge/loss": 2.0})
    with Tracker(tmp_path / "resumed", sinks=[tensorboard(tmp_path / "tb", start=1)]) as tracker:
        tracker.log(2, {"rollout/success": 0.75})
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("rollout/success")] == [(1, 0.25), (2, 0.75)]
    assert [(e.step, e.value) for e in events.Scalars("judge/loss")] == []  # only of step 2, which the resumed run did anew


def test_wandb_is_told_the_step_and_no_missing_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []

    class Run:
        def define_metric(self, name: str, step_metric: str) -> None:
            said.append((name, step_metric))

        def log(self, values: dict[str, float]) -> None:
            said.append(values)

        def finish(self) -> None:
            said.append("finished")

    def init(**settings: Any) -> Run:
        said.append(settings)
        return Run()

    module = ModuleType("wandb")
    monkeypatch.setattr(module, "init", init, raising=False)
    monkeypatch.setitem(sys.modules, "wandb", module)
    with Tracker(tmp_path, sinks=[wandb("shop", "quick-0", folder=tmp_path, config={"seed": 0})]) as tracker:
        tracker.log(1, {"rollout/success": 0.25, "judge/loss": math.nan})
    settings = said.pop(0)
    first = settings.pop("id")
    assert settings == {"project": "shop", "name": "quick-0", "dir": str(tmp_path), "config": {"seed": 0}, "resume": "allow"}
    assert said == [("*", "step"), {"step": 1, "rollout/success": 0.25}, "finished"]
    said.clear()
    wandb("shop", "quick-0", folder=tmp_path, config={})  # resumed: the same run of W&B
    (tmp_path / "other").mkdir()
    wandb("shop", "quick-0", folder=tmp_path / "other", config={})  # a new run of the same name: another one
    resumed, other = (entry["id"] for entry in said if isinstance(entry, dict))
    assert (resumed == first, other == first) == (True, False)


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_extra_names_the_pip_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for module in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"{name} is not installed; install it with: pip install 'stepwell\[track\]'"):
        tensorboard(tmp_path) if name == "tensorboard" else wandb("p", "n", folder=tmp_path, config={})
