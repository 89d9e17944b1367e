"""A trail of stations: at each a few doors, one of them right. At the end it counts how many doors were right.

It is the smallest world with the question of process rewards in it. Horizon, how many mistakes are forgiven, and whether the outcome says
how many doors were right or only whether they were enough, are separate settings. Who walks sees the station and no count: a step's worth
is the same whatever was done before, up to how far it still matters, and nothing but the credit says which steps were good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.errors import EnvironmentFault
from stepwell.seeding import generator
from stepwell.types import JSON, Action, Episode, Floats, Invalid, Observation, Reply, Task, Tool, Verdict

__all__ = ["DOORS", "Trail", "TrailDomain", "TrailEnvironment", "skill"]

DOORS = ("red", "green", "blue")
_NOTHING: dict[str, JSON] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Trail:
    """Which door is right at each station, and what a walk is worth.

    Attributes:
        right: Number of the right door. [stations]
        needed: So many right doors are a success, worth 1, and fewer are worth 0. None: a walk is worth the share of right doors.
    """

    right: tuple[int, ...]
    needed: int | None = None

    @classmethod
    def drawn(cls, stations: int, needed: int | None, seed: int = 0) -> Trail:
        """A trail of this length."""
        return cls(tuple(generator("trail", seed).integers(len(DOORS), size=stations).tolist()), needed)

    def worth(self, passed: int) -> float:
        """Of a walk with so many right doors."""
        return passed / len(self.right) if self.needed is None else float(passed >= self.needed)


class TrailEnvironment:
    """One walk; what it is worth is paid by its last step."""

    def __init__(self, trail: Trail) -> None:
        self._trail, self._at, self._passed = trail, 0, 0

    @property
    def tools(self) -> Sequence[Tool]:
        """A tool for each door, without arguments."""
        return tuple(Tool(name, f"Take the {name} door.", _NOTHING) for name in DOORS)

    def start(self) -> Observation:
        """The first station."""
        return self._observe()

    def step(self, action: Action | Invalid) -> Reply:
        """Walks through a door."""
        if self._at == len(self._trail.right):
            raise EnvironmentFault("The walk is over; an environment is for one episode.")
        if isinstance(action, Invalid) or action.arguments or action.name not in DOORS:
            return Reply(self._observe(), valid=False)
        self._passed += DOORS.index(action.name) == self._trail.right[self._at]
        self._at += 1
        done = self._at == len(self._trail.right)
        return Reply(self._observe(), reward=self._trail.worth(self._passed) if done else 0.0, done=done)

    def _observe(self) -> Observation:
        if self._at == len(self._trail.right):
            return Observation("the end", "the end", ())
        text = f"station {self._at + 1}"
        return Observation(text, f"{text}, {self._passed} right", tuple(f"{name}[]" for name in DOORS))


class TrailDomain:
    """The same trail for every task."""

    def __init__(self, trail: Trail) -> None:
        self.trail = trail

    def task(self, difficulty: float = 0.0, seed: int = 0, split: str = "train") -> Task:
        """The trail."""
        return Task(f"trail/{len(self.trail.right)}", "reach the end", difficulty, split)

    def tasks(self, split: str) -> Sequence[Task]:
        """One."""
        return (self.task(split=split),)

    def environment(self, task: Task, member: int = 0) -> TrailEnvironment:
        """A walk."""
        return TrailEnvironment(self.trail)

    def grade(self, episode: Episode) -> Verdict:
        """What the walk was paid."""
        return Verdict.of(sum(turn.reply.reward for turn in episode.turns))

    def expert(self, task: Task) -> Sequence[Action]:
        """All right doors."""
        return [Action(DOORS[door]) for door in self.trail.right]


def skill(trail: Trail, worth: float, seed: int) -> Floats:
    """How likely the right door is at each station, so that a walk is worth so much on average; some stations are harder than others.

    The logit of each is `c + z`, z standard normal by the seed; c is found by halving. [stations]
    """
    hardness = generator("skill", seed).normal(size=len(trail.right))
    low, high = -12.0, 12.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _expected(trail, _sigmoid(middle + hardness)) < worth else (low, middle)
    return _sigmoid(low + hardness)


def _sigmoid(logits: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-logits)))


def _expected(trail: Trail, right: Floats) -> float:
    """What a walk is worth on average: the distribution of the number of right doors, station by station."""
    chance = np.array([1.0])
    for p in right.tolist():
        chance = np.append(chance * (1 - p), 0.0) + np.append(0.0, chance * p)
    return float(chance @ [trail.worth(passed) for passed in range(len(chance))])
