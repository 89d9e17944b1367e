"""The engine's contract holds for a right engine and catches each fault of a wrong one."""

from __future__ import annotations

import pytest
import torch
from fake_engine import TableEngine

from stepwell.engine.local import Budget, LocalEngine, Text
from stepwell.engine.tiny import TinySpec, tiny_model
from stepwell.testing import ContractViolation, Probe, check_engine

FAULTS = {
    "forward ignores temperature": "sampler and model.forward differ in the first turn at temperature 0.7",
    "sampler log-probs drift": "sampler and model.forward differ in the first turn",
    "policy log-probs drift": "Policy.logprobs and model.forward differ",
    "cache loses the second turn": "sampler and model.forward differ in the second turn",
    "cache outlives the weights": "differ in the first turn at temperature 1.0, weights of version 1",
    "forward drops a target": "Got",
    "forward sees padding": "differ|depends on the other rows",
    "forward sorts rows": "differ|depends on the order of rows|expected",
    "no entropy": "does not return it",
    "sample loses a row": "3 completions for 4 contexts",
    "sample is too long": "7 tokens; 1 to 6 were allowed",
    "log-prob is missing": "token ids and .* log-probs",
    "stop is always length": "says stop=length",
    "seed is ignored": "Eight different seeds gave the same tokens",
    "seed depends on the place in the batch": "depend on its neighbours",
    "draws are not seeded": "The same seeds gave other tokens",
    "greedy draws": "At temperature 0 the seed changed the tokens",
    "greedy takes the worst": "less likely",
    "backward moves weights": "backward alone changed the weights",
    "step does nothing": "moved no log-prob",
    "version jumps": "grows by one",
    "stale snapshot may sample": "without StaleWeightsError|could sample",
    "stale snapshot may compute log-probs": "without StaleWeightsError|could compute",
    "keep follows the version": "keep\\(\\) at version 0 says version 1",
    "keep is no copy": "keep\\(\\) was changed",
    "keep samples present weights": "not from the weights it kept",
    "keep overwrites its model": "Use of keep\\(\\) changed the weights",
    "gradient ascends the loss": "with advantage \\+1 did not raise",
    "gradient is not cleared": "step must clear",
    "loss is a mean over rows": "must be the plain sum",
    "spanning loss is split": "A loss that spans rows",
    "load forgets weights": "load did not give back the weights",
    "load forgets the optimiser": "The update after load differs",
    "load forgets the version": "load gave version",
}


def test_a_right_engine_passes_and_every_fault_is_listed() -> None:
    engine = TableEngine()
    check_engine(engine)
    assert engine.used == set(FAULTS)


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_is_caught(fault: str) -> None:
    with pytest.raises(ContractViolation, match=FAULTS[fault]):
        check_engine(TableEngine(fault))


def test_unknown_kind() -> None:
    with pytest.raises(ContractViolation, match="no models of kind 'lora'"):
        check_engine(TableEngine(), Probe(kind="lora"))


@pytest.mark.filterwarnings("ignore:Already found a .peft_config.")
def test_local_engine_with_adapters() -> None:
    pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    torch.set_num_threads(1)
    module = tiny_model(64, TinySpec(width=32, feedforward=48, layers=1), seed=0)
    check_engine(LocalEngine(module, Text(str, frozenset({2}))), Probe(kind="lora", lr=1.0))


@pytest.mark.parametrize("budget", [Budget(), Budget(tokens=16, rows=1)])
def test_local_engine(budget: Budget) -> None:
    torch.set_num_threads(1)
    module = tiny_model(64, TinySpec(width=32, feedforward=48, layers=1), seed=0)
    check_engine(LocalEngine(module, Text(str, frozenset({2})), budget))
