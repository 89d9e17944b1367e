"""Tasks of reasoning-gym behind the adapter."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from stepwell.configure import load_domain
from stepwell.domains import build_domain
from stepwell.envs.reasoning import Gym, ReasoningDomain
from stepwell.errors import ConfigError, MissingExtraError
from stepwell.testing import check_environment


def test_a_missing_package_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("reasoning_gym"):
            raise ImportError(name)
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"reasoning-gym is not installed; install it with: pip install 'stepwell\[reasoning\]'"):
        build_domain(load_domain("reasoning", ["task=gym", "dataset=chain_sum"]))


@pytest.fixture
def _gym() -> None:
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: pip install 'stepwell[reasoning]'")


@pytest.mark.usefixtures("_gym")
@pytest.mark.parametrize("name", ["chain_sum", "gcd", "spell_backward", "countdown", "knights_knaves", "simple_equations"])
def test_the_contract_is_kept(name: str) -> None:
    domain = ReasoningDomain(Gym(name))
    solved = 0
    for seed in range(3):
        task = domain.task(0.5, seed, "train")
        check_environment(domain, task, turns=3)
        assert domain.task(0.5, seed, "train") == task
        lines = domain.solution(task)
        if lines is not None:
            solved += 1
            assert [one.truth.value for one in domain.truth(task, lines)] == ["right"]
    assert solved >= 2


@pytest.mark.usefixtures("_gym")
def test_partial_credit_is_no_success() -> None:
    """The package pays an answer in which the right one occurs for its share of the letters."""
    domain, lenient = ReasoningDomain(Gym("chain_sum")), ReasoningDomain(Gym("chain_sum", threshold=0.05))
    task = domain.task(0.2, 0, "train")
    lines = domain.solution(task)
    assert lines is not None
    padded = [lines[0] + " or so, I think"]
    assert domain.truth(task, padded)[0].truth.value == "wrong"
    assert lenient.truth(task, padded)[0].truth.value == "right"
    assert [one.truth.value for one in domain.truth(task, ["1 + 1 = 3", *lines])] == ["wrong", "unknown"]


@pytest.mark.usefixtures("_gym")
def test_difficulty_is_the_level_of_the_curriculum() -> None:
    domain = ReasoningDomain(Gym("chain_sum"))
    lengths = [sum(len(domain.task(d, seed, "train").prompt) for seed in range(5)) for d in (0.0, 1.0)]
    assert lengths[1] > lengths[0]


@pytest.mark.usefixtures("_gym")
def test_bad_input_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match="no data set 'chainsum'; did you mean 'chain_sum'"):
        Gym("chainsum")
    with pytest.raises(ConfigError, match="threshold of a right answer is 0"):
        Gym("chain_sum", 0.0)
    domain = ReasoningDomain(Gym("chain_sum"))
    with pytest.raises(ConfigError, match="Line 0 cannot be wrong"):
        domain.wrong_solution(domain.task(0.0, 0, "train"), 0, 0)
