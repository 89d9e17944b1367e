"""Runs that are killed and go on, processes that fail, and processes whose parent dies."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ablation_results import MINI, mini_plan, record, result
from rich.console import Console
from typer.testing import CliRunner

from stepwell.ablation import running, warm, worker
from stepwell.ablation.plan import Job
from stepwell.ablation.shown import Bar, Lines
from stepwell.cli import app
from stepwell.errors import RunError
from stepwell.files import Lock
from stepwell.run import train
from stepwell.types import Metrics

WRITES = "import pathlib, sys; out, variant, seed = sys.argv[1:]; "
WRITES += "print('hello'); pathlib.Path(out, 'results', f'{variant}-{seed}.json').write_text('{}')"
REFUSES = "import sys; print('error: The world is closed.', file=sys.stderr); sys.exit(2)"


def programs(monkeypatch: pytest.MonkeyPatch, by_variant: dict[str, str]) -> list[str]:
    """Other programs in the place of training; the list grows by the name of each run that is started."""
    started: list[str] = []

    def start(job: Job) -> subprocess.Popen[bytes]:
        started.append(job.name)
        with job.log.open("ab") as log:
            command = [sys.executable, "-c", by_variant[job.variant], str(job.out), job.variant, str(job.seed)]
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    monkeypatch.setattr(running, "_start", start)
    monkeypatch.setattr(running, "_POLL_S", 0.02)
    return started


def test_only_what_is_missing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = mini_plan(tmp_path, ["full", "vanilla_grpo"], seeds=(0, 1))
    record(plan, result("full", 1, "11"))
    started = programs(monkeypatch, {"full": WRITES, "vanilla_grpo": WRITES})
    running.run_all(plan, jobs=2)
    assert sorted(started) == ["full-0", "vanilla_grpo-0", "vanilla_grpo-1"]
    assert json.loads((tmp_path / "results" / "full-1.json").read_text())["variant"] == "full"
    running.run_all(plan, jobs=2)
    assert len(started) == 3


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = mini_plan(tmp_path, ["full", "vanilla_grpo"])
    programs(monkeypatch, {"full": REFUSES, "vanilla_grpo": WRITES})
    with pytest.raises(RunError, match=r"The run full-0 failed: The world is closed\. All of it is in .*full-0\.log"):
        running.run_all(plan, jobs=1)
    assert (tmp_path / "results" / "vanilla_grpo-0.json").exists()


def test_processes_end_when_the_user_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = mini_plan(tmp_path, ["full"])
    programs(monkeypatch, {"full": "import time; time.sleep(60)"})
    working: list[Any] = []

    def stop(pool: Any) -> None:
        working.extend(pool._working.values())
        raise KeyboardInterrupt

    monkeypatch.setattr(running._Pool, "_collect", stop)
    with pytest.raises(KeyboardInterrupt):
        running.run_all(plan, jobs=1)
    assert [process.poll() is not None for process in working] == [True]
    Lock(tmp_path / ".lock").close()  # free again


def test_a_process_ends_with_its_parent() -> None:
    code = "import time; from stepwell.ablation.parent import end_with_parent; end_with_parent(); print('up', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    child.stdin.close()  # what the system does for a parent that was killed
    assert child.wait(timeout=60) == 1
    child.stdout.close()


def test_a_process_that_is_through_ends_in_peace() -> None:
    code = "from stepwell.ablation.parent import end_with_parent; end_with_parent()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stderr is not None and child.stdin is not None
    assert (child.wait(timeout=60), child.stderr.read()) == (0, b"")
    child.stdin.close()
    child.stderr.close()


def test_two_at_one_folder_are_told_so(tmp_path: Path) -> None:
    lock = Lock(tmp_path / ".lock")
    with pytest.raises(RunError, match="is in use by"):
        running.run_all(mini_plan(tmp_path, ["full"]), jobs=1)
    lock.close()


def without_times(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != "train_seconds"}


@pytest.mark.slow
def test_a_killed_run_ends_as_one_that_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run with three stages (warm start, the judge's lessons, the agent's), killed in each of them."""
    results = []
    for name in ("whole", "killed"):
        plan = mini_plan(tmp_path / name, ["static_judge"])
        plan.enter()
        (job,) = plan.jobs
        if name == "killed":
            _killed(job, monkeypatch, [warm, worker, worker])
        worker.finish(job)
        results.append(without_times(json.loads(job.result.read_text())))
    whole, killed = results
    assert whole == killed
    assert whole["config"]["reward"]["run"] == "runs/static_judge-0-judge"  # no path of this machine
    assert whole["config"]["reward"]["kind"] == "trained"
    assert whole["episodes_before"] == whole["curve"]["episodes"][0] > 0
    assert [task[0] for task in whole["clean"]["tasks"]] == [task[0] for task in whole["perturbed"]["tasks"]]
    assert len(whole["clean"]["tasks"]) == 4 and whole["judge"]["episodes"] > 0


def _killed(job: Job, monkeypatch: pytest.MonkeyPatch, stages: list[ModuleType]) -> None:
    """Ends `finish` after the first update that it makes in the stage that this module trains, each time it is called."""

    def dying(*args: Any, **kwargs: Any) -> Iterator[tuple[int, Metrics]]:
        with closing(train(*args, **kwargs)) as steps:  # type: ignore[type-var]  # gives its lock back, as a process that dies does
            for _ in steps:
                raise SystemExit(9)
            yield from ()

    for stage in stages:
        with monkeypatch.context() as patch:
            patch.setattr(stage, "train", dying)
            with pytest.raises(SystemExit):
                worker.finish(job)
        assert not job.result.exists()


def test_lines_and_bars_say_what_is_left() -> None:
    clock = iter([0.0, 60.0, 120.0]).__next__
    console = Console(record=True, width=100, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    lines = Lines(4, 1, console, clock=clock)
    lines.ended("full-0", failed=False)
    lines.ended("full-1", failed=True)
    said = console.export_text()
    assert said.splitlines() == [
        "1 of 4 runs are there already",
        "full-0 is through: 2 of 4 runs, left 2:00",
        "full-1 failed: 3 of 4 runs, left 1:00",
    ]
    bar = Bar(4, 1, console, clock=iter([0.0, 30.0]).__next__)
    bar.advance(1, 0.5)
    assert bar._rich.tasks[0].fields["told"] == "runs 2/4, left 0:30"
    bar.close()
    console.file.close()


def test_the_command_prints_json(tmp_path: Path) -> None:
    """From results that are there; nothing is trained."""
    plan = mini_plan(tmp_path, ["full", "vanilla_grpo"], seeds=(0, 1))
    record(plan, *(result(name, seed, "1111", "1111") for name in ("full", "vanilla_grpo") for seed in (0, 1)))
    arguments = ["ablate", "smoke", *MINI, "--seeds", "2", "--only", "full,vanilla_grpo", "--out", str(tmp_path)]
    said = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert said.exit_code == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["variants"]["full"]["success_clean"]["mean"] == 1.0
    assert found["baseline"] == "vanilla_grpo"
    table = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "measured no difference from vanilla_grpo on any task" in " ".join(table.stdout.split())
    assert f"report: {tmp_path / 'report.md'}" in table.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seeds", "0"], "--seeds is 0"),
        (["--seeds", "1,1"], "The seed 1 is given twice"),
        (["--only", "ful"], "did you mean 'full'?"),
        (["--variants", "mine"], "write NAME=key=value"),
        (["--only", "full", "--against", "static_judge"], "is none of the variants that are run"),
        (["--only", "full", "--jobs", "0"], "--jobs is 0"),
        (["reward.kind=outcome", "credit.kind=grpo"], "no step rewards to take away"),
    ],
)
def test_bad_input_is_a_sentence_and_runs_nothing(tmp_path: Path, arguments: list[str], said: str) -> None:
    found = CliRunner().invoke(app, ["ablate", "smoke", "--out", str(tmp_path / "new"), *arguments], catch_exceptions=False)
    assert found.exit_code == 2
    assert said in found.stderr
    assert found.stdout == ""
    assert not (tmp_path / "new" / "ablation.json").exists()


def test_the_folder_of_a_run_is_left_as_it_is(tmp_path: Path) -> None:
    for name in ("config.yaml", "report.md"):
        (tmp_path / name).write_text("mine")
    plan = mini_plan(tmp_path, ["full"])
    with pytest.raises(RunError, match="holds a run, and an ablation has a folder of its own"):
        running.run_all(plan, jobs=1)
    assert {path.name for path in tmp_path.iterdir()} == {"config.yaml", "report.md", ".lock"}


def test_who_is_told_to_end_says_the_whole_command_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "run_all", stop)
    asked = ["smoke", "steps=1", "--seeds", "2", "--out", str(tmp_path), "--variants", "r=credit.baseline=rloo", "--only", "full,r"]
    asked += ["--against", "full", "--target", "0.5", "--judge-steps", "3", "--jobs", "1"]
    found = CliRunner().invoke(app, ["ablate", *asked], catch_exceptions=False)
    assert found.exit_code == 130
    sentence, again = found.stderr.strip().split(". Go on with: ")
    assert sentence == f"Interrupted; runs that are through and all checkpoints are kept in {tmp_path}"
    assert again == shlex.join(["stepwell", "ablate", *asked])
