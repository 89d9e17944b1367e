"""Variants that begin alike share one warm start, and end as they would have with their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ablation_results import MINI, mini_plan

from stepwell.ablation import worker
from stepwell.ablation.plan import Plan, read_variant
from stepwell.ablation.warm import warm_config, warm_start
from stepwell.configure import load
from stepwell.errors import RunError
from stepwell.run import train
from stepwell.tracking import read_metrics

VARIANTS = ["full", "no_curriculum", "vanilla_grpo", "static_judge"]


def finished(plan: Plan) -> dict[str, dict[str, Any]]:
    """Each run's result, and all that it has logged, without the times."""
    plan.enter()
    found = {}
    for job in plan.jobs:
        worker.finish(job)
        told = json.loads(job.result.read_text())
        lines = [{name: value for name, value in line.metrics.items() if not name.startswith("time/")} for line in read_metrics(job.run)]
        found[job.name] = {name: value for name, value in told.items() if name != "train_seconds"} | {"lines": lines}
    return found


@pytest.mark.slow
def test_a_shared_warm_start_changes_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = finished(mini_plan(tmp_path / "shared", VARIANTS))
    assert len(list((tmp_path / "shared" / "runs").glob("warm-*/config.yaml"))) == 2  # with interruptions, and without
    monkeypatch.setattr(worker, "warm_start", lambda config, folder: None)
    own = finished(mini_plan(tmp_path / "own", VARIANTS))
    assert not list((tmp_path / "own" / "runs").glob("warm-*"))
    assert json.dumps(shared) == json.dumps(own)  # as text, in which what is missing equals itself
    assert all(len(found["lines"]) == 4 for found in shared.values())


def test_what_cloning_depends_on_is_what_is_shared() -> None:
    base = load("smoke", MINI)
    alike = [
        "reward.kind=outcome credit.kind=rloo",
        "curriculum.kind=entropy",
        "optimizer.lr=1e-2",
        "steps=9",
        "optimizer.weight_decay=0.3",
        "alarms.action=log",
        "name=x",
    ]
    for settings in alike:
        assert warm_config(load("smoke", [*MINI, *settings.split()])) == warm_config(base), settings
    others = [
        "seed=1",
        "domain.products=120",
        "cloning.batch=4",
        "rollout.turns=3",
        "curriculum.difficulty=[0.0,0.1]",
        "evaluation.during=3",
    ]
    for settings in others:
        assert warm_config(load("smoke", [*MINI, settings])) != warm_config(base), settings


def test_a_warm_start_is_made_once_and_only_where_there_is_one(tmp_path: Path) -> None:
    config = load("smoke", MINI)
    made = warm_start(config, tmp_path)
    assert made is not None
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*.safetensors")}
    assert before and warm_start(config, tmp_path) == made
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*.safetensors")} == before
    assert warm_start(load("smoke", [*MINI, "cloning.steps=0"]), tmp_path) is None
    with pytest.raises(RunError, match=r"ends after 2 updates, and the warm start of .*run has 3"):
        next(train(load("smoke", [*MINI, "cloning.steps=3"]), tmp_path / "run", warm=made))


def test_every_variant_has_a_warm_start_of_its_own_settings(tmp_path: Path) -> None:
    plan = mini_plan(tmp_path, VARIANTS)
    plan.enter()
    configs = [warm_config(read_variant(tmp_path, name).config) for name in VARIANTS]
    assert configs[0] == configs[1] == configs[3] != configs[2]


def test_validation_at_temperature_1_alone_says_the_same_of_it(tmp_path: Path) -> None:
    """Nothing is drawn otherwise for the greedy episodes that are left out."""
    curves = []
    for how in ("both", "sampled"):
        for _ in train(load("smoke", [*MINI, f"evaluation.how={how}"]), tmp_path / how):
            pass
        curves.append([line.metrics for line in read_metrics(tmp_path / how) if "eval/success" in line.metrics])
    both, sampled = curves
    assert [one["eval/success"] for one in both] == [one["eval/success"] for one in sampled] and len(both) == 3
    assert all("eval/success_greedy" in one for one in both) and not any("eval/success_greedy" in one for one in sampled)


def test_a_warm_start_samples_nothing_ahead() -> None:
    """Cloning has no update to be ahead of, and no old log-probs that would correct for it."""
    remote = ["engine={kind: remote, url: 'http://127.0.0.1:1', model: x}", "reward.model=lora", "reward.reference=frozen"]
    ahead = load("smoke", [*remote, "rollout.ahead=true", "loss.old_logprobs=sampler"])
    assert ahead.rollout.ahead and not warm_config(ahead).rollout.ahead
