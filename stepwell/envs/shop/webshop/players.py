"""Players that need no learning: an oracle that knows the goal, and two rules that read what is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from stepwell.envs.shop.webshop.catalogue import Product
from stepwell.envs.shop.webshop.clean import option_elements
from stepwell.envs.shop.webshop.goals import Goal
from stepwell.envs.shop.webshop.pages import PER_PAGE
from stepwell.envs.shop.webshop.store import Store
from stepwell.protocols import Environment
from stepwell.types import Action, Observation

__all__ = [
    "Outcome",
    "Player",
    "choices",
    "clean_oracle",
    "click",
    "compat_oracle",
    "plain_rule",
    "play",
    "scripted",
    "search",
    "verbatim_rule",
]

Player = Callable[[Observation], Action]
"""From what is shown to the next action; made for one episode."""
_NAVIGATION = frozenset(("back to search", "< prev", "next >", "description", "features", "reviews", "attributes", "buy now"))
_LIMIT = re.compile(r", and price lower than [0-9.]+ dollars$")


class Outcome(NamedTuple):
    """The reward of the purchase (0 without one), and the number of actions."""

    reward: float
    num_steps: int


def play(environment: Environment, player: Player, max_steps: int = 100) -> Outcome:
    """One episode by a player."""
    observation = environment.start()
    for step in range(1, max_steps + 1):
        reply = environment.step(player(observation))
        if reply.done:
            return Outcome(reply.reward, step)
        observation = reply.observation
    return Outcome(0.0, max_steps)


def scripted(actions: Sequence[Action]) -> Player:
    """Takes the actions one after the other, whatever is shown."""
    todo = iter(actions)
    return lambda _: next(todo)


def plain_rule(instruction: str) -> Player:
    """Searches for the whole instruction and buys the first hit (WebShop's own rule)."""
    return _rule(instruction, lambda values: [])


def verbatim_rule(instruction: str) -> Player:
    """As `plain_rule`, but first clicks all option values that stand in the instruction word for word."""
    said = instruction.lower()
    return _rule(instruction, lambda values: [value for value in values if value in said])


def choices(observation: Observation) -> list[str]:
    """What can be clicked beside buttons: products on a page of results, option values on an item page."""
    clicks = [action[len("click[") : -1] for action in observation.admissible or () if action.startswith("click[")]
    return [element for element in clicks if element not in _NAVIGATION]


def search(query: str) -> Action:
    """A search."""
    return Action("search", {"query": query})


def click(element: str) -> Action:
    """A click."""
    return Action("click", {"element": element})


def compat_oracle(store: Store, goal: Goal) -> list[Action] | None:
    """Actions that buy the goal's product with its options in the original shop; None where no search finds it."""
    path = _path(store, goal, (goal.instruction, store.products[goal.asin].title))
    if path is None:
        return None
    query, rank = path
    pages = [click("next >")] * (rank // PER_PAGE)
    return [search(query), *pages, click(goal.asin.lower()), *(click(value) for _, value in goal.options), click("buy now")]


def clean_oracle(store: Store, goal: Goal) -> list[Action] | None:
    """The same for the clean shop; the query is what the instruction says of the product, without the price."""
    product = store.products[goal.asin]
    said = _LIMIT.sub("", goal.instruction.removeprefix("Find me "))
    path = _path(store, goal, (said, goal.instruction, product.title))
    if path is None:
        return None
    query, rank = path
    pages = [click("next >")] * (rank // PER_PAGE)
    options = [click(element) for element in _elements(product, goal)]
    return [search(query), *pages, click(f"p{rank % PER_PAGE + 1}"), *options, click("buy now")]


def _path(store: Store, goal: Goal, queries: Sequence[str]) -> tuple[str, int] | None:
    """The first of the queries that finds the goal's product, and its place among the hits."""
    for text in queries:
        query = " ".join(re.sub(r"[\[\]]", " ", text).split())
        asins = [product.asin for product in store.search(query)]
        if goal.asin in asins:
            return query, asins.index(goal.asin)
    return None


def _elements(product: Product, goal: Goal) -> list[str]:
    wanted = dict(goal.options)
    return [element for element, (name, value) in option_elements(product).items() if wanted.get(name) == value]


def _rule(instruction: str, choose: Callable[[Sequence[str]], list[str]]) -> Player:
    todo: list[str] | None = None

    def act(observation: Observation) -> Action:
        nonlocal todo
        others = choices(observation)
        if "click[buy now]" in (observation.admissible or ()):
            todo = choose(others) if todo is None else todo
            return click(todo.pop(0)) if todo else click("buy now")
        return click(others[0]) if others else search(instruction)

    return act
