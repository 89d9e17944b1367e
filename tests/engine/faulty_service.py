"""A server in memory over a table of free logits, with the faults of servers that exist, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stepwell.engine.carrier import Datum
from stepwell.engine.local import Text
from stepwell.engine.served import ServedService, ServedTrainee, ServerLoss
from stepwell.engine.servers import SERVERS, ServerKind
from stepwell.engine.service import Asked, Said, Speaker
from stepwell.engine.table import TableEngine
from stepwell.protocols import Model, ModelSpec, OptimizerSpec
from stepwell.types import Batch, Floats, Metrics

VOCABULARY = 40
TEXT = Text(lambda ids: " ".join(map(str, ids)), frozenset())


@dataclass(frozen=True)
class FaultyLoss(ServerLoss):
    """A loss that is not what its name says."""

    fault: str = ""

    def token_losses(self, logprobs: Tensor, batch: Batch) -> Tensor:
        ratio = torch.exp(logprobs - batch.old_logprobs)
        if self.name == "importance_sampling" and self.fault == "clipped importance sampling":
            return -torch.minimum(ratio * batch.advantage, ratio.clamp(0.8, 1.2) * batch.advantage)
        if self.name == "importance_sampling" and self.fault == "capped importance sampling":
            return -ratio.detach().clamp(max=2.0) * logprobs * batch.advantage
        if self.name in ("ppo", "cispo") and self.fault == "loss replaced":
            return -logprobs * batch.advantage.abs()
        if self.fault == "wrong sign":
            return -super().token_losses(logprobs, batch)
        return super().token_losses(logprobs, batch)


@dataclass
class FaultyService(ServedService):
    """`ServedService` with a fault."""

    fault: str = ""
    left: list[Model] = field(default_factory=list)

    def loss(self, name: str, config: Mapping[str, float]) -> ServerLoss:
        reduction = "sequence_mean" if self.fault == "mean instead of sum" else self.kind.dialect.reduction
        return FaultyLoss(name, config, reduction, fault=self.fault)

    def create(self, rank: int, seed: int) -> ServedTrainee:
        if self.fault == "refuses":
            raise ValueError("no adapters today.")
        if self.fault == "places not cleared" and self.left:
            return FaultyTrainee(self, self.left.pop(), self.spec.optimizer)
        return FaultyTrainee(self, self.make(replace(self.spec, rank=rank)), self.spec.optimizer)

    def restore(self, path: str, rank: int, *, optimizer: bool) -> ServedTrainee:
        made = super().restore(path, rank, optimizer=optimizer and self.fault != "optimiser lost")
        if self.fault == "state lost":
            made.model = self.make(self.spec)
        return FaultyTrainee(self, made.model, self.specs[path])


class FaultyTrainee(ServedTrainee):
    """`ServedTrainee` with the fault of its service."""

    service: FaultyService

    def __init__(self, service: FaultyService, model: Model, spec: OptimizerSpec) -> None:
        super().__init__(service, model, spec)
        self._first: Speaker | None = None

    @property
    def fault(self) -> str:
        return self.service.fault

    def close(self) -> None:
        self.service.left.append(self.model)

    def forward(self, data: Sequence[Datum]) -> list[Floats]:
        if self.fault == "shifted targets":
            return [np.append(made[1:], made[0]) for made in super().forward(data)]
        made = super().forward(data)
        longest = max(len(datum.tokens) for datum in data)
        return [values - 0.2 * (longest - len(values)) for values in made] if self.fault == "padding seen" else made

    def forward_backward(self, data: Sequence[Datum], loss_fn: str, loss_fn_config: Mapping[str, float]) -> list[Floats]:
        if self.fault == "mask ignored" and loss_fn != "cross_entropy":
            data = [
                Datum(d.tokens, d.target_tokens, {**d.inputs, "advantages": np.full(len(d.tokens), d.inputs["advantages"].max())})
                for d in data
            ]
        if self.fault == "last call alone":
            self._gathered = []
        return super().forward_backward(data, loss_fn, loss_fn_config)

    def optim_step(self, optimizer: OptimizerSpec, lr: float) -> Metrics:
        if self.fault == "clipping ignored":
            optimizer = replace(optimizer, max_grad_norm=1e9)
        if self.fault == "clips unasked":
            optimizer = replace(optimizer, max_grad_norm=min(optimizer.max_grad_norm, 1e-2))
        kept = list(self._gathered)
        made = super().optim_step(optimizer, 1e-3 if self.fault == "rate ignored" else lr)
        if self.fault == "gradient kept":
            self._gathered = kept
        return made

    def speaker(self) -> Speaker:
        made: Speaker = super().speaker()
        if self.fault == "stale sampler":
            if self._first is None:
                self._first = Kept(self.model)
            made = self._first
        return Odd(made, self.fault)


class Kept:
    """The weights of the first time."""

    def __init__(self, model: Model) -> None:
        self._policy = model.keep()

    def sample(self, asked: Sequence[Asked]) -> list[Said]:
        from stepwell.engine.served import ServedSpeaker

        return ServedSpeaker(self._policy, TEXT).sample(asked)


class Odd:
    """A speaker that does not do as it is told."""

    def __init__(self, speaker: Speaker, fault: str) -> None:
        self._speaker, self._fault = speaker, fault
        self._calls = 0

    def sample(self, asked: Sequence[Asked]) -> list[Said]:
        self._calls += 1
        if self._fault == "seeds ignored":
            asked = [one._replace(seed=self._calls) for one in asked]
        if self._fault == "one seed for all calls":
            asked = [one._replace(seed=7) for one in asked]
        if self._fault == "neighbours heard":
            asked = [one._replace(seed=one.seed + len(asked)) for one in asked]
        if self._fault == "copies of one sample":
            asked = [one._replace(samples=1) for one in asked for _ in range(one.samples)]
        if self._fault == "one sample of several":
            asked = [one._replace(samples=1) for one in asked]
        if self._fault == "samples that do not follow":
            asked = [one._replace(seed=one.seed + 900 * i, samples=1) for one in asked for i in range(one.samples)]
        if self._fault == "samples without a seed":
            asked = [one._replace(seed=one.seed + 50 * self._calls) if one.samples > 1 else one for one in asked]
        if self._fault == "never greedy":
            asked = [one._replace(temperature=1.0, seed=one.seed + 31) if one.temperature == 0 else one for one in asked]
        made = self._speaker.sample(asked)
        if self._fault == "log-probs of another sample" and any(one.samples > 1 for one in asked):
            return [said._replace(logprobs=made[0].logprobs) for said in made]
        if self._fault == "tempered log-probs":
            return [said._replace(logprobs=said.logprobs * 0.8) for said in made]
        return made


@dataclass
class Tables:
    """Makes models on a table engine, numbered."""

    engine: TableEngine = field(default_factory=lambda: TableEngine(VOCABULARY, TEXT, spread=0.7, seed=3))
    numbers: count[int] = field(default_factory=count)

    def make(self, spec: ModelSpec) -> Model:
        return self.engine.model(f"model-{next(self.numbers)}", spec)


def faulty(fault: str = "", kind: ServerKind = SERVERS["tinker"]) -> FaultyService:
    """A server with this fault, or with none."""
    return FaultyService(Tables().make, TEXT, kind=kind, fault=fault)


def folder_of(service: ServedService) -> Path:
    """Where it keeps states."""
    return service.folder
