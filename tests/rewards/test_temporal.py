"""Promise and progress: the true action values and advantages in the end, from plain episodes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from builders import make_task
from exact_expectations import World, cave_world
from hypothesis import given
from hypothesis import strategies as st
from speakers import ids, toy_speaker
from test_critic import COINS, STATES, TWO, episode, group, table_critic, value

from stepwell.credit import by_token, by_turn
from stepwell.credit.gae import lambda_advantages
from stepwell.errors import ConfigError
from stepwell.protocols import ModelSpec, OptimizerSpec, RewardLearner
from stepwell.rewards.temporal import TemporalReward, TemporalSettings, promise_targets
from stepwell.rollout import rollout
from stepwell.testing import check_reward
from stepwell.types import EndingKind, Episode, Floats, Group, Scored

SETTINGS = TemporalSettings(pay="score", lr=1.0, updates=1)


def taught(reward: TemporalReward, groups: Sequence[Group[Episode]], times: int) -> list[Group[Scored]]:
    for _ in range(times):
        reward.learn(reward.score(groups))
    return reward.score(groups)


# -- targets ---------------------------------------------------------------------------------------------------------------------


def test_targets_by_hand() -> None:
    """Three steps in two turns, discount 0.5 between turns: from V = (.2, .4, .6) and an end of 1, with lambda 0.5."""
    made = promise_targets(np.array([0.2, 0.4, 0.6]), np.array([0, 0, 1]), 1.0, discount=0.5, lam=0.5)
    last = 1.0 - 0.6
    middle = 0.5 * 0.6 - 0.4 + 0.5 * 0.5 * last
    first = 0.4 - 0.2 + 0.5 * middle
    assert made.progress == pytest.approx(np.array([first, middle, last]))
    assert made.promise == pytest.approx(np.array([0.2 + first, 0.4 + middle, 1.0]))
    monte_carlo = promise_targets(np.array([0.2, 0.4, 0.6]), np.array([0, 0, 1]), 1.0, discount=0.5, lam=1.0)
    assert monte_carlo.promise == pytest.approx(np.array([0.5, 0.5, 1.0])), "lambda 1: what was earned, discounted by turns to come"
    assert promise_targets(np.zeros(0), np.zeros(0, np.int64), 1.0, discount=0.5, lam=0.5).promise.tolist() == []


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=6), st.floats(-1, 1), st.floats(0, 1))
def test_without_a_discount_they_are_gae(values: list[float], end: float, lam: float) -> None:
    v = np.array(values)
    rewards = np.append(np.zeros(len(v) - 1), end)
    made = promise_targets(v, np.arange(len(v)), end, discount=1.0, lam=lam)
    assert made.progress == pytest.approx(lambda_advantages(rewards, v, discount=1.0, lam=lam))
    assert made.promise == pytest.approx(made.progress + v)


@pytest.fixture(scope="module")
def cave() -> World:
    return cave_world(turns=3, spread=1.0, seed=1)


def worth(world: World, made: Episode, num_turns: int) -> float:
    """The expected score of episodes that begin like this one, from the list of all that can happen."""
    said = [turn.token_ids.tolist() for turn in made.turns[:num_turns]]
    alike = [n for n, e in enumerate(world.episodes) if [t.token_ids.tolist() for t in e.turns[:num_turns]] == said]
    p = world.probabilities[alike]
    return float(p @ np.array([world.episodes[n].verdict.score for n in alike]) / p.sum())


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_progress_targets_have_the_true_advantage_as_their_mean(cave: World, lam: float) -> None:
    """With the true values, exactly; residuals of Q would have mean 0 instead."""
    total: dict[tuple[int, ...], list[float]] = {}
    for made, p in zip(cave.episodes, cave.probabilities, strict=True):
        values = np.array([worth(cave, made, k) for k in range(len(made.turns))])
        end = made.verdict.score
        assert end is not None
        progress = promise_targets(values, np.arange(len(values)), end, discount=1.0, lam=lam).progress
        for k in range(len(values)):
            said = tuple(int(t.token_ids[0]) for t in made.turns[: k + 1])
            true = worth(cave, made, k + 1) - worth(cave, made, k)
            sums = total.setdefault(said, [0.0, 0.0, true])
            sums[0] += p * progress[k]
            sums[1] += p
    gaps = [abs(got / p - true) for got, p, true in total.values()]
    assert max(gaps) < 1e-12 and max(abs(true) for *_, true in total.values()) > 0.2


# -- learning --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lam", "beta"), [(0.0, 1.0), (0.7, 0.0), (1.0, 1.0)])
def test_promise_and_progress_are_found(cave: World, lam: float, beta: float) -> None:
    """From episodes in the proportions of their probabilities, whatever lambda and beta."""
    counts = [max(round(100 * p), 1) for p in cave.probabilities]
    some = replace(cave, probabilities=np.array(counts) / sum(counts))
    members = tuple(e for e, n in zip(cave.episodes, counts, strict=True) for _ in range(n))
    head = table_critic(OptimizerSpec(max_grad_norm=1e9))
    reward = TemporalReward(head, replace(SETTINGS, lam=lam, beta=beta, lr=0.1, updates=8))
    scored = taught(reward, [Group(cave.task, members)], 14)[0].members
    worst = 0.0
    for member in scored:
        true = [worth(some, member.episode, k) for k in range(len(member.steps) + 1)]
        worst = max(worst, float(np.abs(member.rewards["judge"] - np.diff(true)).max()))
    assert worst < 0.02


def test_states_by_hand() -> None:
    """An outcome of 1, half of it for each turn that is still to come: 0.5 before and after the first turn, 1 from then on."""
    head = table_critic()
    (scored,) = taught(TemporalReward(head, replace(SETTINGS, discount=0.5, form="value")), [group(episode(*TWO))], 80)[0].members
    assert [value(head, context) for context in STATES] == pytest.approx([0.5, 0.5, 1.0, 1.0], abs=1e-6)
    assert scored.rewards["judge"] == pytest.approx(np.array([0.5, 1.0]), abs=1e-6)


def test_tokens_as_steps_share_the_states_between_them() -> None:
    head = table_critic()
    reward = TemporalReward(head, replace(SETTINGS, discount=0.5, form="value"), by_token)
    (scored,) = taught(reward, [group(episode(*TWO))], 120)[0].members
    assert scored.rewards["judge"] == pytest.approx(np.array([0.5, 0.5, 1.0, 1.0]), abs=1e-4)
    assert value(head, ids(1, 1, 0)) == pytest.approx(0.5, abs=1e-4)


def test_a_cut_episode_is_worth_what_others_got_from_there() -> None:
    whole, cut = episode(*TWO), episode(TWO[0], kind=EndingKind.TRUNCATED, score=0.0, member=1)
    found = taught(TemporalReward(table_critic(), replace(SETTINGS, form="value")), [group(whole, cut)], 100)[0].members
    assert found[1].rewards["judge"] == pytest.approx(np.array([1.0]), abs=1e-6)
    graded = TemporalReward(table_critic(), replace(SETTINGS, form="value", truncated="graded"))
    found = taught(graded, [group(whole, cut)], 100)[0].members
    assert found[1].rewards["judge"] == pytest.approx(np.array([0.5]), abs=0.1), "a success and a failure passed through there"


def test_what_counts_nowhere_teaches_nothing() -> None:
    head = table_critic()
    reward = TemporalReward(head, SETTINGS)
    lost = [episode(*TWO, kind=EndingKind.FAILED), episode(*TWO, score=None, member=1), replace(episode(*TWO, member=2), turns=())]
    scored = reward.score([group(*lost)])
    assert [member.scored_S.any() for member in scored[0].members] == [False, True, False]
    assert reward.learn(scored) == {} and head.version == 0
    with pytest.raises(ConfigError, match="score and learn the same groups"):
        reward.learn([Group(make_task(), (replace(scored[0].members[1], episode=episode(*TWO)),))])


def test_what_is_reported_was_measured_before_learning() -> None:
    won, lost = episode(*TWO), episode((ids(5), ids(0, 2), 0.0), score=0.0, member=1)
    reward = TemporalReward(table_critic(), replace(SETTINGS, lam=1.0))
    first = reward.learn(reward.score([group(won, lost)]))
    assert first["judge/fresh_error"] == pytest.approx(2 / 3) and first["judge/confidence"] == 0.5
    scored = reward.score([group(won, lost)])
    assert scored[0].members[0].confidence == 0.5
    second = reward.learn(scored)
    assert second["judge/fresh_error"] < first["judge/fresh_error"] and second["judge/confidence"] == pytest.approx(0.9 * 0.5 + 0.1)
    other = TemporalReward(table_critic(), SETTINGS)
    other.restore(reward.state())
    assert other.score([group(won)])[0].members[0].confidence == second["judge/confidence"]


@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_a_language_model_learns_it(trunk: str) -> None:
    """Measured on episodes that it has not seen; what is said after the last turn tells a success from a failure."""
    speaker = toy_speaker(turns=2)
    policy = speaker.engine.model("policy", ModelSpec())
    head = speaker.engine.model("judge", ModelSpec(kind="head", of="policy", trunk=trunk))  # type: ignore[arg-type]
    settings = TemporalSettings(lr=5e-3 if trunk == "own" else 0.1, updates=50, form="value", beta=0.3)
    reward = TemporalReward(head, settings)

    def play(seed: int) -> list[Group[Episode]]:
        tasks = [COINS.task(0.5, 100 * seed + g, "train") for g in range(12)]
        return rollout(COINS, tasks, policy.snapshot(), speaker.player, group_size=4, seed=(seed,))

    first = reward.learn(reward.score(play(0)))
    fresh = reward.score(play(1))
    second = reward.learn(fresh)
    assert second["judge/fresh_error"] < first["judge/fresh_error"]
    if trunk == "own":
        members = [member for g in fresh for member in g.members]
        promise: Floats = np.array([member.rewards["judge"] for member in members])
        ends = np.array([member.outcome for member in members])
        assert promise[ends == 1.0, 1].mean() - promise[ends == 0.0, 1].mean() > 0.3


@pytest.mark.parametrize("segment", [by_turn, by_token])
def test_it_keeps_the_promises_of_a_reward(cave: World, segment: object) -> None:
    reward = TemporalReward(table_critic(), SETTINGS, segment)  # type: ignore[arg-type]
    groups = [Group(cave.task, tuple(replace(e, member=n) for n, e in enumerate(cave.episodes[:4])))]
    check_reward(reward, groups)
    reward.learn(reward.score(groups))
    check_reward(reward, groups)
    assert isinstance(reward, RewardLearner) and set(reward.models()) == {"judge"}


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"discount": 0.0}, r"reward\.discount is 0\.0; it lies in \(0, 1\]"),
        ({"lam": 1.5}, r"reward\.lam is 1\.5"),
        ({"lr": float("inf")}, "lr is inf"),
        ({"updates": 0}, "updates 0"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, float], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        TemporalSettings(**settings)  # type: ignore[arg-type]
