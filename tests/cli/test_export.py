"""Exported folders hold what was trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from commands import SMALL, stepwell
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from stepwell.build import build_domain
from stepwell.configure import load
from stepwell.engine.template import PLAIN
from stepwell.engine.tiny import word_tokenizer
from stepwell.rollout import rollout
from stepwell.run import train
from stepwell.trained import export, open_run
from stepwell.types import Row

LEARNING = ("cloning.optimizer.kind=adamw", "cloning.optimizer.lr=0.01", "optimizer.lr=0.01", "reward.lr=0.01", "reward.pay=score")
"""Large steps, so that what was learnt shows."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama on the disk, with untied embeddings."""
    folder = tmp_path_factory.mktemp("base") / "llama"
    shop = build_domain(load("smoke", SMALL).domain)
    tokenizer = word_tokenizer([task.prompt for task in shop.tasks("test")] * 3, 300)
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), eos_token_id=2, pad_token_id=0, **sizes)).save_pretrained(folder)
    return folder


def made(base: Path, folder: Path, *settings: str) -> Path:
    small = [one for one in SMALL if not one.startswith("engine.")]
    engine = ["engine.kind=local", f"engine.model={base}", "engine.threads=1"]
    config = load("smoke", [*small, *engine, *LEARNING, *settings])
    for _ in train(config, folder):
        pass
    return folder


def check_same(run: Path, exported: Path, tolerance: float) -> None:
    """transformers' own log-probs are the policy's, at all tokens of an episode; its tokenizer speaks the same."""
    opened = open_run(run, ["engine.dtype=float32"] if "local" in (run / "config.yaml").read_text() else [])
    model, tokenizer = AutoModelForCausalLM.from_pretrained(exported), AutoTokenizer.from_pretrained(exported)
    assert model.dtype == torch.float32
    task = opened.domain.tasks("test")[0]
    ((episode,),) = (g.members for g in rollout(opened.domain, [task], opened.policy, opened.player.at(1.0), group_size=1, seed=(0,)))
    turn = episode.turns[-1]
    ids = np.concatenate([turn.context_ids, turn.token_ids])
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.from_numpy(ids)[None]).logits[0, :-1].double(), -1)
    theirs = logprobs.gather(1, torch.from_numpy(ids)[1:, None])[:, 0].numpy()
    (ours,) = opened.policy.logprobs([Row.of(ids, np.arange(1, len(ids)))])
    np.testing.assert_allclose(theirs, ours, atol=tolerance)
    messages = [{"role": "user", "content": task.prompt}]
    rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert list(rendered) == list(opened.player.chat.converse(task.prompt).context())
    assert set(model.generation_config.eos_token_id) == set(opened.player.chat.eos_ids)


@pytest.mark.parametrize("model", ["policy", "judge"])
def test_a_tiny_run(run: Path, tmp_path: Path, model: Literal["policy", "judge"]) -> None:
    said = stepwell("export", run, tmp_path / "out", "--model", model)
    assert (said.code, said.out) == (0, f"{tmp_path / 'out'}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"], "nothing is left beside it"
    assert (tmp_path / "out" / "stepwell.yaml").read_text() == (run / "config.yaml").read_text()
    trained = load_file(run / "checkpoints" / "step-000005" / "models" / model / "model.safetensors")
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert {f"weight/{name}" for name in written} == {name for name in trained if name.startswith("weight/")}
    assert all(torch.equal(tensor, trained[f"weight/{name}"]) for name, tensor in written.items())
    if model == "policy":
        check_same(run, tmp_path / "out", 1e-6)


def test_the_checkpoint_is_the_one_asked_for(run: Path, tmp_path: Path) -> None:
    best = json.loads((run / "checkpoints" / "best.json").read_text())["step"]
    assert best < 5, "else the test shows nothing"
    export(run, tmp_path / "best", checkpoint="best")
    export(run, tmp_path / "last")
    name = "model.layers.0.mlp.up_proj.weight"
    for folder, step in (("best", best), ("last", 5)):
        trained = load_file(run / "checkpoints" / f"step-{step:06d}" / "models" / "policy" / "model.safetensors")
        assert torch.equal(load_file(tmp_path / folder / "model.safetensors")[name], trained[f"weight/{name}"])


def test_full_weights_computed_in_bfloat16_are_written_as_their_float32_masters(base: Path, tmp_path: Path) -> None:
    run = made(base, tmp_path / "run", "engine.dtype=bfloat16", "chat.template=plain")
    export(run, tmp_path / "out")
    trained = load_file(run / "checkpoints" / "step-000005" / "models" / "policy" / "model.safetensors")
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(tensor, trained[f"weight/{name}"]) for name, tensor in written.items())
    assert any(not torch.equal(tensor, tensor.bfloat16().float()) for tensor in written.values()), "more than bfloat16 holds"
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template == PLAIN
    check_same(run, tmp_path / "out", 1e-5)


def test_adapters_are_merged_into_their_base(base: Path, tmp_path: Path) -> None:
    run = made(base, tmp_path / "run", "engine.policy=lora", "engine.rank=4", "reward.model=lora", "engine.dtype=float32")
    export(run, tmp_path / "policy")
    export(run, tmp_path / "judge", model="judge")
    check_same(run, tmp_path / "policy", 1e-5)
    name = "model.layers.1.self_attn.q_proj.weight"
    start = load_file(base / "model.safetensors")
    for model in ("policy", "judge"):
        written = load_file(tmp_path / model / "model.safetensors")
        assert set(written) == set(start), "no adapter is left"
        found = load_file(run / "checkpoints" / "step-000005" / "models" / model / "model.safetensors")
        a, b = (found[f"weight/{name.removesuffix('.weight')}.lora_{part}.{model}.weight"] for part in "AB")
        assert float(b.abs().max()) > 0
        torch.testing.assert_close(written[name], start[name] + 32.0 / 4 * b @ a, atol=1e-6, rtol=0)


def test_a_run_with_credit_around_interruptions_opens_where_nothing_happens(tmp_path: Path) -> None:
    """Credit is given in training alone, so taking the interruptions away leaves nothing that does not fit."""
    around = ("interruptions.kinds=[tool_error]", "interrupted_credit.kind=decay")
    list(train(load("smoke", [*SMALL, *around, "steps=1", "checkpoint.every=1"]), tmp_path / "run"))
    opened = open_run(tmp_path / "run", ["domain.interruptions.kinds=[]"])
    assert opened.config.domain.interruptions.kinds == () and opened.config.interrupted_credit.kind == "none"  # type: ignore[union-attr]
