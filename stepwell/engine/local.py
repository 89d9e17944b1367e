"""Transformers models on CPU or one GPU: several models over one base.

What a model does is in `engine.model`, sampling in `engine.policy` and `engine.sampler`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn
from transformers import PreTrainedModel

from stepwell.engine.adapter import add_adapter
from stepwell.engine.model import LocalModel
from stepwell.engine.policy import LocalPolicy
from stepwell.engine.shared import SharedStates
from stepwell.engine.trunk import Trunk
from stepwell.errors import CapabilityError, ConfigError
from stepwell.protocols import Capabilities, ModelSpec
from stepwell.seeding import derive

__all__ = ["Budget", "LocalEngine", "LocalModel", "LocalPolicy", "Text"]


@dataclass(frozen=True)
class Text:
    """What sampling needs of a tokenizer: how to decode, and which tokens end a turn."""

    decode: Callable[[Sequence[int]], str]
    eos_ids: frozenset[int]


@dataclass(frozen=True)
class Budget:
    """Size of micro-batches: padded positions and rows, at most."""

    tokens: int = 4096
    rows: int = 16


class LocalEngine:
    """One base in memory and the models on it.

    The first full model trains the base itself. Every further full model is a copy of a whole language model: a full judge doubles the
    memory, an adapter or a head costs next to nothing.

    Args:
        module: A causal LM of transformers; its data type is the one computed in.
        text: How to decode and when a turn ends.
        budget: Size of training micro-batches.
        seed: Of freshly made adapter weights.
    """

    @property
    def model_type(self) -> type[LocalModel]:
        """What its models are."""
        return LocalModel

    def __init__(self, module: PreTrainedModel, text: Text, budget: Budget | None = None, seed: int = 0) -> None:
        module.eval()
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        self._trunk = Trunk(module)
        self.text = text
        self.budget = budget or Budget()
        self.seed = seed
        self._models: dict[str, LocalModel] = {}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(kinds=frozenset({"full", "lora", "head"}), entropy=True, values=True, certainty=True)

    @property
    def max_length(self) -> int:
        return self._trunk.max_length

    @property
    def notice(self) -> str:
        """What a user should know about this model, or ""."""
        return "" if self._trunk.caches else "This model's cache cannot be kept over turns: every turn feeds the whole history."

    def model(self, name: str, spec: ModelSpec) -> LocalModel:
        """A new trainable model; see `ModelSpec`.

        Raises:
            ConfigError: A name that is taken or unknown, a temperature that is not positive, or kinds that do not fit together.
            CapabilityError: Adapters and full weights on one base.
        """
        if name in self._models:
            raise ConfigError(f"The engine already has a model named {name!r}; choose another name.")
        if spec.of is not None and spec.of not in self._models:
            raise ConfigError(f"Model {name!r} starts from {spec.of!r}, which does not exist; known: {', '.join(self._models) or 'none'}.")
        if not (math.isfinite(spec.temperature) and spec.temperature > 0):
            raise ConfigError(f"The temperature of model {name!r} is {spec.temperature}; log-probs need a positive one.")
        of = None if spec.of is None else self._models[spec.of]
        if of is not None and of.head is not None:
            raise ConfigError(f"Model {name!r} starts from {spec.of!r}, which is a head; name a model of full weights or an adapter.")
        make = {"full": self._full, "lora": self._lora, "head": self._head}
        model = make[spec.kind](name, spec, of)
        self._models[name] = model
        return model

    def as_it_is(self) -> LocalPolicy:
        """The base as it was loaded, for uses that train nothing: it has no copy and no optimiser."""
        if self._models:
            raise ConfigError(f"The base is trained by {', '.join(self._models)}; ask for it as it is before any model is made on it.")
        return LocalModel(self, self._trunk, ModelSpec(), {}).snapshot()

    def _full(self, name: str, spec: ModelSpec, of: LocalModel | None) -> LocalModel:
        others = {n: m for n, m in self._models.items() if m.trunk is self._trunk and m.head is None}
        if any(other.spec.kind == "lora" for other in others.values()):
            raise CapabilityError(
                f"Model {name!r} wants full weights beside adapters on the same base; use lora for all models, or full for all."
            )
        trained = [n for n, other in others.items() if of is None and other.version > 0]
        if trained:
            raise ConfigError(
                f"Model {name!r} is to start from the base, which {trained[0]!r} has trained meanwhile; "
                f"make it earlier, or say of: {trained[0]}."
            )
        source = self._trunk if of is None else of.trunk
        trunk = Trunk(copy.deepcopy(source.module)) if others else self._trunk
        for parameter in trunk.module.parameters():
            parameter.requires_grad_(True)
        model = self.model_type(self, trunk, spec, dict(trunk.module.named_parameters()))
        if of is not None:
            model.copy_from(of)
        return model

    def _lora(self, name: str, spec: ModelSpec, of: LocalModel | None) -> LocalModel:
        if any(other.spec.kind == "full" for other in self._models.values()):
            raise CapabilityError(
                f"Model {name!r} is an adapter, but the base's own weights are trained; adapters need a frozen base: "
                "make the policy lora too."
            )
        device = self._trunk.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(derive(self.seed, "adapter", name))
            params = add_adapter(self._trunk.module, name, spec.rank, spec.alpha)
        self._trunk.adapter = None
        model = self.model_type(self, self._trunk, spec, params, adapter=name)
        if of is not None:
            model.copy_from(of)
        return model

    def _head(self, name: str, spec: ModelSpec, of: LocalModel | None) -> LocalModel:
        if of is None:
            raise ConfigError(f"Model {name!r} is a head; say whose hidden states it reads (of: policy).")
        head = nn.Linear(of.trunk.width, 1).to(of.trunk.device)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        if spec.trunk == "shared":
            of.is_read = True
            return self.model_type(
                self, of.trunk, spec, dict(head.named_parameters()), adapter=of.adapter, head=head, shared=SharedStates(of)
            )
        make = self._full if of.adapter is None else self._lora
        body = make(name, replace(spec, rank=of.spec.rank, alpha=of.spec.alpha), of)
        read = {id(weight) for weight in body.trunk.base.parameters()}  # a vocabulary projection of its own says nothing about values
        params = {part: weight for part, weight in body.params.items() if id(weight) in read}
        params |= {f"head.{part}": weight for part, weight in head.named_parameters()}
        return self.model_type(self, body.trunk, spec, params, adapter=body.adapter, head=head)
