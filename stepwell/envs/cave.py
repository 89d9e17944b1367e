"""A cave with one-way passages, dead ends and treasures of different worth, in which the policy decides when to stop.

From every chamber up to two passages lead on. A passage is one-way unless another leads back, some chambers have none, and two ways to the
same chamber may differ in their number of steps. `stop` ends the episode and keeps what lies there. So the worth of a step is not what it
looks like: the nearest treasure may be poor, and a wrong turn cannot be undone. A cave is small enough for `stepwell.envs.exact`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.envs.layouts import check_settings, different_tasks, drawn_for
from stepwell.envs.splits import FiniteSplits
from stepwell.errors import ConfigError, DataError, EnvironmentFault
from stepwell.seeding import generator
from stepwell.types import JSON, Action, Episode, Invalid, Observation, Reply, Task, Tool, Verdict

__all__ = ["Cave", "CaveDomain", "CaveEnvironment"]

_NAMES = ("hall", "crypt", "well", "vault", "pit", "shaft", "grotto", "nook", "tunnel", "chapel", "lake", "ledge")
_WORTHS = (1.0, 0.6, 0.3)
_DEAD_END, _WAY_BACK = 0.25, 0.3
_NOTHING: Mapping[str, JSON] = {"type": "object", "properties": {}}
_SIDES = ("left", "right")


@dataclass(frozen=True, slots=True)
class Cave:
    """The layout: chambers by number, the entrance being 0.

    Attributes:
        names: Of the chambers, all different.
        passages: For each chamber where its left and right passage lead; None is a wall.
        worths: What lies in each chamber, in [0, 1]; 1 is a success.

    Raises (when built):
        ConfigError: Lists of different lengths, passages into nowhere, or a worth outside [0, 1].

    >>> Cave(("hall", "pit"), ((1, None), (None, None)), (0.0, 1.0)).best_way()
    ['left', 'stop']
    """

    names: tuple[str, ...]
    passages: tuple[tuple[int | None, int | None], ...]
    worths: tuple[float, ...]

    def __post_init__(self) -> None:
        n = len(self.names)
        if not (0 < n == len(self.passages) == len(self.worths) == len(set(self.names))):
            raise ConfigError(
                f"A cave has {n} names ({len(set(self.names))} different), {len(self.passages)} pairs of passages and "
                f"{len(self.worths)} worths; all must be equally many, and at least one."
            )
        nowhere = [end for pair in self.passages for end in pair if end is not None and not 0 <= end < n]
        if nowhere:
            raise ConfigError(f"A passage leads to chamber {nowhere[0]}; this cave has chambers 0 to {n - 1}.")
        if any(not 0.0 <= worth <= 1.0 for worth in self.worths):
            raise ConfigError(f"The worths of the cave are {self.worths}; each lies in [0, 1].")

    def task(self, key: str, split: str = "train", difficulty: float = 0.0) -> Task:
        """The task of this cave."""
        payload: dict[str, JSON] = {"names": list(self.names), "passages": [list(p) for p in self.passages], "worths": list(self.worths)}
        return Task(key, self.describe(), difficulty, split, payload)

    @classmethod
    def of(cls, task: Task) -> Cave:
        """The cave of a task."""
        try:
            names, passages, worths = (task.payload[key] for key in ("names", "passages", "worths"))
            assert isinstance(names, Sequence) and isinstance(passages, Sequence) and isinstance(worths, Sequence)
            pairs = [pair for pair in passages if isinstance(pair, Sequence) and len(pair) == 2]
            ends = [tuple(end if isinstance(end, int) else None for end in pair) for pair in pairs]
            return cls(tuple(map(str, names)), tuple((left, right) for left, right in ends), tuple(float(str(worth)) for worth in worths))
        except (KeyError, AssertionError, ValueError) as error:
            raise DataError(f"Task {task.key!r} is none of a cave's: {error!r}.") from error

    def describe(self) -> str:
        """What is asked, with the whole map."""
        treasures = [f"{name} holds {round(100 * worth)}" for name, worth in zip(self.names, self.worths, strict=True) if worth > 0]
        lines = [f"{self.names[i]}: {self.exits(i)}" for i in range(len(self.names))]
        return "\n".join([f"stop where the best treasure lies. {', '.join(treasures)}.", *lines])

    def exits(self, chamber: int) -> str:
        """Where the passages of a chamber lead, in words."""
        ends = zip(_SIDES, self.passages[chamber], strict=True)
        return ", ".join(f"{side} to {self.names[end]}" for side, end in ends if end is not None) or "no way on"

    def best_way(self, least: float = 0.0) -> list[str] | None:
        """The fewest moves to the greatest worth that can be reached, and `stop`; None if that is 0, or less than `least`."""
        ways: dict[int, list[str]] = {0: []}
        queue = deque([0])
        while queue:
            chamber = queue.popleft()
            for side, end in zip(_SIDES, self.passages[chamber], strict=True):
                if end is not None and end not in ways:
                    ways[end] = [*ways[chamber], side]
                    queue.append(end)
        best = max(ways, key=lambda chamber: (self.worths[chamber], -len(ways[chamber])))
        return [*ways[best], "stop"] if self.worths[best] > 0 and self.worths[best] >= least else None


class CaveEnvironment:
    """One walk through a cave. The reward of `stop` is the worth of what lies there; all else pays 0."""

    def __init__(self, task: Task) -> None:
        self._key = task.key
        self._cave = Cave.of(task)
        self._at = 0
        self._done = False

    @property
    def tools(self) -> Sequence[Tool]:
        """`left`, `right` and `stop`, without arguments."""
        return (
            Tool("left", "Take the left passage.", _NOTHING),
            Tool("right", "Take the right passage.", _NOTHING),
            Tool("stop", "Stop here and keep what lies here; ends the walk.", _NOTHING),
        )

    def start(self) -> Observation:
        """The map, and where one is."""
        return self._observe(f"{self._cave.describe()}\n{self._here()}")

    def step(self, action: Action | Invalid) -> Reply:
        """Moves, or stops. Where no passage is, one stays, and the step is not valid."""
        if self._done:
            raise EnvironmentFault("The walk through the cave is over; an environment is for one episode.")
        if isinstance(action, Invalid) or action.arguments or action.name not in (*_SIDES, "stop"):
            return Reply(self._observe(f"no such move. {self._here()}"), valid=False)
        if action.name == "stop":
            self._done = True
            worth = self._cave.worths[self._at]
            return Reply(self._observe(f"you stop and keep {round(100 * worth)}"), reward=worth, done=True)
        end = self._cave.passages[self._at][_SIDES.index(action.name)]
        if end is None:
            return Reply(self._observe(f"a wall. {self._here()}"), valid=False)
        self._at = end
        return Reply(self._observe(self._here()))

    def _here(self) -> str:
        return f"you are in {self._cave.names[self._at]}: {self._cave.exits(self._at)}"

    def _observe(self, text: str) -> Observation:
        open_sides = [f"{side}[]" for side, end in zip(_SIDES, self._cave.passages[self._at], strict=True) if end is not None]
        admissible = () if self._done else (*open_sides, "stop[]")
        return Observation(text, f"{self._key}|{self._cave.names[self._at]}{'|over' if self._done else ''}", admissible)


class CaveDomain:
    """Generated caves: 4 chambers at difficulty 0, 12 at 1.

    Args:
        seed: Of all caves.
        difficulty: Range from which the finite splits take difficulties, within [0, 1].
        num_test_tasks: Length of `tasks("test")` and of `tasks("validation")`.

    Three chambers hold treasures worth 1, 0.6 and 0.3. The score is the worth of what was kept, success is the best of them. No two splits
    share a cave.

    >>> domain = CaveDomain()
    >>> [action.name for action in domain.expert(domain.task(0.0, seed=2, split="train"))][-1]
    'stop'
    """

    def __init__(self, *, seed: int = 0, difficulty: tuple[float, float] = (0.0, 0.5), num_test_tasks: int = 200) -> None:
        check_settings(difficulty, num_test_tasks)
        (
            self.seed,
            self.difficulty,
        ) = seed, difficulty
        self._splits = FiniteSplits("The cave has", lambda split: different_tasks(split, num_test_tasks, difficulty, self.task))

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        """The task of this difficulty, seed and split."""

        def draw(attempt: int) -> Cave:
            return _draw(4 + round(8 * difficulty), generator("cave", self.seed, split, seed, str(difficulty), attempt))

        cave = drawn_for(split, draw, Cave.describe)
        return cave.task(f"cave/{self.seed}/{split}/{difficulty}/{seed}", split, difficulty)

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of `test` or `validation`, no two alike; none of `train`, whose tasks are generated without end."""
        return self._splits(split)

    def environment(self, task: Task, member: int = 0) -> CaveEnvironment:
        """A walk; all members of a group walk in the same cave."""
        return CaveEnvironment(task)

    def grade(self, episode: Episode) -> Verdict:
        """The worth of what was kept; 0 where the episode ended before `stop`."""
        if episode.failed:
            return Verdict.unscored(episode.ending.reason or "the episode failed")
        return Verdict.of(sum(turn.reply.reward for turn in episode.turns))

    def expert(self, task: Task) -> Sequence[Action] | None:
        """The fewest moves to the best treasure; None in a cave of your own where none worth 1 can be reached."""
        way = Cave.of(task).best_way(least=1.0)
        return None if way is None else [Action(name) for name in way]


def _draw(num_chambers: int, rng: np.random.Generator) -> Cave:
    """A cave in which every chamber can be reached: passages lead to chambers of higher number, or back by one step."""
    passages: list[list[int | None]] = [[None, None] for _ in range(num_chambers)]
    before = [0] * num_chambers
    for chamber in range(1, num_chambers):
        free = [c for c in range(chamber) if None in passages[c]]
        before[chamber] = int(rng.choice(free[-3:]))
        _open(passages[before[chamber]], chamber, rng)
    for chamber in range(num_chambers):
        if None not in passages[chamber] or rng.random() < _DEAD_END:
            continue
        back = chamber > 0 and rng.random() < _WAY_BACK
        later = [c for c in range(chamber + 1, min(chamber + 4, num_chambers)) if c not in passages[chamber]]
        if back:
            _open(passages[chamber], before[chamber], rng)
        elif later:
            _open(passages[chamber], int(rng.choice(later)), rng)
    worths = [0.0] * num_chambers
    for chamber, worth in zip(rng.permutation(np.arange(1, num_chambers))[:3].tolist(), _WORTHS, strict=True):
        worths[chamber] = worth
    names = [_NAMES[i] for i in rng.permutation(len(_NAMES))[:num_chambers]]
    return Cave(tuple(names), tuple((left, right) for left, right in passages), tuple(worths))


def _open(sides: list[int | None], end: int, rng: np.random.Generator) -> None:
    """Leads one of the free sides there."""
    free = [side for side, used in enumerate(sides) if used is None]
    sides[int(rng.choice(free))] = end
