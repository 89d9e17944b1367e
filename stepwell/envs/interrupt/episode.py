"""One episode in which something may happen."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import cast

from stepwell.envs.interrupt.what import ANYWHERE, EPS, Event, Outcome, World
from stepwell.protocols import Environment
from stepwell.seeding import derive
from stepwell.types import Action, Invalid, Observation, Reply, Tool

__all__ = ["InterruptedEnvironment"]

_WORLDS: dict[type, bool] = {}


@dataclass(slots=True)
class _Running:
    """An event that has happened and passes."""

    event: Event
    left: int


@dataclass(slots=True)
class InterruptedEnvironment:
    """One episode in which something may happen. Equal keys still mean equal states: what is pending and what passes is part of the key.

    Attributes:
        world: What is played; a plain environment where only failing tools and stale pages happen.
        pending: What has not happened yet.
        solvable: See `Plan`.
    """

    world: World | Environment
    pending: tuple[Event, ...]
    solvable: float = 1.0
    num_steps: int = 0
    reward: float = 0.0
    best: float | None = None
    lost: bool = False
    """Whether the last action was in vain for a fault that passes."""
    swallowed: bool = False
    """Whether it was because a tool failed: it has not reached the world."""
    changed: bool = False
    """Whether something happened, or was over, in the last step."""
    happened: tuple[str, ...] = ()
    _running: list[_Running] = field(default_factory=list)
    _seen: Observation = field(default_factory=lambda: Observation(""))
    _used: frozenset[str] = frozenset()
    _world: World | None = None

    def __post_init__(self) -> None:
        kind = type(self.world)
        if kind not in _WORLDS:  # Asked once for each class: a protocol this wide is slow to check.
            _WORLDS[kind] = isinstance(self.world, World)
        self._world = cast(World, self.world) if _WORLDS[kind] else None

    @property
    def tools(self) -> Sequence[Tool]:
        return self.world.tools

    @property
    def changing(self) -> World:
        """The world, where things can change in it."""
        assert self._world is not None
        return self._world

    def start(self) -> Observation:
        self._seen = self.world.start()
        for event in self.pending:
            if event.kind == "restock":  # The world is as it will not stay, from the start on.
                self.changing.undo(event)
        return self._keyed(self._seen)

    def step(self, action: Action | Invalid) -> Reply:
        """Carries out one action, unless a tool fails; then lets happen what is due."""
        world = self.world
        failing = self._fault("tool_error")
        self.swallowed = failing is not None
        self.lost = self.swallowed or (self._world is not None and self._world.loses(action))
        if failing is None:
            reply = world.step(action)
            shown = reply.observation.text
            if self._fault("stale_page") is not None and not reply.done:
                reply = replace(reply, observation=replace(reply.observation, text=self._seen.text))
            self._seen = replace(reply.observation, text=shown)
        else:
            text = "error try again" if failing.event.explicit else self._seen.text
            reply = Reply(replace(self._seen, text=text), valid=not isinstance(action, Invalid))
        self.num_steps += 1
        self.reward += reply.reward
        if reply.done:
            return replace(reply, observation=self._keyed(reply.observation))
        said, names = self._passes(), self._happens(action, reply, failing is None)
        said += [text for _, text in names if text]
        self.changed = bool(said or names) or self.changed
        seen = reply.observation
        if self.changed or failing is not None:
            seen = self._now(seen, "\n".join(filter(None, [seen.text, *said])))
        return replace(reply, observation=self._keyed(seen), event=names[-1][0].kind if names else reply.event)

    # -- what happens -----------------------------------------------------------------------------------------------------------

    def _fault(self, kind: str) -> _Running | None:
        return next((one for one in self._running if one.event.kind == kind), None)

    def _passes(self) -> list[str]:
        """Ends what is over; what is said of it."""
        said = []
        self.changed = False
        for one in self._running:
            one.left -= 1
            if one.left == 0:
                self.changed = True
                if one.event.kind not in ANYWHERE:
                    self.changing.undo(one.event)
                    said += [self.changing.announce(one.event, over=True)] if one.event.explicit else []
        self._running = [one for one in self._running if one.left > 0]
        return said

    def _happens(self, action: Action | Invalid, reply: Reply, carried_out: bool) -> list[tuple[Event, str]]:
        """Lets happen what is due; the events with what is said of them."""
        if not self.pending:
            return []
        waiting = any(event.step is None for event in self.pending)
        if waiting and carried_out and reply.valid and isinstance(action, Action):
            self._used |= {action.name} | (self._world.happened() if self._world is not None else frozenset())
        made = []
        for event in self.pending:
            due = event.step == self.num_steps if event.step is not None else event.when in self._used
            if due:
                self.pending = tuple(other for other in self.pending if other is not event)
                said = self._begin(event)
                if said is not None:
                    made.append((event, said))
        return made

    def _begin(self, event: Event) -> str | None:
        """Lets the event happen; what is said, or None where it would leave too little to be reached and so does not happen."""
        world, said = self._world, ""
        if world is not None:
            before = world.best() if event.kind not in ANYWHERE else 0.0
            if event.kind not in ANYWHERE:
                world.apply(event)
            best = world.best()
            if best < min(self.solvable, before) - EPS:
                world.undo(event)
                return None
            said = world.announce(event, over=False) if event.explicit and event.kind not in ANYWHERE else ""
            self.best = best
        if event.lasts is not None:
            self._running = [*self._running, _Running(event, event.lasts)]
        self.happened = (*self.happened, event.kind)
        return said

    # -- what is seen -----------------------------------------------------------------------------------------------------------

    def _now(self, seen: Observation, text: str) -> Observation:
        """The text, with the key and the actions of the world as it is after what has happened."""
        return self._world.look(text) if self._world is not None else replace(seen, text=text)

    def _keyed(self, seen: Observation) -> Observation:
        if not seen.state_key:
            return seen
        waits = [f"{event.kind}@{event.when or (event.step or 0) - self.num_steps}" for event in self.pending]
        running = [f"{one.event.kind}+{one.left}" for one in self._running]
        marks = ",".join([*waits, *running, *(f"{kind}!" for kind in self.happened)])
        faulty = {event.kind for event in self.pending} | {one.event.kind for one in self._running}
        before = f"|{derive(self._seen.text)}" if faulty & set(ANYWHERE) else ""  # What may be shown once more.
        return replace(seen, state_key=f"{seen.state_key}|{marks}{before}")

    def outcome(self) -> Outcome:
        """What came of it so far."""
        return Outcome(self.reward, self.best, self.happened)

    def twin(self) -> InterruptedEnvironment:
        """The same episode so far, in which nothing more will happen. Only where the world has twins."""
        made = copy(self)
        made.world = made._world = self.changing.twin()
        made.pending = ()
        made._running = [copy(one) for one in self._running]
        return made
