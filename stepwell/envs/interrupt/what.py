"""What may happen in the middle of an episode, and what a domain must tell for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np

from stepwell.errors import ConfigError, nearest
from stepwell.types import JSON, Action, Invalid, Observation, Reply, Task, Tool

__all__ = ["ANYWHERE", "EPS", "Change", "Event", "Events", "Lasts", "Outcome", "Plan", "Told", "World"]

ANYWHERE = ("tool_error", "stale_page")
"""Kinds that can happen in any domain; they pass."""
Told = Literal["explicit", "implicit", "mixed"]
Lasts = Literal["transient", "permanent", "mixed"]
Shared = Literal["task", "member"]
EPS = 1e-6

Change = Mapping[str, JSON]
"""What an event changes, in the domain's own terms."""


@runtime_checkable
class World(Protocol):
    """An environment in which things can change: an `Environment` that a domain's `Events` has opened."""

    @property
    def tools(self) -> Sequence[Tool]: ...
    def start(self) -> Observation: ...
    def step(self, action: Action | Invalid) -> Reply: ...
    def happened(self) -> frozenset[str]:
        """What the last step has done, by the names in `Events.triggers`."""
        ...

    def apply(self, event: Event) -> None: ...
    def undo(self, event: Event) -> None: ...
    def announce(self, event: Event, *, over: bool) -> str:
        """What the user or the world says of an event that happens, or is over."""
        ...

    def loses(self, action: Action | Invalid) -> bool:
        """Whether this action would be in vain at present, for a fault that passes."""
        ...

    def best(self) -> float:
        """The best reward that can still be reached, once all that passes has passed."""
        ...

    def plan(self) -> Sequence[Action] | None:
        """Actions from here that earn `best`, in the world as it is now; None where there are none at present."""
        ...

    def wait(self) -> Action:
        """An action that does no harm."""
        ...

    def twin(self) -> World:
        """The same world; what happens in one does not happen in the other."""
        ...

    def look(self, text: str) -> Observation:
        """This text, shown in the present state."""
        ...


class Events(Protocol):
    """What can happen in a domain, beside failing tools."""

    @property
    def kinds(self) -> Mapping[str, frozenset[str]]:
        """Kind -> of `transient`, `permanent`, `explicit` and `implicit`, those that it can be."""
        ...

    @property
    def triggers(self) -> tuple[str, ...]:
        """What an event can wait for, beside the first use of a tool."""
        ...

    def draw(self, kind: str, task: Task, rng: np.random.Generator) -> Change | None:
        """A change of this kind that concerns this task; None where there is none."""
        ...

    def world(self, task: Task, member: int) -> World: ...


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happens.

    Attributes:
        kind: Its kind.
        change: What it changes.
        step: After how many steps it happens; None waits for `when`.
        when: What it waits for.
        explicit: Whether it is announced.
        lasts: Steps until it is over; None stays.
    """

    kind: str
    change: Change
    step: int | None
    when: str
    explicit: bool
    lasts: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What may happen, and how often.

    Attributes:
        kinds: Of `ANYWHERE`, and of the domain's events; one is drawn for each event of a task, of those that are possible there.
        share: Of the tasks (or members) with an event.
        number: Events of an episode, at most.
        at: When: after so many steps (whole numbers from 1), at a fraction of the expert's path (between 0 and 1), or what it waits for
            (the name of a tool, or one of the domain's triggers). One is drawn for each event.
        told: Whether events are announced; `mixed` draws. What the user revises is always said.
        lasts: Whether events stay; `mixed` draws. Failing tools, empty results and stale pages pass; revisions and restocks stay.
        steps: How long what passes lasts.
        shared: Whether the members of a group share what happens.
        splits: Tasks of these splits are interrupted; all others are as they are without.
        solvable: An event after which less than this can be reached does not happen. Above 0.
        seed: Of the draws.

    Raises (when built):
        ConfigError: A value out of range.
    """

    kinds: tuple[str, ...]
    share: float = 1.0
    number: int = 1
    at: tuple[float | int | str, ...] = (0.2, 0.4, 0.6, 0.8)
    told: Told = "mixed"
    lasts: Lasts = "mixed"
    steps: int = 2
    shared: Shared = "task"
    splits: tuple[str, ...] = ("train", "validation", "test")
    solvable: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, known in (("told", self.told, Told), ("lasts", self.lasts, Lasts), ("shared", self.shared, Shared)):
            if value not in get_args(known):
                raise ConfigError(f"interruptions.{name} is {value!r}; {nearest(value, get_args(known))}.")
        if not 0.0 <= self.share <= 1.0:
            raise ConfigError(f"interruptions.share is {self.share}; a share lies in [0, 1].")
        if not 0.0 < self.solvable <= 1.0:
            raise ConfigError(
                f"interruptions.solvable is {self.solvable}; allowed is above 0 to 1: where nothing can be reached, nothing can be learnt."
            )
        if self.number < 1 or self.steps < 1:
            raise ConfigError(f"interruptions.number is {self.number} and steps {self.steps}; both are at least 1.")
        if not self.at:
            raise ConfigError("interruptions.at is empty; say when something happens, such as [0.5], [3] or ['search'].")
        for when in self.at:
            if (isinstance(when, int) and when < 1) or (isinstance(when, float) and not 0.0 < when < 1.0):
                raise ConfigError(
                    f"interruptions.at holds {when!r}; allowed are fractions between 0 and 1, whole numbers of steps from 1, and names."
                )


class Outcome(NamedTuple):
    """What came of an interrupted episode.

    Attributes:
        reward: Earned.
        best: What could still be reached right after the last event; None where nothing happened, or nobody can tell.
        events: Kinds of what happened, in order.
    """

    reward: float
    best: float | None
    events: tuple[str, ...]

    @property
    def regret(self) -> float:
        """What was left lying after the last event: `best - reward`, 0 where nothing happened."""
        return 0.0 if self.best is None else self.best - self.reward
