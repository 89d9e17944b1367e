"""Trained weights as a folder that `from_pretrained` loads."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging as told_by_transformers

from stepwell.engine.adapter import merge_adapter
from stepwell.engine.local import LocalModel
from stepwell.errors import RunError
from stepwell.protocols import Model

__all__ = ["load_weights", "write_pretrained"]


@torch.no_grad()
def load_weights(model: Model, path: Path) -> None:
    """Takes the weights of what the model's `save` wrote; of a local one without the optimiser's state: for uses that train no more.

    Raises:
        RunError: The weights are of another model.
    """
    if not isinstance(model, LocalModel):
        model.load(path)
        return
    masters = model.optimizer.masters
    with safe_open(path / "model.safetensors", "pt") as file:
        found = {name.removeprefix("weight/"): name for name in file.keys() if name.startswith("weight/")}  # noqa: SIM118 - no mapping
        shapes = {name: tuple(file.get_slice(key).get_shape()) for name, key in found.items()}
        if shapes != {name: tuple(master.shape) for name, master in masters.items()}:
            raise RunError(
                f"{path} holds {len(found)} weights that are not those of this model ({len(masters)} weights): the model that the run's "
                "config names, or the domain that a tiny model's vocabulary is of, is not what it was at the time of training."
            )
        for name, key in found.items():
            masters[name].copy_(file.get_tensor(key))
    model.optimizer.publish()
    model.version = int(json.loads((path / "model.json").read_text(encoding="utf-8"))["version"])


@torch.no_grad()
def write_pretrained(
    model: LocalModel, tokenizer: PreTrainedTokenizerBase, folder: Path, *, eos_ids: Collection[int], template: str | None = None
) -> None:
    """Writes weights in float32, config and tokenizer. The model cannot be used afterwards.

    Args:
        model: Computing in float32, so that weights are their own masters. Full, or an adapter, which is merged into its base.
        tokenizer: With `template` in place of its own chat template, if given.
        folder: Where to; exists and is empty.
        eos_ids: Tokens that end a turn, for `generate`.
    """
    module = model.trunk.module
    assert model.trunk.dtype == torch.float32, "a model to be written is loaded in float32"
    if model.adapter is not None:
        merge_adapter(module, model.adapter)
    module.generation_config.eos_token_id = sorted(eos_ids)
    vars(module.config).pop("quantization_config", None)  # of the file that it was loaded from; the weights are plain numbers by now
    with _without_bar():
        module.save_pretrained(folder)
    if template is not None:
        tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)


@contextmanager
def _without_bar() -> Iterator[None]:
    """Keeps transformers from drawing a bar for what takes a moment."""
    shown = told_by_transformers.is_progress_bar_enabled()
    told_by_transformers.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            told_by_transformers.enable_progress_bar()
