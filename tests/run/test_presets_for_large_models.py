"""The presets for Qwen models, by the same code on a tiny model of the same architecture, written to disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from speakers import write_qwen2
from transformers import AutoModelForCausalLM, AutoTokenizer

import stepwell
from stepwell.trained import export

DATA = Path(__file__).parent.parent / "data" / "webshop"
SMALL = [
    f"data={DATA}",
    "steps=1",
    "engine.threads=1",
    "engine.device=cpu",
    "engine.rank=4",
    "rollout.groups=2",
    "rollout.group_size=2",
    "rollout.turns=2",
    "rollout.max_tokens=6",
    "rollout.context=2048",
    "evaluation.every=0",
    "evaluation.episodes=2",
]


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = (DATA / "items_ins_v2_1000.json").read_text(encoding="utf-8").splitlines()[:50]
    return write_qwen2(tmp_path_factory.mktemp("qwen2"), texts, max_length=4096)


@pytest.mark.parametrize("preset", ["default", "qwen3-4b"])
def test_the_preset_trains_and_exports(preset: str, qwen2: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    config = stepwell.load(preset, [f"engine.model={qwen2}", *SMALL])
    metrics = [made for _, made in stepwell.train(config, tmp_path / "run")]
    assert len(metrics) == 1
    assert metrics[0]["rollout/episodes"] == 4
    assert metrics[0]["rollout/failed"] == 0
    report = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    assert report["episodes"] == 4
    target = export(tmp_path / "run", tmp_path / "out")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(target), AutoTokenizer.from_pretrained(target)
    assert model.config.model_type == "qwen2"
    assert len(tokenizer) <= model.config.vocab_size
