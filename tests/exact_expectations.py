"""Is a credit rule's gradient estimate unbiased? Exactly, by listing all that can happen.

A policy of free logits (`engine.table`) acts in a small cave, where it decides itself how many steps an episode takes. All its episodes
are listed by the real rollout, all groups of K of them are formed with their probabilities, and each goes through the real path: process
rewards, credit rule, averaging, rows. The estimate of the gradient is linear in weight x advantage, so that the expectation of those
numbers, for each token of each episode, gives the expected gradient by one backward pass through `PolicyLoss`. It is compared with the
gradient of the expected return, by autograd through the probabilities of the episodes.

A new rule is tested by a line in the list of `tests/laws/test_unbiased.py`.

Legend: N all episodes, K members of a group, S step, D all logits that matter (contexts x vocabulary, flattened).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from torch import Tensor

from stepwell.credit import Segment, by_line, by_turn, last_steps
from stepwell.engine.batch import episode_rows, policy_rows
from stepwell.engine.chat import Chat
from stepwell.engine.codec import BRACKET
from stepwell.engine.local import Text
from stepwell.engine.spoken import SpokenTokenizer
from stepwell.engine.table import TableEngine, TableModel
from stepwell.envs.cave import Cave, CaveDomain
from stepwell.losses import PolicyLoss
from stepwell.losses.reduce import Averaging, token_weights
from stepwell.protocols import Assign, Domain, ModelSpec
from stepwell.rollout import Limits, Player, rollout
from stepwell.seeding import generator
from stepwell.types import Batch, Completion, Episode, Floats, Group, Ids, Outputs, Row, Sampling, Scored, Steps, Stop, Tallies, Task

__all__ = [
    "StepRewards",
    "World",
    "cave_world",
    "every_episode",
    "expected_gradient",
    "level_world",
    "policy_gradient",
    "potential",
    "silent",
    "taste",
    "thinking_world",
    "unexplained",
    "with_rewards",
]

CAVE = Cave(
    names=("hall", "pit", "vault", "well"),
    passages=((1, 2), (2, None), (3, 1), (None, None)),
    worths=(0.0, 0.3, 0.6, 1.0),
)
"""A drop to the vault, or a longer way through the pit; the best treasure lies in a dead end behind it."""


@dataclass(frozen=True)
class World:
    """All that the policy can do in one task, and how likely it is.

    Attributes:
        segment: Where its steps begin and end.
        episodes: Every one of them. [N]
        probabilities: With sum 1. [N]
    """

    model: TableModel
    segment: Segment
    episodes: tuple[Episode, ...]
    probabilities: Floats

    @property
    def task(self) -> Task:
        return self.episodes[0].task


def cave_world(*, turns: int = 3, spread: float = 0.7, seed: int = 0) -> World:
    """The cave, and a policy whose logits are drawn with this spread. A step is a turn is one token: left, right or stop."""
    tokenizer = SpokenTokenizer(("left[]", "right[]", "stop[]"))
    sampling = Sampling(max_tokens=1)
    return _world(tokenizer, CAVE.task("cave"), sampling, turns=turns, segment=by_turn, spread=spread, seed=seed)


def thinking_world(*, turns: int = 2, spread: float = 0.7, seed: int = 0) -> World:
    """A smaller cave, in which the policy may write a line of thought before its action: a step of its own, or one too many."""
    tokenizer = SpokenTokenizer(("left[]", "stop[]", "hm\n"))
    cave = Cave(("hall", "vault"), ((1, None), (None, None)), (0.3, 1.0))
    sampling = Sampling(max_tokens=2, stop=("]",))
    lines = by_line(lambda ids: [tokenizer.decode([token]) for token in ids.tolist()])
    return _world(tokenizer, cave.task("thinking"), sampling, turns=turns, segment=lines, spread=spread, seed=seed)


def level_world(*, turns: int = 2, spread: float = 0.7, seed: int = 0) -> World:
    """A cave without an end, and nobody can stop: all episodes have equally many steps."""
    cave = Cave(("hall", "pit", "well"), ((1, 2), (2, 0), (0, 1)), (0.0, 0.0, 0.0))
    tokenizer = SpokenTokenizer(("left[]", "right[]"))
    return _world(tokenizer, cave.task("level"), Sampling(max_tokens=1), turns=turns, segment=by_turn, spread=spread, seed=seed)


def _world(tokenizer: SpokenTokenizer, task: Task, sampling: Sampling, *, turns: int, segment: Segment, spread: float, seed: int) -> World:
    chat = Chat.of(tokenizer)
    engine = TableEngine(len(tokenizer.words), Text(tokenizer.decode, chat.eos_ids), spread=spread, seed=seed)
    model = engine.model("policy", ModelSpec())
    player = Player(chat, BRACKET, sampling, Limits(turns=turns, context=100_000))
    episodes = tuple(every_episode(CaveDomain(), task, player, engine))
    rows = [episode_rows(episode)[0] for episode in episodes]
    probabilities = np.exp([made["logprobs"].sum() for made in model.forward(rows)])
    assert abs(probabilities.sum() - 1.0) < 1e-12, "the list of episodes is not complete"
    return World(model, segment, episodes, probabilities)


class _More(Exception):  # noqa: N818 - no error
    """The script is over, the episode is not."""


@dataclass
class _Script:
    """A policy that says given tokens."""

    tokens: Sequence[int]
    engine: TableEngine
    version: int = 0
    said: int = 0

    def sample(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> list[Completion]:
        return [self._turn(s) for s in sampling]

    def _turn(self, sampling: Sampling) -> Completion:
        decode, eos_ids = self.engine.text.decode, self.engine.text.eos_ids
        ids: list[int] = []
        while True:
            if self.said == len(self.tokens):
                raise _More
            ids.append(self.tokens[self.said])
            self.said += 1
            if ids[-1] in eos_ids:
                return Completion(np.array(ids), np.zeros(len(ids)), decode(ids[:-1]), Stop.EOS)
            if any(word in decode(ids) for word in sampling.stop) or len(ids) == sampling.max_tokens:
                return Completion(np.array(ids), np.zeros(len(ids)), decode(ids), Stop.LENGTH)

    def logprobs(self, rows: Sequence[Row]) -> list[Floats]:
        raise NotImplementedError


def every_episode(domain: Domain, task: Task, player: Player, engine: TableEngine) -> list[Episode]:
    """All episodes that a policy of this engine can have, by the real rollout: each script of tokens that ends one."""
    found: list[Episode] = []
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        script = scripts.pop()
        try:
            [group] = rollout(domain, [task], _Script(script, engine), player, group_size=1, seed=(0,))
        except _More:
            scripts += [(*script, token) for token in range(engine.vocabulary)]
        else:
            found.append(group.members[0])
    return found


# -- gradients ----------------------------------------------------------------------------------------------------------------


def expected_gradient(
    world: World,
    scored: Sequence[Scored],
    assign: Assign,
    *,
    group_size: int = 2,
    groups: int = 1,
    averaging: Averaging = "constant",
) -> Floats:
    """The exact expectation, over all batches, of the gradient that one update ascends. [D]

    Args:
        scored: Each episode of the world with its step rewards. [N]
        assign: The rule.
        groups: Of one batch (rules that normalise over the batch need more than one to show it).
        averaging: The weights of tokens; `constant` has the constant 1.
    """

    def weigh(counts: Sequence[int]) -> Floats:
        return token_weights(counts, averaging, constant=1.0 if averaging == "constant" else None)

    def zeros(member: Scored) -> Floats:
        return np.zeros(member.episode.num_tokens)

    total = [np.zeros(episode.num_tokens) for episode in world.episodes]
    for drawn in product(range(len(scored)), repeat=group_size * groups):
        probability = float(np.prod(world.probabilities[list(drawn)]))
        members = [scored[n] for n in drawn]
        batch = [Group(world.task, tuple(members[g * group_size : (g + 1) * group_size])) for g in range(groups)]
        for n, row in zip(drawn, policy_rows(assign(batch), weigh, zeros), strict=True):
            total[n] += probability * row.weight * row.advantage
    rows = [replace(episode_rows(episode)[0], advantage=column) for episode, column in zip(world.episodes, total, strict=True)]
    return _ascent(world.model, rows, PolicyLoss())


def policy_gradient(world: World, returns: Floats) -> Floats:
    """The gradient of the expected return, by autograd through the probabilities of all episodes. [D]

    Args:
        returns: Of each episode. [N]
    """
    rows = [
        replace(episode_rows(episode, index=n)[0], label=float(value))
        for n, (episode, value) in enumerate(zip(world.episodes, returns, strict=True))
    ]
    return _ascent(world.model, rows, _ExpectedLabel())


class _ExpectedLabel:
    """Minus the sum over rows of probability x label."""

    spans_rows = True
    wants: frozenset[str] = frozenset()

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        logprob_B = outputs.logprobs.masked_fill(~batch.mask, 0.0).sum(dim=1)
        return -(torch.exp(logprob_B) * batch.label).sum(), {}


def _ascent(model: TableModel, rows: Sequence[Row], loss: PolicyLoss | _ExpectedLabel) -> Floats:
    model.backward(rows, loss)
    gradient = model.gradient()
    model.optimizer.drop_gradient()
    return -np.concatenate([gradient[context] for context in sorted(gradient)])


def unexplained(got: Floats, true: Floats, factor: float | None = None) -> float:
    """How much of a gradient is not `factor` times the true one, as a share of its length (None: whichever factor leaves least)."""
    best = float(got @ true / (true @ true)) if factor is None else factor
    return float(np.linalg.norm(got - best * true) / np.linalg.norm(got))


# -- step rewards -------------------------------------------------------------------------------------------------------------

StepRewards = Callable[[Episode, Steps], Floats]
"""A fixed function of what has happened (never of the policy's present weights). [S]"""


def silent(episode: Episode, steps: Steps) -> Floats:
    """No judge."""
    return np.zeros(0)


def taste(episode: Episode, steps: Steps) -> Floats:
    """A number in [-1, 1] for every step, drawn by what has been said up to its end."""
    tokens = np.concatenate([turn.token_ids for turn in episode.turns]).tolist()
    return np.array([generator("taste", *tokens[:stop]).uniform(-1.0, 1.0) for stop in steps.stop_S.tolist()])


def potential(episode: Episode, steps: Steps) -> Floats:
    """`phi(after) - phi(before)` of each turn, on its last step, with a phi drawn by state that is 0 at the end: their sum is constant."""
    keys = [episode.start.state_key, *(turn.reply.observation.state_key for turn in episode.turns)]
    phi = np.array([generator("potential", key).uniform(-1.0, 1.0) for key in keys[:-1]] + [0.0])
    made = np.zeros(len(steps))
    made[last_steps(episode, steps)] = np.diff(phi)
    return made


def with_rewards(world: World, rewards: StepRewards) -> list[Scored]:
    """Every episode with its score as the outcome and these rewards of its steps. [N]"""
    made = []
    for episode in world.episodes:
        steps = world.segment(episode)
        values = rewards(episode, steps)
        scored = np.full(len(steps), len(values) > 0)
        made.append(Scored(episode, steps, episode.verdict.score, {"judge": values} if len(values) else {}, scored))
    return made
