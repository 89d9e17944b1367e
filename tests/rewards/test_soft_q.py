"""The soft Q judge: it comes to be the soft-optimal policy, with its value, whatever the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from builders import make_batch
from exact_expectations import World, cave_world
from hypothesis import given
from hypothesis import strategies as st
from test_critic import STATES, TWO, episode, group

from stepwell.credit import by_token, by_turn
from stepwell.engine.local import Text
from stepwell.engine.table import TableEngine, TableModel
from stepwell.errors import CapabilityError, ConfigError
from stepwell.losses.soft_q import SoftQLoss
from stepwell.protocols import ModelSpec, OptimizerSpec, RewardLearner
from stepwell.rewards.soft_q import SoftQReward, SoftQSettings, soft_targets
from stepwell.testing import check_reward
from stepwell.types import EndingKind, Episode, Group, Ids, Outputs, Scored

BETA = 0.5
FREE = OptimizerSpec(max_grad_norm=1e9)


def judge_of(engine: TableEngine, settings: SoftQSettings, **more: object) -> SoftQReward:
    judge = engine.model("judge", ModelSpec(of="policy", optimizer=FREE))
    value = engine.model("judge_value", ModelSpec(kind="head", of="judge", optimizer=FREE))
    return SoftQReward(judge, value, settings, **more)  # type: ignore[arg-type]


def fresh_engine() -> TableEngine:
    made = TableEngine(3, Text(str, frozenset({2})))
    made.model("policy", ModelSpec())
    return made


# -- targets and loss ------------------------------------------------------------------------------------------------------------


def test_targets_by_hand() -> None:
    values, bonus = np.array([0.1, 0.4, 0.6]), np.array([0.2, -0.1, 0.3])
    last, middle = 1.0, 0.5 * 0.6 + 0.5 * (1.0 - 0.3)
    first = 0.5 * 0.4 + 0.5 * (middle + 0.1)
    assert soft_targets(values, bonus, 1.0, lam=0.5) == pytest.approx(np.array([first, middle, last]))
    assert soft_targets(values, bonus, 1.0, lam=1.0)[0] == pytest.approx(1.0 - 0.3 + 0.1), "what is paid, less what later steps said"


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=5), st.floats(-1, 1), st.floats(0, 1))
def test_where_the_equation_holds_every_lambda_agrees(bonus: list[float], end: float, lam: float) -> None:
    """V_k = end - (bonuses from k on): all residuals are 0."""
    b = np.array(bonus)
    values = end - np.cumsum(b[::-1])[::-1]
    assert values + b - soft_targets(values, b, end, lam=lam) == pytest.approx(np.zeros(len(b)), abs=1e-9)


def test_the_loss_by_hand() -> None:
    """Two steps in the first row (tokens 0 and 1, token 2), one in the second; the third token of the second row counts nowhere."""
    logprobs = torch.tensor([[-1.0, -2.0, -1.0], [-0.5, -1.0, -9.0]], dtype=torch.float64, requires_grad=True)
    batch = make_batch([[1, 1, 1], [1, 1, 0]], ref=[[-2.0, -2.0, -2.0], [-1.0, -1.0, 0.0]], step=[[0, 0, 1], [0, 0, -1]])
    batch = replace(batch, returns=torch.tensor([[1.0, 1.0, 0.0], [0.5, 0.5, 7.0]], dtype=torch.float64))
    loss, tallies = SoftQLoss(beta=0.5)(Outputs(logprobs), batch)
    residuals = np.array([0.5 * 1.0 - 1.0, 0.5 * 1.0 - 0.0, 0.5 * 0.5 - 0.5])
    assert loss.item() == pytest.approx(0.5 * (residuals**2).sum())
    assert tallies["judge/residual"].value == pytest.approx(np.abs(residuals).mean()) and tallies["judge/loss"].weight == 3
    found = torch.autograd.grad(loss, logprobs)[0]
    assert found.tolist() == [pytest.approx([-0.25, -0.25, 0.25]), pytest.approx([-0.125, -0.125, 0.0])]


# -- right in the end ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    return cave_world(turns=3, spread=1.0, seed=1)


def soft_value(world: World, made: Episode, num_turns: int) -> float:
    """`beta log E_ref[exp(R / beta)]` of episodes that begin like this one, from the list of all that can happen."""
    said = [turn.token_ids.tolist() for turn in made.turns[:num_turns]]
    alike = [n for n, e in enumerate(world.episodes) if [t.token_ids.tolist() for t in e.turns[:num_turns]] == said]
    p = world.probabilities[alike] / world.probabilities[alike].sum()
    paid = np.array([world.episodes[n].verdict.score for n in alike])
    return float(BETA * np.log(p @ np.exp(paid / BETA)))


@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_it_becomes_the_soft_optimal_policy(world: World, lam: float) -> None:
    """From every episode once, in proportions that are no policy's (off-policy): rewards are the soft advantages, V the soft value, and the
    judge says episodes in proportion to `p_ref exp(R / beta)`."""
    settings = SoftQSettings(pay="score", beta=BETA, lam=lam, lr=0.1, value_lr=0.1, updates=30)
    reward = judge_of(world.model.engine, settings)
    groups = [Group(world.task, tuple(replace(e, member=n) for n, e in enumerate(world.episodes)))]
    for _ in range(6):
        metrics = reward.learn(reward.score(groups))
    members = reward.score(groups)[0].members
    assert metrics["judge/fresh_error"] < 0.01
    for member in members:
        true = np.diff([soft_value(world, member.episode, k) for k in range(len(member.steps) + 1)])
        assert member.rewards["judge"] == pytest.approx(true, abs=0.02)
    start = soft_value(world, world.episodes[0], 0)
    scores = np.array([e.verdict.score for e in world.episodes])
    total = np.array([member.rewards["judge"].sum() for member in members])
    assert total == pytest.approx(scores - start, abs=0.02), "it telescopes"
    assert np.abs(total).max() > 0.2
    assert world.probabilities @ np.exp(total / BETA) == pytest.approx(1.0, abs=0.02), "the judge is a distribution"


def test_values_are_q_where_they_are_wanted(world: World) -> None:
    settings = SoftQSettings(pay="score", beta=BETA, form="value", lr=0.1, value_lr=0.1, updates=30)
    reward = judge_of(world.model.engine, settings)
    groups = [Group(world.task, tuple(replace(e, member=n) for n, e in enumerate(world.episodes)))]
    for _ in range(6):
        reward.learn(reward.score(groups))
    for member in reward.score(groups)[0].members:
        true = [soft_value(world, member.episode, k + 1) for k in range(len(member.steps))]
        assert member.rewards["judge"] == pytest.approx(np.array(true), abs=0.02)


def test_it_starts_at_zero_and_learns_from_demonstrations_first(world: World) -> None:
    engine = world.model.engine
    first = judge_of(engine, SoftQSettings(pay="score", beta=BETA)).score([Group(world.task, world.episodes[:3])])
    assert all(not member.rewards["judge"].any() and member.scored_S.all() for member in first[0].members)
    good = [e for e in world.episodes if e.verdict.score == 1.0]
    seen: list[int] = []

    def demonstration(number: int) -> Episode:
        seen.append(number)
        return good[number % len(good)]

    other = cave_world(turns=3, spread=1.0, seed=1)
    settings = SoftQSettings(pay="score", beta=BETA, lr=0.1, value_lr=0.1, updates=0, warm=20, batch=2)
    reward = judge_of(other.model.engine, settings, demonstration=demonstration)
    members = reward.score([Group(world.task, (good[0], world.episodes[0]))])[0].members
    assert seen == list(range(40)) and reward.state()["done"] == 20
    assert members[0].rewards["judge"].sum() > 0.02, "more likely than it was"
    assert reward.learn(reward.score([Group(world.task, (good[0],))])).keys() == {"judge/fresh_error"} and len(seen) == 40
    resumed = judge_of(cave_world(turns=3, spread=1.0, seed=1).model.engine, settings, demonstration=demonstration)
    resumed.restore({"done": 19, "confidence": 0.75})
    assert resumed.score([Group(world.task, (good[0],))])[0].members[0].confidence == 0.75
    assert seen[40:] == [38, 39]


# -- what counts -----------------------------------------------------------------------------------------------------------------


def taught(groups: list[Group[Episode]], segment: Callable[[Episode], object] = by_turn) -> tuple[list[Scored], TableModel]:
    settings = SoftQSettings(pay="score", beta=BETA, form="value", lr=0.1, value_lr=0.2, updates=80)
    reward = judge_of(fresh_engine(), settings, segment=segment)
    for _ in range(5):
        reward.learn(reward.score(groups))
    value = reward.models()["judge_value"]
    assert isinstance(value, TableModel)
    return list(reward.score(groups)[0].members), value


def worth(value: TableModel, context: Ids) -> float:
    return float(value.logits([np.asarray(context, np.int64).tobytes()])[0, 0].detach())


def test_a_cut_episode_bootstraps_and_what_does_not_count_teaches_nothing() -> None:
    lost = [episode(*TWO, kind=EndingKind.FAILED, member=2), episode(*TWO, score=None, member=3)]
    cut = episode(TWO[0], kind=EndingKind.TRUNCATED, score=0.0, member=1)
    members, value = taught([group(episode(*TWO), cut, *lost)])
    after_first, before_second, end = (worth(value, context) for context in STATES[1:])
    assert members[0].rewards["judge"] == pytest.approx(np.array([before_second, 1.0]), abs=0.02), "Q is the next state's V"
    assert members[1].rewards["judge"][0] == pytest.approx(after_first, abs=0.02), "its outcome, 0, is not held against it"
    assert after_first == pytest.approx(before_second, abs=0.02) and before_second > 0.3
    assert end == pytest.approx(0.0, abs=0.02), "nothing comes after the end"
    assert not members[2].scored_S.any() and members[3].scored_S.all()
    reward = judge_of(fresh_engine(), SoftQSettings())
    assert reward.learn(reward.score([group(*lost)])) == {} and reward.models()["judge"].version == 0  # type: ignore[attr-defined]


def test_tokens_can_be_steps() -> None:
    members, value = taught([group(episode(*TWO))], by_token)
    inside = worth(value, np.append(TWO[0][0], TWO[0][1][:1]))
    assert members[0].rewards["judge"][[0, 1, 3]] == pytest.approx(np.array([inside, worth(value, STATES[2]), 1.0]), abs=0.02)


def test_it_keeps_the_promises_of_a_reward(world: World, tmp_path: Path) -> None:
    for form in ("progress", "value"):
        reward = judge_of(cave_world(turns=3, seed=2).model.engine, SoftQSettings(form=form, lr=0.1))
        groups = [Group(world.task, tuple(replace(e, member=n) for n, e in enumerate(world.episodes[:4])))]
        check_reward(reward, groups)
        metrics = reward.learn(reward.score(groups))
        check_reward(reward, groups)
        assert isinstance(reward, RewardLearner) and set(reward.models()) == {"judge", "judge_value", "judge_reference"}
        assert {"judge/loss", "judge/residual", "judge/grad_norm", "judge/fresh_error"} <= set(metrics)
    with pytest.raises(ConfigError, match="score and learn the same groups"):
        reward.learn([Group(world.task, (replace(reward.score(groups)[0].members[0], episode=world.episodes[0]),))])


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"beta": 0.0}, r"reward\.beta is 0\.0"),
        ({"lr": float("nan")}, r"reward\.lr is nan"),
        ({"value_lr": -1.0}, r"reward\.value_lr is -1"),
        ({"lam": 2.0}, r"reward\.lam is 2"),
        ({"updates": 0}, "or the judge never learns"),
        ({"batch": 0}, r"reward\.batch 0"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, float], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        SoftQSettings(**settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="beta"):
        SoftQLoss(float("inf"))


def test_models_that_cannot_work() -> None:
    engine = fresh_engine()
    with pytest.raises(ConfigError, match=r"reward\.warm is 3, and there are no demonstrations"):
        judge_of(engine, SoftQSettings(warm=3))
    head = engine.model("head", ModelSpec(kind="head", of="policy"))
    with pytest.raises(CapabilityError, match="A head has no words"):
        SoftQReward(head, head, SoftQSettings())
