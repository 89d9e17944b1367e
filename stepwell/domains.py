"""From settings to a domain."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict, cast

from stepwell.config import BasketConfig, CaveConfig, CustomConfig, DomainConfig, MazeConfig, QuestionsConfig, ReasoningConfig, ShopConfig
from stepwell.config.domains import InterruptionsConfig
from stepwell.custom import custom
from stepwell.datasets.benchmarks import BENCHMARKS, read_problems
from stepwell.envs.cave import CaveDomain
from stepwell.envs.interrupt import Events, Interrupted, Plan
from stepwell.envs.maze import MazeDomain
from stepwell.envs.questions import Questions, QuestionsDomain
from stepwell.envs.reasoning import Arithmetic, Countdown, Equations, Family, Gym, Machine, ReasoningDomain, Recurrence, Strings, Words
from stepwell.envs.shop import BasketDomain, ShopDomain
from stepwell.envs.shop.axes import FixedAxes
from stepwell.envs.shop.basket import BasketShop
from stepwell.envs.shop.events import ShopEvents
from stepwell.envs.shop.shop import Shop
from stepwell.envs.shop.webshop import WebShopDomain, WebShopSettings
from stepwell.errors import ConfigError
from stepwell.protocols import Domain

__all__ = ["build_domain", "disturbed", "reasoning_domain", "undisturbed"]


def build_domain(config: DomainConfig) -> Domain:
    """The domain of these settings, with what happens in it.

    Raises:
        ConfigError: A setting that cannot work here.
    """
    domain, events = _domain(config)
    if isinstance(config, CustomConfig | QuestionsConfig) or not config.interruptions.kinds:
        return domain
    return Interrupted(domain, Plan(**config.interruptions.model_dump()), events)


def undisturbed(config: DomainConfig) -> DomainConfig:
    """The same where nothing happens in the middle of an episode."""
    if isinstance(config, CustomConfig | QuestionsConfig):
        return config
    return config.model_copy(update={"interruptions": InterruptionsConfig()})


def disturbed(config: DomainConfig, split: str) -> DomainConfig:
    """The same where something happens in every episode of a split.

    Raises:
        ConfigError: The domain has no interruptions, or none is named.
    """
    if isinstance(config, CustomConfig | QuestionsConfig):
        raise ConfigError(f"Nothing can happen in the middle of an episode of domain.kind={config.kind}; choose another domain.")
    if not config.interruptions.kinds:
        raise ConfigError(
            "No interruption is named, so there is nothing to compare with; name some, such as "
            "interruptions.kinds=[tool_error,stale_page] (docs: concepts/interruptions)."
        )
    return config.model_copy(update={"interruptions": config.interruptions.model_copy(update={"share": 1.0, "splits": (split,)})})


def _domain(config: DomainConfig) -> tuple[Domain, Events | None]:
    """The domain as it is, and what can happen in it beside failing tools."""
    if isinstance(config, ShopConfig):
        shop = ShopDomain(**_shared(config))
        return shop, ShopEvents(shop.store, Shop)
    if isinstance(config, BasketConfig):
        basket = BasketDomain(**_shared(config), items=config.items, fee=config.fee, expert_forgets=config.expert_forgets)
        return basket, ShopEvents(basket.store, BasketShop)
    if isinstance(config, CustomConfig):
        return cast(Domain, custom(config, "domain", ("task", "tasks", "environment", "grade", "expert"))), None
    if isinstance(config, MazeConfig):
        return MazeDomain(seed=config.seed, difficulty=config.difficulty, num_test_tasks=config.test_tasks, view=config.view), None
    if isinstance(config, CaveConfig):
        return CaveDomain(seed=config.seed, difficulty=config.difficulty, num_test_tasks=config.test_tasks), None
    if isinstance(config, QuestionsConfig):
        return _questions(config), None
    if isinstance(config, ReasoningConfig):
        return reasoning_domain(config), None
    settings = config.model_dump(exclude={"kind", "interruptions"})
    return WebShopDomain(WebShopSettings(**settings)), None


def reasoning_domain(config: ReasoningConfig) -> ReasoningDomain:
    """The reasoning tasks of these settings.

    Raises:
        ConfigError: An axis that the tasks have not, or a data set that reasoning-gym has not.
        MissingExtraError: Tasks of reasoning-gym, and it is not installed.
    """
    if config.dataset is not None:
        family: Family = Gym(config.dataset, config.threshold)
    else:
        made: tuple[Family, ...] = (Arithmetic(), Equations(), Countdown(), Words(), Strings(), Machine(), Recurrence())
        family = next(one for one in made if one.name == config.task)
    settings = {"seed": config.seed, "num_test_tasks": config.test_tasks}
    return ReasoningDomain(family, difficulty=config.difficulty, axes=config.axes, expert_slips=config.expert_slips, **settings)


def _questions(config: QuestionsConfig) -> QuestionsDomain:
    def read(name: str, file: str | None) -> Questions:
        problems = read_problems(name, Path(file) if file else None, unanswered=config.unanswered)
        return Questions(tuple(problems), BENCHMARKS[name].graded_by)

    trained = None if config.train is None else read(config.train, config.train_data)
    return QuestionsDomain(read(config.problems, config.data), trained, reads=config.reads, limit_s=config.limit_s)


class _Shared(TypedDict):
    products: int
    seed: int
    difficulty: tuple[float, float]
    num_test_tasks: int
    expert_haste: dict[str, float]
    axes: FixedAxes


def _shared(config: ShopConfig | BasketConfig) -> _Shared:
    """What both generated shops are made with."""
    return {
        "products": config.products,
        "seed": config.seed,
        "difficulty": config.difficulty,
        "num_test_tasks": config.test_tasks,
        "expert_haste": config.expert_haste,
        "axes": FixedAxes(**config.axes.model_dump()),
    }
