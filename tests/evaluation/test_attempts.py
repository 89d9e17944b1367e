"""pass@k, pass^k, best-of-k, votes and breadth: equal to enumeration of all subsets, and to values by hand."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.errors import ConfigError
from stepwell.evaluation.aggregate import of_steps
from stepwell.evaluation.attempts import best_of_k, g_pass_at_k, pass_at_k, pass_hat_k
from stepwell.evaluation.breadth import breadth, coverage, hill, rarefied
from stepwell.evaluation.clustered import clustered_error, clustered_wilson, student, student_interval
from stepwell.evaluation.votes import best, classes, majority, majority_at_k, weighted


@st.composite
def _attempts(draw: st.DrawFn) -> tuple[list[bool], int]:
    right = draw(st.lists(st.booleans(), min_size=1, max_size=8))
    return right, draw(st.integers(1, len(right)))


@given(_attempts())
def test_closed_forms_are_means_over_all_subsets(drawn: tuple[list[bool], int]) -> None:
    right, k = drawn
    n, c = len(right), sum(right)
    subsets = list(combinations(right, k))
    assert pass_at_k(n, c, k) == pytest.approx(np.mean([any(one) for one in subsets]))
    assert pass_hat_k(n, c, k) == pytest.approx(np.mean([all(one) for one in subsets]))
    for threshold in (0.0, 0.3, 0.5, 1.0):
        enough = [sum(one) >= max(1, math.ceil(threshold * k)) for one in subsets]
        assert g_pass_at_k(n, c, k, threshold) == pytest.approx(np.mean(enough))


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=7), st.data())
def test_best_of_k_is_the_mean_over_subsets_with_ties_shared(pairs: list[tuple[int, float]], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(pairs)))
    scores, values = [float(score) for score, _ in pairs], [value for _, value in pairs]
    chosen = []
    for subset in combinations(range(len(pairs)), k):
        top = max(scores[i] for i in subset)
        chosen.append(np.mean([values[i] for i in subset if scores[i] == top]))
    assert best_of_k(scores, values, k) == pytest.approx(np.mean(chosen))
    assert best_of_k(values, values, k) >= best_of_k(scores, values, k) - 1e-12


def test_best_of_k_by_the_truth_is_pass_at_k() -> None:
    right = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    for k in range(1, 7):
        assert best_of_k(right, right, k) == pytest.approx(pass_at_k(6, 2, k))


def test_values_of_the_trackers() -> None:  # U70
    assert pass_at_k(4, 1, 4) == 1.0
    assert (pass_at_k(8, 3, 1), round(pass_at_k(8, 3, 4), 3)) == (0.375, 0.929)
    with pytest.raises(ConfigError, match="k is 10 with 1 attempts at a problem; k may be 1 to 1"):
        pass_at_k(1, 1, 10)


@pytest.mark.parametrize("measure", [pass_at_k, pass_hat_k])
@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5)])
def test_what_cannot_be_is_refused(measure: object, n: int, c: int, k: int) -> None:
    assert callable(measure)
    with pytest.raises(ConfigError):
        measure(n, c, k)


def test_large_numbers_are_exact() -> None:
    assert pass_at_k(10_000, 1, 5_000) == 0.5
    assert best_of_k(list(range(2000)), [1.0] * 2000, 1000) == pytest.approx(1.0)


def test_best_of_k_refuses_what_is_no_score() -> None:
    with pytest.raises(ConfigError, match="Got 2 scores for 1 values"):
        best_of_k([1, 2], [1], 1)
    with pytest.raises(ConfigError, match="not finite; leave unscored attempts out"):
        best_of_k([1, math.nan], [1, 0], 1)
    with pytest.raises(ConfigError, match="threshold of G-Pass@k is 2"):
        g_pass_at_k(4, 2, 2, 2)


# -- votes --------------------------------------------------------------------------------------------------------------------

ANSWERS = [0, 0, 1, 1, 1, 2, None]
RIGHT = [True, True, False, False, False, True, False]


@pytest.mark.parametrize("k", range(1, 8))
def test_maj_at_k_is_the_mean_over_subsets(k: int) -> None:
    expected = []
    for subset in combinations(range(7), k):
        votes = [ANSWERS[i] for i in subset if ANSWERS[i] is not None]
        top = max((votes.count(a) for a in votes), default=0)
        tied = {a for a in votes if votes.count(a) == top}
        expected.append(np.mean([a != 1 for a in tied]) if tied else 0.0)
    assert majority_at_k(ANSWERS, RIGHT, k, np.random.default_rng(0)) == pytest.approx(np.mean(expected))


def test_maj_at_1_is_the_share_of_right_answers_and_at_n_the_vote() -> None:
    assert majority_at_k(ANSWERS, RIGHT, 1, np.random.default_rng(0)) == pytest.approx(3 / 7)
    assert majority_at_k(ANSWERS, RIGHT, 7, np.random.default_rng(0)) == 0.0


def test_random_subsets_come_close_and_repeat() -> None:
    answers: list[int | None] = [0] * 12 + [1] * 10 + [None] * 3
    right = [True] * 12 + [False] * 13
    found = majority_at_k(answers, right, 9, np.random.default_rng(3))
    assert found == majority_at_k(answers, right, 9, np.random.default_rng(3))
    whole = math.comb(25, 9)
    exact = 0.0
    for a in range(10):
        for b in range(10 - a):
            ways = math.comb(12, a) * math.comb(10, b) * math.comb(3, 9 - a - b) / whole
            exact += ways * (1.0 if a > b else 0.5 if a == b and a > 0 else 0.0)
    assert found == pytest.approx(exact, abs=0.035)


def test_weights_turn_a_vote() -> None:
    weights = [0.9, 0.9, 0.1, 0.1, 0.1, 0.1, 5.0]
    assert majority_at_k(ANSWERS, RIGHT, 7, np.random.default_rng(0), weights_N=weights) == 1.0
    assert weighted(ANSWERS, weights) == 0
    assert majority(ANSWERS) == 1
    assert majority([None, None]) is None
    assert majority([3, 1, 1, 3]) == 3
    assert best([0.1, 0.7, 0.7]) == 1


def test_votes_refuse_what_does_not_fit() -> None:
    with pytest.raises(ConfigError, match="maj@8 was asked for with 7 attempts at a problem; k may be 1 to 7"):
        majority_at_k(ANSWERS, RIGHT, 8, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="Got 7 answers, 1 verdicts and 7 weights"):
        majority_at_k(ANSWERS, [True], 1, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="no attempt to choose from"):
        best([])


def test_classes_are_by_meaning() -> None:
    asked: list[tuple[str, str]] = []

    def same(one: str, other: str) -> bool:
        asked.append((one, other))
        return float(one) == float(other)

    assert classes(["0.5", "3", None, ".5", "3.0", "0.5", "7"], same) == [0, 1, None, 0, 1, 0, 2]
    assert all(one != other for one, other in asked)
    assert classes([], same) == []


# -- breadth ------------------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=8), st.data())
def test_rarefied_is_the_mean_number_over_subsets(approaches: list[str | None], data: st.DataObject) -> None:
    m = data.draw(st.integers(1, len(approaches)))
    counts = [approaches.count(one) for one in ("a", "b", "c")]
    expected = np.mean([len(set(subset) - {None}) for subset in combinations(approaches, m)])
    assert rarefied(counts, len(approaches), m) == pytest.approx(expected)


def test_breadth_is_per_problem_and_does_not_grow_with_problems_or_attempts() -> None:
    one = ["x", "x", "y", None]
    assert breadth([one], 2).distinct.mean == pytest.approx(breadth([one] * 5, 2).distinct.mean)
    assert breadth([one * 50], 2).distinct.mean == pytest.approx(0.75 + 0.4375, abs=0.01)
    found = breadth([one, [None] * 4], 4)
    assert (found.distinct.mean, found.attempts) == (1.0, 4)
    assert found.common.mean == pytest.approx(1 / (4 / 9 + 1 / 9))
    assert found.entropy.mean == pytest.approx(math.exp(-(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3)))
    assert math.isnan(breadth([[None, None]], 1).entropy.mean)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_hill_numbers_fall_with_their_order_and_are_at_most_the_number(counts: list[int]) -> None:
    numbers = [hill(counts, order) for order in (0, 0.5, 1, 2, 5)]
    assert numbers[0] == pytest.approx(len(counts))
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(numbers))
    assert numbers[-1] >= 1 - 1e-9
    assert hill(counts, 1) == pytest.approx(hill(counts, 1 + 1e-7), rel=1e-4)
    assert hill([7] * len(counts), 2) == pytest.approx(len(counts))


def test_breadth_refuses_what_does_not_fit() -> None:
    with pytest.raises(ConfigError, match="Breadth at 5 attempts was asked for, and a problem has 4; it may be 1 to 4"):
        breadth([["x", "x", "y", None]], 5)
    with pytest.raises(ConfigError, match="no problem"):
        breadth([], 1)
    with pytest.raises(ConfigError, match="do not fit into 2 attempts"):
        rarefied([2, 1], 2, 1)
    with pytest.raises(ConfigError, match="at least one attempt"):
        hill([], 1)
    with pytest.raises(ConfigError, match="order of a Hill number is -1"):
        hill([1], -1)
    assert (coverage([]), coverage([4]), coverage([1, 3])) == (0.0, 1.0, 0.75)


# -- steps and errors ---------------------------------------------------------------------------------------------------------


def test_scores_of_steps() -> None:
    assert of_steps([0.9, 0.2, 0.7], "last") == 0.7
    assert of_steps([0.9, 0.2, 0.7], "mean") == pytest.approx(0.6)
    assert of_steps([0.5, 0.8], "log_odds") == pytest.approx(math.log(4))
    with pytest.raises(ConfigError, match="without steps"):
        of_steps([], "min")
    with pytest.raises(ConfigError, match=r"needs probabilities in \[0, 1\]; got -1 to 0.5"):
        of_steps([-1, 0.5], "product")


def test_log_odds_of_what_is_certain_are_finite_and_in_order() -> None:
    """A checker says 1 and 0, and a judge in float32 rounds to them."""
    sure, unsure, wrong, both = (of_steps(steps, "log_odds") for steps in ([1.0], [0.999], [0.0], [1.0, 0.0]))
    assert sure == pytest.approx(53 * math.log(2)) and wrong == -sure and both == 0.0
    assert sure > unsure > both > wrong
    assert of_steps([1.0, 1.0, 0.0], "log_odds") == sure


def test_errors_of_one_cluster_are_unknown_not_0() -> None:
    assert math.isnan(clustered_error([1, 0, 1], [0, 0, 0]))
    assert math.isnan(student_interval([1.0]).low)
    assert clustered_wilson([1, 0], [0, 0]) == (0.5, 0.0, 1.0)
    assert clustered_wilson([1, 1, 1, 1], [0, 0, 1, 1]).low < 0.3
    for bad in ([], [math.nan]):
        with pytest.raises(ValueError, match=r"values and|not finite"):
            clustered_error(bad, [0] * len(bad))
    with pytest.raises(ValueError, match="degrees of freedom"):
        student(0.3, 2)
    assert student(0.975, 100_000) == pytest.approx(1.95998771, abs=1e-6)
