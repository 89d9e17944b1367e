"""Outcome and environment rewards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import make_episode, make_task

from stepwell.credit import OutcomeOnly, ProcessToGo, by_token, by_window
from stepwell.errors import ConfigError
from stepwell.protocols import ProcessReward
from stepwell.rewards.outcome import EnvironmentReward, OutcomeReward, paid
from stepwell.types import Episode, Group, Invalid, Scored, Verdict


def score(reward: ProcessReward, *episodes: Episode) -> tuple[Scored, ...]:
    return reward.score([Group(make_task(), episodes)])[0].members


def test_what_the_end_is_paid() -> None:
    half = make_episode([1], score=0.5)
    assert (paid(half, "success"), paid(half, "score")) == (0.0, 0.5)
    won = replace(half, verdict=Verdict.of(0.8, success=True))
    assert (paid(won, "success"), paid(won, "score")) == (1.0, 0.8)
    assert paid(make_episode([1], score=None), "score") is None
    failed = replace(make_episode([1], failed=True), verdict=Verdict.of(1.0))
    assert paid(failed, "success") is None


def test_the_outcome_reward_has_no_process_part() -> None:
    (scored,) = score(OutcomeReward(pay="score", segment=by_window(2)), make_episode([3, 1], score=0.25))
    assert scored.outcome == 0.25
    assert scored.rewards == {}
    assert scored.scored_S.tolist() == [False] * 3
    assert scored.steps.stop_S.tolist() == [2, 3, 4]


def test_environment_rewards_lie_on_the_last_step_of_their_turn() -> None:
    episode = make_episode([2, 0, 1], rewards=[0.2, 0.3, 1.0])
    (scored,) = score(EnvironmentReward(segment=by_token), episode)
    assert scored.rewards["environment"].tolist() == [0.0, 0.2, 0.3, 1.0]
    assert scored.scored_S.all()
    assert list(scored.rewards) == ["environment"]


def test_a_failed_episode_is_unscored_at_every_step() -> None:
    (scored,) = score(EnvironmentReward(), make_episode([2, 1], rewards=[1.0, 1.0], failed=True))
    assert scored.outcome is None
    assert scored.scored_S.tolist() == [False, False]
    assert scored.process_S.tolist() == [0.0, 0.0]


def test_invalid_actions_are_charged() -> None:
    episode = make_episode([1, 1, 1], rewards=[0.0, 0.5, 0.0])
    first = replace(episode.turns[0], action=Invalid("buy", "no bracket"))
    third = replace(episode.turns[2], reply=replace(episode.turns[2].reply, valid=False))
    (scored,) = score(EnvironmentReward(invalid_penalty=0.1), replace(episode, turns=(first, episode.turns[1], third)))
    assert scored.rewards["invalid"].tolist() == [-0.1, 0.0, -0.1]
    assert scored.process_S.tolist() == [-0.1, 0.5, -0.1]


def test_u27_environment_rewards_reach_the_advantages() -> None:
    episodes = make_episode([1, 2, 1], rewards=[0.2, 0.0, 1.0]), make_episode([1], member=1, rewards=[0.0])
    scored = EnvironmentReward().score([Group(make_task(), episodes)])
    credited = ProcessToGo(baseline=None)(scored)[0].members
    assert np.allclose(credited[0].advantages_S, [1.2, 1.0, 1.0])
    assert np.allclose(credited[1].advantages_S, [-1.2])


def test_u28_many_turns_do_not_beat_success() -> None:
    """Penalties are at most 0 a turn, so a long episode cannot collect more than a solved one."""
    solved = make_episode([1], rewards=[1.0])
    retries = make_episode([1] * 5, member=1, score=0.0, rewards=[0.0] * 5)
    scored = EnvironmentReward(invalid_penalty=0.1).score([Group(make_task(), (solved, retries))])
    for rule in (ProcessToGo(), OutcomeOnly()):
        first, second = rule(scored)[0].members
        assert first.advantages_S.min() > second.advantages_S.max()


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="Unknown pay 'sucess'; did you mean 'success'"):
        OutcomeReward(pay="sucess")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"invalid_penalty is -0\.1"):
        EnvironmentReward(invalid_penalty=-0.1)
