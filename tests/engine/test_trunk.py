"""Hidden states and logits of any causal LM: what splits is split, what caches is cached, log-probs are right in every case."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from speakers import SMALL, loud
from torch import Tensor
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)

import stepwell.engine.trunk as trunk_module
from stepwell.engine.local import LocalEngine, Text
from stepwell.engine.sampler import Sampler
from stepwell.engine.tiny import tiny_model
from stepwell.engine.trunk import Trunk
from stepwell.testing import check_engine
from stepwell.types import Sampling

BOTH = frozenset({"entropy", "certainty"})
SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def llama() -> PreTrainedModel:
    return loud(tiny_model(64, SMALL, seed=0))


def stretched() -> PreTrainedModel:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    return loud(LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters=rope)))


def mistral(window: int | None) -> PreTrainedModel:
    return loud(MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=window)))


def gemma2() -> PreTrainedModel:
    config = Gemma2Config(**SHAPE, head_dim=8, sliding_window=8, final_logit_softcapping=3.0, attn_logit_softcapping=5.0)
    return loud(Gemma2ForCausalLM(config))


def cohere() -> PreTrainedModel:
    return loud(CohereForCausalLM(CohereConfig(**SHAPE, logit_scale=0.25)))


def granite() -> PreTrainedModel:
    return loud(GraniteForCausalLM(GraniteConfig(**SHAPE, logits_scaling=4.0)))


def gpt2() -> PreTrainedModel:
    config = GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=2)
    return loud(GPT2LMHeadModel(config))


def mamba() -> PreTrainedModel:
    return loud(MambaForCausalLM(MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, state_size=4)), scale=2.0)


MODELS: dict[str, tuple[Callable[[], PreTrainedModel], bool, bool]] = {
    "llama": (llama, True, True),
    "llama with angles that depend on the length": (stretched, True, False),
    "mistral": (lambda: mistral(None), True, True),
    "mistral with a window longer than its context": (lambda: mistral(128), True, True),
    "mistral with a window": (lambda: mistral(8), True, False),
    "gemma2, capped logits and layers with a window": (gemma2, False, False),
    "cohere, scaled logits": (cohere, False, False),
    "granite, scaled logits": (granite, False, False),
    "gpt2, a table of positions": (gpt2, True, True),
    "mamba, no attention": (mamba, True, False),
}


@pytest.fixture(params=MODELS, ids=lambda name: name.split(",")[0].replace(" ", "-"))
def case(request: pytest.FixtureRequest) -> tuple[PreTrainedModel, bool, bool]:
    make, splits, caches = MODELS[request.param]
    return make().eval(), splits, caches


@pytest.fixture
def trunk() -> Trunk:
    return Trunk(llama().eval())


def padded(module: PreTrainedModel) -> tuple[Tensor, Tensor, Tensor, list[np.ndarray]]:
    """Two padded rows with targets, and what transformers itself says: logits before each target, row by row without padding."""
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], [20, 21, 22, 23, 24, 0, 0, 0, 0, 0, 0, 0]])
    targets, mask = torch.tensor([[1, 4, 11], [2, 4, 1]]), torch.tensor([[True, True, True], [True, True, False]])
    with torch.no_grad():
        rows = [module(input_ids=ids[:1]).logits[0], module(input_ids=ids[1:, :5]).logits[0]]
    return ids, targets, mask, [row.double().numpy() for row in rows]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_and_entropy_of_every_kind(case: tuple[PreTrainedModel, bool, bool], temperature: float) -> None:
    module, splits, caches = case
    trunk = Trunk(module)
    assert (trunk.splits, trunk.caches) == (splits, caches)
    ids, targets, mask, logits = padded(module)
    with torch.no_grad():
        logprobs, entropy, certainty = trunk.target_outputs(ids, targets, mask, temperature, BOTH)
    assert entropy is not None and certainty is not None
    for b, row in enumerate(logits):
        for n in range(3):
            if not mask[b, n]:
                assert (float(logprobs[b, n]), float(entropy[b, n]), float(certainty[b, n])) == (0.0, 0.0, 0.0)
                continue
            scaled = row[targets[b, n] - 1] / temperature
            own = scaled - np.log(np.exp(scaled - scaled.max()).sum()) - scaled.max()
            assert float(logprobs[b, n]) == pytest.approx(own[ids[b, targets[b, n]]], abs=2e-5)
            assert float(entropy[b, n]) == pytest.approx(-(np.exp(own) * own).sum(), abs=2e-5)
            assert float(certainty[b, n]) == pytest.approx(-np.mean(own + np.log(len(own))), abs=2e-5)


def test_sampling_of_every_kind(case: tuple[PreTrainedModel, bool, bool]) -> None:
    """Two turns of ragged rows up to the last position, with whatever cache there is, against the model's own logits."""
    module = case[0]
    sampler = Sampler(Trunk(module), str, frozenset({-1}))
    rng = np.random.default_rng(0)
    contexts = [rng.integers(3, 64, n) for n in (30, 3, 17)]
    for turn in range(2):
        made = sampler.sample(contexts, [Sampling(max_tokens=4)] * 3, [10 * turn, 10 * turn + 1, 10 * turn + 2])
        for r, completion in enumerate(made):
            text = np.concatenate([contexts[r], completion.token_ids])
            with torch.no_grad():
                logprobs = torch.log_softmax(module(input_ids=torch.from_numpy(text)[None]).logits[0].float(), -1)
            own = [float(logprobs[at - 1, text[at]]) for at in range(len(contexts[r]), len(text))]
            np.testing.assert_allclose(completion.logprobs, own, atol=3e-5)
            contexts[r] = np.concatenate([text, rng.integers(3, 64, 5 if r else max(0, 124 - len(text)))])


@pytest.mark.parametrize("name", ["mistral with a window", "gemma2, capped logits and layers with a window", "gpt2, a table of positions"])
def test_the_whole_contract_holds_for_other_kinds(name: str) -> None:
    engine = LocalEngine(MODELS[name][0](), Text(str, frozenset({2})))
    assert ("every turn feeds the whole history" in engine.notice) is not MODELS[name][2]
    check_engine(engine)


def test_a_cap_that_fresh_weights_do_not_reach_is_found() -> None:
    """Logits near 0 are not changed by a cap at 30; after training they would be."""
    config = Gemma2Config(**SHAPE, head_dim=8, final_logit_softcapping=30.0)
    assert not Trunk(Gemma2ForCausalLM(config).eval()).splits


def test_padding_and_neighbours_change_nothing(trunk: Trunk) -> None:
    """U44: a row alone, and in a batch with a longer one."""
    rng = np.random.default_rng(1)
    short, long = torch.from_numpy(rng.integers(3, 64, 9)), torch.from_numpy(rng.integers(3, 64, 60))
    targets = torch.tensor([[1, 5, 8]])
    alone, *_ = trunk.target_outputs(short[None], targets, torch.ones(1, 3, dtype=torch.bool), 1.0)
    both = torch.stack([torch.nn.functional.pad(short, (0, 51), value=2), long])
    together, *_ = trunk.target_outputs(both, targets.expand(2, 3), torch.ones(2, 3, dtype=torch.bool), 1.0)
    torch.testing.assert_close(together[0], alone[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("chunk_rows", [1, 2, 4])
def test_a_projection_in_chunks_is_the_same_with_its_gradient(trunk: Trunk, monkeypatch: pytest.MonkeyPatch, chunk_rows: int) -> None:
    ids, targets, mask, _ = padded(trunk.module)
    for parameter in trunk.module.parameters():
        parameter.requires_grad_(True)
    made: list[list[Tensor]] = []
    for elements in (2**26, 64 * chunk_rows):
        monkeypatch.setattr(trunk_module, "_CHUNK_ELEMENTS", elements)
        logprobs, entropy, _ = trunk.target_outputs(ids, targets, mask, 0.7, BOTH)
        assert entropy is not None
        weights = torch.linspace(-1, 1, 6).reshape(2, 3)
        grads = torch.autograd.grad((weights * logprobs + 0.3 * entropy).sum(), list(trunk.module.parameters()))
        made.append([logprobs.detach(), entropy.detach(), *grads])
    for one, two in zip(*made, strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-5)


def test_no_more_logits_than_a_chunk_are_held(trunk: Trunk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trunk_module, "_CHUNK_ELEMENTS", 64 * 2)
    ids, targets, mask, _ = padded(trunk.module)
    sizes: list[int] = []
    trunk.module.get_output_embeddings().register_forward_hook(lambda _, __, output: sizes.append(len(output)))
    trunk.target_outputs(ids, targets, mask, 1.0)
    assert sizes == [2, 2, 1]


def test_a_batch_without_targets(trunk: Trunk) -> None:
    logprobs, entropy, _ = trunk.target_outputs(torch.tensor([[5, 6]]), torch.tensor([[1]]), torch.zeros(1, 1, dtype=torch.bool), 1.0, BOTH)
    assert logprobs.tolist() == [[0.0]]
    assert entropy is not None and entropy.tolist() == [[0.0]]
