"""The scripted expert: it knows what is wanted and reads the pages; it never looks behind them."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.envs.shop.catalogue import Product
from stepwell.envs.shop.goal import Goal
from stepwell.envs.shop.store import NO_FILTERS, PAGE_SIZE, Filters, Store
from stepwell.types import Action

__all__ = ["Plan", "page_of_first", "plan", "steps_after_opening", "steps_from_search"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The expert's actions, how many lookalikes it opens in vain, and what it buys."""

    actions: tuple[Action, ...]
    num_lookalikes: int
    product: int


def plan(goal: Goal, store: Store) -> Plan | None:
    """What the expert does, or None where it would look through all results in vain.

    It filters by the price limit if there is one, searches for the attributes and the type in the order of the instruction, and opens,
    in the order of the results, each product that is not visibly wrong. On the page of one that lacks something it goes back;
    otherwise it chooses the options in the order of the instruction and buys.
    """
    actions = [] if goal.limit is None else [Action("filter", {"constraint": f"price under {goal.limit}"})]
    actions.append(Action("search", {"query": " ".join(goal.query)}))
    found = store.search(goal.query, Filters(under=goal.limit))
    page = num_lookalikes = 0
    for rank, index in enumerate(found):
        product = store.product(index)
        if not _looks_right(goal, product):
            continue
        actions += [Action("click", {"element": "next"})] * (rank // PAGE_SIZE - page)
        page = rank // PAGE_SIZE
        actions.append(Action("click", {"element": f"p{rank % PAGE_SIZE + 1}"}))
        if goal.accepts(product):
            actions += [Action("click", {"element": f"{name} {value}"}) for name, value in goal.options]
            return Plan((*actions, Action("buy")), num_lookalikes, index)
        actions.append(Action("click", {"element": "back"}))
        num_lookalikes += 1
    return None


def _looks_right(goal: Goal, product: Product) -> bool:
    """Whether the line in the results leaves it possible that this is the product: an attribute may be hidden, no more than one is."""
    missing = sum(word not in product.shown for word in goal.attributes)
    return product.type == goal.type and product.stock > 0 and missing <= len(product.hidden)


def steps_after_opening(goal: Goal) -> int:
    """Actions needed on the page of an acceptable product of which nothing is chosen yet."""
    return len(goal.options) + 1


def steps_from_search(goal: Goal, store: Store, filters: Filters) -> int:
    """Actions that one needs who knows the catalogue and has these filters set: search, turn pages, open, choose, buy.

    It may set the price filter or clear all filters first. The search is the goal's query.
    """
    limited = Filters(under=goal.limit)
    ways = [(filters, 0), (filters._replace(under=goal.limit), 1), (NO_FILTERS, 1), (limited, 1 if filters == NO_FILTERS else 2)]
    pages = [(num_filters, page_of_first(goal, store, way)) for way, num_filters in ways]
    return min(num_filters + 1 + page + 1 + steps_after_opening(goal) for num_filters, page in pages if page is not None)


def page_of_first(goal: Goal, store: Store, filters: Filters) -> int | None:
    """Page of the first acceptable result of the goal's query, or None."""
    found = store.search(goal.query, filters)
    return next((rank // PAGE_SIZE for rank, index in enumerate(found) if goal.accepts(store.product(index))), None)
