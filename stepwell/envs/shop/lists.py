"""Shopping lists: what makes them hard, how they are drawn, and the scripted expert who works through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from stepwell.envs.shop.axes import FREE, Axes, FixedAxes
from stepwell.envs.shop.basket import MAX_ITEMS, ShoppingList
from stepwell.envs.shop.catalogue import PRICE_STEP
from stepwell.envs.shop.expert import looks_right
from stepwell.envs.shop.goal import Goal
from stepwell.envs.shop.store import PAGE_SIZE, Shelves, Store
from stepwell.envs.shop.tasks import SPLITS, Maker, instruction
from stepwell.errors import ConfigError, nearest
from stepwell.seeding import generator
from stepwell.types import Action, Task

__all__ = ["ListMaker", "Pick", "list_plan", "pick"]

MAX_LIST_STEPS = 30
"""No list needs more of the expert's actions, unless its items alone do."""
_MOST_OPTIONS = 1.2
"""Options of an item at difficulty 1, on average."""
_TRIES = 400


class Pick(NamedTuple):
    """What the expert buys for one item: its actions up to the order, the product, and its price."""

    actions: tuple[Action, ...]
    product: int
    price: int


def pick(goal: Goal, store: Shelves) -> Pick | None:
    """The cheapest acceptable product on the first page of results, as one finds it who reads the pages; None where there is none.

    It searches for the goal's words, opens what looks right, cheapest first, goes back from what lacks something, chooses and orders.
    """
    actions = [Action("search", {"query": " ".join(goal.query)})]
    shown = [(slot, store.product(index), index) for slot, index in enumerate(store.search(goal.query)[:PAGE_SIZE], start=1)]
    for slot, product, index in sorted(shown, key=lambda line: (line[1].price, line[0])):
        if not looks_right(goal, product):
            continue
        actions.append(Action("click", {"element": f"p{slot}"}))
        if goal.accepts(product):
            actions += [Action("click", {"element": f"{name} {value}"}) for name, value in goal.options]
            return Pick((*actions, Action("order")), index, product.price)
        actions.append(Action("click", {"element": "back"}))
    return None


def list_plan(items: Sequence[Goal], store: Shelves) -> tuple[Action, ...] | None:
    """The expert's actions for a whole list, in its order; None where an item is not on its first page of results."""
    picks = [pick(goal, store) for goal in items]
    if None in picks:
        return None
    return (*(action for one in picks if one is not None for action in one.actions), Action("checkout"))


@dataclass(frozen=True, slots=True)
class ListMaker:
    """Draws shopping lists in a store; the same (difficulty, seed, split) gives the same task.

    With difficulty grow the number of items (2 at 0, 6 at 1), the attributes and options of each, how freely they are worded, and how
    tight the budget is: at 0 it bears the dearest acceptable product on each first page of results and two mistakes, at 1 the cheapest
    ones and none.

    Attributes:
        store: Where the products are.
        items: Fewest and most items of a list; None is drawn by difficulty.
        fee: Dollars that a returned order costs.
        fixed: Axes of each item; a budget (`stated`, `missing`) is a price limit of each item on top of the list's.

    Raises (when built):
        ConfigError: A value out of range.
    """

    store: Store
    items: tuple[int, int] | None = None
    fee: int = PRICE_STEP
    fixed: FixedAxes = FREE

    def __post_init__(self) -> None:
        if self.items is not None and not 1 <= self.items[0] <= self.items[1] <= MAX_ITEMS:
            raise ConfigError(f"basket.items is {list(self.items)}; allowed is [low, high] with 1 <= low <= high <= {MAX_ITEMS}.")
        if not 0 <= self.fee <= 50 or self.fee % PRICE_STEP:
            raise ConfigError(f"basket.fee is {self.fee}; allowed is 0 to 50 dollars in steps of {PRICE_STEP}.")
        if self.fixed.steps is not None or self.fixed.distractors is not None:
            raise ConfigError(
                "axes.steps and axes.distractors are for single products: the length of a basket is set by items, and what must be opened "
                "in vain by the catalogue; leave them out."
            )

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        """One shopping list.

        Raises:
            ConfigError: Unknown split, difficulty outside [0, 1], or a catalogue that has no such list.
        """
        if split not in SPLITS:
            raise ConfigError(f"The shop has no split {split!r}; {nearest(split, SPLITS)}.")
        if not 0.0 <= difficulty <= 1.0:
            raise ConfigError(f"The difficulty is {difficulty}; it lies in [0, 1].")
        catalogue = self.store.catalogue
        about = ",".join(filter(None, [f"items={self.items}" if self.items else "", f"fee={self.fee}", self.fixed.key]))
        name = (catalogue.seed, len(catalogue), split, repr(float(difficulty)), seed, about)
        rng = generator("shop basket", *name)
        number = self._number(difficulty, rng)
        wanted, goals = self._goals(number, difficulty, split, rng)
        made = ShoppingList(tuple(goals), self._budget(goals, difficulty, rng), self.fee)
        wishes = [instruction(goal, wanted.wording, rng, wanted.names) for goal in goals]
        return Task(
            key="basket/" + "/".join(str(part) for part in name),
            prompt=f"{' then '.join(wishes)} total {made.budget} dollars",
            difficulty=float(difficulty),
            split=split,
            payload=made.payload(),
        )

    def _number(self, difficulty: float, rng: np.random.Generator) -> int:
        low, high = self.items or (2, MAX_ITEMS)
        return min(int(low + (high - low) * difficulty + rng.random()), high)

    def _axes(self, difficulty: float, rng: np.random.Generator) -> Axes:
        """Of each item of one list: easier ones than a single product's, since there are several."""

        def level(at_0: float, at_1: float) -> int:
            return int(at_0 + (at_1 - at_0) * difficulty + rng.random())

        drawn = Axes(
            num_attributes=min(max(level(1.0, 2.5), 1), 3),
            num_options=min(level(0.0, _MOST_OPTIONS), 2),
            lookalikes=0,
            has_limit=False,
            hidden=False,
            wording=min(max(level(-1.0, 1.6), 0), 2),
        )
        return self.fixed.over(drawn)

    def _goals(self, number: int, difficulty: float, split: str, rng: np.random.Generator) -> tuple[Axes, list[Goal]]:
        """Wishes for products of different types, each on the first page of its results. All are worded alike."""
        maker = Maker(self.store)
        goals: list[Goal] = []
        each = 3 + (round(_MOST_OPTIONS * difficulty) if self.fixed.options is None else self.fixed.options)  # search, open, choose, order
        left = max(MAX_LIST_STEPS - 1, each * number)
        first = self._axes(difficulty, rng)
        for _ in range(_TRIES):
            drawn = replace(self._axes(difficulty, rng), wording=first.wording)
            goal = maker.goal(drawn, split, rng)
            found = pick(goal, self.store)
            still = each * (number - len(goals) - 1)
            if goal.type not in {other.type for other in goals} and found is not None and len(found.actions) + still <= left:
                goals.append(goal)
                left -= len(found.actions)
            if len(goals) == number:
                return first, goals
        raise ConfigError(
            f"The shop of {len(self.store.catalogue)} products has no list of {number} items of different types in split {split!r}; "
            "use more products, or fewer items."
        )

    def _budget(self, goals: Sequence[Goal], difficulty: float, rng: np.random.Generator) -> int:
        """From what the dearest acceptable products and two mistakes cost down to what the expert pays."""
        cheap = dear = 0
        for goal in goals:
            prices = [self.store.product(i).price for i in self.store.search(goal.query)[:PAGE_SIZE] if goal.accepts(self.store.product(i))]
            cheap, dear = cheap + min(prices), dear + max(prices)
        mistakes = int(2.0 * (1.0 - difficulty) + rng.random()) * self.fee
        spare = (1.0 - difficulty) * (dear - cheap)
        return cheap + mistakes + PRICE_STEP * int(spare / PRICE_STEP + rng.random())
