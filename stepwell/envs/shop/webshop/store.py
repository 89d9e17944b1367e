"""A loaded WebShop: products, search, goals, prices and rewards. Built once, read by every episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from stepwell.envs.shop.analysis import analyse
from stepwell.envs.shop.index import Index, lucene_lengths
from stepwell.envs.shop.webshop.catalogue import Product, load_products
from stepwell.envs.shop.webshop.files import folder_of, need, read_json
from stepwell.envs.shop.webshop.goals import Goal, draw_prices, human_goals, synthetic_goals
from stepwell.envs.shop.webshop.nouns import title_nouns
from stepwell.envs.shop.webshop.reward import Purchase, Target
from stepwell.errors import ConfigError, DataError, nearest

__all__ = ["NUM_HITS", "Catalogue", "Goals", "Store", "colour_words", "open_store"]

NUM_HITS = 50
"""What one search returns at most."""
Catalogue = Literal["auto", "small", "full"]
Goals = Literal["synthetic", "human"]
_SIZES = {"auto": ("_1000", ""), "small": ("_1000",), "full": ("",)}


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Everything that episodes share.

    Attributes:
        products: By asin, in catalogue order.
        ranked: In the order of the index's document ids, by ascending asin: the order of equal scores.
        prices: asin -> what the product costs (drawn from its range).
        nouns: asin -> nouns of its title.
    """

    products: Mapping[str, Product]
    ranked: tuple[Product, ...]
    index: Index
    goals: tuple[Goal, ...]
    prices: Mapping[str, float]
    nouns: Mapping[str, Sequence[str]]

    def search(self, query: str) -> tuple[Product, ...]:
        """The products found for a query, best first, at most `NUM_HITS`."""
        hits = self.index.search(analyse(query.lower()), k=NUM_HITS)
        return tuple(self.ranked[i] for i in hits.ids.tolist())

    def target(self, goal: Goal) -> Target:
        """A goal with what its reward needs."""
        return Target(goal, self.products[goal.asin], self.nouns[goal.asin])

    def purchase(self, asin: str, options: Mapping[str, str]) -> Purchase:
        """A product as bought with these options."""
        return Purchase(self.products[asin], self.nouns[asin], self.prices[asin], options)


def open_store(
    data: str | Path,
    *,
    seed: int = 0,
    catalogue: Catalogue = "auto",
    goals: Goals = "synthetic",
    nouns: str = "en_core_web_sm-3.6.0",
) -> Store:
    """Loads a data folder.

    Args:
        data: Folder with the products (`items_shuffle_1000.json` or `items_shuffle.json`), their attributes (`items_ins_v2*.json`) and
            the nouns of their titles (`title_nouns.json`; without it spaCy finds them once); each also as `.gz`.
        seed: Of prices and price limits; 0 draws as the original does after `random.seed(0)`.
        catalogue: Which products: `small` (1,000), `full`, or (`auto`) the 1,000 where the folder has them.
        goals: `synthetic`, or `human`: those of `items_human_ins*.json`, as far as they are about these products.
        nouns: Which tagger's noun lists to take from `title_nouns.json`.
    """
    if catalogue not in _SIZES:
        raise ConfigError(f"catalogue is {catalogue!r}; {nearest(catalogue, _SIZES)}.")
    if goals not in ("synthetic", "human"):
        raise ConfigError(f"goals is {goals!r}; {nearest(goals, ('synthetic', 'human'))}.")
    folder = folder_of(data)
    items = need(folder, "WebShop's products", *(f"items_shuffle{size}.json" for size in _SIZES[catalogue]))
    size = "_1000" if "_1000" in items.name else ""
    products = load_products(items, need(folder, "the products' attributes", f"items_ins_v2{size}.json"))
    if not products:
        raise DataError(f"{items} holds no products; the catalogue must be a JSON array with at least one.")
    random = Random(seed)
    prices = draw_prices(products, random)
    if goals == "human":
        notes = need(folder, "people's goals", *dict.fromkeys((f"items_human_ins{size}.json", "items_human_ins.json")))
        wanted = human_goals(products, prices, random, notes)
    else:
        wanted = synthetic_goals(products, prices, random)
    if not wanted:
        raise DataError(f"{folder} has {len(products)} products but no {goals} goal; instructions come from items_ins_v2{size}.json.")
    ranked = tuple(sorted(products, key=lambda product: product.asin))
    index = Index((analyse(product.indexed_text) for product in ranked), lengths=lucene_lengths)
    return Store({p.asin: p for p in products}, ranked, index, wanted, prices, title_nouns(folder, products, nouns))


def colour_words(data: str | Path) -> tuple[str, ...]:
    """The original's ordered list of colour words, `color_words.json` of the data folder; only its own option matching needs it."""
    path = need(folder_of(data), "the colour words that variant=compat needs (variant=clean does not)", "color_words.json")
    words = read_json(path)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise DataError(f"{path} must hold a JSON array of words.")
    return tuple(str(word) for word in words)
