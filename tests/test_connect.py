"""Settings that no server can carry, and bases that are not the tokenizer's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tinker", reason="the extra `remote` is not installed")

from stepwell.build import build
from stepwell.config import RemoteEngineConfig
from stepwell.configure import load, parse
from stepwell.connect import check_carried, connect, open_service, remote_engine
from stepwell.engine.local import Text
from stepwell.engine.servers import SERVERS
from stepwell.engine.tinker_api import TinkerService
from stepwell.engine.tiny import TinySpec, tiny_model, word_tokenizer
from stepwell.engine.web import Web
from stepwell.errors import CapabilityError, ConfigError
from stepwell.testing.wire import Wire

TREE: dict[str, Any] = {
    "engine": {"kind": "remote", "url": "http://127.0.0.1:1", "model": "base", "server": "skyrl-megatron", "max_length": 512},
    "reward": {"kind": "implicit", "model": "lora"},
    "cloning": {"steps": 5, "optimizer": {"kind": "adamw"}},
}


def refused(*overrides: str) -> str:
    with pytest.raises(CapabilityError) as told:
        check_carried(parse(TREE, overrides))
    return str(told.value)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("loss.entropy_coef=0.01", "loss.entropy_coef is 0.01, and a server gives no entropies; set it to 0"),
        ("optimizer.kind=muon", "optimizer.kind is 'muon', and servers of the Tinker API have adamw alone; set optimizer.kind=adamw"),
        ("cloning.optimizer.kind=muon", "cloning.optimizer.kind is 'muon'"),
        ("credit.kind=gae", "credit.kind is 'gae', whose critic is a head"),
        ("reward={kind: temporal}", "a server gives no hidden states"),
        ("reward={kind: intrinsic}", "whole distributions"),
        ("engine.judge_url=http://127.0.0.1:2", "trained weights do not travel between servers"),
    ],
)
def test_what_no_server_can_carry_is_refused_before_one_is_asked(override: str, words: str) -> None:
    if "temporal" in override:
        tree = {**TREE, "reward": {"kind": "montecarlo", "judge": "head"}}
        with pytest.raises(CapabilityError, match=words):
            check_carried(parse(tree))
        return
    assert words in refused(override)


def test_every_clipping_that_would_be_ignored_is_named_at_once() -> None:
    said = refused("engine.server=skyrl-jax").splitlines()
    assert [line.partition(" is ")[0] for line in said] == [
        "optimizer.max_grad_norm",
        "cloning.optimizer.max_grad_norm",
        "reward.max_grad_norm",
    ]
    assert all("=1e+06, which asks for no clipping" in line for line in said)
    check_carried(parse(TREE))


def base_folder(path: Path, words: str) -> Path:
    tokenizer = word_tokenizer([words], 300)
    tokenizer.save_pretrained(path)
    tiny_model(len(tokenizer), TinySpec(1, 16, 16, 2, 300, 64), 0).save_pretrained(path)
    return path


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[TinkerService]:
    """Services whose session has been ended, in order."""
    made: list[TinkerService] = []
    close = TinkerService.close

    def noted(service: TinkerService) -> None:
        made.append(service)
        close(service)

    monkeypatch.setattr(TinkerService, "close", noted)
    return made


def test_another_tokenizer_is_found_before_training(tmp_path: Path, closed: list[TinkerService]) -> None:
    base, other = base_folder(tmp_path / "base", "one two three"), base_folder(tmp_path / "other", "four five")
    with Wire(base=str(base)) as wire:
        tree = {"kind": "remote", "url": wire.url, "model": str(base), "tokenizer": str(other), "server": "skyrl-megatron"}
        with pytest.raises(ConfigError, match=r"engine.tokenizer is .*other, whose \d+ tokens are not the \d+ of .*base"):
            connect(RemoteEngineConfig.model_validate(tree))
        assert len(closed) == 1, "no session is left open"
        found = connect(RemoteEngineConfig.model_validate({**tree, "tokenizer": None}))
        assert found.max_length == 16384 and len(closed) == 1
        found.service.close()
        with pytest.raises(ConfigError, match=r"engine.max_length is 99999, and .* takes 16384 tokens at most"):
            connect(RemoteEngineConfig.model_validate({**tree, "tokenizer": None, "max_length": 99999}))
        assert len(closed) == 3


def test_an_engine_that_is_refused_leaves_no_session_open(tmp_path: Path, closed: list[TinkerService]) -> None:
    base = base_folder(tmp_path / "base", "one two three")
    with Wire(base=str(base)) as wire:
        engine = {"kind": "remote", "url": wire.url, "model": str(base), "server": "skyrl-jax"}
        found = connect(RemoteEngineConfig.model_validate(engine))
        with pytest.raises(CapabilityError, match=r"optimizer\.max_grad_norm"):
            remote_engine(parse({**TREE, "engine": engine}), found, Text(found.tokenizer.decode, frozenset({0})))
        assert closed == [found.service]


def test_a_server_of_an_unknown_kind_must_be_named() -> None:
    with Wire() as wire:
        config = RemoteEngineConfig.model_validate({"url": wire.url, "model": "base"})
        with pytest.raises(CapabilityError, match=r"engine.server is auto, .* is of no kind that is known by its address or API"):
            open_service(config, Web(wire.url, "TINKER_API_KEY", "refused"))


def test_a_run_is_refused_when_it_is_built_not_in_its_first_step() -> None:
    config = load("smoke", ["engine={kind: remote, url: 'http://127.0.0.1:1', model: base}", "reward.model=lora", "loss.entropy_coef=0.1"])
    with pytest.raises(CapabilityError, match=r"(?s)loss.entropy_coef.*cloning.optimizer.kind is 'muon'"):
        build(config)


def test_the_settings_know_every_kind_of_server() -> None:
    choices = RemoteEngineConfig.model_fields["server"].annotation
    assert set(getattr(choices, "__args__", ())) == {"auto", *SERVERS}
