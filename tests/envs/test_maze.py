"""The maze: what it shows, what it pays, and that everything generated can be solved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepwell.build import build_domain
from stepwell.configure import load, load_domain
from stepwell.engine.codec import BRACKET
from stepwell.envs.exact import explore, optimal_values
from stepwell.envs.maze import Cell, Maze, MazeDomain
from stepwell.errors import ConfigError, DataError, EnvironmentFault
from stepwell.testing import check_environment
from stepwell.types import Action, Invalid, Task

SMALL = Maze(("S.#", "#..", "G.#"))


def go(direction: str) -> Action:
    return Action("go", {"direction": direction})


def test_a_walk() -> None:
    environment = MazeDomain().environment(SMALL.task("mine"))
    start = environment.start()
    assert start.text == ("go to G, from row 1 column 1 to row 3 column 1.\nS.#\n#..\nG.#\nyou are at row 1 column 1. open: east")
    assert start.admissible == ("go[east]",)
    into_wall = environment.step(go("south"))
    assert (into_wall.valid, into_wall.reward, into_wall.observation.state_key) == (False, 0.0, start.state_key)
    assert into_wall.observation.text == "a wall. you are at row 1 column 1. open: east"
    assert environment.step(go("north")).valid is False, "the edge of the map is a wall"
    for direction in ("east", "south", "east"):
        reply = environment.step(go(direction))
        assert reply.valid and not reply.done
    assert reply.observation.text == "you are at row 2 column 3. open: west"
    environment.step(go("west"))
    assert environment.step(go("south")).observation.admissible == ("go[north]", "go[west]")
    end = environment.step(go("west"))
    assert (end.reward, end.done, end.observation.admissible) == (1.0, True, ())
    with pytest.raises(EnvironmentFault):
        environment.step(go("east"))


def test_what_is_no_move_is_counted_and_moves_nothing() -> None:
    environment = MazeDomain().environment(SMALL.task("mine"))
    key = environment.start().state_key
    for action in (Invalid("hm", "no action"), Action("fly"), Action("go"), go("up"), Action("go", {"direction": "east", "far": "yes"})):
        reply = environment.step(action)
        assert (reply.valid, reply.done, reply.observation.state_key) == (False, False, key)
        assert reply.observation.text == "no such move. you are at row 1 column 1. open: east"


def test_a_view_without_the_map() -> None:
    seen = MazeDomain(view="place").environment(SMALL.task("mine")).start()
    assert seen.text == "go to row 3 column 1.\nyou are at row 1 column 1. open: east"


def test_the_shortest_way_by_hand() -> None:
    assert SMALL.best_way() == ["east", "south", "south", "west"]
    assert SMALL.exits(Cell(1, 1)) == {"north": Cell(0, 1), "east": Cell(1, 2), "south": Cell(2, 1)}


@pytest.mark.parametrize("difficulty", [0.0, 0.4, 1.0])
def test_generated_tasks_keep_the_contract_and_are_solved_by_the_expert(difficulty: float) -> None:
    domain = MazeDomain()
    for seed in range(3):
        check_environment(domain, domain.task(difficulty, seed, "train"))
    assert len(Maze.of(domain.task(difficulty, 0, "train")).lines) == 3 + round(5 * difficulty)


def test_the_expert_is_as_short_as_the_best_policy() -> None:
    domain = MazeDomain()
    for task in domain.tasks("validation")[:10]:
        way = domain.expert(task)
        graph = explore(domain, task, BRACKET.parse, turns=len(way))
        assert optimal_values(graph, discount=0.5).start == pytest.approx(0.5 ** (len(way) - 1))
        if len(way) > 1:
            assert optimal_values(explore(domain, task, BRACKET.parse, turns=len(way) - 1)).start == 0.0


@pytest.mark.parametrize("difficulty", [(0.0, 0.0), (0.0, 0.5)])
def test_splits_share_no_maze(difficulty: tuple[float, float]) -> None:
    domain = MazeDomain(difficulty=difficulty, num_test_tasks=60)
    test, validation = ({task.prompt for task in domain.tasks(split)} for split in ("test", "validation"))
    train = {domain.task(0.0, seed, "train").prompt for seed in range(150)}
    assert len(test) == len(validation) == 60
    assert not test & validation and not (test | validation) & train
    assert domain.tasks("train") == ()


def test_settings_reach_the_domain() -> None:
    made = build_domain(load_domain("maze", ["view=place", "seed=3", "difficulty=[0.1,0.2]", "test_tasks=7"]))
    assert isinstance(made, MazeDomain)
    assert (made.view, made.seed, made.difficulty, len(made.tasks("test"))) == ("place", 3, (0.1, 0.2), 7)
    assert load("smoke", ["domain.kind=maze", "view=place"]).domain == load_domain("maze", ["view=place"])


def test_tasks_follow_from_their_arguments() -> None:
    one, two = MazeDomain(), MazeDomain()
    assert one.task(0.3, 5, "train") == two.task(0.3, 5, "train")
    assert one.tasks("test") == two.tasks("test")
    others = [MazeDomain(seed=1).task(0.3, 5, "train"), one.task(0.3, 6, "train"), one.task(0.31, 5, "train")]
    assert all(other.payload != one.task(0.3, 5, "train").payload for other in others)
    assert len({other.key for other in others}) == 3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Maze(("S.", "G")), r"lengths \[2, 1\]"),
        (lambda: Maze(()), "lengths"),
        (lambda: Maze(("S?", "G.")), r"drawn with \['\?'\]"),
        (lambda: Maze(("S.", "..")), "1 starts and 0 goals"),
        (lambda: Maze(("SS", "G.")), "2 starts and 1 goals"),
        (lambda: Maze(("S#", "#G")), "cannot be reached"),
        (lambda: MazeDomain(difficulty=(0.5, 0.2)), "low <= high"),
        (lambda: MazeDomain(num_test_tasks=0), "at least 1 task"),
        (
            lambda: MazeDomain(view="sky"),  # type: ignore[arg-type]
            "view is 'sky'.*map, place",
        ),
        (lambda: MazeDomain().task(0.0, 0, "dev"), "no split 'dev'.*test, train, validation"),
        (lambda: MazeDomain().tasks("tset"), "did you mean 'test'"),
        (lambda: Maze.of(Task("x", "x", 0.0, "test")), "no lines"),
    ],
)
def test_bad_input_gets_a_sentence(make: Callable[[], object], words: str) -> None:
    with pytest.raises((ConfigError, DataError), match=words):
        make()
