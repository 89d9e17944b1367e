"""A policy in environments: groups of episodes, in lock-step.

All episodes of a call take their turns together, so that sampling is one batched call a turn and the engine reuses the keys and values of
what it has seen. Tokens are kept exactly as sampled. An environment that raises fails its episode, not the step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stepwell.engine.chat import Chat, Conversation
from stepwell.engine.codec import Codec
from stepwell.errors import ConfigError
from stepwell.protocols import Domain, Environment, Policy
from stepwell.seeding import derive
from stepwell.types import (
    Action,
    Completion,
    Ending,
    EndingKind,
    Episode,
    Group,
    Invalid,
    Observation,
    Reply,
    Sampling,
    Stop,
    Task,
    Tool,
    Turn,
    Verdict,
)

__all__ = ["Limits", "Player", "demonstrate", "rollout"]


@dataclass(frozen=True, slots=True)
class Limits:
    """When an episode ends from outside.

    Attributes:
        turns: Turns of an episode; part of the task, so reaching it is terminal and graded.
        context: Tokens that the model may see and write in all; reaching it truncates the episode.
        rows: Episodes that are sampled together, at most (memory of their keys and values).
        wall_s: Seconds for one episode, or None. A run with a limit is not exactly repeatable.
    """

    turns: int
    context: int
    rows: int = 256
    wall_s: float | None = None


@dataclass(frozen=True, slots=True)
class Player:
    """How a policy speaks: chat template, action codec, sampling, limits."""

    chat: Chat
    codec: Codec
    sampling: Sampling
    limits: Limits

    def at(self, temperature: float) -> Player:
        """The same at another temperature (0 is greedy)."""
        return replace(self, sampling=replace(self.sampling, temperature=temperature))


@dataclass(slots=True)
class _Seat:
    """One episode while it is played."""

    task: Task
    member: int
    slot: int
    started: float
    environment: Environment | None = None
    tools: Sequence[Tool] = ()
    talk: Conversation | None = None
    start: Observation = field(default_factory=lambda: Observation(""))
    turns: list[Turn] = field(default_factory=list)
    ending: Ending | None = None

    def fail(self, doing: str, error: Exception) -> None:
        self.ending = Ending(EndingKind.FAILED, f"{doing}: {type(error).__name__}: {error}")


def rollout(
    domain: Domain,
    tasks: Sequence[Task],
    policy: Policy,
    player: Player,
    *,
    group_size: int,
    seed: tuple[int | str, ...],
) -> list[Group[Episode]]:
    """Plays every task `group_size` times.

    Args:
        domain: Where the tasks come from.
        tasks: One group each, in order.
        policy: Who plays.
        player: How it speaks.
        group_size: Members of a group.
        seed: Names the draw, e.g. (run seed, "train", step); every turn's draw derives from (*seed, slot, member, turn).

    Returns:
        One group for each task, members in order, every one graded, unscored with a reason, or failed with a reason.
    """
    seats = [_Seat(task, member, slot, time.monotonic()) for slot, task in enumerate(tasks) for member in range(group_size)]
    for at in range(0, len(seats), player.limits.rows):
        _play(domain, seats[at : at + player.limits.rows], policy, player, seed)
    episodes = [_finish(domain, seat) for seat in seats]
    return [Group(task, tuple(episodes[g * group_size : (g + 1) * group_size])) for g, task in enumerate(tasks)]


def _play(domain: Domain, seats: list[_Seat], policy: Policy, player: Player, seed: tuple[int | str, ...]) -> None:
    for seat in seats:
        _open(domain, seat, player)
    while True:
        for seat in seats:
            _close_if_full(seat, player)
        playing = [seat for seat in seats if seat.ending is None and seat.talk is not None]
        if not playing:
            return
        contexts = [seat.talk.context() for seat in playing if seat.talk is not None]
        room = [min(player.sampling.max_tokens, player.limits.context - len(context)) for context in contexts]
        completions = policy.sample(
            contexts,
            [replace(player.sampling, max_tokens=n) for n in room],
            [derive(*seed, seat.slot, seat.member, len(seat.turns)) for seat in playing],
        )
        for seat, context, completion in zip(playing, contexts, completions, strict=True):
            _act(seat, context, completion, player, policy.version)


def _open(domain: Domain, seat: _Seat, player: Player) -> None:
    try:
        seat.environment = domain.environment(seat.task, seat.member)
        seat.tools = tuple(seat.environment.tools)
        seat.start = seat.environment.start()
    except Exception as error:
        seat.fail("starting the environment", error)
        return
    seat.talk = player.chat.converse(seat.start.text)


def _close_if_full(seat: _Seat, player: Player) -> None:
    if seat.ending is not None or seat.talk is None:
        return
    if len(seat.turns) >= player.limits.turns:
        seat.ending = Ending(EndingKind.TURN_LIMIT)
    elif (length := len(seat.talk.context())) >= player.limits.context:
        seat.ending = Ending(EndingKind.TRUNCATED, f"the context of {length} tokens leaves no room in {player.limits.context}")
    elif player.limits.wall_s is not None and time.monotonic() - seat.started > player.limits.wall_s:
        seat.ending = Ending(EndingKind.TRUNCATED, f"the episode took longer than {player.limits.wall_s} s")


def _act(seat: _Seat, context: np.ndarray[tuple[int], np.dtype[np.int64]], completion: Completion, player: Player, version: int) -> None:
    assert seat.environment is not None and seat.talk is not None
    action = player.codec.parse(completion.text, seat.tools)
    try:
        reply = seat.environment.step(action)
    except Exception as error:
        reply = Reply(Observation(""), valid=False)
        seat.fail("a step of the environment", error)
    ids, logprobs = completion.token_ids, completion.logprobs
    seat.turns.append(Turn(context, ids, logprobs, completion.text, action, reply, completion.stop, version))
    if seat.ending is not None:
        return
    if reply.done:
        seat.ending = Ending(EndingKind.TERMINATED)
        return
    seat.talk.acted(ids, completion.text, completion.stop)
    seat.talk.observed(reply.observation.text)


def _finish(domain: Domain, seat: _Seat) -> Episode:
    assert seat.ending is not None
    unscored = Verdict.unscored(seat.ending.reason or "not graded")
    episode = Episode(seat.task, seat.member, seat.start, tuple(seat.turns), seat.ending, unscored)
    if episode.failed:
        return episode
    try:
        verdict = domain.grade(episode)
    except Exception as error:
        verdict = Verdict.unscored(f"grading: {type(error).__name__}: {error}")
    return replace(episode, verdict=verdict)


def demonstrate(domain: Domain, task: Task, player: Player, actions: Sequence[Action | Invalid] | None = None) -> Episode:
    """An episode in which given actions (by default the domain's expert's) are the sampled text: what cloning learns from.

    Raises:
        ConfigError: There is neither an expert nor a list of actions.
    """
    chosen = domain.expert(task) if actions is None else actions
    if chosen is None:
        raise ConfigError(f"The domain has no expert for task {task.key!r}; give demonstrations from a file, or switch the warm start off.")
    seat = _Seat(task, 0, 0, time.monotonic())
    _open(domain, seat, player)
    if seat.talk is None:
        return _finish(domain, seat)
    for action in chosen:
        text = action.text if isinstance(action, Invalid) else player.codec.format(action, seat.tools)
        ids = player.chat.reply(text)
        if seat.ending is None:
            _act(seat, seat.talk.context(), Completion(ids, np.zeros(len(ids)), text, Stop.EOS), player, version=0)
    if seat.ending is None:
        seat.ending = Ending(EndingKind.TURN_LIMIT)
    return _finish(domain, seat)
