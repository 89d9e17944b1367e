"""What `loss.*` says reaches the update, and what cannot work is said by the config."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from stepwell.build import build
from stepwell.config import LossConfig
from stepwell.configure import load
from stepwell.credit.shaping import Overlong
from stepwell.errors import ConfigError
from stepwell.losses import Cispo, Clip, Masked, PolicyLoss, Reinforce, Truncated
from stepwell.trainer import Trainer, update
from stepwell.types import Group

SMALL = (
    *(f"engine.{name}" for name in ("threads=1", "width=16", "layers=1", "corpus_tasks=6", "max_length=64", "vocabulary=256")),
    *(f"rollout.{name}" for name in ("groups=2", "group_size=4", "turns=2", "max_tokens=4")),
    *("domain.kind=kill_driver:Luck", "cloning.steps=0", "evaluation.every=0", "evaluation.episodes=2", "steps=3"),
    *("reward.kind=outcome", "credit.kind=drgrpo", "optimizer.lr=0.01"),
)
KL_IN_REWARD = ("loss.kl=k1", "loss.kl_in=reward", "loss.kl_coef=0.5")


def trainer(*settings: str) -> Trainer:
    return build(load("smoke", [*SMALL, *settings])).trainer


@pytest.mark.parametrize(
    ("settings", "loss"),
    [
        ([], PolicyLoss(entropy_coef=0.0)),
        (["clip_high=0.28", "dual_clip=3"], PolicyLoss(Clip(0.2, 0.28, dual=3.0), entropy_coef=0.0)),
        (["surrogate=cispo", "clip_low=1", "clip_high=4"], PolicyLoss(Cispo(1.0, 4.0), entropy_coef=0.0)),
        (["surrogate=reinforce", "entropy_coef=0.1"], PolicyLoss(Reinforce(), entropy_coef=0.1)),
        (["correction=truncate", "correction_high=3"], PolicyLoss(correction=Truncated(3.0), entropy_coef=0.0)),
        (["correction=mask", "correction_low=0.4"], PolicyLoss(correction=Masked(0.4, 2.0), entropy_coef=0.0)),
        (["old_logprobs=trainer", "ratio=step", "pooling=sum"], PolicyLoss(level="step", pooling="sum", old="given", entropy_coef=0.0)),
        (["kl=k3x", "kl_coef=0.2"], PolicyLoss(kl_coef=0.2, kl_kind="k3x", entropy_coef=0.0)),
        (["kl=k1", "kl_in=reward"], PolicyLoss(entropy_coef=0.0)),
    ],
)
def test_settings_reach_the_loss(settings: list[str], loss: PolicyLoss) -> None:
    made = trainer(*(f"loss.{setting}" for setting in settings))
    assert made.learning.loss == loss
    assert (made.parts.reference is not None) == any(setting.startswith("kl=") for setting in settings)


def test_settings_reach_the_charges() -> None:
    made = trainer(*KL_IN_REWARD, "loss.overlong_limit=20", "loss.overlong_buffer=5", "loss.overlong_penalty=0.5").learning
    assert (made.kl_in_reward, made.overlong) == (0.5, Overlong(20, 5, 0.5))
    plain = trainer().learning
    assert plain.kl_in_reward is None
    assert plain.overlong is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kl": "k1"}, "loss.kl is 'k1', whose gradient is 0 on average as a loss; set loss.kl_in to 'reward'"),
        ({"kl": "k3", "kl_in": "reward"}, "loss.kl is 'k3' in the reward; there only 'k1'"),
        ({"kl_in": "reward"}, "loss.kl_in is 'reward' and loss.kl 'none'"),
        ({"dual_clip": 3.0, "surrogate": "cispo"}, "loss.dual_clip goes with loss.surrogate 'clip'; 'cispo' has none"),
        ({"surrogate": "reinforce", "ratio": "step"}, "loss.ratio is 'step', but loss.surrogate 'reinforce' uses no ratio"),
        ({"correction": "truncate", "old_logprobs": "sampler"}, "set loss.old_logprobs to 'trainer'"),
        ({"overlong_limit": 10}, "loss.overlong_buffer is 4096 and loss.overlong_limit 10; at most the limit"),
        ({"kl_coef": 5.0}, r"loss.kl_coef is 5.0, and nothing reads it while loss.kl is 'none'; leave it at 0.01, or set loss.kl \(k1, k2"),
        ({"clip_high": 0.3, "surrogate": "reinforce"}, "nothing reads it while loss.surrogate is 'reinforce'"),
        ({"pooling": "sum"}, r"nothing reads it while loss.ratio is 'token'; leave it at mean, or set loss.ratio \(step, episode\)"),
        ({"constant": 100.0}, "nothing reads it while loss.averaging is 'token'"),
        ({"correction_low": 0.1, "correction": "truncate", "old_logprobs": "trainer"}, "nothing reads it while loss.correction is 'trunc"),
        ({"dual_clip": 1.0}, "greater than 1"),
        ({"correction_high": 0.5}, "greater than or equal to 1"),
    ],
)
def test_settings_that_exclude_each_other(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        LossConfig.model_validate(settings)


def test_kl_in_the_reward_starts_at_zero_and_is_a_part_of_the_advantage() -> None:
    """U50: exactly 0 before the first update. Then the policy is elsewhere, and every step has its part."""
    first, *later = list(trainer(*KL_IN_REWARD).run())
    assert first.metrics["policy/kl_ref"] == first.metrics["credit/kl_abs"] == 0.0
    assert all(result.metrics["credit/kl_abs"] > 0 and result.metrics["policy/kl_ref"] != 0 for result in later)
    for member in (member for result in later for group in result.groups for member in group.members):
        np.testing.assert_allclose(member.advantages_S, member.parts["outcome"] + member.parts["kl"])
        assert member.parts["kl"].any()


def test_the_overlong_penalty_is_charged_and_told() -> None:
    (result, *_) = list(trainer("loss.overlong_limit=4", "loss.overlong_buffer=4").run())
    members = [member for group in result.groups for member in group.members]
    costs = [min(member.scored.episode.num_tokens / 4, 1.0) for member in members]
    assert [member.scored.outcome for member in members] == pytest.approx(
        [float(member.scored.episode.verdict.success or False) - cost for member, cost in zip(members, costs, strict=True)]
    )
    assert result.metrics["reward/overlong"] == pytest.approx(-np.mean(costs))


@pytest.mark.parametrize("old", ["trainer", "sampler"])
def test_old_log_probs_are_whose_they_are_said_to_be(old: str) -> None:
    """Also where a stage before has computed the trainer's."""
    made = trainer(f"loss.old_logprobs={old}")
    groups = next(made.run()).groups
    shifted = [
        Group(
            group.task,
            tuple(
                replace(
                    m, scored=replace(m.scored, old_logprobs_T=np.full(m.scored.episode.num_tokens, -50.0)), advantages_S=m.advantages_S + 1
                )
                for m in group.members
            ),
        )
        for group in groups
    ]
    metrics = update(made.parts.policy, shifted, made.learning, lr=0.0, seed=("test",))
    assert (metrics["policy/ratio_mean"] > 1e6) == (old == "trainer")


def test_several_updates_with_everything_on_stay_finite_and_told() -> None:
    settings = ("surrogate=cispo", "kl=k3x", "correction=mask", "old_logprobs=trainer", "epochs=2", "minibatches=2", "entropy_coef=0.01")
    for result in trainer(*(f"loss.{setting}" for setting in settings)).run():
        assert all(math.isfinite(result.metrics[name]) for name in ("policy/loss", "policy/kl_ref", "policy/entropy", "policy/grad_norm"))
        assert result.metrics["sampler/weight_mean"] == pytest.approx(1.0, abs=1e-3)
        assert result.metrics["sampler/corrected_share"] == 0.0


def test_more_updates_than_one_without_old_log_probs_are_refused() -> None:
    with pytest.raises(ConfigError, match="old_logprobs is 'detached' with 2 updates"):
        trainer("loss.epochs=2")
