"""A shopping list under one budget: many steps, and one reward at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

from stepwell.envs.shop.goal import Goal
from stepwell.envs.shop.oracle import Way, cheapest, ways_in_results, ways_to_buy
from stepwell.envs.shop.shop import TOOLS, Shop, tool
from stepwell.envs.shop.store import NO_FILTERS, PAGE_SIZE, Shelves
from stepwell.errors import ConfigError, EnvironmentFault
from stepwell.types import JSON, Action, Invalid, Observation, Reply, Task, Tool

__all__ = ["BASKET_TOOLS", "MAX_ITEMS", "BasketShop", "Order", "ShoppingList"]

MAX_ITEMS = 6
MAX_ORDERS = 9
BASKET_TOOLS: tuple[Tool, ...] = (
    *(one for one in TOOLS if one.name != "buy"),
    tool("order", "Order the open product with the chosen options: it is paid at once, and you stay on its page."),
    tool("return", "Take an order back for its price less the fee.", order="o1, o2, ..."),
    tool("checkout", "Keep what is ordered. This ends the episode."),
)
_ARGUMENT = {one.name: one.arguments for one in BASKET_TOOLS}
_SLOTS = tuple(f"o{n + 1}" for n in range(MAX_ORDERS))


@dataclass(frozen=True, slots=True)
class ShoppingList:
    """What is wanted in one visit.

    Attributes:
        items: Wishes for products of different types.
        budget: Dollars for all of them, fees included.
        fee: Dollars that a returned order costs.
    """

    items: tuple[Goal, ...]
    budget: int
    fee: int

    def payload(self) -> dict[str, JSON]:
        """The list as a task's payload."""
        return {"items": [goal.payload() for goal in self.items], "budget": self.budget, "fee": self.fee}

    @classmethod
    def of(cls, task: Task) -> ShoppingList:
        """The list in a task's payload.

        Raises:
            ConfigError: The payload is not that of a task of this domain.
        """
        items, budget, fee = (task.payload.get(key) for key in ("items", "budget", "fee"))
        if not isinstance(items, Sequence) or isinstance(items, str) or not isinstance(budget, int) or not isinstance(fee, int):
            raise ConfigError(
                f"Task {task.key!r} is no shopping list: its payload has no usable items, budget and fee; take tasks from "
                "BasketDomain.task."
            )
        goals = [Goal.of(replace(task, payload=item)) for item in items if isinstance(item, Mapping)]
        return cls(tuple(goals), budget, fee)


class Order(NamedTuple):
    """Something ordered, at the price that was paid."""

    product: int
    options: tuple[tuple[str, str], ...]
    price: int


class BasketShop:
    """One visit with a shopping list.

    Pages are those of `Shop`. `order` pays for the open product with its chosen options; what costs more than is left is refused. `return`
    takes an order back for its price less the fee (at least 0). `checkout` ends the visit and pays 1.0 where the orders are the list, one
    for each item and nothing besides, and 0.0 otherwise: nothing before tells whether an order was right, and a wrong one can be undone
    only as long as the budget bears it.
    """

    def __init__(self, task: Task, store: Shelves) -> None:
        self._task = task
        self._list = ShoppingList.of(task)
        self._visit = Shop(replace(task, payload=self._list.items[0].payload()), store)
        self._left = self._list.budget
        self._orders: dict[str, Order] = {}
        self._reward: float | None = None
        self._steps_at_start: int | None = None

    @property
    def tools(self) -> tuple[Tool, ...]:
        return BASKET_TOOLS

    @property
    def shopping(self) -> ShoppingList:
        """What is wanted."""
        return self._list

    @property
    def visit(self) -> Shop:
        """Search, filters and pages."""
        return self._visit

    @property
    def left(self) -> int:
        """Dollars left."""
        return self._left

    @property
    def orders(self) -> dict[str, Order]:
        """Slot -> what is ordered."""
        return dict(self._orders)

    def start(self) -> Observation:
        return self.observe(self._visit.start().text)

    def step(self, action: Action | Invalid) -> Reply:
        """Carries out one action.

        Raises:
            EnvironmentFault: The episode is over.
        """
        if self._reward is not None:
            raise EnvironmentFault("The orders are paid and the episode over; take a new environment for a new episode.")
        if isinstance(action, Invalid):
            return self._refuse("no action")
        if action.name not in _ARGUMENT:
            return self._refuse("no such action")
        if tuple(action.arguments) != _ARGUMENT[action.name]:
            return self._refuse(f"{action.name} takes {' '.join(_ARGUMENT[action.name]) or 'nothing'}")
        if action.name == "order":
            return self._order()
        if action.name == "return":
            return self._return(action.arguments["order"].strip().lower())
        if action.name == "checkout":
            return self._checkout()
        reply = self._visit.step(action)
        return replace(reply, observation=self.observe(reply.observation.text))

    # -- orders -----------------------------------------------------------------------------------------------------------------

    def _order(self) -> Reply:
        if self._visit.opened is None:
            return self._refuse("open a product first")
        product = self._visit.store.product(self._visit.opened)
        free = [slot for slot in _SLOTS if slot not in self._orders]
        if not product.stock:
            return self._refuse("sold out")
        if product.price > self._left:
            return self._refuse(f"too expensive left {self._left}")
        if not free:
            return self._refuse("too many orders")
        self._left -= product.price
        self._orders[free[0]] = Order(self._visit.opened, tuple(sorted(self._visit.chosen.items())), product.price)
        return Reply(self.observe(f"ordered {free[0]} {product.type} {product.price} left {self._left}"))

    def _return(self, slot: str) -> Reply:
        if slot not in self._orders:
            return self._refuse("no such order")
        self._left += self.refund(self._orders.pop(slot))
        return Reply(self.observe(f"returned {slot} left {self._left}"))

    def _checkout(self) -> Reply:
        self._reward = float(self._is_complete())
        return Reply(self.observe("bought"), reward=self._reward, done=True)

    def refund(self, order: Order) -> int:
        """Dollars that come back for an order."""
        return max(order.price - self._list.fee, 0)

    def _is_complete(self) -> bool:
        """Whether each item has an order of its own and no order is left over. Items are of different types, so no order serves two."""
        items = self._list.items
        return len(self._orders) == len(items) and all(any(self.serves(order, goal) for order in self._orders.values()) for goal in items)

    def serves(self, order: Order, goal: Goal) -> bool:
        """Whether the order is what the goal asks for; its price is what was paid."""
        product = self._visit.store.product(order.product)._replace(price=order.price)
        return goal.grade(product, dict(order.options)).reward == 1.0

    def revise(self, wanted: ShoppingList) -> None:
        """The user changes the list; more or less budget is more or less money left."""
        self._left += wanted.budget - self._list.budget
        self._list = wanted

    def twin(self, store: Shelves) -> BasketShop:
        """The same visit, over shelves of its own: what happens in one does not happen in the other."""
        made = copy(self)
        made._visit, made._orders = self._visit.twin(store), dict(self._orders)
        return made

    # -- what can still be had ------------------------------------------------------------------------------------------------------

    def best(self, turns: int | None = None, store: Shelves | None = None) -> float:
        """The best reward that can still be reached from here: 1.0 or 0.0, exactly.

        Without a limit of turns it is a matter of money: everything that serves no item is returned, each item keeps an order that
        serves it or is bought anew at the lowest price at which a search finds it, whichever is cheaper, and the budget bears it or not.
        With `turns` left it must also be done in so many actions (see `steps_to_go`).

        Args:
            turns: Left; None is no limit.
            store: What the shop will be like; None is as it is now.
        """
        if self._reward is not None:
            return self._reward
        if turns is not None:
            steps = self.steps_to_go()
            return float(steps is not None and steps <= turns)
        costs = [self._lowest_cost(goal, store or self._visit.store) for goal in self._list.items]
        at_hand = self._left + sum(self.refund(order) for order in self._orders.values())
        return float(None not in costs and sum(cost for cost in costs if cost is not None) <= at_hand)

    def _lowest_cost(self, goal: Goal, store: Shelves) -> int | None:
        """Dollars for this item, with all orders returned: the refund forgone where an order is kept, or the lowest price."""
        kept = [self.refund(order) for order in self._orders.values() if self.serves(order, goal)]
        index = cheapest(goal, store, self._visit.listed)
        return min([*kept, *([] if index is None else [store.product(index).price])], default=None)

    def steps_to_go(self) -> int | None:
        """Fewest actions to a complete checkout that the budget bears; None where there is no way.

        Of one who knows the catalogue, searches with the goals' queries, under the filters that are set or after clearing them, and may go
        on from the page that is open. Where a filter for a price alone brings a product up, two actions are counted for it, one more than
        the very last item would need.
        """
        items = self._list.items
        money = self._left + sum(self.refund(order) for order in self._orders.values())
        anew = [self._choices(goal) for goal in items]
        filtered = int(self._visit.filters != NO_FILTERS)
        plans = [(anew, filtered)]
        for number, goal in enumerate(
            items
        ):  # At most one item is bought from the page that is open, or from what clearing the filter lists.
            for here, clearing in ((self._ways_from_here(goal), filtered), (self._ways_unfiltered(goal) if filtered else [], 0)):
                if here:
                    plans.append(([here if n == number else choices for n, choices in enumerate(anew)], clearing))
        done = [steps for steps in (_fewest(plan, money, clearing) for plan, clearing in plans) if steps is not None]
        return min(done) + len(self._orders) + 1 if done else None

    def _choices(self, goal: Goal) -> list[Way]:
        """Keep an order (one action less, as it is not returned), or buy anew."""
        kept = [Way(self.refund(order), -1, False) for order in self._orders.values() if self.serves(order, goal)]
        filters, store = self._visit.filters, self._visit.store
        filtered = [Way(*way[:2], anew=False) for way in ways_in_results(goal, store, filters)] if filters != NO_FILTERS else []
        return [*kept, *filtered, *ways_to_buy(goal, store)]

    def _ways_from_here(self, goal: Goal) -> list[Way]:
        """Buying this item from the page that is open: choose and order; open first; or go back to the results before."""
        visit, store = self._visit, self._visit.store
        ways, back = [], 0
        if visit.opened is not None:
            back = 1
            product = store.product(visit.opened)
            if goal.accepts(product):
                missing = sum(visit.chosen.get(name) != value for name, value in goal.options)
                ways.append(Way(product.price, missing + 1, anew=False))
        for rank, index in enumerate(visit.found):
            if goal.accepts(store.product(index)):
                turns = abs(rank // PAGE_SIZE - visit.page)
                ways.append(Way(store.product(index).price, back + turns + 1 + len(goal.options) + 1, anew=False))
        return ways

    def _ways_unfiltered(self, goal: Goal) -> list[Way]:
        """Buying this item from what clearing the filters lists for the present query."""
        visit, store = self._visit, self._visit.store
        found = [(rank, store.product(index)) for rank, index in enumerate(store.search(visit.query))] if visit.query else []
        rest = 1 + len(goal.options) + 1
        return [Way(product.price, 1 + rank // PAGE_SIZE + rest, anew=False) for rank, product in found if goal.accepts(product)]

    def potential(self) -> float:
        """How far the visit has come, in [0, 1]: 0 at the start and where success is out of reach; after the checkout its reward.

        `best * (1 - steps to go / steps to go at the start)`, at least 0.
        """
        if self._reward is not None:
            return self._reward
        if self._steps_at_start is None:
            self._steps_at_start = BasketShop(self._task, self._visit.store).steps_to_go() or 1
        steps = self.steps_to_go()
        return 0.0 if steps is None else max(0.0, 1.0 - steps / self._steps_at_start)

    # -- what is shown ----------------------------------------------------------------------------------------------------------

    def _refuse(self, text: str) -> Reply:
        return Reply(self.observe(text), valid=False)

    def observe(self, text: str) -> Observation:
        """This text, shown in the present state."""
        here = self._visit.observe("")
        orders = " ".join(f"{slot}:{o.product}:{','.join(v for _, v in o.options)}:{o.price}" for slot, o in sorted(self._orders.items()))
        done = "" if self._reward is None else "over"
        return Observation(text, f"{here.state_key}|{orders}|{self._left}|{done}", self._admissible(here.admissible or ()))

    def _admissible(self, clicks: Sequence[str]) -> tuple[str, ...]:
        if self._reward is not None:
            return ()
        opened = None if self._visit.opened is None else self._visit.store.product(self._visit.opened)
        can_order = opened is not None and opened.stock > 0 and opened.price <= self._left and len(self._orders) < MAX_ORDERS
        returns = [f"return[{slot}]" for slot in self._orders]
        return (*(click for click in clicks if click != "buy[]"), *(("order[]",) if can_order else ()), *returns, "checkout[]")


def _fewest(plan: Sequence[Sequence[Way]], money: int, clearing: int) -> int | None:
    """The smallest sum of steps of one way for each item whose prices are within the money; None where there is none.

    Args:
        plan: Ways of each item.
        money: To spend.
        clearing: Steps on top where anything is searched for anew.
    """
    least: dict[tuple[int, bool], int] = {(0, False): 0}
    for ways in plan:
        after: dict[tuple[int, bool], int] = {}
        for (spent, searched), steps in least.items():
            for way in ways:
                key = (spent + way.price, searched or way.anew)
                if key[0] <= money:
                    after[key] = min(after.get(key, steps + way.steps), steps + way.steps)
        least = after
    return min((steps + clearing * searched for (_, searched), steps in least.items()), default=None)
