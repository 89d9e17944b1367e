"""`stepwell train-judge`: a judge from labels alone learns, resumes to the same bits, and can be asked; bad input is a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import stepwell

from stepwell.configure import load
from stepwell.engine.chat import Message
from stepwell.run import NothingLeftError
from stepwell.scoring import open_judge
from stepwell.solutions import Solution
from stepwell.teaching import teach
from stepwell.tracking import read_metrics

SMALL = (
    *(f"engine.{name}" for name in ("threads=1", "width=16", "feedforward=16", "layers=1", "corpus_tasks=4", "max_length=200")),
    *("domain.kind=luck:Luck", "chat.tools=false", "reward.kind=labelled", "reward.data=labels.jsonl", "reward.separator=;"),
    *("credit.kind=grpo", "reward.held_out=0.25", "reward.lr=0.02", "reward.batch=4", "checkpoint.every=3"),
)


@pytest.fixture(autouse=True)
def _labels(here: Path) -> None:
    """Going north is right."""
    lines = [
        {
            "prompt": f"go to exit {n}",
            "steps": ["go north", "go west"] if n % 2 else ["go west", "go north"],
            "labels": [n % 2 == 1, n % 2 == 0],
        }
        for n in range(12)
    ]
    (here / "labels.jsonl").write_text("\n".join(map(json.dumps, lines)))


def taught(run: Path, *settings: str, resume: bool = False) -> list[tuple[int, dict[str, float]]]:
    return list(teach(load("smoke", [*SMALL, *settings]), run, resume=resume))


def weights(run: Path, step: int) -> dict[str, bytes]:
    models = run / "checkpoints" / f"step-{step:06d}" / "models"
    return {str(path.relative_to(models)): path.read_bytes() for path in sorted(models.rglob("*")) if path.is_file()}


def test_a_judge_learns_from_labels_alone_and_can_be_asked(here: Path) -> None:
    run = here / "run"
    said = stepwell("train-judge", "smoke", *SMALL, "reward.warm=60", "--run", run, "--json")
    assert said.code == 0, said.err
    assert said.json["updates"] == 60 and said.json["before"]["label_auc"] == 0.5
    assert said.json["after"]["label_auc"] > 0.9 and said.json["after"]["labels"] == 9 * 2
    assert set(weights(run, 60)) == {"judge/model.json", "judge/model.safetensors"}, "no policy is saved"
    (here / "labels.jsonl").unlink()
    judge = open_judge(run)
    (found,) = judge.score([Solution("x", (Message("user", "go to exit 50"),), ("go north", "go west", "go north"))])
    north, west, again = found.scores
    assert north is not None and west is not None and again is not None
    assert north > 0.5 > west and again > west
    assert judge.origin == f"the judge of {run} (reward.kind=labelled), step 60"
    for command in (["eval", run], ["export", run, here / "out"], ["search", run, "--method", "majority"]):
        refused = stepwell(*command)
        assert refused.code == 2 and f"{run} has no policy: it is a judge that was taught by a file alone" in refused.err


def test_a_killed_run_goes_on_to_the_same_bits(here: Path) -> None:
    whole = taught(here / "whole", "reward.warm=7")
    cut = teach(load("smoke", [*SMALL, "reward.warm=7"]), here / "cut")
    pieces = [next(iter(cut)) for _ in range(4)]
    cut.close()  # type: ignore[attr-defined]
    rest = taught(here / "cut", "reward.warm=7", resume=True)
    assert [done for done, _ in rest] == [4, 5, 6, 7], "from the checkpoint of update 3"
    assert weights(here / "cut", 7) == weights(here / "whole", 7)
    for one, two in zip(whole, [*pieces[:3], *rest], strict=True):
        assert {k: v for k, v in one[1].items() if "time/" not in k} == {k: v for k, v in two[1].items() if "time/" not in k}
    assert [line.step for line in read_metrics(here / "cut")] == list(range(8))
    with pytest.raises(NothingLeftError, match=r"all 7 updates are done; a larger reward\.warm goes on"):
        taught(here / "cut", "reward.warm=7", resume=True)
    assert [done for done, _ in taught(here / "cut", "reward.warm=9", resume=True)] == [8, 9]


def test_the_best_is_the_one_with_the_least_error_on_what_is_held_out(here: Path) -> None:
    taught(here / "run", "reward.warm=6")
    errors = {line.step: line.metrics["judge/fresh_error"] for line in read_metrics(here / "run") if "judge/fresh_error" in line.metrics}
    least = min((step for step in errors if step), key=lambda step: errors[step])
    assert open_judge(here / "run", checkpoint="best").origin.endswith(f"step {least}")


def test_two_problems_are_one_to_learn_from_and_one_to_measure_on(here: Path) -> None:
    lines = [{"prompt": f"go to exit {n}", "steps": ["go north", "go west"], "labels": [True, False]} for n in range(2)]
    (here / "labels.jsonl").write_text("\n".join(map(json.dumps, lines)))
    settings = [one for one in SMALL if "held_out" not in one]
    said = stepwell("train-judge", "smoke", *settings, "reward.warm=2", "--run", here / "run", "--json")
    assert said.code == 0, said.err
    assert said.json["after"]["labels"] == 2 and said.json["after"]["label_auc"] is not None


def test_no_solution_of_a_problem_is_both_learnt_from_and_measured_on(here: Path) -> None:
    """Half of the problems, whatever their number of solutions; and a limit draws so many solutions."""
    many = [{"prompt": f"p{n % 4}", "steps": ["go"], "labels": [True]} for n in range(40)]
    (here / "labels.jsonl").write_text("\n".join(map(json.dumps, many)))
    (_, metrics), *_ = taught(here / "run", "reward.warm=1", "reward.held_out=0.5")
    assert metrics["judge/labels"] == 20.0
    (_, metrics), *_ = taught(here / "limited", "reward.warm=1", "reward.held_out=0", "reward.limit=7")
    assert metrics["judge/labels"] == 7.0


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (["reward.kind=implicit"], "reward.kind is 'implicit', which learns from episodes and not from a file alone"),
        (["reward.data=nowhere.jsonl"], "Step labels cannot be read from nowhere.jsonl"),
        (["reward.separator=''"], "reward.separator is '', which is no token"),
        (["reward.max_length=3"], "No labelled step fits into 3 tokens"),
        (["reward.judge=label", "reward.label_tokens=[go go,b]"], "The label 'go go' is 2 tokens"),
        (["reward.limit=0"], "reward.limit is 0"),
        (["reward.warm=0", "reward.updates=3"], "reward.warm is 0: the judge would learn nothing"),
        (
            ["steps=50"],
            "steps cannot be changed here: nothing reads it where a file alone teaches, and reward.warm says by how many updates",
        ),
        (["rollout.groups=2"], "rollout.groups cannot be changed here"),
    ],
)
def test_what_cannot_work_is_said_before_the_folder_is_made(here: Path, settings: list[str], match: str) -> None:
    rest = [one for one in SMALL if not (settings[0] == "reward.kind=implicit" and one.startswith("reward."))]
    said = stepwell("train-judge", "smoke", *rest, *settings, "--run", here / "run")
    assert said.code == 2 and match in said.err, said.err
    assert not (here / "run").exists()


def test_a_folder_with_a_run_is_not_written_over(here: Path) -> None:
    taught(here / "run", "reward.warm=3")
    said = stepwell("train-judge", "smoke", *SMALL, "reward.warm=3", "--run", here / "run")
    assert said.code == 2 and "already holds a run; its last checkpoint is of step 3" in said.err
    said = stepwell("train-judge", "smoke", *SMALL, "reward.warm=2", "--run", here / "run", "--resume")
    assert said.code == 2 and "has done 3 updates and was asked for reward.warm=2" in said.err
