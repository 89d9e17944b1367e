"""The shop as an environment: search, filter, click, buy; short pages of plain words."""

from __future__ import annotations

import re
from copy import copy

from stepwell.envs.shop.catalogue import Product
from stepwell.envs.shop.expert import steps_after_opening, steps_by_new_results
from stepwell.envs.shop.goal import Goal
from stepwell.envs.shop.oracle import best_purchase
from stepwell.envs.shop.store import NO_FILTERS, PAGE_SIZE, Filters, Shelves
from stepwell.envs.shop.words import OPTION_VALUES
from stepwell.errors import EnvironmentFault
from stepwell.types import Action, Invalid, Observation, Reply, Task, Tool

__all__ = ["TOOLS", "Shop", "tool"]

MAX_QUERY_WORDS = 32


def tool(name: str, description: str, **arguments: str) -> Tool:
    """A tool whose arguments are texts."""
    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    return Tool(name, description, {"type": "object", "properties": properties, "required": list(arguments), "additionalProperties": False})


TOOLS: tuple[Tool, ...] = (
    tool("search", "Search the shop for products.", query="words that describe the product"),
    tool(
        "click",
        "Open a result (p1 to p4), choose an option on a product's page (color blue), or turn pages (next, back).",
        element="p1, p2, p3, p4, next, back, or an option as name and value",
    ),
    tool("filter", "Keep only results that satisfy a constraint.", constraint="price under a number, an option as name and value, or none"),
    tool("buy", "Buy the open product with the chosen options. This ends the episode."),
)
_ARGUMENT = {one.name: one.arguments for one in TOOLS}
_WORD = re.compile(r"[a-z0-9]+")
_SLOTS = {f"p{slot + 1}": slot for slot in range(PAGE_SIZE)}
_NAME_OF = {value: name for name, values in OPTION_VALUES.items() for value in values}


class Shop:
    """One visit to the shop.

    Pages: the start (the instruction), results (4 a page), a product's page. `search` and `filter` are accepted everywhere; slots and
    `next` on a page of results; options and `buy` on a product's page; `back` leads from a product to its results, from a later page
    of results to the one before. Choosing a second value of an option replaces the first; leaving a product's page forgets the choice.
    The instruction is shown once, at the start. An action without meaning changes nothing and is answered in a few words with
    `valid=False`. The only reward is that of the purchase (`Goal.grade`), which ends the visit.
    """

    def __init__(self, task: Task, store: Shelves) -> None:
        self._task = task
        self._store = store
        self._goal = Goal.of(task)
        self._query: tuple[str, ...] = ()
        self._filters = NO_FILTERS
        self._found: tuple[int, ...] = ()
        self._page = 0
        self._open: int | None = None
        self._chosen: dict[str, str] = {}
        self._reward: float | None = None
        self._steps_at_start: int | None = None

    @property
    def tools(self) -> tuple[Tool, ...]:
        return TOOLS

    @property
    def goal(self) -> Goal:
        """What is wanted."""
        return self._goal

    @property
    def store(self) -> Shelves:
        """What the pages are made of."""
        return self._store

    @property
    def opened(self) -> int | None:
        """The product whose page is open."""
        return self._open

    @property
    def chosen(self) -> dict[str, str]:
        """Option's name -> value, of what is chosen on that page."""
        return dict(self._chosen)

    @property
    def query(self) -> tuple[str, ...]:
        """The words last searched for."""
        return self._query

    @property
    def found(self) -> tuple[int, ...]:
        """The present results, best first."""
        return self._found

    @property
    def listed(self) -> frozenset[int]:
        """Products on the present pages: the results, and what is open."""
        return frozenset(self._found) | (frozenset() if self._open is None else {self._open})

    @property
    def page(self) -> int:
        """Which page of them is shown, or was when a product was opened."""
        return self._page

    @property
    def filters(self) -> Filters:
        """What results must satisfy."""
        return self._filters

    def start(self) -> Observation:
        return self.observe(self._task.prompt)

    def step(self, action: Action | Invalid) -> Reply:
        """Carries out one action.

        Raises:
            EnvironmentFault: The episode is over.
        """
        if self._reward is not None:
            raise EnvironmentFault("The product is bought and the episode over; take a new environment for a new episode.")
        if isinstance(action, Invalid):
            return self._refuse("no action")
        if action.name not in _ARGUMENT:
            return self._refuse("no such action")
        if tuple(action.arguments) != _ARGUMENT[action.name]:
            return self._refuse(f"{action.name} takes {' '.join(_ARGUMENT[action.name]) or 'nothing'}")
        if action.name == "buy":
            return self._buy()
        words = tuple(_WORD.findall(action.arguments[_ARGUMENT[action.name][0]].lower()))
        if action.name == "search":
            return self._search(words)
        if action.name == "filter":
            return self._filter(words)
        return self._click(words)

    def best(self, store: Shelves | None = None) -> float:
        """The best reward that can still be reached from here, exactly: that of the best product that a search finds or a page lists.

        Nothing is lost before the purchase, so this does not depend on what was done, but for products that pages still list.

        Args:
            store: What the shop will be like; None is as it is now.
        """
        if self._reward is not None:
            return self._reward
        offer = best_purchase(self._goal, store or self._store, self.listed)
        return 0.0 if offer is None else offer.reward

    def revise(self, goal: Goal) -> None:
        """The user wants something else."""
        self._goal = goal

    def twin(self, store: Shelves) -> Shop:
        """The same visit, over shelves of its own: what happens in one does not happen in the other."""
        made = copy(self)
        made._store = store
        return made

    def potential(self) -> float:
        """How far the visit has come, in [0, 1]: 0 at the start; after a purchase its reward.

        ```
        1 - (actions to go) / (actions to go at the start)
        ```

        Actions to go are the fewest of one who knows the catalogue, and searches with the goal's query, filters by the goal's limit or
        not at all, turns pages, opens, chooses and buys. What leads away from the goal lowers it; it is cut off at 0, and is 0 where
        nothing acceptable is to be had any more.
        """
        if self._reward is not None:
            return self._reward
        if self._steps_at_start is None:
            self._steps_at_start = steps_by_new_results(self._goal, self._store, (), NO_FILTERS) or 1
        steps = self._steps_to_go()
        return 0.0 if steps is None else max(0.0, 1.0 - steps / self._steps_at_start)

    def _steps_to_go(self) -> int | None:
        goal, store = self._goal, self._store
        anew = steps_by_new_results(goal, store, self._query, self._filters)
        back = 0
        if self._open is not None:
            if goal.accepts(store.product(self._open)):
                return sum(self._chosen.get(name) != value for name, value in goal.options) + 1
            back = 1
        pages = {rank // PAGE_SIZE for rank, index in enumerate(self._found) if goal.accepts(store.product(index))}
        ways = [back + abs(page - self._page) + 1 + steps_after_opening(goal) for page in pages]
        return min([*ways, *([] if anew is None else [anew])], default=None)

    # -- actions ----------------------------------------------------------------------------------------------------------------

    def _search(self, words: tuple[str, ...]) -> Reply:
        if not words:
            return self._refuse("search needs words")
        if len(words) > MAX_QUERY_WORDS:
            return self._refuse("too many words")
        self._query = words
        return self._list()

    def _filter(self, words: tuple[str, ...]) -> Reply:
        if words == ("none",):
            self._filters = NO_FILTERS
        elif len(words) == 3 and words[:2] == ("price", "under") and words[2].isdecimal() and len(words[2]) <= 9:
            self._filters = self._filters._replace(under=int(words[2]))
        elif len(words) == 2 and _NAME_OF.get(words[1]) == words[0]:
            options = {**dict(self._filters.options), words[0]: words[1]}
            self._filters = self._filters._replace(options=tuple(sorted(options.items())))
        else:
            return self._refuse("no such filter")
        if self._query:
            return self._list()
        return Reply(self.observe(f"filter {self._filters}" if self._filters != NO_FILTERS else "filter none"))

    def _list(self) -> Reply:
        self._found = self._store.search(self._query, self._filters)
        self._page = 0
        self._open = None
        self._chosen = {}
        return self._show_results()

    def _click(self, words: tuple[str, ...]) -> Reply:
        if words == ("next",):
            return self._turn(1)
        if words == ("back",):
            return self._turn(-1)
        if len(words) == 1 and words[0] in _SLOTS:
            place = self._page * PAGE_SIZE + _SLOTS[words[0]]
            if self._open is not None or place >= len(self._found):
                return self._refuse(f"no {words[0]} here")
            self._open = self._found[place]
            return Reply(self.observe(self._store.product_text(self._open)))
        if len(words) == 1 and words[0] in _NAME_OF:
            words = (_NAME_OF[words[0]], words[0])
        if len(words) != 2 or _NAME_OF.get(words[1]) != words[0]:
            return self._refuse("no such element")
        return self._choose(*words)

    def _turn(self, by: int) -> Reply:
        if by < 0 and self._open is not None:
            self._open = None
            self._chosen = {}
            return self._show_results()
        page = self._page + by
        if self._open is not None or page < 0 or page * PAGE_SIZE >= len(self._found):
            return self._refuse("no next here" if by > 0 else "no back here")
        self._page = page
        return self._show_results()

    def _choose(self, name: str, value: str) -> Reply:
        product = self._opened()
        if product is None:
            return self._refuse("open a product first")
        if (name, value) in product.sold_out:
            return self._refuse(f"sold out {name} {value}")
        if not product.offers(name, value):
            return self._refuse(f"no {name} {value} here")
        self._chosen = {**self._chosen, name: value}
        return Reply(self.observe("chosen " + " ".join(f"{n} {v}" for n, v in self._chosen.items())))

    def _buy(self) -> Reply:
        product = self._opened()
        if product is None:
            return self._refuse("open a product first")
        if not product.stock:
            return self._refuse("sold out")
        self._reward = self._goal.grade(product, self._chosen).reward
        return Reply(self.observe("bought"), reward=self._reward, done=True)

    # -- what is shown ----------------------------------------------------------------------------------------------------------

    def _opened(self) -> Product | None:
        return None if self._open is None else self._store.product(self._open)

    def _show_results(self) -> Reply:
        return Reply(self.observe(self._store.results_text(self._found, self._page)))

    def _refuse(self, text: str) -> Reply:
        return Reply(self.observe(text), valid=False)

    def observe(self, text: str) -> Observation:
        """This text, shown in the present state."""
        return Observation(text, self._state_key(), self._admissible())

    def _state_key(self) -> str:
        chosen = " ".join(sorted(self._chosen.values()))
        product = "" if self._open is None else str(self._open)
        done = "" if self._reward is None else "bought"
        return f"{self._task.key}|{' '.join(self._query)}|{self._filters}|{self._page}|{product}|{chosen}|{done}"

    def _admissible(self) -> tuple[str, ...]:
        """All clicks and purchases that would be accepted; `search` and `filter` take free text and always are."""
        if self._reward is not None:
            return ()
        product = self._opened()
        if product is not None:
            options = [f"click[{name} {value}]" for name, values in product.options for value in values]
            return ("click[back]", *options, *(("buy[]",) if product.stock else ()))
        here = len(self._found) - self._page * PAGE_SIZE
        clicks = [f"click[p{slot}]" for slot in range(1, min(here, PAGE_SIZE) + 1)]
        clicks += ["click[next]"] if here > PAGE_SIZE else []
        clicks += ["click[back]"] if self._page else []
        return tuple(clicks)
