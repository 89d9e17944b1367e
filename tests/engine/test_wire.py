"""Through the SDK against a server on loopback: answers that are lost, late or refused, keys, addresses, versions."""

from __future__ import annotations

import gc
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tinker", reason="the extra `remote` is not installed")

from stepwell.engine.carrier import Datum
from stepwell.engine.local import Text
from stepwell.engine.patience import Patience, Watch
from stepwell.engine.remote import RemoteEngine, RemoteModel
from stepwell.engine.servers import SERVERS, ServerKind, server_kind
from stepwell.engine.service import Asked
from stepwell.engine.tinker_api import TinkerService
from stepwell.engine.web import Web
from stepwell.errors import CapabilityError, ConfigError, ServerError
from stepwell.losses import CloningLoss
from stepwell.protocols import ModelSpec, OptimizerSpec
from stepwell.seeding import among
from stepwell.testing.wire import Wire
from stepwell.types import Row, Sampling

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
HASTY = Patience(timeout_s=20.0, gone_s=0.5, tries=3, pause_s=0.01, look_s=0.1)
ROW = Row.of(np.array([1, 2, 3]), np.array([1, 2]))
SPEC = ModelSpec(kind="lora", rank=4, optimizer=OptimizerSpec())


OPEN: list[TinkerService] = []


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Wire() as made:
        yield made
    while OPEN:
        OPEN.pop().close()
    time.sleep(0.05)
    gc.collect()  # what the SDK leaves open would be another test's warning


def service(wire: Wire, kind: str = "skyrl-megatron", patience: Patience = HASTY) -> TinkerService:
    OPEN.append(TinkerService(Web(wire.url, "TINKER_API_KEY", "refused"), server_kind(kind), wire.base, patience))
    return OPEN[-1]


def model(wire: Wire, kind: str = "skyrl-megatron") -> RemoteModel:
    return RemoteEngine(service(wire, kind), Text(str, frozenset({2})), 512).model("policy", SPEC)


def update(made: RemoteModel) -> None:
    made.backward([ROW], CloningLoss())
    made.step(0.5)


# -- once, and only once ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [["forward_backward"], ["optim_step"], ["forward_backward", "optim_step", "retrieve_future"]])
def test_a_lost_answer_never_applies_a_gradient_twice(wire: Wire, lost: list[str]) -> None:
    made = model(wire)
    wire.lose += lost
    update(made)
    (held,) = wire.models.values()
    assert (held.weight, held.applied) == (1.0, 1), "two targets of weight 1, at a rate of a half"
    assert wire.lose == []


@pytest.mark.parametrize("name", ["forward_backward", "optim_step"])
def test_a_server_that_knows_no_repeats_is_not_sent_any(wire: Wire, name: str) -> None:
    """It would apply them twice: the run ends, and says how it goes on."""
    wire.recognises = False
    made = model(wire, "verl")
    wire.lose.append(name)
    with pytest.raises(ServerError, match="Whether it was applied is not known, so it is not sent again; go on from the last checkpoint"):
        update(made)
    assert wire.calls[name] == 1


def test_a_busy_server_is_asked_again(wire: Wire) -> None:
    made = model(wire)
    wire.refuse += [("forward_backward", 503), ("optim_step", 429)]
    update(made)
    assert next(iter(wire.models.values())).applied == 1


def test_sampling_is_asked_again_where_no_training_call_would_be(wire: Wire) -> None:
    made = model(wire, "verl")
    wire.lose.append("asample")
    completion = made.snapshot().sample([np.array([1, 5])], [Sampling(max_tokens=4)], [3])[0]
    assert len(completion.token_ids) == 4
    assert wire.calls["asample"] == 2


def members(count: int) -> list[int]:
    return [among((0, "slot", member), 0) for member in range(count)]


def test_a_group_sends_its_prompt_once_and_again_whole_where_the_answer_was_lost(wire: Wire) -> None:
    policy = model(wire).snapshot()
    context, sampling = [np.arange(100, 300)] * 4, [Sampling(max_tokens=4)] * 4
    alone = [policy.sample(context[:1], sampling[:1], [seed])[0].token_ids.tolist() for seed in members(4)]
    before = wire.bytes_in
    wire.lose.append("asample")
    together = [made.token_ids.tolist() for made in policy.sample(context, sampling, members(4))]
    assert together == alone and len({tuple(one) for one in alone}) == 4
    assert wire.sampled == [1, 1, 1, 1, 4, 4], "once, and once more"
    assert wire.bytes_in - before < 3 * before / 4


@pytest.mark.parametrize("samples", [1, 3, 5])
def test_another_number_of_samples_is_an_error(wire: Wire, samples: int) -> None:
    policy = model(wire).snapshot()
    wire.samples = samples
    with pytest.raises(ServerError, match=f"gave {samples} samples where 4 were asked for"):
        policy.sample([np.array([1, 5])] * 4, [Sampling(max_tokens=4)] * 4, members(4))


def test_as_many_samples_in_all_but_not_of_each_request_is_an_error(wire: Wire) -> None:
    """Rows would get the words of another prompt."""
    speaker = model(wire).speaker()
    wire.samples = 3
    with pytest.raises(ServerError, match="gave 3 samples where 4 were asked for"):
        speaker.sample([Asked(np.array([1, 5]), 4, 1.0, (), 7, samples) for samples in (4, 2)])


def test_what_a_server_refuses_for_good_is_said_at_once(wire: Wire) -> None:
    made = model(wire)
    wire.refuse.append(("optim_step", 422))
    with pytest.raises(ServerError, match=r"failed to apply a gradient: .*no optim_step now"):
        update(made)
    assert wire.calls["optim_step"] == 1


# -- gone ---------------------------------------------------------------------------------------------------------------------


def test_a_server_that_is_gone_ends_the_run_clearly(wire: Wire) -> None:
    made = model(wire)
    update(made)
    wire.stop()
    with pytest.raises(ServerError, match=rf"The server at {wire.url} is gone: it was to compute log-probs .* with --resume"):
        made.forward([ROW])


def test_an_answer_that_never_comes_ends_too(wire: Wire) -> None:
    made = model(wire)
    OPEN[-1]._watch.patience = Patience(timeout_s=0.3, look_s=0.05)
    wire.latency_s = {"forward_backward": 5.0}
    with pytest.raises(ServerError, match=r"did not compute log-probs within 0.3 s \(engine.timeout_s\)"):
        made.forward([ROW])


def test_a_run_goes_on_on_a_server_that_was_started_again(tmp_path: Path, wire: Wire) -> None:
    """States lie on the server's disk; the models in its memory are lost."""
    made = model(wire)
    update(made)
    made.save(tmp_path / "policy")
    update(made)
    wire.stop()
    with Wire(states=wire.states) as again:
        resumed = model(again)
        resumed.load(tmp_path / "policy")
        assert resumed.version == 1
        update(resumed)
        assert again.models["model-1"].weight == pytest.approx(2.0)
        assert again.models["model-1"].applied == 1


def test_a_pause_between_tries_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("stepwell.engine.patience.time.sleep", pauses.append)
    watch = Watch(Patience(tries=4, pause_s=1.0), lambda: True, lambda error: isinstance(error, ConnectionError), "It")

    def fail() -> None:
        raise ConnectionError("reset")

    with pytest.raises(ServerError, match="It failed to look: reset"):
        watch.safely("look", fail)
    assert pauses == [1.0, 2.0, 4.0]

    def refuse() -> None:
        raise ValueError("no such thing")

    with pytest.raises(ServerError, match="It failed to look: no such thing"):
        watch.safely("look", refuse)
    assert len(pauses) == 3, "what does not pass is not asked again"


# -- who, where, with what key ------------------------------------------------------------------------------------------------


def web(url: str, plain_http: str = "refused") -> Web:
    return Web(url, "TINKER_API_KEY", plain_http)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://127.0.0.1", "http://", "http://127.0.0.1/?x=1"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match=r"engine.url is"):
        web(url)


def test_plain_http_goes_to_this_machine_alone() -> None:
    for url in ("http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "https://elsewhere.example"):
        assert web(url).url == url
    with pytest.raises(ConfigError, match="plain http to another machine"):
        web("http://10.0.0.7:8000")
    assert web("http://10.0.0.7:8000", "allowed").url == "http://10.0.0.7:8000"


def test_a_key_is_never_shown(monkeypatch: pytest.MonkeyPatch, wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-very-secret")
    wire.key = "tml-another"
    made = web(wire.url)
    assert "secret" not in repr(made)
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(ConfigError, match=r"refuses the key in the environment variable TINKER_API_KEY") as told,
    ):
        made.served_models()
    assert "secret" not in str(told.value) + caplog.text


def test_keys_come_from_the_environment_alone(monkeypatch: pytest.MonkeyPatch, wire: Wire) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"wants a key: put it into the environment variable TINKER_API_KEY"):
        service(wire, "tinker")
    with pytest.raises(ConfigError, match=r"holds a name or a password"):
        web("https://me:secret@host")
    monkeypatch.setenv("TINKER_API_KEY", "sk-1")
    with pytest.raises(ConfigError, match="does not begin with tml-"):
        web(wire.url)
    monkeypatch.setenv("TINKER_API_KEY", "tml-right")
    wire.key = "tml-right"
    update(model(wire))
    assert next(iter(wire.models.values())).applied == 1


def test_something_else_at_this_address(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wire, "get", lambda self, path: {"hello": "world"})
    with pytest.raises(ConfigError, match=r"is no server of the Tinker API .*its answer has no supported_models"):
        service(wire)
    monkeypatch.setattr(Wire, "get", lambda self, path: None)
    with pytest.raises(ConfigError, match="it answers 404"):
        service(wire)


def test_nobody_at_this_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ServerError, match=rf"Nothing can be reached at http://127.0.0.1:{port} .*correct engine.url"):
        web(f"http://127.0.0.1:{port}").served_models()


def test_another_base(wire: Wire) -> None:
    with pytest.raises(ConfigError, match=r"engine.model is 'mine', and the server at .* serves base; set engine.model to what it serves"):
        TinkerService(web(wire.url), SERVERS["skyrl-jax"], "mine", HASTY)


def test_a_rank_that_is_not_offered(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    made = service(wire)
    monkeypatch.setattr(Wire, "_create", lambda self, asked: {"error": "LoRA rank 64 must be between 1 and 32", "category": "user"})
    with pytest.raises(CapabilityError, match=r"has no adapters of rank 64: .*between 1 and 32"):
        made.create(64, 0)


def test_an_unknown_version_asks_for_a_check(wire: Wire) -> None:
    assert f"stepwell engine check {wire.url}" in service(wire).notice
    assert "tested was SkyRL 0.4.0" in service(wire, "skyrl-jax").notice
    assert "its maths was read in Twinkle 0.5, never run" in service(wire, "twinkle").notice


def test_a_mean_over_calls_bounds_what_goes_into_one(wire: Wire) -> None:
    odd = ServerKind("odd", SERVERS["hatchery"].dialect, "own", "a test")
    OPEN.append(TinkerService(web(wire.url), odd, "base", HASTY))
    made = OPEN[-1].create(4, 0)
    data = [Datum(np.array([1]), np.array([2]), {"logprobs": np.zeros(1), "advantages": np.ones(1)})] * 1025
    with pytest.raises(CapabilityError, match=r"1025 rows of .* do not go into one call"):
        made.forward_backward(data, "importance_sampling", {})
