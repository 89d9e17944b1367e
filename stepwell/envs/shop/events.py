"""What can happen in the generated shop in the middle of a visit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import cast

import numpy as np

from stepwell.envs.interrupt import Change, Event
from stepwell.envs.shop.basket import BasketShop, ShoppingList
from stepwell.envs.shop.catalogue import PRICE_STEP, Product
from stepwell.envs.shop.changed import ChangedStore, Shift, Views
from stepwell.envs.shop.expert import plan
from stepwell.envs.shop.goal import Goal, Offer
from stepwell.envs.shop.lists import pick
from stepwell.envs.shop.oracle import best_purchase, buying, buying_from, cheapest, is_found, offers
from stepwell.envs.shop.shop import Shop
from stepwell.envs.shop.store import Store
from stepwell.types import JSON, Action, Invalid, Observation, Reply, Task, Tool

__all__ = ["KINDS", "TRIGGERS", "ShopEvents", "ShopWorld"]

_EITHER = frozenset({"transient", "permanent", "explicit", "implicit"})
KINDS: Mapping[str, frozenset[str]] = {
    "price_rise": _EITHER,
    "price_drop": _EITHER - {"transient"},
    "stock_out": _EITHER,
    "option_out": _EITHER,
    "decoy_out": _EITHER,
    "restock": _EITHER - {"transient"},
    "delisted": _EITHER,
    "empty_results": _EITHER - {"permanent"},
    "budget_revised": frozenset({"permanent", "explicit"}),
    "option_revised": frozenset({"permanent", "explicit"}),
}
"""Kind -> what it can be. What would be good only for a while (a price that drops, a restock) stays: one can always wait, so that what is
best to be had does not depend on being in time."""
TRIGGERS = ("results_shown", "target_opened", "option_chosen", "ready")
"""An event can wait for: results with something in them; the page of an acceptable product; an option chosen there; all of them chosen."""
_RISES = (10, 15, 20)


class ShopEvents:
    """Events of a shop.

    Args:
        store: Of the domain.
        visit: Opens a visit over shelves: `Shop` or `BasketShop`.
    """

    def __init__(self, store: Store, visit: Callable[[Task, ChangedStore], Shop | BasketShop]) -> None:
        self._store, self._visit = store, visit
        self._views = Views(store)

    @property
    def kinds(self) -> Mapping[str, frozenset[str]]:
        return KINDS

    @property
    def triggers(self) -> tuple[str, ...]:
        return TRIGGERS

    def world(self, task: Task, member: int) -> ShopWorld:
        """A visit in which things can change."""
        now = ChangedStore(self._views)
        return ShopWorld(self._visit(task, now), now, ChangedStore(self._views))

    def draw(self, kind: str, task: Task, rng: np.random.Generator) -> Change | None:
        """A change of this kind around what the expert would buy; None where there is none."""
        wishes = ShoppingList.of(task).items if "items" in task.payload else (Goal.of(task),)
        item = int(rng.integers(len(wishes)))
        goal = wishes[item]
        if kind == "empty_results":
            return {"what": "search"}
        if kind == "budget_revised" and "items" in task.payload:
            return {"budget": ShoppingList.of(task).budget + int(rng.choice([-2, -1, 2])) * PRICE_STEP}
        target = self._target(goal, "items" in task.payload)
        if target is None:
            return None
        if kind == "budget_revised":
            return self._limit(goal, self._store.product(target), rng)
        if kind == "option_revised":
            return _other_value(goal, item, self._store.product(target), rng)
        return self._shift(kind, goal, target, rng)

    def _target(self, goal: Goal, is_list: bool) -> int | None:
        if is_list:
            found = pick(goal, self._store)
            return None if found is None else found.product
        done = plan(goal, self._store)
        return None if done is None else done.product

    def _shift(self, kind: str, goal: Goal, target: int, rng: np.random.Generator) -> Change | None:
        product = self._store.product(target)
        if kind == "price_rise":
            raised = product.price + int(rng.choice(_RISES))
            over = raised if goal.limit is None else max(raised, PRICE_STEP * -(-goal.limit // PRICE_STEP))
            return {"what": "price", "product": target, "price": over}
        if kind == "price_drop":
            lower = product.price - int(rng.choice(_RISES))
            return {"what": "price", "product": target, "price": lower} if lower >= PRICE_STEP else None
        if kind in ("stock_out", "restock"):
            return {"what": "stock", "product": target}
        if kind == "delisted":
            return {"what": "listing", "product": target}
        if kind == "option_out":
            return (
                {"what": "option", "product": target, "option": list(goal.options[int(rng.integers(len(goal.options)))])}
                if goal.options
                else None
            )
        decoys = [
            i for i in self._store.search(goal.query)[:8] if not goal.accepts(self._store.product(i)) and self._store.product(i).stock
        ]
        return {"what": "stock", "product": decoys[int(rng.integers(len(decoys)))]} if decoys else None

    def _limit(self, goal: Goal, target: Product, rng: np.random.Generator) -> Change:
        """A limit that the target exceeds, where something cheaper is acceptable; else one that leaves it room."""
        free = replace(goal, limit=None)
        cheaper = [self._store.product(i).price for i in offers(free, self._store) if self._store.product(i).price < target.price]
        if cheaper:
            return {"limit": cheaper[int(rng.integers(len(cheaper)))] + PRICE_STEP}
        return {"limit": target.price + PRICE_STEP * int(rng.integers(1, 4))}


def _other_value(goal: Goal, item: int, product: Product, rng: np.random.Generator) -> Change | None:
    """Another value of an option that is asked for, which the target has as well."""
    offered = dict(product.options)
    others = [(name, value) for name, wanted in goal.options for value in offered.get(name, ()) if value != wanted]
    return {"item": item, "option": list(others[int(rng.integers(len(others)))])} if others else None


class ShopWorld:
    """A visit to a shop in which things change; see `stepwell.envs.interrupt.World`.

    Args:
        visit: Over `now`.
        now: What the pages show.
        settled: What the shop will be like when all that passes has passed.
    """

    def __init__(self, visit: Shop | BasketShop, now: ChangedStore, settled: ChangedStore) -> None:
        self.visit, self._now, self._settled = visit, now, settled
        self._undone: dict[str, Goal | ShoppingList] = {}

    @property
    def tools(self) -> Sequence[Tool]:
        return self.visit.tools

    def start(self) -> Observation:
        return self.visit.start()

    def step(self, action: Action | Invalid) -> Reply:
        return self.visit.step(action)

    def look(self, text: str) -> Observation:
        return self.visit.observe(text)

    def happened(self) -> frozenset[str]:
        pages = self._pages
        made = {"results_shown"} if pages.found and pages.opened is None else set()
        if pages.opened is not None:
            product = self._now.product(pages.opened)
            for goal in self._wishes:
                if goal.accepts(product):
                    chosen = [pages.chosen.get(name) == value for name, value in goal.options]
                    made |= {"target_opened"} | ({"option_chosen"} if any(chosen) else set()) | ({"ready"} if all(chosen) else set())
        return frozenset(made)

    # -- changes ----------------------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        if "what" not in event.change:
            self._revise(event)
        elif event.kind == "restock":
            self._now.remove(_shift_of(event.change))
        else:
            self._now.add(_shift_of(event.change))
            if event.lasts is None:
                self._settled.add(_shift_of(event.change))

    def undo(self, event: Event) -> None:
        """For a restock: the shop as it is before it."""
        if "what" not in event.change:
            before = self._undone.pop(event.kind)
            if isinstance(before, ShoppingList):
                cast(BasketShop, self.visit).revise(before)
            else:
                cast(Shop, self.visit).revise(before)
        elif event.kind == "restock":
            self._now.add(_shift_of(event.change))
        else:
            self._now.remove(_shift_of(event.change))
            if event.lasts is None:
                self._settled.remove(_shift_of(event.change))

    def _revise(self, event: Event) -> None:
        change, visit = event.change, self.visit
        if isinstance(visit, BasketShop):
            wanted = visit.shopping
            self._undone[event.kind] = wanted
            if "budget" in change:
                # The user cannot take back what is spent already: less than that is no revision but the end.
                visit.revise(replace(wanted, budget=max(_int(change["budget"]), wanted.budget - visit.left)))
            else:
                item = _int(change["item"])
                items = [_with_option(goal, _pair(change["option"])) if n == item else goal for n, goal in enumerate(wanted.items)]
                visit.revise(replace(wanted, items=tuple(items)))
            return
        self._undone[event.kind] = visit.goal
        if "limit" in change:
            visit.revise(replace(visit.goal, limit=_int(change["limit"]), states_limit=True))
        else:
            visit.revise(_with_option(visit.goal, _pair(change["option"])))

    def announce(self, event: Event, *, over: bool) -> str:
        change = event.change
        if event.kind == "empty_results":
            return "news search works again" if over else "news search is down"
        if "limit" in change:
            return f"now price under {change['limit']}"
        if "budget" in change:
            return f"now total {cast(BasketShop, self.visit).shopping.budget} dollars"
        if "what" not in change:
            goal = self._wishes[_int(change.get("item", 0))]
            return f"now {goal.type} with {' '.join(_pair(change['option']))}"
        shift = _shift_of(change)
        product = self._now.product(shift.product)
        name = f"news {product.title}"
        if shift.what == "price":
            return f"{name} now {product.price}"
        back = over or event.kind == "restock"
        if shift.what == "option":
            return f"{name} {'has again' if back else 'sold out'} {' '.join(shift.option)}"
        return f"{name} {'back again' if back else 'gone' if shift.what == 'listing' else 'sold out'}"

    def loses(self, action: Action | Invalid) -> bool:
        return isinstance(action, Action) and action.name in ("search", "filter") and self._now.is_down

    # -- what is best -----------------------------------------------------------------------------------------------------------

    def best(self) -> float:
        return self.visit.best(store=self._settled)

    def potential(self) -> float:
        """How far the visit has come, in the shop as it is now."""
        return self.visit.potential()

    def wait(self) -> Action:
        return Action("search", {"query": " ".join(self._wishes[0].query)})

    def plan(self) -> list[Action] | None:
        return self._list_plan(self.visit) if isinstance(self.visit, BasketShop) else self._plan(self.visit)

    def _plan(self, visit: Shop) -> list[Action] | None:
        offer = best_purchase(visit.goal, self._now, visit.listed)
        if offer is None or self._now.is_down:
            return None
        found = plan(visit.goal, self._now)
        here = buying_from(offer, visit.opened, visit.found, visit.page)
        if here is None and found is not None:
            return list(found.actions)
        return [*(here if here is not None else buying(offer, self._now)), Action("buy")]

    def _list_plan(self, visit: BasketShop) -> list[Action] | None:
        """Returns what serves no item, buys what is missing at the lowest prices, and checks out."""
        kept: dict[str, int] = {}
        missing: list[tuple[Goal, int | None]] = []
        for number, goal in enumerate(visit.shopping.items):
            lowest = cheapest(goal, self._now, visit.visit.listed)
            serving = sorted((visit.refund(order), slot) for slot, order in visit.orders.items() if visit.serves(order, goal))
            if serving and (lowest is None or serving[0][0] <= self._now.product(lowest).price):
                kept[serving[0][1]] = number
            else:
                missing.append((goal, lowest))
        if any(lowest is None for _, lowest in missing) or (missing and self._now.is_down):
            return None
        actions = [Action("return", {"order": slot}) for slot in visit.orders if slot not in kept]
        pages = visit.visit
        for n, (goal, lowest) in enumerate(missing):
            offer = Offer(cast(int, lowest), goal.options, 1.0)
            here = buying_from(offer, pages.opened, pages.found, pages.page) if n == 0 else None
            if here is None and offer.product in pages.listed and not is_found(offer.product, self._now):
                return None
            actions += [*(here if here is not None else buying(offer, self._now)), Action("order")]
        return [*actions, Action("checkout")]

    def twin(self) -> ShopWorld:
        now = self._now.twin()
        made = ShopWorld(self.visit.twin(now), now, self._settled.twin())
        made._undone = copy(self._undone)
        return made

    @property
    def _pages(self) -> Shop:
        return self.visit.visit if isinstance(self.visit, BasketShop) else self.visit

    @property
    def _wishes(self) -> tuple[Goal, ...]:
        return self.visit.shopping.items if isinstance(self.visit, BasketShop) else (self.visit.goal,)


def _with_option(goal: Goal, option: tuple[str, str]) -> Goal:
    return replace(goal, options=tuple((name, option[1] if name == option[0] else value) for name, value in goal.options))


def _shift_of(change: Change) -> Shift:
    option = _pair(change["option"]) if "option" in change else ("", "")
    return Shift(cast(str, change["what"]), _int(change.get("product", -1)), _int(change.get("price", 0)), option)  # type: ignore[arg-type]


def _pair(value: JSON) -> tuple[str, str]:
    assert isinstance(value, Sequence) and len(value) == 2
    return str(value[0]), str(value[1])


def _int(value: JSON) -> int:
    assert isinstance(value, int)
    return value
