"""Episodes whose beginning is given: it is replayed, and the policy goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from stepwell.protocols import Domain, Policy
from stepwell.rollout.play import play
from stepwell.rollout.seat import Player, Seat, act, finished, open_seat, replay
from stepwell.seeding import among
from stepwell.types import Completion, Episode, Floats, Ids, Stop

__all__ = ["Prefix", "continued"]


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
        play([seat for seat, _ in seats], policy, player)
        made += [finished(domain, seat) for seat, _ in seats]
    return made


_Begun = tuple[Ids, Floats]
"""Ids and log-probs of the kept tokens of a turn that was cut."""


def _replayed(domain: Domain, prefix: Prefix, player: Player, seed: tuple[int | str, ...]) -> tuple[Seat, _Begun | None]:
    """A seat in which all whole turns of the prefix have been taken, and the words of the turn that it ends in, if it ends inside one."""
    episode, left = prefix.episode, prefix.tokens
    kept = np.concatenate([np.zeros(0, np.int64), *(turn.token_ids for turn in episode.turns)])[:left]
    named = among((episode.task.key, episode.member, *kept.tolist(), "draw", prefix.draw))
    seat = Seat(episode.task, episode.member, (*seed, named))
    open_seat(domain, seat, player)
    for turn in episode.turns:
        if left <= 0 or seat.ending is not None:
            break
        if left < len(turn.token_ids):
            return seat, (turn.token_ids[:left], turn.logprobs[:left])
        left -= len(turn.token_ids)
        replay(seat, turn, player)
    return seat, None


def _speak_on(cut: Sequence[tuple[Seat, Ids, Floats]], policy: Policy, player: Player, decode: Callable[[Sequence[int]], str]) -> None:
    """The rest of turns that were cut inside."""
    if not cut:
        return
    room = [min(player.sampling.max_tokens, player.limits.context - len(seat.context)) - len(ids) for seat, ids, _ in cut]
    completions = policy.sample(
        [np.concatenate([seat.context, ids]) for seat, ids, _ in cut],
        [replace(player.sampling, max_tokens=max(n, 1)) for n in room],
        [among(seat.seed, len(seat.turns)) for seat, _, _ in cut],
    )
    for (seat, ids, logprobs), rest in zip(cut, completions, strict=True):
        whole = _joined(ids, logprobs, rest, decode, player.sampling.stop)
        act(seat, whole, player.read(whole.text, seat.tools), player, policy.version)


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
