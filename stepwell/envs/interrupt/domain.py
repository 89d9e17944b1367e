"""A domain in which things happen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from stepwell.envs.interrupt.episode import InterruptedEnvironment
from stepwell.envs.interrupt.expert import carried_through
from stepwell.envs.interrupt.what import ANYWHERE, EPS, Change, Event, Events, Outcome, Plan, World
from stepwell.errors import ConfigError, nearest
from stepwell.protocols import Domain, Environment
from stepwell.seeding import generator
from stepwell.types import Action, Episode, Invalid, Task, Verdict

__all__ = ["Interrupted"]

_PROBES = 24
_KEPT = 4_096


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

    def carried_out(self, episode: Episode) -> Episode:
        """The episode without the turns that a failing tool has swallowed, for who reads its actions; they are replayed."""
        events = self.events(episode.task, episode.member)
        if not events:
            return episode
        environment = self._interrupted(episode.task, episode.member, events)
        environment.start()
        turns = []
        for turn in episode.turns:
            environment.step(turn.action)
            turns += [] if environment.swallowed else [turn]
        return replace(episode, turns=tuple(turns))

    def expert(self, task: Task) -> Sequence[Action] | None:
        """Actions of one who knows what has happened, for member 0; None where the domain has no expert."""
        plan = self.inner.expert(task)
        events = self.events(task, 0)
        if plan is None or not events:
            return plan
        environment = self._interrupted(task, 0, events)
        environment.start()
        return carried_through(environment, list(plan))

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
