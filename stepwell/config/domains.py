"""Where the policy acts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from stepwell.config.settings import CUSTOM, Count, CustomConfig, Difficulties, Settings, Share, kind_of

__all__ = [
    "CaveConfig",
    "DomainConfig",
    "MazeConfig",
    "ShopConfig",
    "WebShopConfig",
]


class ShopConfig(Settings):
    """A generated shop."""

    kind: Literal["shop"] = "shop"
    products: Annotated[int, Field(ge=50, le=5_000_000)] = 1000
    """Size of the catalogue."""
    seed: int = 0
    """Of catalogue and tasks; independent of the run's seed, so that runs with other seeds share tasks."""
    difficulty: Difficulties = (0.0, 0.5)
    """Range of difficulties of the held-out tasks, and of training tasks unless the curriculum says otherwise."""
    test_tasks: Count = 200
    """How many held-out tasks there are."""
    expert_haste: dict[str, Share] = Field(default_factory=dict)
    """Option's name -> probability with which the scripted expert buys before it has chosen one: fallible demonstrations."""


class WebShopConfig(Settings):
    """The real WebShop products."""

    kind: Literal["webshop"] = "webshop"
    data: str
    """Folder with the products' files."""
    variant: Literal["compat", "clean"] = "clean"
    """`compat` is the original to the letter; `clean` is without its accidents, split by product."""
    mode: Literal["text", "text_rich"] = "text"
    """Form of the pages (compat)."""
    show_attrs: bool = False
    """An extra page with the product's attributes (compat)."""
    seed: int = 0
    """Of prices, price limits and the clean split."""
    catalogue: Literal["auto", "small", "full"] = "auto"
    """Which files to load where the folder holds both."""
    goals: Literal["synthetic", "human"] = "synthetic"
    """Generated instructions, or those written by people (compat)."""
    nouns: str = "en_core_web_sm-3.6.0"
    """Model behind the lists of title nouns."""
    goals_per_product: Count = 4
    """Cap on goals of one product (clean)."""


class _LayoutSettings(Settings):
    seed: int = 0
    """Of all tasks; independent of the run's seed, so that runs with other seeds share tasks."""
    difficulty: Difficulties = (0.0, 0.5)
    """Range of difficulties of the held-out tasks, and of training tasks unless the curriculum says otherwise."""
    test_tasks: Count = 200
    """How many held-out tasks there are."""


class MazeConfig(_LayoutSettings):
    """A text maze, whose optimal values are known exactly."""

    kind: Literal["maze"] = "maze"
    view: Literal["map", "place"] = "map"
    """What the first observation shows: the whole map, or where one is and where the goal is."""


class CaveConfig(_LayoutSettings):
    """A cave with one-way passages, dead ends and treasures of different worth; the policy decides when to stop."""

    kind: Literal["cave"] = "cave"


DomainConfig = Annotated[
    Annotated[ShopConfig, Tag("shop")]
    | Annotated[WebShopConfig, Tag("webshop")]
    | Annotated[MazeConfig, Tag("maze")]
    | Annotated[CaveConfig, Tag("cave")]
    | Annotated[CustomConfig, Tag(CUSTOM)],
    Discriminator(kind_of),
]
