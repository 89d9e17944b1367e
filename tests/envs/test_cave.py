"""The cave: one-way passages, dead ends, treasures of different worth, and a policy that decides when to stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from stepwell.build import build_domain
from stepwell.configure import load_domain
from stepwell.engine.codec import BRACKET
from stepwell.envs.cave import Cave, CaveDomain
from stepwell.envs.exact import explore, optimal_values, policy_values, trajectories, uniform
from stepwell.errors import ConfigError, DataError, EnvironmentFault
from stepwell.testing import check_environment
from stepwell.types import Action, Invalid, Task

CAVE = Cave(("hall", "pit", "vault", "well"), ((1, 2), (2, None), (3, 1), (None, None)), (0.0, 0.3, 0.6, 1.0))


def test_a_walk() -> None:
    environment = CaveDomain().environment(CAVE.task("mine"))
    start = environment.start()
    assert start.text.splitlines() == [
        "stop where the best treasure lies. pit holds 30, vault holds 60, well holds 100.",
        "hall: left to pit, right to vault",
        "pit: left to vault",
        "vault: left to well, right to pit",
        "well: no way on",
        "you are in hall: left to pit, right to vault",
    ]
    assert start.admissible == ("left[]", "right[]", "stop[]")
    moved = environment.step(Action("left"))
    assert (moved.observation.text, moved.observation.admissible) == ("you are in pit: left to vault", ("left[]", "stop[]"))
    wall = environment.step(Action("right"))
    assert (wall.valid, wall.observation.text) == (False, "a wall. you are in pit: left to vault")
    assert wall.observation.state_key == moved.observation.state_key
    end = environment.step(Action("stop"))
    assert (end.reward, end.done, end.observation.text, end.observation.admissible) == (0.3, True, "you stop and keep 30", ())
    with pytest.raises(EnvironmentFault):
        environment.step(Action("left"))


def test_what_is_no_move_is_counted_and_moves_nothing() -> None:
    environment = CaveDomain().environment(CAVE.task("mine"))
    key = environment.start().state_key
    for action in (Invalid("hm", "no action"), Action("up"), Action("left", {"far": "yes"})):
        reply = environment.step(action)
        assert (reply.valid, reply.done, reply.observation.state_key) == (False, False, key)


def test_values_by_hand() -> None:
    """Three turns, all admissible moves alike. Two ways lead to the vault, of one and of two steps; no way leads back to the hall."""
    domain, task = CaveDomain(), CAVE.task("mine")
    graph = explore(domain, task, BRACKET.parse, turns=3)
    last = {"pit": 0.3 / 2, "vault": 0.6 / 3}
    then = {"pit": (0.3 + last["vault"]) / 2, "vault": (0.6 + 1.0 + last["pit"]) / 3}
    assert policy_values(graph, uniform).start == pytest.approx((then["pit"] + then["vault"] + 0.0) / 3)
    assert optimal_values(graph).q("mine|hall") == pytest.approx({"left[]": 0.6, "right[]": 1.0, "stop[]": 0.0})
    assert optimal_values(explore(domain, task, BRACKET.parse, turns=4)).q("mine|hall")["left[]"] == 1.0
    assert Counter(len(t.actions) for t in trajectories(graph)) == {1: 1, 2: 2, 3: 6}
    assert "mine|hall" not in [graph.keys[x] for x in graph.next_XA[graph.open_XA] if x < len(graph.keys)]


def test_generated_caves_keep_the_contract() -> None:
    domain = CaveDomain()
    for difficulty in (0.0, 0.4, 1.0):
        for seed in range(3):
            check_environment(domain, domain.task(difficulty, seed, "train"))
        cave = Cave.of(domain.task(difficulty, 0, "train"))
        assert len(cave.names) == 4 + round(8 * difficulty)
        assert sorted(cave.worths)[-4:] == [0.0, 0.3, 0.6, 1.0]


def test_generated_caves_have_what_makes_credit_hard() -> None:
    """Dead ends, choices, passages that lead back and many that do not, ways of different length, and no best treasure at the entrance."""
    caves = [Cave.of(task) for task in CaveDomain().tasks("test")[:100]]
    open_ways = [[end for end in pair if end is not None] for cave in caves for pair in cave.passages]
    counts = Counter(map(len, open_ways))
    assert min(counts[n] for n in (0, 1, 2)) > 50
    one_way = sum(a not in cave.passages[b] for cave in caves for a, pair in enumerate(cave.passages) for b in pair if b is not None)
    both_ways = sum(a in cave.passages[b] for cave in caves for a, pair in enumerate(cave.passages) for b in pair if b is not None)
    assert one_way > both_ways > 20
    assert all(cave.worths[0] == 0.0 for cave in caves)
    lengths = Counter(len(cave.best_way() or []) for cave in caves)
    assert min(lengths) == 2 and len(lengths) >= 3


def test_every_chamber_can_be_reached() -> None:
    for seed in range(20):
        cave = Cave.of(CaveDomain().task(1.0, seed, "train"))
        seen, waiting = {0}, [0]
        while waiting:
            for end in cave.passages[waiting.pop()]:
                if end is not None and end not in seen:
                    seen.add(end)
                    waiting.append(end)
        assert len(seen) == len(cave.names) == 12


def test_the_expert_is_the_best_policy() -> None:
    domain = CaveDomain()
    for task in domain.tasks("validation")[:10]:
        way = domain.expert(task)
        assert way is not None
        graph = explore(domain, task, BRACKET.parse, turns=len(way))
        assert optimal_values(graph).start == 1.0
        assert optimal_values(explore(domain, task, BRACKET.parse, turns=len(way) - 1)).start < 1.0


def test_a_cave_of_ones_own_may_have_no_best_treasure() -> None:
    poor = Cave(("hall", "pit"), ((1, None), (None, None)), (0.2, 0.0))
    assert poor.best_way() == ["stop"] and CaveDomain().expert(poor.task("poor")) is None
    empty = Cave(("hall",), ((None, None),), (0.0,))
    assert empty.best_way() is None and CaveDomain().expert(empty.task("empty")) is None
    hidden = Cave(("hall", "pit"), ((None, None), (None, None)), (0.2, 1.0))
    assert CaveDomain().expert(hidden.task("hidden")) is None, "what cannot be reached cannot be shown"


def test_settings_reach_the_domain() -> None:
    made = build_domain(load_domain("cave", ["seed=3", "difficulty=[0.1,0.2]", "test_tasks=7"]))
    assert isinstance(made, CaveDomain)
    assert (made.seed, made.difficulty, len(made.tasks("test"))) == (3, (0.1, 0.2), 7)


def test_splits_share_no_cave() -> None:
    domain = CaveDomain(difficulty=(0.0, 0.1), num_test_tasks=60)
    test, validation = ({task.prompt for task in domain.tasks(split)} for split in ("test", "validation"))
    train = {domain.task(0.0, seed, "train").prompt for seed in range(150)}
    assert len(test) == len(validation) == 60
    assert not test & validation and not (test | validation) & train
    assert domain.tasks("train") == ()
    assert domain.tasks("test") == CaveDomain(difficulty=(0.0, 0.1), num_test_tasks=60).tasks("test")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Cave(("hall", "hall"), ((1, None), (None, None)), (0.0, 1.0)), r"2 names \(1 different\)"),
        (lambda: Cave((), (), ()), "at least one"),
        (lambda: Cave(("hall",), ((4, None),), (0.0,)), "leads to chamber 4; this cave has chambers 0 to 0"),
        (lambda: Cave(("hall",), ((-1, None),), (0.0,)), "leads to chamber -1"),
        (lambda: Cave(("hall",), ((None, None),), (1.5,)), r"\(1\.5,\); each lies in"),
        (lambda: CaveDomain(difficulty=(-0.1, 0.2)), "low <= high"),
        (lambda: CaveDomain().tasks("dev"), "no split 'dev'"),
        (lambda: Cave.of(Task("x", "x", 0.0, "test")), "none of a cave's"),
        (lambda: Cave.of(Task("x", "x", 0.0, "test", {"names": ["a"], "passages": [[None]], "worths": [1.0]})), "none of a cave's"),
    ],
)
def test_bad_input_gets_a_sentence(make: Callable[[], object], words: str) -> None:
    with pytest.raises((ConfigError, DataError), match=words):
        make()
