"""Searches that a judge steers: what they come to in the limits, and that branches share what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
import pytest
from scribes import judge, real, scribe, told

import stepwell
from stepwell.engine.policy import LocalPolicy
from stepwell.rollout import advanced, begun, rollout
from stepwell.searching.grow import ByPiece, ByTurn
from stepwell.searching.open import segment_of
from stepwell.searching.settings import SearchSettings
from stepwell.searching.steered import plan_of
from stepwell.searching.trees import Plan, grown
from stepwell.types import Completion, Episode, Floats, Ids, Row, Sampling, Stop

SEED = (0, "search", "test")


def same(one: Episode, other: Episode) -> bool:
    return (
        len(one.turns) == len(other.turns)
        and one.ending == other.ending
        and one.verdict == other.verdict
        and all(
            np.array_equal(a.token_ids, b.token_ids) and np.array_equal(a.context_ids, b.context_ids)
            for a, b in zip(one.turns, other.turns, strict=True)
        )
    )


def by_chance(episode: Episode) -> float:
    """A number that depends on every token."""
    tokens = b"".join(turn.token_ids.tobytes() for turn in episode.turns)
    return int.from_bytes(sha256(tokens).digest()[:4], "big") / 2**32


@pytest.mark.parametrize("model", [scribe(), real()], ids=["scribe", "fresh weights"])
def test_an_episode_that_is_advanced_turn_by_turn_is_that_of_the_rollout(model: stepwell.Trained) -> None:
    tasks = model.domain.tasks("test")[:3]
    whole = rollout(model.domain, tasks, model.policy, model.player, group_size=2, seed=(5,))
    episodes = [begun(task, member) for task in tasks for member in range(2)]
    seeds = [(5, slot, member) for slot in range(3) for member in range(2)]
    for _ in range(model.player.limits.turns):
        episodes = advanced(model.domain, episodes, model.policy, model.player, seeds=seeds)
    assert all(same(a, b) for a, b in zip(episodes, [one for group in whole for one in group.members], strict=True))


@pytest.mark.parametrize("method", ["beam", "dvts"])
def test_a_beam_as_wide_as_there_are_candidates_is_sampling(method: str) -> None:
    model = scribe()
    tasks = model.domain.tasks("test")
    plan = plan_of("dvts" if method == "dvts" else "beam", 4, SearchSettings(n=4, methods=("beam",), ns=(4,), beam=4))
    trees = grown(
        tasks,
        plan,
        ByTurn(model.domain, model.policy, model.player),
        told(by_chance),
        "last",
        seeds=[(*SEED, s) for s in range(len(tasks))],
    )
    plain = rollout(model.domain, tasks, model.policy, model.player, group_size=4, seed=SEED)
    for tree, group in zip(trees, plain, strict=True):
        assert all(same(a, b) for a, b in zip(tree.episodes, group.members, strict=True)) and tree.ties == 0
        assert tree.sampled == sum(one.num_tokens for one in group.members)


def test_with_a_perfect_judge_of_steps_a_narrow_beam_finds_what_sampling_misses() -> None:
    """A wrong line spoils a plain sample; a beam drops it and goes on from what is right."""
    asked = SearchSettings(n=4, methods=("best_of_n", "beam", "dvts", "lookahead"), ns=(4,))
    found = stepwell.search(scribe(slips=0.0, strays=0.6), "oracle", asked)
    at = {name: {point.n: point.success.mean for point in curve} for name, curve in found.curves.items()}
    assert at["beam"][4] == at["dvts"][4] > at["best_of_n"][4], "with four candidates, one subtree is the beam"
    assert at["lookahead"][4] > at["majority"][4]
    assert found.ties["beam, on the way"] > 0, "the checker says 1 of all that are right"


def test_the_worse_are_dropped_and_the_places_shared_in_order() -> None:
    model = scribe(slips=0.0)
    task = model.domain.tasks("test")[0]
    plan = Plan(4, 1, 2)
    asked: list[list[float]] = []

    def liked(episode: Episode) -> float:
        asked[-1].append(by_chance(episode))
        return float(len(asked[-1]) in (2, 4))

    grow = ByTurn(model.domain, model.policy, model.player)
    firsts = grow.steps([begun(task, place) for place in range(4)], [(1, place) for place in range(4)])
    marked = [replace(one, member=place) for place, one in enumerate(firsts)]

    class Once:
        def steps(self, episodes: Sequence[Episode], draws: object) -> list[Episode]:
            if episodes[0].turns:
                self.parents = [one.member for one in episodes]
                return [replace(one, ending=replace(one.ending, reason="stop here")) for one in episodes]
            asked.append([])
            return marked

        greedily = steps

    once = Once()
    grown([task], plan, once, told(liked), "last", seeds=[(1,)])
    assert once.parents == [1, 1, 3, 3]


@dataclass
class Forgetful:
    """The same policy, which feeds whole histories at every call."""

    policy: LocalPolicy
    version: int = 0

    def sample(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> list[Completion]:
        self.policy.forget()
        return self.policy.sample(contexts, sampling, seeds)

    def logprobs(self, rows: Sequence[Row]) -> list[Floats]:
        return self.policy.logprobs(rows)


@pytest.mark.parametrize("method", ["beam", "dvts", "lookahead"])
def test_branches_share_keys_and_values_and_say_the_same_tokens(method: str) -> None:
    made = []
    for kept in (True, False):
        model = real()
        assert isinstance(model.policy, LocalPolicy)
        asked = SearchSettings(n=4, methods=("beam", "lookahead", "dvts"), ns=(4,), beam=2)
        plan = plan_of(next(m for m in asked.methods if m == method), 4, asked)
        grow = ByTurn(model.domain, model.policy if kept else Forgetful(model.policy), model.player)
        trees = grown(model.domain.tasks("test")[:3], plan, grow, told(by_chance), "last", seeds=[(1, slot) for slot in range(3)])
        made.append(([one for tree in trees for one in tree.episodes], model.policy.work.positions - model.policy.work.padding))
    (shared, few), (fed, many) = made
    assert all(same(a, b) for a, b in zip(shared, fed, strict=True))
    assert few < 0.6 * many, (few, many)


# -- steps within a message ---------------------------------------------------------------------------------------------------


@dataclass
class Writer:
    """Says the tokens of a text one after the other, with stop strings, as an engine does; by the seed it may say the second text."""

    model: stepwell.Trained
    texts: tuple[str, str]
    version: int = 0

    def sample(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> list[Completion]:
        return [self._say(c, s, seed) for c, s, seed in zip(contexts, sampling, seeds, strict=True)]

    def logprobs(self, rows: Sequence[Row]) -> list[Floats]:
        raise NotImplementedError

    def _say(self, context: Ids, sampling: Sampling, seed: int) -> Completion:
        chat, decode = self.model.player.chat, self.model.tokenizer.decode
        wholes = [chat.reply(text) for text in (self.texts if seed % 2 else self.texts[::-1])]
        at = [next((k for k in range(len(whole), 0, -1) if np.array_equal(context[-k:], whole[:k])), 0) for whole in wholes]
        best = int(np.argmax(at))
        said: list[int] = []
        for token in wholes[best][at[best] :].tolist():
            said.append(token)
            if token in chat.eos_ids:
                return Completion(np.array(said), np.zeros(len(said)), decode(said[:-1]), Stop.EOS)
            if any(word in decode(said) for word in sampling.stop):
                return Completion(np.array(said), np.zeros(len(said)), decode(said), Stop.STRING)
            if len(said) == sampling.max_tokens:
                return Completion(np.array(said), np.zeros(len(said)), decode(said), Stop.LENGTH)
        raise AssertionError("a message ends")


def one_message(model: stepwell.Trained, **limits: int) -> stepwell.Trained:
    player = replace(model.player, limits=replace(model.player.limits, turns=1), sampling=replace(model.player.sampling, **limits))  # type: ignore[arg-type]
    return model._replace(player=player)


def test_a_message_written_piece_by_piece_is_acted_upon_when_it_is_over() -> None:
    model = one_message(scribe(), max_tokens=60)
    task = model.domain.tasks("test")[0]
    text = "3 = 3, 4 = 4, write[answer: 3]"
    grow = ByPiece(model.domain, Writer(model, (text, text)), model.player, ",", model.tokenizer.decode)
    episodes, lengths = [begun(task, 2)], []
    for _ in range(4):
        episodes = grow.steps(episodes, [(0,)])
        lengths.append(episodes[0].num_tokens)
    (done,) = episodes
    assert lengths[0] < lengths[1] < lengths[2] == lengths[3] == len(model.player.chat.reply(text)), "a piece a step, then it is over"
    assert len(done.turns) == 1 and done.turns[0].stop is Stop.EOS and done.member == 2
    assert done.turns[0].text.count(",") == 2 and done.verdict.success is not None


def test_a_message_that_is_too_long_ends_at_its_limit() -> None:
    text = "3 = 3, 4 = 4, write[answer: 3]"
    model = one_message(scribe(), max_tokens=9)
    grow = ByPiece(model.domain, Writer(model, (text, text)), model.player, ",", model.tokenizer.decode)
    episodes = [begun(model.domain.tasks("test")[0], 0)]
    for _ in range(4):
        episodes = grow.steps(episodes, [(0,)])
    assert episodes[0].num_tokens == 9 and episodes[0].turns[0].stop is Stop.LENGTH


def test_pieces_are_what_a_judge_is_shown() -> None:
    """A beam over the pieces of a message: the judge likes pieces that hold a 4."""
    model = one_message(scribe(), max_tokens=60)
    policy = Writer(model, ("3 = 3, 3 = 3, write[answer: 3]", "4 = 4, 4 = 4, write[answer: 4]"))
    seen: set[int] = set()

    def likes(episode: Episode) -> float:
        seen.add(len(episode.turns))
        return float("4" in model.tokenizer.decode(episode.turns[-1].token_ids.tolist()))

    who = replace(judge(likes), segment=segment_of(model, ","), separator=",")
    grow = ByPiece(model.domain, policy, model.player, ",", model.tokenizer.decode)
    tasks = model.domain.tasks("test")[:4]
    trees = grown(tasks, Plan(4, 1, 1), grow, who, "last", seeds=[(1, slot) for slot in range(4)])
    assert {1, 2} == seen, "each piece is a turn to the judge, and what is over is not asked about"
    last = [one.turns[-1].text for tree in trees for one in tree.episodes]
    assert all("3" not in text and text.count("4") == 5 for text in last), last


@pytest.mark.parametrize(("n", "beam"), [(16, 5), (16, 7), (16, 12), (8, 5), (8, 3), (4, 4)])
def test_as_many_go_on_as_the_beam_is_wide(n: int, beam: int) -> None:
    from dataclasses import replace

    from builders import make_episode

    from stepwell.rollout import GOES_ON
    from stepwell.searching.trees import _kept

    row = [replace(make_episode([1], member=m), ending=GOES_ON) for m in range(n)]
    made, ties = _kept(row, [float(m) for m in range(n)], Plan(n, 1, beam))
    assert {episode.member for episode in made} == set(range(n - beam, n))
    assert len(made) == n and ties == 0
    some = [replace(one, ending=make_episode([1]).ending) if one.member < 2 else one for one in row]
    made, _ = _kept(some, [float(m) for m in range(n)], Plan(n, 1, beam))
    assert [episode.member for episode in made[:2]] == [0, 1], "who has finished keeps the place"
    assert {episode.member for episode in made[2:]} == set(range(max(2, n - beam), n))
