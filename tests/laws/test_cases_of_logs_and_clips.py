"""Faults of other libraries with their right answers, by id: what is logged, and which advantages a clip may touch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from builders import make_batch, make_episode, make_group, make_scored, outcomes_group

from stepwell.credit import Centred, IStar, OutcomeOnly, ProcessSupervision, Standardised, credit_metrics
from stepwell.losses import Clip, PolicyLoss
from stepwell.tracking.metrics import episode_metrics, mean_present, reward_metrics
from stepwell.types import Group, Outputs


def test_u25_step_rewards_are_kept_beside_what_a_rule_makes_of_them() -> None:
    """U25: nothing overwrites the raw step rewards [-0.2, 1]; the normalised ones stand beside them."""
    group = make_group(make_scored([2, 2], outcome=1.0, process=[-0.2, 1.0]), make_scored([2, 2], outcome=0.0, process=[0.3, 0.1]))
    for rule in (IStar(), ProcessSupervision()):
        first = rule([group])[0].members[0]
        assert first.scored.process_S.tolist() == [-0.2, 1.0]
        assert first.parts["process"][0] != first.parts["process"][1]


def test_u28_many_small_step_rewards_do_not_beat_success_in_the_outcome_part() -> None:
    """U28: one turn that is right against five well-formed ones that are wrong: the right one has the larger episode advantage."""
    right, retries = make_scored([1], outcome=1.0, process=[1.0]), make_scored([1] * 5, outcome=0.0, process=[1.0] * 5)
    for rule in (OutcomeOnly(Centred()), IStar(alpha=0.1)):
        a, b = rule([make_group(right, retries)])[0].members
        assert a.advantages_S.mean() > 0 > b.advantages_S.mean()


@pytest.mark.parametrize("rule", [OutcomeOnly(), IStar(), ProcessSupervision()])
def test_u29_steps_beyond_the_shorter_trajectory_have_a_stated_rule(rule: OutcomeOnly) -> None:
    """U29: 2 against 4 steps: finite everywhere, and no raw reward leaks."""
    group = make_group(
        make_scored([1, 1], outcome=1.0, process=[0.5, 0.1]), make_scored([1] * 4, outcome=0.0, process=[0.2, 0.3, 70.0, 80.0])
    )
    for member in rule([group])[0].members:
        assert np.isfinite(member.advantages_S).all()
        assert np.abs(member.advantages_S).max() < 10


def test_u31_u34_means_count_each_rollout_once_and_raw_returns_are_logged_as_returns() -> None:
    """U31: success of 2 steps and failure of 8 is 0.5. U34: outcomes [3, 5] are logged as 4, their advantages apart as size 1."""
    episodes = Group(make_episode([1]).task, (make_episode([1] * 2, score=1.0), make_episode([1] * 8, score=0.0)))
    assert episode_metrics([episodes])["rollout/success"] == 0.5
    made = credit_metrics(OutcomeOnly(Standardised(ddof=0, noise_floor=0.0))([outcomes_group([3.0, 5.0])]))
    assert (made["credit/outcome"], made["credit/outcome_abs"]) == (4.0, 1.0)
    scored = make_group(make_scored([1] * 2, outcome=1.0, process=[1.0, 2.0]), make_scored([1] * 3, outcome=0.0, process=[1.0, 2.0, 2.0]))
    assert reward_metrics([scored])["reward/judge"] == 4.0
    assert credit_metrics(IStar()([scored]))["credit/return"] == 4.0


def test_u33_one_missing_value_does_not_wipe_the_mean() -> None:
    """U33: [0.5, NaN, 0.7] is 0.6, and one missing."""
    found = mean_present([0.5, float("nan"), 0.7])
    assert found.mean == pytest.approx(0.6)
    assert (found.num_present, found.num_missing) == (2, 1)


@pytest.mark.parametrize(("advantage", "ratio", "loss"), [(1.0, 10.0, -1.2), (-1.0, 10.0, 3.0), (-1.0, 2.0, 2.0)])
def test_u47_dual_clip_touches_negative_advantages_alone(advantage: float, ratio: float, loss: float) -> None:
    """U47: A = 1 at ratio 10, clip 0.2, c = 3: -1.2, not -3."""
    batch = make_batch([[1]], advantage=[[advantage]], old=[[-3.0]])
    outputs = Outputs(torch.tensor([[-3.0 + np.log(ratio)]], dtype=torch.float64))
    value, _ = PolicyLoss(Clip(0.2, 0.2, dual=3.0), old="given")(outputs, batch)
    assert value.item() == pytest.approx(loss)
