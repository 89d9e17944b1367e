"""The study of what curricula hold: its numbers by hand, and its runs, which differ by the curriculum alone."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

from stepwell.ablation.warm import warm_config
from stepwell.evaluation.intervals import Interval

FILE = Path(__file__).parents[2] / "studies" / "shop_ablation" / "target.py"


@pytest.fixture(scope="module")
def target() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shop_target_study", FILE)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["shop_target_study"] = made  # where named tuples look for their module
    spec.loader.exec_module(made)
    return made


def test_runs_differ_by_the_curriculum_alone(target: ModuleType) -> None:
    configs = {name: target.config_of(name, 3) for name in target.CURRICULA}
    assert {name: config.curriculum.kind for name, config in configs.items()} == {
        "uniform": "uniform",
        "entropy": "entropy",
        "zone": "zone",
    }
    assert len({warm_config(config).model_dump_json() for config in configs.values()}) == 1
    changed = [config.model_copy(update={"name": "", "curriculum": None}) for config in configs.values()]
    assert changed[0] == changed[1] == changed[2]
    seeds = {int(seed) for start in target.STARTS.values() for seed in start.seeds.split(",")}
    assert not seeds & {0, 1, 3, 4, *range(6, 25), 40}, "seeds that chose settings"
    strong = target.config_of("zone", 3, target.STARTS["strong"])
    assert (strong.cloning.steps, strong.domain.expert_haste["size"], strong.optimizer.lr) == (1200, 0.15, 5e-4)
    assert [target.config_of("zone", 3, start).rollout.turns for start in target.STARTS.values()] == [9, 9, 6]


def test_windows_in_the_zone_by_hand(target: ModuleType) -> None:
    """Eight steps of two groups have four windows of five steps; their means are 0.3, 0.4, 0.5 and 0.6."""
    success = [[0.0, 1.0]] * 3 + [[0.0, 0.0]] * 2 + [[1.0, 1.0]] * 3
    run = target.Run(success, [[0.1, 0.3]] * 8, ([0], [0.5]))
    inside, most = target.in_zone(run)
    assert inside == pytest.approx(0.75)
    errors = [math.sqrt(10 * m * (1 - m) / 9 / 10) for m in (0.3, 0.4, 0.5, 0.6)]  # of ten groups that are 0 or 1
    assert most == pytest.approx(sum(math.erf(0.1 / error / math.sqrt(2)) for error in errors) / 4)
    steady = target.Run([[0.5, 0.5]] * 6, [[0.1, 0.1]] * 6, ([0], [0.5]))
    assert target.in_zone(steady) == pytest.approx((1.0, 1.0))
    assert target.by_step(run.difficulty) == pytest.approx([0.2] * 8)


def test_the_easiest_fifth_is_of_the_last_third_by_hand(target: ModuleType) -> None:
    run = target.Run([[1.0, 1.0]] * 2 + [[0.25, 0.75]], [[0.05, 0.05]] * 2 + [[0.09, 0.11]], ([0], [0.5]))
    assert target.easiest(run) == 0.25


@pytest.mark.parametrize(
    ("intervals", "said"),
    [
        ([(0.4, 0.6), (0.45, 0.5), (0.5, 0.55)], "held"),
        ([(0.4, 0.6), (0.39, 0.5), (0.5, 0.55)], "undecided"),
        ([(0.4, 0.6), (0.3, 0.39), (0.5, 0.55)], "not held"),
        ([(0.4, 0.6), (0.45, 0.5), (0.61, 0.7)], "not held"),
        ([(math.nan, math.nan)] * 3, "one seed"),
    ],
)
def test_the_verdict_goes_by_the_intervals_of_all_thirds(target: ModuleType, intervals: list[tuple[float, float]], said: str) -> None:
    assert target.verdict([Interval((low + high) / 2, low, high) for low, high in intervals]) == said


def test_the_table_is_of_the_runs_that_are_kept(target: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "KEPT", tmp_path)
    monkeypatch.setattr(target, "PICTURE", tmp_path / "picture.png")
    for seed, share in ((1, 0.45), (2, 0.55)):
        told = {"curriculum": "zone", "seed": seed, "success": [[share, share]] * 6, "difficulty": [[0.2, 0.4]] * 3 + [[0.4, 0.6]] * 3}
        told["validation"] = {"episodes": [0, 10], "success": [0.25, 0.75]}
        (tmp_path / f"zone-{seed}.json").write_text(json.dumps(told))
        told |= {"curriculum": "uniform", "validation": {"episodes": [0, 10], "success": [0.25, 0.4 + 0.1 * seed]}}
        (tmp_path / f"uniform-{seed}.json").write_text(json.dumps(told))
    header, _, plain, row = target.table().strip().splitlines()
    assert dict(zip(header.split(" | "), plain.split(" | "), strict=True))["after, against uniform"] == ""
    cells = dict(zip(header.split(" | "), row.split(" | "), strict=True))
    assert cells["seeds"] == "2" and cells["in [0.4, 0.6]"] == "1.00 (1.00 to 1.00)"
    assert cells["success drawn: first third"] == "0.50 (0.45 to 0.55)" and cells["held? |"] == "held |"
    assert cells["easiest fifth, last third"] == "nan"
    assert cells["last less first"] == "+0.20 (+0.20 to +0.20)" and cells["after, against uniform"] == "+0.20 (+0.15 to +0.25)"
    assert cells["difficulty: first third"].startswith("0.30") and cells["after"] == "0.75 (0.75 to 0.75)"
    target.draw()
    assert (tmp_path / "picture.png").stat().st_size > 1000
