"""`stepwell train reasoning` and `stepwell train code`, made small: both run to their report with a judge that has learnt from experts."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from commands import stepwell

from stepwell.configure import load
from stepwell.domains import build_domain
from stepwell.tracking import read_metrics

TINY = tuple(
    f"engine.{one}" for one in ("kind=tiny", "threads=1", "width=16", "feedforward=16", "layers=1", "corpus_tasks=6", "max_length=512")
)
FEW = ("cloning.steps=2", "cloning.batch=2", "steps=2", "rollout.groups=2", "rollout.group_size=2", "evaluation.episodes=4")


def test_reasoning_teaches_a_judge_by_an_experts_solutions_before_the_policy_is_paid_by_it(here: Path) -> None:
    said = stepwell("train", "reasoning", *TINY, *FEW, "test_tasks=4", "evaluation.every=0", "reward.batch=6", "--run", "run")
    assert said.code == 0, said.err
    first, second = (line.metrics for line in read_metrics(here / "run") if "judge/experts" in line.metrics)
    for metrics in (first, second):
        shown = metrics["judge/experts"] - metrics["judge/pseudo_experts"]
        assert shown + metrics["judge/left_out"] == 6.0, "of six demonstrations those are left out in which the expert slipped"
        assert 1.0 <= metrics["judge/ess"] <= 4.0
        assert metrics["policy/entropy"] > 0.0
    assert first["reward/judge_step"] != 0.0, "the judge learns before it pays; a fresh one says 0"
    assert not math.isclose(first["reward/judge_step"], second["reward/judge_step"], rel_tol=1e-9)


@pytest.mark.slow
def test_code_asks_mbpps_training_problems_and_runs_the_programs(here: Path) -> None:
    rows = [
        {"task_id": number, "text": f"Write a function to add {number}.", "code": f"def f(x): return x + {number}"}
        | {"test_list": [f"assert f(1) == {number + 1}", f"assert f(0) == {number}"], "test_setup_code": ""}
        for number in (11, 12, 601, 602, 603)
    ]
    (here / "mbpp.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    files = ("data=mbpp.jsonl", "train_data=mbpp.jsonl")
    domain = build_domain(load("code", files).domain)
    assert [task.key for task in domain.tasks("test")] == ["11", "12"]
    assert {domain.task(0.5, seed, "train").key for seed in range(40)} == {"601", "602", "603"}
    less = ("steps=1", "rollout.draw_budget=1", "rollout.max_tokens=8", "rollout.context=256", "evaluation.episodes=1", "reward.batch=2")
    said = stepwell("train", "code", *files, *TINY, *FEW, *less, "--run", "run")
    assert said.code == 0, said.err
    learnt = [line.metrics for line in read_metrics(here / "run") if "judge/experts" in line.metrics]
    assert [(one["judge/experts"], one["judge/others"], one["judge/left_out"]) for one in learnt] == [(2.0, 4.0, 0.0)], (
        "the sandbox finds the demonstrations right and the others wrong"
    )
    assert learnt[0]["reward/judge_step"] != 0.0
    graded = stepwell("show", "run", "--step", "3", "--json")
    assert graded.code == 0, graded.err
