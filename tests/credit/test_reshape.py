"""Shaping of step rewards: by hand, its laws, and that retries cannot beat first-try success."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.configure import load
from stepwell.credit.reshape import Shaping, capped, horizon_scale, potential_based, shaped_metrics, time_weights
from stepwell.crediting import shaping_of
from stepwell.engine.codec import BRACKET
from stepwell.envs.exact import explore, optimal_values
from stepwell.envs.maze import MazeDomain
from stepwell.errors import ConfigError
from stepwell.types import Ending, EndingKind, Episode, Group, Observation, Reply, Scored, Steps, Stop, Task, Turn, Verdict
from stepwell.types import Invalid as Said

TASK = Task("t", "", 0.5, "train")
REWARDS = st.lists(st.floats(-5, 5), min_size=1, max_size=8)


def scored(
    rewards: Sequence[float],
    outcome: float = 0.0,
    *,
    unscored: Sequence[int] = (),
    kind: EndingKind = EndingKind.TERMINATED,
    **more: Sequence[float],
) -> Scored:
    """An episode of one token a turn, each turn a step."""
    one = np.array([1])
    turns = tuple(Turn(one, one, np.zeros(1), "", Said("x", "x"), Reply(Observation("")), Stop.EOS, 0) for _ in rewards)
    episode = Episode(TASK, 0, Observation("x"), turns, Ending(kind, "why"), Verdict.of(outcome))
    number = len(rewards)
    steps = Steps(turn_S=np.arange(number), start_S=np.arange(number), stop_S=np.arange(1, number + 1))
    said = np.array([s not in unscored for s in range(number)])
    components = {"judge": np.array(rewards, np.float64), **{name: np.array(values, np.float64) for name, values in more.items()}}
    return Scored(episode, steps, outcome, components, said)


def shaped(shaping: Shaping, *members: Scored) -> list[list[float]]:
    (group,) = shaping([Group(TASK, members)])
    return [np.round(member.rewards["shaped"], 9).tolist() for member in group.members]


def test_nothing_asked_nothing_changed() -> None:
    assert shaped(Shaping(), scored([1.0, -2.0, 3.0], unscored=[1])) == [[1.0, 0.0, 3.0]]
    assert shaping_of(load("smoke")) is None


def test_weights_over_the_episode_by_hand() -> None:
    shaping = Shaping(weights={"judge": (1.0, 0.0)}, turns=5)
    assert shaped(shaping, scored([1.0, 1.0, 1.0], bonus=[0.5, 0.5, 0.5])) == [[1.5, 1.25, 1.0]]
    assert time_weights([0, 1, 9], 3, 0.0, 1.0).tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(ConfigError, match=r"shaping.weights names the component 'jugde'; .*judge"):
        Shaping(weights={"jugde": (1.0, 0.0)})([Group(TASK, (scored([1.0]),))])


def test_normalisation_by_hand() -> None:
    """rms of (3, 4, 0, 0, 5) is sqrt(50 / 5); nothing is subtracted; unscored steps do not count."""
    members = (scored([3.0, 4.0, 100.0], unscored=[2]), scored([0.0, 0.0, 5.0]))
    rms = np.sqrt(50 / 5)
    assert shaped(Shaping(normalise="batch"), *members) == [
        np.round([3 / rms, 4 / rms, 0.0], 9).tolist(),
        np.round([0.0, 0.0, 5 / rms], 9).tolist(),
    ]
    running = Shaping(normalise="running", memory=0.5)
    assert shaped(running, scored([2.0])) == [[1.0]]
    assert shaped(running, scored([4.0])) == [[round(4.0 / np.sqrt(0.5 * 4 + 0.5 * 16), 9)]]
    again = Shaping(normalise="running", memory=0.5)
    again.restore(json.loads(json.dumps(running.state())))
    assert shaped(again, scored([1.0])) == shaped(running, scored([1.0]))
    assert shaped(Shaping(normalise="batch"), scored([0.0, 0.0])) == [[0.0, 0.0]]


def test_clip_horizon_and_cap_by_hand() -> None:
    assert shaped(Shaping(clip=1.0), scored([3.0, -2.0, 0.5])) == [[1.0, -1.0, 0.5]]
    assert shaped(Shaping(horizon="mean"), scored([1.0, 2.0, 9.0, 3.0], unscored=[2])) == [[round(1 / 3, 9), round(2 / 3, 9), 0.0, 1.0]]
    assert shaped(Shaping(horizon="reference", reference=2), scored([1.0] * 4), scored([1.0])) == [[0.5] * 4, [1.0]]
    assert shaped(Shaping(cap=0.4), scored([1.0, 1.0, -3.0]), scored([0.1])) == [[0.4, 0.4, -1.2], [0.1]]
    assert horizon_scale(0, "mean", 1) == 1.0


@given(REWARDS, st.floats(0.05, 2.0))
def test_the_cap_holds_and_keeps_proportions(rewards: list[float], cap: float) -> None:
    made = capped(np.array(rewards), cap)
    assert abs(made.sum()) <= cap + 1e-9
    assert np.allclose(made * np.abs(rewards).max(), np.array(rewards) * np.abs(made).max(), atol=1e-6)


@given(REWARDS)
def test_potentials_sum_to_nothing_where_the_episode_is_over(values: list[float]) -> None:
    assert potential_based(np.array(values)).sum() == pytest.approx(0.0, abs=1e-9)
    assert potential_based(np.array(values), terminal=False).sum() == pytest.approx(values[-1], abs=1e-9)


def test_an_unscored_step_leaves_the_potential_where_it_was() -> None:
    assert shaped(Shaping(potential=True), scored([0.2, 9.0, 0.7, 0.4], unscored=[1])) == [[0.2, 0.0, 0.5, -0.7]]
    assert shaped(Shaping(potential=True), scored([0.2, 0.7], kind=EndingKind.TRUNCATED)) == [[0.2, 0.5]]


@pytest.mark.parametrize("seed", range(3))
def test_potential_based_shaping_keeps_the_optimal_policy(seed: int) -> None:
    """Ng et al. 1999, in a maze whose optimal values are exact: whatever the potential, the best actions are the same."""
    maze = MazeDomain(num_test_tasks=3)
    graph = explore(maze, maze.tasks("test")[seed], BRACKET.parse, turns=6)
    potential_X = np.append(np.random.default_rng(seed).normal(size=len(graph.keys)), 0.0)  # The last is where it is over.
    potential_X[0] = 0.0
    plain, q = optimal_values(graph), {}
    for with_potential in (False, True):
        v_X, best = np.zeros(len(graph.keys) + 1), []
        for turn in reversed(range(graph.turns)):
            after_XA = potential_X[graph.next_XA] if turn < graph.turns - 1 else np.zeros_like(graph.reward_XA)
            extra_XA = after_XA - potential_X[:-1, None] if with_potential else 0.0
            q_XA = np.where(graph.open_XA, graph.reward_XA + extra_XA + v_X[graph.next_XA], -np.inf)
            best.append(q_XA >= q_XA.max(axis=1, keepdims=True) - 1e-9)
            v_X = np.append(np.where(graph.open_XA.any(axis=1), q_XA.max(axis=1), -potential_X[:-1] if with_potential else 0.0), 0.0)
        q[with_potential] = (best, float(v_X[0]))
    for one, two in zip(q[False][0], q[True][0], strict=True):
        assert np.array_equal(one[graph.open_XA.any(axis=1)], two[graph.open_XA.any(axis=1)])
    assert q[True][1] == pytest.approx(q[False][1]) == pytest.approx(plain.start)


SAFE = Shaping(clip=1.0, horizon="mean", cap=0.4)


def total(rewards: Sequence[float], outcome: float, shaping: Shaping = SAFE) -> float:
    return outcome + sum(shaped(shaping, scored(rewards, outcome))[0])


def test_retries_do_not_beat_first_try_success() -> None:
    """U28. A: one turn, format 1 and correct. B: five turns, format 5, not correct: A is above B. Unshaped, B is above A."""
    assert total([1.0], 1.0, Shaping()) == 2.0 < total([1.0] * 5, 0.0, Shaping()) == 5.0
    assert total([1.0], 1.0) == 1.4 > total([1.0] * 5, 0.0) == 0.4
    assert total([1.0] * 5, 1.0) <= total([1.0], 1.0), "nor does a success with retries"


@given(REWARDS, REWARDS)
def test_no_failure_is_worth_as_much_as_any_success(failed: list[float], succeeded: list[float]) -> None:
    assert total(failed, 0.0) < total(succeeded, 1.0)


@given(REWARDS)
def test_no_success_is_worth_more_than_one_at_the_first_try(rewards: list[float]) -> None:
    assert total(rewards, 1.0) <= total([1.0], 1.0) + 1e-7  # `shaped` rounds each step to nine places


def test_what_is_logged() -> None:
    groups = Shaping(clip=1.0)([Group(TASK, (scored([3.0, 1.0]), scored([0.5]), scored([1.0], unscored=[0])))])
    assert shaped_metrics(groups) == {"reward/shaped": 1.25, "reward/shaped_step": 0.75}
    assert shaped_metrics([]) == {}


def test_settings() -> None:
    made = shaping_of(load("smoke", ["shaping.horizon=mean", "shaping.cap=0.4", "shaping.weights.judge=[1,0]"]))
    assert made is not None and (made.horizon, made.cap, made.turns) == ("mean", 0.4, 6)
    with pytest.raises(ConfigError, match="nothing reads any; leave shaping out"):
        load("smoke", ["shaping.clip=1", "credit.kind=grpo"])
    with pytest.raises(ConfigError, match=r"shaping.clip is -1.0; it needs a positive number"):
        Shaping(clip=-1.0)
    with pytest.raises(ConfigError, match=r"shaping.discount is 1.5"):
        Shaping(discount=1.5)
    with pytest.raises(ConfigError, match=r"shaping.reference is 0"):
        Shaping(reference=0)
    with pytest.raises(ConfigError, match=r"shaping.weights of 'judge' are \[inf, 0.0\]"):
        Shaping(weights={"judge": (float("inf"), 0.0)})
