"""`stepwell eval-judge`: a judge beside baselines on each benchmark, with its threshold printed; bad input is a sentence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Said, stepwell

from stepwell.configure import load
from stepwell.engine.local import LocalModel
from stepwell.teaching import teach
from stepwell.types import Floats, Row

SMALL = (
    *(f"engine.{name}" for name in ("threads=1", "width=16", "feedforward=16", "layers=1", "corpus_tasks=4", "max_length=64")),
    *("domain.kind=luck:Luck", "chat.tools=false", "reward.kind=labelled", "reward.separator=;", "credit.kind=grpo"),
    *("reward.held_out=0", "reward.lr=0.03", "reward.batch=8", "reward.warm=120", "checkpoint.every=120"),
)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A judge to which going north is right and going west is wrong."""
    folder = tmp_path_factory.mktemp("judge")
    ways = np.random.default_rng(0).integers(0, 2, (64, 3)) == 1
    prompts = [("go to exit", "p", "other")[n % 3] + f" {n % 10}" for n in range(64)]
    lines = [
        {"prompt": prompt, "steps": ["go north" if way else "go west" for way in some], "labels": some.tolist()}
        for prompt, some in zip(prompts, ways, strict=True)
    ]
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, lines)))
    list(teach(load("smoke", [*SMALL, f"reward.data={folder / 'labels.jsonl'}"]), folder / "run"))
    return folder / "run"


def bench(path: Path, *entries: object) -> Path:
    path.write_text(json.dumps(list(entries)))
    return path


def processbench(n: int, words: Sequence[str], label: int, problem: str = "") -> dict[str, object]:
    steps = [f"go {word}" for word in words]
    return {"id": f"hall-{n}", "problem": problem or f"go to exit {n}", "steps": steps, "label": label, "generator": "x"}


EASY = [processbench(n, ["north", "west", "north"] if n % 2 else ["north", "north"], 1 if n % 2 else -1) for n in range(8)]


def measured(judge: Path, on: str, data: Path, *more: object) -> dict[str, Any]:
    said = stepwell("eval-judge", judge, "--on", on, "--data", data, "--json", *more)
    assert said.code == 0, said.err
    found: dict[str, Any] = said.json
    return found


def row(found: dict[str, Any], who: str, name: str, subset: str = "") -> Any:
    return next(r[name] for r in found["results"] if r["who"] == who and name in r and r["subset"] in (subset or r["subset"]))


def refused(*arguments: object) -> str:
    said: Said = stepwell("eval-judge", *arguments)
    assert (said.code, said.out) == (2, ""), said
    return said.err.strip().splitlines()[-1]


def test_processbench(here: Path, judge: Path) -> None:
    """A judge that knows finds every error by a threshold of other problems; who passes everything has an F1 of 0."""
    found = measured(judge, "processbench", bench(here / "pb.json", *EASY))
    assert (found["solutions"], found["problems"], found["truncated"], found["unscored"], found["unlabelled"]) == (8, 8, 0, 0, 0)
    assert row(found, "judge", "f1") == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert row(found, "all correct", "f1")["mean"] == 0.0 and row(found, "random step or none", "f1")["mean"] < 0.5
    assert row(found, "judge", "auc")["mean"] == 1.0 and "the best on the other half" in found["threshold"]
    assert found["origin"] == f"the judge of {judge} (reward.kind=labelled), step 120"
    assert 0.0 <= found["minimum_last"] <= 1.0 and found["minimum_last_by_chance"] == pytest.approx((1 / 3 + 1 / 2) / 2)
    said = stepwell("eval-judge", judge, "--on", "processbench", "--data", here / "pb.json")
    assert "threshold: " in said.out and "random step or none" in said.out and "least score at the last step" in said.out


def test_thresholds_that_are_given_or_tuned(here: Path, judge: Path) -> None:
    data = bench(here / "pb.json", *EASY)
    assert measured(judge, "processbench", data, "--threshold", 0.5)["threshold"] == "0.5, as given"
    other = bench(here / "other.json", *({**one, "problem": f"other {n}"} for n, one in enumerate(EASY)))
    assert measured(judge, "processbench", data, "--tune", other)["threshold"].endswith(", the best on 8 other solutions")
    assert "has 8 problems that are measured on, such as 'go to exit 0'" in refused(
        judge, "--on", "processbench", "--data", data, "--tune", data
    )
    rest = ("--on", "processbench", "--data", data)
    assert "give one of the two" in refused(judge, *rest, "--tune", other, "--threshold", 0.5)
    assert "--threshold is nan; give a finite number" in refused(judge, *rest, "--threshold", "nan")


def test_prmbench_leaves_out_rows_that_cannot_be_right_and_counts_them(here: Path, judge: Path) -> None:
    entries = [
        {
            **{"idx": f"x_{n}", "modified_question": f"go to exit {n}", "classification": "circular" if n % 2 else "redundency"},
            **{"modified_process": ["go north", "go west", "go north"], "error_steps": [4] if n == 0 else [2]},
        }
        for n in range(7)
    ]
    found = measured(judge, "prmbench", bench(here / "prm.json", *entries))
    assert (found["solutions"], found["unlabelled"]) == (6, 1)
    assert row(found, "judge", "prmscore", "all")["mean"] == 1.0 and row(found, "judge", "negative_f1", "circular")["mean"] == 1.0
    assert row(found, "all correct", "prmscore", "all")["mean"] == pytest.approx(0.4)
    said = stepwell("eval-judge", judge, "--on", "prmbench", "--data", here / "prm.json")
    assert "1 solutions have no label that can be right, and are left out" in said.out


def test_labelled_steps_and_a_limit(here: Path, judge: Path) -> None:
    lines = [{"prompt": f"p {n}", "steps": ["go west", "go north"], "labels": [False, True]} for n in range(9)]
    (here / "steps.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for on in ("steps", "prm800k"):
        found = measured(judge, on, here / "steps.jsonl", "--limit", 5)
        assert (found["solutions"], found["drawn_from"]) == (5, 9) and row(found, "judge", "auc")["mean"] == 1.0
        assert row(found, "length of the step", "auc")["mean"] == 0.0 and row(found, "position of the step", "auc")["mean"] == 0.0
        assert found["threshold"] == "" and row(found, "judge", "accuracy")["mean"] > 0.9
    assert "needs no threshold" in refused(judge, "--on", "steps", "--data", here / "steps.jsonl", "--threshold", 0.5)


def test_solutions_that_do_not_fit_are_counted(here: Path, judge: Path) -> None:
    """A wrong step beyond the context is not found."""
    long = processbench(9, ["north " * 60, "west"], 1)
    found = measured(judge, "processbench", bench(here / "pb.json", *EASY, long), "--threshold", 0.5)
    assert (found["truncated"], found["unscored"]) == (1, 2)
    assert row(found, "judge", "error_accuracy")["mean"] == pytest.approx(4 / 5)
    assert "says no number about any of 2 steps: 2 do not fit into its context" in refused(
        judge, "--on", "processbench", "--data", bench(here / "long.json", long), "--threshold", 0.5
    )


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        (
            {"id": 1, "question": "p", "solution": "s"},
            "has the keys 'id', 'question', 'solution'; expected are those of ProcessBench: problem",
        ),
        ({"prompt": "p", "steps": ["a"], "labels": [True]}, "expected are those of ProcessBench: problem, steps, label."),
        (processbench(0, ["a"], 1), "label is 1 with 1 steps"),
    ],
)
def test_files_that_are_no_benchmark(here: Path, judge: Path, entry: object, match: str) -> None:
    assert match in refused(judge, "--on", "processbench", "--data", bench(here / "pb.json", entry))


def test_a_judge_that_says_nan(here: Path, judge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(model: LocalModel, rows: Sequence[Row], want: frozenset[str]) -> list[dict[str, Floats]]:
        return [{"values": np.full(len(row.targets), np.nan)} for row in rows]

    monkeypatch.setattr(LocalModel, "forward", forward)
    found = refused(judge, "--on", "processbench", "--data", bench(here / "pb.json", *EASY))
    assert "The judge said nan: its weights hold NaN or infinity." in found
