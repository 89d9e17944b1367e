"""From the settings of a reward to the judge, and the critic around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from stepwell.config import (
    Config,
    CustomConfig,
    EnvironmentRewardConfig,
    GAECredit,
    ImplicitConfig,
    InverseConfig,
    MixtureConfig,
    OutcomeRewardConfig,
    TrainedConfig,
)
from stepwell.continuing import check_start, go_on_from
from stepwell.crediting import gae, overlong_of, segment_of
from stepwell.custom import custom
from stepwell.engine.local import Text
from stepwell.engine.speaking import SpeakingEngine
from stepwell.experts import Source, demonstrations, training_task
from stepwell.opening import check_place, opened
from stepwell.protocols import Capabilities, Model, ModelSpec, OptimizerSpec, Policy, ProcessReward
from stepwell.rewards.critic import Critic, CriticSettings, check_values
from stepwell.rewards.examples import Examples
from stepwell.rewards.fitted import check_head
from stepwell.rewards.implicit import ImplicitReward, ImplicitSettings
from stepwell.rewards.inverse import InverseReward, InverseSettings, check_experts
from stepwell.rewards.mixture import MixtureReward, Part
from stepwell.rewards.outcome import EnvironmentReward, OutcomeReward
from stepwell.rewards.progress import ProgressReward
from stepwell.rewards.retold import Retelling, RetoldReward
from stepwell.rollout import demonstrate
from stepwell.step_judges import step_judge
from stepwell.types import Action, Episode, Invalid, Task
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
    return config.reward.learn if isinstance(config.reward, ImplicitConfig | InverseConfig | MixtureConfig) else "after"


def judge_spec(config: Config, reward: ImplicitConfig | InverseConfig) -> ModelSpec:
    """What the judge is: a language model that starts as the policy, or a head on one."""
    return ModelSpec(
        kind=reward.model,
        of="policy",
        rank=config.engine.rank,
        alpha=config.engine.alpha,
        temperature=config.rollout.temperature,
        optimizer=OptimizerSpec(max_grad_norm=reward.max_grad_norm),
        trunk=reward.trunk if isinstance(reward, InverseConfig) else "shared",
    )


def _judge(config: Config, world: World) -> Callable[[], ProcessReward]:
    """A judge that is a model is made when it is called for; any other now, so that what is wrong with it is said now."""
    reward = config.reward
    if isinstance(reward, ImplicitConfig):
        return _implicit(config, reward, world)
    if isinstance(reward, InverseConfig):
        return _inverse(config, reward, world)
    if isinstance(reward, MixtureConfig):
        return _mixture(config, reward, world)
    if isinstance(reward, TrainedConfig):
        return _trained(config, reward, world)
    made_of_steps = step_judge(config, world)
    if made_of_steps is not None:
        return made_of_steps
    segment = segment_of(config)
    if isinstance(reward, OutcomeRewardConfig):
        made: ProcessReward = OutcomeReward(reward.pay, segment)
    elif isinstance(reward, EnvironmentRewardConfig) and reward.steps == "progress":
        made = ProgressReward.of(world.domain, training_task(config, world.domain, 0, "corpus"), reward.pay, segment)
    elif isinstance(reward, EnvironmentRewardConfig):
        made = EnvironmentReward(reward.pay, segment, invalid_penalty=reward.invalid_penalty)
    else:
        assert isinstance(reward, CustomConfig)
        made = cast(ProcessReward, custom(reward, "reward", ("score",)))
    return lambda: made


def _mixture(config: Config, reward: MixtureConfig, world: World) -> Callable[[], ProcessReward]:
    """Each judge as it would be made alone, its models under names of their own."""
    makes = {
        name: _judge(config.model_copy(update={"reward": judge}), world._replace(engine=_Named(world.engine, f"{name}_", set())))
        for name, judge in reward.judges.items()
    }
    return lambda: MixtureReward({name: Part(make(), reward.weights.get(name, 1.0)) for name, make in makes.items()})


@dataclass(frozen=True, slots=True)
class _Named:
    """An engine whose new models have a prefix before their names."""

    engine: SpeakingEngine
    prefix: str
    made: set[str]

    @property
    def text(self) -> Text:
        return self.engine.text

    @property
    def max_length(self) -> int:
        return self.engine.max_length

    @property
    def notice(self) -> str:
        return self.engine.notice

    @property
    def capabilities(self) -> Capabilities:
        return self.engine.capabilities

    def as_it_is(self) -> Policy:
        return self.engine.as_it_is()

    def model(self, name: str, spec: ModelSpec) -> Model:
        of = f"{self.prefix}{spec.of}" if spec.of in self.made else spec.of
        self.made.add(name)
        return self.engine.model(f"{self.prefix}{name}", replace(spec, of=of))


def _trained(config: Config, reward: TrainedConfig, world: World) -> Callable[[], ProcessReward]:
    """A base of its own in memory; opened now, so that what is wrong with it is said now."""
    threads = getattr(config.engine, "threads", None)
    found = opened(Path(reward.run), reward_of, [f"engine.threads={'null' if threads is None else threads}"], checkpoint=reward.checkpoint)
    check_place(found, config, "this run trains in", "train")
    player = found.world.player
    retelling = Retelling(player.chat, found.separator, player.limits.context, found.world.policy.version)
    decode, segment = world.engine.text.decode, segment_of(config)
    made = RetoldReward(found.reward, retelling, decode, pay=reward.pay, segment=segment, origin=found.origin)
    return lambda: made


def _implicit(config: Config, reward: ImplicitConfig, world: World) -> Callable[[], ProcessReward]:
    settings = ImplicitSettings(
        beta=reward.beta,
        lr=reward.lr,
        reference=reward.reference,
        pay=reward.pay,
        updates=reward.updates,
        judged=reward.judged,
        objective=reward.objective,
        unit=reward.unit,
    )
    spec, segment = judge_spec(config, reward), segment_of(config)
    return lambda: ImplicitReward(world.engine.model("judge", spec), world.policy, settings, segment)


def _inverse(config: Config, reward: InverseConfig, world: World) -> Callable[[], ProcessReward]:
    settings = InverseSettings(
        objective=reward.objective,
        form="head" if reward.model == "head" else "log_ratio",
        lr=reward.lr,
        updates=reward.updates,
        pay=reward.pay,
        correct=reward.correct,
        bound=reward.bound,
        weights=reward.weights,
        temper=reward.temper,
        total=reward.total,
        smoothing=reward.smoothing,
        logit=reward.logit,
        clip=reward.clip,
        discount=reward.discount,
        beta=reward.beta,
        reference=reward.reference,
    )
    if reward.model == "head":
        check_head(world.engine.capabilities, reward.kind)
    examples, spec, segment = _examples(config, reward, world), judge_spec(config, reward), segment_of(config)
    check_experts(settings, examples)
    start = None if reward.start is None else Path(reward.start)
    if start is not None:
        check_start(config, reward, start)

    def make() -> ProcessReward:
        judge = InverseReward(world.engine.model("judge", spec), world.policy, settings, examples, segment=segment)
        if start is not None:
            go_on_from(judge, start)
        return judge

    return make


def _examples(config: Config, reward: InverseConfig, world: World) -> Examples | None:
    """Demonstrations; the first is played now, so that a domain without an expert says so now."""
    if reward.demonstrations == "none":
        return None
    remedy = "or learn from the policy's own successes (reward.demonstrations=none)"
    source = Source(reward.demonstrations, "reward.demonstrations", remedy, draws="judge's demonstration")
    demonstration = demonstrations(config, world.domain, world.player, source)
    demonstration(0)

    def replay(task: Task, actions: Sequence[Action | Invalid]) -> Episode:
        return demonstrate(world.domain, task, world.player, actions)

    return Examples(demonstration, reward.batch, reward.spoilt, replay, seed=config.seed)
