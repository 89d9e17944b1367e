"""Where demonstrations come from: the domain's expert, or a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from stepwell.config import BasketConfig, CaveConfig, Config, CustomConfig, MazeConfig, ReasoningConfig, ShopConfig
from stepwell.demonstrations import read_demonstrations
from stepwell.errors import ConfigError
from stepwell.protocols import Domain
from stepwell.rollout import Player, demonstrate
from stepwell.seeding import derive, generator
from stepwell.types import Episode, Task

__all__ = ["Source", "demonstrations", "difficulty_of", "training_task"]

_EXPERT_ATTEMPTS = 20


class Source(NamedTuple):
    """Demonstrations for one use.

    Attributes:
        name: `expert`, or a file.
        key: The setting that says so.
        remedy: What else can be done where there is no expert; the end of the error.
        draws: Names the draw of tasks, so that two uses do not see the same ones.
    """

    name: str
    key: str
    remedy: str = "or switch the warm start off (cloning.steps=0)"
    draws: str = "demonstration"


def training_task(config: Config, domain: Domain, number: int, what: str) -> Task:
    """The number-th task of a draw from the training tasks that the curriculum begins with."""
    low, high = difficulty_of(config)
    difficulty = round(float(generator(config.seed, what, number).uniform(low, high)), 4)
    return domain.task(difficulty, derive(config.seed, what, number), "train")


def difficulty_of(config: Config) -> tuple[float, float]:
    """The range that training tasks are drawn from."""
    if not isinstance(config.curriculum, CustomConfig) and config.curriculum.difficulty is not None:
        low, high = config.curriculum.difficulty
    elif isinstance(config.domain, ShopConfig | BasketConfig | MazeConfig | CaveConfig | ReasoningConfig):
        low, high = config.domain.difficulty
    else:
        low, high = 0.0, 1.0
    return low, high


def demonstrations(config: Config, domain: Domain, player: Player, source: Source) -> Callable[[int], Episode]:
    """From a number to that demonstration of the run; those of a file are gone through in another order each time.

    Raises:
        DataError: The file is none of demonstrations in this domain.
    """
    if source.name == "expert":
        return lambda number: _expert_demonstration(config, domain, player, source, number)
    recorded = read_demonstrations(Path(source.name), domain, player.codec.parse)

    def demonstration(number: int) -> Episode:
        epoch, at = divmod(number, len(recorded))
        task, actions = recorded[generator(config.seed, f"{source.draws} order", epoch).permutation(len(recorded))[at]]
        return demonstrate(domain, task, player, actions)

    return demonstration


def _expert_demonstration(config: Config, domain: Domain, player: Player, source: Source, number: int) -> Episode:
    """The expert's episode on the first of a few drawn tasks that it can solve."""
    for attempt in range(_EXPERT_ATTEMPTS):
        task = training_task(config, domain, number, source.draws if attempt == 0 else f"{source.draws}, attempt {attempt}")
        actions = domain.expert(task)
        if actions is not None:
            return demonstrate(domain, task, player, actions)
    raise ConfigError(
        f"The domain has no expert for any of {_EXPERT_ATTEMPTS} training tasks, the last being {task.key!r}; "
        f"give demonstrations from a file ({source.key}=FILE), {source.remedy}."
    )
