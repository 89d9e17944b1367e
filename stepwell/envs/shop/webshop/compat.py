"""The original WebShop, to the letter: pages, actions, clickables, rewards, and the accidents of its URLs.

An episode walks over pages. `search[words]` is taken everywhere; `click[x]` where x is the lower-cased text of a button, a product's key
or an option value in view. Anything else changes nothing. The original tells what page it is on by looking for words in the page's URL,
which holds the search words too: that is why `_believed` is not always the kind of page.

Left out: the original's debug queries (a first word `<r>`, `<a>`, `<c>` or `<q>`), and its crash on more than 1,024 different search terms.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stepwell.envs.shop.webshop import pages
from stepwell.envs.shop.webshop.catalogue import Product
from stepwell.envs.shop.webshop.reward import Parts, compat_reward
from stepwell.envs.shop.webshop.store import Store
from stepwell.envs.shop.webshop.tools import TOOLS, argument_of
from stepwell.types import Action, Invalid, Observation, Reply, Tool

__all__ = ["CompatEnvironment", "CompatSettings"]

_ACTION = re.compile(r"(.+)\[(.+)\]")
_SUB_PAGES = ("Description", "Features", "Reviews")
_SUB_PAGE_NAMES = ("description", "features", "reviews", "attributes")
PageKind = Literal["index", "results", "item", "sub", "done"]


@dataclass(frozen=True, slots=True)
class CompatSettings:
    """How the original shop shows itself.

    Attributes:
        mode: `text`, or `text_rich` (buttons and what was clicked are marked).
        colours: The ordered colour words of its option matching.
        show_attrs: An extra sub page lists a product's attributes.
        num_prev_obs, num_prev_actions: So many earlier observations and actions stand in front of each observation.
    """

    mode: pages.Mode
    colours: tuple[str, ...]
    show_attrs: bool = False
    num_prev_obs: int = 0
    num_prev_actions: int = 0


class CompatEnvironment:
    """One episode of the original shop."""

    def __init__(self, store: Store, goal: int, settings: CompatSettings) -> None:
        self._store = store
        self._goal_index = goal
        self._goal = store.goals[goal]
        self._settings = settings
        self._render = pages.render(settings.mode)
        self._sub_pages = (*_SUB_PAGES, "Attributes") if settings.show_attrs else _SUB_PAGES
        self._visited: set[str] = set()
        self._past: list[tuple[str, str]] = []  # (observation, the action taken on it)
        self._page = self._shown = ""
        self.parts: Parts | None = None
        """What the last purchase was worth, and why."""
        self.clickables: tuple[str, ...] = ()
        """What can be clicked, in the original's order (`search` is listed, and is not clickable)."""
        self._reset()

    @property
    def tools(self) -> Sequence[Tool]:
        return TOOLS

    @property
    def has_search_bar(self) -> bool:
        """True on the first page (a search is taken on every page)."""
        return self._kind == "index"

    def start(self) -> Observation:
        return self._observation(self._page)

    def step(self, action: Action | Invalid) -> Reply:
        """As `act`, but a purchase is final: the original goes on searching after it, which `act` keeps."""
        if self.parts is not None:
            return replace(self._refused(""), done=True)
        if isinstance(action, Invalid):
            return self._refused(action.text)
        argument = argument_of(action)
        return self._refused(action.name) if argument is None else self.act(f"{action.name}[{argument}]")

    def act(self, text: str) -> Reply:
        """Takes an action in the original's own form, `search[words]` or `click[element]`."""
        match = _ACTION.match(text)
        name, argument = (match[1], match[2].lower()) if match else ("", "")
        if name == "search":
            self._search(argument)
        elif name == "click" and argument in self.clickables and argument != "search":
            self._click(argument)
        else:
            return self._refused(text)
        return self._reply(text, valid=True)

    def _refused(self, text: str) -> Reply:
        return self._reply(text, valid=False)

    def _reply(self, action: str, *, valid: bool) -> Reply:
        done = valid and self._kind == "done"
        before, now = self._before(action), self._page
        reward = self.parts.reward if done and self.parts else 0.0
        return Reply(self._observation(" [SEP] ".join((*before, now))), reward, done=done, valid=valid)

    def _before(self, action: str) -> list[str]:
        """The earlier observations and actions that stand in front, oldest first."""
        num_obs, num_actions = self._settings.num_prev_obs, self._settings.num_prev_actions
        if not (num_obs or num_actions):
            return []
        self._past.append((self._shown, action))
        before: list[str] = []
        for back, (observation, past_action) in enumerate(reversed(self._past), start=1):
            before += [past_action] if back <= num_actions else []
            before += [observation] if back <= num_obs else []
        return before[::-1]

    def _observation(self, text: str) -> Observation:
        self._shown = self._page
        listed = ("search[query]",) if self._kind == "index" else tuple([f"click[{x}]" for x in self.clickables])
        return Observation(text, self._state_key(), listed)

    def _state_key(self) -> str:
        visited = sorted(self._visited) if self._settings.mode == "text_rich" else []
        words = "+".join(self._words)
        state = (self._goal_index, self._kind, words, self._number, self._asin, self._sub, sorted(self._options.items()), visited)
        return hashlib.blake2b(repr(state).encode(errors="surrogatepass"), digest_size=8).hexdigest()

    # -- transitions ----------------------------------------------------------------------------------------------------------

    def _reset(self) -> None:
        self._words: list[str] = []
        self._hits: tuple[Product, ...] = ()
        self._number = 0
        self._visited.clear()
        self._enter("index")

    def _enter(self, kind: PageKind) -> None:
        """Goes to a page that shows no product."""
        self._kind: PageKind = kind
        self._asin = ""
        self._sub = ""
        self._options: dict[str, str] = {}
        self._page = self._render(pages.index_page(self._goal.instruction)) if kind == "index" else self._page
        self.clickables = ("search",) if kind == "index" else ()

    def _search(self, words: str) -> None:
        self._words = words.split(" ")
        self._hits = self._store.search(words)
        self._show_results(1)

    def _click(self, name: str) -> None:
        believed = self._believed()
        if name == "buy now":
            self._buy()
        elif name == "back to search":
            self._reset()
        elif name in ("next >", "< prev") and believed == "results":
            self._show_results(self._number + (1 if name == "next >" else -1))
        elif name == "< prev" and believed == "item":
            self._show_results(self._number)
        elif name in _SUB_PAGE_NAMES:
            self._show_sub_page(name)
        else:
            if self._kind == "results":
                self._asin = name.upper()
                self._visited.add(self._asin)
            elif (option := self._option_of(name)) is not None:
                self._options[option] = name
            self._show_item()

    def _believed(self) -> PageKind:
        """The kind of page that the original takes this one for, as its URL holds the search words."""
        words = "+".join(self._words)
        if self._kind in ("item", "sub") and "search_results" in words:
            return "results"
        if self._kind == "sub" and "item_page" in words:
            return "item"
        return self._kind

    def _option_of(self, value: str) -> str | None:
        """The option that a value belongs to (the last one, where several have it)."""
        options = self._store.products[self._asin].options if self._kind == "item" else {}
        return next((name for name, values in reversed(list(options.items())) if value in values), None)

    def _show_results(self, number: int) -> None:
        self._enter("results")
        self._number = number
        self._page = self._render(pages.results_page(self._goal.instruction, self._hits, number, frozenset(self._visited)))
        links = (product.asin.lower() for product in pages.shown(self._hits, number))
        self.clickables = _distinct("back to search", *(["< prev"] if number > 1 else []), "next >", *links)

    def _show_item(self) -> None:
        self._kind, self._sub = "item", ""
        product = self._store.products[self._asin]
        url = f"{'+'.join(self._words)}/{self._number}/{json.dumps(self._options)}"
        self._page = self._render(pages.item_page(self._goal.instruction, product, lambda value: f'"{value}"' in url, self._sub_pages))
        values = (value for values in product.options.values() for value in values)
        buttons = (name.lower() for name in self._sub_pages)
        self.clickables = _distinct("back to search", "< prev", *buttons, "buy now", *values)

    def _show_sub_page(self, name: str) -> None:
        self._kind, self._sub = "sub", name
        self._page = self._render(pages.sub_page(self._goal.instruction, self._store.products[self._asin], name))
        self.clickables = ("back to search", "< prev")

    def _buy(self) -> None:
        asin, options = self._asin, self._options
        purchase = self._store.purchase(asin, options)
        self.parts = compat_reward(self._store.target(self._goal), purchase, self._settings.colours)
        self._enter("done")
        self._asin, self._options = asin, options
        self._page = self._render(pages.done_page(asin, options, self.parts.reward))


def _distinct(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
