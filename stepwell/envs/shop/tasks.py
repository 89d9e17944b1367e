"""Tasks of the generated shop: what makes them hard, and how they are drawn."""

from __future__ import annotations

from itertools import product as product_of

import numpy as np

from stepwell.envs.shop.axes import FREE, Axes, FixedAxes, axes
from stepwell.envs.shop.catalogue import Catalogue, Product
from stepwell.envs.shop.expert import plan
from stepwell.envs.shop.goal import Goal
from stepwell.envs.shop.store import Store
from stepwell.envs.shop.words import SYNONYMS
from stepwell.errors import ConfigError, nearest
from stepwell.seeding import derive, generator
from stepwell.types import Task

__all__ = ["SPLITS", "Axes", "FixedAxes", "Maker", "axes", "instruction"]

SPLITS = {"test": range(0, 2), "validation": range(2, 3), "train": range(3, 10)}
"""Tenths of the products, and of the (type, attributes) pairs, that each split may ask for."""
_TRIES = 24
_OPTION_CHOICES = 6


class Maker:
    """Draws tasks in a store; the same (difficulty, seed, split) gives the same task.

    Args:
        store: Where the products are.
        fixed: Axes that are not drawn by difficulty.
    """

    def __init__(self, store: Store, fixed: FixedAxes = FREE) -> None:
        self.store = store
        self._fixed = fixed
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
        catalogue = self.store.catalogue
        name = (catalogue.seed, len(catalogue), split, repr(float(difficulty)), seed)
        rng = generator("shop task", *name)
        wanted, goal = self._wish(difficulty, split, rng)
        return Task(
            key="/".join(str(part) for part in ("shop", *name, *filter(None, [self._fixed.key]))),
            prompt=instruction(goal, wanted.wording, rng, wanted.names),
            difficulty=float(difficulty),
            split=split,
            payload=goal.payload(),
        )

    def _wish(self, difficulty: float, split: str, rng: np.random.Generator) -> tuple[Axes, Goal]:
        """Axes and a goal that has them. A number of steps may not go with the other axes that were drawn: then they are drawn again."""
        wanted = axes(difficulty, rng, self._fixed)
        for _ in range(_TRIES if self._fixed.steps else 0):
            found = self._find(wanted, split, rng, _TRIES)
            if found is not None:
                return wanted, found
            wanted = axes(difficulty, rng, self._fixed)
        return wanted, self.goal(wanted, split, rng)

    def goal(self, wanted: Axes, split: str, rng: np.random.Generator) -> Goal:
        """Of some draws, the first with the wanted number of lookalikes, else the nearest.

        Raises:
            ConfigError: The catalogue has no such task.
        """
        found = self._find(wanted, split, rng, 100 * _TRIES)
        if found is None:
            size = len(self.store.catalogue)
            raise ConfigError(f"The shop of {size} products has no task of split {split!r} with {wanted}; use more products.")
        return found

    def _find(self, wanted: Axes, split: str, rng: np.random.Generator, most_tries: int) -> Goal | None:
        fewest, most = wanted.steps
        best: tuple[int, Goal] | None = None
        for tries in range(most_tries + 1):
            for goal in self._draw(wanted, split, rng):
                done = plan(goal, self.store)
                if done is None or not fewest <= len(done.actions) <= most:
                    continue
                distance = abs(done.num_lookalikes - wanted.lookalikes)
                if distance == 0:
                    return goal
                if best is None or distance < best[0]:
                    best = (distance, goal)
            if best is not None and tries >= _TRIES:
                break
        return None if best is None else best[1]

    def _draw(self, wanted: Axes, split: str, rng: np.random.Generator) -> list[Goal]:
        """Goals around a random product of the split that differ in their options; none where this product cannot carry any."""
        catalogue = self.store.catalogue
        target = int(rng.choice(self._products[split]))
        product = self.store.product(target)
        attributes = _attributes(wanted, product, bool(catalogue.num_brands), rng)
        if product.stock == 0 or len(product.options) < wanted.num_options or not _in_split(catalogue, product, attributes, split):
            return []
        limit = 10 * (product.price // 10 + 1 + int(rng.integers(2))) if wanted.has_limit else None
        query = (product.type, *attributes) if wanted.wording else (*attributes, product.type)
        return [
            Goal(product.type, product.department, attributes, options, limit, query, target, wanted.states_limit)
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


def instruction(goal: Goal, wording: int, rng: np.random.Generator, names: bool | None = None) -> str:
    """The goal in short words.

    Args:
        goal: What is wanted.
        wording: See `Axes.wording`.
        rng: Chooses among the forms of free wording.
        names: See `Axes.names`.
    """
    attributes = [SYNONYMS.get(word, word) for word in goal.attributes] if wording >= 2 else list(goal.attributes)
    by_name = wording == 0 if names is None else names
    values = [f"{name} {value}" if by_name else value for name, value in goal.options]
    said = goal.limit if goal.states_limit else None
    if wording == 0:
        details = values + ([] if said is None else [f"price under {said}"])
        return " ".join(["find", *attributes, goal.type, *(["with", " and ".join(details)] if details else [])])
    if rng.random() < 0.5:
        limit = [] if said is None else ["for", "less", "than", str(said), "dollars"]
        choice = ["in", " and ".join(values)] if values else []
        return " ".join(["i", "want", "a", goal.type, "that", "is", " and ".join(attributes), *choice, *limit])
    limit = [] if said is None else ["below", str(said), "dollars"]
    return " ".join(["need", *values, goal.type, *limit, "which", "is", *attributes])
