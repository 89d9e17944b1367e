"""From the settings of a remote engine to one, checked before a token is sampled."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

from stepwell.config import Config, GAECredit, IntrinsicConfig, RemoteEngineConfig, each_judge
from stepwell.engine.load import load_tokenizer, use_threads
from stepwell.engine.local import Text
from stepwell.engine.patience import Patience
from stepwell.engine.reduction import measure_reduction
from stepwell.engine.remote import RemoteEngine
from stepwell.engine.servers import SERVERS, ServerKind, check_clips, server_kind
from stepwell.engine.service import Service
from stepwell.engine.web import Web
from stepwell.errors import CapabilityError, ConfigError
from stepwell.seeding import derive

__all__ = ["Connection", "check_carried", "checked_service", "connect", "open_service", "remote_engine", "unclipped"]


class Connection(NamedTuple):
    """The servers of a run, and the tokenizer of their base.

    Attributes:
        service: Of the policy.
        judges: Of all other models; the same one, where there is one.
        max_length: Tokens of the longest sequence.
    """

    service: Service
    judges: Service
    tokenizer: Any
    max_length: int

    def engine(self, text: Text, seed: int) -> RemoteEngine:
        """The engine on these servers; `seed` is of the run."""
        judges = None if self.judges is self.service else self.judges
        return RemoteEngine(self.service, text, self.max_length, judges=judges, seed=derive(seed, "adapters"))


def check_carried(config: Config) -> None:
    """Refuses what no server of the Tinker API can compute, before one is asked.

    Raises:
        CapabilityError: Names the settings and the ways out, a line each.
    """
    engine = config.engine
    assert isinstance(engine, RemoteEngineConfig)
    problems = [*_losses(config), *_hidden(config)]
    if engine.judge_url is not None and config.cloning.steps:
        problems.append(
            "engine.judge_url is set and cloning.steps is not 0: a judge starts as the policy, and trained weights do not travel between "
            "servers. Leave engine.judge_url out, or set cloning.steps=0."
        )
    if engine.server != "auto":
        problems += unclipped(config, server_kind(engine.server))
    if problems:
        raise CapabilityError("\n".join(problems))


def _losses(config: Config) -> list[str]:
    problems = []
    if config.loss.entropy_coef:
        problems.append(
            f"loss.entropy_coef is {config.loss.entropy_coef:g}, and a server gives no entropies; set it to 0, or use a local engine."
        )
    kinds = {"optimizer.kind": config.optimizer.kind} | (
        {"cloning.optimizer.kind": config.cloning.optimizer.kind} if config.cloning.steps else {}
    )
    for setting, kind in kinds.items():
        if kind != "adamw":
            problems.append(f"{setting} is {kind!r}, and servers of the Tinker API have adamw alone; set {setting}=adamw.")
    return problems


def _hidden(config: Config) -> list[str]:
    """What reads hidden states or whole distributions."""
    problems = []
    if isinstance(config.credit, GAECredit):
        problems.append("credit.kind is 'gae', whose critic is a head; a server gives no hidden states. Choose another, or a local engine.")
    for setting, reward in each_judge(config.reward).items():
        if "head" in (getattr(reward, "model", ""), getattr(reward, "judge", "")):
            problems.append(
                f"{setting}.kind is {reward.kind!r} with a head; a server gives no hidden states. Choose lora or label, or a local engine."
            )
        if isinstance(reward, IntrinsicConfig):
            problems.append(f"{setting}.kind is 'intrinsic', which reads whole distributions; a server gives none. Use a local engine.")
    return problems


def unclipped(config: Config, kind: ServerKind) -> list[str]:
    """What is wrong with each setting that asks a server of this kind for a clipping that it never does."""
    norms = {"optimizer.max_grad_norm": config.optimizer.max_grad_norm}
    if config.cloning.steps:
        norms["cloning.optimizer.max_grad_norm"] = config.cloning.optimizer.max_grad_norm
    for setting, judge in each_judge(config.reward).items():
        of_reward = getattr(judge, "max_grad_norm", None)
        if of_reward is not None:
            norms[f"{setting}.max_grad_norm"] = of_reward
    problems = []
    for setting, norm in norms.items():
        try:
            check_clips(kind, norm, setting)
        except CapabilityError as error:
            problems.append(str(error))
    return problems


def connect(config: RemoteEngineConfig) -> Connection:
    """Reaches the servers, and checks that they serve this base, with this tokenizer.

    Raises:
        MissingExtraError: The SDK is not installed.
        ConfigError: An address, a key, a base or a tokenizer that is not right.
        CapabilityError: A kind of server that is not known.
        ServerError: Nobody answers.
    """
    use_threads(config.threads)

    def service(url: str) -> Service:
        return open_service(config, Web(url, config.key_name, config.plain_http))

    with ExitStack() as opened:  # A session that nothing comes of is ended.
        first = opened.enter_context(closing(service(config.url)))
        judges = first
        if config.judge_url not in (None, config.url):
            judges = opened.enter_context(closing(service(str(config.judge_url))))
        found = Connection(first, judges, _tokenizer(config), _max_length(config, first))
        opened.pop_all()
    return found


def open_service(config: RemoteEngineConfig, web: Web) -> Service:
    """The server there; `server=auto` finds out what kind it is.

    Raises:
        CapabilityError: It cannot be told.
    """
    from stepwell.engine.tinker_api import TinkerService

    patience = Patience(timeout_s=config.timeout_s, gone_s=config.gone_s)
    if config.server != "auto":
        return TinkerService(web, server_kind(config.server), config.model, patience)
    web.served_models()  # what is no such server is told from one of an unknown kind
    kinds = web.known_kinds()
    if len(kinds) == 1:
        return TinkerService(web, server_kind(kinds[0]), config.model, patience)
    if not kinds:
        raise CapabilityError(
            f"engine.server is auto, and the server at {web.url} is of no kind that is known by its address or API; say which: "
            f"{', '.join(SERVERS)}. What it computes is shown by: stepwell engine check {web.url} --server KIND"
        )
    with closing(TinkerService(web, server_kind(kinds[0]), config.model, patience)) as first, closing(first.create(1, 0)) as trainee:
        found = measure_reduction(trainee, range(5)).reduction
    fitting = [kind for kind in kinds if server_kind(kind).dialect.reduction == found]
    if not fitting:
        raise CapabilityError(
            f"The server at {web.url} looks like {' or '.join(kinds)}, and what it makes of token losses is not what these make of them; "
            f"see stepwell engine check {web.url}, and say engine.server if you know better."
        )
    return TinkerService(web, server_kind(fitting[0]), config.model, patience)


def checked_service(url: str, server: str, model: str, key_name: str, plain_http: str) -> Service:
    """A server that is to be looked at. One of an unknown kind is held against the API's documentation.

    Args:
        model: Its base; "" is the only one that it serves.
        server: Its kind, or `auto`.
    """
    from stepwell.engine.tinker_api import TinkerService

    web = Web(url, key_name, plain_http)
    served = web.served_models()
    if not model and len(served) != 1:
        raise ConfigError(f"The server at {url} serves {', '.join(served) or 'nothing'}; say which with --model.")
    base = model or next(iter(served))
    kinds = web.known_kinds()
    if server == "auto" and not kinds:
        return TinkerService(web, server_kind("tinker"), base, Patience())
    return open_service(RemoteEngineConfig.model_validate({"url": url, "model": base, "server": server}), web)


def _tokenizer(config: RemoteEngineConfig) -> Any:
    found = load_tokenizer(config.tokenizer or config.model)
    if config.tokenizer in (None, config.model):
        return found
    try:
        own = load_tokenizer(config.model)
    except ConfigError:
        return found  # the base's own is not at hand to compare with
    if own.get_vocab() != found.get_vocab():
        raise ConfigError(
            f"engine.tokenizer is {config.tokenizer}, whose {len(found)} tokens are not the {len(own)} of {config.model}, which the server "
            "computes with; leave engine.tokenizer out."
        )
    return found


def _max_length(config: RemoteEngineConfig, service: Service) -> int:
    said = service.max_length
    if said is not None and config.max_length is not None and config.max_length > said:
        raise ConfigError(f"engine.max_length is {config.max_length}, and {service.base} at {service.url} takes {said} tokens at most.")
    file = Path(config.model) / "config.json"
    own = json.loads(file.read_text(encoding="utf-8")).get("max_position_embeddings") if file.is_file() else None
    found = config.max_length or said or own
    if not isinstance(found, int):
        raise ConfigError(f"The server at {service.url} does not say how long a sequence may be; set engine.max_length.")
    return found


def remote_engine(config: Config, found: Connection, text: Text) -> RemoteEngine:
    """The engine on these servers, once it is known that they can do what the config asks, with words that the base knows."""
    problems = [line for service in (found.service, found.judges) for line in unclipped(config, service.kind)]
    with ExitStack() as refused:
        for service in {id(one): one for one in (found.service, found.judges)}.values():
            refused.callback(service.close)
        if problems:
            raise CapabilityError("\n".join(dict.fromkeys(problems)))
        engine = found.engine(text, config.seed)
        engine.check_vocabulary(len(found.tokenizer))
        refused.pop_all()
    return engine
