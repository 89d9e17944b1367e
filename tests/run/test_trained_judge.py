"""The judge of another run, with words of its own, scores a training; so do several judges at once, and `score` asks them."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

from stepwell.build import build
from stepwell.config import Config
from stepwell.configure import load
from stepwell.engine.chat import Message
from stepwell.errors import ConfigError, RunError
from stepwell.run import train
from stepwell.scoring import open_judge
from stepwell.solutions import Solution
from stepwell.teaching import teach

TINY = (*(f"engine.{name}" for name in ("threads=1", "width=16", "layers=1", "max_length=64", "vocabulary=256")), "chat.tools=false")
SMALL = (
    *TINY,
    *(f"rollout.{name}" for name in ("groups=2", "group_size=2", "turns=2", "max_tokens=4")),
    *("domain.kind=kill_driver:Luck", "engine.corpus_tasks=6", "cloning.steps=0", "evaluation.every=0", "evaluation.episodes=2"),
    *("steps=2", "credit.kind=process_to_go", "optimizer.lr=0.01", "checkpoint.every=1"),
)
JUDGE = (
    *TINY,
    *("domain.kind=maze", "engine.corpus_tasks=3", "credit.kind=grpo", "reward.kind=labelled", "reward.separator=;"),
    *("reward.warm=2", "reward.batch=2", "reward.held_out=0", "reward.lr=0.05", "checkpoint.every=1", "checkpoint.keep=3"),
)


@pytest.fixture(autouse=True)
def _its_own_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another folder has a kill_driver too."""
    monkeypatch.syspath_prepend(Path(__file__).parent)


def taught(folder: Path, *settings: str, resume: bool = False) -> Path:
    labels = folder / "labels.jsonl"
    lines = [{"prompt": "say red", "steps": ["say red", "say blue"], "labels": [True, n % 2 == 0]} for n in range(4)]
    labels.write_text("\n".join(map(json.dumps, lines)))
    list(teach(load("smoke", [*JUDGE, f"reward.data={labels}", *settings]), folder / "judge", resume=resume))
    return folder / "judge"


def config(judge: Path, *settings: str) -> Config:
    return load("smoke", [*SMALL, "reward.kind=trained", f"reward.run={judge}", *settings])


def test_it_scores_a_policy_with_another_vocabulary_and_resumes_to_the_same(tmp_path: Path) -> None:
    judge = taught(tmp_path)
    settings = config(judge)
    policy_words, judge_words = build(settings).speaker.tokenizer, open_judge(judge).display.chat
    assert policy_words.encode("red") != judge_words.text("red").tolist(), "two different tokenizers"
    straight = [metrics for _, metrics in train(settings, tmp_path / "whole")]
    assert 0.0 < straight[0]["reward/judge_step"] < 1.0
    run = train(settings, tmp_path / "cut")
    assert isinstance(run, Generator)
    next(run)
    run.close()
    (rest,) = [metrics for _, metrics in train(settings, tmp_path / "cut", resume=True)]
    same = {name: value for name, value in straight[1].items() if not name.startswith("time/")}
    assert {name: value for name, value in rest.items() if not name.startswith("time/")} == pytest.approx(same, abs=0, nan_ok=True)
    names = {path.name for path in (tmp_path / "cut" / "checkpoints" / "step-000002" / "models").iterdir()}
    assert names == {"policy"}, "the judge stays in its own run"


def test_a_judge_that_has_gone_on_meanwhile_is_not_taken_for_the_same(tmp_path: Path) -> None:
    judge = taught(tmp_path)
    run = train(config(judge), tmp_path / "run")
    assert isinstance(run, Generator)
    next(run)
    run.close()
    taught(tmp_path, "reward.warm=3", resume=True)
    with pytest.raises(RunError, match=r"step 2, and would be by .*step 3: the judge's run has gone on meanwhile"):
        list(train(config(judge), tmp_path / "run", resume=True))


def test_several_judges_one_of_another_run_can_be_asked_as_one(tmp_path: Path) -> None:
    judge = taught(tmp_path)
    parts = ["reward.kind=mixture", "reward.judges.own.kind=temporal", "reward.judges.own.lr=0.01", "reward.weights.own=0.5"]
    settings = load("smoke", [*SMALL, *parts, "reward.judges.read.kind=trained", f"reward.judges.read.run={judge}"])
    found = [metrics for _, metrics in train(settings, tmp_path / "run")]
    assert {"reward/own_step", "reward/read_step", "judge/own/error", "judge/confidence"} <= set(found[-1])
    asked = [Solution("x", (Message("user", "say red"),), ("say red", "say blue"))]
    (mixed,) = open_judge(tmp_path / "run").score(asked)
    assert None not in mixed.scores and np.ptp(np.array(mixed.scores, np.float64)) > 0


@pytest.mark.parametrize(
    ("folder", "match"),
    [("nowhere", "nowhere holds no run"), ("outcome", r"cannot score a file: reward\.kind is 'outcome', which has no judge")],
)
def test_runs_without_a_judge_are_refused_before_sampling(tmp_path: Path, folder: str, match: str) -> None:
    (tmp_path / "outcome").mkdir()
    (tmp_path / "outcome" / "config.yaml").write_text(json.dumps({"reward": {"kind": "outcome"}, "credit": {"kind": "grpo"}}))
    with pytest.raises((ConfigError, RunError), match=match):
        build(config(tmp_path / folder))


def test_a_judge_that_learnt_in_another_domain_is_refused_before_sampling(tmp_path: Path) -> None:
    """Where it learnt it may judge, and a judge that was taught by a file may judge anywhere (above)."""
    run = tmp_path / "judge"
    list(train(load("smoke", [*SMALL, "reward.kind=implicit", "reward.lr=0.01", "steps=1"]), run))
    build(config(run))
    remedy = "Name a judge that learnt in maze, or train in kill_driver:Luck"
    with pytest.raises(ConfigError, match=rf"learnt in kill_driver:Luck, and this run trains in maze, .*{remedy}"):
        build(config(run, "domain.kind=maze"))
