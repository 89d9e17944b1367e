"""Exact values of small environments: what every judge and every credit rule can be held against.

`explore` plays all admissible actions in all states, up to a limit of turns. On the graph that comes out, values of any policy, optimal
values, and soft (maximum-entropy) values are one backward pass each, and all trajectories can be listed with their probabilities.

Legend: H turn (0 is the first; the last row, after the last turn, is zero), X state, A admissible action of a state (padded; `open_XA` says
where one is).

The return of an episode is the discounted sum of the environment's rewards; what comes after the limit of turns is worth nothing. Policies
here see the state and the turn. A language model sees the whole history: it is such a policy where its context is a function of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stepwell.errors import ConfigError, ContractViolation
from stepwell.protocols import Domain
from stepwell.types import Action, Bools, Episode, Floats, Ids, Invalid, Observation, Reply, Task, Tool

__all__ = [
    "SoftValues",
    "State",
    "StateGraph",
    "StatePolicy",
    "Trajectory",
    "Values",
    "episode_advantages",
    "explore",
    "optimal_values",
    "policy_values",
    "soft_values",
    "trajectories",
    "uniform",
    "values_of",
]


class State(NamedTuple):
    """Where a decision is made.

    Attributes:
        key: The environment's `state_key`.
        turn: Turns taken so far.
        actions: What is admissible, in the environment's own words.
    """

    key: str
    turn: int
    actions: tuple[str, ...]


StatePolicy = Callable[[State], Floats]
"""Probabilities of `State.actions`, in their order. [A]"""


@dataclass(frozen=True, slots=True, eq=False)
class StateGraph:
    """All states that admissible actions reach within a number of turns, and where each action leads.

    Attributes:
        turns: The limit.
        keys: State keys; the first is the start. [X]
        names: Admissible actions of each state, as listed. [X] of [A]
        actions: The same as the environment is told them.
        reward_XA: 0 where there is no action.
        next_XA: Number of the state that follows; X (one more than the last) where the episode is over.
    """

    turns: int
    keys: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    actions: tuple[tuple[Action, ...], ...]
    reward_XA: Floats
    next_XA: Ids

    @property
    def open_XA(self) -> Bools:
        """Where there is an action."""
        width = self.reward_XA.shape[1]
        return np.array([[a < len(names) for a in range(width)] for names in self.names], np.bool_).reshape(len(self.keys), width)

    def state(self, number: int, turn: int) -> State:
        """What a policy is shown of a state."""
        return State(self.keys[number], turn, self.names[number])

    def probabilities(self, policy: StatePolicy) -> Floats:
        """The policy as an array, 0 where there is no action. [H, X, A]

        Raises:
            ConfigError: Somewhere the policy gives no probabilities.
        """
        made_HXA = np.zeros((self.turns, *self.reward_XA.shape))
        for turn in range(self.turns):
            for number, names in enumerate(self.names):
                if names:
                    state = self.state(number, turn)
                    made_HXA[turn, number, : len(names)] = _checked(policy(state), state)
        return made_HXA


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Values of a policy in every state, before every turn.

    Attributes:
        graph: Of which environment.
        v_HX: Expected discounted return from here on; row `turns`, and a state where the episode is over, are 0. [turns + 1, X + 1]
        q_HXA: The same after an action; 0 where there is none. [turns, X, A]
    """

    graph: StateGraph
    v_HX: Floats
    q_HXA: Floats

    @property
    def start(self) -> float:
        """The expected return of a whole episode."""
        return float(self.v_HX[0, 0])

    @property
    def advantages_HXA(self) -> Floats:
        """`A_t(x, a) = Q_t(x, a) - V_t(x)`; 0 where there is no action."""
        return np.where(self.graph.open_XA, self.q_HXA - self.v_HX[:-1, :-1, None], 0.0)

    def q(self, key: str, turn: int = 0) -> dict[str, float]:
        """The value of each action in a state, before a turn."""
        number = self.graph.keys.index(key)
        return {name: float(self.q_HXA[turn, number, a]) for a, name in enumerate(self.graph.names[number])}


@dataclass(frozen=True, slots=True, eq=False)
class SoftValues:
    """Maximum-entropy control at a temperature, relative to a reference policy.

    Attributes:
        values: Soft V and Q.
        policy_HXA: The policy that attains them; 0 where there is no action.
        log_z: Log partition function of the trajectories: `log of the sum over tau of p_ref(tau) exp(R(tau) / temperature)`.
    """

    values: Values
    policy_HXA: Floats
    log_z: float

    def policy(self, state: State) -> Floats:
        """The soft-optimal policy as a function of the state. [A]"""
        return self.policy_HXA[state.turn, self.values.graph.keys.index(state.key), : len(state.actions)]


class Trajectory(NamedTuple):
    """One way through a graph: states and actions by number, rewards, its probability, and whether the environment said done."""

    states: tuple[int, ...]
    actions: tuple[int, ...]
    rewards: tuple[float, ...]
    probability: float
    done: bool


# -- exploring ----------------------------------------------------------------------------------------------------------------


def explore(
    domain: Domain,
    task: Task,
    parse: Callable[[str, Sequence[Tool]], Action | Invalid],
    *,
    turns: int,
    most_states: int = 10_000,
) -> StateGraph:
    """Plays every admissible action in every state. A state is reached again by replaying the actions that led there first.

    Args:
        domain: Of the task; its observations must have a `state_key`, and list what is `admissible`.
        task: What is played.
        parse: Text to action, e.g. `codec("bracket").parse`.
        turns: The limit of turns of an episode.
        most_states: An environment with more states is refused.

    Raises:
        ConfigError: The environment cannot be enumerated: no key, no list, or too many states.
        ContractViolation: Equal keys, but other admissible actions.
    """
    if turns < 1:
        raise ConfigError(f"turns is {turns}; an episode has at least 1 turn.")
    first = domain.environment(task, 0).start()
    numbers = {first.state_key: 0}
    names = [_listed(first, task)]
    ways: list[tuple[Action, ...]] = [()]
    edges: list[list[_Edge]] = []
    while len(edges) < len(ways):
        way = ways[len(edges)]
        edges.append([])
        for name in names[len(edges) - 1] if len(way) < turns else ():
            action, reply = _after(domain, task, way, name, parse)
            seen = reply.observation
            if not reply.done and seen.state_key not in numbers:
                if len(ways) >= most_states:
                    raise ConfigError(
                        f"Task {task.key!r} has more than {most_states} states in {turns} turns; "
                        "allow more of them (most_states), or take fewer turns or an easier task."
                    )
                numbers[seen.state_key] = len(ways)
                names.append(_listed(seen, task))
                ways.append((*way, action))
            following = -1 if reply.done else numbers[seen.state_key]
            if not reply.done and names[following] != _listed(seen, task):
                raise ContractViolation(f"State {seen.state_key!r} of task {task.key!r} lists other actions on another way to it.")
            edges[-1].append(_Edge(action, float(reply.reward), following))
    return _graph(turns, tuple(numbers), names, edges)


class _Edge(NamedTuple):
    """An action taken: what it paid and the state that follows (-1: over)."""

    action: Action
    reward: float
    following: int


def _listed(seen: Observation, task: Task) -> tuple[str, ...]:
    if not seen.state_key or seen.admissible is None:
        missing = "state key" if not seen.state_key else "list of admissible actions"
        raise ConfigError(f"An observation of task {task.key!r} has no {missing}; an environment can be enumerated only with both.")
    return seen.admissible


def _after(
    domain: Domain, task: Task, way: Sequence[Action], name: str, parse: Callable[[str, Sequence[Tool]], Action | Invalid]
) -> tuple[Action, Reply]:
    """The reply to an action after others, in a fresh environment."""
    environment = domain.environment(task, 0)
    environment.start()
    for action in way:
        environment.step(action)
    taken = parse(name, environment.tools)
    if isinstance(taken, Invalid):
        raise ContractViolation(f"The admissible action {name!r} of task {task.key!r} cannot be read: {taken.reason}")
    return taken, environment.step(taken)


def _graph(turns: int, keys: tuple[str, ...], names: Sequence[tuple[str, ...]], edges: Sequence[Sequence[_Edge]]) -> StateGraph:
    shape = (len(keys), max(1, *(len(out) for out in edges)))
    reward_XA, next_XA = np.zeros(shape), np.full(shape, len(keys), np.int64)
    for number, out in enumerate(edges):
        for a, edge in enumerate(out):
            reward_XA[number, a] = edge.reward
            next_XA[number, a] = len(keys) if edge.following < 0 else edge.following
    # States that only the last turn reaches have not been played on: nothing is decided there.
    listed = tuple(name[: len(out)] for name, out in zip(names, edges, strict=True))
    return StateGraph(turns, keys, listed, tuple(tuple(edge.action for edge in out) for out in edges), reward_XA, next_XA)


def uniform(state: State) -> Floats:
    """All admissible actions alike."""
    return np.full(len(state.actions), 1.0 / len(state.actions))


# -- values -------------------------------------------------------------------------------------------------------------------


def policy_values(graph: StateGraph, policy: StatePolicy, *, discount: float = 1.0) -> Values:
    """Values of a policy, by backward induction.

    `Q_t(x, a) = r(x, a) + discount V_{t+1}(x')` and `V_t(x) = sum over a of pi(a | x, t) Q_t(x, a)`: the Bellman equations (Sutton and
    Barto, 2nd edition, section 3.5) over a finite horizon.

    Raises:
        ConfigError: A discount outside [0, 1], or a policy that gives no probabilities.
    """
    return values_of(graph, graph.probabilities(policy), discount=discount)


def values_of(graph: StateGraph, chosen_HXA: Floats, *, discount: float = 1.0) -> Values:
    """`policy_values` of a policy that is there as an array: the same, without asking it about one state after the other.

    Args:
        graph: Of which environment.
        chosen_HXA: Probabilities, 0 where there is no action, as `StateGraph.probabilities` makes them. [H, X, A]
        discount: Per turn, in [0, 1].

    Raises:
        ConfigError: A discount outside [0, 1], or an array of another shape.
    """
    wanted = (graph.turns, *graph.reward_XA.shape)
    if chosen_HXA.shape != wanted:
        raise ConfigError(f"The policy's probabilities have shape {chosen_HXA.shape}; this graph's turns, states and actions are {wanted}.")
    return _backward(graph, discount, lambda turn, q_XA: (chosen_HXA[turn] * q_XA).sum(axis=1))


def optimal_values(graph: StateGraph, *, discount: float = 1.0) -> Values:
    """Values of the best policy: `V_t(x) = max over a of Q_t(x, a)` (Sutton and Barto, 2nd edition, section 3.6).

    Raises:
        ConfigError: A discount outside [0, 1].
    """
    closed_XA = ~graph.open_XA
    dead_X = closed_XA.all(axis=1)
    return _backward(graph, discount, lambda turn, q_XA: np.where(dead_X, 0.0, np.where(closed_XA, -np.inf, q_XA).max(axis=1)))


def soft_values(graph: StateGraph, *, temperature: float, reference: StatePolicy = uniform) -> SoftValues:
    """Values of the best policy that pays for leaving the reference: it maximises `E[R] - temperature KL(pi || pi_ref)`.

    `V_t(x) = temperature log of the sum over a of pi_ref(a | x) exp(Q_t(x, a) / temperature)`, `Q_t(x, a) = r(x, a) + V_{t+1}(x')`, and the
    policy `pi_ref(a | x) exp((Q_t(x, a) - V_t(x)) / temperature)`. The distribution of its trajectories is
    `p_ref(tau) exp(R(tau) / temperature) / Z`, with `log Z = V_0(start) / temperature`, where the environment draws nothing (as ours do).

    Source: maximum-entropy control, arXiv 1805.00909, section 2 (there with a uniform reference, up to a constant); relative to a policy,
    arXiv 2601.10201. As the temperature goes to 0 it is `optimal_values` over what the reference ever does; as it grows, `policy_values`
    of the reference. Not discounted: with a discount the identity for Z would not hold.

    Raises:
        ConfigError: A temperature that is not positive.
    """
    if not (np.isfinite(temperature) and temperature > 0):
        raise ConfigError(f"The temperature is {temperature}; allowed is a positive number (optimal_values is the limit at 0).")
    with np.errstate(divide="ignore"):
        log_reference_HXA = np.log(graph.probabilities(reference))

    def soft(turn: int, q_XA: Floats) -> Floats:
        return temperature * _logsumexp(log_reference_HXA[turn] + q_XA / temperature)

    values = _backward(graph, 1.0, soft)
    excess_HXA = (values.q_HXA - values.v_HX[:-1, :-1, None]) / temperature
    return SoftValues(values, np.exp(log_reference_HXA + excess_HXA), values.start / temperature)


def _backward(graph: StateGraph, discount: float, value: Callable[[int, Floats], Floats]) -> Values:
    if not 0.0 <= discount <= 1.0:
        raise ConfigError(f"The discount is {discount}; it lies in [0, 1].")
    num_states = len(graph.keys)
    v_HX = np.zeros((graph.turns + 1, num_states + 1))
    q_HXA = np.zeros((graph.turns, *graph.reward_XA.shape))
    for turn in reversed(range(graph.turns)):
        q_HXA[turn] = np.where(graph.open_XA, graph.reward_XA + discount * v_HX[turn + 1][graph.next_XA], 0.0)
        v_HX[turn, :num_states] = value(turn, q_HXA[turn])
    return Values(graph, v_HX, q_HXA)


def _logsumexp(values_XA: Floats) -> Floats:
    """Over actions; 0 for a state without any."""
    most_X = values_XA.max(axis=1)
    most_X = np.where(np.isfinite(most_X), most_X, 0.0)
    with np.errstate(divide="ignore"):
        total_X = most_X + np.log(np.exp(values_XA - most_X[:, None]).sum(axis=1))
    return np.where(np.isfinite(total_X), total_X, 0.0)


def _checked(probabilities_A: Floats, state: State) -> Floats:
    made_A = np.asarray(probabilities_A, np.float64)
    if made_A.shape != (len(state.actions),) or not np.all(made_A >= 0) or abs(made_A.sum() - 1.0) > 1e-6:
        raise ConfigError(
            f"In state {state.key!r} the policy gives {made_A.tolist()} for the actions {list(state.actions)}; "
            "it must be one probability for each, with sum 1."
        )
    return made_A


# -- episodes -----------------------------------------------------------------------------------------------------------------


def trajectories(graph: StateGraph, policy: StatePolicy = uniform) -> list[Trajectory]:
    """All ways of nonzero probability through the graph, in the order of their actions; their probabilities sum to 1."""
    chosen_HXA = graph.probabilities(policy)
    found: list[Trajectory] = []

    def walk(so_far: Trajectory, number: int) -> None:
        turn = len(so_far.actions)
        over = number == len(graph.keys)
        if over or turn == graph.turns or not graph.names[number]:
            found.append(so_far._replace(done=over))
            return
        for a in np.flatnonzero(chosen_HXA[turn, number]).tolist():
            longer = Trajectory(
                (*so_far.states, number),
                (*so_far.actions, a),
                (*so_far.rewards, float(graph.reward_XA[number, a])),
                so_far.probability * float(chosen_HXA[turn, number, a]),
                False,
            )
            walk(longer, int(graph.next_XA[number, a]))

    walk(Trajectory((), (), (), 1.0, False), 0)
    return found


def episode_advantages(values: Values, episode: Episode) -> tuple[Floats, Bools]:
    """The exact advantage of each turn of an episode: what a judge of its steps should rank them by.

    Returns:
        Advantages, and where there is one: not where the action was not among the admissible ones, nor where the state is unknown. [turns]
    """
    advantages_HXA = values.advantages_HXA
    made, known = np.zeros(len(episode.turns)), np.zeros(len(episode.turns), np.bool_)
    numbers = {key: number for number, key in enumerate(values.graph.keys)}
    seen = episode.start
    for turn, played in enumerate(episode.turns[: values.graph.turns]):
        number = numbers.get(seen.state_key)
        if number is not None and played.action in values.graph.actions[number]:
            made[turn] = advantages_HXA[turn, number, values.graph.actions[number].index(played.action)]
            known[turn] = True
        seen = played.reply.observation
    return made, known
