"""Laws of choosing: what a rule is worth with n candidates, against the mean over all subsets, each chosen from by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pools import pool

from stepwell.evaluation.attempts import pass_at_k
from stepwell.searching.choose import ceiling, choose, weights, worth
from stepwell.searching.pool import Pool
from stepwell.searching.settings import SAMPLED, Method

Drawn = tuple[list[int | None], list[float | None]]
SCORES = st.one_of(st.none(), st.sampled_from([0.1, 0.25, 0.5, 0.75, 0.9]))
CANDIDATES = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 3)), SCORES), min_size=1, max_size=7)


def made(drawn: Sequence[tuple[int | None, float | None]], right: Sequence[int] = (0, 2)) -> Pool:
    return pool([answer for answer, _ in drawn], right, [score for _, score in drawn])


def rated(one: Pool, method: Method, n: int, *, probability: bool = True) -> float:
    return worth(one, method, n, np.random.default_rng(0), probability=probability)


def by_hand(one: Pool, method: Method, drawn: Sequence[int]) -> float:
    """What the rule takes of these candidates, equal ones sharing; written without any of the code under test."""
    eligible = [one.candidates[i] for i in drawn if one.candidates[i].answer is not None]
    if not eligible:
        return 0.0
    if method == "best_of_n":
        scored = [c for c in eligible if c.score is not None]
        best = [c for c in scored if c.score == max(s.score for s in scored if s.score is not None)] or eligible
        return sum(c.right for c in best) / len(best)
    votes: dict[int, float] = {}
    for c in eligible:
        assert c.answer is not None
        vote = {"majority": 1.0, "weighted": c.score or 0.0, "group": 0.0 if c.score is None else math.exp(c.score)}[method]
        votes[c.answer] = votes.get(c.answer, 0.0) + vote
    leaders = [answer for answer, total in votes.items() if total > max(votes.values()) - 1e-9]
    return sum(any(c.right for c in eligible if c.answer == answer) for answer in leaders) / len(leaders)


@pytest.mark.parametrize("method", SAMPLED)
@given(drawn=CANDIDATES, data=st.data())
def test_it_is_the_mean_over_all_subsets(method: Method, drawn: list[tuple[int | None, float | None]], data: st.DataObject) -> None:
    one = made(drawn)
    n = data.draw(st.integers(1, len(drawn)))
    expected = np.mean([by_hand(one, method, chosen) for chosen in combinations(range(len(drawn)), n)])
    assert rated(one, method, n) == pytest.approx(expected)


@given(drawn=CANDIDATES, data=st.data())
def test_with_a_perfect_judge_best_of_n_is_pass_at_n(drawn: list[tuple[int | None, float | None]], data: st.DataObject) -> None:
    answers = [answer for answer, _ in drawn]
    perfect = pool(answers, (0, 2), [float(answer in (0, 2)) for answer in answers])
    n = data.draw(st.integers(1, len(drawn)))
    assert rated(perfect, "best_of_n", n) == pytest.approx(ceiling(perfect, n), abs=1e-12)
    assert ceiling(perfect, n) == pass_at_k(len(answers), sum(answer in (0, 2) for answer in answers), n)


@pytest.mark.parametrize("method", ["weighted", "group"])
@given(answers=st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=7), score=st.floats(0.1, 1.0), data=st.data())
def test_with_a_judge_that_says_one_number_a_weighted_vote_is_the_majority(
    method: Method, answers: list[int | None], score: float, data: st.DataObject
) -> None:
    one = pool(answers, (0, 2), [score] * len(answers))
    n = data.draw(st.integers(1, len(answers)))
    assert rated(one, method, n) == pytest.approx(rated(one, "majority", n))
    assert rated(one, method, n, probability=False) == pytest.approx(rated(one, "majority", n))


@pytest.mark.parametrize("method", SAMPLED)
@given(drawn=CANDIDATES)
def test_an_unfinished_candidate_is_never_chosen_and_has_no_vote(method: Method, drawn: list[tuple[int | None, float | None]]) -> None:
    best_but_unfinished = made([*drawn, (None, 1.0)])
    member, _ = choose(best_but_unfinished, method, probability=True)
    eligible = [at for at, (answer, _) in enumerate(drawn) if answer is not None]
    assert member in eligible if eligible else member is None
    assert rated(best_but_unfinished, method, len(drawn) + 1) == pytest.approx(rated(made(drawn), method, len(drawn)))


@pytest.mark.parametrize("method", SAMPLED)
@given(drawn=CANDIDATES)
def test_the_choice_is_what_the_curve_says_of_all_candidates_where_nothing_is_tied(
    method: Method, drawn: list[tuple[int | None, float | None]]
) -> None:
    one = made(drawn)
    member, tied = choose(one, method, probability=True)
    if not tied:
        assert rated(one, method, len(drawn)) == float(member is not None and one.candidates[member].right)


def test_equal_answers_share_and_the_first_sampled_is_taken() -> None:
    one = pool([1, 0, 0, 1], (0,), [0.9, 0.9, 0.2, 0.1])
    assert choose(one, "best_of_n", probability=True) == (0, True) and rated(one, "best_of_n", 4) == 0.5
    assert choose(one, "majority", probability=True) == (0, True) and rated(one, "majority", 4) == 0.5
    assert choose(one, "weighted", probability=True) == (1, False), "0.9 + 0.2 against 0.9 + 0.1"
    same = pool([0, 0], (0,), [0.5, 0.5])
    assert choose(same, "best_of_n", probability=True) == (0, False), "of one answer, it does not matter who gives it"


def test_the_group_gives_its_best_member() -> None:
    """exp(0.5) + exp(0.4) against exp(0.8): rePIRL's group score."""
    one = pool([0, 1, 1], (1,), [0.8, 0.4, 0.5])
    assert choose(one, "group", probability=False) == (2, False)
    assert choose(one, "best_of_n", probability=False) == (0, False)
    assert rated(one, "group", 3, probability=False) == 1.0


def test_votes_weigh_probabilities_as_they_are_and_other_scores_by_their_sigmoid() -> None:
    one = pool([0, 1, 1], (0,), [0.9, 0.3, None])
    assert weights(one, "weighted", probability=True) == [0.9, 0.3, 0.0]
    assert weights(one, "weighted", probability=False) == pytest.approx([1 / (1 + math.exp(-0.9)), 1 / (1 + math.exp(-0.3)), 0.0])
    far = pool([0, 1], (0,), [-800.0, 800.0])
    assert weights(far, "weighted", probability=False) == pytest.approx([0.0, 1.0])
    assert weights(far, "group", probability=False) == pytest.approx([0.0, 1.0])


def test_whoever_the_judge_says_nothing_of_comes_behind_all_others() -> None:
    one = pool([1, 0], (0,), [None, -5.0])
    assert choose(one, "best_of_n", probability=False).member == 1
    assert rated(pool([1, 0], (0,), [None, None]), "best_of_n", 2) == 0.5


def test_many_subsets_are_drawn_at_random_and_the_same_for_one_seed() -> None:
    rng = np.random.default_rng(3)
    answers: list[int | None] = [int(a) for a in rng.integers(0, 4, 20)]
    one = pool(answers, (0,), [float(s) for s in rng.random(20)])
    found = rated(one, "weighted", 8)
    assert found == rated(one, "weighted", 8) and math.comb(20, 8) > 2000
    exact = np.mean([by_hand(one, "weighted", chosen) for chosen in list(combinations(range(20), 8))[::17]])
    assert found == pytest.approx(exact, abs=0.04)


def test_rounding_does_not_decide() -> None:
    one = pool([0, 1], (1,), [0.7, sum([0.7] * 3) / 3])
    assert one.candidates[0].score != one.candidates[1].score
    assert choose(one, "best_of_n", probability=False) == (0, True) and rated(one, "best_of_n", 2) == 0.5
