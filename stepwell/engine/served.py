"""An engine of this machine behind the seam of a server: what a server ought to compute, computed here."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stepwell.engine.carrier import Datum, Reduction
from stepwell.engine.local import Text
from stepwell.engine.servers import SERVERS, ServerKind
from stepwell.engine.service import Asked, Said
from stepwell.protocols import Model, ModelSpec, OptimizerSpec, Policy
from stepwell.types import Batch, Floats, Metrics, Outputs, Row, Sampling, Stop, Tallies

__all__ = ["INPUTS", "ServedService", "ServedTrainee", "ServerLoss", "served_row"]

_RL = frozenset({"logprobs", "advantages"})
INPUTS = {"cross_entropy": frozenset({"weights"}), "importance_sampling": _RL, "ppo": _RL, "cispo": _RL}
"""What each loss reads beside targets."""


@dataclass(frozen=True)
class ServerLoss:
    """One call's loss as the API's documentation has it: token losses by name, reduced. `advantage` holds `weights` for cross-entropy.

    Attributes:
        divisor: For `sequence_mean`, the sequences of all calls since the last step.
    """

    name: str
    config: Mapping[str, float]
    reduction: Reduction = "sum"
    divisor: int = 1

    @property
    def spans_rows(self) -> bool:
        return True

    @property
    def wants(self) -> frozenset[str]:
        return frozenset()

    def token_losses(self, logprobs: Tensor, batch: Batch) -> Tensor:
        """Before the reduction. [B, N]"""
        advantage = batch.advantage
        ratio = torch.exp(logprobs - batch.old_logprobs)
        low, high = self.config.get("clip_low_threshold", 0.8), self.config.get("clip_high_threshold", 1.2)
        losses: dict[str, Callable[[], Tensor]] = {
            "cross_entropy": lambda: -logprobs * advantage,
            "importance_sampling": lambda: -ratio * advantage,
            "ppo": lambda: -torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage),
            "cispo": lambda: -(ratio.clamp(low, high).detach() * logprobs * advantage),
        }
        return losses[self.name]()

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        per_row = torch.where(batch.mask, self.token_losses(outputs.logprobs, batch), 0.0).sum(dim=1)
        if self.reduction == "sequence_mean":
            return (per_row / batch.mask.sum(dim=1)).sum() / self.divisor, {}
        return per_row.sum() / (1 if self.reduction == "sum" else batch.mask.sum()), {}


def served_row(datum: Datum, loss_fn: str) -> Row:
    """A datum as a row of which every position is a target; the sequence is that of its tokens and its last target.

    Raises:
        ValueError: Inputs that a strict server refuses.
    """
    n = len(datum.tokens)
    if set(datum.inputs) != INPUTS[loss_fn] or not n == len(datum.target_tokens) > 0:
        raise ValueError(f"{loss_fn} reads {sorted(INPUTS[loss_fn])} of one length with the tokens, not {sorted(datum.inputs)}")
    if any(values.shape != (n,) or not np.all(np.isfinite(values)) for values in datum.inputs.values()):
        raise ValueError(f"an input of {loss_fn} has another length than the tokens, or is not finite")
    row = Row.of(np.append(datum.tokens, datum.target_tokens[-1]), np.arange(1, n + 1))
    if loss_fn == "cross_entropy":
        return replace(row, advantage=datum.inputs["weights"])
    return replace(row, advantage=datum.inputs["advantages"], old_logprobs=datum.inputs["logprobs"])


class ServedTrainee:
    """`service.Trainee` over a model of ours, whose own optimiser it uses."""

    def __init__(self, service: ServedService, model: Model, spec: OptimizerSpec) -> None:
        self.service, self.model = service, model
        self._spec = spec
        self._gathered: list[tuple[list[Row], ServerLoss]] = []

    def forward(self, data: Sequence[Datum]) -> list[Floats]:
        """See `carrier.Remote.forward`. Targets may be any tokens: each that is not the next one is asked about in a row of its own."""
        made = [found["logprobs"].copy() for found in self.model.forward([served_row(datum, "cross_entropy") for datum in data])]
        for datum, logprobs in zip(data, made, strict=True):
            for at in np.flatnonzero(datum.tokens[1:] != datum.target_tokens[:-1]):
                row = Row.of(np.append(datum.tokens[: at + 1], datum.target_tokens[at]), np.array([at + 1]))
                logprobs[at] = self.model.forward([row])[0]["logprobs"][0]
        return made

    def forward_backward(self, data: Sequence[Datum], loss_fn: str, loss_fn_config: Mapping[str, float]) -> list[Floats]:
        """See `carrier.Remote.forward_backward`."""
        rows = [served_row(datum, loss_fn) for datum in data]
        self._gathered.append((rows, self.service.loss(loss_fn, loss_fn_config)))
        return [made["logprobs"] for made in self.model.forward(rows)]

    def optim_step(self, optimizer: OptimizerSpec, lr: float) -> Metrics:
        """See `carrier.Remote.optim_step`. Other settings than those of the step before come with fresh moments."""
        if optimizer != self._spec:
            self.model.restart_optimizer(optimizer)
            self._spec = optimizer
        total = sum(len(rows) for rows, _ in self._gathered)
        for rows, loss in self._gathered:
            self.model.backward(rows, replace(loss, divisor=total))
        self._gathered = []
        return self.model.step(lr)

    def speaker(self) -> ServedSpeaker:
        """See `service.Trainee.speaker`."""
        return ServedSpeaker(self.model.snapshot(), self.service.text)

    def save(self, name: str) -> str:
        """See `service.Trainee.save`."""
        folder = self.service.folder / name
        self.model.save(folder)
        self.service.specs[str(folder)] = self._spec
        return str(folder)

    def close(self) -> None:
        """See `service.Trainee.close`."""


@dataclass
class ServedService:
    """`service.Service` over whatever makes models here.

    Attributes:
        make: Makes a fresh model.
        text: How to decode, for stop strings.
        base: A name for it.
        spec: Of the models; rank and optimiser are what is asked for.
        specs: Settings of the optimiser of each saved state, by path.
        folder: Where states are kept as long as this lives.
    """

    make: Callable[[ModelSpec], Model]
    text: Text
    base: str = "here"
    kind: ServerKind = SERVERS["tinker"]
    max_length: int | None = None
    notice: str = ""
    url: str = "here"
    spec: ModelSpec = field(default_factory=ModelSpec)
    specs: dict[str, OptimizerSpec] = field(default_factory=dict)
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="stepwell-")))

    def __post_init__(self) -> None:
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def loss(self, name: str, config: Mapping[str, float]) -> ServerLoss:
        """What a call of this loss computes."""
        return ServerLoss(name, config, self.kind.dialect.reduction)

    def create(self, rank: int, seed: int) -> ServedTrainee:
        """See `service.Service.create`."""
        return ServedTrainee(self, self.make(replace(self.spec, rank=rank)), self.spec.optimizer)

    def restore(self, path: str, rank: int, *, optimizer: bool) -> ServedTrainee:
        """See `service.Service.restore`."""
        spec = self.specs[path]
        made = ServedTrainee(self, self.make(replace(self.spec, rank=rank, optimizer=spec)), spec)
        made.model.load(Path(path))
        if not optimizer:
            made.model.restart_optimizer(spec)
        return made

    def close(self) -> None:
        """See `service.Service.close`."""


class ServedSpeaker:
    """`service.Speaker` over a policy of ours."""

    def __init__(self, policy: Policy, text: Text) -> None:
        self._policy, self._text = policy, text

    def sample(self, asked: Sequence[Asked]) -> list[Said]:
        """See `service.Speaker.sample`. Samples of a request are those of single requests of seeds that follow each other."""
        asked = [one._replace(seed=one.seed + i, samples=1) for one in asked for i in range(one.samples)]
        words = [tuple(stop for stop in one.stop if isinstance(stop, str)) for one in asked]
        samplings = [Sampling(one.temperature, one.max_tokens, w) for one, w in zip(asked, words, strict=True)]
        made = self._policy.sample([one.context for one in asked], samplings, [one.seed for one in asked])
        return [Said(done.token_ids, done.logprobs, done.stop is not Stop.LENGTH) for done in made]
