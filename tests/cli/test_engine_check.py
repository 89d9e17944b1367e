"""`stepwell engine check`: what it prints, and its exit codes."""

from __future__ import annotations

import pytest
from commands import stepwell


def test_the_tiny_engine_passes_with_numbers() -> None:
    said = stepwell("engine", "check", "tiny", "--json")
    assert said.code == 0
    found = {finding["check"]: finding for finding in said.json["findings"]}
    assert said.json["failed"] == []
    assert found["ppo, ratio 3, advantage +1"]["measured"] == "share 0.000"
    assert found["reduction"]["measured"].startswith("sum (beside ")


def test_a_server_that_computes_something_else_fails_with_names() -> None:
    pytest.importorskip("tinker", reason="the extra `remote` is not installed")
    from stepwell.testing.wire import Wire

    with Wire() as wire:
        said = stepwell("engine", "check", wire.url, "--server", "skyrl-megatron")
    assert said.code == 1
    assert "sign" in said.err and "did not pass" in said.err
    assert "FAILED" in said.out


def test_what_is_no_engine_is_one_sentence() -> None:
    assert "is no server of the Tinker API" not in stepwell("engine", "check", "http://127.0.0.1:9").err
    for argument, words in (("http://127.0.0.1:9", "Nothing can be reached at"), ("nowhere", "There is no preset 'nowhere'")):
        said = stepwell("engine", "check", argument)
        assert said.code == 2
        assert said.err.startswith("error: ") and words in said.err
