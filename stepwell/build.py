"""From a config to the parts of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple, cast

from stepwell.config import Config, CustomConfig, GAECredit, LossConfig, OptimizerConfig, RemoteEngineConfig
from stepwell.credit import needs_of
from stepwell.crediting import around_of, check_states, overlong_of, rule_of, shaping_of, supplied
from stepwell.custom import custom
from stepwell.domains import build_domain
from stepwell.drawing import curriculum_of
from stepwell.engine.ranks import Ranks
from stepwell.envs.interrupt import Interrupted
from stepwell.experts import Source, demonstrations, difficulty_of, training_task
from stepwell.judging import judge_learns, reward_of
from stepwell.losses import Cispo, Clip, Correction, Masked, PolicyLoss, Reinforce, Surrogate, Truncated
from stepwell.protocols import Assign, Domain, Model
from stepwell.speaking import Speaker, build_speaker, load_base, make_chat, optimizer_spec, policy_spec
from stepwell.trainer import Cloning, Learning, Parts, Schedule, Trainer
from stepwell.training.plan import never
from stepwell.types import Task
from stepwell.world import World

__all__ = [
    "Built",
    "Speaker",
    "build",
    "build_domain",
    "build_speaker",
    "first_tasks",
    "load_base",
    "make_chat",
    "policy_spec",
]


class Built(NamedTuple):
    """A run, ready to start."""

    domain: Domain
    speaker: Speaker
    policy: Model
    trainer: Trainer


def build(config: Config, *, ranks: Ranks | None = None) -> Built:
    """Makes and checks every part; raises before any token is sampled.

    Args:
        config: Of the run.
        ranks: Processes that compute together; this one leads.
    """
    domain = build_domain(config.domain)
    speaker = build_speaker(config, domain, ranks=ranks)
    spec = policy_spec(config)
    policy = speaker.engine.model("policy", spec)
    assign = _assign(config, domain)
    world = World(speaker.engine, policy, domain, speaker.player, speaker.tokenizer, config.seed)
    calm = domain.inner if isinstance(domain, Interrupted) else domain
    parts = Parts(
        domain=domain,
        policy=policy,
        player=speaker.player,
        judge=reward_of(config, world),
        assign=assign,
        curriculum=curriculum_of(config, domain, difficulty_of(config)),
        shaping=shaping_of(config),
        around=around_of(config, domain, world.go_on, world.moved(calm).go_on),
        reference=policy.keep if config.loss.kl != "none" or "reference" in needs_of(assign) else None,
    )
    cloning = None
    if config.cloning.steps:
        cloning = Cloning(
            steps=config.cloning.steps,
            batch=config.cloning.batch,
            schedule=_schedule(config.cloning.optimizer),
            optimizer=optimizer_spec(config.cloning.optimizer),
            demonstration=demonstrations(config, domain, speaker.player, Source(config.cloning.demonstrations, "cloning.demonstrations")),
        )
    return Built(domain, speaker, policy, Trainer(parts, seed=config.seed, cloning=cloning, learning=_learning(config)))


def _schedule(config: OptimizerConfig) -> Schedule:
    return Schedule(config.lr, config.warmup, config.decay, config.floor)


def _learning(config: Config) -> Learning:
    loss, rollout = config.loss, config.rollout
    return Learning(
        steps=config.steps,
        groups=rollout.groups,
        group_size=rollout.group_size,
        loss=PolicyLoss(
            _surrogate(loss),
            level=loss.ratio,
            pooling=loss.pooling,
            old="detached" if loss.old_logprobs == "detached" else "given",
            correction=_correction(loss),
            kl_coef=loss.kl_coef if loss.kl != "none" and loss.kl_in == "loss" else None,
            kl_kind=loss.kl if loss.kl != "none" and loss.kl_in == "loss" else "k2",
            entropy_coef=None if isinstance(config.engine, RemoteEngineConfig) else loss.entropy_coef,
        ),
        schedule=_schedule(config.optimizer),
        optimizer=optimizer_spec(config.optimizer),
        averaging=loss.averaging,
        constant=loss.constant,
        old_logprobs=loss.old_logprobs,
        epochs=loss.epochs,
        minibatches=loss.minibatches,
        draw_budget=rollout.draw_budget,
        learn="after" if isinstance(config.credit, GAECredit) else judge_learns(config),
        kl_in_reward=loss.kl_coef if loss.kl != "none" and loss.kl_in == "reward" else None,
        overlong=overlong_of(loss),
        flat="stop" if isinstance(config.curriculum, CustomConfig) else config.curriculum.flat,
        ahead=_ahead(config),
    )


def _ahead(config: Config) -> Callable[[int], bool]:
    """Which steps' batches are sampled ahead: none that follows a checkpoint, so that a resumed run samples what an unbroken one does."""
    if not config.rollout.ahead:
        return never
    saved = [every for every in (config.checkpoint.every, config.evaluation.every) if every]
    return lambda step: all(step % every for every in saved)


def _surrogate(loss: LossConfig) -> Surrogate:
    if loss.surrogate == "reinforce":
        return Reinforce()
    return Cispo(loss.clip_low, loss.clip_high) if loss.surrogate == "cispo" else Clip(loss.clip_low, loss.clip_high, loss.dual_clip)


def _correction(loss: LossConfig) -> Correction | None:
    if loss.correction == "none":
        return None
    return Truncated(loss.correction_high) if loss.correction == "truncate" else Masked(loss.correction_low, loss.correction_high)


def _assign(config: Config, domain: Domain) -> Assign:
    check_states(config, domain, training_task(config, domain, 0, "corpus"))
    if isinstance(config.credit, CustomConfig):
        return supplied(config, cast(Assign, custom(config.credit, "credit", ("__call__",))))
    return supplied(config, rule_of(config, domain))


def first_tasks(domain: Domain, split: str, n: int) -> Sequence[Task]:
    """The first n tasks of a split; fewer where it has fewer."""
    return tuple(islice(domain.tasks(split), n))
