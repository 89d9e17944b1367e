"""A run that was killed and resumed is the run that was not (U71, U72)."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stepwell.configure import load
from stepwell.errors import RunError
from stepwell.report import read_facts
from stepwell.run import NothingLeftError, train

DRIVER = Path(__file__).parent / "kill_driver.py"
Death = list[Any] | None

SMALL = [
    "domain.kind=kill_driver:Luck",
    "curriculum.kind=kill_driver:Moody",
    *(f"engine.{name}" for name in ("threads=1", "width=32", "corpus_tasks=6", "max_length=64", "vocabulary=256")),
    *(f"rollout.{name}" for name in ("groups=2", "group_size=4", "turns=2", "max_tokens=4")),
    *("cloning.steps=3", "cloning.batch=4", "steps=4", "optimizer.decay=constant"),
    *("evaluation.every=2", "evaluation.episodes=6", "evaluation.during=4", "checkpoint.every=2"),
]
REFERENCES = ["reward.reference=frozen", "loss.kl=k3", "loss.epochs=2", "loss.minibatches=2", "loss.old_logprobs=trainer"]
ADAPTERS = ["engine.policy=lora", "reward.model=lora", "engine.rank=2", "cloning.optimizer.kind=adamw"]
EXPERTS = [
    "reward.kind=inverse",
    "reward.objective=discriminator",
    "reward.spoilt=1",
    "reward.model=full",
    "reward.batch=3",
    "reward.lr=0.01",
]
CRITIC = ["credit.kind=gae", "loss.epochs=2", "loss.old_logprobs=trainer"]
DRAW = random.Random(11)
SAVES: list[Death] = [["save", n, k] for n, k in ((1, 9), (1, 9), (5, 15), (1, 40), (1, 25), (2, 1000), (1, 33))]
MOMENTS: list[Death] = [["time", round(DRAW.uniform(0.03, 0.3), 3)] for _ in range(5)]


class Case(NamedTuple):
    """Deaths on the way to the end, and the overrides beside SMALL."""

    deaths: list[Death]
    overrides: list[str] = []  # noqa: RUF012 - a default that nobody changes
    like: str = "whole"


CASES = {
    "after every step": Case([["step", 1]] * 6, ["checkpoint.every=1"]),
    "in every update": Case([["update", n] for n in (1, 3, 4, 5, 2, 3)]),
    "in the warm start, twice": Case([["update", 2], ["step", 2]]),
    "while saving, again and again": Case(SAVES, ["checkpoint.every=1"]),
    "between the last save and the report": Case([["update", 1], ["save", 4, 1000]]),
    "at random moments": Case(MOMENTS),
    "with two references": Case([["step", 1]] * 6, [*REFERENCES, "checkpoint.every=1"], "references"),
    "with adapters": Case([["step", 1]] * 6, [*ADAPTERS, "checkpoint.every=1"], "adapters"),
    "with a judge of experts": Case([["step", 4], ["update", 2], ["step", 1]], [*EXPERTS, "checkpoint.every=1"], "experts"),
    "with a critic": Case([["step", 5], ["update", 2], ["step", 1]], [*CRITIC, "checkpoint.every=1"], "critic"),
}
WHOLE = {"whole": [], "references": REFERENCES, "adapters": ADAPTERS, "critic": CRITIC, "experts": EXPERTS}


def trial(folder: Path, overrides: list[str], deaths: list[Death]) -> dict[str, object]:
    return {"folder": str(folder), "overrides": [*SMALL, *overrides], "deaths": deaths}


def drive(folder: Path, trials: list[dict[str, object]]) -> dict[str, list[bool]]:
    """Runs the trials; for each folder, which of its children died."""
    (folder / "trials.json").write_text(json.dumps(trials))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, str(DRIVER), str(folder / "trials.json")], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    found: dict[str, list[bool]] = {}
    for line in map(json.loads, run.stdout.splitlines()):
        found.setdefault(Path(line["folder"]).name, []).extend(line["died"])
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[bool]]]:
    folder = tmp_path_factory.mktemp("runs")
    trials = [trial(folder / name, overrides, [None]) for name, overrides in WHOLE.items()]
    trials += [trial(folder / name, case.overrides, [*case.deaths, None]) for name, case in CASES.items()]
    trials += [
        trial(folder / "longer", ["steps=2"], [None]),
        trial(folder / "longer", ["steps=4"], [["update", 1], None]),
        trial(folder / "decaying", ["steps=1", "optimizer.decay=linear"], [None]),
        trial(folder / "decaying", ["steps=2", "optimizer.decay=linear"], [["save", 1, 1000], None]),
        trial(folder / "cut short", ["steps=4"], [["step", 5]]),
        trial(folder / "cut short", ["steps=2"], [None]),
    ]
    return folder, drive(folder, trials)


def metrics(run: Path) -> list[dict[str, float | None]]:
    """Every line, without what measures time."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if not name.startswith("time/")} for line in lines]


def weights(run: Path, step: int = 7) -> dict[str, bytes]:
    """Policy, judge, references and their optimisers, as they are on the disk."""
    models = run / "checkpoints" / f"step-{step:06d}" / "models"
    return {str(path.relative_to(models)): path.read_bytes() for path in sorted(models.rglob("*")) if path.is_file()}


def state(run: Path, step: int = 7) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "checkpoints" / f"step-{step:06d}" / "state.json").read_text())
    return {**found, "totals": found["totals"][1:3]}  # without seconds and memory


def episodes(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((run / "episodes").iterdir())}


def test_the_uninterrupted_run_learns_something(runs: tuple[Path, dict[str, list[bool]]]) -> None:
    """Else all of them would be equal for the wrong reason."""
    folder, died = runs
    for name, models in (
        ("whole", {"policy", "judge"}),
        ("references", {"policy", "judge", "judge_reference", "reference"}),
        ("adapters", {"policy", "judge"}),
        ("critic", {"policy", "judge", "critic"}),
        ("experts", {"policy", "judge", "judge_reference"}),
    ):
        assert died[name] == [False]
        learnt = metrics(folder / name)[3:]
        assert [line["step"] for line in learnt] == [4, 5, 6, 7]
        assert any(line["judge/grad_norm"] for line in learnt)
        assert any(line["policy/grad_norm"] for line in learnt)
        assert {Path(path).parts[0] for path in weights(folder / name)} == models
        policy, judge = (weights(folder / name)[f"{model}/model.safetensors"] for model in ("policy", "judge"))
        assert policy != judge
        assert len({line["curriculum/difficulty"] for line in learnt}) > 1


@pytest.mark.parametrize("name", CASES)
def test_a_killed_run_resumes_to_the_same_bits(runs: tuple[Path, dict[str, list[bool]]], name: str) -> None:
    """U71, U72: tasks, draws, metrics, episodes, weights and optimisers, as if nothing had happened."""
    folder, died = runs
    case = CASES[name]
    if any(death and death[0] == "time" for death in case.deaths):
        assert any(died[name])  # How often depends on how fast the machine is at the time.
    else:
        assert died[name] == [True] * len(case.deaths) + [False]
    assert not died[name][-1]
    whole, resumed = folder / case.like, folder / name
    assert metrics(resumed) == metrics(whole)
    assert weights(resumed) == weights(whole)
    assert state(resumed) == state(whole)
    assert episodes(resumed) == episodes(whole)
    assert read_facts(resumed).success == read_facts(whole).success


def test_more_steps_go_on_with_a_finished_run(runs: tuple[Path, dict[str, list[bool]]]) -> None:
    """Equal to a run of that many steps, but for the measurement that was made where it ended first."""
    folder, died = runs
    assert died["longer"] == [False, True, False]
    longer, whole = metrics(folder / "longer"), metrics(folder / "whole")
    measured = {name for name in longer[4] if name.startswith("test/")}
    assert measured
    assert [{k: v for k, v in line.items() if k not in measured or line["step"] != 5} for line in longer] == whole
    assert weights(folder / "longer") == weights(folder / "whole")
    assert state(folder / "longer") == state(folder / "whole")
    assert read_facts(folder / "longer").success == read_facts(folder / "whole").success


def test_the_same_steps_say_that_nothing_is_left(runs: tuple[Path, dict[str, list[bool]]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = runs
    monkeypatch.syspath_prepend(str(DRIVER.parent))
    before = metrics(folder / "whole"), weights(folder / "whole"), read_facts(folder / "whole")
    with pytest.raises(NothingLeftError, match=r"all 7 steps are done and nothing is left.*give a larger steps=\.\.\. to go on"):
        list(train(load("smoke", SMALL), folder / "whole", resume=True))
    after = read_facts(folder / "whole")
    assert (metrics(folder / "whole"), weights(folder / "whole"), after.success) == (*before[:2], before[2].success)
    assert after.peak_memory_bytes >= before[2].peak_memory_bytes


def test_fewer_steps_than_are_done_are_refused(runs: tuple[Path, dict[str, list[bool]]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = runs
    monkeypatch.syspath_prepend(str(DRIVER.parent))
    config = (folder / "whole" / "config.yaml").read_text()
    with pytest.raises(RunError, match=r"has done 4 steps and was asked for steps=3"):
        list(train(load("smoke", [*SMALL, "steps=3"]), folder / "whole", resume=True))
    assert (folder / "whole" / "config.yaml").read_text() == config


def test_a_run_that_is_cut_short_where_it_is_gets_its_last_measurement(runs: tuple[Path, dict[str, list[bool]]]) -> None:
    folder, died = runs
    assert died["cut short"] == [True, False]
    facts = read_facts(folder / "cut short")
    assert facts.success.after is not None
    assert weights(folder / "cut short", 5) == weights(folder / "whole", 5)
    assert state(folder / "cut short", 5)["after"]["sampled"]["episodes"] == 6


def test_a_decay_that_was_planned_over_fewer_steps_is_said(runs: tuple[Path, dict[str, list[bool]]]) -> None:
    folder, died = runs
    assert died["decaying"] == [False, True, False]
    (note,) = read_facts(folder / "decaying").notes
    assert note.startswith("The first 1 steps were planned as the beginning of 1, the others as part of 2: with optimizer.decay=linear")
    assert read_facts(folder / "longer").notes == ()
