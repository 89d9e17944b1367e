"""What can still be had in a shop, by looking at all of it: for oracles, never for players.

A product counts only where a search finds it: by its own words, with or without a filter for its price.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stepwell.envs.shop.catalogue import PRICE_STEP, Product
from stepwell.envs.shop.goal import Goal
from stepwell.envs.shop.store import NO_FILTERS, PAGE_SIZE, Filters, Store
from stepwell.types import Action

__all__ = ["Offer", "Way", "best_purchase", "buying", "cheapest", "is_found", "offers", "ways_in_results", "ways_to_buy"]


class Offer(NamedTuple):
    """What can be bought, with the options that match the wish, and what it is worth."""

    product: int
    options: tuple[tuple[str, str], ...]
    reward: float


class Way(NamedTuple):
    """One way to have something acceptable: what it costs, how many actions it takes, and whether it begins with a new search."""

    price: int
    steps: int
    anew: bool = True


def offers(goal: Goal, store: Store) -> Iterator[int]:
    """Products that the goal accepts, cheapest first, whether a search finds them or not."""
    fitting = [index for index in _of_type(goal.type, store) if goal.accepts(store.product(index))]
    yield from sorted(fitting, key=lambda index: (store.product(index).price, index))


def cheapest(goal: Goal, store: Store) -> int | None:
    """The lowest price of an acceptable product that a search finds; None where there is none."""
    return next((store.product(index).price for index in offers(goal, store) if is_found(index, store)), None)


def best_purchase(goal: Goal, store: Store) -> Offer | None:
    """The purchase that is worth most in this shop; None where nothing is worth anything. Ties go to the lowest place in the catalogue.

    All products of the goal's department are looked at (others are worth nothing), each with all options of the goal that it offers.
    """
    kinds = [k for k, name in enumerate(store.catalogue.departments) if name == goal.department]
    made = [_offer(goal, index, store.product(index)) for k in kinds for index in np.flatnonzero(store.catalogue.type_P == k).tolist()]
    worth = sorted((offer for offer in made if offer.reward > 0), key=lambda offer: (-offer.reward, offer.product))
    return next((offer for offer in worth if is_found(offer.product, store)), None)


def buying(offer: Offer, store: Store) -> list[Action]:
    """Actions that find the offer, choose its options, and stop before the purchase.

    Raises:
        ValueError: No search finds it.
    """
    product = store.product(offer.product)
    words = (*product.attributes, product.type)
    for filters in (NO_FILTERS, _price(product)):
        found = store.search(words, filters)
        if offer.product in found:
            page, slot = divmod(found.index(offer.product), PAGE_SIZE)
            told = "none" if filters == NO_FILTERS else str(filters)
            actions = [Action("filter", {"constraint": told}), Action("search", {"query": " ".join(words)})]
            actions += [Action("click", {"element": "next"})] * page + [Action("click", {"element": f"p{slot + 1}"})]
            return actions + [Action("click", {"element": f"{name} {value}"}) for name, value in offer.options]
    raise ValueError(f"No search finds product {offer.product}; take an offer of best_purchase.")


def is_found(index: int, store: Store) -> bool:
    """Whether a search for the product's own words lists it, with or without a filter for its price."""
    product = store.product(index)
    words = (*product.attributes, product.type)
    return index in store.search(words) or index in store.search(words, _price(product))


def ways_to_buy(goal: Goal, store: Store) -> list[Way]:
    """Ways to an acceptable product that no other beats in both price and steps, from a search with the goal's query on.

    A way is: search, turn pages, open, choose, order. Where only a filter for the price brings a product up, two actions come on top:
    one to set it, one to clear it.
    """
    ways = ways_in_results(goal, store, NO_FILTERS)
    for price in _prices(goal, store):
        ways += [way._replace(steps=way.steps + 2) for way in ways_in_results(goal, store, Filters(under=price + PRICE_STEP))]
    ways.sort(key=lambda way: (way.price, way.steps))
    kept: list[Way] = []
    for way in ways:
        if not kept or way.steps < kept[-1].steps:
            kept.append(way)
    return kept


def ways_in_results(goal: Goal, store: Store, filters: Filters) -> list[Way]:
    """Searching with the goal's query under these filters, and buying each acceptable product that it lists."""
    rest = 2 + len(goal.options)
    found = [(rank, store.product(index)) for rank, index in enumerate(store.search(goal.query, filters))]
    return [Way(product.price, 1 + rank // PAGE_SIZE + rest) for rank, product in found if goal.accepts(product)]


def _prices(goal: Goal, store: Store) -> Sequence[int]:
    """The prices of acceptable products."""
    return sorted({store.product(index).price for index in offers(goal, store)})


def _of_type(name: str, store: Store) -> list[int]:
    kinds = [k for k, other in enumerate(store.catalogue.types) if other == name]
    return [index for k in kinds for index in np.flatnonzero(store.catalogue.type_P == k).tolist()]


def _offer(goal: Goal, index: int, product: Product) -> Offer:
    options = tuple(pair for pair in goal.options if product.offers(*pair))
    if not product.stock:
        return Offer(index, options, 0.0)
    return Offer(index, options, goal.grade(product, dict(options)).reward)


def _price(product: Product) -> Filters:
    return Filters(under=product.price + PRICE_STEP)
