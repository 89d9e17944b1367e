"""From a config to the parts of a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

from stepwell.config import (
    CaveConfig,
    ChatConfig,
    Config,
    CustomConfig,
    DomainConfig,
    GAECredit,
    LocalEngineConfig,
    LossConfig,
    MazeConfig,
    OptimizerConfig,
    RolloutConfig,
    ShopConfig,
    TinyEngineConfig,
)
from stepwell.credit import needs_of
from stepwell.crediting import check_states, overlong_of, rule_of, supplied
from stepwell.curriculum import Uniform
from stepwell.custom import custom
from stepwell.engine.chat import Chat, check_fits
from stepwell.engine.codec import Codec, codec
from stepwell.engine.load import compute_dtype, load_pretrained, pick_device, use_threads
from stepwell.engine.local import Budget, LocalEngine, LocalModel, Text
from stepwell.engine.tiny import TinySpec, tiny_model, word_tokenizer
from stepwell.envs.cave import CaveDomain
from stepwell.envs.maze import MazeDomain
from stepwell.envs.shop import ShopDomain
from stepwell.envs.shop.webshop import WebShopDomain, WebShopSettings
from stepwell.experts import Source, demonstrations, difficulty_of, training_task
from stepwell.judging import judge_learns, reward_of
from stepwell.losses import Cispo, Clip, Correction, Masked, PolicyLoss, Reinforce, Surrogate, Truncated
from stepwell.protocols import Assign, Curriculum, Domain, ModelSpec, OptimizerSpec
from stepwell.rollout import Limits, Player, answered, began
from stepwell.seeding import derive
from stepwell.trainer import Cloning, Learning, Parts, Schedule, Trainer
from stepwell.types import Sampling, Task
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


class Speaker(NamedTuple):
    """A model with everything it needs to speak in a domain."""

    engine: LocalEngine
    tokenizer: Any
    player: Player
    notices: tuple[str, ...]


class Built(NamedTuple):
    """A run, ready to start."""

    domain: Domain
    speaker: Speaker
    policy: LocalModel
    trainer: Trainer


def build(config: Config) -> Built:
    """Makes and checks every part; raises before any token is sampled."""
    domain = build_domain(config.domain)
    speaker = build_speaker(config, domain)
    spec = policy_spec(config)
    policy = speaker.engine.model("policy", spec)
    assign = _assign(config, domain)
    world = World(speaker.engine, policy, domain, speaker.player, speaker.tokenizer, config.seed)
    parts = Parts(
        domain=domain,
        policy=policy,
        player=speaker.player,
        judge=reward_of(config, world),
        assign=assign,
        curriculum=_curriculum(config, domain),
        reference=policy.keep if config.loss.kl != "none" or "reference" in needs_of(assign) else None,
    )
    cloning = None
    if config.cloning.steps:
        cloning = Cloning(
            steps=config.cloning.steps,
            batch=config.cloning.batch,
            schedule=_schedule(config.cloning.optimizer),
            optimizer=_optimizer(config.cloning.optimizer),
            demonstration=demonstrations(config, domain, speaker.player, Source(config.cloning.demonstrations, "cloning.demonstrations")),
        )
    return Built(domain, speaker, policy, Trainer(parts, seed=config.seed, cloning=cloning, learning=_learning(config)))


def build_domain(config: DomainConfig) -> Domain:
    """The domain of these settings."""
    if isinstance(config, ShopConfig):
        low, high = config.difficulty
        return ShopDomain(
            products=config.products,
            seed=config.seed,
            difficulty=(low, high),
            num_test_tasks=config.test_tasks,
            expert_haste=config.expert_haste,
        )
    if isinstance(config, CustomConfig):
        return cast(Domain, custom(config, "domain", ("task", "tasks", "environment", "grade", "expert")))
    if isinstance(config, MazeConfig):
        return MazeDomain(seed=config.seed, difficulty=config.difficulty, num_test_tasks=config.test_tasks, view=config.view)
    if isinstance(config, CaveConfig):
        return CaveDomain(seed=config.seed, difficulty=config.difficulty, num_test_tasks=config.test_tasks)
    settings = config.model_dump(exclude={"kind"})
    return WebShopDomain(WebShopSettings(**settings))


# -- speaking -----------------------------------------------------------------------------------------------------------------


def build_speaker(config: Config, domain: Domain, trained: Config | None = None) -> Speaker:
    """Loads or makes the model, and checks that its template and context fit the domain.

    Args:
        config: How it speaks here.
        domain: Where.
        trained: The config that it was trained with where that is another: a tiny model's vocabulary is of the domain that it learnt in.
    """
    act = codec(config.chat.codec)
    task = training_task(config, domain, 0, "corpus")
    opening = domain.environment(task, 0)
    first = began(opening).text
    made_with = trained or config
    module, tokenizer = load_base(config, made_with, domain if made_with.domain == config.domain else None)
    chat = make_chat(tokenizer, config.chat, act.describe(opening.tools) if config.chat.tools else "")
    budget = Budget(config.engine.micro_tokens, config.engine.micro_rows)
    made = LocalEngine(module, Text(tokenizer.decode, chat.eos_ids), budget, seed=derive(config.seed, "adapters"))
    limit = min(config.rollout.context or made.max_length, made.max_length)
    check_fits(chat.converse(first).context(), limit=limit, reply=config.rollout.max_tokens, what=f"the first observation of {task.key}")
    notices = tuple(filter(None, [chat.notice, made.notice]))
    return Speaker(made, tokenizer, Player(chat, act, _sampling(config.rollout, act), _limits(config.rollout, limit)), notices)


def load_base(config: Config, trained: Config | None = None, domain: Domain | None = None) -> tuple[Any, Any]:
    """Model and tokenizer, without what was learnt.

    Args:
        config: Says which, and how it is computed.
        trained: As in `build_speaker`.
        domain: That of `trained`, if it is at hand.
    """
    use_threads(config.engine.threads)
    if isinstance(config.engine, LocalEngineConfig):
        device = pick_device(config.engine.device)
        return load_pretrained(config.engine.model, compute_dtype(config.engine.dtype, device), device)
    trained = trained or config
    texts = _corpus(trained, domain or build_domain(trained.domain), codec(trained.chat.codec))
    tokenizer = word_tokenizer(texts, config.engine.vocabulary)
    module = tiny_model(len(tokenizer), _tiny_spec(config.engine), derive(trained.seed, "weights"))
    return module.to(pick_device(config.engine.device)), tokenizer


def make_chat(tokenizer: Any, config: ChatConfig, tools: str = "") -> Chat:
    """The chat of these settings; `tools` describes the domain's tools."""
    window = config.window if config.context == "window" else 0
    system = "\n\n".join(filter(None, [tools, config.system]))
    return Chat.of(tokenizer, config.context, window=window, system=system, template=config.template)


def _sampling(config: RolloutConfig, act: Codec) -> Sampling:
    return Sampling(config.temperature, config.max_tokens, tuple(dict.fromkeys((*config.stop, *act.stop))))


def _limits(config: RolloutConfig, context: int) -> Limits:
    return Limits(config.turns, context, config.rows, config.wall_s)


def _tiny_spec(engine: TinyEngineConfig) -> TinySpec:
    return TinySpec(engine.layers, engine.width, engine.feedforward, engine.heads, engine.vocabulary, engine.max_length)


def _corpus(config: Config, domain: Domain, act: Codec) -> list[str]:
    """Texts of expert episodes: what a vocabulary must hold."""
    assert isinstance(config.engine, TinyEngineConfig)
    texts: list[str] = []
    for number in range(config.engine.corpus_tasks):
        task = training_task(config, domain, number, "corpus")
        environment = domain.environment(task, 0)
        texts.append(began(environment).text)
        for action in domain.expert(task) or ():
            texts += [act.format(action, environment.tools), answered(environment, action).observation.text]
    return texts


# -- learning -----------------------------------------------------------------------------------------------------------------


def policy_spec(config: Config) -> ModelSpec:
    """What the policy is on its base."""
    return ModelSpec(
        kind=config.engine.policy,
        rank=config.engine.rank,
        alpha=config.engine.alpha,
        temperature=config.rollout.temperature,
        optimizer=_optimizer(config.optimizer),
    )


def _optimizer(config: OptimizerConfig) -> OptimizerSpec:
    return OptimizerSpec(config.kind, config.betas, config.eps, config.weight_decay, config.max_grad_norm, config.rest_scale)


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
            entropy_coef=loss.entropy_coef,
        ),
        schedule=_schedule(config.optimizer),
        optimizer=_optimizer(config.optimizer),
        averaging=loss.averaging,
        constant=loss.constant,
        old_logprobs=loss.old_logprobs,
        epochs=loss.epochs,
        minibatches=loss.minibatches,
        draw_budget=rollout.draw_budget,
        learn="after" if isinstance(config.credit, GAECredit) else judge_learns(config),
        kl_in_reward=loss.kl_coef if loss.kl != "none" and loss.kl_in == "reward" else None,
        overlong=overlong_of(loss),
    )


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


def _curriculum(config: Config, domain: Domain) -> Curriculum:
    if isinstance(config.curriculum, CustomConfig):
        options = {"domain": domain, "seed": config.seed, **config.curriculum.options}
        verbs = ("draw", "admit", "observe", "state", "restore")
        return cast(Curriculum, custom(CustomConfig(kind=config.curriculum.kind, options=options), "curriculum", verbs))
    return Uniform(domain, difficulty_of(config), config.seed)


def first_tasks(domain: Domain, split: str, n: int) -> Sequence[Task]:
    """The first n tasks of a split; fewer where it has fewer."""
    return tuple(islice(domain.tasks(split), n))
