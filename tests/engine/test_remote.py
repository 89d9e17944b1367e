"""Models on a server, in memory: what they say and learn is what a local model says and learns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from every_loss import LOSSES
from faulty_service import TEXT, faulty

from stepwell.engine.carrier import Datum
from stepwell.engine.local import Text
from stepwell.engine.remote import RemoteEngine, RemoteModel
from stepwell.engine.remote_policy import completed, stops
from stepwell.engine.servers import SERVERS
from stepwell.engine.service import Said
from stepwell.errors import CapabilityError, ConfigError, RunError, ServerError, StaleWeightsError
from stepwell.protocols import ModelSpec, OptimizerSpec
from stepwell.testing import Probe, check_engine
from stepwell.types import Floats, Row, Sampling, Stop

NO_CLIP = OptimizerSpec(max_grad_norm=1e9, eps=1e-3)
SPEC = ModelSpec(kind="lora", rank=4, alpha=32.0, optimizer=NO_CLIP)
LETTERS = Text(lambda ids: "".join(chr(97 + i) for i in ids), frozenset({3}))


def engine(kind: str = "tinker") -> RemoteEngine:
    return RemoteEngine(faulty(kind=SERVERS[kind]), TEXT, 64)


def rows() -> list[Row]:
    made = [Row.of(np.array(ids), np.arange(1, len(ids))) for ids in ([3, 1, 4, 1], [5, 9], [2, 6, 5])]
    return [Row(**{**{f: getattr(r, f) for f in r.__dataclass_fields__}, "advantage": np.linspace(-1, 1, len(r.targets))}) for r in made]


def said(model: RemoteModel) -> list[Floats]:
    return [made["logprobs"] for made in model.forward(rows())]


def learnt(model: RemoteModel, times: int = 1) -> list[Floats]:
    for _ in range(times):
        model.backward(rows(), LOSSES["plain"])
        model.step(0.05)
    return said(model)


def test_the_contract_of_an_engine_holds_over_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of `check_engine` but another temperature, which servers do not have."""
    from stepwell.testing import engine as contract

    def only_warm(made: RemoteEngine, name: str, spec: ModelSpec) -> RemoteModel:
        spec = ModelSpec(kind="lora", optimizer=spec.optimizer)
        return RemoteEngine.model(made, name, spec)

    class Warm(RemoteEngine):
        def model(self, name: str, spec: ModelSpec) -> RemoteModel:
            return only_warm(self, name, spec)

    real = contract._check_sampler
    monkeypatch.setattr(contract, "_check_sampler", lambda model, probe, temperature: real(model, probe, 1.0))
    check_engine(Warm(faulty(), TEXT, 64), Probe(kind="lora"))


@pytest.mark.parametrize("kind", SERVERS)
def test_an_update_is_the_same_on_every_kind_of_server(kind: str) -> None:
    one, two = engine().model("policy", SPEC), engine(kind).model("policy", SPEC)
    for here, there in zip(learnt(one, 2), learnt(two, 2), strict=True):
        np.testing.assert_allclose(there, here, atol=1e-9)


def test_a_judge_starts_as_the_policy_and_learns_apart() -> None:
    made = engine()
    policy = made.model("policy", SPEC)
    trained = learnt(policy)
    judge = made.model("judge", ModelSpec(kind="lora", of="policy", rank=4, optimizer=NO_CLIP))
    for own, its in zip(trained, said(judge), strict=True):
        np.testing.assert_array_equal(its, own)
    learnt(judge)
    for own, its in zip(trained, said(policy), strict=True):
        np.testing.assert_array_equal(its, own)


def test_save_and_load_go_on_to_the_same_numbers(tmp_path: Path) -> None:
    made = engine()
    model = made.model("policy", SPEC)
    saved = learnt(model, 2)
    model.save(tmp_path / "policy")
    after = learnt(model)
    other = engine_on(made).model("policy", SPEC)
    other.load(tmp_path / "policy")
    assert (other.version, model.version) == (2, 3)
    for a, b in zip(saved, said(other), strict=True):
        np.testing.assert_array_equal(b, a)
    for a, b in zip(after, learnt(other), strict=True):
        np.testing.assert_array_equal(b, a)


def engine_on(made: RemoteEngine) -> RemoteEngine:
    """Another client of the same server."""
    return RemoteEngine(made.service, TEXT, 64)


def test_a_fresh_optimiser_keeps_the_weights_and_forgets_momentum() -> None:
    one, two = engine().model("policy", SPEC), engine().model("policy", SPEC)
    before = learnt(one, 2)
    learnt(two, 2)
    two.restart_optimizer(NO_CLIP)
    for a, b in zip(before, said(two), strict=True):
        np.testing.assert_array_equal(b, a)
    assert max(np.abs(a - b).max() for a, b in zip(learnt(one), learnt(two), strict=True)) > 1e-5


def test_a_reference_is_kept_saved_and_restored(tmp_path: Path) -> None:
    model = engine().model("policy", SPEC)
    start = said(model)
    kept = model.keep()
    learnt(model, 2)
    for a, b in zip(start, kept.logprobs(rows()), strict=True):
        np.testing.assert_array_equal(b, a)
    kept.save(tmp_path / "kept")
    again = model.keep()
    again.load(tmp_path / "kept")
    assert again.version == 0
    for a, b in zip(start, again.logprobs(rows()), strict=True):
        np.testing.assert_array_equal(b, a)


def test_a_snapshot_is_stale_once_its_model_has_moved_on() -> None:
    model = engine().model("policy", SPEC)
    old = model.snapshot()
    learnt(model)
    with pytest.raises(StaleWeightsError, match="This policy is version 0, and its model has moved on to version 1"):
        old.sample([np.array([1])], [Sampling(max_tokens=2)], [0])


# -- what is sampled ----------------------------------------------------------------------------------------------------------


def spoken(ids: list[int], stopped: bool, *stop: str, tokens: int = 5) -> tuple[str, Stop, int]:
    made = completed(Said(np.array(ids), -np.ones(len(ids)), stopped), Sampling(max_tokens=tokens, stop=stop), LETTERS)
    return made.text, made.stop, len(made.logprobs)


def test_completions_end_where_a_local_one_would() -> None:
    assert spoken([0, 1, 2, 1, 0], False) == ("abcba", Stop.LENGTH, 5)
    assert spoken([0, 1, 3], True) == ("ab", Stop.EOS, 3)
    assert spoken([0, 1, 3, 0, 0], False) == ("ab", Stop.EOS, 3), "what a server samples beyond the end is cut"
    assert spoken([0, 1, 2, 1, 0], False, "bc") == ("abc", Stop.STRING, 3)
    assert spoken([0, 1, 2], True, "bc") == ("abc", Stop.STRING, 3)
    assert spoken([0, 1], True) == ("ab", Stop.STRING, 2), "a server that keeps the end token to itself"


def test_what_ends_a_turn_is_sent_in_one_form() -> None:
    assert stops(Sampling(), LETTERS) == (3,)
    assert stops(Sampling(stop=("]",)), LETTERS) == ("]", "d")


@pytest.mark.parametrize("ids", [[], [0] * 6])
def test_too_few_or_too_many_tokens_are_an_error(ids: list[int]) -> None:
    with pytest.raises(ServerError, match=f"The server sampled {len(ids)} tokens with {len(ids)} log-probs; 1 to 5 were asked for"):
        spoken(ids, False)


def test_log_probs_that_are_no_numbers_are_an_error() -> None:
    with pytest.raises(RunError, match="not numbers"):
        completed(Said(np.array([1]), np.array([np.nan]), True), Sampling(), LETTERS)


def test_rows_depend_on_their_own_seeds_and_contexts_fit() -> None:
    policy = engine().model("policy", SPEC).snapshot()
    contexts = [np.array([1, 2]), np.array([1, 2]), np.array([4])]
    asked = [Sampling(max_tokens=5)] * 3
    whole, one = policy.sample(contexts, asked, [7, 2**40 + 3, 9]), policy.sample(contexts[1:2], asked[:1], [2**40 + 3])
    np.testing.assert_array_equal(whole[1].token_ids, one[0].token_ids)
    with pytest.raises(ValueError, match="does not fit: 1 to 64 tokens in all"):
        policy.sample([np.arange(63)], [Sampling(max_tokens=2)], [0])
    with pytest.raises(ConfigError, match=r"The sampling temperature is 0\.5"):
        policy.sample(contexts[:1], [Sampling(temperature=0.5)], [0])


# -- what a server cannot do --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "kind", "words"),
    [
        (ModelSpec(kind="full"), "tinker", "full weights: set engine.policy and reward.model to lora; the Tinker API trains adapters"),
        (ModelSpec(kind="head"), "tinker", "a head, which reads hidden states"),
        (ModelSpec(kind="lora", alpha=16.0), "tinker", "engine.alpha is 16; servers of kind 'tinker' have adapters of alpha 32 alone"),
        (
            ModelSpec(kind="lora", temperature=0.7),
            "tinker",
            "rollout.temperature is 0.7; the log-probs of a server are those at temperature 1",
        ),
        (
            ModelSpec(kind="lora"),
            "skyrl-jax",
            r"optimizer.max_grad_norm is 1, and a server of kind 'skyrl-jax' \(SkyRL 0.4\) does not clip",
        ),
    ],
)
def test_what_a_server_cannot_do_is_said_with_the_way_out(spec: ModelSpec, kind: str, words: str) -> None:
    with pytest.raises(CapabilityError, match=words):
        engine(kind).model("policy", spec)


def test_a_server_that_holds_one_model_has_no_place_for_a_judge() -> None:
    made = engine("skyrl-fsdp")
    made.model("policy", SPEC)
    with pytest.raises(CapabilityError, match="holds 1, and here has policy; give judges a server of their own"):
        made.model("judge", SPEC)


def test_two_servers_hold_policy_and_judge_of_which_the_second_starts_as_the_base() -> None:
    service, judges = faulty(kind=SERVERS["skyrl-fsdp"]), faulty(kind=SERVERS["skyrl-fsdp"])
    made = RemoteEngine(service, TEXT, 64, judges=judges)
    policy = made.model("policy", SPEC)
    of_policy = ModelSpec(kind="lora", rank=4, of="policy", optimizer=NO_CLIP)
    judge = made.model("judge", of_policy)
    assert judge.service is judges
    learnt(policy)
    with pytest.raises(CapabilityError, match="weights do not travel"):
        RemoteEngine.model(RemoteEngineLike(made), "second", of_policy)


class RemoteEngineLike(RemoteEngine):
    """The same engine, with room for one more."""

    def __init__(self, made: RemoteEngine) -> None:
        super().__init__(made.service, TEXT, 64, judges=faulty())
        self._models = {"policy": made._models["policy"]}


def test_a_checkpoint_of_another_base_or_engine_is_refused(tmp_path: Path) -> None:
    model = engine().model("policy", SPEC)
    model.save(tmp_path / "policy")
    small = engine().model("policy", ModelSpec(kind="lora", rank=2, optimizer=NO_CLIP))
    with pytest.raises(RunError, match="notes weights over here of rank 4, and the engine has here of rank 2"):
        small.load(tmp_path / "policy")
    with pytest.raises(RunError, match="holds no weights of a remote engine"):
        small.load(tmp_path)


class Blank:
    """An adapter over a base that has no such token."""

    def forward(self, data: Sequence[Datum]) -> list[Floats]:
        return [np.array([np.nan, np.nan]) for _ in data]

    def close(self) -> None:
        return


def test_a_vocabulary_that_is_too_large_is_found_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine()
    made.check_vocabulary(40)
    monkeypatch.setattr(made.service, "create", lambda rank, seed: Blank())
    with pytest.raises(
        ConfigError, match=r"The tokenizer has 60 tokens, and here at here gives the last of them the log-probs .*its vocabulary is another"
    ):
        made.check_vocabulary(60)
