"""Transformers models on CPU or one GPU: sampling, log-probs, backward; several models over one base.

Computation may run in bfloat16; trainable weights and optimiser are float32 (a master copy, where the two differ).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stepwell.engine.batch import micro_batches, pad
from stepwell.engine.optimizer import Optimizer
from stepwell.engine.sampler import Sampler, Work
from stepwell.engine.trunk import Trunk
from stepwell.errors import CapabilityError, ConfigError, MissingExtraError, StaleWeightsError
from stepwell.protocols import Capabilities, Loss, ModelSpec, OptimizerSpec
from stepwell.types import Batch, Completion, Floats, Ids, Mean, Metrics, Outputs, Row, Sampling, Tallies

__all__ = ["LocalEngine", "LocalModel", "LocalPolicy", "Text"]

NOTHING: frozenset[str] = frozenset()


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

    Args:
        module: A causal LM of transformers; its data type is the one computed in.
        text: How to decode and when a turn ends.
        budget: Size of training micro-batches.
        seed: Of freshly made adapter and head weights.
    """

    def __init__(self, module: nn.Module, text: Text, budget: Budget | None = None, seed: int = 0) -> None:
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
        return Capabilities(kinds=frozenset({"full", "lora", "head"}), entropy=True, values=True)

    @property
    def max_length(self) -> int:
        return self._trunk.max_length

    @property
    def notice(self) -> str:
        """What a user should know about this model, or ""."""
        return "" if self._trunk.caches else "This model's cache cannot be kept over turns: every turn feeds the whole history."

    def model(self, name: str, spec: ModelSpec) -> LocalModel:
        """A new trainable model; see `ModelSpec`."""
        if name in self._models:
            raise ConfigError(f"The engine already has a model named {name!r}; choose another name.")
        if spec.of is not None and spec.of not in self._models:
            raise ConfigError(f"Model {name!r} starts from {spec.of!r}, which does not exist; known: {', '.join(self._models) or 'none'}.")
        make = {"full": self._full, "lora": self._lora, "head": self._head}
        model = make[spec.kind](name, spec)
        self._models[name] = model
        return model

    def _full(self, name: str, spec: ModelSpec) -> LocalModel:
        others = [other for other in self._models.values() if other.trunk is self._trunk]
        if any(other.spec.kind == "lora" for other in others) or (spec.of and self._models[spec.of].spec.kind == "lora"):
            raise CapabilityError(
                f"Model {name!r} wants full weights beside adapters on the same base; use lora for all models, or full for all."
            )
        trunk = self._trunk
        if others:
            source = self._models[spec.of].trunk if spec.of else self._trunk
            trunk = Trunk(copy.deepcopy(source.module))
        for parameter in trunk.module.parameters():
            parameter.requires_grad_(True)
        return LocalModel(self, trunk, spec, dict(trunk.module.named_parameters()))

    def _lora(self, name: str, spec: ModelSpec) -> LocalModel:
        if any(other.spec.kind == "full" and other.trunk is self._trunk for other in self._models.values()):
            raise CapabilityError(
                f"Model {name!r} is an adapter, but the base's own weights are trained; adapters need a frozen base: make the policy lora too."
            )
        try:
            from peft import LoraConfig, inject_adapter_in_model
        except ImportError as error:
            raise MissingExtraError("peft", "lora") from error
        torch.manual_seed(self.seed)
        config = LoraConfig(r=spec.rank, lora_alpha=spec.alpha, target_modules="all-linear", lora_dropout=0.0)
        module = self._trunk.module
        output = module.get_output_embeddings()  # type: ignore[operator]
        names = [n for n, part in module.named_modules() if isinstance(part, nn.Linear) and part is not output and "lora_" not in n]
        config.target_modules = {n.removesuffix(".base_layer") for n in names}
        inject_adapter_in_model(config, module, adapter_name=name)
        params = {n: p for n, p in module.named_parameters() if f".{name}." in n}
        for parameter in params.values():
            parameter.data = parameter.data.float()
            parameter.requires_grad_(True)
        model = LocalModel(self, self._trunk, spec, params, adapter=name)
        if spec.of is not None:
            model.copy_from(self._models[spec.of])
        return model

    def _head(self, name: str, spec: ModelSpec) -> LocalModel:
        if spec.of is None:
            raise ConfigError(f"Model {name!r} is a head; say whose hidden states it reads (of: policy).")
        under = self._models[spec.of]
        width = under.trunk.width
        head = nn.Linear(width, 1).to(under.trunk.device)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        return LocalModel(self, under.trunk, spec, dict(head.named_parameters()), adapter=under.adapter, head=head)


class LocalModel:
    """One trainable model: `protocols.Model`."""

    def __init__(
        self,
        engine: LocalEngine,
        trunk: Trunk,
        spec: ModelSpec,
        params: dict[str, nn.Parameter],
        *,
        adapter: str | None = None,
        head: nn.Linear | None = None,
    ) -> None:
        self.engine, self.trunk, self.spec, self.params = engine, trunk, spec, params
        self.adapter, self.head = adapter, head
        self.version = 0
        self.optimizer = Optimizer(params, spec.optimizer)

    # -- outputs --------------------------------------------------------------------------------------------------------------

    @contextmanager
    def using(self, weights: dict[str, Tensor] | None) -> Iterator[None]:
        """Runs with other weights in place of the present ones (None: the present ones), and with its own adapter switched on."""
        self._switch_adapter()
        if weights is None:
            yield
            return
        present = {name: parameter.data for name, parameter in self.params.items()}
        try:
            for name, parameter in self.params.items():
                parameter.data = weights[name]
            yield
        finally:
            for name, parameter in self.params.items():
                parameter.data = present[name]

    def _switch_adapter(self) -> None:
        if self.adapter is None:
            return
        from peft.tuners.tuners_utils import BaseTunerLayer

        for part in self.trunk.module.modules():
            if isinstance(part, BaseTunerLayer) and part.active_adapters != [self.adapter]:
                part.set_adapter(self.adapter)
                for name, parameter in part.named_parameters():
                    if "lora_" in name:
                        parameter.requires_grad_(True)

    def _outputs(self, rows: Sequence[Row], want: frozenset[str]) -> tuple[Outputs, Batch]:
        ids, targets, batch = pad(rows, self.trunk.device)
        if "values" in want and self.head is None:
            raise CapabilityError("Values are wanted from a model without a head; give it kind head.")
        values = None
        if self.head is not None:
            with torch.no_grad():
                hidden = self.trunk.hidden(ids)
            at = hidden.gather(1, (targets - 1)[..., None].expand(-1, -1, hidden.shape[-1])).float()
            values = torch.where(batch.mask, self.head(at)[..., 0], 0.0)
            return Outputs(torch.zeros_like(values), None, values), batch
        logprobs, entropy = self.trunk.target_outputs(ids, targets, batch.mask, self.spec.temperature, "entropy" in want)
        return Outputs(logprobs, entropy, values), batch

    def _micro_batches(self, rows: Sequence[Row]) -> list[list[int]]:
        return micro_batches(rows, self.engine.budget.tokens, self.engine.budget.rows)

    @torch.no_grad()
    def forward(self, rows: Sequence[Row], want: frozenset[str] = NOTHING) -> list[dict[str, Floats]]:
        """See `protocols.Model.forward`."""
        made: list[dict[str, Floats]] = [{} for _ in rows]
        self._switch_adapter()
        for picked in self._micro_batches(rows):
            outputs, _ = self._outputs([rows[i] for i in picked], want)
            named = {"logprobs": outputs.logprobs, "entropy": outputs.entropy, "values": outputs.values}
            for name, tensor in named.items():
                if tensor is not None:
                    array = tensor.double().cpu().numpy()
                    for b, i in enumerate(picked):
                        made[i][name] = array[b, : len(rows[i].targets)]
        return made

    # -- learning -------------------------------------------------------------------------------------------------------------

    def backward(self, rows: Sequence[Row], loss: Loss) -> Metrics:
        """See `protocols.Model.backward`. Exact whatever the micro-batches: a loss that spans rows goes by its gradient at the outputs."""
        if not rows:
            return {}
        self._switch_adapter()
        picks = self._micro_batches(rows)
        if loss.spans_rows and len(picks) > 1:
            return self._backward_two_pass(rows, picks, loss)
        total: Tallies = {}
        for picked in picks:
            outputs, batch = self._outputs([rows[i] for i in picked], loss.wants)
            value, tallies = loss(outputs, batch)
            if value.requires_grad:
                value.backward()  # type: ignore[no-untyped-call]
                self.optimizer.gather()
            for name, tally in tallies.items():
                seen = total.get(name, Mean(0.0, 0.0))
                total[name] = Mean(seen.total + tally.total, seen.weight + tally.weight)
        return {name: tally.value for name, tally in total.items()}

    def _backward_two_pass(self, rows: Sequence[Row], picks: list[list[int]], loss: Loss) -> Metrics:
        _, _, batch = pad(rows, self.trunk.device)
        names = ["values"] if self.head is not None else ["logprobs", *(n for n in ("entropy",) if n in loss.wants)]
        leaves = {name: torch.zeros(batch.mask.shape, device=self.trunk.device) for name in names}
        for i, outputs in enumerate(self.forward(rows, loss.wants)):
            for name, leaf in leaves.items():
                leaf[i, : len(rows[i].targets)] = torch.from_numpy(outputs[name]).to(leaf)
        for leaf in leaves.values():
            leaf.requires_grad_(True)
        logprobs = leaves.get("logprobs", torch.zeros(batch.mask.shape, device=self.trunk.device))
        value, tallies = loss(Outputs(logprobs, leaves.get("entropy"), leaves.get("values")), batch)
        grads = dict(zip(leaves, torch.autograd.grad(value, list(leaves.values()), allow_unused=True), strict=True))
        for picked in picks:
            outputs, part = self._outputs([rows[i] for i in picked], loss.wants)
            given = {"logprobs": outputs.logprobs, "entropy": outputs.entropy, "values": outputs.values}
            width = part.mask.shape[1]
            carried = [(given[name] * grad[picked, :width]).sum() for name, grad in grads.items() if grad is not None]  # type: ignore[operator]
            if carried:
                torch.stack(carried).sum().backward()  # type: ignore[no-untyped-call]
                self.optimizer.gather()
        return {name: tally.value for name, tally in tallies.items()}

    def step(self, lr: float) -> Metrics:
        """See `protocols.Model.step`."""
        self.version += 1
        return self.optimizer.step(lr)

    def restart_optimizer(self, spec: OptimizerSpec) -> None:
        """Fresh optimiser state; the weights stay."""
        self.optimizer = Optimizer(self.params, spec, masters=self.optimizer.masters)

    # -- weights --------------------------------------------------------------------------------------------------------------

    def snapshot(self) -> LocalPolicy:
        """See `protocols.Model.snapshot`."""
        return LocalPolicy(self, None)

    def keep(self) -> LocalPolicy:
        """See `protocols.Model.keep`."""
        return LocalPolicy(self, {name: parameter.detach().clone() for name, parameter in self.params.items()})

    @torch.no_grad()
    def copy_from(self, other: LocalModel) -> None:
        """Takes over the weights of a model of the same kind and shape."""
        mine, theirs = list(self.params.values()), list(other.params.values())
        if [p.shape for p in mine] != [p.shape for p in theirs]:
            raise ConfigError("A model can start only from one of the same kind and shape; give both the same kind and rank.")
        for target, source in zip(mine, theirs, strict=True):
            target.copy_(source)
        self.optimizer = Optimizer(self.params, self.optimizer.spec)

    def save(self, path: Path) -> None:
        """Writes `model.safetensors` (float32 weights and optimiser state) and `model.json`, exactly."""
        path.mkdir(parents=True, exist_ok=True)
        tensors, facts = self.optimizer.state()
        save_file({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}, path / "model.safetensors")
        (path / "model.json").write_text(json.dumps({"version": self.version, "optimizer": facts}), encoding="utf-8")

    def load(self, path: Path) -> None:
        """Restores what `save` wrote."""
        facts = json.loads((path / "model.json").read_text(encoding="utf-8"))
        self.optimizer.restore(load_file(path / "model.safetensors"), facts["optimizer"])
        self.version = int(facts["version"])


class LocalPolicy:
    """Weights frozen at a version: `protocols.Policy`."""

    def __init__(self, model: LocalModel, kept: dict[str, Tensor] | None) -> None:
        self._model = model
        self._kept = kept
        self.version = model.version
        text = model.engine.text
        self._sampler = Sampler(model.trunk, text.decode, text.eos_ids)

    @property
    def work(self) -> Work:
        """Positions computed by sampling so far."""
        return self._sampler.work

    @property
    def max_length(self) -> int:
        return self._model.trunk.max_length

    def _check(self) -> None:
        if self._kept is None and self.version != self._model.version:
            raise StaleWeightsError(
                f"This policy is version {self.version}, its model is now version {self._model.version}; take a new snapshot, or keep() for a reference."
            )

    def sample(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> list[Completion]:
        """See `protocols.Policy.sample`."""
        self._check()
        with self._model.using(self._kept):
            return self._sampler.sample(contexts, sampling, seeds)

    def logprobs(self, rows: Sequence[Row]) -> list[Floats]:
        """See `protocols.Policy.logprobs`."""
        self._check()
        with self._model.using(self._kept):
            return [made["logprobs"] for made in self._model.forward(rows)]

    def save(self, path: Path) -> None:
        """Writes the kept weights."""
        if self._kept is None:
            raise CapabilityError("Only a policy that keeps its weights can be saved; call model.keep().")
        path.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.cpu().contiguous().clone() for name, tensor in self._kept.items()}, path / "kept.safetensors")

    def load(self, path: Path) -> None:
        """Takes kept weights from what `save` wrote."""
        if self._kept is None:
            raise CapabilityError("Only a policy that keeps its weights can be loaded; call model.keep().")
        found = load_file(path / "kept.safetensors")
        self._kept = {name: found[name].to(tensor) for name, tensor in self._kept.items()}

    def forget(self) -> None:
        """Drops cached keys and values, so that the next call feeds whole histories."""
        self._sampler.forget()
