"""The study of the shop: its variants differ in what they say they do, and its table comes from the runs that are kept."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stepwell.ablation.comparing import Ratio
from stepwell.ablation.plan import make_plan
from stepwell.ablation.warm import warm_config
from stepwell.config import BasketConfig, EnvironmentRewardConfig, ImplicitConfig, OutcomeRewardConfig, ShopConfig
from stepwell.configure import load
from stepwell.evaluation.intervals import Interval

FOLDER = Path(__file__).parents[2] / "studies" / "shop_ablation"


@pytest.fixture(scope="module")
def study() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shop_ablation_study", FOLDER / "run.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["shop_ablation_study"] = made  # where dataclasses and named tuples look for their module
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize(("world", "domain"), [("singles", ShopConfig), ("baskets", BasketConfig), ("baskets_hasty", BasketConfig)])
def test_the_variants_have_the_ideas_that_they_are_named_after(study: ModuleType, world: str, domain: type, tmp_path: Path) -> None:
    configs = {variant.name: variant.config for variant in study.plan_of(world, [40], tmp_path).variants}
    assert list(configs)[-3:] == ["rloo", "gigpo", "oracle"] and len(configs) == 9
    assert all(isinstance(config.domain, domain) for config in configs.values())
    for name in study.OUTCOME_ONLY:
        plain = configs[name]
        assert isinstance(plain.reward, OutcomeRewardConfig) and plain.curriculum.kind == "uniform"
        assert not plain.domain.interruptions.kinds
        assert warm_config(plain) == warm_config(configs["vanilla_grpo"]) != warm_config(configs["full"])
    assert [configs[name].credit.kind for name in study.OUTCOME_ONLY] == ["grpo", "rloo", "gigpo"]
    assert isinstance(configs["full"].reward, ImplicitConfig)
    oracle = configs["oracle"]
    assert isinstance(oracle.reward, EnvironmentRewardConfig) and oracle.reward.steps == "progress"
    assert oracle.reward.pay == configs["full"].reward.pay == configs["rloo"].reward.pay
    same = configs["full"].model_copy(update={"reward": oracle.reward, "credit": oracle.credit})
    assert same == oracle  # all else is the full system's
    some = study.plan_of(world, [40], tmp_path, ["oracle", "full"]).variants
    assert {variant.name: variant.config for variant in some} == {name: configs[name] for name in ("oracle", "full")}


def test_the_preset_shop_is_what_the_study_of_single_products_runs(study: ModuleType, tmp_path: Path) -> None:
    """So that `stepwell ablate shop --seeds 50,51,52,53,54` repeats its six variants."""
    assert load("shop", ["name=singles"]) == study.plan_of("singles", [0], tmp_path).base


@pytest.mark.parametrize(
    ("times", "bound", "said"),
    [
        ((4.0, 3.2, 5.0), "", "held: a third of the episodes of `gigpo`; measured 4.00 times fewer (3.20 to 5.00)."),
        ((4.0, 3.2, 5.0), "at most", "undecided: a third of the episodes of `gigpo`; measured at most 4.00 times fewer (3.20 to 5.00)."),
        ((0.8, 0.7, 0.9), "at most", "not held: a third of the episodes of `gigpo`; measured at most 0.80 times fewer (0.70 to 0.90)."),
        ((0.8, 0.7, 0.9), "at least", "undecided: a third of the episodes of `gigpo`; measured at least 0.80 times fewer (0.70 to 0.90)."),
        (
            (0.8, 0.7, 0.9),
            "unknown",
            "undecided: a third of the episodes of `gigpo`; measured no ratio, since runs of both never got there.",
        ),
        ((math.nan, math.nan, math.nan), "", "undecided: a third of the episodes of `gigpo`; measured no ratio."),
    ],
)
def test_a_bound_decides_in_its_own_direction_alone(study: ModuleType, times: tuple[float, ...], bound: str, said: str) -> None:
    assert study._fewer(Ratio(Interval(*times), bound), "gigpo") == said


def test_demonstrations_of_interrupted_tasks_are_without_the_habit(study: ModuleType, tmp_path: Path) -> None:
    for world in ("singles", "baskets"):
        plan = study.plan_of(world, [40], tmp_path, ["full", "vanilla_grpo"])
        whole, plain = (study.demonstrated(variant.config, 60) for variant in plan.variants)
        assert 0.25 < plain < 0.7 and plain + 0.1 < whole < 0.95, (world, plain, whole)


def test_the_seeds_that_are_reported_chose_no_setting(study: ModuleType) -> None:
    used = {0, 1, 3, 4, *range(6, 25), 40}
    for world in study.WORLDS.values():
        assert not used & {int(seed) for seed in world.seeds.split(",")}


def played(good: list[bool]) -> dict[str, Any]:
    return {"tasks": [[f"t{n}", 0.1, one] for n, one in enumerate(good)]}


def result(name: str, seed: int, good: int) -> dict[str, Any]:
    tasks = played([n < good for n in range(20)])
    return {
        "variant": name,
        "seed": seed,
        "clean": tasks,
        "perturbed": {**tasks, "recovery": 0.5, "recovery_turns": 1.0, "recovery_given_clean": 0.5},
        "curve": {"episodes": [0, 100 * (21 - good)], "success": [0.0, 1.0]},
        "judge": {"auc": 0.75, "brier": 0.2, "ece": 0.1} if name == "full" else None,
        "curriculum": {"difficulty_first": 0.1, "difficulty_last": 0.2, "success_asked": 0.5, "in_zone": 1.0},
        "divergences": None,
        "alarms": None,
        "train_seconds": 10.0,
    }


GOOD = {"full": 16, "no_step_rewards": 15, "vanilla_grpo": 8, "rloo": 12, "gigpo": 10, "oracle": 18}


def test_the_table_is_of_kept_runs_and_the_strongest_baseline(study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "HERE", tmp_path)
    plan = make_plan(load("smoke"), [0, 1], tmp_path / "out", named=study.NAMED, only=list(GOOD))
    kept = tmp_path / "results" / "singles"
    kept.mkdir(parents=True)
    for name, good in GOOD.items():
        for seed in plan.seeds:
            (kept / f"{name}-{seed}.json").write_text(json.dumps(result(name, seed, good)))
    study._bring(kept, plan.out / "results")
    text = study.tell("singles", plan)
    assert "| `full` | 2 | 0.0 | 80.0 (" in text and "| +40.0 (" in text and "| 0.75 |" in text
    assert "20 points above `rloo`, the strongest; measured +20.0 points" in text
    assert "a third of the episodes of `rloo`; measured 1.80 times fewer (1.80 to 1.80)" in text
    assert "the two begin at 0.0 % and 0.0 % on validation tasks, behind demonstrations of which" in text
    assert "`full` less `no_step_rewards`, all else equal: +5.0 points" in text
    assert "`oracle` less `no_step_rewards`, all else equal: +15.0 points" in text
    assert (tmp_path / "singles" / "report.md").exists() and (tmp_path / "singles" / "plots" / "curves.png").exists()
    study._bring(plan.out / "results", kept)  # what is there stays as it is
    assert len(list(kept.glob("*.json"))) == 12
