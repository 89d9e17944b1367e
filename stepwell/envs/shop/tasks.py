"""Tasks of the generated shop: what makes them hard, and how they are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from itertools import product as product_of

import numpy as np

from stepwell.envs.shop.catalogue import Catalogue, Product
from stepwell.envs.shop.expert import plan
from stepwell.envs.shop.goal import Goal
from stepwell.envs.shop.store import Store
from stepwell.envs.shop.words import SYNONYMS
from stepwell.errors import ConfigError, nearest
from stepwell.seeding import derive, generator
from stepwell.types import Task

__all__ = ["SPLITS", "Axes", "Maker", "axes", "instruction"]

SPLITS = {"test": range(0, 2), "validation": range(2, 3), "train": range(3, 10)}
"""Tenths of the products, and of the (type, attributes) pairs, that each split may ask for."""
MAX_ATTRIBUTES = 3
MAX_STEPS = 10
"""No task needs more of the expert's actions."""
_TRIES = 24
_OPTION_CHOICES = 6


@dataclass(frozen=True, slots=True)
class Axes:
    """What makes one task hard.

    Attributes:
        num_attributes: Asked for, 1 to 3 (and the brand, where the catalogue has brands).
        num_options: Asked for, 0 to 2.
        lookalikes: Wrong products that one must open and leave, 0 to 2: they look right in the results and lack something.
        has_limit: The price must be under a limit.
        hidden: One of the attributes stands on the product's page only.
        wording: 0: every word stands beside its label, in the order of the search; 1: free order, no labels; 2: synonyms as well.
    """

    num_attributes: int
    num_options: int
    lookalikes: int
    has_limit: bool
    hidden: bool
    wording: int


def axes(difficulty: float, rng: np.random.Generator) -> Axes:
    """Axes of a task; the expectation of each one grows with difficulty."""

    def level(at_0: float, at_1: float) -> int:
        return int(at_0 + (at_1 - at_0) * difficulty + rng.random())

    return Axes(
        num_attributes=min(level(1.4, 3.0), MAX_ATTRIBUTES),
        num_options=min(level(0.6, 2.0), 2),
        lookalikes=max(level(-0.2, 2.0), 0),
        has_limit=bool(level(-0.1, 0.9)),
        hidden=bool(level(-0.3, 0.5)),
        wording=min(max(level(-0.8, 2.0), 0), 2),
    )


class Maker:
    """Draws tasks in a store; the same (difficulty, seed, split) gives the same task."""

    def __init__(self, store: Store) -> None:
        self._store = store
        catalogue = store.catalogue
        self._fold_P = generator("shop folds", catalogue.seed, len(catalogue)).integers(10, size=len(catalogue)).astype(np.int8)
        self._products = {split: np.flatnonzero(np.isin(self._fold_P, list(folds))) for split, folds in SPLITS.items()}

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        """One task.

        Raises:
            ConfigError: Unknown split, or difficulty outside [0, 1].
        """
        if split not in SPLITS:
            raise ConfigError(f"The shop has no split {split!r}; {nearest(split, SPLITS)}.")
        if not 0.0 <= difficulty <= 1.0:
            raise ConfigError(f"The difficulty is {difficulty}; it lies in [0, 1].")
        catalogue = self._store.catalogue
        name = (catalogue.seed, len(catalogue), split, repr(float(difficulty)), seed)
        rng = generator("shop task", *name)
        wanted = axes(difficulty, rng)
        goal = self._goal(wanted, split, rng)
        return Task(
            key="shop/" + "/".join(str(part) for part in name),
            prompt=instruction(goal, wanted.wording, rng),
            difficulty=float(difficulty),
            split=split,
            payload=goal.payload(),
        )

    def _goal(self, wanted: Axes, split: str, rng: np.random.Generator) -> Goal:
        """Of some draws, the first with the wanted number of lookalikes, else the nearest."""
        best: tuple[int, Goal] | None = None
        for tries in count():
            for goal in self._draw(wanted, split, rng):
                done = plan(goal, self._store)
                if done is None or len(done.actions) > MAX_STEPS:
                    continue
                distance = abs(done.num_lookalikes - wanted.lookalikes)
                if distance == 0:
                    return goal
                if best is None or distance < best[0]:
                    best = (distance, goal)
            if best is not None and tries >= _TRIES:
                return best[1]
            if tries >= 100 * _TRIES:
                break
        size = len(self._store.catalogue)
        raise ConfigError(f"The shop of {size} products has no task of split {split!r} with {wanted}; use more products.")

    def _draw(self, wanted: Axes, split: str, rng: np.random.Generator) -> list[Goal]:
        """Goals around a random product of the split that differ in their options; none where this product cannot carry any."""
        catalogue = self._store.catalogue
        target = int(rng.choice(self._products[split]))
        product = self._store.product(target)
        attributes = _attributes(wanted, product, bool(catalogue.num_brands), rng)
        if product.stock == 0 or len(product.options) < wanted.num_options or not _in_split(catalogue, product, attributes, split):
            return []
        limit = 10 * (product.price // 10 + 1 + int(rng.integers(2))) if wanted.has_limit else None
        query = (product.type, *attributes) if wanted.wording else (*attributes, product.type)
        return [
            Goal(product.type, product.department, attributes, options, limit, query, target)
            for options in _options(wanted.num_options, product, rng)
        ]


def _options(number: int, product: Product, rng: np.random.Generator) -> list[tuple[tuple[str, str], ...]]:
    """Some choices of `number` options that the product offers, in random order."""
    slots = [product.options[i] for i in sorted(rng.permutation(len(product.options))[:number].tolist())]
    choices = list(product_of(*([(name, value) for value in values] for name, values in slots)))
    return [choices[i] for i in rng.permutation(len(choices))[:_OPTION_CHOICES].tolist()]


def _attributes(wanted: Axes, product: Product, branded: bool, rng: np.random.Generator) -> tuple[str, ...]:
    """Which of the product's attributes are asked for, in the order of its title, hidden ones last."""
    first = product.shown[:1] if branded else ()
    rest = product.shown[len(first) :]
    hidden = product.hidden[: int(wanted.hidden)]
    count = min(wanted.num_attributes - len(hidden), len(rest))
    chosen = sorted(rng.permutation(len(rest))[:count].tolist())
    return (*first, *(rest[i] for i in chosen), *hidden)


def _in_split(catalogue: Catalogue, product: Product, attributes: tuple[str, ...], split: str) -> bool:
    """Whether this split may ask for this type with these attributes: no instruction of one split asks for what another's does."""
    return derive("shop pair", catalogue.seed, product.type, *sorted(attributes)) % 10 in SPLITS[split]


def instruction(goal: Goal, wording: int, rng: np.random.Generator) -> str:
    """The goal in short words.

    Args:
        goal: What is wanted.
        wording: See `Axes.wording`.
        rng: Chooses among the forms of free wording.
    """
    attributes = [SYNONYMS.get(word, word) for word in goal.attributes] if wording >= 2 else list(goal.attributes)
    values = [value for _, value in goal.options]
    if wording == 0:
        details = [f"{name} {value}" for name, value in goal.options]
        details += [] if goal.limit is None else [f"price under {goal.limit}"]
        return " ".join(["find", *attributes, goal.type, *(["with", " and ".join(details)] if details else [])])
    if rng.random() < 0.5:
        limit = [] if goal.limit is None else ["for", "less", "than", str(goal.limit), "dollars"]
        choice = ["in", " and ".join(values)] if values else []
        return " ".join(["i", "want", "a", goal.type, "that", "is", " and ".join(attributes), *choice, *limit])
    limit = [] if goal.limit is None else ["below", str(goal.limit), "dollars"]
    return " ".join(["need", *values, goal.type, *limit, "which", "is", *attributes])
