from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ablation_results import mini_plan, record, result

from stepwell.ablation.claims import claims_of
from stepwell.ablation.plan import Plan
from stepwell.ablation.report import main_table, to_markdown, write_report
from stepwell.ablation.results import read_study
from stepwell.errors import ConfigError, DataError

EARLY = ((0, 100, 200), (0.0, 0.5, 0.5))
LATE = ((0, 300, 400), (0.0, 0.5, 0.5))


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Three seeds of three variants, of which the full system solves all and vanilla GRPO the easier half."""
    plan = mini_plan(tmp_path / "out", ["full", "no_step_rewards", "vanilla_grpo"], seeds=(0, 1, 2))
    record(
        plan,
        *(result("full", seed, "1111", "1110", curve=EARLY) for seed in (0, 1, 2)),
        *(result("no_step_rewards", seed, "1110", "1100", curve=LATE, judge=None, divergences=None) for seed in (0, 1, 2)),
        *(result("vanilla_grpo", seed, "1100", "1000", curve=LATE, judge=None, divergences=None) for seed in (0, 1, 2)),
    )
    return plan


def test_success_and_differences_by_hand(plan: Plan) -> None:
    study = read_study(plan)
    assert study.baseline == "vanilla_grpo"
    assert study.target == 0.5
    assert study.difference("full", "vanilla_grpo").mean == 0.5
    assert study.difference("full", "vanilla_grpo", bin_="0.6-0.8").mean == 1.0
    assert study.difference("full", "vanilla_grpo", bin_="0.0-0.2").mean == 0.0
    assert study.disturbance("full").mean == -0.25


def test_efficiency_by_hand(plan: Plan) -> None:
    """The target 0.5 is reached at 100 episodes and at 300; over the common 0 to 200 the means are 0.375 and 1/6."""
    study = read_study(plan)
    assert study.ratio("full", "vanilla_grpo").value == (3.0, 3.0, 3.0)
    assert study.areas["full"][0] == pytest.approx(0.375)
    assert study.areas["vanilla_grpo"][0] == pytest.approx(1 / 6)
    assert study.area("full", "vanilla_grpo").mean == pytest.approx(0.375 - 1 / 6)


def test_a_sentence_for_each_claim_that_was_run(plan: Plan) -> None:
    said = {claim.name: claim for claim in claims_of(read_study(plan))}
    assert set(said) == {"completion", "sample efficiency", "difficulty"}
    assert said["completion"].sentence.startswith("Undecided: the full system completes at least 10 points more")  # 0 to 100 of four tasks
    assert "measured +50.0 points against vanilla_grpo (+0.0 to +100.0); 3 seeds are few" in said["completion"].sentence
    assert said["sample efficiency"].answer == "held"
    assert (
        "measured 3.00 times (3.00 to 3.00) against no_step_rewards, to a validation success of 0.500" in said["sample efficiency"].sentence
    )
    assert said["difficulty"].sentence.startswith("Held: ")


def test_claims_can_fail(tmp_path: Path) -> None:
    names = ["full", "no_curriculum", "no_step_rewards", "no_interruptions", "static_judge", "vanilla_grpo"]
    plan = mini_plan(tmp_path, names, seeds=(0, 1))
    falling = {"difficulty_first": 0.5, "difficulty_last": 0.4}
    others = [result(name, seed, "1" * 40, "1" * 40, curve=EARLY, divergences=0.1) for name in names[1:] for seed in (0, 1)]
    record(plan, *(result("full", seed, "1" * 40, "0" * 40, curve=LATE, curriculum=falling, divergences=0.4) for seed in (0, 1)), *others)
    said = {claim.name: claim.answer for claim in claims_of(read_study(plan))}
    assert said == {
        "completion": "undecided",  # a difference of exactly 0
        "sample efficiency": "not held",
        "hacking": "not held",
        "difficulty": "not held",
        "interruptions": "not held",
        "learning judge": "undecided",
    }


def test_runs_that_do_not_part_decide_nothing_and_are_said_to_be_alike(tmp_path: Path) -> None:
    names = ["full", "no_curriculum", "no_step_rewards", "vanilla_grpo"]
    plan = mini_plan(tmp_path, names, seeds=(0, 1))
    alike = {"alarms": 0.0, "curriculum": {"difficulty_first": 0.2, "difficulty_last": 0.2}}
    record(plan, *(result(name, seed, "0" * 20, "0" * 20, **alike) for name in names for seed in (0, 1)))
    said = {claim.name: claim for claim in claims_of(read_study(plan, target=0.5))}
    assert {claim.answer for claim in said.values()} == {"undecided"}
    assert "measured no difference from vanilla_grpo on any task" in said["completion"].sentence
    assert "measured as many, run by run, against no_step_rewards" in said["sample efficiency"].sentence
    assert "measured no alarm in any run of the two" in said["hacking"].sentence


def test_hacking_is_told_by_the_alarms_where_they_watched(tmp_path: Path) -> None:
    plan = mini_plan(tmp_path, ["full", "no_curriculum"], seeds=(0, 1, 2))
    record(plan, *(result("full", seed, "1", "1", divergences=0.9, alarms=float(seed)) for seed in (0, 1, 2)))
    record(plan, *(result("no_curriculum", seed, "1", "1", divergences=0.1, alarms=seed + 2.0) for seed in (0, 1, 2)))
    (said,) = (claim for claim in claims_of(read_study(plan)) if claim.name == "hacking")
    assert said.answer == "held"
    assert (
        "fewer alarms of reward hacking are raised; measured -2.000 against no_curriculum (-2.000 to -2.000), alarms a run" in said.sentence
    )
    assert "| full | 0.800 (0.800 to 0.800) | 0.200 (0.200 to 0.200) | 0.100 (0.100 to 0.100) | 1.00 (0.00 to 2.00) | 0.900" in to_markdown(
        write_report(plan)
    )


def test_one_seed_decides_nothing(tmp_path: Path) -> None:
    plan = mini_plan(tmp_path, ["full", "vanilla_grpo"])
    record(plan, result("full", 0, "1" * 40, "1" * 40), result("vanilla_grpo", 0, "0" * 40, "0" * 40))
    for claim in claims_of(read_study(plan)):
        assert claim.answer == "undecided"
        assert "one seed says nothing about how runs differ" in claim.sentence


def test_what_is_not_through_is_named_and_left_out(plan: Plan) -> None:
    (plan.out / "results" / "full-1.json").unlink()
    told = write_report(plan)
    assert told["missing"] == ["full-1"]
    assert "> Not through, and in no number: full-1." in (plan.out / "report.md").read_text()
    assert told["variants"]["full"]["seeds"] == [0, 2]  # type: ignore[index,call-overload]
    assert told["variants"]["full"]["against_baseline"]["seeds"] == [0, 2]  # type: ignore[index,call-overload]


def test_the_report_and_its_files(plan: Plan) -> None:
    told = write_report(plan)
    assert json.loads((plan.out / "report.json").read_text()) == told
    text = (plan.out / "report.md").read_text()
    assert "| full | 3 | 100.0 (100.0 to 100.0) | +50.0 (+0.0 to +100.0) | 75.0 (25.0 to 100.0) |" in text
    assert "| full | 200 | 100 | 3 of 3 | 3.00 (3.00 to 3.00) | 0.375 (0.375 to 0.375) | +0.208 (+0.208 to +0.208) |" in text
    assert "| vanilla_grpo | - | - | - | - |" in text  # no judge
    assert text == to_markdown(told, ["plots/curves.png", "plots/success.png"])
    assert all((plan.out / "plots" / name).read_bytes().startswith(b"\x89PNG") for name in ("curves.png", "success.png"))
    assert main_table(told).row_count == 3


def test_a_target_that_runs_miss_is_told(plan: Plan) -> None:
    text = to_markdown(write_report(plan, target=0.9))
    assert "| full | 200 | more than 200 | 0 of 3 | unknown |" in text


def test_the_baseline_can_be_another(plan: Plan) -> None:
    study = read_study(plan, "full")
    assert study.difference("vanilla_grpo", study.baseline).mean == -0.5


def test_a_domain_without_interruptions_has_no_such_numbers(tmp_path: Path) -> None:
    plan = mini_plan(tmp_path, ["full", "vanilla_grpo"], seeds=(0, 1))
    record(plan, *(result(name, seed, "1-10") for name in ("full", "vanilla_grpo") for seed in (0, 1)))
    text = to_markdown(write_report(plan))
    assert "| full | 2 | 66.7 (0.0 to 100.0) | +0.0 (+0.0 to +0.0) | - | - |" in text
    assert np.isnan(read_study(plan).disturbance("full").mean)


def test_runs_of_different_tasks_are_not_compared(plan: Plan) -> None:
    record(plan, result("full", 2, "11111"))
    with pytest.raises(DataError, match="measured on different tasks"):
        read_study(plan)


def test_nothing_through_is_a_sentence(tmp_path: Path) -> None:
    plan = mini_plan(tmp_path, ["full", "vanilla_grpo"])
    plan.enter()
    with pytest.raises(DataError, match="no result of these variants and seeds yet"):
        read_study(plan)
    with pytest.raises(ConfigError, match="is none of the variants"):
        read_study(plan, "static_judge")
    record(plan, result("full", 0, "11"))
    with pytest.raises(DataError, match="No run of the baseline 'vanilla_grpo'"):
        read_study(plan, "vanilla_grpo")
