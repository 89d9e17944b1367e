from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.ablation.calibration import calibration, probabilities
from stepwell.ablation.claims import answer
from stepwell.ablation.comparing import Reached, areas, crossed, over_seeds, ratio_of
from stepwell.ablation.measure import curriculum_of, curve_of, divergences
from stepwell.evaluation.intervals import Interval
from stepwell.tracking import MetricsLine


def test_a_difference_that_every_seed_and_task_shares_is_certain() -> None:
    assert crossed(np.full((3, 5), 0.25)) == Interval(0.25, 0.25, 0.25)


def test_what_differs_between_seeds_alone_is_drawn_by_seeds() -> None:
    """Two seeds at 0 and 1: a resample holds none, one or two of the second, in shares of 1/4, 1/2, 1/4."""
    assert crossed(np.array([[0.0] * 50, [1.0] * 50])) == Interval(0.5, 0.0, 1.0)


def test_what_differs_between_tasks_alone_has_the_width_of_as_many_tasks() -> None:
    """All seeds alike, half of 100 tasks won: sd of a share of 100 is 0.05, and more seeds narrow nothing."""
    one, many = (crossed(np.tile([0.0, 1.0], (num_seeds, 50))) for num_seeds in (1, 8))
    for found in (one, many):
        assert found.mean == 0.5
        assert found.low == pytest.approx(0.5 - 1.96 * 0.05, abs=0.011)
        assert found.high == pytest.approx(0.5 + 1.96 * 0.05, abs=0.011)


def test_what_has_no_grade_counts_for_nothing() -> None:
    assert crossed(np.array([[1.0, math.nan], [1.0, 1.0]])) == Interval(1.0, 1.0, 1.0)
    assert math.isnan(crossed(np.full((2, 2), math.nan)).mean)


@given(st.integers(1, 4), st.integers(1, 12), st.integers(0, 99))
def test_pairing_takes_out_what_both_share(num_seeds: int, num_tasks: int, seed: int) -> None:
    """Law: a gain of 0.1 everywhere is 0.1 for certain, however hard the tasks and different the seeds are."""
    base = np.random.default_rng(seed).random((num_seeds, num_tasks))
    assert crossed(base + 0.1 - base) == pytest.approx(Interval(0.1, 0.1, 0.1))


def test_seeds_without_the_number_are_left_out() -> None:
    assert over_seeds([0.25, math.nan, 0.75]).mean == 0.5
    assert math.isnan(over_seeds([0.25, math.nan]).low)


def test_curves_are_compared_where_all_of_them_are() -> None:
    """From 100 to 200: the first is at 1, the second rises from 0 to 1 there and counts no more after."""
    assert areas([([0, 100, 200], [0.0, 1.0, 1.0]), ([100, 200, 300], [0.0, 1.0, 1.0])]) == [1.0, 0.5]


def test_curves_without_a_common_stretch_have_no_area() -> None:
    assert all(map(math.isnan, areas([([0, 100], [0.0, 1.0]), ([200, 300], [0.0, 1.0])])))


def test_the_ratio_is_of_the_means() -> None:
    found = ratio_of([Reached(300, True), Reached(100, True)], [Reached(100, True), Reached(100, True)])
    assert found.value == Interval(2.0, 1.0, 3.0)
    assert found.bound == ""


@pytest.mark.parametrize(("ours", "theirs", "bound"), [(True, False, "at least"), (False, True, "at most"), (False, False, "unknown")])
def test_a_target_that_is_not_reached_makes_a_bound(ours: bool, theirs: bool, bound: str) -> None:
    assert ratio_of([Reached(300, theirs)] * 2, [Reached(100, ours)] * 2).bound == bound


def test_a_warm_start_at_the_target_makes_no_ratio() -> None:
    assert math.isnan(ratio_of([Reached(300, True)] * 2, [Reached(0, True)] * 2).value.mean)


def test_an_answer_needs_an_interval() -> None:
    assert answer(Interval(0.3, math.nan, math.nan), 0.1) == "undecided"
    assert answer(Interval(0.1, 0.1, 0.1), 0.1) == "held"


def test_the_curve_counts_refused_groups_continuations_and_those_of_the_judge() -> None:
    lines = [
        MetricsLine(2, {"cloning/loss": 1.0, "eval/success": 0.1}),
        MetricsLine(3, {"rollout/drawn_groups": 2.0}),
        MetricsLine(4, {"rollout/drawn_groups": 5.0, "eval/success": 0.4}),
        MetricsLine(5, {"rollout/drawn_groups": 1.0, "judge/continuations": 32.0, "credit/event_episodes": 3.0, "eval/success": 0.5}),
    ]
    assert curve_of(lines, 8, 100) == {"episodes": [100.0, 156.0, 199.0], "success": [0.1, 0.4, 0.5]}


def test_a_divergence_is_reward_up_and_success_down() -> None:
    def line(step: int, reward: float, success: float = math.nan) -> MetricsLine:
        return MetricsLine(step, {"reward/judge_step": reward, "reward/shaped_step": -reward, "eval/success": success})

    rising = [line(1, 0.1, 0.5), line(2, 0.1), line(3, 0.3, 0.4), line(4, 0.4, 0.6), line(5, 0.1, 0.2)]
    assert divergences(rising) == pytest.approx(1 / 3)
    assert divergences(rising[:1]) is None


def test_the_curriculum_is_read_at_both_ends() -> None:
    lines = [MetricsLine(n, {"curriculum/difficulty": n / 10, "curriculum/success": 0.3 + n / 18}) for n in range(1, 7)]
    found = curriculum_of(lines)
    assert found["difficulty_first"] == pytest.approx(0.15)
    assert found["difficulty_last"] == pytest.approx(0.55)
    assert found["in_zone"] == pytest.approx(0.5)


def test_a_judge_that_knows_is_calibrated_by_other_tasks() -> None:
    rng = np.random.default_rng(0)
    tasks = [f"t{n // 4}" for n in range(2000)]
    said = rng.normal(size=2000)
    good = rng.random(2000) < 1 / (1 + np.exp(-2 * said + 0.5))
    made = probabilities(said, good, tasks)
    assert np.abs(made - 1 / (1 + np.exp(-2 * said + 0.5))).max() < 0.08
    found = calibration(1000 * said, good, tasks)
    assert found.ece < 0.05
    assert found.brier == pytest.approx(float(np.mean((made - good) ** 2)), abs=1e-6)  # whatever the reward's scale


def test_a_judge_that_says_nothing_has_the_base_rate() -> None:
    good = np.tile([True, False], 200)
    found = calibration(np.zeros(400), good, [f"t{n // 2}" for n in range(400)])
    assert (found.auc, found.brier) == (0.5, pytest.approx(0.25, abs=1e-3))


def test_a_judge_of_successes_alone_has_no_calibration() -> None:
    found = calibration(np.arange(8.0), np.ones(8, np.bool_), [f"t{n}" for n in range(8)])
    assert math.isnan(found.auc) and math.isnan(found.brier) and math.isnan(found.ece)
