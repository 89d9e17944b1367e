"""A text maze: walls, one goal, four moves. Every cell's exact value is known (`stepwell.envs.exact`).

Rows are counted from the north, columns from the west, both from 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from stepwell.envs.layouts import check_settings, different_tasks, drawn_for
from stepwell.envs.splits import FiniteSplits
from stepwell.errors import ConfigError, DataError, EnvironmentFault, nearest
from stepwell.seeding import generator
from stepwell.types import JSON, Action, Episode, Invalid, Observation, Reply, Task, Tool, Verdict

__all__ = ["Cell", "Maze", "MazeDomain", "MazeEnvironment", "View"]

View = Literal["map", "place"]
"""What the first observation shows: the whole map, or where one is and where the goal is."""


class Cell(NamedTuple):
    """Row and column, from 0."""

    row: int
    column: int

    def __str__(self) -> str:
        return f"row {self.row + 1} column {self.column + 1}"


_MOVES: Mapping[str, tuple[int, int]] = {"north": (-1, 0), "east": (0, 1), "south": (1, 0), "west": (0, -1)}
_WALL, _OPEN, _START, _GOAL = "#", ".", "S", "G"
_WALLS = 0.35
_DIRECTIONS: tuple[JSON, ...] = tuple(_MOVES)
_TOOL = Tool(
    "go",
    "Go one cell north, east, south or west.",
    {
        "type": "object",
        "properties": {"direction": {"type": "string", "enum": _DIRECTIONS, "description": "north, east, south or west"}},
        "required": ["direction"],
    },
)


@dataclass(frozen=True, slots=True)
class Maze:
    """A map, drawn in text: `#` wall, `.` floor, `S` start, `G` goal. Cells are joined where they touch.

    Raises (when built):
        ConfigError: Lines of different lengths, other letters, or not one start and one goal that can be reached from it.

    >>> Maze(("S.", "#G")).best_way()
    ['east', 'south']
    """

    lines: tuple[str, ...]

    def __post_init__(self) -> None:
        text = "".join(self.lines)
        if not text or len({len(line) for line in self.lines}) > 1:
            raise ConfigError(f"The maze has lines of lengths {[len(line) for line in self.lines]}; all must be equal, and not 0.")
        if strange := sorted(set(text) - {_WALL, _OPEN, _START, _GOAL}):
            raise ConfigError(f"The maze is drawn with {strange}; allowed are {_WALL} (wall), {_OPEN} (floor), {_START} and {_GOAL}.")
        if (text.count(_START), text.count(_GOAL)) != (1, 1):
            raise ConfigError(f"The maze has {text.count(_START)} starts and {text.count(_GOAL)} goals; it needs one of each.")
        if not _ways(self.lines, self.start).get(self.goal):
            raise ConfigError("The maze's goal cannot be reached from its start.")

    @property
    def start(self) -> Cell:
        return self._find(_START)

    @property
    def goal(self) -> Cell:
        return self._find(_GOAL)

    def _find(self, letter: str) -> Cell:
        row = next(i for i, line in enumerate(self.lines) if letter in line)
        return Cell(row, self.lines[row].index(letter))

    def exits(self, cell: Cell) -> dict[str, Cell]:
        """Where one can go from a cell, by direction."""
        return _exits(self.lines, cell)

    def best_way(self) -> list[str]:
        """The fewest moves to the goal."""
        return _ways(self.lines, self.start)[self.goal]

    def task(self, key: str, split: str = "train", difficulty: float = 0.0) -> Task:
        """The task of this maze."""
        prompt = f"go to {_GOAL}, from {self.start} to {self.goal}.\n" + "\n".join(self.lines)
        return Task(key, prompt, difficulty, split, {"lines": list(self.lines)})

    @classmethod
    def of(cls, task: Task) -> Maze:
        """The maze of a task."""
        lines = task.payload.get("lines")
        if not isinstance(lines, Sequence):
            raise DataError(f"Task {task.key!r} is none of a maze's: its payload has no lines.")
        return cls(tuple(map(str, lines)))


class MazeEnvironment:
    """One walk. Reaching the goal pays 1 and ends it; all else pays 0."""

    def __init__(self, task: Task, view: View = "map") -> None:
        self._task = task
        self._maze = Maze.of(task)
        self._goal = self._maze.goal
        self._view = view
        self._at = self._maze.start

    @property
    def tools(self) -> Sequence[Tool]:
        """`go[north]`, `go[east]`, `go[south]`, `go[west]`."""
        return (_TOOL,)

    def start(self) -> Observation:
        """The task, and where one is."""
        asked = self._task.prompt if self._view == "map" else f"go to {self._goal}."
        return self._observe(f"{asked}\n{self._here()}")

    def step(self, action: Action | Invalid) -> Reply:
        """Goes one cell. Against a wall one stays, and the step is not valid."""
        if self._at == self._goal:
            raise EnvironmentFault("The walk through the maze is over; an environment is for one episode.")
        direction = _direction(action)
        if direction is None:
            return Reply(self._observe(f"no such move. {self._here()}"), valid=False)
        exits = self._maze.exits(self._at)
        if direction not in exits:
            return Reply(self._observe(f"a wall. {self._here()}"), valid=False)
        self._at = exits[direction]
        if self._at == self._goal:
            return Reply(self._observe("you are at the goal"), reward=1.0, done=True)
        return Reply(self._observe(self._here()))

    def _here(self) -> str:
        return f"you are at {self._at}. open: {', '.join(self._maze.exits(self._at))}"

    def _observe(self, text: str) -> Observation:
        open_ways = () if self._at == self._goal else tuple(f"go[{name}]" for name in self._maze.exits(self._at))
        return Observation(text, f"{self._task.key}|{self._at}", open_ways)


class MazeDomain:
    """Generated mazes: 3 x 3 cells at difficulty 0, 8 x 8 at 1. About a third of them is wall; the goal is among the far cells.

    Args:
        seed: Of all mazes.
        difficulty: Range from which the finite splits take difficulties, within [0, 1].
        num_test_tasks: Length of `tasks("test")` and of `tasks("validation")`.
        view: What the first observation shows; see `View`.

    Success is to reach the goal; the score is 1 for that and else 0. No two splits share a maze.

    >>> domain = MazeDomain()
    >>> domain.expert(domain.task(0.0, seed=0, split="train"))[0].name
    'go'
    """

    def __init__(
        self, *, seed: int = 0, difficulty: tuple[float, float] = (0.0, 0.5), num_test_tasks: int = 200, view: View = "map"
    ) -> None:
        check_settings(difficulty, num_test_tasks)
        if view not in get_args(View):
            raise ConfigError(f"The maze's view is {view!r}; {nearest(view, get_args(View))}.")
        self.seed, self.difficulty, self.view = seed, difficulty, view
        self._splits = FiniteSplits("The maze has", lambda split: different_tasks(split, num_test_tasks, difficulty, self.task))

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        """The task of this difficulty, seed and split."""

        def draw(attempt: int) -> Maze:
            return _draw(3 + round(5 * difficulty), generator("maze", self.seed, split, seed, str(difficulty), attempt))

        maze = drawn_for(split, draw, lambda maze: "\n".join(maze.lines))
        return maze.task(f"maze/{self.seed}/{split}/{difficulty}/{seed}", split, difficulty)

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of `test` or `validation`, no two alike; none of `train`, whose tasks are generated without end."""
        return self._splits(split)

    def environment(self, task: Task, member: int = 0) -> MazeEnvironment:
        """A walk; all members of a group walk in the same maze."""
        return MazeEnvironment(task, self.view)

    def grade(self, episode: Episode) -> Verdict:
        """1 where the goal was reached, else 0."""
        if episode.failed:
            return Verdict.unscored(episode.ending.reason or "the episode failed")
        return Verdict.of(sum(turn.reply.reward for turn in episode.turns))

    def expert(self, task: Task) -> Sequence[Action]:
        """The fewest moves to the goal."""
        return [Action(_TOOL.name, {"direction": name}) for name in Maze.of(task).best_way()]


def _direction(action: Action | Invalid) -> str | None:
    """Where an action goes, or None where it is no move."""
    if isinstance(action, Invalid) or action.name != _TOOL.name or len(action.arguments) != 1:
        return None
    direction = action.arguments.get("direction", "")
    return direction if direction in _MOVES else None


def _draw(side: int, rng: np.random.Generator) -> Maze:
    """A square maze: walls at random, a start from which at least two cells can be reached, a goal in the farther half of those."""
    while True:
        walls = rng.random((side, side)) < _WALLS
        floor = [Cell(int(row), int(column)) for row, column in np.argwhere(~walls)]
        if not floor:
            continue
        start = floor[int(rng.integers(len(floor)))]
        letters = [[_WALL if walls[row, column] else _OPEN for column in range(side)] for row in range(side)]
        ways = list(_ways(letters, start))
        far = ways[(len(ways) + 1) // 2 :]
        if len(far) < side - 1:
            continue
        goal = far[int(rng.integers(len(far)))]
        letters[start.row][start.column], letters[goal.row][goal.column] = _START, _GOAL
        return Maze(tuple("".join(line) for line in letters))


def _exits(letters: Sequence[Sequence[str]], cell: Cell) -> dict[str, Cell]:
    ends = {name: Cell(cell.row + down, cell.column + right) for name, (down, right) in _MOVES.items()}
    rows, columns = len(letters), len(letters[0])
    return {n: e for n, e in ends.items() if 0 <= e.row < rows and 0 <= e.column < columns and letters[e.row][e.column] != _WALL}


def _ways(letters: Sequence[Sequence[str]], start: Cell) -> dict[Cell, list[str]]:
    """A shortest way to every cell that can be reached, the nearest cells first."""
    ways: dict[Cell, list[str]] = {start: []}
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        for name, end in _exits(letters, cell).items():
            if end not in ways:
                ways[end] = [*ways[cell], name]
                queue.append(end)
    return ways
