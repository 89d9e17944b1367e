"""WebShop without its accidents: short pages with everything in view that the reward depends on, made for small models.

What is different from the original: products on a page of results are `p1` .. `p10`; the item page shows the options chosen and the
actual price; a page that does not exist cannot be opened; an option value that stands under two names, or is also a button, is clicked
as `name: value`; the reward is `clean_reward`. As in the original, a search is taken on every page, and leaving an item drops the options
chosen.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from stepwell.envs.shop.webshop.catalogue import Product
from stepwell.envs.shop.webshop.pages import PER_PAGE, shown
from stepwell.envs.shop.webshop.reward import Parts, clean_reward
from stepwell.envs.shop.webshop.store import Store
from stepwell.envs.shop.webshop.tools import TOOLS, argument_of
from stepwell.types import Action, Invalid, Observation, Reply, Tool

__all__ = ["CleanEnvironment", "option_elements"]

_TITLE, _TEXT = 70, 600
"""Characters shown of a title among results, and of a sub page."""
_BUTTONS = ("back to search", "< prev", "next >", "description", "features", "buy now")
_ACTION = re.compile(r"(search|click)\[(.*)\]", re.DOTALL)
PageKind = Literal["search", "results", "item", "description", "features", "done"]


def option_elements(product: Product) -> dict[str, tuple[str, str]]:
    """What is clicked to choose an option -> (name, value), in the order shown.

    The element is the value itself where that is unambiguous, else `name: value`.
    """
    pairs = [(name, value) for name, values in product.options.items() for value in dict.fromkeys(values)]
    uses = Counter(value for _, value in pairs)
    return {value if uses[value] == 1 and value not in _BUTTONS else f"{name}: {value}": (name, value) for name, value in pairs}


class CleanEnvironment:
    """One episode."""

    def __init__(self, store: Store, goal: int) -> None:
        self._store = store
        self._goal_index = goal
        self._goal = store.goals[goal]
        self._kind: PageKind = "search"
        self._hits: tuple[Product, ...] = ()
        self._number = 0
        self._product: Product | None = None
        self._options: dict[str, str] = {}
        self._elements: Mapping[str, tuple[str, str]] = {}
        self.parts: Parts | None = None
        """What the purchase was worth, and why."""
        self.clickables: tuple[str, ...] = ()
        """What can be clicked."""
        self._observation = self._look()

    @property
    def tools(self) -> Sequence[Tool]:
        return TOOLS

    @property
    def has_search_bar(self) -> bool:
        """True on the first page (a search is taken on every page)."""
        return self._kind == "search"

    def start(self) -> Observation:
        return self._observation

    def act(self, text: str) -> Reply:
        """Takes an action in bracket form, `search[words]` or `click[element]`."""
        match = _ACTION.fullmatch(text.strip())
        if match is None:
            return self.step(Invalid(text, "neither search[words] nor click[element]"))
        return self.step(Action(match[1], {"query" if match[1] == "search" else "element": match[2]}))

    def step(self, action: Action | Invalid) -> Reply:
        argument = None if isinstance(action, Invalid) else argument_of(action)
        if argument is None or isinstance(action, Invalid) or self._kind == "done":
            return self._reply(valid=False)
        argument = " ".join(argument.lower().split())
        taken = self._search(argument) if action.name == "search" else self._click(argument)
        if taken:
            self._observation = self._look()
        return self._reply(valid=taken)

    def _reply(self, *, valid: bool) -> Reply:
        done = self._kind == "done"
        return Reply(self._observation, self.parts.reward if valid and done and self.parts else 0.0, done=done, valid=valid)

    # -- transitions ----------------------------------------------------------------------------------------------------------

    def _search(self, words: str) -> bool:
        if not words:
            return False
        self._hits = self._store.search(words)
        self._results(1)
        return True

    def _click(self, element: str) -> bool:
        choice = self._choice(element)
        if choice is not None:
            name, value = choice
            self._options[name] = value
        elif element not in self.clickables:
            return False
        elif element == "back to search":
            self._leave("search")
            self._hits, self._number = (), 0
        elif element == "next >":
            self._results(self._number + 1)
        elif element == "< prev":
            self._go_back()
        elif element in ("description", "features"):
            self._kind = "description" if element == "description" else "features"
        elif element == "buy now":
            self._buy()
        else:
            self._open(shown(self._hits, self._number)[int(element[1:]) - 1])
        return True

    def _choice(self, element: str) -> tuple[str, str] | None:
        """The option that a click on an item page chooses; `name: value` is always understood."""
        if self._kind != "item":
            return None
        return self._elements.get(element) or next((pair for pair in self._elements.values() if element == f"{pair[0]}: {pair[1]}"), None)

    def _leave(self, kind: PageKind) -> None:
        self._kind, self._product, self._options, self._elements = kind, None, {}, {}

    def _results(self, number: int) -> None:
        self._leave("results")
        self._number = number

    def _go_back(self) -> None:
        if self._kind == "results":
            self._results(self._number - 1)
        elif self._kind == "item":
            self._results(self._number)
        else:
            self._kind = "item"

    def _open(self, product: Product) -> None:
        self._kind, self._product, self._options, self._elements = "item", product, {}, option_elements(product)

    def _buy(self) -> None:
        assert self._product is not None, "buy now is clickable on item pages only"
        self._kind = "done"
        self.parts = clean_reward(self._store.target(self._goal), self._store.purchase(self._product.asin, self._options))

    # -- what is seen ---------------------------------------------------------------------------------------------------------

    def _look(self) -> Observation:
        lines, buttons, elements = self._page()
        self.clickables = (*buttons, *elements)
        text = "\n".join([self._goal.instruction, *lines, " ".join(f"[{button}]" for button in buttons)]).rstrip("\n")
        clicks = tuple(f"click[{element}]" for element in self.clickables)
        return Observation(text, self._state_key(), ("search[query]", *clicks) if self._kind != "done" else ())

    def _page(self) -> tuple[list[str], list[str], list[str]]:
        """Lines, buttons, and other things to click."""
        if self._product is None:
            return self._list() if self._kind == "results" else (["page: search"], [], [])
        if self._kind == "item":
            return self._item(self._product)
        if self._kind == "done":
            chosen = "; ".join(f"{name}: {value}" for name, value in self._options.items())
            return [f"bought: {self._product.title}", *([f"chosen: {chosen}"] if chosen else [])], [], []
        text = self._product.description if self._kind == "description" else " ".join(self._product.bullets)
        return [f"page: {self._kind}", _cut(text, _TEXT)], ["back to search", "< prev"], []

    def _list(self) -> tuple[list[str], list[str], list[str]]:
        products = shown(self._hits, self._number)
        last = max(-(-len(self._hits) // PER_PAGE), 1)
        lines = [f"page: results {self._number} of {last}"]
        lines += [f"p{slot} {_cut(product.title, _TITLE)} | {self._price(product)}" for slot, product in enumerate(products, start=1)]
        turn = [*(["< prev"] if self._number > 1 else []), *(["next >"] if self._number < last else [])]
        return lines, ["back to search", *turn], [f"p{slot + 1}" for slot in range(len(products))]

    def _item(self, product: Product) -> tuple[list[str], list[str], list[str]]:
        lines = ["page: item", product.title, f"price: {self._price(product)}"]
        for name in product.options:
            values = [element for element, pair in self._elements.items() if pair[0] == name]
            lines.append(f"{name}: {'; '.join(values)}")
        if self._options:
            lines.append("chosen: " + "; ".join(f"{name}: {value}" for name, value in self._options.items()))
        sub_pages = [*(["description"] if product.description else []), *(["features"] if any(product.bullets) else [])]
        return lines, ["back to search", "< prev", *sub_pages, "buy now"], list(self._elements)

    def _price(self, product: Product) -> str:
        return f"${self._store.prices[product.asin]:.2f}"

    def _state_key(self) -> str:
        asin = self._product.asin if self._product else ""
        hits = [product.asin for product in self._hits]
        state = (self._goal_index, self._kind, self._number, hits, asin, sorted(self._options.items()))
        return hashlib.blake2b(repr(state).encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _cut(text: str, longest: int) -> str:
    """At most so many characters, cut at a blank where there is one; line ends become blanks."""
    text = " ".join(text.split())
    if len(text) <= longest:
        return text
    return f"{text[:longest].rpartition(' ')[0] or text[:longest]} ..."
