"""Faults of other libraries with their right answers, by id: what judges say, how it is read, and what is chosen by it."""

from __future__ import annotations

import numpy as np
import pytest
from builders import make_episode, make_group, make_scored, make_task
from credit_rules import RULES, Listed, ready_group

from stepwell.credit import IStar, by_turn, credit_metrics
from stepwell.credit.min_form import least_to_go
from stepwell.errors import ConfigError, RecordError
from stepwell.evaluation.aggregate import Aggregate, of_steps
from stepwell.evaluation.votes import best, weighted
from stepwell.grading.extract import extract
from stepwell.grading.graded import Grade
from stepwell.grading.numbers import last_number, read_number
from stepwell.grading.numeric import Numeric
from stepwell.rewards.montecarlo import MonteCarlo, MonteCarloSettings
from stepwell.types import (
    Action,
    Ending,
    EndingKind,
    Episode,
    Group,
    Observation,
    Reply,
    Scored,
    Stop,
    Turn,
    Verdict,
)

A, B = [0.9, 0.2, 0.9], [0.6, 0.6]
FOUR = [None, None, None, None]


@pytest.mark.parametrize("listed", [listed for listed in RULES if listed.reads_rewards], ids=lambda listed: listed.name)
def test_u07_a_judge_that_was_down_for_four_steps_pays_them_nothing_and_is_counted(listed: Listed) -> None:
    """U07: unscored for 4 steps is neither four zeros nor anything to compare others with."""
    alive = (make_scored([1, 2], outcome=1.0, process=[0.5, 0.7]), make_scored([2, 1], outcome=0.0, process=[0.1, 0.3]))
    down = make_scored([1] * 4, outcome=0.0, process=FOUR)
    first, second, lost = listed.rule([ready_group(make_group(*alive, down))])[0].members
    assert credit_metrics([Group(make_task(), (first, second, lost))])["credit/unscored_steps"] == 4.0
    assert lost.told_S is None or "gigpo" in listed.name or "gae" in listed.name or not lost.told_S.any()
    strange = make_group(*alive, Scored(down.episode, down.steps, 0.0, {"judge": np.full(4, 5.0)}, np.zeros(4, np.bool_)))
    for one, two in zip((first, second, lost), listed.rule([ready_group(strange)])[0].members, strict=True):
        assert np.array_equal(one.advantages_S, two.advantages_S)


def test_u07_unscored_is_not_zero_and_a_short_list_is_refused() -> None:
    """U07: four zeros would lower the others' baseline; three numbers for four steps are told with task and member."""
    alive = (make_scored([1, 1], outcome=1.0, process=[0.5, 0.7]), make_scored([1, 1], outcome=1.0, process=[0.1, 0.3]))
    unscored, zeros = (make_scored([1] * 4, outcome=0.0, process=said) for said in (FOUR, [0.0] * 4))
    first, second = (IStar()([make_group(*alive, lost)])[0].members[0].advantages_S for lost in (unscored, zeros))
    assert not np.allclose(first, second)
    episode = make_episode([1] * 4)
    with pytest.raises(RecordError, match=r"Task 'test/0', member 0: rewards\['judge'\] has 3 entries; the episode has 4 steps"):
        Scored(episode, by_turn(episode), 1.0, {"judge": np.zeros(3)}, np.ones(4, np.bool_))
    with pytest.raises(RecordError, match="holds NaN or infinity; a step without a reward is marked in scored_S"):
        Scored(episode, by_turn(episode), 1.0, {"judge": np.full(4, np.nan)}, np.ones(4, np.bool_))


@pytest.mark.parametrize(
    ("said", "value"), [("Reward: 10", "10"), ("Reward: 1e-1", "0.1"), ("Reward: -0.5", "-0.5"), ("Reward: .5", "0.5")]
)
def test_u09_a_number_is_read_whole(said: str, value: str) -> None:
    """U09: 10, 0.1 and -0.5; never the 1 that two of them begin with, nor 0 for what is not read."""
    assert read_number(last_number(said) or "") == read_number(value)
    assert Numeric("any").grade(value, said).grade is Grade.RIGHT
    assert [Numeric("any").grade(wrong, said).grade for wrong in ("1", "0")] == [Grade.WRONG] * 2
    assert extract("Reward: none", "any") is None and Numeric("any").grade("0", "Reward: none").grade is Grade.UNPARSED


@pytest.mark.parametrize(
    ("how", "of_a", "of_b"),
    [("min", 0.2, 0.6), ("product", 0.162, 0.36), ("mean", 2 / 3, 0.6), ("last", 0.9, 0.6), ("log_odds", 3.0082, 0.8109)],
)
def test_u10_who_is_chosen_depends_on_how_steps_become_one_score(how: Aggregate, of_a: float, of_b: float) -> None:
    """U10: the worst step and the product choose B, the mean and the last step A; so the way has no default."""
    assert [of_steps(A, how), of_steps(B, how)] == pytest.approx([of_a, of_b], abs=1e-4)
    assert best([of_steps(A, how), of_steps(B, how)]) == (1 if how in ("min", "product") else 0)
    with pytest.raises(TypeError):
        of_steps(A)  # type: ignore[call-arg]


def test_u11_an_unfinished_attempt_is_not_chosen() -> None:
    """U11: two steps of 0.9 without an answer have the higher product (0.81) than five of 0.95 with one (0.774)."""
    scores = [of_steps([0.9] * 2, "product"), of_steps([0.95] * 5, "product")]
    assert scores == pytest.approx([0.81, 0.774], abs=1e-3)
    assert best(scores) == 0 and best(scores, [None, 7]) == 1
    assert weighted([None, 7], scores) == 7
    with pytest.raises(ConfigError, match="None of the 2 attempts has an answer"):
        best(scores, [None, None])
    with pytest.raises(ConfigError, match="Got 2 scores for 1 answers"):
        best(scores, [7])


def test_an_attempt_without_a_score_is_not_the_best() -> None:
    """U11, U07: NaN is no score; taken as one it would win."""
    with pytest.raises(ConfigError, match="not finite; leave unscored attempts out"):
        best([0.5, float("nan")])
    with pytest.raises(ConfigError, match="not finite; leave unscored attempts out"):
        weighted([0, 1], [0.5, float("nan")])


def test_u14_the_minimum_does_not_see_how_a_text_is_cut() -> None:
    """U14: one text as two steps (0.8, 0.6) or as one (0.6). The sum is 1.4 or 0.6 and the mean 0.7 or 0.6."""
    two, one = [0.8, 0.6], [0.6]
    assert least_to_go(np.array(two))[0] == least_to_go(np.array(one))[0] == of_steps(two, "min") == of_steps(one, "min") == 0.6
    assert [sum(two), of_steps(two, "mean")] == pytest.approx([1.4, 0.7])
    assert [sum(one), of_steps(one, "mean")] == [0.6, 0.6]


def _branch(score: float, member: int, said: int) -> Episode:
    """Two turns: all branches share the first, and each says something else in the second."""
    first, second = np.array([1, 2]), np.array([1, 2, 10, 3])
    turns = tuple(
        Turn(context, np.array([token]), np.array([-1.0]), "", Action("look"), Reply(Observation("")), Stop.EOS, 0)
        for context, token in ((first, 10), (second, said))
    )
    return Episode(make_task(), member, Observation(""), turns, Ending(EndingKind.TERMINATED), Verdict.of(score))


def _never(prefixes: object) -> list[Episode]:
    raise AssertionError("visits draw nothing")


@pytest.mark.parametrize("order", [(1.0, 0.0), (0.0, 1.0)])
def test_u26_branches_do_not_leak_into_each_other_whatever_their_order(order: tuple[float, float]) -> None:
    """U26: a root with children worth 1 and 0, discount 0.9: the root is worth 0.45 (in a line it would be 0.9 or 0.81)."""
    group = Group(make_task(), tuple(_branch(score, n, 20 + int(score)) for n, score in enumerate(order)))
    (places,), _ = MonteCarlo(_never, MonteCarloSettings(source="visits", discount=0.9))([group])
    for made, score in zip(places, order, strict=True):
        assert made.worth[1:] == pytest.approx(np.array([0.45, score]))
