"""`stepwell search`: what it answers, writes, and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stepwell.cli.app import app

Run = Callable[..., Path]


def search(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["search", *map(str, arguments)], catch_exceptions=False)


def test_a_run_is_searched_with_its_own_judge_in_words_in_json_and_in_files(trained: Run, tmp_path: Path) -> None:
    run = trained("reward.kind=implicit", "reward.objective=cross_entropy", "reward.judged=all", "reward.lr=0.01")
    asked = (run, "--judge", run, "--n", 2, "--method", "best_of_n,weighted,beam", "--problems", 4, "--seed", 1)
    said = search(*asked, "--json", "--out", tmp_path / "out")
    assert said.exit_code == 0, said.stderr
    found = json.loads(said.stdout)
    assert list(found["curves"]) == ["pass_at_n", "majority", "best_of_n", "weighted", "beam"] and found["aggregate"] == "sum"
    assert [point["n"] for point in found["curves"]["beam"]] == [1, 2] and found["candidates"]["left_out"] == 0
    assert json.loads((tmp_path / "out" / "search.json").read_text())["curves"] == found["curves"]
    choices = [json.loads(line) for line in (tmp_path / "out" / "choices.jsonl").read_text().splitlines()]
    assert len(choices) == 4 * 4 and {line["method"] for line in choices} == {"majority", "best_of_n", "weighted", "beam"}
    for name in ("by_n.png", "by_cost.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
    words = search(*asked)
    assert words.exit_code == 0 and "4 problems of reasoning (test), 2 candidates each" in words.stdout
    assert "steps are put together by sum" in words.stdout and "are unfinished" in words.stdout


def test_the_checkpoint_of_the_judge_is_chosen_apart_from_that_of_the_policy(trained: Run) -> None:
    run = trained("reward.kind=implicit", "reward.objective=cross_entropy", "reward.judged=all", "reward.lr=0.01")
    for option, opened in (("--checkpoint", False), ("--judge-checkpoint", True)):
        said = search(run, "--judge", run, "--n", 2, "--problems", 2, option, "best")
        assert said.exit_code == 2 and "has no best checkpoint: none was evaluated" in said.stderr
        assert ("Searching: " in said.stderr) is opened, "the policy is opened before the judge"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--n", 0, "--judge", "oracle"), "n is 0: nothing would be sampled"),
        (("--n", 4, "--judge", "oracle", "--method", "beam", "--ns", "4", "--beam", 8), "The beam is 8 wide with 4 candidates"),
        (("--method", "best"), "There is no method 'best'"),
        (("--ns", "a"), "--ns is 'a'"),
        (("--ns", ","), "--ns is ','"),
        (("--ahead", 3), "ahead is 3, and lookahead is not among the methods"),
        ((), "best_of_n needs a judge"),
        (("--judge", "nowhere"), "nowhere"),
        (("--judge", "oracle", "--judge-checkpoint", "best"), "is to be the best one, and no run is named as judge"),
        (("--method", "majority", "--judge-checkpoint", "last"), "is to be the last one, and no run is named as judge"),
        (("--judge", "oracle", "--aggregate", "product", "--problems", 99), "has 6 tasks and 99 problems"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(trained: Run, arguments: tuple[object, ...], says: str) -> None:
    run = trained("reward.kind=implicit", "reward.objective=cross_entropy", "reward.judged=all", "reward.lr=0.01")
    said = search(run, *arguments)
    assert said.exit_code == 2 and said.stderr.splitlines()[-1].startswith("error: ") and says in said.stderr, said.stderr


def test_a_file_in_the_place_of_the_folder_is_told_before_anything_is_sampled(trained: Run, tmp_path: Path) -> None:
    run = trained("reward.kind=implicit", "reward.objective=cross_entropy", "reward.judged=all", "reward.lr=0.01")
    (tmp_path / "taken").write_text("mine")
    said = search(run, "--judge", "oracle", "--out", tmp_path / "taken")
    assert said.exit_code == 2 and "The search could not be written to" in said.stderr and "Searching" not in said.stderr
    assert (tmp_path / "taken").read_text() == "mine"
