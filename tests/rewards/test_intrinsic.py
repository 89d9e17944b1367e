"""Self-certainty: the divergence by hand, and its collapse: sure of anything, whatever it is worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import make_episode
from exact_expectations import World, cave_world
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.credit import by_token
from stepwell.engine.batch import episode_rows, policy_rows
from stepwell.errors import CapabilityError, ConfigError
from stepwell.losses import PolicyLoss
from stepwell.protocols import Capabilities, RewardLearner
from stepwell.rewards.intrinsic import IntrinsicReward, IntrinsicSettings, check_certainty
from stepwell.testing import check_reward
from stepwell.types import Credited, Episode, Group, Row, Scored


@pytest.fixture
def world() -> World:
    return cave_world(turns=2, spread=1.0, seed=1)


def distributions(world: World, episode: Episode) -> list[np.ndarray]:
    """Of the next token, before each turn: log-probs by asking for every token in turn."""
    made = []
    for turn in episode.turns:
        rows = [Row.of(np.append(turn.context_ids, token), np.array([len(turn.context_ids)])) for token in range(3)]
        made.append(np.array([said["logprobs"][0] for said in world.model.forward(rows)]))
    return made


def test_it_is_the_divergence_of_the_uniform_from_the_policy(world: World) -> None:
    reward = IntrinsicReward(world.model, IntrinsicSettings(scale=2.0))
    episodes = tuple(replace(e, member=n) for n, e in enumerate(world.episodes[:5]))
    scored = reward.score([Group(world.task, episodes)])
    every = []
    for member in scored[0].members:
        true = [np.sum(np.log(1 / 3 / np.exp(logp)) / 3) for logp in distributions(world, member.episode)]
        assert member.rewards["judge"] == pytest.approx(2.0 * np.array(true), abs=1e-12) and member.scored_S.all()
        every += true
    assert reward.learn(scored) == {"judge/certainty": pytest.approx(np.mean(every))}
    assert min(every) > 0.05
    check_reward(reward, [Group(world.task, episodes)])
    assert isinstance(reward, RewardLearner) and reward.models() == {} and reward.state() == {}


@settings(max_examples=10)
@given(st.floats(0.05, 3.0))
def test_it_is_never_negative_and_zero_where_all_tokens_are_alike(spread: float) -> None:
    doubtful = cave_world(turns=1, spread=0.0)
    assert not any(m.rewards["judge"].round(12).any() for m in scores(doubtful))
    assert all((m.rewards["judge"] > 0).all() for m in scores(cave_world(turns=1, spread=spread)))


def scores(world: World) -> tuple[Scored, ...]:
    members = tuple(replace(e, member=n) for n, e in enumerate(world.episodes))
    return IntrinsicReward(world.model, IntrinsicSettings(), by_token).score([Group(world.task, members)])[0].members


def expected(world: World, values: list[float]) -> float:
    rows = [episode_rows(e)[0] for e in world.episodes]
    p = np.exp([made["logprobs"].sum() for made in world.model.forward(rows)])
    return float(p @ np.array(values))


def test_it_collapses(world: World) -> None:
    """Exact policy gradients on certainty alone: the policy becomes sure of a bad way, while the best one is forgotten."""
    worth = [float(e.verdict.score or 0.0) for e in world.episodes]
    before, entropy_before = expected(world, worth), entropy(world)
    assert max(worth) > before + 0.3
    for _ in range(150):
        members = scores(world)
        rows = [episode_rows(e)[0] for e in world.episodes]
        p = np.exp([made["logprobs"].sum() for made in world.model.forward(rows)])
        total = np.array([m.rewards["judge"].mean() for m in members])
        advantage = p * (total - p @ total)
        credited = tuple(Credited(m, np.full(len(m.steps), a)) for m, a in zip(members, advantage, strict=True))
        made = policy_rows([Group(world.task, credited)], lambda counts: np.ones(len(counts)), lambda m: np.zeros(m.episode.num_tokens))
        world.model.backward(made, PolicyLoss())
        world.model.step(0.05)
    assert entropy(world) < 0.2 * entropy_before, "sure of what it says"
    assert np.mean([m.rewards["judge"].mean() for m in scores(world)]) > 1.0, "and paid for it"
    assert expected(world, worth) < max(worth) - 0.3, "but not of anything good"


def entropy(world: World) -> float:
    rows = [episode_rows(e)[0] for e in world.episodes]
    logp = np.array([made["logprobs"].sum() for made in world.model.forward(rows)])
    return float(-(np.exp(logp) @ logp))


def test_what_is_unscored(world: World) -> None:
    reward = IntrinsicReward(world.model, IntrinsicSettings())
    failed, silent, unknown = make_episode([1], failed=True), make_episode([0], member=1), make_episode([1], member=2, score=None)
    members = reward.score([Group(world.task, (failed, silent, unknown))])[0].members
    assert [m.scored_S.tolist() for m in members] == [[False], [False], [True]]
    assert reward.learn(reward.score([])) == {}


def test_what_cannot_work_is_said() -> None:
    for scale in (0.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=r"reward\.scale is"):
            IntrinsicSettings(scale=scale)
    with pytest.raises(CapabilityError, match="needs the whole next-token distribution"):
        check_certainty(Capabilities(frozenset({"full"}), entropy=True, values=True))
