"""How the study of reasoning chooses settings: equally many tried, one rule, and what is run is what the rule chose."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "studies" / "reasoning"))

import chains.measure
import chains.tuning
from chains.plan import AGGREGATE, ARMS, CHOSEN, GRID, PROBLEMS, SIZES, TUNED_ON, Scale, arm_settings, chosen
from chains.report import write_report
from chains.truth import TruthReward
from chains.tuning import Tried, choice, finish_grid, read_grid

import stepwell
from stepwell.domains import reasoning_domain
from stepwell.searching.pool import Candidate, Pool
from stepwell.types import Action, Ending, EndingKind, Episode, Group, Stop, Turn, Verdict

STUDY = Path(__file__).parents[2] / "studies" / "reasoning"


def test_every_arm_is_tuned_by_as_many_settings_and_each_is_another_config() -> None:
    assert set(GRID) >= {arm for arm in ARMS if not arm.endswith("_hard")} - {"start", "truth_slow"}
    assert {len(tried) for tried in GRID.values()} == {3}
    for arm, tried in GRID.items():
        begun = arm_settings(arm, 90, Scale(), model="model", labels="labels.jsonl")
        configs = [stepwell.load("reasoning", [*begun, *settings]).model_dump_json() for settings in tried]
        assert len(set(configs)) == 3, arm
    assert not set(TUNED_ON) & set(Scale().seeds)


def test_what_is_run_is_what_the_rule_chose() -> None:
    tried = read_grid(STUDY / "results" / "tuning")
    assert set(tried) == set(CHOSEN) == set(GRID)
    for arm, some in tried.items():
        assert [list(one.settings) for one in some] == [list(settings) for settings in GRID[arm]], (
            f"{arm}: what was tried is what is in the grid"
        )
        assert all(set(one.runs) == set(TUNED_ON) for one in some), arm
        assert choice(some).number == CHOSEN[arm], arm
        assert chosen(arm) == GRID[arm][CHOSEN[arm]]
    assert chosen("truth_hard") == chosen("truth") and chosen("start") == ()


def test_the_aggregate_is_the_one_that_was_best_for_repirl_on_validation_tasks() -> None:
    runs = [run for tried in read_grid(STUDY / "results" / "tuning")["repirl"] for run in tried.runs.values()]
    assert len(runs) == 6
    for n in map(str, SIZES[1:]):
        right = {how: np.mean([run["test"]["best_by"][how][n] for run in runs]) for how in ("sum", "min", "last")}
        right["mean"] = np.mean([run["test"]["chosen"]["best_of_n"][n] for run in runs])
        assert max(right, key=right.__getitem__) == AGGREGATE, right


def run_of(arm: str, number: int, seed: int, wins: Sequence[int]) -> dict[str, Any]:
    return {"arm": arm, "number": number, "seed": seed, "tried": [f"optimizer.lr={number}"], "test": {"wins": list(wins), "attempts": 16}}


def test_the_rule_is_the_mean_over_tasks_and_seeds_and_the_first_of_equals(tmp_path: Path) -> None:
    for number, (one, other) in enumerate([([8, 8], [0, 0]), ([0, 16], [2, 2]), ([10, 10], [0, 0])]):
        for seed, wins in ((90, one), (91, other)):
            (tmp_path / f"rloo-{number}-{seed}.json").write_text(json.dumps(run_of("rloo", number, seed, wins)))
    (tried,) = read_grid(tmp_path).values()
    assert [one.success for one in tried] == [0.25, 0.3125, 0.3125]
    assert choice(tried).number == 1
    assert choice([Tried("rloo", 0, (), {90: run_of("rloo", 0, 90, [1])}), *tried]).number == 1


def test_the_grid_goes_on_where_it_was_and_asks_validation_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, int, tuple[str, ...], str]] = []

    def one(arm: str, seed: int, scale: Scale, _: Path, settings: Sequence[str], split: str) -> dict[str, Any]:
        if len(asked) == 4:
            asked.clear()
            raise KeyboardInterrupt
        asked.append((arm, seed, scale.tasks, tuple(settings), split))
        return run_of(arm, 9, seed, [1])

    grid = {arm: tuple((f"optimizer.lr={number}",) for number in range(3)) for arm in ("prl", "repirl_hard")}
    monkeypatch.setattr(chains.tuning, "GRID", grid)
    monkeypatch.setattr(chains.tuning, "one", one)
    with pytest.raises(KeyboardInterrupt):
        finish_grid(["prl", "repirl_hard"], Scale(), tmp_path, tmp_path)
    monkeypatch.setattr(chains.tuning, "TUNED_ON", (90,))
    finish_grid(["prl", "repirl_hard"], Scale(), tmp_path, tmp_path)
    assert asked == [
        ("prl", 90, 50, grid["prl"][2], "validation"),
        ("repirl_hard", 90, 25, (*grid["repirl_hard"][2], "domain.test_tasks=25"), "validation"),
    ], "four of six were done"
    tried = read_grid(tmp_path / "results" / "tuning")
    assert [one.number for one in tried["prl"]] == [0, 1, 2] and tuple(tried["prl"][1].settings) == grid["prl"][1]


def test_the_checker_pays_right_lines_and_nothing_behind_the_first_wrong_one() -> None:
    domain = reasoning_domain(stepwell.load("reasoning", PROBLEMS).domain)  # type: ignore[arg-type]
    task = domain.tasks("test")[0]
    right = domain.solution(task) or []
    lines = [right[0], "so it is", *domain.wrong_solution(task, 1, 0)[1:4]]
    environment, ids = domain.environment(task), np.zeros(1, np.int64)
    start = environment.start()
    actions = [Action("write", {"line": line}) for line in lines]
    turns = tuple(Turn(ids, ids, np.zeros(1), "", one, environment.step(one), Stop.EOS, version=0) for one in actions)
    episode = Episode(task, 0, start, turns, Ending(EndingKind.TERMINATED), Verdict.of(1.0))
    (group,) = TruthReward().score([Group(task, (episode,))])
    (scored,) = group.members
    assert scored.rewards["judge"].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert scored.scored_S.tolist() == [True, False, True, False, False], "what says nothing, and what stands behind, is not paid"
    assert scored.outcome == 1.0


def test_an_aggregate_puts_the_rewards_of_steps_together_and_leaves_out_who_has_none() -> None:
    said = [[1.0, -2.0, 4.0], [], [0.5, 0.5, 0.5]]
    found = {how: chains.measure._scores(said, how) for how in chains.measure.AGGREGATES}
    assert found == {"mean": [1.0, None, 0.5], "sum": [3.0, None, 1.5], "min": [-2.0, None, 0.5], "last": [4.0, None, 0.5]}


def test_a_judge_that_knows_nothing_scores_equal_solutions_alike_and_falls_with_the_number_of_wrong_ones() -> None:
    domain = reasoning_domain(stepwell.load("reasoning", PROBLEMS).domain)  # type: ignore[arg-type]
    task, ids = domain.tasks("test")[0], np.zeros(1, np.int64)

    def episode(text: str, right: bool) -> Episode:
        environment = domain.environment(task)
        action = Action("write", {"line": text})
        turn = Turn(ids, ids, np.zeros(1), text, action, environment.step(action), Stop.EOS, version=0)
        return Episode(task, 0, environment.start(), (turn,), Ending(EndingKind.TERMINATED), Verdict.of(float(right)))

    texts = [("right", True)] * 3 + [(f"wrong {at}", False) for at in range(5)]
    candidates = tuple(Candidate(episode(text, right), int(not right), right, 0.0) for text, right in texts)
    drawn = [chains.measure._by_lot(Pool(task, candidates, 0), draw) for draw in range(600)]
    assert all(len({one.score for one in pool.candidates[:3]}) == 1 and len({one.score for one in pool.candidates}) == 6 for pool in drawn)
    first = [max(pool.candidates, key=lambda one: one.score or 0.0).right for pool in drawn]
    assert abs(np.mean(first) - 1 / 6) < 0.06, "one of six different texts, although three of eight candidates are right"


def test_the_table_shows_each_aggregate_and_what_was_tried(tmp_path: Path) -> None:
    test: dict[str, Any] = {"wins": [8, 8], "greedy": [True, True], "distinct": 1.0, "attempts": 16, "auc": 0.5}
    test["chosen"] = {rule: {str(n): [0.5, 0.5] for n in SIZES} for rule in ("best_of_n", "weighted", "group", "majority")}
    test["best_by"] = {
        how: {str(n): [0.25, share] for n in SIZES} for how, share in (("sum", 0.25), ("min", 0.75), ("last", 0.0), ("lot", 0.5))
    }
    curve = {"success": [0.1], "policy/entropy": [0.2], "cpu_s": [1.0], "judge/fresh_pair_accuracy": [0.5]}
    (tmp_path / "results" / "tuning").mkdir(parents=True)
    (tmp_path / "results" / "repirl-50.json").write_text(json.dumps({"arm": "repirl", "seed": 50, "curve": curve, "test": test}))
    for number, wins in enumerate([[4], [8]]):
        (tmp_path / "results" / "tuning" / f"prl-{number}-90.json").write_text(json.dumps(run_of("prl", number, 90, wins)))
    write_report(tmp_path)
    table = (tmp_path / "table.md").read_text()
    assert (
        "| repirl | best_of_n, min | 50.0 [" in table
        and "| repirl | best_of_n, last | 12.5 [" in table
        and "| repirl | best_of_n by lot | 37.5 [" in table
    )
    claim = next(line for line in table.splitlines() if "min of its step rewards" in line)
    assert "n=4: +0.0 points [-25.0, +25.0]" in claim, "of two tasks it gains a quarter in one and loses one in the other"
    assert "| prl | `optimizer.lr=0` | 25.0 | 25.0 |  |\n| prl | `optimizer.lr=1` | 50.0 | 50.0 | yes |" in table
