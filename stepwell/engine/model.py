"""One trainable model on a trunk of transformers: outputs, gradients, weights.

Computation may run in bfloat16; trainable weights and optimiser are float32 (a master copy, where the two differ).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from stepwell.engine.adapter import use_adapter
from stepwell.engine.batch import micro_batches, pad
from stepwell.engine.optimizer import Optimizer
from stepwell.engine.policy import LocalPolicy
from stepwell.engine.sampler import Sampler
from stepwell.engine.shared import Said, SharedStates, WholeRows, distinct
from stepwell.engine.trunk import Trunk
from stepwell.errors import CapabilityError, ConfigError
from stepwell.protocols import Loss, ModelSpec, OptimizerSpec
from stepwell.types import Batch, Floats, Mean, Metrics, Outputs, Row, Tallies

if TYPE_CHECKING:
    from stepwell.engine.local import LocalEngine

__all__ = ["NOTHING", "LocalModel", "added"]

NOTHING: frozenset[str] = frozenset()
"""Wanted beside log-probs, or beside a head's values."""


class LocalModel:
    """One trainable model: `protocols.Model`.

    Attributes:
        stamp: Another object whenever the weights are others; a policy knows by it that its model has moved on.
        is_read: Whether a head reads this model's hidden states.
        recent: What sampled last with the present weights, as long as a head may read what it has computed.
        whole: What was computed by the last `forward`, for the same use.
    """

    def __init__(
        self,
        engine: LocalEngine,
        trunk: Trunk,
        spec: ModelSpec,
        params: dict[str, nn.Parameter],
        *,
        adapter: str | None = None,
        head: nn.Linear | None = None,
        shared: SharedStates | None = None,
    ) -> None:
        self.engine, self.trunk, self.spec, self.params = engine, trunk, spec, params
        self.adapter, self.head, self.shared = adapter, head, shared
        self.version = 0
        self.stamp = object()
        self.is_read = False
        self.recent: Sampler | None = None
        self.last_said = Said()
        self.whole = WholeRows()
        matrices = frozenset() if head is not None else _matrices(trunk.module) & frozenset(params)
        self.optimizer = Optimizer(params, spec.optimizer, matrices=matrices)

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
        if self.adapter is not None and self.trunk.adapter != self.adapter:
            use_adapter(self.trunk.module, self.adapter)
            self.trunk.adapter = self.adapter

    def _outputs(self, rows: Sequence[Row], want: frozenset[str]) -> tuple[Outputs, Batch]:
        ids, targets, batch = pad(rows, self.trunk.device)
        if self.head is not None:
            if self.shared is not None:
                before = self.shared.at(rows)
            else:
                hidden = self.trunk.hidden(ids[:, :-1])  # no target is predicted from a row's last token
                before = hidden.gather(1, (targets - 1)[..., None].expand(-1, -1, hidden.shape[-1])).float()
            values = torch.where(batch.mask, self.head(before)[..., 0], 0.0)
            return Outputs(torch.full_like(values, math.nan), None, values), batch
        note = partial(self.whole.note, rows)
        made = self.trunk.target_outputs(ids, targets, batch.mask, self.spec.temperature, want, note)
        return Outputs(made.logprobs, made.entropy, None, made.certainty), batch

    def _check_carries(self, want: frozenset[str]) -> None:
        if self.head is None and "values" in want:
            raise CapabilityError("Values are wanted from a model without a head; give it kind head.")
        if self.head is not None and "values" not in want:
            raise CapabilityError("A head gives values and nothing else (no log-probs, no entropy); ask it for values.")

    def micro_batches(self, rows: Sequence[Row]) -> list[list[int]]:
        """Indices of rows that are computed together."""
        return micro_batches(rows, self.engine.budget.tokens, self.engine.budget.rows)

    def recall(self, rows: Sequence[Row]) -> list[Tensor | None]:
        """Hidden states before each row's targets, [N, width], where sampling or `forward` has computed them with the present weights."""
        found = [self.whole.find(self.stamp, row) for row in rows]
        rest = [b for b, states in enumerate(found) if states is None]
        recalled = [None] * len(rest) if self.recent is None else self.recent.recall([rows[b] for b in rest])
        for b, states in zip(rest, recalled, strict=True):
            found[b] = states
        return found

    def forward(self, rows: Sequence[Row], want: frozenset[str] = NOTHING) -> list[dict[str, Floats]]:
        """See `protocols.Model.forward`. A head gives values alone."""
        self._check_carries(want)
        self._switch_adapter()
        if self.shared is not None:
            self.shared.renew(rows)
        with self.whole.noting(self.stamp) if self.is_read else nullcontext():
            made = self.say(rows, want)
        if self.shared is None:  # What a head says of another model's states depends on weights that are not its own.
            self.last_said.note(self.stamp, rows, made)
        return made

    @torch.no_grad()
    def say(self, rows: Sequence[Row], want: frozenset[str] = NOTHING) -> list[dict[str, Floats]]:
        """`forward` by the weights and the adapter that are switched on; nothing is remembered. Equal rows are computed once."""
        asked, which = distinct(rows)
        made: list[dict[str, Floats]] = [{} for _ in asked]
        for picked in self.micro_batches(asked):
            outputs, _ = self._outputs([asked[i] for i in picked], want)
            named = _named(outputs) | ({} if self.head is None else {"logprobs": None})
            for name, tensor in named.items():
                if tensor is not None:
                    array = tensor.double().cpu().numpy()
                    for b, i in enumerate(picked):
                        made[i][name] = array[b, : len(asked[i].targets)]
        return [dict(made[i]) for i in which]

    # -- learning -------------------------------------------------------------------------------------------------------------

    def backward(self, rows: Sequence[Row], loss: Loss) -> Metrics:
        """See `protocols.Model.backward`. Exact whatever the micro-batches: a loss that spans rows goes by its gradient at the outputs."""
        if not rows:
            return {}
        self._check_carries(loss.wants)
        self._switch_adapter()
        self.recent = None  # Its keys and values would stand beside all that learning needs.
        self.whole.forget()
        if self.shared is not None:
            self.shared.retain(rows)
        names = frozenset({"values"}) if self.head is not None else loss.wants | {"logprobs"}
        if self.takes_two_passes(rows, loss, names):
            return self._backward_two_pass(rows, loss, names)
        return {name: tally.value for name, tally in self.backward_one_pass(rows, loss).items()}

    def takes_two_passes(self, rows: Sequence[Row], loss: Loss, names: frozenset[str]) -> bool:
        """Whether the loss has to see more rows than are computed together, or all that it asks for has been said already."""
        return len(self.micro_batches(rows)) > 1 and (loss.spans_rows or self.last_said.knows(self.stamp, rows, names))

    def backward_one_pass(self, rows: Sequence[Row], loss: Loss) -> Tallies:
        """Micro-batch by micro-batch, for a loss that is a sum over rows."""
        total: Tallies = {}
        for picked in self.micro_batches(rows):
            outputs, batch = self._outputs([rows[i] for i in picked], loss.wants)
            value, tallies = loss(outputs, batch)
            if value.requires_grad:
                value.backward()  # type: ignore[no-untyped-call]
                self.optimizer.gather()
            total = added(total, tallies)
        return total

    def _backward_two_pass(self, rows: Sequence[Row], loss: Loss, names: frozenset[str]) -> Metrics:
        """First without gradient, to differentiate the loss with respect to the outputs; then each micro-batch carries its part back.

        What `forward` said last, with the same weights, is not computed again. Equal rows are carried back once, with their parts added.
        """
        _, _, batch = pad(rows, self.trunk.device)
        missing = torch.full(batch.mask.shape, math.nan, device=self.trunk.device)
        leaves = {name: torch.zeros_like(missing) for name in sorted(names)}
        for i, made in enumerate(self.last_said.about(self.stamp, rows, names, lambda some: self.say(some, loss.wants))):
            for name, leaf in leaves.items():
                leaf[i, : len(rows[i].targets)] = torch.from_numpy(made[name]).to(leaf)
        for leaf in leaves.values():
            leaf.requires_grad_(True)
        names_of = ("entropy", "values", "certainty")
        value, tallies = loss(Outputs(leaves.get("logprobs", missing), *(leaves.get(name) for name in names_of)), batch)
        grads = dict(zip(leaves, torch.autograd.grad(value, list(leaves.values()), allow_unused=True), strict=True))
        self.carry_back(rows, {name: grad for name, grad in grads.items() if grad is not None}, loss.wants)
        return {name: tally.value for name, tally in tallies.items()}

    def carry_back(self, rows: Sequence[Row], grads: dict[str, Tensor], want: frozenset[str]) -> None:
        """Adds to the weights' gradient what that of the outputs comes to. [B, N] each"""
        asked, which = distinct(rows)
        at = torch.tensor(which, device=self.trunk.device)
        summed = {name: torch.zeros_like(grad[: len(asked)]).index_add_(0, at, grad) for name, grad in grads.items()}
        for picked in self.micro_batches(asked):
            outputs, part = self._outputs([asked[i] for i in picked], want)
            width = part.mask.shape[1]
            given = _named(outputs)
            pairs = [(given[name], grad[picked, :width]) for name, grad in summed.items()]
            carried = [(output * grad).sum() for output, grad in pairs if output is not None]
            if carried:
                torch.stack(carried).sum().backward()  # type: ignore[no-untyped-call]
                self.optimizer.gather()

    def step(self, lr: float) -> Metrics:
        """See `protocols.Model.step`."""
        metrics = self.optimizer.step(lr)
        self._moved_to(self.version + 1)
        return metrics

    def restart_optimizer(self, spec: OptimizerSpec) -> None:
        """Fresh optimiser state, and no gradient; the weights stay."""
        self.optimizer = self.optimizer.restarted(spec)

    # -- weights --------------------------------------------------------------------------------------------------------------

    def snapshot(self) -> LocalPolicy:
        """See `protocols.Model.snapshot`."""
        self._check_speaks()
        return LocalPolicy(self, None)

    def keep(self) -> LocalPolicy:
        """See `protocols.Model.keep`."""
        self._check_speaks()
        return LocalPolicy(self, {name: parameter.detach().clone() for name, parameter in self.params.items()})

    def copy_from(self, other: LocalModel) -> None:
        """Takes over the weights of a model of the same kind and shape, at full precision, under a fresh optimiser."""
        if [p.shape for p in self.params.values()] != [p.shape for p in other.params.values()]:
            raise ConfigError("A model can start only from one of the same kind and shape; give both the same kind and rank.")
        self.optimizer = self.optimizer.restarted(self.optimizer.spec)
        self.optimizer.take(other.optimizer)
        self._moved_to(self.version)

    def _moved_to(self, version: int) -> None:
        self.version = version
        self.stamp = object()
        self.recent = None
        self.whole.forget()

    def _check_speaks(self) -> None:
        if self.head is not None:
            raise CapabilityError("A head has no words of its own; take the policy of the model that it reads.")

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
        self._moved_to(int(facts["version"]))


def added(one: Tallies, other: Tallies) -> Tallies:
    """Sums by name."""
    nothing = Mean(0.0, 0.0)
    pairs = {name: (one.get(name, nothing), other.get(name, nothing)) for name in (*one, *other)}
    return {name: Mean(a.total + b.total, a.weight + b.weight) for name, (a, b) in pairs.items()}


def _named(outputs: Outputs) -> dict[str, Tensor | None]:
    return {"logprobs": outputs.logprobs, "entropy": outputs.entropy, "values": outputs.values, "certainty": outputs.certainty}


def _matrices(module: PreTrainedModel) -> frozenset[str]:
    """Names of the weights that map hidden states to hidden states."""
    output = module.get_output_embeddings()
    linear = {n: part for n, part in module.named_modules() if isinstance(part, nn.Linear | Conv1D) and part is not output}
    return frozenset(f"{name}.weight" for name in linear)
