"""From a config to a model that speaks in a domain."""

from __future__ import annotations

from typing import Any, NamedTuple

from stepwell.config import ChatConfig, Config, LocalEngineConfig, OptimizerConfig, RemoteEngineConfig, RolloutConfig, TinyEngineConfig
from stepwell.connect import check_carried, connect, remote_engine
from stepwell.domains import build_domain
from stepwell.engine.chat import Chat, check_fits
from stepwell.engine.codec import Codec, codec
from stepwell.engine.load import compute_dtype, load_pretrained, pick_device, use_threads
from stepwell.engine.local import Budget, LocalEngine, Text
from stepwell.engine.parallel import LeadEngine
from stepwell.engine.ranks import Ranks
from stepwell.engine.speaking import SpeakingEngine
from stepwell.engine.tiny import TinySpec, tiny_model, word_tokenizer
from stepwell.errors import CapabilityError, ConfigError
from stepwell.experts import training_task
from stepwell.protocols import Domain, ModelSpec, OptimizerSpec
from stepwell.rollout import Limits, Player, answered, began
from stepwell.seeding import derive
from stepwell.types import Sampling

__all__ = ["Speaker", "build_follower", "build_speaker", "load_base", "make_chat", "optimizer_spec", "policy_spec"]


class Speaker(NamedTuple):
    """A model with everything it needs to speak in a domain."""

    engine: SpeakingEngine
    tokenizer: Any
    player: Player
    notices: tuple[str, ...]


def build_speaker(config: Config, domain: Domain, trained: Config | None = None, *, ranks: Ranks | None = None) -> Speaker:
    """Loads or makes the model, and checks that its template and context fit the domain.

    Args:
        config: How it speaks here.
        domain: Where.
        trained: The config that it was trained with where that is another: a tiny model's vocabulary is of the domain that it learnt in.
        ranks: Processes that compute together; this one leads.
    """
    act = codec(config.chat.codec)
    task = training_task(config, domain, 0, "corpus")
    opening = domain.environment(task, 0)
    first = began(opening).text
    tools = act.describe(opening.tools) if config.chat.tools else ""
    made: SpeakingEngine
    if isinstance(config.engine, RemoteEngineConfig):
        check_carried(config)
        found = connect(config.engine)
        tokenizer = found.tokenizer
        chat = make_chat(tokenizer, config.chat, tools)
        made = remote_engine(config, found, Text(tokenizer.decode, chat.eos_ids))
    else:
        made_with = trained or config
        module, tokenizer = load_base(config, made_with, domain if made_with.domain == config.domain else None)
        chat = make_chat(tokenizer, config.chat, tools)
        made = _local_engine(config, module, Text(tokenizer.decode, chat.eos_ids), ranks)
    limit = min(config.rollout.context or made.max_length, made.max_length)
    check_fits(chat.converse(first).context(), limit=limit, reply=config.rollout.max_tokens, what=f"the first observation of {task.key}")
    notices = tuple(filter(None, [chat.notice, made.notice]))
    return Speaker(made, tokenizer, Player(chat, act, _sampling(config.rollout, act), _limits(config.rollout, limit)), notices)


def build_follower(config: Config, domain: Domain) -> LocalEngine:
    """The engine of a process that follows: the same base with the same seeds, and nothing else.

    Raises:
        ConfigError: The engine is a remote one.
    """
    if isinstance(config.engine, RemoteEngineConfig):
        raise ConfigError("engine.kind is 'remote', whose server has processes of its own; start one process, without torchrun.")
    module, tokenizer = load_base(config, config, domain)
    chat = make_chat(tokenizer, config.chat)
    return _local_engine(config, module, Text(tokenizer.decode, chat.eos_ids), None)


def _local_engine(config: Config, module: Any, text: Text, ranks: Ranks | None) -> LocalEngine:
    assert not isinstance(config.engine, RemoteEngineConfig)
    budget, seed = Budget(config.engine.micro_tokens, config.engine.micro_rows), derive(config.seed, "adapters")
    return LocalEngine(module, text, budget, seed) if ranks is None else LeadEngine(module, text, budget, seed, ranks=ranks)


def load_base(config: Config, trained: Config | None = None, domain: Domain | None = None) -> tuple[Any, Any]:
    """Model and tokenizer, without what was learnt.

    Args:
        config: Says which, and how it is computed.
        trained: As in `build_speaker`.
        domain: That of `trained`, if it is at hand.

    Raises:
        CapabilityError: The engine is a remote one, whose base is not here.
    """
    if isinstance(config.engine, RemoteEngineConfig):
        raise CapabilityError(
            f"The base of this run, {config.engine.model}, lies on the server {config.engine.url}, and so do the weights that were "
            "trained; have the server write them out (it knows them by the paths in the checkpoint's remote.json)."
        )
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


def policy_spec(config: Config) -> ModelSpec:
    """What the policy is on its base."""
    return ModelSpec(
        kind=config.engine.policy,
        rank=config.engine.rank,
        alpha=config.engine.alpha,
        temperature=config.rollout.temperature,
        optimizer=optimizer_spec(config.optimizer),
    )


def optimizer_spec(config: OptimizerConfig) -> OptimizerSpec:
    """How a model learns."""
    return OptimizerSpec(config.kind, config.betas, config.eps, config.weight_decay, config.max_grad_norm, config.rest_scale)
