"""Exact values: by hand on three states, and the equations that define them on caves and mazes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.engine.codec import BRACKET
from stepwell.envs.cave import Cave, CaveDomain
from stepwell.envs.exact import (
    State,
    StateGraph,
    StatePolicy,
    Trajectory,
    episode_advantages,
    explore,
    optimal_values,
    policy_values,
    soft_values,
    trajectories,
    uniform,
    values_of,
)
from stepwell.envs.maze import MazeDomain
from stepwell.errors import ConfigError, ContractViolation
from stepwell.protocols import Domain, Environment
from stepwell.seeding import generator
from stepwell.types import (
    Action,
    Ending,
    EndingKind,
    Episode,
    Floats,
    Invalid,
    Observation,
    Reply,
    Stop,
    Task,
    Tool,
    Turn,
    Verdict,
)

SAFE: Mapping[str, Mapping[str, tuple[float, str]]] = {
    "a": {"safe": (0.2, ""), "risk": (0.0, "b")},
    "b": {"up": (1.0, ""), "down": (0.0, "c")},
    "c": {"out": (0.5, ""), "back": (0.0, "a")},
}
"""State -> action -> reward, and the state that follows ("": over). From a one may earn 0.2 at once, or 1 by two moves; c leads back."""


@dataclass
class Walk:
    """One walk over such a table."""

    moves: Mapping[str, Mapping[str, tuple[float, str]]]
    fault: str = ""
    at: str = "a"
    steps: int = 0

    @property
    def tools(self) -> Sequence[Tool]:
        return [Tool(name, "", {"type": "object", "properties": {}}) for name in sorted({n for out in self.moves.values() for n in out})]

    def start(self) -> Observation:
        return self._seen()

    def step(self, action: Action | Invalid) -> Reply:
        assert isinstance(action, Action)
        reward, self.at = self.moves[self.at][action.name]
        self.steps += 1
        return Reply(self._seen(), reward=reward, done=self.at == "")

    def _seen(self) -> Observation:
        listed = None if self.fault == "no list" else tuple(f"{name}[]" for name in self.moves.get(self.at, ()))
        if self.fault == "list by time" and self.steps > 2 and listed:
            listed = listed[:1]
        if self.fault == "unreadable":
            listed = ("fly[]",)
        return Observation("seen", "" if self.fault == "no key" else self.at or "over", listed)


@dataclass
class Walks:
    """The domain of it."""

    moves: Mapping[str, Mapping[str, tuple[float, str]]]
    fault: str = ""

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        return Task("walk", "walk", difficulty, split)

    def tasks(self, split: str) -> Sequence[Task]:
        return ()

    def environment(self, task: Task, member: int) -> Environment:
        return Walk(self.moves, self.fault)

    def grade(self, episode: Episode) -> Verdict:
        return Verdict.of(0.0)

    def expert(self, task: Task) -> Sequence[Action] | None:
        return None


def graph_of(domain: Domain, task: Task, turns: int, most_states: int = 10_000) -> StateGraph:
    return explore(domain, task, BRACKET.parse, turns=turns, most_states=most_states)


def walk_graph(turns: int = 3, fault: str = "") -> StateGraph:
    domain = Walks(SAFE, fault)
    return graph_of(domain, domain.task(0.0, 0, "test"), turns)


def drawn(seed: int) -> StatePolicy:
    """Any probabilities, by state and turn."""

    def policy(state: State) -> Floats:
        return generator("policy", seed, state.key, state.turn).dirichlet(np.ones(len(state.actions)))

    return policy


@st.composite
def graphs(draw: st.DrawFn) -> StateGraph:
    difficulty, seed = draw(st.sampled_from([0.0, 0.25, 0.5])), draw(st.integers(0, 50))
    domain: Domain = CaveDomain() if draw(st.booleans()) else MazeDomain()
    return graph_of(domain, domain.task(difficulty, seed, "train"), 5)


few = settings(max_examples=15)
seeds = st.integers(0, 1000)


def paid(trajectory: Trajectory) -> float:
    return sum(trajectory.rewards)


# -- by hand ------------------------------------------------------------------------------------------------------------------


def test_three_states_by_hand() -> None:
    graph = walk_graph()
    assert graph.keys == ("a", "b", "c") and graph.names[1] == ("up[]", "down[]")
    values = policy_values(graph, uniform)
    assert values.v_HX[:, :3] == pytest.approx(np.array([[0.4125, 0.65, 0.425], [0.35, 0.625, 0.3], [0.1, 0.5, 0.25], [0, 0, 0]]))
    assert values.q("a") == pytest.approx({"safe[]": 0.2, "risk[]": 0.625})
    assert values.q("b", turn=1) == pytest.approx({"up[]": 1.0, "down[]": 0.25})
    assert values.advantages_HXA[0, 0] == pytest.approx([-0.2125, 0.2125])
    assert values.start == pytest.approx(0.4125)
    assert policy_values(graph, uniform, discount=0.5).start == pytest.approx(0.240625)


def test_the_best_policy_by_hand() -> None:
    """With one turn left the safe reward is all; with two, the risk pays 1; from c with three turns, out at once is not best."""
    values = optimal_values(walk_graph())
    assert values.v_HX[:, :3] == pytest.approx(np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.5], [0.2, 1.0, 0.5], [0, 0, 0]]))
    assert values.q("a", turn=2) == pytest.approx({"safe[]": 0.2, "risk[]": 0.0})
    assert optimal_values(walk_graph(), discount=0.4).q("a") == pytest.approx({"safe[]": 0.2, "risk[]": 0.4})


def test_costs_by_hand() -> None:
    """Where all rewards are negative, a place without an action is not the best choice."""
    moves = {"a": {"pay": (-1.0, ""), "walk": (-0.5, "b")}, "b": {"leave": (-0.2, "")}}
    graph = graph_of(Walks(moves), Walks(moves).task(0.0, 0, "test"), 2)
    assert optimal_values(graph).v_HX[0, :2] == pytest.approx([-0.7, -0.2])
    assert policy_values(graph, uniform).v_HX[0, :2] == pytest.approx([-0.85, -0.2])
    assert soft_values(graph, temperature=1e-3).values.start == pytest.approx(-0.7, abs=1e-3)


def test_soft_values_by_hand() -> None:
    """Two turns at temperature 0.5, uniform reference."""
    soft = soft_values(walk_graph(2), temperature=0.5)
    at_b = 0.5 * math.log(0.5 * math.exp(2.0) + 0.5)
    at_a = 0.5 * math.log(0.5 * math.exp(0.4) + 0.5 * math.exp(2 * at_b))
    assert soft.values.start == pytest.approx(at_a)
    assert soft.log_z == pytest.approx(math.log(0.5 * math.exp(0.4) + 0.25 * math.exp(2.0) + 0.25))
    assert soft.policy(State("a", 0, ("safe[]", "risk[]"))) == pytest.approx(
        [0.5 * math.exp(0.4 - 2 * at_a), 0.5 * math.exp(2 * (at_b - at_a))]
    )


def test_trajectories_by_hand() -> None:
    found = trajectories(walk_graph(2))
    assert [(t.states, t.actions, t.rewards, t.probability, t.done) for t in found] == [
        ((0,), (0,), (0.2,), 0.5, True),
        ((0, 1), (1, 0), (0.0, 1.0), 0.25, True),
        ((0, 1), (1, 1), (0.0, 0.0), 0.25, False),
    ]


def test_states_are_reached_by_their_shortest_way_and_no_further_than_the_limit() -> None:
    assert walk_graph(1).keys == ("a", "b") and walk_graph(1).names == (("safe[]", "risk[]"), ())
    assert walk_graph(2).names == (("safe[]", "risk[]"), ("up[]", "down[]"), ())


# -- equations ----------------------------------------------------------------------------------------------------------------


@few
@given(graphs(), seeds, st.sampled_from([1.0, 0.7]))
def test_values_are_expected_returns(graph: StateGraph, seed: int, discount: float) -> None:
    listed = trajectories(graph, drawn(seed))
    assert sum(t.probability for t in listed) == pytest.approx(1.0, abs=1e-12)
    expected = sum(t.probability * sum(discount**turn * r for turn, r in enumerate(t.rewards)) for t in listed)
    assert policy_values(graph, drawn(seed), discount=discount).start == pytest.approx(expected, abs=1e-12)


@few
@given(graphs(), seeds)
def test_bellman(graph: StateGraph, seed: int) -> None:
    """Equation by equation, with plain loops; advantages have mean 0 under their policy."""
    values, best = policy_values(graph, drawn(seed)), optimal_values(graph)
    for turn in range(graph.turns):
        for number, names in enumerate(graph.names):
            if not names:
                continue
            chosen = drawn(seed)(graph.state(number, turn))
            for made in (values, best):
                for a in range(len(names)):
                    after = graph.next_XA[number, a]
                    follow = 0.0 if after == len(graph.keys) else made.v_HX[turn + 1, after]
                    assert made.q_HXA[turn, number, a] == pytest.approx(graph.reward_XA[number, a] + follow, abs=1e-12)
            assert values.v_HX[turn, number] == pytest.approx(chosen @ values.q_HXA[turn, number, : len(names)], abs=1e-12)
            assert best.v_HX[turn, number] == max(best.q_HXA[turn, number, : len(names)])
            assert chosen @ values.advantages_HXA[turn, number, : len(names)] == pytest.approx(0.0, abs=1e-12)
    assert np.all(best.v_HX >= values.v_HX - 1e-12)
    assert best.start == pytest.approx(max(paid(t) for t in trajectories(graph)), abs=1e-12)


@few
@given(graphs(), seeds, seeds)
def test_one_policy_surpasses_another_by_the_advantages_it_takes(graph: StateGraph, seed: int, other: int) -> None:
    """V' - V is the expected sum of the advantages A along the episodes of the other policy (Kakade and Langford 2002, lemma 6.1)."""
    values = policy_values(graph, drawn(seed))
    taken = [
        t.probability * sum(values.advantages_HXA[turn, x, a] for turn, (x, a) in enumerate(zip(t.states, t.actions, strict=True)))
        for t in trajectories(graph, drawn(other))
    ]
    assert policy_values(graph, drawn(other)).start - values.start == pytest.approx(sum(taken), abs=1e-12)


@few
@given(graphs(), seeds, st.sampled_from([0.05, 0.5, 3.0]))
def test_the_partition_function_is_the_sum_over_trajectories(graph: StateGraph, seed: int, temperature: float) -> None:
    """And the trajectories of the soft-optimal policy have the distribution p_ref exp(R / temperature) / Z."""
    soft = soft_values(graph, temperature=temperature, reference=drawn(seed))
    weights = {t.actions: t.probability * math.exp(paid(t) / temperature) for t in trajectories(graph, drawn(seed))}
    assert soft.log_z == pytest.approx(math.log(sum(weights.values())), abs=1e-9)
    for t in trajectories(graph, soft.policy):
        assert t.probability == pytest.approx(weights[t.actions] / math.exp(soft.log_z), abs=1e-9)


def penalised(graph: StateGraph, policy: StatePolicy, reference: StatePolicy, temperature: float) -> float:
    """`E[R - temperature log(pi / pi_ref)]`, over listed trajectories."""
    ours, theirs = graph.probabilities(policy), graph.probabilities(reference)
    total = 0.0
    for t in trajectories(graph, policy):
        places = [(turn, x, a) for turn, (x, a) in enumerate(zip(t.states, t.actions, strict=True))]
        total += t.probability * (paid(t) - temperature * sum(math.log(ours[place] / theirs[place]) for place in places))
    return total


@few
@given(graphs(), seeds, seeds, st.sampled_from([0.1, 1.0]))
def test_the_soft_policy_attains_the_optimum(graph: StateGraph, seed: int, other: int, temperature: float) -> None:
    soft = soft_values(graph, temperature=temperature, reference=drawn(seed))
    assert penalised(graph, soft.policy, drawn(seed), temperature) == pytest.approx(soft.values.start, abs=1e-9)
    assert penalised(graph, drawn(other), drawn(seed), temperature) <= soft.values.start + 1e-9


@few
@given(graphs(), seeds)
def test_soft_values_lie_between_their_limits(graph: StateGraph, seed: int) -> None:
    best, plain = optimal_values(graph), policy_values(graph, drawn(seed))
    starts = [soft_values(graph, temperature=t, reference=drawn(seed)).values.start for t in (1e-4, 0.3, 1e5)]
    assert starts[0] == pytest.approx(best.start, abs=0.02)
    assert starts[2] == pytest.approx(plain.start, abs=1e-4)
    assert np.all(np.diff([best.start, *starts]) <= 1e-8), "the colder, the more"


def test_what_the_reference_never_does_the_soft_policy_never_does() -> None:
    def timid(state: State) -> Floats:
        return np.array([1.0, 0.0])

    soft = soft_values(walk_graph(), temperature=0.01, reference=timid)
    assert soft.values.start == pytest.approx(0.2)
    assert soft.policy_HXA[0, 0].tolist() == [1.0, 0.0]


# -- episodes -----------------------------------------------------------------------------------------------------------------


def played(cave: Cave, *actions: Action | Invalid) -> Episode:
    """An episode of these actions."""
    domain, task = CaveDomain(), cave.task("mine")
    environment = domain.environment(task)
    start = environment.start()
    turns = tuple(
        Turn(np.array([1]), np.array([0]), np.zeros(1), "", action, environment.step(action), Stop.LENGTH, 0) for action in actions
    )
    return Episode(task, 0, start, turns, Ending(EndingKind.TERMINATED), Verdict.of(0.1))


HM = Invalid("hm", "no action")


def test_advantages_of_an_episode_with_a_stumble() -> None:
    """An invalid turn has none, takes a turn all the same, and what follows is seen from the state that it left."""
    cave = Cave(("hall", "pit", "vault"), ((1, 2), (None, None), (None, None)), (0.3, 0.1, 1.0))
    values = policy_values(graph_of(CaveDomain(), cave.task("mine"), 4), uniform)
    advantages, known = episode_advantages(values, played(cave, HM, Action("left"), Action("right"), Action("stop")))
    assert known.tolist() == [False, True, False, True]
    assert advantages == pytest.approx([0.0, 0.1 - (0.1 + 0.3 + 1.0) / 3, 0.0, 0.0])
    late, known = episode_advantages(values, played(cave, HM, HM, HM, Action("left"), Action("stop")))
    assert known.tolist() == [False, False, False, True, False], "nothing is known beyond the limit of turns"
    assert late[3] == pytest.approx(0.0 - 0.3 / 3), "with no turn left to stop in, a move is worth nothing"


# -- refusals -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "words"), [("no key", "no state key"), ("no list", "no list of admissible"), ("list by time", "lists other actions")]
)
def test_what_cannot_be_enumerated_is_refused(fault: str, words: str) -> None:
    with pytest.raises((ConfigError, ContractViolation), match=words):
        walk_graph(5, fault)


def test_bad_arguments_are_refused() -> None:
    graph = walk_graph()
    with pytest.raises(ContractViolation, match=r"'fly\[\]' of task 'walk' cannot be read"):
        walk_graph(fault="unreadable")
    with pytest.raises(ConfigError, match="turns is 0"):
        walk_graph(0)
    with pytest.raises(ConfigError, match="more than 2 states in 3 turns"):
        graph_of(Walks(SAFE), Walks(SAFE).task(0.0, 0, "test"), 3, most_states=2)
    with pytest.raises(ConfigError, match=r"discount is 1\.5"):
        optimal_values(graph, discount=1.5)
    with pytest.raises(ConfigError, match="temperature is 0"):
        soft_values(graph, temperature=0)
    for wrong in ([0.5, 0.6], [1.0], [1.5, -0.5], [math.nan, 1.0]):
        with pytest.raises(ConfigError, match="one probability for each"):
            policy_values(graph, lambda state, wrong=wrong: np.array(wrong))  # type: ignore[misc]


def test_a_policy_that_is_an_array_has_the_same_values() -> None:
    graph = explore(CaveDomain(), CaveDomain().task(0.3, 1, "train"), BRACKET.parse, turns=4)
    asked, given_HXA = policy_values(graph, uniform, discount=0.9), graph.probabilities(uniform)
    made = values_of(graph, given_HXA, discount=0.9)
    assert np.array_equal(made.v_HX, asked.v_HX) and np.array_equal(made.q_HXA, asked.q_HXA)
    with pytest.raises(ConfigError, match="have shape"):
        values_of(graph, given_HXA[1:])
