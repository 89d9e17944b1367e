"""Free logits for every context behind the engine's seam, in float64: exact tests of all that stands above an engine.

The key of a row of the table is the exact sequence of token ids before the token, or with a `window` the last ones of them. The table is
as good as infinite: a context that was never trained on has its initial logits, and the optimiser treats it as one whose gradient was
always 0. With a small vocabulary all that such a model can say can be listed, so expectations over what it does are sums, and gradients
of them are exact.

Legend: B row, N target, C context of the table, V token that can be said.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stepwell.engine.batch import pad
from stepwell.engine.draw import draw
from stepwell.engine.local import Text
from stepwell.engine.optimizer import Optimizer
from stepwell.engine.policy import check_temperature
from stepwell.errors import CapabilityError, ConfigError, RunError, StaleWeightsError
from stepwell.protocols import Capabilities, Loss, ModelSpec, OptimizerSpec
from stepwell.seeding import generator
from stepwell.types import Batch, Completion, Floats, Ids, Metrics, Outputs, Row, Sampling, Stop

__all__ = ["TableEngine", "TableModel", "TablePolicy"]

_NOTHING: frozenset[str] = frozenset()
_CPU = torch.device("cpu")


class TableEngine:
    """Tables of free logits, one for each model.

    Args:
        vocabulary: The model can say the tokens 0 to `vocabulary - 1`; a context may hold any.
        text: How to decode, and when a turn ends.
        spread: Standard deviation of the initial logits; 0 is a policy that says all tokens alike.
        seed: Of the initial logits.
        window: Contexts that end in the same so many tokens are one to the table; None is the whole context. Where an observation says all
            that matters, a table with a window learns from every visit to a state, whatever led there.
    """

    def __init__(self, vocabulary: int, text: Text, *, spread: float = 0.0, seed: int = 0, window: int | None = None) -> None:
        if vocabulary < 2:
            raise ConfigError(f"The table's vocabulary has {vocabulary} tokens; a choice needs at least 2.")
        if not (math.isfinite(spread) and spread >= 0):
            raise ConfigError(f"The spread of the table's logits is {spread}; allowed is a finite number of at least 0.")
        if window is not None and window < 1:
            raise ConfigError(f"The table's window is {window} tokens; it needs at least 1, or None for the whole context.")
        self.vocabulary, self.text, self.spread, self.seed, self.window = vocabulary, text, spread, seed, window
        self._models: dict[str, TableModel] = {}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(kinds=frozenset({"full", "head"}), entropy=True, values=True, certainty=True)

    def model(self, name: str, spec: ModelSpec) -> TableModel:
        """A new table: of logits, or for kind `head` of values (0 at the start).

        Raises:
            ConfigError: A name that is taken or unknown, or a temperature that is not positive.
            CapabilityError: An adapter, or an optimiser that a table cannot carry (Muon, weight decay).
        """
        if name in self._models:
            raise ConfigError(f"The engine already has a model named {name!r}; choose another name.")
        if spec.kind == "lora":
            raise CapabilityError(f"Model {name!r} is to be an adapter; a table has no base for one: kinds are full and head.")
        if spec.of is not None and spec.of not in self._models:
            raise ConfigError(f"Model {name!r} starts from {spec.of!r}, which does not exist; known: {', '.join(self._models) or 'none'}.")
        if not (math.isfinite(spec.temperature) and spec.temperature > 0):
            raise ConfigError(f"The temperature of model {name!r} is {spec.temperature}; log-probs need a positive one.")
        if spec.kind == "head" and spec.of is None:
            raise ConfigError(f"Model {name!r} is a head; say whose contexts it reads (of: policy).")
        of = None if spec.of is None else self._models[spec.of]
        if of is not None and of.is_head:
            raise ConfigError(f"Model {name!r} starts from {spec.of!r}, which is a head; name a model of kind full.")
        made = TableModel(self, spec, None if of is None or spec.kind == "head" else of.weights())
        self._models[name] = made
        return made

    def key(self, context: Ids) -> bytes:
        """Of the row of the table that says what comes after a context."""
        seen = context if self.window is None else context[-self.window :]
        return np.asarray(seen, np.int64).tobytes()

    def initial(self, context: bytes) -> Tensor:
        """Logits of a context that was never trained on. [V]"""
        if self.spread == 0:
            return torch.zeros(self.vocabulary, dtype=torch.float64)
        normal = generator(self.seed, "table", context.hex()).normal(size=self.vocabulary)
        return torch.from_numpy(self.spread * normal)


class _Weights:
    """A table: which contexts it holds, and a parameter with a row for each, [C, V]."""

    def __init__(self, places: dict[bytes, int], table: nn.Parameter) -> None:
        self.places, self.table = places, table

    def copy(self) -> _Weights:
        return _Weights(dict(self.places), nn.Parameter(self.table.detach().clone()))

    def tensors(self) -> dict[str, Tensor]:
        """The contexts, end to end, and their lengths."""
        contexts = [np.frombuffer(key, np.int64) for key in self.places]
        joined = np.concatenate([np.zeros(0, np.int64), *contexts])
        return {"contexts": torch.from_numpy(joined), "lengths": torch.tensor([len(c) for c in contexts], dtype=torch.int64)}

    @staticmethod
    def places_of(tensors: Mapping[str, Tensor]) -> dict[bytes, int]:
        """The inverse of `tensors`."""
        stops = np.cumsum(tensors["lengths"].numpy())
        pieces = np.split(tensors["contexts"].numpy(), stops[:-1]) if len(stops) else []
        return {piece.tobytes(): place for place, piece in enumerate(pieces)}


class TableModel:
    """One trainable table: `protocols.Model`.

    Attributes:
        stamp: Another object whenever the weights are others; a policy knows by it that its model has moved on.
    """

    def __init__(self, engine: TableEngine, spec: ModelSpec, weights: _Weights | None) -> None:
        self.engine, self.spec = engine, spec
        self.version = 0
        self.stamp = object()
        width = 1 if self.is_head else engine.vocabulary
        self._weights = weights or _Weights({}, nn.Parameter(torch.zeros((0, width), dtype=torch.float64)))
        self.optimizer = Optimizer({"table": self._weights.table}, _carried(spec.optimizer))

    @property
    def is_head(self) -> bool:
        return self.spec.kind == "head"

    def weights(self) -> _Weights:
        """A copy of the table."""
        return self._weights.copy()

    def gradient(self) -> dict[tuple[int, ...], Floats]:
        """What `backward` has gathered since the last step: context -> gradient with respect to its logits, [V]."""
        grad = self._weights.table.grad
        if grad is None:
            return {}
        return {tuple(np.frombuffer(key, np.int64).tolist()): grad[place].numpy().copy() for key, place in self._weights.places.items()}

    # -- outputs --------------------------------------------------------------------------------------------------------------

    def logits(self, contexts: Sequence[bytes], weights: _Weights | None = None) -> Tensor:
        """Rows of the table, those of contexts that it does not hold from the start; by `TableEngine.key`. [len(contexts), V]"""
        held = weights or self._weights
        known = [held.places[c] for c in contexts if c in held.places]
        if len(known) == len(contexts):
            return held.table[known]
        return torch.stack([held.table[held.places[c]] if c in held.places else self._initial(c) for c in contexts])

    def _contexts(self, rows: Sequence[Row]) -> list[bytes]:
        """The key of what stands before each target of each row, in order."""
        return [self.engine.key(row.ids[:target]) for row in rows for target in row.targets.tolist()]

    def _initial(self, context: bytes) -> Tensor:
        return torch.zeros(1, dtype=torch.float64) if self.is_head else self.engine.initial(context)

    def _outputs(self, rows: Sequence[Row], want: frozenset[str], weights: _Weights | None = None) -> tuple[Outputs, Batch]:
        ids, targets, batch = pad(rows, _CPU, torch.float64)
        said = ids.gather(1, targets)[batch.mask]
        if not self.is_head and len(said) and int(said.max()) >= self.engine.vocabulary:
            raise ValueError(
                f"Token {int(said.max())} is a target, but the table can say 0 to {self.engine.vocabulary - 1} only; "
                "make it with a larger vocabulary (one that holds the end of turn, to learn from demonstrations)."
            )
        logits = self.logits(self._contexts(rows), weights)
        if self.is_head:
            return Outputs(torch.full(batch.mask.shape, math.nan, dtype=torch.float64), None, _laid_out(logits[:, 0], batch.mask)), batch
        logprobs = torch.log_softmax(logits / self.spec.temperature, dim=-1)
        entropy = _laid_out(-(logprobs.exp() * logprobs).sum(dim=-1), batch.mask) if "entropy" in want else None
        certainty = _laid_out(-logprobs.mean(dim=-1) - math.log(logprobs.shape[-1]), batch.mask) if "certainty" in want else None
        picked = logprobs.gather(1, said[:, None])[:, 0]
        return Outputs(_laid_out(picked, batch.mask), entropy, None, certainty), batch

    def _check_carries(self, want: frozenset[str]) -> None:
        if not self.is_head and "values" in want:
            raise CapabilityError("Values are wanted from a table of logits; make a model of kind head.")
        if self.is_head and "values" not in want:
            raise CapabilityError("A head gives values and nothing else (no log-probs, no entropy); ask it for values.")

    @torch.no_grad()
    def forward(self, rows: Sequence[Row], want: frozenset[str] = _NOTHING, weights: _Weights | None = None) -> list[dict[str, Floats]]:
        """See `protocols.Model.forward`. A head gives values alone."""
        self._check_carries(want)
        if not rows:
            return []
        outputs, _ = self._outputs(rows, want, weights)
        named = {
            "logprobs": None if self.is_head else outputs.logprobs,
            "entropy": outputs.entropy,
            "values": outputs.values,
            "certainty": outputs.certainty,
        }
        made = {name: tensor.numpy() for name, tensor in named.items() if tensor is not None}
        return [{name: array[b, : len(row.targets)].copy() for name, array in made.items()} for b, row in enumerate(rows)]

    # -- learning -------------------------------------------------------------------------------------------------------------

    def backward(self, rows: Sequence[Row], loss: Loss) -> Metrics:
        """See `protocols.Model.backward`. All rows in one pass."""
        if not rows:
            return {}
        self._check_carries(loss.wants)
        self._grow(self._contexts(rows))
        outputs, batch = self._outputs(rows, loss.wants)
        value, tallies = loss(outputs, batch)
        if value.requires_grad:
            value.backward()  # type: ignore[no-untyped-call]
        return {name: tally.value for name, tally in tallies.items()}

    def _grow(self, contexts: Sequence[bytes]) -> None:
        """Gives each context a row of the table. Weights, moments and gradient of the others stay what they are."""
        places = dict(self._weights.places)
        new = [c for c in dict.fromkeys(contexts) if c not in places]
        if not new:
            return
        places.update({c: len(places) + i for i, c in enumerate(new)})
        fresh = torch.stack([self._initial(c) for c in new])
        grad = self._weights.table.grad
        tensors, facts = self.optimizer.state()
        added = {name: fresh if name.startswith("weight/") else torch.zeros_like(fresh) for name in tensors}
        longer = {name: torch.cat([t, added[name]]) if t.ndim == 2 else t for name, t in tensors.items()}
        self._hold(_Weights(places, nn.Parameter(longer["weight/table"].clone())), longer, facts)
        if grad is not None:
            self._weights.table.grad = torch.cat([grad, torch.zeros_like(fresh)])

    def _hold(self, weights: _Weights, tensors: dict[str, Tensor], facts: str) -> None:
        optimizer = Optimizer({"table": weights.table}, self.optimizer.spec)
        optimizer.restore(tensors, facts)
        self._weights, self.optimizer = weights, optimizer

    def step(self, lr: float) -> Metrics:
        """See `protocols.Model.step`."""
        metrics = self.optimizer.step(lr)
        self._moved_to(self.version + 1)
        return metrics

    def restart_optimizer(self, spec: OptimizerSpec) -> None:
        """Fresh optimiser state, and no gradient; the weights stay."""
        self.optimizer = self.optimizer.restarted(_carried(spec))

    # -- weights --------------------------------------------------------------------------------------------------------------

    def snapshot(self) -> TablePolicy:
        """See `protocols.Model.snapshot`."""
        self._check_speaks()
        return TablePolicy(self, None)

    def keep(self) -> TablePolicy:
        """See `protocols.Model.keep`."""
        self._check_speaks()
        return TablePolicy(self, self.weights())

    def save(self, path: Path) -> None:
        """Writes `model.safetensors` (contexts, weights and optimiser state) and `model.json`, exactly."""
        path.mkdir(parents=True, exist_ok=True)
        tensors, facts = self.optimizer.state()
        held = {**tensors, **self._weights.tensors()}
        save_file({name: t.detach().contiguous().clone() for name, t in held.items()}, path / "model.safetensors")
        (path / "model.json").write_text(json.dumps({"version": self.version, "optimizer": facts}), encoding="utf-8")

    def load(self, path: Path) -> None:
        """Restores what `save` wrote.

        Raises:
            RunError: It is a table of another vocabulary, or under another optimiser.
        """
        facts = json.loads((path / "model.json").read_text(encoding="utf-8"))
        tensors = load_file(path / "model.safetensors")
        self._hold(self._read(tensors, "weight/table", path), tensors, facts["optimizer"])
        self._moved_to(int(facts["version"]))

    def _read(self, tensors: Mapping[str, Tensor], name: str, path: Path) -> _Weights:
        table = tensors.get(name)
        if table is None or table.ndim != 2 or table.shape[1] != self._weights.table.shape[1]:
            found = "no table" if table is None else f"a table of {table.shape[-1]} columns"
            raise RunError(
                f"{path} holds {found}; this model's has {self._weights.table.shape[1]}. Resume with the config it was made with."
            )
        return _Weights(_Weights.places_of(tensors), nn.Parameter(table.clone()))

    def _moved_to(self, version: int) -> None:
        self.version = version
        self.stamp = object()

    def _check_speaks(self) -> None:
        if self.is_head:
            raise CapabilityError("A head has no words of its own; take the policy of the model that it reads.")


class TablePolicy:
    """A table frozen at a version: `protocols.Policy`, and where it is kept `protocols.KeptPolicy`."""

    def __init__(self, model: TableModel, kept: _Weights | None) -> None:
        self._model, self._kept = model, kept
        self._stamp = model.stamp
        self.version = model.version

    @torch.no_grad()
    def sample(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> list[Completion]:
        """See `protocols.Policy.sample`.

        Raises:
            ConfigError: The temperature is not the one that the model's log-probs are of, and this is no evaluation.
            StaleWeightsError: The model has moved on.
        """
        self._check_present()
        check_temperature(self._model.spec.temperature, sampling)
        return [self._extend(np.asarray(c, np.int64), s, seed) for c, s, seed in zip(contexts, sampling, seeds, strict=True)]

    def _extend(self, context: Ids, sampling: Sampling, seed: int) -> Completion:
        seeds = np.random.Generator(np.random.PCG64(seed)).integers(0, 2**63, sampling.max_tokens, dtype=np.int64)
        text = self._model.engine.text
        ids: list[int] = []
        logprobs: list[float] = []
        stop = None
        while stop is None:
            here = np.concatenate([context, np.array(ids, np.int64)])
            logits_V = self._model.logits([self._model.engine.key(here)], self._kept)[0]
            logprobs_V = torch.log_softmax(logits_V / (sampling.temperature or 1.0), dim=-1)
            greedy = sampling.temperature == 0
            chosen = int(logits_V.argmax()) if greedy else int(draw(logprobs_V[None], torch.from_numpy(seeds[len(ids) :][:1]))[0])
            ids.append(chosen)
            logprobs.append(float(logprobs_V[chosen]))
            if chosen in text.eos_ids:
                stop = Stop.EOS
            elif sampling.stop and any(word in text.decode(ids) for word in sampling.stop):
                stop = Stop.STRING
            elif len(ids) >= sampling.max_tokens:
                stop = Stop.LENGTH
        return Completion(np.array(ids, np.int64), np.array(logprobs), text.decode(ids[:-1] if stop is Stop.EOS else ids), stop)

    def logprobs(self, rows: Sequence[Row]) -> list[Floats]:
        """See `protocols.Policy.logprobs`."""
        self._check_present()
        return [made["logprobs"] for made in self._model.forward(rows, weights=self._kept)]

    def save(self, path: Path) -> None:
        """Writes the kept weights."""
        if self._kept is None:
            raise CapabilityError("Only a policy that keeps its weights can be saved; call model.keep().")
        path.mkdir(parents=True, exist_ok=True)
        save_file({"table": self._kept.table.detach().clone(), **self._kept.tensors()}, path / "kept.safetensors")

    def load(self, path: Path) -> None:
        """Takes kept weights from what `save` wrote."""
        if self._kept is None:
            raise CapabilityError("Only a policy that keeps its weights can be loaded; call model.keep().")
        self._kept = self._model._read(load_file(path / "kept.safetensors"), "table", path)

    def _check_present(self) -> None:
        if self._kept is None and self._stamp is not self._model.stamp:
            raise StaleWeightsError(
                f"This policy is version {self.version}, and its model has moved on to version {self._model.version}; "
                "take a new snapshot, or keep() for a reference."
            )


def _laid_out(values: Tensor, mask: Tensor) -> Tensor:
    """Values of the targets, in order, at their places; 0 at padding. [B, N]"""
    return torch.zeros(mask.shape, dtype=torch.float64).masked_scatter(mask, values)


def _carried(spec: OptimizerSpec) -> OptimizerSpec:
    if spec.kind == "muon":
        raise CapabilityError("A table has no hidden matrices for Muon; take adamw or sgd.")
    if spec.weight_decay:
        raise CapabilityError(f"weight_decay is {spec.weight_decay}; a table cannot decay the contexts it has never seen: set it to 0.")
    return spec
