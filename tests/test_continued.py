"""Episodes continued from any place: what is kept is kept to the token, what follows is the policy's, and seeds name the draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from speakers import SAY, Parrot, Script, Scripted, merging_tokenizer, toy_speaker

from stepwell.engine.chat import Chat
from stepwell.engine.codec import BRACKET
from stepwell.errors import EnvironmentFault
from stepwell.protocols import ModelSpec
from stepwell.rollout import Limits, Player, Prefix, continued, rollout
from stepwell.types import Completion, EndingKind, Episode, Ids, Sampling, Stop, Task, Verdict

TOKENIZER = merging_tokenizer()
CHAT = Chat.of(TOKENIZER)
PLAYER = Player(CHAT, BRACKET, Sampling(max_tokens=4), Limits(turns=3, context=200))
TASK = Task("t", "do it", 0.5, "test")


def decode(ids: object) -> str:
    return str(TOKENIZER.decode(ids))


def says(*tokens: int) -> Callable[[Ids, int], Completion]:
    def say(context: Ids, call: int) -> Completion:
        return Completion(np.array(tokens), np.full(len(tokens), -0.5), decode(tokens), Stop.LENGTH)

    return say


def domain(*replies: str) -> Scripted:
    return Scripted(lambda task, member: Script("a", list(replies)), lambda episode: Verdict.of(0.25 * len(episode.turns)))


def recorded(world: Scripted) -> Episode:
    return rollout(world, [TASK], Parrot(says(3, 4, 5)), PLAYER, group_size=1, seed=(0,))[0].members[0]


WORLD = domain("a", "b", "c")


@pytest.mark.parametrize("turns", [1, 2])
def test_whole_turns_are_kept_as_they_were(turns: int) -> None:
    old = recorded(WORLD)
    policy = Parrot(says(5, 5), version=7)
    (new,) = continued(WORLD, [Prefix(old, 3 * turns)], policy, PLAYER, decode=decode, seed=(1,))
    assert len(new.turns) == 3 and new.ending.kind is EndingKind.TERMINATED and new.verdict.score == 0.75
    for was, now in zip(old.turns[:turns], new.turns[:turns], strict=True):
        assert now.token_ids is was.token_ids and now.version == 0 and now.reply == was.reply
        assert np.array_equal(now.context_ids, was.context_ids)
    assert [turn.token_ids.tolist() for turn in new.turns[turns:]] == [[5, 5]] * (3 - turns)
    assert {turn.version for turn in new.turns[turns:]} == {7}
    assert np.array_equal(new.turns[turns].context_ids, old.turns[turns].context_ids), "the policy sees what it saw"


def test_from_the_start_nothing_is_kept() -> None:
    (new,) = continued(WORLD, [Prefix(recorded(WORLD), 0)], Parrot(says(5)), PLAYER, decode=decode, seed=(1,))
    assert [turn.token_ids.tolist() for turn in new.turns] == [[5]] * 3


def test_a_turn_that_was_cut_is_spoken_on() -> None:
    old = recorded(WORLD)
    policy = Parrot(says(7, 0))
    (new,) = continued(WORLD, [Prefix(old, 4)], policy, PLAYER, decode=decode, seed=(1,))
    cut = new.turns[1]
    assert cut.token_ids.tolist() == [3, 7, 0] and cut.logprobs.tolist() == [old.turns[1].logprobs[0], -0.5, -0.5]
    assert cut.text == decode([3, 7, 0])
    assert policy.asked[0][0].tolist() == [*old.turns[1].context_ids, 3]
    assert policy.sampled[0].max_tokens == 3, "the turn's limit counts what was kept"
    assert new.turns[2].context_ids[: len(cut.context_ids) + 3].tolist() == [*cut.context_ids, 3, 7, 0]


def test_a_stop_string_that_the_cut_goes_through_ends_the_turn() -> None:
    player = replace(PLAYER, sampling=replace(PLAYER.sampling, stop=("abc",)))
    old = rollout(WORLD, [TASK], Parrot(says(3, 7, 5)), player, group_size=1, seed=(0,))[0].members[0]
    (new,) = continued(WORLD, [Prefix(old, 1)], Parrot(says(7, 5, 5)), player, decode=decode, seed=(1,))
    assert new.turns[0].text == "abc" and new.turns[0].stop is Stop.STRING
    assert new.turns[0].token_ids.tolist() == [3, 7] and len(new.turns[0].logprobs) == 2


def test_seeds_name_the_kept_tokens_and_the_draw() -> None:
    """The same prefix is continued alike whatever else is asked; draws differ, and so do prefixes."""
    speaker = toy_speaker(turns=3)
    policy = speaker.engine.model("policy", ModelSpec()).snapshot()
    old = rollout(WORLD, [TASK], policy, speaker.player, group_size=1, seed=(0,))[0].members[0]
    first = len(old.turns[0].token_ids)

    def go(*prefixes: Prefix, seed: int = 1) -> list[list[int]]:
        made = continued(WORLD, prefixes, policy, speaker.player, decode=speaker.tokenizer.decode, seed=(seed,))
        return [np.concatenate([turn.token_ids for turn in episode.turns]).tolist() for episode in made]

    alone = go(Prefix(old, first))
    several = go(*(Prefix(old, first, draw) for draw in range(6)), Prefix(old, 0))
    assert several[0] == alone[0] and len({tuple(one) for one in several[:6]}) > 3
    assert all(one[:first] == old.turns[0].token_ids.tolist() for one in several[:6])
    assert go(Prefix(old, first), seed=2) != alone
    rows = replace(speaker.player, limits=replace(speaker.player.limits, rows=2))
    assert [len(e.turns) for e in continued(WORLD, [Prefix(old, first)] * 5, policy, rows, decode=decode, seed=(1,))] == [3] * 5


def test_a_world_that_answers_otherwise_fails_the_episode() -> None:
    old = recorded(WORLD)
    other = domain("a", "c", "c")
    (new,) = continued(other, [Prefix(old, 6)], Parrot(says(5)), PLAYER, decode=decode, seed=(1,))
    assert new.failed and "turn 1 is answered otherwise" in new.ending.reason
    longer = Scripted(lambda task, member: Script("ab", ["a", "b", "c"]))
    (new,) = continued(longer, [Prefix(old, 3)], Parrot(says(5)), PLAYER, decode=decode, seed=(1,))
    assert new.failed and "turn 0 sees another context" in new.ending.reason
    broken = Scripted(lambda task, member: Script("a", [EnvironmentFault("gone"), "b", "c"], (SAY,)))
    (new,) = continued(broken, [Prefix(old, 3)], Parrot(says(5)), PLAYER, decode=decode, seed=(1,))
    assert new.failed and "gone" in new.ending.reason
