"""A policy in environments: groups of episodes, in lock-step.

All episodes of a call take their turns together, so that sampling is one batched call a turn and the engine reuses the keys and values of
what it has seen. Tokens are kept exactly as sampled. An environment that raises fails its episode, not the step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stepwell.engine.chat import Chat, Conversation
from stepwell.engine.codec import Codec
from stepwell.errors import ConfigError, EnvironmentFault
from stepwell.protocols import Domain, Environment, Policy
from stepwell.seeding import derive
from stepwell.types import (
    Action,
    Completion,
    Ending,
    EndingKind,
    Episode,
    Group,
    Ids,
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

__all__ = ["Limits", "Player", "answered", "began", "demonstrate", "rollout"]


@dataclass(frozen=True, slots=True)
class Limits:
    """When an episode ends from outside.

    Attributes:
        turns: Turns of an episode; part of the task, so reaching it is terminal and graded.
        context: Tokens that the model may see and write in all; reaching it truncates the episode.
        rows: Episodes that are sampled together, at most (memory of their keys and values).
        wall_s: Seconds for one episode, or None; looked at between turns. A run with a limit is not exactly repeatable.

    Raises (when built):
        ConfigError: A limit below 1, or a time that is not positive.
    """

    turns: int
    context: int
    rows: int = 256
    wall_s: float | None = None

    def __post_init__(self) -> None:
        for name, value in {"turns": self.turns, "context": self.context, "rows": self.rows}.items():
            if value < 1:
                raise ConfigError(f"The limit of {name} is {value}; it needs at least 1.")
        if self.wall_s is not None and not self.wall_s > 0:
            raise ConfigError(f"The wall clock limit is {self.wall_s} s; it needs a positive number of seconds, or None for no limit.")


@dataclass(frozen=True, slots=True)
class Player:
    """How a policy speaks: chat template, action codec, sampling, limits."""

    chat: Chat
    codec: Codec
    sampling: Sampling
    limits: Limits

    def at(self, temperature: float) -> Player:
        """The same for an evaluation at this temperature (0 is greedy); its episodes are not to be trained on."""
        return replace(self, sampling=replace(self.sampling, temperature=temperature, purpose="evaluation"))

    def read(self, text: str, tools: Sequence[Tool]) -> Action | Invalid:
        """The action in a message. Where the prompt has opened the think block, that opening belongs to the message."""
        return self.codec.parse(self.chat.prefill + text, tools)


@dataclass(slots=True)
class _Seat:
    """One episode while it is played."""

    task: Task
    member: int
    slot: int
    started: float = 0.0
    environment: Environment | None = None
    tools: Sequence[Tool] = ()
    talk: Conversation | None = None
    context: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
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
    if group_size < 1:
        raise ConfigError(f"The group size is {group_size}; a group needs at least 1 member.")
    seats = [_Seat(task, member, slot) for slot, task in enumerate(tasks) for member in range(group_size)]
    for at in range(0, len(seats), player.limits.rows):
        _play(domain, seats[at : at + player.limits.rows], policy, player, seed)
    episodes = [_finish(domain, seat) for seat in seats]
    return [Group(task, tuple(episodes[g * group_size : (g + 1) * group_size])) for g, task in enumerate(tasks)]


def _play(domain: Domain, seats: Sequence[_Seat], policy: Policy, player: Player, seed: tuple[int | str, ...]) -> None:
    for seat in seats:
        _open(domain, seat, player)
    while playing := [seat for seat in seats if seat.ending is None]:
        room = [min(player.sampling.max_tokens, player.limits.context - len(seat.context)) for seat in playing]
        completions = policy.sample(
            [seat.context for seat in playing],
            [replace(player.sampling, max_tokens=n) for n in room],
            [derive(*seed, seat.slot, seat.member, len(seat.turns)) for seat in playing],
        )
        for seat, completion in zip(playing, completions, strict=True):
            _act(seat, completion, player.read(completion.text, seat.tools), player, policy.version)


def _open(domain: Domain, seat: _Seat, player: Player) -> None:
    seat.started = time.monotonic()
    try:
        seat.environment = domain.environment(seat.task, seat.member)
        seat.tools = tuple(seat.environment.tools)
        seat.start = began(seat.environment)
    except Exception as error:
        seat.fail("starting the environment", error)
        return
    seat.talk = player.chat.converse(seat.start.text)
    _look(seat, player.limits)


def _act(seat: _Seat, completion: Completion, action: Action | Invalid, player: Player, version: int) -> None:
    """One turn: the environment answers, and the episode ends or goes on."""
    assert seat.environment is not None and seat.talk is not None
    reply = Reply(Observation(""), valid=False)
    try:
        reply = answered(seat.environment, action)
    except Exception as error:
        seat.fail("a step of the environment", error)
    ids, logprobs = completion.token_ids, completion.logprobs
    seat.turns.append(Turn(seat.context, ids, logprobs, completion.text, action, reply, completion.stop, version))
    if seat.ending is not None:
        return
    if reply.done:
        seat.ending = Ending(EndingKind.TERMINATED)
    elif len(seat.turns) >= player.limits.turns:
        seat.ending = Ending(EndingKind.TURN_LIMIT)
    else:
        seat.talk.acted(ids, completion.text, completion.stop)
        seat.talk.observed(reply.observation.text)
        _look(seat, player.limits)


def _look(seat: _Seat, limits: Limits) -> None:
    """What the policy sees next, or why it sees nothing more."""
    assert seat.talk is not None
    seat.context = seat.talk.context()
    if len(seat.context) >= limits.context:
        seat.ending = Ending(EndingKind.TRUNCATED, f"the context of {len(seat.context)} tokens leaves no room in {limits.context}")
    elif limits.wall_s is not None and time.monotonic() - seat.started > limits.wall_s:
        seat.ending = Ending(EndingKind.TRUNCATED, f"the episode took longer than {limits.wall_s} s")


def began(environment: Environment) -> Observation:
    """The first observation; `EnvironmentFault` where it is none."""
    return _readable(environment.start())


def answered(environment: Environment, action: Action | Invalid) -> Reply:
    """The reply to an action; `EnvironmentFault` where it is none that can be recorded and learnt from."""
    reply = environment.step(action)
    if not isinstance(reply, Reply):
        raise EnvironmentFault(f"step returned a {type(reply).__name__}; it must be a Reply")
    if not isinstance(reply.reward, int | float | np.number) or not math.isfinite(reply.reward):
        raise EnvironmentFault(f"the reply's reward is {reply.reward!r}; it must be a finite number")
    _readable(reply.observation)
    return reply


def _readable(observation: Observation) -> Observation:
    if not isinstance(observation, Observation):
        raise EnvironmentFault(f"the observation is a {type(observation).__name__}; it must be an Observation")
    if not isinstance(observation.text, str):
        raise EnvironmentFault(f"the observation's text is {observation.text!r}; it must be a string")
    try:
        observation.text.encode()
    except UnicodeEncodeError as error:
        raise EnvironmentFault(f"the observation's text cannot be encoded ({error.reason} at character {error.start})") from None
    return observation


def _finish(domain: Domain, seat: _Seat) -> Episode:
    assert seat.ending is not None
    unscored = Verdict.unscored(seat.ending.reason or "not graded")
    episode = Episode(seat.task, seat.member, seat.start, tuple(seat.turns), seat.ending, unscored)
    if episode.failed:
        return episode
    try:
        verdict = domain.grade(episode)
        if not isinstance(verdict, Verdict):
            raise EnvironmentFault(f"grade returned a {type(verdict).__name__}; it must be a Verdict")
    except Exception as error:
        verdict = Verdict.unscored(f"grading: {type(error).__name__}: {error}")
    return replace(episode, verdict=verdict)


def demonstrate(domain: Domain, task: Task, player: Player, actions: Sequence[Action | Invalid] | None = None) -> Episode:
    """An episode in which given actions (by default the domain's expert's) are the sampled text: what cloning learns from.

    The limits hold as they do for the policy: turns that it could not take are not shown to it.

    Raises:
        ConfigError: There is neither an expert nor a list of actions.
    """
    chosen = domain.expert(task) if actions is None else actions
    if chosen is None:
        raise ConfigError(f"The domain has no expert for task {task.key!r}; give demonstrations from a file, or switch the warm start off.")
    seat = _Seat(task, 0, 0)
    _open(domain, seat, player)
    for action in chosen:
        if seat.ending is None:
            text = player.chat.message(action.text if isinstance(action, Invalid) else player.codec.format(action, seat.tools))
            ids = player.chat.reply(text)
            _act(seat, Completion(ids, np.zeros(len(ids)), text, Stop.EOS), player.read(text, seat.tools), player, version=0)
    if seat.ending is None:
        seat.ending = Ending(EndingKind.TURN_LIMIT, "the demonstration ends here")
    return _finish(domain, seat)
