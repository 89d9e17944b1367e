"""From the settings of a reward to the judge, and the critic around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

from stepwell.config import (
    Config,
    EnvironmentRewardConfig,
    GAECredit,
    ImplicitConfig,
    OutcomeRewardConfig,
)
from stepwell.crediting import gae, overlong_of, segment_of
from stepwell.custom import custom
from stepwell.protocols import ModelSpec, OptimizerSpec, ProcessReward
from stepwell.rewards.critic import Critic, CriticSettings, check_values
from stepwell.rewards.implicit import ImplicitReward, ImplicitSettings
from stepwell.rewards.outcome import EnvironmentReward, OutcomeReward
from stepwell.world import World

__all__ = ["judge_learns", "judge_spec", "reward_of"]


def reward_of(config: Config, world: World) -> Callable[[], ProcessReward]:
    """The judge, and around it a critic where the credit rule compares with values. To be called when reinforcement learning begins."""
    judge, credit = _judge(config, world), config.credit
    if not isinstance(credit, GAECredit):
        return judge
    check_values(world.engine.capabilities)
    spec = ModelSpec(kind="head", of="policy", trunk=credit.critic, optimizer=OptimizerSpec(max_grad_norm=credit.max_grad_norm))
    settings = CriticSettings(credit.lr or 4 * config.optimizer.lr, credit.updates, credit.clip, judge_learns(config))
    return lambda: Critic(judge(), world.engine.model("critic", spec), gae(credit), settings, charge=overlong_of(config.loss))


def judge_learns(config: Config) -> Literal["before", "after"]:
    """Whether the judge learns before or after it scores a batch."""
    return config.reward.learn if isinstance(config.reward, ImplicitConfig) else "after"


def judge_spec(config: Config, reward: ImplicitConfig) -> ModelSpec:
    """What the judge is: it starts as the policy."""
    return ModelSpec(
        kind=reward.model,
        of="policy",
        rank=config.engine.rank,
        alpha=config.engine.alpha,
        temperature=config.rollout.temperature,
        optimizer=OptimizerSpec(max_grad_norm=reward.max_grad_norm),
    )


def _judge(config: Config, world: World) -> Callable[[], ProcessReward]:
    """A judge that is a model is made when it is called for; any other now, so that what is wrong with it is said now."""
    reward = config.reward
    if isinstance(reward, ImplicitConfig):
        return lambda: _implicit(config, reward, world)
    segment = segment_of(config)
    if isinstance(reward, OutcomeRewardConfig):
        made: ProcessReward = OutcomeReward(reward.pay, segment)
    elif isinstance(reward, EnvironmentRewardConfig):
        made = EnvironmentReward(reward.pay, segment, invalid_penalty=reward.invalid_penalty)
    else:
        made = cast(ProcessReward, custom(reward, "reward", ("score",)))
    return lambda: made


def _implicit(config: Config, reward: ImplicitConfig, world: World) -> ProcessReward:
    settings = ImplicitSettings(reward.beta, reward.lr, reward.reference, reward.pay, reward.updates, reward.judged)
    return ImplicitReward(world.engine.model("judge", judge_spec(config, reward)), world.policy, settings, segment_of(config))
