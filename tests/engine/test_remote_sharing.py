"""Members of a group share a request: what is sent, what each row gets, and what that hangs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import pytest
from faulty_service import TEXT, FaultyService, FaultyTrainee, Tables, faulty
from hypothesis import given
from hypothesis import strategies as st

from stepwell.engine.chat import Chat
from stepwell.engine.codec import BRACKET
from stepwell.engine.local import Text
from stepwell.engine.remote import RemoteEngine
from stepwell.engine.remote_requests import request_seed, shared
from stepwell.engine.servers import SERVERS
from stepwell.engine.service import Asked, Said, Speaker
from stepwell.engine.spoken import SpokenTokenizer
from stepwell.engine.table import TableEngine
from stepwell.envs.cave import CaveDomain
from stepwell.errors import ServerError
from stepwell.protocols import Model, ModelSpec, OptimizerSpec, Policy
from stepwell.rollout import GOES_ON, Limits, Player, Prefix, advanced, begun, continued, rollout
from stepwell.seeding import PLACES, among, derive
from stepwell.types import Episode, Ids, Sampling

SPEC = ModelSpec(kind="lora", rank=4, optimizer=OptimizerSpec(max_grad_norm=1e9))
FOLLOWING = [name for name, kind in SERVERS.items() if kind.samples_follow and kind.most_samples != 1]
PROMPTS = [np.array(ids, np.int64) for ids in ([3, 1, 4], [1, 5], [2, 6, 5])]


@dataclass
class Listening(FaultyService):
    """Notes what is asked for."""

    heard: list[list[Asked]] = field(default_factory=list)

    def create(self, rank: int, seed: int) -> FaultyTrainee:
        return ListeningTrainee(self, super().create(rank, seed).model, self.spec.optimizer)


class ListeningTrainee(FaultyTrainee):
    def speaker(self) -> Speaker:
        assert isinstance(self.service, Listening)
        return Ear(super().speaker(), self.service.heard)


class Ear:
    def __init__(self, speaker: Speaker, heard: list[list[Asked]]) -> None:
        self._speaker, self._heard = speaker, heard

    def sample(self, asked: Sequence[Asked]) -> list[Said]:
        self._heard.append(list(asked))
        return self._speaker.sample(asked)


def listening(kind: str, fault: str = "") -> tuple[Listening, RemoteEngine]:
    service = Listening(Tables().make, TEXT, kind=SERVERS[kind], fault=fault)
    return service, RemoteEngine(service, TEXT, 64)


def members(slot: int, count: int = 4, turn: int = 0) -> list[int]:
    return [among((7, "train", slot, member), turn) for member in range(count)]


def sampled(engine: RemoteEngine, contexts: Sequence[Ids], seeds: Sequence[int], *limits: int, name: str = "policy") -> list[list[int]]:
    policy = (engine._models.get(name) or engine.model(name, SPEC)).snapshot()
    samplings = [Sampling(max_tokens=n) for n in limits or [5] * len(seeds)]
    return [made.token_ids.tolist() for made in policy.sample(contexts, samplings, seeds)]


# -- what is sent -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SERVERS)
def test_a_prompt_is_sent_once_for_a_group(kind: str) -> None:
    service, engine = listening(kind)
    groups = [(prompt, seed) for slot, prompt in enumerate(PROMPTS) for seed in members(slot)]
    sampled(engine, [prompt for prompt, _ in groups], [seed for _, seed in groups])
    (asked,) = service.heard
    if SERVERS[kind].most_samples == 1:
        assert [one.samples for one in asked] == [1] * 12
        return
    assert [(one.context.tolist(), one.samples) for one in asked] == [([3, 1, 4], 4), ([1, 5], 4), ([2, 6, 5], 4)]
    assert [one.seed for one in asked] == [request_seed(members(slot)[0]) for slot in range(3)]


def test_members_that_see_or_may_say_something_else_are_asked_apart() -> None:
    service, engine = listening("skyrl-jax")
    sampled(engine, [PROMPTS[0], PROMPTS[0], PROMPTS[1], PROMPTS[0]], members(0))
    sampled(engine, [PROMPTS[0]] * 4, members(0), 5, 5, 4, 4)
    assert [[one.samples for one in asked] for asked in service.heard] == [[2, 1, 1], [2, 2]]


def test_groups_of_one_prompt_do_not_mix_and_gaps_are_kept() -> None:
    first, second = members(0), members(1)
    service, engine = listening("skyrl-jax")
    sampled(engine, [PROMPTS[0]] * 7, [first[0], second[0], second[1], first[3], first[1], second[0], derive("alone")])
    (asked,) = service.heard
    assert [one.samples for one in asked] == [2, 1, 2, 1, 1]
    assert sum(one.seed == request_seed(second[0]) for one in asked) == 2, "the same draw twice is two requests"


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=24),
    st.sampled_from([None, 1, 2, 5]),
)
def test_every_row_is_asked_for_once_with_its_own_seed(rows: list[tuple[int, int]], most: int | None) -> None:
    asked = [Asked(PROMPTS[which], 5, 1.0, (), 100 + seed) for which, seed in rows]
    requests = shared(asked, most)
    assert sorted(row for one in requests for row in one.rows) == list(range(len(rows)))
    assert [one.rows[0] for one in shared(asked, 1)] == list(range(len(rows))), "as they come"
    for request, which in requests:
        assert request.samples == len(which) <= (most or 24)
        for i, row in enumerate(which):
            assert (request.seed + i, request.context.tolist()) == (asked[row].seed, asked[row].context.tolist())


@given(st.integers(0, 2**63 - 1), st.integers(0, PLACES - 1))
def test_seeds_fit_a_servers_32_bits(number: int, place: int) -> None:
    seed = among((number, place), 0)
    assert 0 <= request_seed(number) < 2**31
    assert request_seed(among((number, 0), 0)) + place == request_seed(seed) < 2**31


# -- what a row gets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FOLLOWING)
@given(st.permutations(range(8)), st.integers(1, 8))
def test_a_row_has_the_tokens_of_its_seed_whatever_is_asked_beside_it(kind: str, order: list[int], count: int) -> None:
    """Alone, among its siblings, in any order, in a call of a few of them, and where a request may be of three at most."""
    engine = RemoteEngine(faulty(kind=SERVERS[kind]), TEXT, 64)
    contexts, seeds = [*[PROMPTS[0]] * 5, *[PROMPTS[1]] * 3], [*members(0, 5), *members(1, 3)]
    alone = [sampled(engine, [context], [seed])[0] for context, seed in zip(contexts, seeds, strict=True)]
    some = order[:count]
    assert sampled(engine, [contexts[i] for i in some], [seeds[i] for i in some]) == [alone[i] for i in some]
    assert len({tuple(one) for one in alone}) == 8


def test_requests_of_few_samples_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for most in (None, 1, 3):
        service, engine = listening("skyrl-jax")
        monkeypatch.setattr("stepwell.engine.remote_policy.shared", lambda asked, _, most=most: shared(asked, most))
        made.append((sampled(engine, [PROMPTS[0]] * 8, members(0, 8)), [one.samples for one in service.heard[0]]))
    assert [sizes for _, sizes in made] == [[8], [1] * 8, [3, 3, 2]]
    assert made[0][0] == made[1][0] == made[2][0]


def test_where_samples_do_not_follow_a_call_decides_and_can_be_repeated() -> None:
    """A row's tokens hang on its place in the request; the same call gives the same, and groups do not touch each other."""
    engine = RemoteEngine(faulty("samples that do not follow"), TEXT, 64)
    whole = sampled(engine, [PROMPTS[0]] * 4, members(0))
    assert sampled(engine, [PROMPTS[0]] * 4, members(0)) == whole and len({tuple(one) for one in whole}) == 4
    assert sampled(engine, [*[PROMPTS[0]] * 4, *[PROMPTS[1]] * 4], [*members(0), *members(1)])[:4] == whole
    assert sampled(engine, [PROMPTS[0]] * 3, members(0)[1:]) != whole[1:]


def test_another_number_of_samples_than_asked_for_is_an_error() -> None:
    engine = RemoteEngine(faulty("one sample of several"), TEXT, 64)
    with pytest.raises(ServerError, match=r"gave 1 samples where 4 were asked for; .* stepwell engine check"):
        sampled(engine, [PROMPTS[0]] * 4, members(0))
    assert len(sampled(engine, PROMPTS, [1, 2, 3])) == 3, "where nothing is shared, nothing is wrong"


# -- whole episodes -----------------------------------------------------------------------------------------------------------


TOKENIZER = SpokenTokenizer(("left[]", "right[]", "stop[]"))
CHAT = Chat.of(TOKENIZER)
CAVE = CaveDomain(num_test_tasks=4)


def cave(kind: str = "skyrl-jax") -> tuple[Listening, Policy]:
    """A policy over a wire that walks in a cave."""
    tables, names = TableEngine(160, Text(TOKENIZER.decode, CHAT.eos_ids), spread=4.0, seed=1), count()

    def make(spec: ModelSpec) -> Model:
        return tables.model(f"model-{next(names)}", replace(spec, kind="full", of=None))

    service = Listening(make, TEXT, kind=SERVERS[kind])
    return service, RemoteEngine(service, Text(TOKENIZER.decode, CHAT.eos_ids), 100_000).model("policy", SPEC).snapshot()


def player(rows: int = 256) -> Player:
    return Player(CHAT, BRACKET, Sampling(max_tokens=1), Limits(turns=3, context=100_000, rows=rows))


def words(episodes: Sequence[Episode]) -> list[list[list[int]]]:
    return [[turn.token_ids.tolist() for turn in episode.turns] for episode in episodes]


def test_an_episode_is_the_same_however_its_group_is_cut_and_played() -> None:
    tasks = [CAVE.task(0.1, seed, "train") for seed in range(3)]
    made = []
    for rows in (256, 5, 1):
        service, policy = cave()
        groups = rollout(CAVE, tasks, policy, player(rows), group_size=4, seed=(3, "train", 1))
        made.append([episode for group in groups for episode in group.members])
        sizes = [one.samples for asked in service.heard for one in asked]
        assert (sizes[:3] == [4, 4, 4], max(sizes)) == ((True, 4) if rows == 256 else (False, min(rows, 4)))
    assert words(made[0]) == words(made[1]) == words(made[2])
    assert len({str(one) for one in words(made[0])}) > 3
    _, policy = cave()
    for slot, member in ((0, 2), (2, 3)):
        (episode,) = [begun(tasks[slot], member)]
        while episode.ending == GOES_ON:
            (episode,) = advanced(CAVE, [episode], policy, player(), seeds=[(3, "train", 1, slot, member)])
        assert words([episode]) == words([made[0][4 * slot + member]])


def test_continuations_of_a_prefix_share_it() -> None:
    service, policy = cave()
    (group,) = rollout(CAVE, [CAVE.task(0.1, 1, "train")], policy, player(), group_size=1, seed=(3,))
    (episode,) = group.members

    def go_on(draws: Sequence[int]) -> list[list[list[int]]]:
        prefixes = [Prefix(episode, 1, draw) for draw in draws]
        return words(continued(CAVE, prefixes, policy, player(), decode=TOKENIZER.decode, seed=(9,)))

    service.heard.clear()
    whole = go_on(range(6))
    assert [one.samples for one in service.heard[0]] == [6]
    assert go_on([4, 5]) == whole[4:] and go_on([0])[0] == whole[0] and len({str(one) for one in whole}) > 1
