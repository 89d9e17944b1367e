"""One episode while it is played: its environment, its conversation and the turns so far."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stepwell.engine.chat import Chat, Conversation
from stepwell.engine.codec import Codec
from stepwell.errors import ConfigError, EnvironmentFault
from stepwell.protocols import Domain, Environment
from stepwell.types import (
    Action,
    Completion,
    Ending,
    EndingKind,
    Episode,
    Ids,
    Invalid,
    Observation,
    Reply,
    Sampling,
    Task,
    Tool,
    Turn,
    Verdict,
)

__all__ = ["Limits", "Player", "Seat", "act", "answered", "began", "finished", "open_seat", "replay"]


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
class Seat:
    """One episode while it is played.

    Attributes:
        task, member: Whose.
        seed: Names its draws, together with the number of the turn.
        started: Seconds of a monotonic clock when it was opened.
        environment, tools, talk: Where it is played, with what, and what has been said.
        context: Token ids that the policy sees next.
        start: The first observation.
        turns: Taken so far.
        ending: None while it goes on.
    """

    task: Task
    member: int
    seed: tuple[int | str, ...] = ()
    started: float = 0.0
    environment: Environment | None = None
    tools: Sequence[Tool] = ()
    talk: Conversation | None = None
    context: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    start: Observation = field(default_factory=lambda: Observation(""))
    turns: list[Turn] = field(default_factory=list)
    ending: Ending | None = None

    def has_failed(self) -> bool:
        """Whether its environment, and not the policy, ended it."""
        return self.ending is not None and self.ending.kind is EndingKind.FAILED

    def fail(self, doing: str, error: Exception) -> None:
        """Ends it by what its environment raised."""
        self.ending = Ending(EndingKind.FAILED, f"{doing}: {type(error).__name__}: {error}")


def open_seat(domain: Domain, seat: Seat, player: Player) -> None:
    """Starts the environment and the conversation; one that raises fails the episode."""
    seat.started = time.monotonic()
    try:
        seat.environment = domain.environment(seat.task, seat.member)
        seat.tools = tuple(seat.environment.tools)
        seat.start = began(seat.environment)
    except Exception as error:
        seat.fail("starting the environment", error)
        return
    seat.talk = player.chat.converse(seat.start.text)
    look(seat, player.limits)


def act(seat: Seat, completion: Completion, action: Action | Invalid, player: Player, version: int) -> None:
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
        look(seat, player.limits)


def look(seat: Seat, limits: Limits) -> None:
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


def replay(seat: Seat, turn: Turn, player: Player) -> None:
    """Takes a recorded turn again; an environment that answers otherwise fails the episode."""
    if not np.array_equal(seat.context, turn.context_ids):
        seat.fail("replaying an episode", EnvironmentFault(f"turn {len(seat.turns)} sees another context than it was recorded with"))
        return
    act(seat, Completion(turn.token_ids, turn.logprobs, turn.text, turn.stop), turn.action, player, turn.version)
    if seat.turns[-1].reply != turn.reply and not seat.has_failed():
        seat.fail("replaying an episode", EnvironmentFault(f"turn {len(seat.turns) - 1} is answered otherwise than it was recorded"))


def finished(domain: Domain, seat: Seat) -> Episode:
    """The episode, graded, or unscored with a reason."""
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
