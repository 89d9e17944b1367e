"""A scalar head over a copy of the policy that learns with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from speakers import engine, random_rows
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from stepwell.engine.local import Budget, LocalEngine, LocalModel, Text
from stepwell.losses import CloningLoss, ValueLoss
from stepwell.protocols import ModelSpec
from stepwell.types import Row

VALUES = frozenset({"values"})
OWN = ModelSpec(kind="head", of="policy", trunk="own")
ROWS = [replace(row, returns=np.random.default_rng(i).normal(size=len(row.targets))) for i, row in enumerate(random_rows(7))]
KINDS = pytest.mark.parametrize("kind", ["full", "lora"])


def needs(kind: str) -> None:
    if kind == "lora":
        pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")


def critic_of(made: LocalEngine, kind: str = "full", *, rank: int = 4) -> tuple[LocalModel, LocalModel]:
    """A policy that has moved from the base, and its critic."""
    policy = made.model("policy", ModelSpec(kind=kind, rank=rank))  # type: ignore[arg-type]
    policy.backward(ROWS, CloningLoss())
    policy.step(3e-2)
    return policy, made.model("critic", OWN)


def values(model: LocalModel, rows: list[Row] = ROWS) -> np.ndarray:
    return np.concatenate([made["values"] for made in model.forward(rows, VALUES)])


def said(model: LocalModel) -> np.ndarray:
    return np.concatenate([made["logprobs"] for made in model.forward(ROWS)])


def hidden(model: LocalModel) -> torch.Tensor:
    with torch.no_grad(), model.using(None):
        return model.trunk.hidden(torch.from_numpy(ROWS[0].ids)[None])


@KINDS
def test_it_starts_as_the_policy_and_neither_moves_the_other(kind: str) -> None:
    needs(kind)
    policy, critic = critic_of(engine(), kind)
    assert not values(critic).any(), "0 at the start"
    assert torch.allclose(hidden(critic), hidden(policy), atol=1e-6)
    before, states = said(policy), hidden(critic)
    losses = []
    for _ in range(60):
        losses.append(critic.backward(ROWS, ValueLoss(None))["critic/loss"])
        critic.step(3e-3 if kind == "full" else 2e-2)
    assert losses[-1] < 0.2 * losses[0], "more than a probe of fixed states could learn of random numbers"
    assert np.array_equal(said(policy), before)
    assert not torch.allclose(hidden(critic), states, atol=1e-3)
    kept = values(critic)
    policy.backward(ROWS, CloningLoss())
    policy.step(3e-2)
    assert not np.allclose(said(policy), before)
    assert np.array_equal(values(critic), kept)


@KINDS
def test_the_gradient_does_not_depend_on_micro_batches(kind: str) -> None:
    needs(kind)
    found = []
    for budget in (Budget(), Budget(rows=1)):
        _, critic = critic_of(engine(budget=budget), kind)
        with torch.no_grad():
            critic.params["head.weight"].fill_(0.1)
        critic.backward(ROWS, ValueLoss(None))
        found.append({name: weight.grad.clone() for name, weight in critic.params.items() if weight.grad is not None})
    assert found[0].keys() == found[1].keys() and len(found[0]) > 2
    for name, grad in found[0].items():
        assert torch.allclose(grad, found[1][name], atol=1e-4 * float(grad.abs().max()) + 1e-6), name


@KINDS
def test_what_is_saved_is_what_is_loaded(kind: str, tmp_path: Path) -> None:
    needs(kind)
    _, critic = critic_of(engine(), kind)
    for _ in range(2):
        critic.backward(ROWS, ValueLoss(None))
        critic.step(1e-2)
    critic.save(tmp_path)
    expected = values(critic)
    _, other = critic_of(engine(), kind)
    other.load(tmp_path)
    assert np.array_equal(values(other), expected) and other.version == 2
    for model in (critic, other):
        model.backward(ROWS, ValueLoss(None))
        model.step(1e-2)
    assert np.array_equal(values(critic), values(other)), "moments too"


def test_in_bfloat16_the_masters_are_of_trunk_and_head() -> None:
    _, critic = critic_of(engine(dtype=torch.bfloat16))
    losses = []
    for _ in range(30):
        losses.append(critic.backward(ROWS, ValueLoss(None))["critic/loss"])
        critic.step(3e-3)
    assert losses[-1] < 0.5 * losses[0]
    assert all(master.dtype == torch.float32 for master in critic.optimizer.masters.values())


def test_a_vocabulary_projection_of_its_own_is_not_the_critics() -> None:
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, tie_word_embeddings=False
    )
    made = LocalEngine(LlamaForCausalLM(config), Text(str, frozenset({2})))
    policy, critic = critic_of(made)
    assert set(policy.params) - set(critic.params) == {"lm_head.weight"}
    critic.backward(ROWS, ValueLoss(None))
    assert critic.step(1e-2)["grad_norm"] > 0


@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_the_last_state_of_a_full_context_can_be_asked(trunk: str) -> None:
    """The token behind it is one more than the positions that the model knows, and is never read."""
    config = GPT2Config(vocab_size=64, n_positions=12, n_embd=16, n_layer=1, n_head=2)
    made = LocalEngine(GPT2LMHeadModel(config), Text(str, frozenset({2})))
    policy = made.model("policy", ModelSpec())
    critic = made.model("critic", replace(OWN, trunk=trunk))  # type: ignore[arg-type]
    with torch.no_grad():
        critic.head.weight.normal_(generator=torch.Generator().manual_seed(0))  # type: ignore[union-attr]
        full = np.arange(3, 15)
        states = policy.trunk.hidden(torch.from_numpy(full)[None])[0]
        expected = (states @ critic.head.weight[0]).numpy()  # type: ignore[union-attr]
    row = Row.of(np.append(full, full[-1]), np.arange(1, 13))
    np.testing.assert_allclose(values(critic, [row]), expected, atol=1e-5)
