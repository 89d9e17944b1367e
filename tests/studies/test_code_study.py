"""The study of code: its problems are what they say, its arms are configs, and all of it runs."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "studies" / "code"))

from programs import Programs

import stepwell
from stepwell.testing import check_environment
from stepwell.types import Action, Ending, EndingKind, Episode, Stop, Task, Turn, Verdict


@pytest.fixture(scope="module")
def study() -> ModuleType:
    spec = importlib.util.spec_from_file_location("code_study", Path(__file__).parents[2] / "studies" / "code" / "run.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["code_study"] = made
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def both() -> Programs:
    return Programs("both", tests=12, train=40)


def said(domain: Programs, task: Task, action: Action) -> Episode:
    environment = domain.environment(task, 0)
    shown = environment.start()
    reply = environment.step(action)
    turn = Turn(np.array([0]), np.array([1]), np.array([-1.0]), "text", action, reply, Stop.EOS, 0)
    return Episode(task, 0, shown, (turn,), Ending(EndingKind.TERMINATED), Verdict.unscored("not graded"))


def test_the_experts_programs_and_sums_are_right_and_those_of_others_are_not(both: Programs) -> None:
    tasks = both.tasks("test")
    answers = [both.expert(task) for task in tasks]
    assert len(tasks) == 24 and all(answers)
    right = [both.grade(said(both, task, answer[0])).success for task, answer in zip(tasks, answers, strict=True)]
    assert right == [True] * 24
    wrong = [both.grade(said(both, task, answer[0])).success for task, answer in zip(tasks, answers[1:12] + answers[:1], strict=False)]
    assert sum(map(bool, wrong)) <= 2, "three lists tell programs apart"
    check_environment(both, both.task(0.5, 0, "train"))
    check_environment(both, both.task(0.5, 1, "train"))


def test_no_problem_is_in_two_splits_and_a_seed_gives_the_same_ones(both: Programs) -> None:
    texts = [task.prompt.splitlines()[0] for split in ("test", "validation") for task in both.tasks(split)]
    texts += {both.task(0.5, seed, "train").prompt.splitlines()[0] for seed in range(300)}
    assert len(set(texts)) == len(texts) > 80
    again = Programs("both", tests=12, train=40)
    assert [task.prompt for task in again.tasks("test")] == [task.prompt for task in both.tasks("test")]
    assert {task.prompt.splitlines()[0] for task in Programs("code", tests=12, train=40, seed=1).tasks("test")}.isdisjoint(texts)


def test_an_expert_with_slips_gets_about_as_many_steps_wrong_as_it_says() -> None:
    careless, careful = Programs("both", slips=0.2, tests=200, train=1), Programs("both", tests=200, train=1)
    code: list[bool] = []
    sums = []
    for task in careless.tasks("test"):
        shown, meant = (domain.expert(task)[0].arguments["text"].split("; ") for domain in (careless, careful))  # type: ignore[index]
        assert len(shown) == len(meant)
        if task.key.startswith("code"):
            code += [one != other for one, other in zip(shown, meant, strict=True)]
        else:
            sums.append(shown[-1] != meant[-1])
    assert 0.14 < np.mean(code) < 0.26
    assert 0.3 < np.mean(sums) < 0.6, "1 - 0.8 ** 3 of those of three steps, less what two slips undo"


def test_every_arm_is_a_config_and_differs_from_the_outcome_alone_by_what_it_says(study: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "base-model").mkdir()
    for arm in study.ARMS:
        config = stepwell.load("reasoning", study.settings_of(arm, 50, tmp_path, study.Scale()))
        assert (config.reward.kind == "outcome") == arm.startswith(("start", "rloo"))
        assert config.domain.options["what"] == ("maths" if arm == "sums" else "code")
        assert "slips" not in config.domain.options, "the judges' expert makes no mistakes"
        assert str(config.engine.model).endswith("sums-50/model" if arm.endswith("@sums") else "base-model")
        assert (getattr(config.reward, "start", None) is not None) == arm.startswith("carried")


@pytest.mark.slow
def test_in_miniature_it_runs_goes_on_and_tells(study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    how = ["--mini", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--seeds", "50"]
    study.main([*how, "--arms", "rloo", "sums", "carried@sums"])
    first = json.loads((tmp_path / "out" / "results" / "carried@sums-50.json").read_text())
    assert [len(first[name]) for name in ("wins", "success", "pairs", "entropy")] == [3, 2, 2, 2]
    capsys.readouterr()
    study.main([*how, "--arms", "rloo", "sums"])
    assert capsys.readouterr().out == "", "nothing is run twice"
    table = (tmp_path / "out" / "table.md").read_text().splitlines()
    assert [line.split("|")[1].strip() for line in table[2:]] == ["`rloo`", "`sums`", "`carried@sums`"]


def test_a_result_of_garbage_is_named_before_anything_is_trained(study: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "rloo-50.json").write_text('{"arm": "rl')
    for how in ([], ["--table"]):
        with pytest.raises(stepwell.DataError, match=r"rloo-50\.json could not be read as JSON"):
            study.main(["--mini", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path), "--seeds", "50", *how])
    assert not (tmp_path / "runs").exists()


def test_the_table_says_what_the_numbers_say(study: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    wins = {"rloo": [4, 0, 2, 2], "repirl": [4, 4, 3, 2]}
    for arm, found in wins.items():
        for seed in (50, 51):
            run = {"arm": arm, "seed": seed, "wins": found, "success": [0.25] * 5 + [0.5] * 5, "pairs": [0.5, 1.0]}
            (tmp_path / "results" / f"{arm}-{seed}.json").write_text(json.dumps(run))
    rows = {line.split("|")[1].strip(" `"): [cell.strip() for cell in line.split("|")[2:-1]] for line in study.tell(tmp_path).splitlines()}
    assert rows["rloo"][0] == "50, 51" and rows["rloo"][1].startswith("50.0 [") and rows["rloo"][2] == ""
    assert (
        rows["repirl"][1].startswith("81.2 [") and rows["repirl"][2].startswith("+31.2 [+0.0") and rows["repirl"][3:] == ["25, 50", "0.75"]
    )
