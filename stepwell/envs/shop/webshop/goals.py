"""What customers want: goals in the original order, with seeded prices and price limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product as combinations
from pathlib import Path
from random import Random

from stepwell.envs.shop.webshop.catalogue import Product
from stepwell.envs.shop.webshop.files import read_json
from stepwell.errors import DataError
from stepwell.types import JSON

__all__ = ["NO_LIMIT", "Goal", "draw_prices", "human_goals", "synthetic_goals"]

NO_LIMIT = 1_000_000.0
_LIMITS = [float(limit) for limit in range(10, 1000, 10)]
_SHUFFLE_SEED = 233
"""Of the original: it fixes the order of goals, so that goal 17 is the same goal everywhere."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What one customer wants.

    Attributes:
        asin: The product that the goal was made from.
        instruction: What the customer says.
        options: (name, value) pairs; the name is "" in goals written by people, who give bare values.
        price_upper: The most that may be paid; `NO_LIMIT` where the text names none.
        weight: How often a draw by weight should take it (rare attributes more often).
    """

    asin: str
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    price_upper: float
    weight: float


def draw_prices(products: Sequence[Product], random: Random) -> dict[str, float]:
    """asin -> actual price: the tag's number, or a uniform draw from its range; drawn in catalogue order."""
    return {p.asin: p.prices[0] if len(p.prices) == 1 else random.uniform(*p.prices) for p in products}


def synthetic_goals(products: Sequence[Product], prices: Mapping[str, float], random: Random) -> tuple[Goal, ...]:
    """One goal for every combination of option values of every product with an instruction, in the original's shuffled order.

    Args:
        random: Goes on from `draw_prices`: one price limit for each product, in catalogue order.
    """
    goals: list[Goal] = []
    for product in products:
        if not product.instruction:
            continue
        limit, text = _limit(prices[product.asin], random)
        names = sorted(product.options)
        for values in combinations(*(product.options[name] for name in names)):
            options = tuple(zip(names, values, strict=True))
            choice = ", and ".join(f"{name}: {value}" for name, value in options)
            said = f"{product.instruction}{' with ' if choice else ''}{choice}{text}"
            goals.append(Goal(product.asin, said, product.wanted, options, limit, 1.0))
    return _shuffled(_weighted(goals))


def human_goals(products: Sequence[Product], prices: Mapping[str, float], random: Random, path: Path) -> tuple[Goal, ...]:
    """The goals that people wrote (`items_human_ins*.json`), in the original's shuffled order; each has its own price limit."""
    notes = read_json(path)
    if not isinstance(notes, Mapping):
        raise DataError(f"{path} must hold a JSON object from asin to a list of instructions, got {type(notes).__name__}.")
    goals: list[Goal] = []
    for product in products:
        written = notes.get(product.asin, ())
        for note in written if isinstance(written, list) else ():
            if isinstance(note, Mapping) and (wanted := _texts(note, "instruction_attributes")):
                limit, text = _limit(prices[product.asin], random)
                said = note.get("instruction")
                if not isinstance(said, str):
                    raise DataError(f"{path}, product {product.asin}: an instruction is {said!r}; it must be a text.")
                options = tuple(("", value) for value in _texts(note, "instruction_options"))
                goals.append(Goal(product.asin, said.strip(".") + text, wanted, options, limit, 1.0))
    return _shuffled(goals)


def _texts(note: Mapping[str, JSON], key: str) -> tuple[str, ...]:
    value = note.get(key)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _limit(price: float, random: Random) -> tuple[float, str]:
    """A price limit above the price, and how the instruction says it: the larger of two of the next four tens."""
    above = [limit for limit in _LIMITS if limit > price][:4]
    if len(above) < 2:
        return NO_LIMIT, ""
    limit = max(random.sample(above, 2))
    return limit, f", and price lower than {limit:.2f} dollars"


def _weighted(goals: list[Goal]) -> list[Goal]:
    count = Counter(attribute for goal in goals for attribute in goal.attributes)
    return [replace(goal, weight=sum(1.0 / count[a] for a in goal.attributes) / len(goal.attributes)) for goal in goals if goal.attributes]


def _shuffled(goals: list[Goal]) -> tuple[Goal, ...]:
    Random(_SHUFFLE_SEED).shuffle(goals)
    return tuple(goals)
