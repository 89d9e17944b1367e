"""Groups of episodes in lock-step, single turns of episodes that wait, and demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stepwell.errors import ConfigError
from stepwell.protocols import Domain, Policy
from stepwell.rollout.seat import Player, Seat, act, finished, open_seat, replay
from stepwell.seeding import among
from stepwell.types import (
    Action,
    Completion,
    Ending,
    EndingKind,
    Episode,
    Group,
    Invalid,
    Observation,
    Stop,
    Task,
    Verdict,
)

__all__ = ["GOES_ON", "advanced", "begun", "demonstrate", "play", "rollout"]

GOES_ON = Ending(EndingKind.TRUNCATED, "it goes on")
"""Of an episode that is played turn by turn and is not over."""


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
    seats = [Seat(task, member, (*seed, slot, member)) for slot, task in enumerate(tasks) for member in range(group_size)]
    for at in range(0, len(seats), player.limits.rows):
        some = seats[at : at + player.limits.rows]
        for seat in some:
            open_seat(domain, seat, player)
        play(some, policy, player)
    episodes = [finished(domain, seat) for seat in seats]
    return [Group(task, tuple(episodes[g * group_size : (g + 1) * group_size])) for g, task in enumerate(tasks)]


def play(seats: Sequence[Seat], policy: Policy, player: Player) -> None:
    """To the end of all of them."""
    while playing := [seat for seat in seats if seat.ending is None]:
        take_a_turn(playing, policy, player)


def take_a_turn(playing: Sequence[Seat], policy: Policy, player: Player) -> None:
    if playing:
        room = [min(player.sampling.max_tokens, player.limits.context - len(seat.context)) for seat in playing]
        completions = policy.sample(
            [seat.context for seat in playing],
            [replace(player.sampling, max_tokens=n) for n in room],
            [among(seat.seed, len(seat.turns)) for seat in playing],
        )
        for seat, completion in zip(playing, completions, strict=True):
            act(seat, completion, player.read(completion.text, seat.tools), player, policy.version)


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
        take_a_turn([seat for seat in seats.values() if seat.ending is None], policy, player)
        made += [_so_far(domain, seats[i]) if i in seats else episodes[i] for i in some]
    return made


def _seated_again(domain: Domain, episode: Episode, player: Player, seed: tuple[int | str, ...]) -> Seat:
    seat = Seat(episode.task, episode.member, seed)
    open_seat(domain, seat, player)
    for turn in episode.turns:
        if seat.ending is None:
            replay(seat, turn, player)
    return seat


def _so_far(domain: Domain, seat: Seat) -> Episode:
    if seat.ending is not None:
        return finished(domain, seat)
    return replace(begun(seat.task, seat.member), start=seat.start, turns=tuple(seat.turns))


def demonstrate(domain: Domain, task: Task, player: Player, actions: Sequence[Action | Invalid] | None = None) -> Episode:
    """An episode in which given actions (by default the domain's expert's) are the sampled text: what cloning learns from.

    The limits hold as they do for the policy: turns that it could not take are not shown to it.

    Raises:
        ConfigError: There is neither an expert nor a list of actions.
    """
    chosen = domain.expert(task) if actions is None else actions
    if chosen is None:
        raise ConfigError(f"The domain has no expert for task {task.key!r}; give demonstrations from a file, or switch the warm start off.")
    seat = Seat(task, 0)
    open_seat(domain, seat, player)
    for action in chosen:
        if seat.ending is None:
            text = player.chat.message(action.text if isinstance(action, Invalid) else player.codec.format(action, seat.tools))
            ids = player.chat.reply(text)
            act(seat, Completion(ids, np.zeros(len(ids)), text, Stop.EOS), player.read(text, seat.tools), player, version=0)
    if seat.ending is None:
        seat.ending = Ending(EndingKind.TURN_LIMIT, "the demonstration ends here")
    return finished(domain, seat)
