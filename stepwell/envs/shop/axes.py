"""What makes a task of the generated shop hard: drawn by difficulty, or set one by one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np

from stepwell.errors import ConfigError, nearest

__all__ = ["FREE", "Axes", "Budget", "FixedAxes", "Wording", "axes"]

MAX_ATTRIBUTES = 3
MAX_OPTIONS = 2
MAX_DISTRACTORS = 3
MAX_STEPS = 10
"""No task needs more of the expert's actions."""
MIN_STEPS = 3

Wording = Literal["verbatim", "paraphrased", "synonyms"]
"""How an instruction speaks: in order and with labels; in free order without labels; with other words for attributes as well."""
Budget = Literal["none", "stated", "missing"]
"""No price limit; one that the instruction states; or one that it keeps to itself: whoever buys the cheapest that fits is under it."""
_WORDINGS: tuple[Wording, ...] = get_args(Wording)
_BUDGETS: tuple[Budget, ...] = get_args(Budget)


@dataclass(frozen=True, slots=True)
class Axes:
    """What makes one task hard.

    Attributes:
        num_attributes: Asked for, 1 to 3 (and the brand, where the catalogue has brands).
        num_options: Asked for, 0 to 2.
        lookalikes: Wrong products that one must open and leave, 0 to 3: they look right in the results and lack something.
        has_limit: The price must be under a limit.
        hidden: One of the attributes stands on the product's page only.
        wording: 0: every word stands beside its label, in the order of the search; 1: free order, no labels; 2: synonyms as well.
        names: Whether options are asked for by name and value ("color red") or by value alone; None is as the wording has it.
        states_limit: Whether the instruction says the limit.
        steps: Fewest and most of the expert's actions.
    """

    num_attributes: int
    num_options: int
    lookalikes: int
    has_limit: bool
    hidden: bool
    wording: int
    names: bool | None = None
    states_limit: bool = True
    steps: tuple[int, int] = (0, MAX_STEPS)


@dataclass(frozen=True, slots=True)
class FixedAxes:
    """Axes that every task of a shop has, whatever its difficulty; None is drawn by difficulty, and changes no other axis.

    The size of the catalogue is the shop's own setting.

    Attributes:
        attributes: Asked for, 1 to 3.
        options: Asked for, 0 to 2.
        distractors: Products to open and leave, 0 to 3, where the catalogue has them; else the nearest number that it has.
        wording: `verbatim`, `paraphrased` or `synonyms`.
        option_names: Whether options are asked for by name.
        budget: `none`, `stated` or `missing`.
        hidden: Whether one attribute stands on the product's page only.
        steps: Fewest and most of the expert's actions, within [3, 10].

    Raises (when built):
        ConfigError: A value out of range.
    """

    attributes: int | None = None
    options: int | None = None
    distractors: int | None = None
    wording: Wording | None = None
    option_names: bool | None = None
    budget: Budget | None = None
    hidden: bool | None = None
    steps: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        ranges = {
            "attributes": (self.attributes, 1, MAX_ATTRIBUTES),
            "options": (self.options, 0, MAX_OPTIONS),
            "distractors": (self.distractors, 0, MAX_DISTRACTORS),
        }
        for name, (value, low, high) in ranges.items():
            if value is not None and not low <= value <= high:
                raise ConfigError(f"axes.{name} is {value}; allowed is {low} to {high}, or nothing, which leaves it to the difficulty.")
        for name, word, known in (("wording", self.wording, _WORDINGS), ("budget", self.budget, _BUDGETS)):
            if word is not None and word not in known:
                raise ConfigError(f"axes.{name} is {word!r}; {nearest(word, known)}.")
        if self.steps is not None and not MIN_STEPS <= self.steps[0] <= self.steps[1] <= MAX_STEPS:
            raise ConfigError(f"axes.steps is {list(self.steps)}; allowed is [low, high] with {MIN_STEPS} <= low <= high <= {MAX_STEPS}.")

    @property
    def key(self) -> str:
        """What is set, as part of a task's key; "" where nothing is."""
        return ",".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self) if getattr(self, field.name) is not None)

    def over(self, drawn: Axes) -> Axes:
        """The drawn axes, those that are set in place of theirs."""
        budget = self.budget
        return Axes(
            num_attributes=drawn.num_attributes if self.attributes is None else self.attributes,
            num_options=drawn.num_options if self.options is None else self.options,
            lookalikes=drawn.lookalikes if self.distractors is None else self.distractors,
            has_limit=drawn.has_limit if budget is None else budget != "none",
            hidden=drawn.hidden if self.hidden is None else self.hidden,
            wording=drawn.wording if self.wording is None else _WORDINGS.index(self.wording),
            names=self.option_names,
            states_limit=budget != "missing",
            steps=drawn.steps if self.steps is None else self.steps,
        )


FREE = FixedAxes()
"""Nothing is set: all axes are drawn by difficulty."""


def axes(difficulty: float, rng: np.random.Generator, fixed: FixedAxes = FREE) -> Axes:
    """Axes of a task; the expectation of each one that is not fixed grows with difficulty."""

    def level(at_0: float, at_1: float) -> int:
        return int(at_0 + (at_1 - at_0) * difficulty + rng.random())

    drawn = Axes(
        num_attributes=min(level(1.4, 3.0), MAX_ATTRIBUTES),
        num_options=min(level(0.6, 2.0), 2),
        lookalikes=max(level(-0.2, 2.0), 0),
        has_limit=bool(level(-0.1, 0.9)),
        hidden=bool(level(-0.3, 0.5)),
        wording=min(max(level(-0.8, 2.0), 0), 2),
    )
    return fixed.over(drawn)
