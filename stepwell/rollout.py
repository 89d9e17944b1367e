"""A policy in environments: groups of episodes, in lock-step.

All episodes of a call take their turns together, so that sampling is one batched call a turn and the engine reuses the keys and values of
what it has seen. Tokens are kept exactly as sampled. An environment that raises fails its episode, not the step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

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
    Floats,
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

__all__ = ["GOES_ON", "Limits", "Player", "Prefix", "advanced", "answered", "began", "begun", "continued", "demonstrate", "rollout"]


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
        return self.ending is not None and self.ending.kind is EndingKind.FAILED

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
    seats = [_Seat(task, member, (*seed, slot, member)) for slot, task in enumerate(tasks) for member in range(group_size)]
    for at in range(0, len(seats), player.limits.rows):
        some = seats[at : at + player.limits.rows]
        for seat in some:
            _open(domain, seat, player)
        _play(some, policy, player)
    episodes = [_finish(domain, seat) for seat in seats]
    return [Group(task, tuple(episodes[g * group_size : (g + 1) * group_size])) for g, task in enumerate(tasks)]


def _play(seats: Sequence[_Seat], policy: Policy, player: Player) -> None:
    while playing := [seat for seat in seats if seat.ending is None]:
        _take_a_turn(playing, policy, player)


def _take_a_turn(playing: Sequence[_Seat], policy: Policy, player: Player) -> None:
    if playing:
        room = [min(player.sampling.max_tokens, player.limits.context - len(seat.context)) for seat in playing]
        completions = policy.sample(
            [seat.context for seat in playing],
            [replace(player.sampling, max_tokens=n) for n in room],
            [derive(*seat.seed, len(seat.turns)) for seat in playing],
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


GOES_ON = Ending(EndingKind.TRUNCATED, "it goes on")
"""Of an episode that is played turn by turn and is not over."""


def begun(task: Task, member: int) -> Episode:
    """An episode before its first turn, for `advanced`."""
    return Episode(task, member, Observation(""), (), GOES_ON, Verdict.unscored(GOES_ON.reason))


def advanced(
    domain: Domain, episodes: Sequence[Episode], policy: Policy, player: Player, *, seeds: Sequence[tuple[int | str, ...]]
) -> list[Episode]:
    """Each of these episodes a turn further, in a fresh environment in which its turns are taken again. Episodes that are over stay.

    Several may have one past: the engine copies its keys and values. With the seeds of a `rollout`, (*seed, slot, member), an episode
    advanced to its end is that of the rollout to the token.

    Args:
        domain: Where they are played.
        episodes: `begun`, or what this function returned.
        policy: Who takes the turn.
        player: How it speaks, with the limits of whole episodes.
        seeds: One for each episode: names its draw, together with the number of the turn.

    Returns:
        episodes whose ending is `GOES_ON`, or that are over, and graded.
    """
    made: list[Episode] = []
    for at in range(0, len(episodes), player.limits.rows):
        some = range(at, min(at + player.limits.rows, len(episodes)))
        seats = {i: _seated_again(domain, episodes[i], player, seeds[i]) for i in some if episodes[i].ending == GOES_ON}
        _take_a_turn([seat for seat in seats.values() if seat.ending is None], policy, player)
        made += [_so_far(domain, seats[i]) if i in seats else episodes[i] for i in some]
    return made


def _seated_again(domain: Domain, episode: Episode, player: Player, seed: tuple[int | str, ...]) -> _Seat:
    seat = _Seat(episode.task, episode.member, seed)
    _open(domain, seat, player)
    for turn in episode.turns:
        if seat.ending is None:
            _replay(seat, turn, player)
    return seat


def _so_far(domain: Domain, seat: _Seat) -> Episode:
    if seat.ending is not None:
        return _finish(domain, seat)
    return replace(begun(seat.task, seat.member), start=seat.start, turns=tuple(seat.turns))


class Prefix(NamedTuple):
    """The beginning of an episode, which is to be continued.

    Attributes:
        episode: Whose; its environment is that of the same task and member.
        tokens: How many of its sampled tokens are kept, from 0 to all that it has. Inside a turn, the turn is spoken on from there.
        draw: Tells continuations of one prefix apart.
    """

    episode: Episode
    tokens: int
    draw: int = 0


def continued(
    domain: Domain,
    prefixes: Sequence[Prefix],
    policy: Policy,
    player: Player,
    *,
    decode: Callable[[Sequence[int]], str],
    seed: tuple[int | str, ...],
) -> list[Episode]:
    """Replays the beginning of episodes in fresh environments, and lets the policy go on from there.

    A draw's seed is made of `seed`, the kept tokens and the number of the draw, so that the same prefix is continued in the same way
    whatever else is asked for. What is replayed must answer as it was recorded; an environment that does not fails the episode.

    Args:
        domain: Where the episodes come from.
        prefixes: One episode is made of each, in order.
        policy: Who goes on.
        player: How it speaks, with the limits of whole episodes.
        decode: Of token ids, to join the words of a turn that was cut.
        seed: Names the draw.

    Returns:
        whole episodes, the kept beginning included, graded like any other.
    """
    made: list[Episode] = []
    for at in range(0, len(prefixes), player.limits.rows):
        some = prefixes[at : at + player.limits.rows]
        seats = [_replayed(domain, prefix, player, seed) for prefix in some]
        cut = [(seat, *begun) for seat, begun in seats if begun is not None and seat.ending is None]
        _speak_on(cut, policy, player, decode)
        _play([seat for seat, _ in seats], policy, player)
        made += [_finish(domain, seat) for seat, _ in seats]
    return made


_Begun = tuple[Ids, Floats]
"""Ids and log-probs of the kept tokens of a turn that was cut."""


def _replayed(domain: Domain, prefix: Prefix, player: Player, seed: tuple[int | str, ...]) -> tuple[_Seat, _Begun | None]:
    """A seat in which all whole turns of the prefix have been taken, and the words of the turn that it ends in, if it ends inside one."""
    episode, left = prefix.episode, prefix.tokens
    kept = np.concatenate([np.zeros(0, np.int64), *(turn.token_ids for turn in episode.turns)])[:left]
    named = derive(episode.task.key, episode.member, *kept.tolist(), "draw", prefix.draw)
    seat = _Seat(episode.task, episode.member, (*seed, named))
    _open(domain, seat, player)
    for turn in episode.turns:
        if left <= 0 or seat.ending is not None:
            break
        if left < len(turn.token_ids):
            return seat, (turn.token_ids[:left], turn.logprobs[:left])
        left -= len(turn.token_ids)
        _replay(seat, turn, player)
    return seat, None


def _replay(seat: _Seat, turn: Turn, player: Player) -> None:
    """Takes a recorded turn again; an environment that answers otherwise fails the episode."""
    if not np.array_equal(seat.context, turn.context_ids):
        seat.fail("replaying an episode", EnvironmentFault(f"turn {len(seat.turns)} sees another context than it was recorded with"))
        return
    _act(seat, Completion(turn.token_ids, turn.logprobs, turn.text, turn.stop), turn.action, player, turn.version)
    if seat.turns[-1].reply != turn.reply and not seat.has_failed():
        seat.fail("replaying an episode", EnvironmentFault(f"turn {len(seat.turns) - 1} is answered otherwise than it was recorded"))


def _speak_on(cut: Sequence[tuple[_Seat, Ids, Floats]], policy: Policy, player: Player, decode: Callable[[Sequence[int]], str]) -> None:
    """The rest of turns that were cut inside."""
    if not cut:
        return
    room = [min(player.sampling.max_tokens, player.limits.context - len(seat.context)) - len(ids) for seat, ids, _ in cut]
    completions = policy.sample(
        [np.concatenate([seat.context, ids]) for seat, ids, _ in cut],
        [replace(player.sampling, max_tokens=max(n, 1)) for n in room],
        [derive(*seat.seed, len(seat.turns)) for seat, _, _ in cut],
    )
    for (seat, ids, logprobs), rest in zip(cut, completions, strict=True):
        whole = _joined(ids, logprobs, rest, decode, player.sampling.stop)
        _act(seat, whole, player.read(whole.text, seat.tools), player, policy.version)


def _joined(ids: Ids, logprobs: Floats, rest: Completion, decode: Callable[[Sequence[int]], str], stop: Sequence[str]) -> Completion:
    """The whole turn. A stop string that the cut goes through ends it where it would have ended when spoken in one go."""
    all_ids, why = np.concatenate([ids, rest.token_ids]), rest.stop
    for end in range(len(ids) + 1, len(all_ids)) if stop else ():
        text = decode(all_ids[:end].tolist())
        if any(word in text for word in stop):
            all_ids, why = all_ids[:end], Stop.STRING
            break
    shown = all_ids[:-1] if why is Stop.EOS else all_ids
    return Completion(all_ids, np.concatenate([logprobs, rest.logprobs])[: len(all_ids)], decode(shown.tolist()), why)


def demonstrate(domain: Domain, task: Task, player: Player, actions: Sequence[Action | Invalid] | None = None) -> Episode:
    """An episode in which given actions (by default the domain's expert's) are the sampled text: what cloning learns from.

    The limits hold as they do for the policy: turns that it could not take are not shown to it.

    Raises:
        ConfigError: There is neither an expert nor a list of actions.
    """
    chosen = domain.expert(task) if actions is None else actions
    if chosen is None:
        raise ConfigError(f"The domain has no expert for task {task.key!r}; give demonstrations from a file, or switch the warm start off.")
    seat = _Seat(task, 0)
    _open(domain, seat, player)
    for action in chosen:
        if seat.ending is None:
            text = player.chat.message(action.text if isinstance(action, Invalid) else player.codec.format(action, seat.tools))
            ids = player.chat.reply(text)
            _act(seat, Completion(ids, np.zeros(len(ids)), text, Stop.EOS), player.read(text, seat.tools), player, version=0)
    if seat.ending is None:
        seat.ending = Ending(EndingKind.TURN_LIMIT, "the demonstration ends here")
    return _finish(domain, seat)
