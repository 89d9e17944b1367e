"""From settings to judges that say a number for each step."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stepwell.config import Config
from stepwell.config.judges import (
    EntropyConfig,
    FittedSettings,
    HeadSettings,
    IntrinsicConfig,
    LabelledConfig,
    MonteCarloConfig,
    SoftQConfig,
    TemporalConfig,
)
from stepwell.crediting import segment_of
from stepwell.errors import ConfigError
from stepwell.experts import Source, demonstrations
from stepwell.protocols import Model, ModelSpec, OptimizerSpec, ProcessReward
from stepwell.rewards.entropy import EntropyReward, EntropySettings
from stepwell.rewards.fitted import HeadReader, LabelReader, Reader, check_head
from stepwell.rewards.intrinsic import IntrinsicReward, IntrinsicSettings, check_certainty
from stepwell.rewards.labelled import Encoded, LabelledReward, LabelledSettings, encoded
from stepwell.rewards.montecarlo import MonteCarloReward, MonteCarloSettings
from stepwell.rewards.soft_q import SoftQReward, SoftQSettings
from stepwell.rewards.temporal import TemporalReward, TemporalSettings
from stepwell.seeding import generator
from stepwell.step_labels import Labels, read_step_labels
from stepwell.world import World

__all__ = ["label_ids", "labelled_data", "labelled_judge", "speaking_spec", "step_judge"]

_CACHED = 1 << 17


def step_judge(config: Config, world: World) -> Callable[[], ProcessReward] | None:
    """The judge of these settings, or None where they are not of this family. What is wrong with them is said now; what is a model is
    made when it is called for."""
    reward = config.reward
    if isinstance(reward, MonteCarloConfig):
        return _montecarlo(config, reward, world)
    if isinstance(reward, TemporalConfig):
        return _temporal(config, reward, world)
    if isinstance(reward, LabelledConfig):
        return labelled_judge(config, reward, world, labelled_data(reward, world))
    if isinstance(reward, SoftQConfig):
        return _soft_q(config, reward, world)
    if isinstance(reward, IntrinsicConfig):
        check_certainty(world.engine.capabilities)
        made = IntrinsicSettings(reward.scale, reward.pay)
        return lambda: IntrinsicReward(world.policy, made, segment_of(config))
    if isinstance(reward, EntropyConfig):
        charges = EntropySettings(**reward.model_dump(include={"pay", "beta", "form", "since", "split"}))
        return lambda: EntropyReward(world.policy, charges, segment_of(config))
    return None


def _montecarlo(config: Config, reward: MonteCarloConfig, world: World) -> Callable[[], ProcessReward]:
    names = {"pay", "source", "continuations", "budget", "first", "labels", "form", "discount", "members"}
    settings = MonteCarloSettings(**reward.model_dump(include=names))
    segment = segment_of(config)
    if reward.judge == "none":
        return lambda: MonteCarloReward(world.go_on, settings, segment=segment)
    reader = _reader(config, reward, world, reward.judge)
    return lambda: MonteCarloReward(world.go_on, settings, segment=segment, reader=reader(), lr=reward.lr, updates=reward.updates)


def _temporal(config: Config, reward: TemporalConfig, world: World) -> Callable[[], ProcessReward]:
    names = {"pay", "form", "discount", "lam", "beta", "truncated", "lr", "updates"}
    settings = TemporalSettings(**reward.model_dump(include=names))
    head = _head(reward, world, reward.kind)
    return lambda: TemporalReward(head(), settings, segment_of(config))


def labelled_data(reward: LabelledConfig, world: World) -> Encoded:
    """The labelled solutions of the file that these settings name, as this model reads them; none where it is "" (a judge that has been
    taught)."""
    if not reward.data:
        return Encoded([], 0, 0)
    solutions = read_step_labels(Path(reward.data), Labels(reward.scale, reward.neutral, reward.mark))
    if reward.limit is not None and reward.limit < len(solutions):
        drawn = generator(world.seed, "labelled solutions").permutation(len(solutions))[: reward.limit]
        solutions = [solutions[i] for i in sorted(drawn.tolist())]
    chat, tokenizer = world.player.chat, world.tokenizer
    return encoded(
        solutions,
        lru_cache(_CACHED)(lambda prompt: chat.converse(prompt).context()),
        lru_cache(_CACHED)(lambda text: np.array(tokenizer.encode(text, add_special_tokens=False), np.int64)),
        separator=reward.separator,
        max_length=reward.max_length or world.player.limits.context,
    )


def labelled_judge(config: Config, reward: LabelledConfig, world: World, data: Encoded) -> Callable[[], ProcessReward]:
    """The labelled judge, to be fitted to these labels; one that has been fitted needs none."""
    names = {"pay", "form", "warm", "updates", "batch", "held_out", "lr"}
    settings = LabelledSettings(**reward.model_dump(include=names))
    reader = _reader(config, reward, world, reward.judge)
    return lambda: LabelledReward(reader(), data, settings, segment=segment_of(config), seed=world.seed)


def _soft_q(config: Config, reward: SoftQConfig, world: World) -> Callable[[], ProcessReward]:
    names = {"pay", "beta", "form", "lam", "lr", "value_lr", "updates", "warm", "batch"}
    settings = SoftQSettings(**reward.model_dump(include=names))
    check_head(world.engine.capabilities, reward.kind)
    judge = language_model_spec(config, reward.max_grad_norm, temperature=config.rollout.temperature)
    value = ModelSpec(kind="head", of="judge", trunk=reward.trunk, optimizer=OptimizerSpec(max_grad_norm=reward.max_grad_norm))
    source = Source(reward.demonstrations, "reward.demonstrations", "or learn online alone (reward.warm=0)", draws="judge's demonstration")
    demonstration = demonstrations(config, world.domain, world.player, source) if reward.warm else None
    if demonstration is not None:
        demonstration(0)

    def make() -> ProcessReward:
        models = world.engine.model("judge", judge), world.engine.model("judge_value", value)
        return SoftQReward(*models, settings, segment=segment_of(config), demonstration=demonstration)

    return make


# -- what is fitted -----------------------------------------------------------------------------------------------------------


def _reader(config: Config, reward: FittedSettings, world: World, judge: Literal["head", "label"]) -> Callable[[], Reader]:
    """A model that says a probability at the end of each step."""
    if judge == "head":
        head = _head(reward, world, str(config.reward.kind))
        return lambda: HeadReader(head())
    labels = label_ids(world.tokenizer, reward.label_tokens)
    worths = tuple(1.0 - k / (len(labels) - 1) for k in range(len(labels)))
    spec = language_model_spec(config, reward.max_grad_norm)
    return lambda: LabelReader(world.engine.model("judge", spec), labels, worths)


def _head(reward: HeadSettings, world: World, kind: str) -> Callable[[], Model]:
    check_head(world.engine.capabilities, kind)
    spec = ModelSpec(kind="head", of="policy", trunk=reward.trunk, optimizer=OptimizerSpec(max_grad_norm=reward.max_grad_norm))
    return lambda: world.engine.model("judge", spec)


def language_model_spec(config: Config, max_grad_norm: float, *, temperature: float = 1.0) -> ModelSpec:
    """A second language model that starts as the policy: full weights, or an adapter where the policy is one."""
    return ModelSpec(
        kind=config.engine.policy,
        of="policy",
        rank=config.engine.rank,
        alpha=config.engine.alpha,
        temperature=temperature,
        optimizer=OptimizerSpec(max_grad_norm=max_grad_norm),
    )


def speaking_spec(config: Config) -> ModelSpec | None:
    """What the judge of these settings is, where it is a language model; None where it is not."""
    reward = config.reward
    if isinstance(reward, SoftQConfig):
        return language_model_spec(config, reward.max_grad_norm, temperature=config.rollout.temperature)
    says = isinstance(reward, MonteCarloConfig | LabelledConfig) and reward.judge == "label"
    return language_model_spec(config, reward.max_grad_norm) if isinstance(reward, FittedSettings) and says else None


def label_ids(tokenizer: Any, words: tuple[str, ...]) -> tuple[int, ...]:
    """The token of each label.

    Raises:
        ConfigError: A label is not one token, or two are the same (U02: a leading space makes another token of a word).
    """
    made = [tokenizer.encode(word, add_special_tokens=False) for word in words]
    unknown = tokenizer.unk_token_id
    for word, ids in zip(words, made, strict=True):
        if len(ids) != 1 or ids[0] == unknown:
            found = "unknown to the tokenizer" if unknown in ids else f"{len(ids)} tokens, {list(ids)}"
            raise ConfigError(
                f"The label {word!r} is {found}; a label is one known token: choose other words for reward.label_tokens "
                "(a leading space makes another token of a word)."
            )
    ids = tuple(int(one[0]) for one in made)
    if len(set(ids)) < len(ids):
        raise ConfigError(f"The labels {list(words)} are the tokens {list(ids)}; they must be different words for reward.label_tokens.")
    return ids
