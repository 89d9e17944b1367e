"""What is measured where: the worlds of the study, each with a policy to start from."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from stepwell.envs.cave import Cave, CaveDomain
from stepwell.envs.maze import Maze, MazeDomain
from stepwell.types import Floats
from truth.trail import DOORS, Trail, TrailDomain, skill
from truth.world import Grader, World

__all__ = ["BEGIN", "Cell", "Outcome", "Start", "start_of", "trail_of"]

Outcome = Literal["graded", "common", "rare"]
Kind = Literal["trail", "maze", "cave"]
BEGIN = {"graded": 0.35, "common": 0.3, "rare": 0.03}
"""What a walk along a trail is worth at the start, on average."""
_MAZE = Maze(("S....", ".##.#", ".#...", "...#.", "##..G"))
_CAVE = Cave(
    ("hall", "crypt", "well", "vault", "pit", "shaft", "grotto", "nook"),
    ((1, 2), (3, 0), (3, 4), (5, None), (6, 2), (7, None), (7, 5), (None, None)),
    (0.0, 0.3, 0.0, 0.0, 0.0, 0.6, 0.0, 1.0),
)


class Cell(NamedTuple):
    """One place of the map.

    Attributes:
        horizon: Stations of a trail; limit of turns in maze and cave.
        outcome: How sparse the outcome is.
        noise: Share of verdicts that are drawn.
        size: Members of a group; there are `32 / size` groups in a step.
        kind: Of the world.
        forgiven: Share of the doors that may be wrong in a success.
    """

    horizon: int = 16
    outcome: Outcome = "rare"
    noise: float = 0.0
    size: int = 8
    kind: Kind = "trail"
    forgiven: float = 0.5

    @property
    def name(self) -> str:
        """For files."""
        forgiven = f"-f{round(100 * self.forgiven)}" if self.kind == "trail" and self.outcome != "graded" else ""
        return f"{self.kind}-h{self.horizon}-{self.outcome}-n{round(100 * self.noise)}-g{self.size}{forgiven}"

    @property
    def grader(self) -> Grader:
        """Who says what an episode was worth."""
        return Grader(self.noise, self.outcome == "graded")


class Start(NamedTuple):
    """A world, and a policy in it. [X, A]"""

    world: World
    policy_XA: Floats


def trail_of(cell: Cell) -> Trail:
    """The trail of a cell; the same for all seeds."""
    needed = None if cell.outcome == "graded" else cell.horizon - int(cell.forgiven * cell.horizon)
    return Trail.drawn(cell.horizon, needed)


@lru_cache
def _trail_world(trail: Trail) -> World:
    domain = TrailDomain(trail)
    return World.of(domain, domain.task(), [f"{door}[]" for door in DOORS], len(trail.right))


@lru_cache
def _layout_world(kind: Kind, horizon: int) -> World:
    if kind == "maze":
        ways = [f"go[{way}]" for way in ("north", "east", "south", "west")]
        return World.of(MazeDomain(view="place"), _MAZE.task("maze/study"), ways, horizon)
    return World.of(CaveDomain(), _CAVE.task("cave/study"), ["left[]", "right[]", "stop[]"], horizon)


@lru_cache
def start_of(cell: Cell, seed: int) -> Start:
    """Where learning begins: uniform in maze and cave; on a trail at a given success, with stations of different difficulty."""
    if cell.kind != "trail":
        world = _layout_world(cell.kind, cell.horizon)
        return Start(world, np.full((len(world.graph.keys), len(world.words)), 1.0 / len(world.words)))
    trail = trail_of(cell)
    world = _trail_world(trail)
    sure = skill(trail, BEGIN[cell.outcome], seed)
    made_XA = np.empty((len(world.graph.keys), len(DOORS)))
    for number, key in enumerate(world.graph.keys):
        station = int(key.split()[1].rstrip(",")) - 1
        made_XA[number] = (1.0 - sure[station]) / (len(DOORS) - 1)
        made_XA[number, trail.right[station]] = sure[station]
    return Start(world, made_XA)
