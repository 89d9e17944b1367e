"""From settings to a domain."""

from __future__ import annotations

from typing import cast

from stepwell.config import BasketConfig, CaveConfig, CustomConfig, DomainConfig, MazeConfig, ShopConfig
from stepwell.custom import custom
from stepwell.envs.cave import CaveDomain
from stepwell.envs.maze import MazeDomain
from stepwell.envs.shop import BasketDomain, ShopDomain
from stepwell.envs.shop.axes import FixedAxes
from stepwell.envs.shop.webshop import WebShopDomain, WebShopSettings
from stepwell.protocols import Domain

__all__ = ["build_domain"]


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
            axes=FixedAxes(**config.axes.model_dump()),
        )
    if isinstance(config, BasketConfig):
        return BasketDomain(
            products=config.products,
            seed=config.seed,
            difficulty=config.difficulty,
            num_test_tasks=config.test_tasks,
            items=config.items,
            fee=config.fee,
            expert_haste=config.expert_haste,
            axes=FixedAxes(**config.axes.model_dump()),
        )
    if isinstance(config, CustomConfig):
        return cast(Domain, custom(config, "domain", ("task", "tasks", "environment", "grade", "expert")))
    if isinstance(config, MazeConfig):
        return MazeDomain(seed=config.seed, difficulty=config.difficulty, num_test_tasks=config.test_tasks, view=config.view)
    if isinstance(config, CaveConfig):
        return CaveDomain(seed=config.seed, difficulty=config.difficulty, num_test_tasks=config.test_tasks)
    settings = config.model_dump(exclude={"kind"})
    return WebShopDomain(WebShopSettings(**settings))
