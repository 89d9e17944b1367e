"""A model that only reads: no world, no turns of its own."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.config import Config, LocalEngineConfig, TinyEngineConfig
from stepwell.engine.codec import codec
from stepwell.engine.local import Budget, LocalEngine, Text
from stepwell.errors import CapabilityError, ConfigError
from stepwell.protocols import Environment
from stepwell.rollout import Limits, Player
from stepwell.seeding import derive
from stepwell.speaking import load_base, make_chat, policy_spec
from stepwell.types import Action, Episode, Sampling, Task, Verdict
from stepwell.world import World

__all__ = ["Nowhere", "reading_world"]

_NOWHERE = "This judge was taught by a file alone and plays nowhere; use a run that was trained in a domain."


class Nowhere:
    """No world at all: the domain of a judge that only reads."""

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        raise ConfigError(_NOWHERE)

    def tasks(self, split: str) -> Sequence[Task]:
        return ()

    def environment(self, task: Task, member: int) -> Environment:
        raise ConfigError(_NOWHERE)

    def grade(self, episode: Episode) -> Verdict:
        return Verdict.unscored("nobody grades what is only read")

    def expert(self, task: Task) -> Sequence[Action] | None:
        return None


def reading_world(config: Config, trained: Config | None = None) -> World:
    """What a judge that only reads is made from: the base as it is. No tools are described; a tiny model has the words of its domain.

    Args:
        config: How it is computed.
        trained: The config that it was taught with, where that is another.

    Raises:
        CapabilityError: The engine is not on this machine.
    """
    if not isinstance(config.engine, TinyEngineConfig | LocalEngineConfig):
        raise CapabilityError(
            f"engine.kind is {config.engine.kind!r}; a judge that is taught by a file needs weights on this machine: tiny or local."
        )
    module, tokenizer = load_base(config, trained)
    chat = make_chat(tokenizer, config.chat)
    budget = Budget(config.engine.micro_tokens, config.engine.micro_rows)
    engine = LocalEngine(module, Text(tokenizer.decode, chat.eos_ids), budget, seed=derive(config.seed, "adapters"))
    limits = Limits(turns=1, context=min(config.rollout.context or engine.max_length, engine.max_length))
    player = Player(chat, codec(config.chat.codec), Sampling(), limits)
    return World(engine, engine.model("policy", policy_spec(config)), Nowhere(), player, tokenizer, config.seed)
