"""LoRA adapters on a frozen base (arXiv 2106.09685): the only module that knows peft."""

from __future__ import annotations

import warnings

from torch import nn
from transformers import PreTrainedModel

from stepwell.errors import ConfigError, MissingExtraError

__all__ = ["add_adapter", "merge_adapter", "use_adapter"]


def add_adapter(module: PreTrainedModel, name: str, rank: int, alpha: float) -> dict[str, nn.Parameter]:
    """Puts an adapter on every linear layer but the vocabulary projection; at first it changes nothing.

    Fresh weights come from torch's present random state.

    Args:
        module: The language model, changed in place.
        name: Of the adapter.
        rank: Of the product B A that the adapter adds to a weight.
        alpha: Its scale: what is added is `alpha / rank x B A`.

    Returns:
        The adapter's float32 parameters by name.

    Raises:
        MissingExtraError: peft is not installed.
        ConfigError: The name or the rank cannot be used.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise MissingExtraError("peft", "lora") from error
    if "." in name:
        raise ConfigError(f"The adapter's name is {name!r}; it must not hold a dot.")
    if rank < 1:
        raise ConfigError(f"The rank of adapter {name!r} is {rank}; it needs at least 1.")
    output = module.get_output_embeddings()
    linear = {n for n, part in module.named_modules() if isinstance(part, nn.Linear) and part is not output and "lora_" not in n}
    if not linear:
        raise ConfigError(f"{type(module).__name__} has no linear layer that an adapter could be put on; train it with full weights.")
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules={n.removesuffix(".base_layer") for n in linear})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Already found a `peft_config`")  # several adapters on one base are the point here
        inject_adapter_in_model(config, module, adapter_name=name)
    params: dict[str, nn.Parameter] = {n: p for n, p in module.named_parameters() if f".{name}." in n}
    for parameter in params.values():
        parameter.data = parameter.data.float()
    return params


def use_adapter(module: PreTrainedModel, name: str) -> None:
    """Computes with this adapter alone. All adapters stay trainable: one may wait for its update while another is used."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    for part in module.modules():
        if isinstance(part, BaseTunerLayer):
            part.set_adapter(name)
            for parameter_name, parameter in part.named_parameters():
                if "lora_" in parameter_name:
                    parameter.requires_grad_(True)


def merge_adapter(module: PreTrainedModel, name: str) -> None:
    """Adds an adapter to the weights below it, and takes all adapters out."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = {path: part for path, part in module.named_modules() if isinstance(part, BaseTunerLayer)}
    for path, layer in layers.items():
        layer.merge(adapter_names=[name])
        parent, _, child = path.rpartition(".")
        setattr(module.get_submodule(parent), child, layer.get_base_layer())
