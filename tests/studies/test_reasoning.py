"""The study of reasoning: its settings are settings, its labels are true, its claims follow from the numbers, and it can be resumed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "studies" / "reasoning"))

import chains.train
from chains.claims import claims, decided
from chains.measure import steps_auc
from chains.plan import ARMS, PROBLEMS, SIZES, Scale, arm_settings, base_settings
from chains.report import write_report
from chains.results import over, ratio, read_arms

import stepwell
from stepwell.credit import by_turn
from stepwell.domains import reasoning_domain
from stepwell.envs.reasoning import Truth
from stepwell.evaluation.intervals import Interval
from stepwell.step_labels import Labels, read_step_labels
from stepwell.types import Action, Ending, EndingKind, Episode, Group, Scored, Stop, Turn, Verdict


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_is_a_config_that_differs_from_the_preset_by_what_it_says(arm: str) -> None:
    config = stepwell.load("reasoning", arm_settings(arm, 50, Scale(), model="model", labels="labels.jsonl"))
    assert (config.seed, config.steps, config.engine.kind) == (50, 0 if arm.startswith("start") else Scale().steps, "local")
    cloned = config.cloning.steps * config.cloning.batch
    judge = stepwell.load("reasoning", arm_settings("repirl", 50, Scale(), model="model", labels="labels.jsonl"))
    shown = judge.steps * judge.reward.batch  # type: ignore[union-attr]
    assert cloned == (shown if arm.startswith("rloo_cloned") else 0), "as many demonstrations as rePIRL's judge is shown"
    assert config.domain.expert_slips == 0.0, "none of those has a slip"  # type: ignore[union-attr]
    assert (config.domain.difficulty[0] >= 0.5) == arm.endswith("_hard")  # type: ignore[union-attr]
    outcome_only = {"start", "rloo", "rloo_cloned", "grpo", "grpo_kl", "prl"}
    assert (config.reward.kind == "outcome") == (arm.removesuffix("_hard") in outcome_only)
    assert stepwell.load("reasoning", base_settings(Scale())).cloning.steps == Scale().clone


def test_labels_are_what_the_checker_says_and_stand_as_an_episode_does(tmp_path: Path) -> None:
    file = chains.train.labels(tmp_path, Scale(labels=24))
    solutions = read_step_labels(file, Labels("share", 0.5, ""))
    domain = reasoning_domain(stepwell.load("reasoning", PROBLEMS).domain)  # type: ignore[arg-type]
    assert sum(0.0 in one.labels for one in solutions) == 12
    for number, one in enumerate(solutions):
        task = chains.train.labelled_task(domain, number)
        lines = [step.rpartition("write[")[2].removesuffix("]") for step in one.steps]
        truths = [found.truth for found in domain.truth(task, lines)]
        assert [label == 1.0 for label in one.labels] == [truth is Truth.RIGHT for truth in truths]
        assert all(step.startswith(f"<|user|>{at} written<|end|>") for at, step in enumerate(one.steps) if at)


@pytest.mark.parametrize(("rewards", "expected"), [((0.5, 0.1, -0.4, 9.0), 1.0), ((-0.5, 0.3, 0.1, 9.0), 0.5), ((0.1, 0.1, 0.1, 0.1), 0.5)])
def test_the_judge_of_steps_is_measured_by_right_and_first_wrong_steps_alone(rewards: tuple[float, ...], expected: float) -> None:
    domain = reasoning_domain(stepwell.load("reasoning", PROBLEMS).domain)  # type: ignore[arg-type]
    task = domain.tasks("test")[0]
    right = domain.solution(task) or []
    lines = [*right[:2], "so it is", *domain.wrong_solution(task, 2, 0)[2:4]]
    environment, ids = domain.environment(task), np.zeros(1, np.int64)
    start = environment.start()
    actions = [Action("write", {"line": line}) for line in lines]
    turns = tuple(Turn(ids, ids, np.zeros(1), "", one, environment.step(one), Stop.EOS, version=0) for one in actions)
    episode = Episode(task, 0, start, turns, Ending(EndingKind.TERMINATED), Verdict.of(0.0))
    said = np.array([*rewards[:2], 5.0, *rewards[2:]])
    scored = Scored(episode, by_turn(episode), 0.0, {"judge": said}, np.ones(5, np.bool_))
    assert steps_auc(domain, [Group(task, (scored,))]) == expected


def run_of(arm: str, seed: int, wins: list[int], **test: Any) -> dict[str, Any]:
    curve = {"success": [0.1, 0.2], "policy/entropy": [0.2, 0.1], "cpu_s": [2.0, 2.0] if arm.startswith("repirl") else [1.0, 1.0]}
    curve["judge/fresh_pair_accuracy"] = [0.5, 0.75]
    return {"arm": arm, "seed": seed, "curve": curve, "test": {"wins": wins, "greedy": [True] * len(wins), "distinct": 1.0, **test}}


def written(folder: Path, *runs: dict[str, Any]) -> Path:
    (folder / "results").mkdir()
    for run in runs:
        (folder / "results" / f"{run['arm']}-{run['seed']}.json").write_text(json.dumps(run))
    return folder


def test_claims_follow_from_the_numbers(tmp_path: Path) -> None:
    chosen = {
        rule: {str(n): [1.0 if rule == "best_of_n" else 0.5] * 4 for n in SIZES} for rule in ("best_of_n", "majority", "weighted", "group")
    }
    runs = [run_of("rloo", seed, [8, 4, 2, 16]) for seed in (50, 51)]
    runs += [run_of("repirl", seed, [12, 8, 6, 16], chosen=chosen, auc=0.75) for seed in (50, 51)]
    runs += [run_of("prm_only", seed, [4, 2, 1, 8], chosen=chosen) for seed in (50, 52)]
    write_report(written(tmp_path, *runs))
    written_more = {"start": [4, 0, 0, 8], "rloo_cloned": [16, 12, 8, 16]}
    (tmp_path / "more").mkdir()
    more = written(tmp_path / "more", *runs, *(run_of(arm, 50, wins) for arm, wins in written_more.items()))
    fair = {claim.said[:20]: claim for claim in claims(read_arms(more / "results"))}
    assert (fair["rePIRL is above RLOO"].found, fair["rePIRL is above RLOO"].verdict) == ("-15.6 points [-25.0, -6.2]", "undecided")
    assert fair["The same of what RLO"].found.startswith("17 % ["), "3 of 18 successes over the start's 12"
    found = {claim.said[:24]: claim for claim in claims(read_arms(tmp_path / "results"))}
    over_rloo = found["rePIRL is at least 5 poi"]
    assert over_rloo.verdict == "held" and over_rloo.found.startswith("+18.8 points [+6.2") and over_rloo.seeds == 2
    alone = found["Without any outcome, by "]
    assert (alone.verdict, alone.seeds, alone.found) == ("undecided", 1, "50 % [50, 50]"), (
        "seed 52 has no RLOO beside it, and one seed decides nothing"
    )
    assert found["Best of n by rePIRL's ju"].verdict == "held"
    assert (found["A step of rePIRL costs n"].found, found["A step of rePIRL costs n"].verdict) == ("2.00 times [2.00, 2.00]", "not held")
    votes = found["Votes weighted by rePIRL"]
    assert votes.verdict == "undecided" and votes.found.startswith("n=4: +0.0 points [+0.0, +0.0]"), "as good as majority, not above it"
    assert len(found) == 5, "claims without runs are not made"
    table = (tmp_path / "table.md").read_text()
    assert "| prm_only | 2 | 23.4 [" in table and "**not held**" in table
    assert "| repirl | 2 | 0.62, 0.62 | 0.75, 0.75 |" in table and "| rloo | 2 | 0.6" not in table, "RLOO has no judge"
    assert (tmp_path / "plots" / "search.png").stat().st_size > 1000


def test_intervals_draw_seeds_and_tasks_together() -> None:
    table = np.array([[0.0, 1.0], [0.0, 1.0]])
    assert over(table) == Interval(0.5, 0.0, 1.0), "two tasks, of which both or neither may be drawn"
    assert over(np.full((3, 4), 0.25)) == Interval(0.25, 0.25, 0.25)
    assert ratio(2 * table + 1, 4 * table + 2) == Interval(0.5, 0.5, 0.5), "paired"
    assert [decided(Interval(1.0, low, high), 0.95) for low, high in ((0.95, 1.1), (0.9, 1.0), (0.8, 0.94))] == [
        "held",
        "undecided",
        "not held",
    ]


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import run as study

    asked: list[tuple[str, int]] = []

    def one(arm: str, seed: int, *_: object) -> dict[str, Any]:
        asked.append((arm, seed))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return run_of(arm, seed, [1])

    monkeypatch.setattr(study, "one", one)
    scale = Scale(seeds=(50, 51))
    with pytest.raises(KeyboardInterrupt):
        study.finish(scale, ["rloo", "prl"], tmp_path, tmp_path)
    study.finish(scale, ["rloo", "prl"], tmp_path, tmp_path)
    assert asked == [("rloo", 50), ("prl", 50), ("rloo", 51), ("rloo", 51), ("prl", 51)]
