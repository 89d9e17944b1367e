"""A trainer of the Tinker API in memory: strict about its inputs, with the reductions of the servers that exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from stepwell.engine.carrier import Datum, Reduction
from stepwell.protocols import Model, OptimizerSpec
from stepwell.types import Batch, Floats, Metrics, Outputs, Row, Tallies

Oddity = Literal["capped", "clipped"] | None
_RL = frozenset({"logprobs", "advantages"})
_INPUTS = {"cross_entropy": frozenset({"weights"}), "importance_sampling": _RL, "ppo": _RL, "cispo": _RL}


@dataclass(frozen=True)
class ServerLoss:
    """What a server computes of one call: token losses by name, reduced. `advantage` holds `weights` for cross-entropy.

    Attributes:
        divisor: For `sequence_mean`, the sequences of all calls since the last step.
        odd: What `importance_sampling` is here: as documented, with ratios capped at 2 (verl), or clipped as PPO's (Twinkle).
    """

    name: str
    config: Mapping[str, float]
    reduction: Reduction
    divisor: int = 1
    odd: Oddity = None

    @property
    def spans_rows(self) -> bool:
        return True

    @property
    def wants(self) -> frozenset[str]:
        return frozenset()

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        lp, a = outputs.logprobs, batch.advantage
        ratio = torch.exp(lp - batch.old_logprobs)
        low, high = self.config.get("clip_low_threshold", 0.8), self.config.get("clip_high_threshold", 1.2)
        loss = {
            "cross_entropy": lambda: -lp * a,
            "importance_sampling": lambda: -_importance(ratio, a, self.odd),
            "ppo": lambda: -torch.minimum(ratio * a, ratio.clamp(low, high) * a),
            "cispo": lambda: -(ratio.clamp(low, high).detach() * lp * a),
        }[self.name]()
        per_row = torch.where(batch.mask, loss, 0.0).sum(dim=1)
        if self.reduction == "sequence_mean":
            return (per_row / batch.mask.sum(dim=1)).sum() / self.divisor, {}
        return per_row.sum() / (1 if self.reduction == "sum" else batch.mask.sum()), {}


@dataclass
class FakeRemote:
    """`carrier.Remote` over any model of ours, whose own optimiser it uses.

    Attributes:
        calls: Names of the losses asked for, and `forward` and `optim_step`, in order.
    """

    model: Model
    reduction: Reduction = "sum"
    odd: Oddity = None
    calls: list[str] = field(default_factory=list)
    _gathered: list[tuple[list[Row], ServerLoss]] = field(default_factory=list)

    def forward(self, data: Sequence[Datum]) -> list[Floats]:
        self.calls.append("forward")
        return self._logprobs([_row(datum, "cross_entropy") for datum in data])

    def forward_backward(self, data: Sequence[Datum], loss_fn: str, loss_fn_config: Mapping[str, float]) -> list[Floats]:
        self.calls.append(loss_fn)
        rows = [_row(datum, loss_fn) for datum in data]
        self._gathered.append((rows, ServerLoss(loss_fn, loss_fn_config, self.reduction, odd=self.odd)))
        return self._logprobs(rows)

    def optim_step(self, optimizer: OptimizerSpec, lr: float) -> Metrics:
        self.calls.append("optim_step")
        total = sum(len(rows) for rows, _ in self._gathered)
        for rows, loss in self._gathered:
            self.model.backward(rows, replace(loss, divisor=total))
        self._gathered = []
        return self.model.step(lr)

    def _logprobs(self, rows: Sequence[Row]) -> list[Floats]:
        return [made["logprobs"] for made in self.model.forward(rows)]


def _importance(ratio: Tensor, advantage: Tensor, odd: Oddity) -> Tensor:
    if odd == "capped":
        return torch.clamp(ratio, max=2.0) * advantage
    return torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage) if odd == "clipped" else ratio * advantage


def _row(datum: Datum, loss_fn: str) -> Row:
    """Every position is a target. What a strict server refuses is an error here."""
    assert set(datum.inputs) == _INPUTS[loss_fn], f"{loss_fn} reads {_INPUTS[loss_fn]}, not {set(datum.inputs)}"
    n = len(datum.tokens)
    assert n == len(datum.target_tokens) > 0
    np.testing.assert_array_equal(datum.tokens[1:], datum.target_tokens[:-1])
    for name, values in datum.inputs.items():
        assert values.shape == (n,), name
        assert np.all(np.isfinite(values)), name
    row = Row.of(np.append(datum.tokens, datum.target_tokens[-1]), np.arange(1, n + 1))
    if loss_fn == "cross_entropy":
        return replace(row, advantage=datum.inputs["weights"])
    return replace(row, advantage=datum.inputs["advantages"], old_logprobs=datum.inputs["logprobs"])
