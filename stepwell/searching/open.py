"""From a run, or a word, to a judge of a model's candidates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stepwell.config import (
    EntropyConfig,
    ImplicitConfig,
    InverseConfig,
    LabelledConfig,
    MonteCarloConfig,
    RewardConfig,
    SoftQConfig,
    TemporalConfig,
    TrainedConfig,
)
from stepwell.configure import read_run
from stepwell.credit import Segment, by_turn
from stepwell.envs.interrupt import Interrupted
from stepwell.envs.reasoning import ReasoningDomain
from stepwell.errors import ConfigError, sentence
from stepwell.judging import reward_of
from stepwell.opening import Opened, check_place, opened
from stepwell.rewards.retold import Retelling, RetoldReward
from stepwell.runfolder import Which
from stepwell.searching.judge import Counted, Judge, Says
from stepwell.searching.oracle import Oracle
from stepwell.searching.steps import by_separator
from stepwell.trained import Trained

__all__ = ["ORACLE", "SEPARATOR", "judge_of", "segment_of"]

ORACLE = "oracle"
"""The checker of a reasoning domain, in the place of a judge's run."""
SEPARATOR = "\n\n"
"""What ends a step within a message by default."""


def judge_of(name: Path | str, model: Trained, starts: Sequence[str], *, separator: str | None = None, checkpoint: Which = "last") -> Judge:
    """A judge that reads this model's episodes.

    Args:
        name: The judge's run; or `oracle`: the checker of a reasoning domain, as a ceiling.
        model: Whose episodes.
        starts: First observations of the tasks: what the judge must be able to read.
        separator: See `SearchSettings`.
        checkpoint: Of the judge.

    Raises:
        RunError: No run, no checkpoint, or no judge in it.
        ConfigError: It was trained in another domain; or its words are others.
    """
    if str(name) == ORACLE:
        if not isinstance(model.domain, ReasoningDomain):
            what = f"interrupted {model.config.domain.kind}" if isinstance(model.domain, Interrupted) else model.config.domain.kind
            remedy = (
                "play without interruptions (interruptions.kinds=[])" if isinstance(model.domain, Interrupted) else "use --domain reasoning"
            )
            raise ConfigError(f"The judge is {ORACLE!r}, and {what} tasks have no checker of steps; name a run with a judge, or {remedy}.")
        return Judge(Oracle(model.domain), "right", True, "the checker of the domain", passes=0, splits=False)
    threads = getattr(model.config.engine, "threads", None)
    found = opened(Path(name), reward_of, [f"engine.threads={'null' if threads is None else threads}"], checkpoint=checkpoint)
    check_place(found, model.config, "the candidates are of", "search")
    says, probability = _says(found.config.reward)
    read = Counted(found.reward)
    cut = separator or found.separator or SEPARATOR
    segment = segment_of(model, cut)
    passes = 2 if _compares(found.config.reward) else 1
    if found.separator is None and _speaks_alike(found, model, starts):
        return Judge(read, says, probability, found.origin, read, passes, segment, separator=cut, version=found.world.policy.version)
    _check_words(found, starts)
    player = found.world.player
    retelling = Retelling(player.chat, found.separator, player.limits.context, found.world.policy.version)
    retold = RetoldReward(read, retelling, model.tokenizer.decode, segment=segment, origin=found.origin)
    return Judge(retold, says, probability, found.origin, read, passes, segment, cut, splits=False)


def segment_of(model: Trained, separator: str) -> Segment:
    """Where steps end: with a turn, or where a message is the whole solution with a separator."""
    if model.player.limits.turns > 1:
        return by_turn
    return by_separator(separator, model.tokenizer.decode)


def _speaks_alike(found: Opened, model: Trained, starts: Sequence[str]) -> bool:
    """Whether the judge's own tokens are the model's, and its chat says the same."""
    theirs = found.world.player.chat
    if found.world.tokenizer.get_vocab() != model.tokenizer.get_vocab():
        return False
    first = starts[0]
    return bool(np.array_equal(theirs.converse(first).context(), model.player.chat.converse(first).context()))


def _check_words(found: Opened, starts: Sequence[str]) -> None:
    tokenizer = found.world.tokenizer
    unknown = tokenizer.unk_token_id
    if unknown is None:
        return
    for start in starts:
        for word in start.split():
            if unknown in tokenizer.encode(word, add_special_tokens=False):
                raise ConfigError(
                    f"{sentence(found.origin)} has a tokenizer without the word {word[:40]!r}, which stands in a task: it would judge what "
                    "it cannot read. Name a judge with a tokenizer that knows it, such as one on the same base as the model."
                )


def _says(reward: RewardConfig) -> tuple[Says, bool]:
    """What a step's number is, and whether it is a probability."""
    if isinstance(reward, LabelledConfig | MonteCarloConfig | TemporalConfig):
        if reward.form == "progress":
            return "change", False
        return ("right", True) if isinstance(reward, LabelledConfig) else ("value", isinstance(reward, MonteCarloConfig))
    if isinstance(reward, SoftQConfig):
        return ("value" if reward.form == "value" else "change"), False
    if isinstance(reward, TrainedConfig):
        return _says(read_run(Path(reward.run)).reward)
    return ("change" if isinstance(reward, ImplicitConfig) else "reward"), False


def _compares(reward: RewardConfig) -> bool:
    """Whether a reference reads everything too."""
    if isinstance(reward, InverseConfig):
        return reward.model != "head"
    return isinstance(reward, ImplicitConfig | EntropyConfig | SoftQConfig)
