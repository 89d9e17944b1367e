"""What can still be had in a shop, by looking at all of it: for oracles, never for players.

A product counts only where a search finds it: by its own words, with or without a filter for its price.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stepwell.envs.shop.catalogue import PRICE_STEP, Product
from stepwell.envs.shop.goal import Goal, Offer
from stepwell.envs.shop.store import NO_FILTERS, PAGE_SIZE, Filters, Shelves
from stepwell.types import Action

__all__ = ["Way", "best_purchase", "buying", "buying_from", "cheapest", "is_found", "offers", "ways_in_results", "ways_to_buy"]


class Way(NamedTuple):
    """One way to have something acceptable: what it costs, how many actions it takes, and whether it begins with a new search."""

    price: int
    steps: int
    anew: bool = True


def offers(goal: Goal, store: Shelves) -> Iterator[int]:
    """Products that the goal accepts, cheapest first, whether a search finds them or not."""
    fitting = [index for index in _of_type(goal.type, store) if goal.accepts(store.product(index))]
    yield from sorted(fitting, key=lambda index: (store.product(index).price, index))


def cheapest(goal: Goal, store: Shelves, listed: Iterable[int] = ()) -> int | None:
    """The cheapest acceptable product that a search finds, or that is `listed` already; None where there is none."""
    key = ("cheapest", goal)
    if key not in store.memo:
        index = next((index for index in offers(goal, store) if is_found(index, store)), None)
        store.memo[key] = None if index is None else Offer(index, goal.options, 1.0)
    known = store.memo[key]
    best = None if known is None else known.product
    for index in listed:
        product = store.product(index)
        if best is None or (product.price, index) < (store.product(best).price, best):
            best = index if goal.accepts(product) else best
    return best


def best_purchase(goal: Goal, store: Shelves, listed: Iterable[int] = ()) -> Offer | None:
    """The purchase that is worth most in this shop; None where nothing is worth anything. Ties go to the lowest place in the catalogue.

    All products of the goal's department are looked at (others are worth nothing), each with all options of the goal that it offers.

    Args:
        goal: What is wanted.
        store: Where.
        listed: Products that count although no search may find them: those on the present pages.
    """
    key = ("best", goal)
    if key not in store.memo:
        store.memo[key] = _best_found(goal, store)
    found = store.memo[key]
    if found is not None and found.reward == 1.0:
        return found
    more = [offer for offer in (_offer(goal, index, store.product(index)) for index in listed) if offer.reward > 0]
    return max([*([] if found is None else [found]), *more], key=lambda offer: (offer.reward, -offer.product), default=None)


def _best_found(goal: Goal, store: Shelves) -> Offer | None:
    sure = next((index for index in sorted(offers(goal, store)) if is_found(index, store)), None)
    if sure is not None:
        return Offer(sure, goal.options, 1.0)
    kinds = [k for k, name in enumerate(store.catalogue.departments) if name == goal.department]
    made = [_offer(goal, index, store.product(index)) for k in kinds for index in np.flatnonzero(store.catalogue.type_P == k).tolist()]
    worth = sorted((offer for offer in made if offer.reward > 0), key=lambda offer: (-offer.reward, offer.product))
    return next((offer for offer in worth if is_found(offer.product, store)), None)


def buying(offer: Offer, store: Shelves) -> list[Action]:
    """Actions that find the offer by a search, choose its options, and stop before the purchase.

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
            return actions + _choosing(offer)
    raise ValueError(f"No search finds product {offer.product}; take an offer of best_purchase.")


def buying_from(offer: Offer, opened: int | None, found: Sequence[int], page: int) -> list[Action] | None:
    """The same from the page that is open, without a new search; None where the offer is not listed there."""
    if opened == offer.product:
        return _choosing(offer)
    if offer.product not in found:
        return None
    to, slot = divmod(found.index(offer.product), PAGE_SIZE)
    back = [] if opened is None else [Action("click", {"element": "back"})]
    turn = [Action("click", {"element": "next" if to > page else "back"})] * abs(to - page)
    return [*back, *turn, Action("click", {"element": f"p{slot + 1}"}), *_choosing(offer)]


def _choosing(offer: Offer) -> list[Action]:
    return [Action("click", {"element": f"{name} {value}"}) for name, value in offer.options]


def is_found(index: int, store: Shelves) -> bool:
    """Whether a search for the product's own words lists it, with or without a filter for its price."""
    product = store.product(index)
    words = (*product.attributes, product.type)
    return index in store.search(words) or index in store.search(words, _price(product))


def ways_to_buy(goal: Goal, store: Shelves) -> list[Way]:
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


def ways_in_results(goal: Goal, store: Shelves, filters: Filters) -> list[Way]:
    """Searching with the goal's query under these filters, and buying each acceptable product that it lists."""
    rest = 2 + len(goal.options)
    found = [(rank, store.product(index)) for rank, index in enumerate(store.search(goal.query, filters))]
    return [Way(product.price, 1 + rank // PAGE_SIZE + rest) for rank, product in found if goal.accepts(product)]


def _prices(goal: Goal, store: Shelves) -> Sequence[int]:
    """The prices of acceptable products."""
    return sorted({store.product(index).price for index in offers(goal, store)})


def _of_type(name: str, store: Shelves) -> list[int]:
    kinds = [k for k, other in enumerate(store.catalogue.types) if other == name]
    return [index for k in kinds for index in np.flatnonzero(store.catalogue.type_P == k).tolist()]


def _offer(goal: Goal, index: int, product: Product) -> Offer:
    options = tuple(pair for pair in goal.options if product.offers(*pair))
    if not product.stock:
        return Offer(index, options, 0.0)
    return Offer(index, options, goal.grade(product, dict(options)).reward)


def _price(product: Product) -> Filters:
    return Filters(under=product.price + PRICE_STEP)
