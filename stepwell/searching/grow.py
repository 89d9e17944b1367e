"""Takes candidates a step further: a turn in a domain of turns, or a piece of the message where a message is the whole solution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from stepwell.errors import CapabilityError
from stepwell.protocols import Domain, Policy
from stepwell.rollout import GOES_ON, Player, advanced, began, rollout
from stepwell.seeding import among
from stepwell.types import Completion, Episode, Floats, Ids, Invalid, Observation, Reply, Row, Sampling, Stop, Turn

__all__ = ["ByPiece", "ByTurn", "Draws", "Grow"]

Draws = Sequence[tuple[int | str, ...]]
_WRITING = "it is being written"


class Grow(Protocol):
    """Takes steps. Episodes that are over stay as they are."""

    def steps(self, episodes: Sequence[Episode], draws: Draws) -> list[Episode]:
        """Each a step further; its draw is named by its own entry of `draws` and by where it stands."""
        ...

    def greedily(self, episodes: Sequence[Episode], draws: Draws) -> list[Episode]:
        """Each a step further, by the most likely tokens."""
        ...


@dataclass(frozen=True, slots=True)
class ByTurn:
    """A turn is a step."""

    domain: Domain
    policy: Policy
    player: Player

    def steps(self, episodes: Sequence[Episode], draws: Draws) -> list[Episode]:
        """See `Grow`."""
        return advanced(self.domain, episodes, self.policy, self.player, seeds=draws)

    def greedily(self, episodes: Sequence[Episode], draws: Draws) -> list[Episode]:
        """See `Grow`."""
        return advanced(self.domain, episodes, self.policy, self.player.at(0.0), seeds=draws)


@dataclass(frozen=True, slots=True)
class ByPiece:
    """A step ends with the token that completes the separator, inside the one message of an episode. What is written so far stands in the
    episode's only turn, which is not acted upon before the message is over.

    Attributes:
        separator: Not empty.
        decode: Token ids to text.
    """

    domain: Domain
    policy: Policy
    player: Player
    separator: str
    decode: Callable[[Sequence[int]], str]

    def steps(self, episodes: Sequence[Episode], draws: Draws) -> list[Episode]:
        """See `Grow`."""
        return self._gone_on(episodes, draws, self.player)

    def greedily(self, episodes: Sequence[Episode], draws: Draws) -> list[Episode]:
        """See `Grow`."""
        return self._gone_on(episodes, draws, self.player.at(0.0))

    def _gone_on(self, episodes: Sequence[Episode], draws: Draws, player: Player) -> list[Episode]:
        made = list(episodes)
        going = [at for at, one in enumerate(episodes) if one.ending == GOES_ON]
        for first in range(0, len(going), player.limits.rows):
            some = going[first : first + player.limits.rows]
            drafts = [self._draft(episodes[at]) for at in some]
            sampling = replace(player.sampling, stop=(*player.sampling.stop, self.separator))
            completions = self.policy.sample(
                [np.concatenate([draft.context, draft.ids]) for draft in drafts],
                [replace(sampling, max_tokens=self._room(draft)) for draft in drafts],
                [among(draws[at], "piece", len(draft.ids)) for at, draft in zip(some, drafts, strict=True)],
            )
            for at, draft, completion in zip(some, drafts, completions, strict=True):
                made[at] = self._written(draft, completion)
        return self._sent(made, player)

    def _draft(self, episode: Episode) -> _Draft:
        if episode.turns:
            (turn,) = episode.turns
            return _Draft(episode, turn.context_ids, turn.token_ids, turn.logprobs)
        start = began(self.domain.environment(episode.task, episode.member))
        context = self.player.chat.converse(start.text).context()
        return _Draft(replace(episode, start=start), context, np.zeros(0, np.int64), np.zeros(0))

    def _room(self, draft: _Draft) -> int:
        return min(self.player.sampling.max_tokens, self.player.limits.context - len(draft.context)) - len(draft.ids)

    def _written(self, draft: _Draft, more: Completion) -> Episode:
        """The message so far; one that is over has a turn that did not stop at the separator."""
        ids = np.concatenate([draft.ids, more.token_ids])
        stop = more.stop
        if stop is Stop.STRING and len(more.token_ids) == self._room(draft):
            stop = Stop.LENGTH
        text = self.decode((ids[:-1] if stop is Stop.EOS else ids).tolist())
        logprobs = np.concatenate([draft.logprobs, more.logprobs])
        action = Invalid(text, _WRITING)
        turn = Turn(draft.context, ids, logprobs, text, action, Reply(Observation("")), stop, self.policy.version)
        return replace(draft.episode, turns=(turn,))

    def _goes_on(self, episode: Episode) -> bool:
        """Whether the last piece ended with the separator, and no stop string of the player's stands in the message."""
        turn = episode.turns[-1]
        return turn.stop is Stop.STRING and not any(word in turn.text for word in self.player.sampling.stop)

    def _sent(self, episodes: list[Episode], player: Player) -> list[Episode]:
        """Messages that are over are acted upon and graded, as in any rollout."""
        over = [at for at, one in enumerate(episodes) if one.ending == GOES_ON and not self._goes_on(one)]
        turns = [episodes[at].turns[-1] for at in over]
        said = _Said([Completion(turn.token_ids, turn.logprobs, turn.text, turn.stop) for turn in turns], self.policy.version)
        groups = rollout(self.domain, [episodes[at].task for at in over], said, player, group_size=1, seed=("said",)) if over else []
        for at, group in zip(over, groups, strict=True):
            episodes[at] = replace(group.members[0], member=episodes[at].member)
        return episodes


@dataclass(frozen=True, slots=True)
class _Draft:
    episode: Episode
    context: Ids
    ids: Ids
    logprobs: Floats


class _Said:
    """A policy that says what has been said already."""

    def __init__(self, completions: Sequence[Completion], version: int) -> None:
        self._left, self.version = iter(completions), version

    def sample(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> list[Completion]:
        return [next(self._left) for _ in contexts]

    def logprobs(self, rows: Sequence[Row]) -> list[Floats]:
        raise CapabilityError("What has been said already has no other log-probs; ask the policy that said it.")
