"""All episodes of a small cave: as the batch of a loss, whose parameters are a table, and as episodes of an engine.

`TableEngine` sees the history, a table here the turn and the state: `played` and `moved` carry one over into the other.

Legend: N episode (all there are), T turn, H turn, X state, A action, D all of [H, X, A] flattened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from exact_expectations import World, every_episode
from torch import Tensor

from stepwell.credit import by_turn
from stepwell.engine.batch import episode_rows
from stepwell.engine.chat import Chat
from stepwell.engine.codec import BRACKET, codec
from stepwell.engine.local import Text
from stepwell.engine.spoken import SpokenTokenizer
from stepwell.engine.table import TableEngine
from stepwell.envs.cave import Cave, CaveDomain
from stepwell.envs.exact import State, StateGraph, StatePolicy, explore, soft_values, trajectories
from stepwell.losses import CloningLoss
from stepwell.protocols import Loss, ModelSpec, OptimizerSpec
from stepwell.rollout import Limits, Player, Prefix
from stepwell.seeding import generator
from stepwell.types import Batch, Episode, Floats, Ids, Outputs, Row, Sampling

BETA = 0.5
CAVE = Cave(("hall", "pit", "vault", "well"), ((1, 2), (2, 3), (3, 1), (0, 1)), (0.2, 0.3, 0.6, 1.0))
"""No walls: what can be said is what is admissible."""
TURNS = 3


def reference(state: State) -> Floats:
    """A policy that sees state and turn."""
    shares = np.exp(generator("reference", state.key, state.turn).normal(size=len(state.actions)))
    return np.asarray(shares / shares.sum())


def other(state: State) -> Floats:
    """Another."""
    shares = np.exp(generator("other", state.key, state.turn).normal(size=len(state.actions)))
    return np.asarray(shares / shares.sum())


# -- all ways through the cave, as the batch of a loss ----------------------------------------------------------------------------


GRAPH: StateGraph = explore(CaveDomain(), CAVE.task("unified"), codec("bracket").parse, turns=TURNS)
WAYS = trajectories(GRAPH, reference)
SCORE_N = np.array([sum(way.rewards) for way in WAYS])
SHAPE = (TURNS, *GRAPH.reward_XA.shape)
MASK_NT = torch.tensor([[t < len(way.actions) for t in range(TURNS)] for way in WAYS])
PLACE_NT = torch.tensor(
    [
        [int(np.ravel_multi_index((t, way.states[t], way.actions[t]), SHAPE)) if t < len(way.actions) else 0 for t in range(TURNS)]
        for way in WAYS
    ]
)
SOFT = soft_values(GRAPH, temperature=BETA, reference=reference)


def along(table_HXA: Tensor) -> Tensor:
    """The entries of a table that each episode meets. [N, T]"""
    return torch.where(MASK_NT, table_HXA.reshape(-1)[PLACE_NT], 0.0)


def said(logits_HXA: Tensor) -> Tensor:
    """Log-probs of what each episode does, under a policy of free logits. [N, T]"""
    closed = torch.from_numpy(~GRAPH.open_XA)
    return along(torch.log_softmax(logits_HXA.masked_fill(closed, -1e9), dim=-1))


def log_table(probabilities_HXA: Floats) -> Tensor:
    return torch.log(torch.from_numpy(np.where(GRAPH.open_XA, np.maximum(probabilities_HXA, 1e-300), 1.0)))


REF_HXA = log_table(GRAPH.probabilities(reference))
OTHER_HXA = log_table(GRAPH.probabilities(other))
BEST_HXA = log_table(SOFT.policy_HXA)
REF_NT, OTHER_NT, BEST_NT = along(REF_HXA), along(OTHER_HXA), along(BEST_HXA)
MET = sorted({(t, way.states[t], way.actions[t]) for way in WAYS for t in range(len(way.actions))})
"""Turn, state and action of every step that there is."""
FREE_HXA = torch.from_numpy(generator("free").normal(size=SHAPE))
"""Rewards, or logits of a judge, that are nothing in particular."""


def chance(logprobs_NT: Tensor) -> Tensor:
    """How likely each episode is. [N]"""
    return logprobs_NT.sum(dim=1).exp()


class Side(NamedTuple):
    """Episodes of a batch: which, how often each counts, whose they are, and what their log-measure is taken to be."""

    weight_N: Tensor
    label: float = 0.0
    old_NT: Tensor | None = None
    which: Sequence[int] = range(len(WAYS))


def batch_of(sides: Sequence[Side], *, whole: bool = False, ref_NT: Tensor = REF_NT, returns_NT: Tensor | None = None) -> Batch:
    """A row for each episode of each side; `whole` makes an episode one target, the sum of its steps."""

    def column(values_NT: Tensor | None) -> Tensor:
        given = torch.zeros(MASK_NT.shape, dtype=torch.float64) if values_NT is None else values_NT
        return _whole(given) if whole else given

    mask_NT = MASK_NT & (torch.arange(TURNS) == 0) if whole else MASK_NT
    which = [list(side.which) for side in sides]
    mask = torch.cat([mask_NT[w] for w in which])
    zero = torch.zeros(mask.shape, dtype=torch.float64)
    return Batch(
        mask=mask,
        weight=torch.cat([side.weight_N[w] for side, w in zip(sides, which, strict=True)])[:, None] * mask,
        advantage=zero,
        old_logprobs=torch.cat([column(side.old_NT)[w] for side, w in zip(sides, which, strict=True)]),
        ref_logprobs=torch.cat([column(ref_NT)[w] for w in which]),
        returns=torch.cat([column(returns_NT)[w] for w in which]),
        old_values=zero,
        step=torch.arange(TURNS).expand(mask.shape),
        episode=torch.arange(len(mask)),
        group=torch.zeros(len(mask), dtype=torch.int64),
        label=torch.cat([torch.full((len(w),), side.label, dtype=torch.float64) for side, w in zip(sides, which, strict=True)]),
    )


def _whole(values_NT: Tensor) -> Tensor:
    total = torch.zeros(values_NT.shape, dtype=torch.float64)
    return torch.cat([values_NT.sum(dim=1, keepdim=True), total[:, 1:]], dim=1)


class Term(NamedTuple):
    """A loss on a batch, and how much it counts."""

    weight: float
    loss: Loss
    sides: Sequence[Side]


def slope(terms: Sequence[Term], *, whole: bool = False, returns_NT: Tensor | None = None) -> Callable[[Tensor], Floats]:
    """From a table to the gradient of the sum: the table is of logits, or for losses that want values of step rewards. [H, X, A] -> [D]"""
    batches = [batch_of(term.sides, whole=whole, returns_NT=returns_NT) for term in terms]
    which = [[n for side in term.sides for n in side.which] for term in terms]

    def at(table_HXA: Tensor) -> Floats:
        leaf = table_HXA.clone().requires_grad_()
        total = torch.zeros((), dtype=torch.float64)
        is_value = "values" in terms[0].loss.wants
        made_NT = along(leaf) if is_value else said(leaf)
        made_NT = _whole(made_NT) if whole else made_NT
        for term, batch, numbers in zip(terms, batches, which, strict=True):
            made = made_NT[numbers]
            total = total + term.weight * term.loss(Outputs(torch.zeros_like(made), values=made) if is_value else Outputs(made), batch)[0]
        return np.asarray(torch.autograd.grad(total, leaf)[0].numpy().reshape(-1))

    return at


def gradient(loss: Loss, sides: Sequence[Side], table_HXA: Tensor, *, whole: bool = False) -> Floats:
    """Of one loss, see `slope`. [D]"""
    return slope([Term(1.0, loss, sides)], whole=whole)(table_HXA)


def apart(one: Floats, two: Floats) -> float:
    """How far one gradient is from another, as a share of the second's length."""
    return float(np.linalg.norm(one - two) / np.linalg.norm(two))


def zero_of(slope: Callable[[Tensor], Floats], *, rounds: int = 40, nudge: float = 1e-6) -> Tensor:
    """Where a gradient is 0: Newton's method from 0, downhill and by at most 1 at a time. [H, X, A]

    Second derivatives are differences of the gradient; where there are none (shifts that change nothing) nothing moves.
    """
    table_D = np.zeros(int(np.prod(SHAPE)))
    there = [int(np.ravel_multi_index(place, SHAPE)) for place in MET]

    def at(values_D: Floats) -> Floats:
        return slope(torch.from_numpy(values_D).reshape(SHAPE))[there]

    for _ in range(rounds):
        here = at(table_D)
        if np.abs(here).max() < 1e-13:
            return torch.from_numpy(table_D).reshape(SHAPE)
        bend = np.stack([(at(table_D + nudge * (np.arange(len(table_D)) == d)) - here) / nudge for d in there])
        size, way = np.linalg.eigh(0.5 * (bend + bend.T))
        kept = np.abs(size) > 1e-5 * np.abs(size).max()
        by = way[:, kept] @ ((way.T @ here)[kept] / np.abs(size[kept]))
        table_D[there] -= by / max(1.0, float(np.abs(by).max()))
    raise AssertionError(f"after {rounds} rounds the gradient is still {np.abs(at(table_D)).max():g}")


def unshaped(steps_HXA: Tensor) -> float:
    """What of step rewards is no potential `phi(after) - phi(before)` of turn and state, 0 at the end: the largest entry that is left."""
    potential = {state: n for n, state in enumerate(sorted({(t, x) for t, x, _ in MET}))}
    change = np.zeros((len(MET), len(potential)))
    for row, (t, x, a) in zip(change, MET, strict=True):
        row[potential[t, x]] -= 1.0
        after = (t + 1, int(GRAPH.next_XA[x, a]))
        if after in potential:
            row[potential[after]] += 1.0
    wanted = np.array([float(steps_HXA[place]) for place in MET])
    return float(np.abs(wanted - change @ np.linalg.lstsq(change, wanted, rcond=None)[0]).max())


OPEN_HXA = torch.from_numpy(np.broadcast_to(GRAPH.open_XA, SHAPE).copy())
REWARD_HXA = torch.from_numpy(np.broadcast_to(GRAPH.reward_XA, SHAPE).copy())
"""What the cave pays. [H, X, A]"""
ONE_N = torch.ones(len(WAYS), dtype=torch.float64)
SCORES = torch.from_numpy(SCORE_N)


def played(start: StatePolicy | None) -> World:
    """All episodes, by the real rollout, of a table that says all moves alike, or as `start` does."""
    tokenizer = SpokenTokenizer(("left[]", "right[]", "stop[]"))
    chat = Chat.of(tokenizer)
    engine = TableEngine(len(tokenizer.words), Text(tokenizer.decode, chat.eos_ids))
    spec = ModelSpec(optimizer=OptimizerSpec(kind="sgd", max_grad_norm=1e9))
    model = engine.model("policy", spec)
    player = Player(chat, BRACKET, Sampling(max_tokens=1), Limits(turns=TURNS, context=100_000))
    world = World(model, by_turn, tuple(every_episode(CaveDomain(), CAVE.task("unified"), player, engine)), np.zeros(0))
    if start is not None:
        move(world, log_table(GRAPH.probabilities(start)))
    return likely(world)


def likely(world: World) -> World:
    """With the probabilities, and the version, that its model has now."""
    episodes = tuple(replace(e, turns=tuple(replace(turn, version=world.model.version) for turn in e.turns)) for e in world.episodes)
    logprobs = [made["logprobs"].sum() for made in world.model.forward([episode_rows(e)[0] for e in episodes])]
    return replace(world, episodes=episodes, probabilities=np.exp(logprobs))


def places(episode: Episode) -> list[tuple[int, int, int]]:
    """Turn, state and action of each step."""
    seen = [episode.start.state_key, *(turn.reply.observation.state_key for turn in episode.turns)]
    return [(t, GRAPH.keys.index(seen[t]), int(turn.token_ids[0])) for t, turn in enumerate(episode.turns)]


def move(world: World, logits_HXA: Tensor) -> None:
    """Adds these logits: a step of gradient descent on log-probs, weighed by them (of each context their sum is 0)."""
    made: list[Row] = []
    done: set[bytes] = set()
    for episode in world.episodes:
        [row] = episode_rows(episode)
        for (t, x, _), target in zip(places(episode), row.targets.tolist(), strict=True):
            context = row.ids[:target]
            if context.tobytes() not in done:
                done.add(context.tobytes())
                by = (logits_HXA[t, x] - logits_HXA[t, x].mean()).tolist()
                made += [_one(context, a, weight) for a, weight in enumerate(by)]
    world.model.backward(made, CloningLoss())
    world.model.step(1.0)


def _one(context: Ids, token: int, weight: float) -> Row:
    zero, said = np.zeros(1), np.array([weight])
    nowhere = np.zeros(1, np.int64)
    return Row(np.append(context, token), np.array([len(context)]), said, zero, zero, zero, zero, zero, nowhere, 0, 0, 0.0)


def completer(world: World) -> Callable[[Sequence[Prefix]], list[Episode]]:
    """Continuations of a policy that says all moves alike, each as often as it is likely: draws count through the moves to come."""
    known = {tuple(int(turn.token_ids[0]) for turn in e.turns): e for e in world.episodes}

    def one(prefix: Prefix) -> Episode:
        kept = tuple(int(turn.token_ids[0]) for turn in prefix.episode.turns[: prefix.tokens])
        script = (*kept, *(prefix.draw // 3**k % 3 for k in range(TURNS)))
        return next(known[script[:n]] for n in range(1, TURNS + 1) if script[:n] in known)

    return lambda prefixes: [one(prefix) for prefix in prefixes]


def spoken(world: World) -> list[Floats]:
    """What its model says about its episodes now. [N] of [T]"""
    return [made["logprobs"] for made in world.model.forward([episode_rows(e)[0] for e in world.episodes])]


def moved(world: World, change_HXA: Tensor) -> World:
    """The world after its model has moved."""
    move(world, change_HXA)
    return likely(world)


def looked_up(world: World, table_HXA: Floats) -> Floats:
    """Entries of a table for every step of every episode, end to end."""
    return np.array([float(table_HXA[place]) for episode in world.episodes for place in places(episode)])
