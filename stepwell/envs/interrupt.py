"""Interruptions: what changes in the middle of an episode, in any domain.

`Interrupted` wraps a domain. Tools that fail for a while and pages that lag behind can happen anywhere; what else can happen is told by
the domain's `Events` (for the generated shop: `stepwell.envs.shop.events`). An event is drawn from the task's key (the members of a group
share it) or from the key and the member. It happens after a number of steps, at a fraction of the expert's path, or when something is first
done; it is announced or not, and lasts or passes.

What can still be reached after an event is computed exactly where the domain's events can tell it. Success is then to get that, and an
event after which it would be less than `solvable` does not happen: nobody is asked for what cannot be done.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol, cast, get_args, runtime_checkable

import numpy as np

from stepwell.errors import ConfigError, nearest
from stepwell.protocols import Domain, Environment
from stepwell.seeding import derive, generator
from stepwell.types import JSON, Action, Episode, Invalid, Observation, Reply, Task, Tool, Verdict

__all__ = ["ANYWHERE", "Change", "Event", "Events", "Interrupted", "InterruptedEnvironment", "Outcome", "Plan", "World"]

ANYWHERE = ("tool_error", "stale_page")
"""Kinds that can happen in any domain; they pass."""
Told = Literal["explicit", "implicit", "mixed"]
Lasts = Literal["transient", "permanent", "mixed"]
Shared = Literal["task", "member"]
EPS = 1e-6
_PROBES = 24
_MOST_STEPS = 200
_KEPT = 4_096
_WORLDS: dict[type, bool] = {}

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
        self.lost = failing is not None or (self._world is not None and self._world.loses(action))
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


@runtime_checkable
class _Ranged(Protocol):
    @property
    def difficulty(self) -> tuple[float, float]: ...


@runtime_checkable
class _Measured(Protocol):
    def potential(self) -> float: ...


@runtime_checkable
class _Progressing(Protocol):
    def progress(self, task: Task, actions: Sequence[Action | Invalid], member: int = 0) -> list[float]: ...


class Interrupted:
    """A domain in which things happen.

    Tasks, their keys and their splits are those of the domain inside, so a clean and an interrupted run play the same tasks. `grade`: the
    score is the domain's own; where something happened and it can be told, success is to earn at least what could still be reached right
    after the last event. The expert knows what has happened, announced or not, and then does the best that is left.

    Args:
        domain: Any.
        plan: What may happen.
        events: What the domain can tell; None where only what can happen anywhere is wanted.

    Raises:
        ConfigError: An unknown kind or trigger, kinds that exclude what is asked of them, or an interruption that leaves no task solvable.
    """

    def __init__(self, domain: Domain, plan: Plan, events: Events | None = None) -> None:
        self.inner, self.plan, self._support = domain, plan, events
        self._drawn: dict[tuple[str, int], tuple[Event, ...]] = {}
        known = (*ANYWHERE, *(events.kinds if events is not None else ()))
        if not plan.kinds:
            raise ConfigError(f"interruptions.kinds is empty; name what may happen: {', '.join(known)}.")
        for kind in plan.kinds:
            if kind not in known:
                raise ConfigError(f"interruptions.kinds holds {kind!r}; {nearest(kind, known)}.")
            self._forms(kind)
        self._check_possible()

    @property
    def difficulty(self) -> tuple[float, float]:
        """Of the domain inside, where it has a range."""
        return self.inner.difficulty if isinstance(self.inner, _Ranged) else (0.0, 1.0)

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        """The domain's own."""
        return self.inner.task(difficulty, seed, split)

    def tasks(self, split: str) -> Sequence[Task]:
        """The domain's own."""
        return self.inner.tasks(split)

    def environment(self, task: Task, member: int = 0) -> Environment:
        """The domain's own, or one in which something will happen."""
        events = self.events(task, member)
        return self._interrupted(task, member, events) if events else self.inner.environment(task, member)

    def events(self, task: Task, member: int = 0) -> tuple[Event, ...]:
        """What will happen to this member of the task's group."""
        if task.split not in self.plan.splits:
            return ()
        key = (task.key, member if self.plan.shared == "member" else -1)
        if key not in self._drawn:
            if len(self._drawn) >= _KEPT:
                self._drawn.clear()
            self._drawn[key] = self._draw(task, generator("interruption", self.plan.seed, *key))
        return self._drawn[key]

    def grade(self, episode: Episode) -> Verdict:
        """The domain's score; success is to earn what could still be reached."""
        verdict = self.inner.grade(episode)
        if verdict.score is None:
            return verdict
        if all(turn.reply.event is None for turn in episode.turns):
            return verdict
        best = self.outcome(episode).best
        if best is None:
            return verdict
        return Verdict(verdict.score, verdict.score > 0 and verdict.score >= best - EPS, verdict.reason)

    def outcome(self, episode: Episode) -> Outcome:
        """What happened in an episode and what could still be reached then; its actions are replayed."""
        events = self.events(episode.task, episode.member)
        if not events:
            return Outcome(sum(turn.reply.reward for turn in episode.turns), None, ())
        environment = self._interrupted(episode.task, episode.member, events)
        environment.start()
        for turn in episode.turns:
            environment.step(turn.action)
        return environment.outcome()

    def expert(self, task: Task) -> Sequence[Action] | None:
        """Actions of one who knows what has happened, for member 0; None where the domain has no expert."""
        plan = self.inner.expert(task)
        events = self.events(task, 0)
        if plan is None or not events:
            return plan
        environment = self._interrupted(task, 0, events)
        environment.start()
        return _carried_through(environment, list(plan))

    def progress(self, task: Task, actions: Sequence[Action | Invalid], member: int = 0) -> list[float]:
        """How far the episode of this member has come, at the start and after each action, in the world as it then is.

        Raises:
            ConfigError: The domain cannot tell.
        """
        events = self.events(task, member)
        if not events and isinstance(self.inner, _Progressing):
            return self.inner.progress(task, actions, member)
        environment = self._interrupted(task, member, events)
        environment.start()
        world = environment.world
        if not isinstance(world, _Measured):
            raise ConfigError(f"Nobody can tell how far an episode of task {task.key!r} has come: its domain does not measure progress.")
        values = [world.potential()]
        for action in actions:
            environment.step(action)
            values.append(world.potential())
        return values

    def reachable(self, task: Task, actions: Sequence[Action | Invalid]) -> list[float]:
        """The best reachable reward at the start and after each action, and after the end the reward."""
        environment = self._interrupted(task, 0, self.events(task, 0))
        environment.start()
        world = environment.world
        if not isinstance(world, World):
            raise ConfigError(f"Nobody can tell the best reachable reward of task {task.key!r}: its domain has no events of its own.")
        values = [world.best()]
        for action in actions:
            environment.step(action)
            values.append(world.best())
        return values

    # -- drawing ----------------------------------------------------------------------------------------------------------------

    def _interrupted(self, task: Task, member: int, events: tuple[Event, ...]) -> InterruptedEnvironment:
        inside = self.inner.environment(task, member) if self._support is None else self._support.world(task, member)
        return InterruptedEnvironment(inside, events, self.plan.solvable)

    def _forms(self, kind: str) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
        """Whether an event of this kind may be told, and whether it may pass, under the plan."""
        can = frozenset({"transient", "explicit", "implicit"}) if kind in ANYWHERE else _kinds(self._support)[kind]
        told = tuple(e for e in (True, False) if ("explicit" if e else "implicit") in can and self.plan.told in ("mixed", _TOLD[e]))
        passes = tuple(t for t in (True, False) if ("transient" if t else "permanent") in can and self.plan.lasts in ("mixed", _LASTS[t]))
        if not told:
            raise ConfigError(
                f"interruptions.told is {self.plan.told!r}, and {kind!r} can only be {_or(can, 'explicit', 'implicit')}; leave it out."
            )
        if not passes:
            raise ConfigError(
                f"interruptions.lasts is {self.plan.lasts!r}, and {kind!r} can only be {_or(can, 'transient', 'permanent')}: otherwise no "
                "task could be solved, or there would be nothing to it. Leave the kind out, or set lasts to 'mixed'."
            )
        return told, passes

    def _draw(self, task: Task, rng: np.random.Generator) -> tuple[Event, ...]:
        if rng.random() >= self.plan.share:
            return ()
        path = self.inner.expert(task)
        length = len(path) if path is not None else 8
        drawn: list[Event] = []
        for _ in range(self.plan.number):
            event = self._one(task, length, drawn, rng)
            drawn += [event] if event is not None else []
        return tuple(sorted(drawn, key=lambda event: (event.step is None, event.step or 0)))

    def _one(self, task: Task, length: int, before: Sequence[Event], rng: np.random.Generator) -> Event | None:
        """An event of the first kind, in a random order, that can happen to this task and leaves enough to be reached."""
        taken = {event.kind for event in before}
        for kind in [self.plan.kinds[i] for i in rng.permutation(len(self.plan.kinds)).tolist()]:
            told, passes = self._forms(kind)
            explicit, passing = bool(rng.choice(told)), bool(rng.choice(passes))
            step, when = self._when(kind, length, rng)
            if kind in taken:
                continue
            change: Change | None = {} if kind in ANYWHERE else self._of_domain(kind, task, rng)
            if change is None:
                continue
            event = Event(kind, change, step, when, explicit, self.plan.steps if passing else None)
            if self._leaves_enough(task, [*before, event]):
                return event
        return None

    def _when(self, kind: str, length: int, rng: np.random.Generator) -> tuple[int | None, str]:
        at = self.plan.at[int(rng.integers(len(self.plan.at)))]
        if isinstance(at, str):
            return (max(1, length // 2), "") if kind == "restock" else (None, at)
        if isinstance(at, int):
            return at, ""
        return min(max(1, math.floor(at * length + 0.5)), max(1, length - 1)), ""

    def _of_domain(self, kind: str, task: Task, rng: np.random.Generator) -> Change | None:
        assert self._support is not None
        return self._support.draw(kind, task, rng)

    def _leaves_enough(self, task: Task, events: Sequence[Event]) -> bool:
        if self._support is None or all(event.kind in ANYWHERE for event in events):
            return True
        world = self._support.world(task, 0)
        world.start()
        for event in events:
            if event.kind not in ANYWHERE:
                world.apply(event)
        return world.best() >= self.plan.solvable - EPS

    def _check_possible(self) -> None:
        """Whether anything can happen at all, to the first tasks of the splits that are interrupted."""
        found = [task for split in self.plan.splits for task in list(self.inner.tasks(split))[:_PROBES]][: 2 * _PROBES]
        low, high = self.difficulty
        tasks = (
            found or [self.inner.task(low + (high - low) * n / _PROBES, n, self.plan.splits[0]) for n in range(_PROBES)]
            if self.plan.splits
            else []
        )
        if not tasks:
            raise ConfigError("interruptions.splits is empty; name the splits whose tasks are interrupted, such as ['train'].")
        names = [tool.name for tool in self.inner.environment(tasks[0], 0).tools]
        names += self._support.triggers if self._support is not None else ()
        for at in self.plan.at:
            if isinstance(at, str) and at not in names:
                raise ConfigError(f"interruptions.at holds {at!r}, which nothing waits for here; {nearest(at, names)}.")
        sure = replace(self.plan, share=1.0)
        probe = copy(self)
        probe.plan = sure
        if self.plan.share and not any(probe._draw(task, generator("probe", task.key)) for task in tasks):
            raise ConfigError(
                f"interruptions.kinds {list(self.plan.kinds)} leave none of {len(tasks)} tasks solvable to {self.plan.solvable} "
                "(interruptions.solvable): nothing would ever happen. Lower it, add kinds such as 'tool_error', or use more products."
            )


_TOLD = {True: "explicit", False: "implicit"}
_LASTS = {True: "transient", False: "permanent"}


def _kinds(support: Events | None) -> Mapping[str, frozenset[str]]:
    return support.kinds if support is not None else {}


def _or(can: frozenset[str], *names: str) -> str:
    return " or ".join(name for name in names if name in can)


# -- the expert ---------------------------------------------------------------------------------------------------------------


def _carried_through(environment: InterruptedEnvironment, plan: list[Action]) -> list[Action] | None:
    """Plays the plan, repeats what is lost, and plans anew where what has happened asks for it; None where no end is found."""
    done: list[Action] = []
    doubtful = True
    while len(done) < _MOST_STEPS:
        if doubtful and isinstance(environment.world, World) and not _reaches_best(environment, plan):
            anew = environment.changing.plan()
            good = anew is not None and _reaches_best(environment, list(anew))
            plan = list(anew or ()) if good else [environment.changing.wait()]
            doubtful = not good
        else:
            doubtful = False
        if not plan:
            return done
        action = plan.pop(0)
        reply = environment.step(action)
        done.append(action)
        if reply.done:
            return done
        if environment.lost:
            plan.insert(0, action)
        doubtful = doubtful or environment.changed
    return None


def _reaches_best(environment: InterruptedEnvironment, plan: Sequence[Action]) -> bool:
    """Whether the plan, carried out from here with nothing more happening, earns the best that is left."""
    twin = environment.twin()
    best = twin.changing.best()
    left = list(plan)
    for _ in range(_MOST_STEPS):
        if not left:
            return False
        reply = twin.step(left[0])
        if reply.done:
            return twin.reward >= best - EPS
        if not twin.lost:
            left.pop(0)
    return False
