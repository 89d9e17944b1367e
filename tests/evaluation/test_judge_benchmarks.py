"""Numbers of judges on labelled steps, by hand: thresholds are chosen elsewhere, and steps without a score are never a silent 0."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.errors import ConfigError
from stepwell.evaluation.intervals import Interval
from stepwell.evaluation.judge_benchmarks import prmbench, processbench, shape, steps
from stepwell.evaluation.judged import Judged, Result, halves
from stepwell.evaluation.step_metrics import (
    auc_over,
    best_threshold,
    bounds_of,
    calibration_error,
    first_below,
    harmonic,
    last_minimum,
    over_clusters,
)
from stepwell.rewards.confidence import auc


def judged(
    scores: Sequence[float | None], labels: Sequence[float | None], problem: str = "p", subset: str = "x", cut: bool = False
) -> Judged:
    return Judged(problem, subset, tuple(scores), tuple(labels), tuple(range(1, len(labels) + 1)), cut)


def of(results: Sequence[Result], who: str, subset: str = "x") -> dict[str, float]:
    (found,) = [one for one in results if one.who == who and one.subset == subset and "auc" not in one.numbers]
    return {name: number.mean for name, number in found.numbers.items()}


FOUR = [
    judged([0.9, 0.2, 0.1], [1.0, 0.0, None], "a"),
    judged([0.4, 0.9], [1.0, 0.0], "b"),
    judged([0.9, 0.8], [1.0, 1.0], "c"),
    judged([0.3, 0.8], [1.0, 1.0], "d"),
]


def test_processbench_by_hand() -> None:
    """At 1/2 the first error is found in one of two, and one of two right solutions passes."""
    results, told = processbench(FOUR, threshold=0.5)
    assert of(results, "judge") == {"error_accuracy": 0.5, "correct_accuracy": 0.5, "f1": 0.5} and told == "0.5, as given"
    assert of(results, "all correct") == {"error_accuracy": 0.0, "correct_accuracy": 1.0, "f1": 0.0}
    guess = of(results, "random step or none")
    assert guess["error_accuracy"] == pytest.approx((1 / 4 + 1 / 3) / 2) and guess["correct_accuracy"] == pytest.approx(1 / 3)
    assert of(processbench(FOUR, threshold=0.0)[0], "judge")["f1"] == 0.0


def test_no_threshold_has_seen_what_it_is_used_on() -> None:
    """U13: a judge that is right at another threshold on every problem is only as good as the other half says. With more problems than the
    threshold has seen, the in-sample best is never reached by construction here."""
    rng = np.random.default_rng(0)
    many = [judged([*rng.uniform(size=3)], [1.0, 0.0, None] if n % 2 else [1.0, 1.0, 1.0], str(n)) for n in range(60)]
    wrong = np.array([one.first_error >= 0 for one in many])
    in_sample = processbench(many, threshold=best_threshold([one.bounds for one in many], wrong))[0]
    results, told = processbench(many)
    assert of(results, "judge")["f1"] < of(in_sample, "judge")["f1"] and "the best on the other half" in told
    half, right = halves(many), np.zeros(len(many), np.bool_)
    for side in (False, True):
        other = [one for one, h in zip(many, half, strict=True) if h != side]
        chosen = best_threshold([one.bounds for one in other], np.array([one.first_error >= 0 for one in other]))
        assert f"{chosen:.4g}" in told
        right |= (half == side) & np.array([one.bounds.low < chosen <= one.bounds.high for one in many])
    assert of(results, "judge")["error_accuracy"] == pytest.approx(right[wrong].mean())
    assert of(results, "judge")["correct_accuracy"] == pytest.approx(right[~wrong].mean())
    tuned, told = processbench(FOUR, tune=many)
    assert told == f"{best_threshold([one.bounds for one in many], wrong):.4g}, the best on 60 other solutions"
    assert tuned[0].solutions == 4


def test_halves_are_of_problems() -> None:
    many = [judged([0.5], [1.0], str(n // 3)) for n in range(30)]
    half = halves(many)
    assert half.sum() == 15 and all(len(set(half[at : at + 3])) == 1 for at in range(0, 30, 3))
    with pytest.raises(ConfigError, match="All solutions are on one problem"):
        processbench([judged([0.5, 0.2], [1.0, 0.0])])


def test_a_step_without_a_score_is_never_a_silent_zero() -> None:
    """It is not below any threshold; where it is the wrong one, or the solution was cut before its end, the judge is wrong."""
    assert of(processbench([judged([None, 0.1], [1.0, 0.0])], threshold=0.5)[0], "judge")["error_accuracy"] == 1.0
    assert of(processbench([judged([0.9, None], [1.0, 0.0])], threshold=0.5)[0], "judge")["error_accuracy"] == 0.0
    assert of(processbench([judged([0.9, None], [1.0, 1.0])], threshold=0.5)[0], "judge")["correct_accuracy"] == 1.0
    assert of(processbench([judged([0.9, None], [1.0, 1.0], cut=True)], threshold=0.5)[0], "judge")["correct_accuracy"] == 0.0
    numbers = of(prmbench([judged([None, None, 0.9], [1.0, 0.0, 1.0])], threshold=0.5)[0], "judge")
    assert numbers["step_accuracy"] == pytest.approx(1 / 3) and numbers["first_error_accuracy"] == 0.0


def test_prmbench_by_hand() -> None:
    """Right steps: 3 of which 2 pass; wrong ones: 2 of which 1 is caught."""
    one = [judged([0.9, 0.8, 0.1], [1.0, 0.0, 1.0], "a"), judged([0.9, 0.2], [1.0, 0.0], "b")]
    results, told = prmbench(one)
    found = of(results, "judge")
    assert told == "0.5, as in the benchmark"
    assert found["f1"] == pytest.approx(4 / 6) and found["negative_f1"] == pytest.approx(0.5)
    assert found["prmscore"] == pytest.approx((4 / 6 + 0.5) / 2) and found["first_error_accuracy"] == 0.5 and found["step_accuracy"] == 0.6
    everything = of(results, "all correct")
    assert everything["f1"] == pytest.approx(6 / 8) and everything["negative_f1"] == 0.0
    coin = of(results, "a coin for each step")
    assert coin["f1"] == pytest.approx(2 * 1.5 / (2 * 1.5 + 1 + 1.5)) and coin["step_accuracy"] == 0.5


def test_numbers_that_are_no_probabilities_get_a_threshold_of_the_other_half() -> None:
    many = [judged([3.0, -2.0], [1.0, 0.0], str(n)) for n in range(8)]
    results, told = prmbench(many)
    assert "the best on the other half" in told and of(results, "judge")["prmscore"] == 1.0
    assert set(steps(many)[0].numbers) == {"auc"}, "and no calibration"


def test_steps_by_hand() -> None:
    """One of two pairs is in order; a label of 1/2 and a step that nobody labelled leave the number as it is."""
    one = [judged([0.7, 0.2, 0.5, 0.9], [1.0, 0.0, None, 0.5], "a"), judged([0.1], [1.0], "b")]
    by = {result.who: result.numbers for result in steps(one)}
    assert by["judge"]["auc"].mean == 0.5
    assert by["judge"]["accuracy"].mean == pytest.approx(2 / 3) and by["judge"]["right_steps"].mean == pytest.approx(2 / 3)
    assert by["judge"]["brier"].mean == pytest.approx((0.09 + 0.04 + 0.81) / 3)
    assert by["length of the step"]["auc"].mean == 1.0, "the wrong step is the longest of the three"
    assert by["position of the step"]["auc"].mean == 1.0


def test_subsets_and_all_together() -> None:
    two = [judged([0.9, 0.1], [1.0, 0.0], "a", "m"), judged([0.1], [1.0], "b", "n")]
    results, _ = processbench(two, threshold=0.5)
    by = {one.subset: one for one in results if one.who == "judge"}
    assert set(by) == {"m", "n", "all"} and by["all"].solutions == 2
    assert by["m"].numbers["error_accuracy"].mean == 1.0 and math.isnan(by["m"].numbers["correct_accuracy"].mean)
    assert math.isnan(by["m"].numbers["f1"].mean) and by["all"].numbers["f1"].mean == 0.0


def test_an_outcome_model_in_disguise_shows() -> None:
    """Its least score is that of the last step; solutions of one step, or cut, say nothing."""
    some = [
        judged([0.9, 0.5, 0.1], [1.0] * 3),
        judged([0.1, 0.1], [1.0] * 2),
        judged([0.3], [1.0]),
        judged([0.9, 0.1], [1.0] * 2, cut=True),
    ]
    assert shape(some) == {"minimum_last": 0.75, "minimum_last_by_chance": pytest.approx((1 / 3 + 1 / 2) / 2)}
    assert math.isnan(shape([judged([0.3], [1.0])])["minimum_last"]) and math.isnan(last_minimum(np.array([1.0])))


# -- laws ------------------------------------------------------------------------------------------------------------------------

SCORES = st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.7, 1.0]), min_size=1, max_size=6)


@given(SCORES, st.integers(-1, 5), st.floats(-0.5, 1.5))
def test_bounds_say_what_the_rule_says(scores: list[float], error: int, threshold: float) -> None:
    error = min(error, len(scores) - 1)
    low, high = bounds_of(np.array(scores), error)
    assert (low < threshold <= high) == (first_below(np.array(scores), threshold) == error)


@given(st.lists(st.tuples(SCORES, st.booleans(), st.integers(0, 5)), min_size=1, max_size=8))
def test_no_threshold_is_better_than_the_best(some: list[tuple[list[float], bool, int]]) -> None:
    made = [(np.array(s), min(at, len(s) - 1) if wrong else -1) for s, wrong, at in some]
    bounds, wrong = [bounds_of(s, e) for s, e in made], np.array([e >= 0 for _, e in made])

    def reached(threshold: float) -> float:
        right = np.array([b.low < threshold <= b.high for b in bounds])
        parts = [right[w].mean() for w in (wrong, ~wrong) if w.any()]
        return float(parts[0] if len(parts) == 1 else harmonic(*parts))

    best = reached(best_threshold(bounds, wrong))
    assert all(reached(t) <= best + 1e-12 for t in (-1.0, 0.0, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.9, 1.0, 2.0))


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.booleans()), min_size=1, max_size=12))
def test_auc_is_the_share_of_ordered_pairs(pairs: list[tuple[float, bool]]) -> None:
    scores, good = np.array([s for s, _ in pairs]), np.array([g for _, g in pairs])
    against = [(a > b) + 0.5 * (a == b) for a in scores[good] for b in scores[~good]]
    expected = float(np.mean(against)) if against else math.nan
    assert auc(scores, good) == pytest.approx(expected, nan_ok=True)
    assert auc_over(scores, good, np.arange(len(pairs))).mean == pytest.approx(expected, nan_ok=True)


def test_intervals_draw_whole_problems() -> None:
    """Ten copies of a problem say no more than one."""
    rng = np.random.default_rng(1)
    wins = rng.integers(0, 2, 40).astype(float)
    sums = np.stack([wins, np.ones(40)], axis=1)
    once, tenfold = (over_clusters(sums * n, lambda s: s[..., 0] / s[..., 1]) for n in (1.0, 10.0))
    assert once == tenfold and once.low < once.mean < once.high and 0.2 < once.high - once.low < 0.4
    scores, good = rng.uniform(size=40), wins > 0
    alone = auc_over(scores, good, np.arange(40))
    repeated = auc_over(np.tile(scores, 10), np.tile(good, 10), np.tile(np.arange(40), 10))
    assert repeated == pytest.approx(alone)
    assert over_clusters(np.zeros((0, 2)), lambda s: s[..., 0]) == pytest.approx(Interval(math.nan, math.nan, math.nan), nan_ok=True)


def test_calibration() -> None:
    said = np.array([0.2] * 10 + [0.8] * 10)
    good = np.array([True] * 2 + [False] * 8 + [True] * 8 + [False] * 2)
    assert calibration_error(said, good, bins=2) == pytest.approx(0.0)
    assert calibration_error(said, ~good, bins=2) == pytest.approx(0.6)
    with pytest.raises(ValueError, match=r"lie in \[0\.2, 1\.8\]"):
        calibration_error(said + np.arange(20) // 10, good)
    with pytest.raises(ValueError, match="1 scores, 2 labels and 2 sizes"):
        judged([0.1], [1.0, 0.0])
