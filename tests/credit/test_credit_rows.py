"""Faults of other libraries that show only where credit meets tokens: through the real judge's steps, rules and row builder (ids U..)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from builders import make_group, make_scored
from credit_rules import RULES, Listed, ready_group

from stepwell.credit import Centred, IStar, LeaveOneOut, OutcomeOnly, Prime, ProcessToGo, RePIRL, Standardised, by_token, spread
from stepwell.engine.batch import policy_rows
from stepwell.losses import token_weights
from stepwell.losses.reduce import Averaging
from stepwell.protocols import Assign
from stepwell.types import Credited, Episode, Group, Ids, Row, Scored

OBSERVATION = [7, 7, 7]


def talking(member: Scored, *, rewrites: bool = False) -> Scored:
    """With contexts as in a chat: each turn sees all before it and an observation (or, where the template rewrites the past, something
    else, so that every turn is a row of its own)."""
    turns, context = [], [1, *OBSERVATION]
    for number, turn in enumerate(member.episode.turns):
        turns.append(replace(turn, context_ids=np.array([90 + number, *context] if rewrites else context)))
        context = [*context, *turn.token_ids.tolist(), *OBSERVATION]
    return replace(member, episode=replace(member.episode, turns=tuple(turns)))


def rows_of(groups: Sequence[Group[Credited]], averaging: Averaging = "token") -> list[Row]:
    constant = 1.0 if averaging == "constant" else None
    return policy_rows(groups, lambda n: token_weights(n, averaging, constant=constant), lambda scored: scored.episode.logprobs_T)


def per_episode(rows: Sequence[Row], column: str) -> list[list[float]]:
    episodes = sorted({row.episode for row in rows})
    return [
        [float(v) for row in rows if row.episode == e for v in (row.advantage if column == "advantage" else row.weight)] for e in episodes
    ]


def credit(rule: Assign, *members: Scored, rewrites: bool = False) -> list[Group[Credited]]:
    return rule([make_group(*(talking(member, rewrites=rewrites) for member in members))])


@pytest.mark.parametrize(
    ("rule", "high"),
    [
        (OutcomeOnly(Centred()), 0.5),
        (OutcomeOnly(Standardised(ddof=0, noise_floor=0.0)), 1.0),
        (OutcomeOnly(Standardised(ddof=1, noise_floor=0.0)), 0.75**0.5),
        (OutcomeOnly(LeaveOneOut()), 2 / 3),
    ],
)
def test_u17_the_group_is_the_task_not_the_trajectory(rule: Assign, high: float) -> None:
    """One task, rewards 1, 0, 1, 0: every token of a row has its episode's advantage, and they sum to 0."""
    rows = rows_of(credit(rule, *(make_scored([2, 1], outcome=outcome) for outcome in (1.0, 0.0, 1.0, 0.0))))
    assert {row.group for row in rows} == {0}
    assert per_episode(rows, "advantage") == [pytest.approx([high * sign] * 3) for sign in (1, -1, 1, -1)]


def test_u18_what_the_environment_says_to_one_member_does_not_split_the_group() -> None:
    """Prompts that differ by a workspace path: the task's key is the group."""
    members = [talking(make_scored([1], outcome=outcome)) for outcome in (1.0, 0.0)]
    turn = members[1].episode.turns[0]
    noisy = replace(members[1].episode, turns=(replace(turn, context_ids=np.array([1, 55, 56, 57])),))
    rows = rows_of(OutcomeOnly(Centred())([make_group(members[0], replace(members[1], episode=noisy))]))
    assert [row.advantage.tolist() for row in rows] == [[0.5], [-0.5]]


def test_u20_a_row_that_failed_is_no_row_and_no_baseline() -> None:
    members = [make_scored([1], outcome=1.0), make_scored([1], outcome=0.0), make_scored([3], outcome=1.0, failed=True)]
    rows = rows_of(credit(OutcomeOnly(Centred()), *members))
    assert [row.advantage.tolist() for row in rows] == [[0.5], [-0.5]]


def test_u22_a_short_success_and_a_long_failure_stay_one_and_minus_one() -> None:
    rows = rows_of(credit(OutcomeOnly(Centred()), make_scored([1], outcome=1.0), make_scored([1] * 9, outcome=-1.0)))
    assert per_episode(rows, "advantage") == [[1.0], [-1.0] * 9]


def test_u23_steps_with_different_masks_all_get_the_advantage() -> None:
    """Steps of three tokens and of one, each a row of its own: 0.7 at all sampled tokens, and targets are nothing but these."""
    [group] = credit(OutcomeOnly(Centred()), make_scored([3, 1], outcome=1.4), make_scored([1], outcome=0.0), rewrites=True)
    first = [row for row in rows_of([group]) if row.episode == 0]
    assert [row.advantage.tolist() for row in first] == [pytest.approx([0.7] * 3), pytest.approx([0.7])]
    assert [row.ids[row.targets].tolist() for row in first] == [[0, 1, 2], [3]]


@pytest.mark.parametrize("listed", RULES, ids=lambda listed: listed.name)
def test_u24_u39_u43_advantages_stand_at_sampled_tokens_alone(listed: Listed) -> None:
    """Observations between turns, rows split or joined: the targets are the sampled tokens, each with its own step's advantage."""
    members = ready_group(
        make_group(make_scored([2, 1, 3], outcome=1.0, process=[0.1, 0.4, -0.2]), make_scored([1, 1], outcome=0.0, process=[0.3, 0.2]))
    ).members
    for rewrites in (False, True):
        credited = listed.rule([make_group(*(talking(member, rewrites=rewrites) for member in members))])
        rows = rows_of(credited)
        for e, member in enumerate(credited[0].members):
            mine = [row for row in rows if row.episode == e]
            tokens = np.concatenate([row.ids[row.targets] for row in mine])
            assert tokens.tolist() == sampled(member.scored.episode).tolist()
            wanted = spread(member.advantages_S, member.scored.steps)
            assert np.concatenate([row.advantage for row in mine]).tolist() == wanted.tolist()


def sampled(episode: Episode) -> Ids:
    return np.concatenate([turn.token_ids for turn in episode.turns])


@pytest.mark.parametrize("rule", [ProcessToGo(None), Prime(), RePIRL(1.0)])
def test_u27_the_first_reward_reaches_the_tokens_of_the_first_turn_alone(rule: Assign) -> None:
    other = make_scored([1, 1, 1], outcome=0.0, process=[0.5, 0.5, 0.5])

    def advantages(first: float) -> list[float]:
        return per_episode(rows_of(credit(rule, make_scored([2, 1, 1], outcome=0.0, process=[first, 0.0, 1.0]), other)), "advantage")[0]

    change = np.array(advantages(0.6)) - np.array(advantages(0.2))
    assert change.tolist() == pytest.approx([0.4, 0.4, 0.0, 0.0])


def test_u27_returns_of_a_turn_are_what_is_still_to_come() -> None:
    """Rewards 0.2, 0, 1 at discount 1, against an episode that earned nothing: 1.2, 1, 1."""
    members = [make_scored([1, 1, 1], outcome=None, process=[0.2, 0.0, 1.0]), make_scored([1], outcome=None, process=[0.0])]
    rows = rows_of(credit(ProcessToGo(None), *members))
    assert per_episode(rows, "advantage")[0] == pytest.approx([1.2, 1.0, 1.0])


def test_u31_u32_how_much_of_the_gradient_an_episode_has_is_a_choice_that_is_named() -> None:
    """One step against nine: by `episode` each has half of the weight, by `token` a tenth and nine tenths."""
    groups = credit(OutcomeOnly(Centred()), make_scored([1], outcome=1.0), make_scored([1] * 9, outcome=0.0))
    assert [sum(weights) for weights in per_episode(rows_of(groups, "episode"), "weight")] == pytest.approx([0.5, 0.5])
    assert [sum(weights) for weights in per_episode(rows_of(groups, "token"), "weight")] == pytest.approx([0.1, 0.9])
    split = credit(OutcomeOnly(Centred()), make_scored([1], outcome=1.0), make_scored([1] * 9, outcome=0.0), rewrites=True)
    assert len(rows_of(split)) == 10
    assert [sum(weights) for weights in per_episode(rows_of(split, "episode"), "weight")] == pytest.approx([0.5, 0.5])


def test_u25_raw_rewards_outlive_the_credit_of_every_step() -> None:
    for listed in RULES:
        members = ready_group(
            make_group(make_scored([1, 1], outcome=1.0, process=[-0.2, 1.0]), make_scored([1], outcome=0.0, process=[0.0]))
        )
        credited = listed.rule([members])[0].members[0]
        assert credited.scored is members.members[0]
        assert credited.scored.rewards["judge"].tolist() == [-0.2, 1.0]


def test_steps_of_tokens_are_credited_token_by_token() -> None:
    member = make_scored([3], outcome=1.0)
    steps = by_token(member.episode)
    fine = replace(member, steps=steps, rewards={"judge": np.array([0.1, 0.2, 0.3])}, scored_S=np.ones(3, np.bool_))
    other = make_scored([1], outcome=0.0, process=[0.0])
    [row, _] = rows_of(credit(IStar(Centred(), 1.0, Centred()), fine, other))
    assert row.advantage.tolist() == pytest.approx([0.5 - 0.05, 0.5 + 0.05, 0.5 + 0.15])
    assert row.step.tolist() == [0, 1, 2]
