"""Players that do not learn: baselines, and the measure of a task's difficulty."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from stepwell.envs.shop.catalogue import Catalogue
from stepwell.envs.shop.store import PAGE_SIZE
from stepwell.envs.shop.words import OPTION_VALUES
from stepwell.types import Action

__all__ = ["ListPlayer", "RulePlayer", "forgetful"]

_LIMIT = re.compile(r"\b(?:under|than|below) (\d+)")
_NAME_OF = {value: name for name, values in OPTION_VALUES.items() for value in values}


class RulePlayer:
    """Searches for the words of the instruction that the shop knows, opens the first result that has them all, and never goes back.

    It filters by a price limit, chooses the option values that the instruction names, and buys. It knows no synonyms.

    Args:
        instruction: The text of the first observation.
        catalogue: For the words that the shop knows, not for its products.
        noise: Probability with which it gets each word, number and slot wrong (a stand-in for a model that copies badly).
        rng: Of the errors.
    """

    def __init__(self, instruction: str, catalogue: Catalogue, *, noise: float = 0.0, rng: np.random.Generator | None = None) -> None:
        words = instruction.split()
        self._noise = noise
        self._rng = rng if rng is not None else np.random.default_rng(0)
        known = {*catalogue.types, *catalogue.attribute_words}
        self._query = [word for word in words if word in known]
        limit = _LIMIT.search(instruction)
        self._script: list[Action] = []
        if limit:
            self._script.append(
                Action("filter", {"constraint": f"price under {self._copy(limit[1], [str(10 * i) for i in range(1, 11)])}"})
            )
        query = " ".join(self._copy(word, catalogue.attribute_words) for word in self._query)
        self._script.append(Action("search", {"query": query}))
        self._options = [f"{_NAME_OF[word]} {self._copy(word, OPTION_VALUES[_NAME_OF[word]])}" for word in words if word in _NAME_OF]

    def act(self, text: str) -> Action:
        """The next action, given the last observation's text."""
        if self._script:
            return self._script.pop(0)
        if text.startswith("p1 "):
            return Action("click", {"element": self._copy(self._slot(text), [f"p{i + 1}" for i in range(PAGE_SIZE)])})
        if self._options:
            return Action("click", {"element": self._options.pop(0)})
        return Action("buy")

    def _slot(self, text: str) -> str:
        lines = [line.split() for line in text.splitlines()]
        fits = [line[0] for line in lines if set(self._query) <= set(line) and "sold" not in line]
        return fits[0] if fits else "p1"

    def _copy(self, word: str, others: Sequence[str]) -> str:
        return str(self._rng.choice(others)) if self._rng.random() < self._noise else word


class ListPlayer:
    """Works through a shopping list with a `RulePlayer` for each item: orders the first that fits, whatever it costs, and returns nothing.

    Args: as those of `RulePlayer`.
    """

    def __init__(self, instruction: str, catalogue: Catalogue, *, noise: float = 0.0, rng: np.random.Generator | None = None) -> None:
        wishes = instruction.rpartition(" total ")[0].split(" then ")
        self._players = [RulePlayer(wish, catalogue, noise=noise, rng=rng) for wish in wishes]

    def act(self, text: str) -> Action:
        """The next action, given the last observation's text."""
        if not self._players:
            return Action("checkout")
        action = self._players[0].act(text)
        if action.name != "buy":
            return action
        self._players.pop(0)
        return Action("order")


def forgetful(actions: Sequence[Action], forgets: float, rng: np.random.Generator) -> list[Action]:
    """The expert's actions, each left out with probability `forgets`: a limited player, who fails more often the more there is to do.

    >>> forgetful([Action("buy")], 0.0, np.random.default_rng(0))
    [Action(name='buy', arguments={})]
    """
    return [action for action in actions if rng.random() >= forgets]
