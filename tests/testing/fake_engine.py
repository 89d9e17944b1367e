"""A table of free logits as an engine (the next token depends on the last one alone), with faults that can be switched on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stepwell.engine.batch import pad
from stepwell.errors import StaleWeightsError
from stepwell.protocols import Capabilities, Loss, ModelSpec, OptimizerSpec
from stepwell.types import Completion, Floats, Ids, Metrics, Outputs, Row, Sampling, Stop

NUM_TOKENS = 9
EOS = 0
NOTHING: frozenset[str] = frozenset()


class TableEngine:
    def __init__(self, *faults: str) -> None:
        self.faults = frozenset(faults)
        self.used: set[str] = set()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(kinds=frozenset({"full"}), entropy=True, values=False)

    def model(self, name: str, spec: ModelSpec) -> TableModel:
        return TableModel(self, spec)

    def has(self, fault: str) -> bool:
        self.used.add(fault)
        return fault in self.faults


class TableModel:
    def __init__(self, engine: TableEngine, spec: ModelSpec) -> None:
        self.engine, self.spec, self.version = engine, spec, 0
        values = np.random.default_rng(7).normal(size=(NUM_TOKENS, NUM_TOKENS))
        self.table = torch.tensor(values, requires_grad=True)
        self.cached: Tensor | None = None
        self.restart_optimizer(spec.optimizer)

    def restart_optimizer(self, spec: OptimizerSpec) -> None:
        self.optimizer = torch.optim.AdamW([self.table], betas=spec.betas, eps=spec.eps, weight_decay=spec.weight_decay)

    def logits(self, table: Tensor, ids: Sequence[int]) -> Tensor:
        temperature = 1.0 if self.engine.has("forward ignores temperature") else self.spec.temperature
        return torch.log_softmax(table[list(ids)] / temperature, dim=-1)

    def row_logprobs(self, table: Tensor, row: Row) -> Tensor:
        logits = self.logits(table, row.ids[row.targets - 1].tolist())
        return logits[torch.arange(len(row.targets)), torch.from_numpy(row.ids[row.targets])]

    def forward(self, rows: Sequence[Row], want: frozenset[str] = NOTHING) -> list[dict[str, Floats]]:
        made = []
        longest = max(len(row.ids) for row in rows)
        with torch.no_grad():
            for row in rows:
                values = self.row_logprobs(self.table, row).numpy().copy()
                if self.engine.has("forward sees padding"):
                    values += 0.01 * (longest - len(row.ids))
                outputs = {"logprobs": values[:-1] if self.engine.has("forward drops a target") else values}
                if "entropy" in want and not self.engine.has("no entropy"):
                    logits = self.logits(self.table, row.ids[row.targets - 1].tolist())
                    outputs["entropy"] = -(logits.exp() * logits).sum(-1).numpy()
                made.append(outputs)
        if self.engine.has("forward sorts rows"):
            made = [outputs for _, outputs in sorted(zip([len(row.ids) for row in rows], made, strict=True), key=lambda pair: pair[0])]
        return made

    def backward(self, rows: Sequence[Row], loss: Loss) -> Metrics:
        split = loss.spans_rows and self.engine.has("spanning loss is split")
        for part in [[row] for row in rows] if split else [list(rows)]:
            _, _, batch = pad(part, torch.device("cpu"))
            padded = torch.zeros(batch.mask.shape, dtype=torch.float64)
            logprobs = [self.row_logprobs(self.table, row) for row in part]
            for b, values in enumerate(logprobs):
                padded = padded.index_put((torch.tensor([b]), torch.arange(len(values))), values)
            value, _ = loss(Outputs(padded), batch)
            if self.engine.has("loss is a mean over rows"):
                value = value / len(part)
            (-value if self.engine.has("gradient ascends the loss") else value).backward()
        if self.engine.has("backward moves weights"):
            with torch.no_grad():
                self.table += 0.1 * torch.arange(NUM_TOKENS)
        return {}

    def step(self, lr: float) -> Metrics:
        if not self.engine.has("step does nothing"):
            self.optimizer.param_groups[0]["lr"] = lr
            self.optimizer.step()
        if not self.engine.has("gradient is not cleared"):
            self.optimizer.zero_grad()
        self.version += 2 if self.engine.has("version jumps") else 1
        return {}

    def snapshot(self) -> TablePolicy:
        return TablePolicy(self, None)

    def keep(self) -> TablePolicy:
        return TablePolicy(self, self.table if self.engine.has("keep is no copy") else self.table.detach().clone())

    def save(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        torch.save(
            {"table": self.table.detach().clone(), "optimizer": self.optimizer.state_dict(), "version": self.version}, path / "model.pt"
        )

    def load(self, path: Path) -> None:
        found = torch.load(path / "model.pt", weights_only=True)
        if not self.engine.has("load forgets weights"):
            with torch.no_grad():
                self.table.copy_(found["table"])
        if not self.engine.has("load forgets the optimiser"):
            self.optimizer.load_state_dict(found["optimizer"])
        if not self.engine.has("load forgets the version"):
            self.version = found["version"]


class TablePolicy:
    def __init__(self, model: TableModel, kept: Tensor | None) -> None:
        self.model, self.kept, self._version = model, kept, model.version

    def save(self, path: Path) -> None: ...
    def load(self, path: Path) -> None: ...

    @property
    def version(self) -> int:
        return self.model.version if self.kept is not None and self.model.engine.has("keep follows the version") else self._version

    def _table(self, verb: str) -> Tensor:
        has = self.model.engine.has
        if self.kept is None and self._version != self.model.version and not has(f"stale snapshot may {verb}"):
            raise StaleWeightsError("stale")
        if self.kept is not None and has("keep overwrites its model"):
            with torch.no_grad():
                self.model.table.copy_(self.kept)
        if self.kept is not None and has("keep samples present weights") and verb == "sample":
            return self.model.table.detach()
        if verb == "sample" and has("cache outlives the weights"):
            self.model.cached = self.model.table.detach().clone() if self.model.cached is None else self.model.cached
            return self.model.cached
        return (self.model.table if self.kept is None else self.kept).detach()

    def logprobs(self, rows: Sequence[Row]) -> list[Floats]:
        table = self._table("compute log-probs")
        drift = 0.01 if self.model.engine.has("policy log-probs drift") else 0.0
        return [self.model.row_logprobs(table, row).numpy() + drift for row in rows]

    def sample(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> list[Completion]:
        has = self.model.engine.has
        table = self._table("sample")
        seeds = [0 for _ in seeds] if has("seed is ignored") else seeds
        seeds = [seeds[0] + index for index in range(len(seeds))] if has("seed depends on the place in the batch") else seeds
        rngs = [np.random.default_rng(None if has("draws are not seeded") else seed) for seed in seeds]
        made = [self._one(table, context, s, rng) for context, s, rng in zip(contexts, sampling, rngs, strict=True)]
        return made[:-1] if has("sample loses a row") and len(made) > 1 else made

    def _one(self, table: Tensor, context: Ids, sampling: Sampling, rng: np.random.Generator) -> Completion:
        has = self.model.engine.has
        last = int(context[-1])
        if has("cache loses the second turn") and len(context) > 5:
            last = int(context[0])
        ids: list[int] = []
        logprobs: list[float] = []
        limit = sampling.max_tokens + (1 if has("sample is too long") else 0)
        while len(ids) < limit and EOS not in ids:
            temperature = sampling.temperature if sampling.temperature > 0 else 1.0
            values = torch.log_softmax(table[last] / temperature, dim=-1).numpy()
            probabilities = np.exp(values)
            drawn = int(np.searchsorted(np.cumsum(probabilities / probabilities.sum()), rng.random()))
            if sampling.temperature == 0 and not has("greedy draws"):
                drawn = int(np.argmin(values) if has("greedy takes the worst") else np.argmax(values))
            ids.append(drawn)
            logprobs.append(float(values[drawn]) + (0.01 if has("sampler log-probs drift") else 0.0))
            last = drawn
        stop = Stop.LENGTH if has("stop is always length") or EOS not in ids else Stop.EOS
        return Completion(np.array(ids), np.array(logprobs[1:] if has("log-prob is missing") else logprobs), "x", stop)
