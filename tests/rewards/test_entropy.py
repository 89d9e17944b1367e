"""The entropy reward: 0 at the start, the suffix of credit by the suffix, and shares that sum to the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import make_episode
from exact_expectations import World, cave_world
from hypothesis import given
from hypothesis import strategies as st

from stepwell.credit import Centred, SuffixLogRatio, by_token, by_turn, to_go
from stepwell.engine.batch import episode_rows
from stepwell.engine.table import TableModel
from stepwell.errors import ConfigError, StaleWeightsError
from stepwell.losses import PolicyLoss
from stepwell.protocols import RewardLearner
from stepwell.rewards.entropy import EntropyReward, EntropySettings, outcome_shares
from stepwell.testing import check_reward
from stepwell.types import Episode, Group, Row, Scored


def moved(world: World) -> tuple[EntropyReward, EntropyReward, TableModel, list[Group[Episode]]]:
    """A reward of each form around a policy that has taken a step since; the episodes are the new policy's."""
    policy = world.model
    suffix = EntropyReward(policy, EntropySettings(beta=0.5, pay="score"), by_token)
    immediate = EntropyReward(policy, EntropySettings(beta=0.5, form="immediate", pay="score"), by_token)
    rows: list[Row] = [row for e in world.episodes[:3] for row in episode_rows(e, advantage=np.ones(e.num_tokens))]
    policy.backward(rows, PolicyLoss())
    policy.step(0.3)
    episodes = tuple(relabelled(e, policy.version, n) for n, e in enumerate(world.episodes[:6]))
    return suffix, immediate, policy, [Group(world.task, episodes)]


def relabelled(episode: Episode, version: int, member: int) -> Episode:
    return replace(episode, member=member, turns=tuple(replace(turn, version=version) for turn in episode.turns))


@pytest.fixture
def world() -> World:
    return cave_world(turns=3, spread=1.0, seed=1)


def all_of(scored: Sequence[Group[Scored]]) -> list[Scored]:
    return [member for group in scored for member in group.members]


def test_it_is_zero_before_the_policy_has_moved(world: World) -> None:
    reward = EntropyReward(world.model, EntropySettings())
    scored = reward.score([Group(world.task, world.episodes[:5])])
    assert all((member.rewards["judge"] == 0.0).all() and member.scored_S.all() for member in all_of(scored))
    assert reward.learn(scored) == {"judge/log_ratio_abs": 0.0}


def test_both_forms_are_made_of_the_log_ratio(world: World) -> None:
    suffix, immediate, _, groups = moved(world)
    one, two = all_of(suffix.score(groups)), all_of(immediate.score(groups))
    assert max(abs(m.rewards["judge"]).max() for m in one) > 0.05
    for a, b in zip(one, two, strict=True):
        assert a.old_logprobs_T is not None and a.ref_logprobs_T is not None
        assert b.rewards["judge"] == pytest.approx(-0.5 * (a.old_logprobs_T - a.ref_logprobs_T)), "a step is a token here"
        assert to_go(b.rewards["judge"]) == pytest.approx(a.rewards["judge"]), "rewards to go are the suffix"
    assert suffix.learn(suffix.score(groups))["judge/log_ratio_abs"] > 0.01


def test_it_is_what_credit_by_the_suffix_adds(world: World) -> None:
    suffix, _, _, groups = moved(world)
    scored = suffix.score(groups)
    credited = SuffixLogRatio(Centred(), beta=0.5)(scored)
    for member, made in zip(all_of(scored), credited[0].members, strict=True):
        assert made.parts["process"] == pytest.approx(member.rewards["judge"])


def test_the_start_is_kept_through_a_checkpoint(world: World, tmp_path: Path) -> None:
    suffix, _, policy, groups = moved(world)
    suffix.models()["judge_reference"].save(tmp_path)
    later = EntropyReward(policy, EntropySettings(beta=0.5, pay="score"), by_token)
    assert not any(m.rewards["judge"].any() for m in all_of(later.score(groups)))
    later.models()["judge_reference"].load(tmp_path)
    later.restore(suffix.state())
    for a, b in zip(all_of(suffix.score(groups)), all_of(later.score(groups)), strict=True):
        assert np.array_equal(a.rewards["judge"], b.rewards["judge"])


@given(st.lists(st.integers(0, 2), min_size=1, max_size=8))
def test_shares_sum_to_one_over_the_steps_with_tokens(lengths: list[int]) -> None:
    steps = by_turn(make_episode(lengths))
    for split in ("uniform", "progress"):
        shares = outcome_shares(steps, split)
        assert shares.sum() == pytest.approx(float(any(lengths)))
        spoken = shares[np.array(lengths) > 0]
        assert not shares[np.array(lengths) == 0].any() and (np.diff(spoken) >= -1e-15).all()
        assert (np.diff(spoken) > 0).all() == (split == "progress" or len(spoken) < 2)
    assert not outcome_shares(steps, "none").any()


def test_the_outcome_is_handed_out_beside_it(world: World) -> None:
    """As in the retold form: reward of a step = outcome / number of steps - beta x its own log-ratio."""
    _, _, policy, groups = moved(world)
    split = EntropyReward(policy, EntropySettings(form="immediate", split="uniform", pay="score"))
    for member in all_of(split.score(groups)):
        assert member.outcome is not None and set(member.rewards) == {"judge", "share"}
        assert member.rewards["share"] == pytest.approx(np.full(len(member.steps), member.outcome / len(member.steps)))
        assert member.process_S.sum() == pytest.approx(member.outcome)


def test_what_is_unscored(world: World) -> None:
    failed, silent = make_episode([1], failed=True), make_episode([0], member=1)
    unknown = make_episode([1], member=2, score=None)
    group = [Group(world.task, (failed, silent, unknown))]
    plain = EntropyReward(world.model, EntropySettings())
    assert [m.scored_S.tolist() for m in all_of(plain.score(group))] == [[False], [False], [True]]
    split = EntropyReward(world.model, EntropySettings(split="uniform"))
    assert [m.scored_S.tolist() for m in all_of(split.score(group))] == [[False], [False], [False]]
    assert plain.learn(plain.score([])) == {}
    for reward in (plain, split):
        check_reward(reward, [Group(world.task, tuple(relabelled(e, 0, n) for n, e in enumerate(world.episodes[:3])))])
        assert isinstance(reward, RewardLearner)


def test_what_cannot_work_is_said(world: World) -> None:
    for beta in (-1.0, float("nan")):
        with pytest.raises(ConfigError, match=r"reward\.beta is"):
            EntropySettings(beta=beta)
    with pytest.raises(ConfigError, match=r"reward\.since is 'last', which the immediate form does not know"):
        EntropySettings(form="immediate", since="last")
    reward, _, _, _ = moved(world)
    with pytest.raises(StaleWeightsError, match="score before the policy is updated"):
        reward.score([Group(world.task, world.episodes[:2])])
