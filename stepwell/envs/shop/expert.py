"""The scripted expert: it knows what is wanted and reads the pages; it never looks behind them."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.envs.shop.catalogue import Product
from stepwell.envs.shop.goal import Goal
from stepwell.envs.shop.store import NO_FILTERS, PAGE_SIZE, Filters, Shelves
from stepwell.types import Action

__all__ = ["Plan", "looks_right", "page_of_first", "plan", "steps_after_opening", "steps_by_new_results"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The expert's actions, how many lookalikes it opens in vain, and what it buys."""

    actions: tuple[Action, ...]
    num_lookalikes: int
    product: int


def plan(goal: Goal, store: Shelves) -> Plan | None:
    """What the expert does, or None where it would look through all results in vain.

    It filters by the price limit if one is stated, searches for the attributes and the type in the order of the instruction, and opens,
    in the order of the results, each product that is not visibly wrong. On the page of one that lacks something it goes back;
    otherwise it chooses the options in the order of the instruction and buys.
    """
    stated = goal.limit if goal.states_limit else None
    actions = [] if stated is None else [Action("filter", {"constraint": f"price under {stated}"})]
    actions.append(Action("search", {"query": " ".join(goal.query)}))
    found = store.search(goal.query, Filters(under=stated))
    page = num_lookalikes = 0
    for rank, index in enumerate(found):
        product = store.product(index)
        if not looks_right(goal, product):
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


def looks_right(goal: Goal, product: Product) -> bool:
    """Whether the line in the results leaves it possible that this is the product: an attribute may be hidden, no more than one is."""
    missing = sum(word not in product.shown for word in goal.attributes)
    cheap = goal.limit is None or product.price < goal.limit
    return product.type == goal.type and product.stock > 0 and cheap and missing <= len(product.hidden)


def steps_after_opening(goal: Goal) -> int:
    """Actions needed on the page of an acceptable product of which nothing is chosen yet."""
    return len(goal.options) + 1


def steps_by_new_results(goal: Goal, store: Shelves, query: tuple[str, ...], filters: Filters) -> int | None:
    """Fewest actions to the end of a visit, after `query` and with `filters` set, for one who knows the catalogue and lists anew.

    None where no such listing holds anything acceptable (in a shop that has changed).

    Listing anew is to search with the goal's query, to filter by the goal's limit, to clear the filters, or several of these; then come
    turning pages, opening, choosing and buying.
    """
    filterings = [(filters, 0), (NO_FILTERS, 1)]
    if goal.limit is not None:
        filterings += [(filters._replace(under=goal.limit), 1), (Filters(under=goal.limit), 2)]
    ways = [(num + 1, page_of_first(goal, store, goal.query, here)) for here, num in filterings]
    ways += [(num, page_of_first(goal, store, query, here)) for here, num in filterings if query and num]
    fewest = min((num + page for num, page in ways if page is not None), default=None)
    return None if fewest is None else fewest + 1 + steps_after_opening(goal)


def page_of_first(goal: Goal, store: Shelves, query: tuple[str, ...], filters: Filters) -> int | None:
    """The page of the first acceptable product among these results, or None."""
    found = store.search(query, filters)
    return next((rank // PAGE_SIZE for rank, index in enumerate(found) if goal.accepts(store.product(index))), None)
