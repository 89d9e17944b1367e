"""A task whose every state is known, and episodes of it in arrays: what a training step needs in milliseconds.

`explore` plays the real environment once; from then on an episode is a way through its graph, with the replies that the environment gave.
An episode's tokens are, for each turn, a mark, the state, a mark, the observation (one token for each text) and the action (one token for
each word). A table with a window of two tokens sees the observation, and the action where it is asked after it; that is the policy. One
with a window of four sees the state besides: a judge may know what the policy forgets, as a reader of the whole transcript does.

Legend: N episode, H turn, X state, A action, S step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch

from stepwell.engine.codec import BRACKET
from stepwell.engine.local import Text
from stepwell.engine.table import TableEngine, TableModel
from stepwell.envs.exact import StateGraph, Values, explore, optimal_values, values_of
from stepwell.errors import StepwellError
from stepwell.losses import CloningLoss
from stepwell.protocols import Domain, Environment, ModelSpec, OptimizerSpec
from stepwell.rollout import Prefix
from stepwell.types import (
    Action,
    Bools,
    Ending,
    EndingKind,
    Episode,
    Floats,
    Group,
    Ids,
    Invalid,
    Observation,
    Reply,
    Row,
    Stop,
    Task,
    Tool,
    Turn,
    Verdict,
)

TIE = 1e-6
"""Values closer to each other than this are the same."""
__all__ = ["Grader", "Player", "World", "open_domain"]

SEES = {"view": 2, "state": 4}
"""Windows of tables."""
_NO_FLOATS = np.zeros(0)


class _Open:
    """An environment in which every word is admissible in every state: a move against a wall is one, too."""

    def __init__(self, inner: Environment, words: tuple[str, ...]) -> None:
        self._inner, self._words = inner, words

    @property
    def tools(self) -> Sequence[Tool]:
        return self._inner.tools

    def start(self) -> Observation:
        return replace(self._inner.start(), admissible=self._words)

    def step(self, action: Action | Invalid) -> Reply:
        reply = self._inner.step(action)
        return replace(reply, observation=replace(reply.observation, admissible=self._words))


class _OpenDomain:
    def __init__(self, inner: Domain, words: tuple[str, ...]) -> None:
        self._inner, self._words = inner, words

    def environment(self, task: Task, member: int = 0) -> _Open:
        return _Open(self._inner.environment(task, member), self._words)


def open_domain(domain: Domain, words: tuple[str, ...]) -> Domain:
    """The domain with all words admissible everywhere, as a policy that may say any of them finds it."""
    return _OpenDomain(domain, words)  # type: ignore[return-value]  # explore needs environments alone


class Grader(NamedTuple):
    """Gives an episode its verdict; a share of the time without looking.

    Attributes:
        noise: Share of verdicts that are drawn: a fair coin, or in [0, 1] where outcomes are graded.
        graded: Whether outcomes are.
    """

    noise: float = 0.0
    graded: bool = False

    def __call__(self, worth_N: Floats, rng: np.random.Generator) -> Floats:
        """What is said of episodes worth so much. [N]"""
        if not self.noise:
            return worth_N
        drawn_N = rng.random(len(worth_N))
        drawn_N = drawn_N if self.graded else np.round(drawn_N)
        return np.where(rng.random(len(worth_N)) < self.noise, drawn_N, worth_N)


@dataclass(frozen=True, eq=False)
class World:
    """One task, known completely. Made by `World.of`.

    Attributes:
        task: That is played.
        graph: Its states.
        words: What can be said: the token of word a is a.
        view_X: The token of what is seen in each state; that of the state itself is `state_X`.
        replies, actions: Of the environment, to each word in each state. [X][A]
        first: Observation at the start.
        best: Optimal values.
    """

    task: Task
    graph: StateGraph
    words: tuple[str, ...]
    view_X: Ids
    replies: tuple[tuple[Reply, ...], ...]
    actions: tuple[Action, ...]
    first: Observation
    best: Values

    @classmethod
    def of(cls, domain: Domain, task: Task, words: Sequence[str], turns: int) -> World:
        """Plays all words in all states, and keeps what the environment said."""
        words = tuple(words)
        opened = open_domain(domain, words)
        graph = explore(opened, task, BRACKET.parse, turns=turns)
        assert all(names in ((), words) for names in graph.names)
        first, replies = _replies(opened, task, graph)
        texts = {graph.keys[0]: "start"} | {r.observation.state_key: r.observation.text for some in replies for r in some}
        seen: dict[str, int] = {}
        tokens = [len(words) + 1 + len(graph.keys) + seen.setdefault(texts[key], len(seen)) for key in graph.keys]
        return cls(task, graph, words, np.array(tokens), replies, graph.actions[0], first, optimal_values(graph))

    @property
    def turns(self) -> int:
        """The limit."""
        return self.graph.turns

    @property
    def mark(self) -> int:
        """The token before an observation."""
        return len(self.words)

    # -- policies -------------------------------------------------------------------------------------------------------------

    @property
    def state_X(self) -> Ids:
        """The token of each state."""
        return self.mark + 1 + np.arange(len(self.graph.keys))

    def engine(self, window: int) -> TableEngine:
        """Tables over this world's words."""
        text = Text(lambda ids: "".join(self.words[i] for i in ids), frozenset({self.mark}))
        return TableEngine(len(self.words), text, window=window)

    def policy(self, engine: TableEngine, start_XA: Floats, optimizer: OptimizerSpec) -> TableModel:
        """A table that says what a given policy says; by one step of gradient descent on its log-probs."""
        model = engine.model("policy", ModelSpec(optimizer=OptimizerSpec(kind="sgd", max_grad_norm=1e9)))
        rows, done = [], set()
        for state, view, said_A in zip(self.state_X.tolist(), self.view_X.tolist(), np.log(start_XA), strict=True):
            context = self._context(state, view)
            if engine.key(context) not in done:
                done.add(engine.key(context))
                by = said_A - said_A.mean()
                ids = [np.append(context, a) for a in range(len(self.words))]
                rows += [Row.of(i, np.array([4]), weight=np.array([w])) for i, w in zip(ids, by.tolist(), strict=True)]
        model.backward(rows, CloningLoss())
        model.step(1.0)
        model.restart_optimizer(optimizer)
        return model

    def probabilities(self, model: TableModel) -> Floats:
        """What a table says in each state. [X, A]"""
        tokens = zip(self.state_X.tolist(), self.view_X.tolist(), strict=True)
        keys = [model.engine.key(self._context(state, view)) for state, view in tokens]
        with torch.no_grad():
            return torch.softmax(model.logits(keys) / model.spec.temperature, dim=-1).numpy()

    def _context(self, state: int, view: int) -> Ids:
        return np.array([self.mark, state, self.mark, view])

    def values(self, chosen_XA: Floats) -> Values:
        """Of a policy that looks at the state alone."""
        if self._levels is None:
            chosen_HXA = np.broadcast_to(np.where(self.graph.open_XA, chosen_XA, 0.0), (self.turns, *chosen_XA.shape))
            return values_of(self.graph, chosen_HXA)
        return self._by_levels(chosen_XA)

    def _by_levels(self, chosen_XA: Floats) -> Values:
        """The same where every state belongs to one turn: each is looked at once. Rows of other turns say the same."""
        assert self._levels is not None
        graph = self.graph
        v_X, q_XA = np.zeros(len(graph.keys) + 1), np.zeros(graph.reward_XA.shape)
        for level in reversed(self._levels):
            q_XA[level] = graph.reward_XA[level] + v_X[graph.next_XA[level]]
            v_X[level] = (chosen_XA[level] * q_XA[level]).sum(axis=1)
        return Values(graph, np.broadcast_to(v_X, (self.turns + 1, len(v_X))), np.broadcast_to(q_XA, (self.turns, *q_XA.shape)))

    def places(self, episode: Episode) -> tuple[Ids, Ids]:
        """State and action of each turn. [S]"""
        keys = [episode.start.state_key, *(turn.reply.observation.state_key for turn in episode.turns)]
        number = self._numbers
        return np.array([number[key] for key in keys[: len(episode.turns)]]), np.array([int(t.token_ids[0]) for t in episode.turns])

    def advantages(self, values: Values, episode: Episode) -> Floats:
        """The exact advantage of each turn. [S]"""
        states_S, actions_S = self.places(episode)
        turns_S = np.arange(len(states_S))
        return values.q_HXA[turns_S, states_S, actions_S] - values.v_HX[turns_S, states_S]

    def decides(self, values: Values, episode: Episode) -> Bools:
        """Where it matters what is done: the advantages of some two actions differ by more than `TIE`. [S]"""
        states_S, _ = self.places(episode)
        at_SA = values.q_HXA[np.arange(len(states_S)), states_S]
        return np.asarray(np.ptp(at_SA, axis=1) > TIE)

    def action_values(self, values: Values, episode: Episode) -> Floats:
        """The exact expected worth after each turn. [S]"""
        states_S, actions_S = self.places(episode)
        return np.asarray(values.q_HXA[np.arange(len(states_S)), states_S, actions_S])

    def __post_init__(self) -> None:
        object.__setattr__(self, "_numbers", {key: number for number, key in enumerate(self.graph.keys)})
        object.__setattr__(self, "_levels", _levels(self.graph))

    _numbers: dict[str, int] = field(init=False)
    _levels: list[Ids] | None = field(init=False)


def _levels(graph: StateGraph) -> list[Ids] | None:
    """The states of each turn, where no state can be met at two turns and every action is open in all of them; else None."""
    turn = {0: 0}
    levels = [[0]]
    over = len(graph.keys)
    while levels[-1]:
        following = sorted({int(x) for x in graph.next_XA[levels[-1]].ravel() if x < over})
        if any(x in turn for x in following) or not graph.open_XA[levels[-1]].all():
            return None
        turn |= dict.fromkeys(following, len(levels))
        levels.append(following)
    return [np.array(level) for level in levels[:-1]]


def _replies(domain: Domain, task: Task, graph: StateGraph) -> tuple[Observation, tuple[tuple[Reply, ...], ...]]:
    """What the environment answers in each state: played again, along a shortest way to it."""
    ways: dict[int, tuple[int, ...]] = {0: ()}
    queue = [0]
    replies: list[tuple[Reply, ...]] = [()] * len(graph.keys)
    for number in queue:
        made = []
        for a in range(len(graph.names[number])):
            environment = domain.environment(task, 0)
            environment.start()
            for step in ways[number]:
                environment.step(graph.actions[0][step])
            made.append(environment.step(graph.actions[0][a]))
            following = int(graph.next_XA[number, a])
            if following < len(graph.keys) and following not in ways:
                ways[following] = (*ways[number], a)
                queue.append(following)
        replies[number] = tuple(made)
    return domain.environment(task, 0).start(), tuple(replies)


class Player:
    """Plays episodes of a world with a table, and counts them.

    Args:
        world: Where.
        model: Who plays.
        grader: Of whole episodes.
        rng: All draws.

    Attributes:
        episodes: Played so far, continuations included.
    """

    def __init__(self, world: World, model: TableModel, grader: Grader, rng: np.random.Generator) -> None:
        self.world, self.model, self.grader, self.rng = world, model, grader, rng
        self.episodes = 0
        self._version, self._chosen = -1, _NO_FLOATS

    @property
    def chosen_XA(self) -> Floats:
        """What the model says in each state, as it is now."""
        if self._version != self.model.version:
            self._version, self._chosen = self.model.version, self.world.probabilities(self.model)
        return self._chosen

    def play(self, groups: int, size: int) -> list[Group[Episode]]:
        """Groups of fresh episodes."""
        made = self._episodes([()] * (groups * size), [member for _ in range(groups) for member in range(size)])
        return [Group(self.world.task, tuple(made[g * size : (g + 1) * size])) for g in range(groups)]

    def go_on(self, prefixes: Sequence[Prefix]) -> list[Episode]:
        """Continues episodes, as `rollout.continued` does; a token is a turn here."""
        return self._episodes([p.episode.turns[: p.tokens] for p in prefixes], [p.episode.member for p in prefixes])

    def demonstration(self, number: int) -> Episode:
        """The best way."""
        best_HXA = self.world.best.q_HXA
        return self._episodes([()], [0], lambda turn, states_N: best_HXA[turn, states_N].argmax(axis=1))[0]

    def _episodes(
        self, begun: Sequence[tuple[Turn, ...]], members: Sequence[int], decide: Callable[[int, Ids], Ids] | None = None
    ) -> list[Episode]:
        """Whole episodes that begin as told. Moves of all of them are drawn together, a turn at a time."""
        world, graph = self.world, self.world.graph
        self.episodes += len(begun)
        cumulative_XA = self.chosen_XA.cumsum(axis=1)
        num, over = len(begun), len(graph.keys)
        done_N = np.array([len(turns) for turns in begun])
        states = np.full((num, world.turns + 1), over)
        actions = np.zeros((num, world.turns), np.int64)
        states[:, 0] = 0
        for n, turns in enumerate(begun):
            for at, turn in enumerate(turns):
                actions[n, at] = turn.token_ids[0]
                states[n, at + 1] = graph.next_XA[states[n, at], actions[n, at]]
        for at in range(world.turns):
            open_N = (states[:, at] < over) & (done_N <= at)
            here_N = states[open_N, at]
            if not len(here_N):
                continue
            if decide is None:
                picked = (self.rng.random(len(here_N))[:, None] > cumulative_XA[here_N]).sum(axis=1)
                picked = np.minimum(picked, len(world.words) - 1)
            else:
                picked = decide(at, here_N)
            actions[open_N, at] = picked
            states[open_N, at + 1] = graph.next_XA[here_N, picked]
        lengths = (states[:, :-1] < over).sum(axis=1)
        inside = np.arange(world.turns) < lengths[:, None]
        worth = np.where(inside, graph.reward_XA[np.minimum(states[:, :-1], over - 1), actions], 0.0).sum(axis=1)
        scores = self.grader(worth, self.rng)
        seen = self._tokens(states, actions)
        logs = np.log(self.chosen_XA)[np.minimum(states[:, :-1], over - 1), actions] if decide is None else np.zeros(actions.shape)
        made = zip(begun, members, lengths.tolist(), scores.tolist(), states.tolist(), actions.tolist(), seen, logs, strict=True)
        return [self._episode(*one) for one in made]

    def _tokens(self, states: Ids, actions: Ids) -> Ids:
        """Mark, state, mark, observation, action of every turn, end to end. [N, 5 H]"""
        world = self.world
        tokens = np.empty((len(states), world.turns, 5), np.int64)
        here = np.minimum(states[:, :-1], len(world.view_X) - 1)
        tokens[:, :, 0] = tokens[:, :, 2] = world.mark
        tokens[:, :, 1], tokens[:, :, 3], tokens[:, :, 4] = world.state_X[here], world.view_X[here], actions
        return tokens.reshape(len(states), -1)

    def _episode(
        self, begun: tuple[Turn, ...], member: int, length: int, score: float, states: list[int], actions: list[int], ids: Ids, logs: Floats
    ) -> Episode:
        world, version = self.world, self.model.version
        turns = list(begun)
        for at in range(len(begun), length):
            first, a = 5 * at, actions[at]
            turns.append(
                Turn(
                    ids[: first + 4],
                    ids[first + 4 : first + 5],
                    logs[at : at + 1],
                    world.words[a],
                    world.actions[a],
                    world.replies[states[at]][a],
                    Stop.LENGTH,
                    version,
                )
            )
        done = turns[-1].reply.done
        ending = Ending(EndingKind.TERMINATED) if done else Ending(EndingKind.TURN_LIMIT)
        return Episode(world.task, member, world.first, tuple(turns), ending, Verdict.of(score))


def all_episodes(groups: Iterable[Group[Episode]]) -> list[Episode]:
    """Of all groups, in order."""
    return [episode for group in groups for episode in group.members]


class StudyError(StepwellError):
    """The study was asked for something that it does not have."""
