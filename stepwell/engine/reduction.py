"""What a server makes of token losses, measured: plain descent steps on a fresh adapter, small enough to be linear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from stepwell.engine.carrier import Datum, Reduction
from stepwell.engine.service import Trainee
from stepwell.protocols import OptimizerSpec
from stepwell.types import Floats, Ids

__all__ = [
    "PLAIN",
    "PULL",
    "Call",
    "Measured",
    "measure_reduction",
    "move",
    "moved_by",
    "pull",
    "pulls",
    "rate",
    "said_at",
    "sentence",
    "step_size",
]

PLAIN = OptimizerSpec(betas=(0.0, 0.0), eps=100.0, max_grad_norm=1e9)
"""AdamW without memory and with a large eps: the step is lr / eps x gradient."""
PULL = 1e-3
"""Size of advantages: small, so that a server's own clipping does not bind."""
_AIM = 0.05
"""Nats that a probe step is to move."""
_TOLERANCE = 0.1


class Measured(NamedTuple):
    """Movements of one log-prob by one gradient in four calls, as shares of the first.

    Attributes:
        moved: Nats that the first moved: a row of one target alone.
        beside: The same beside a row of 4 positions without gradient.
        longer: The same target in a row of 4 positions.
        cancelled: A row of one target pulled up, and the same target in a row of 4 positions pulled down.
        reduction: What fits, or None.
    """

    moved: float
    beside: float
    longer: float
    cancelled: float
    reduction: Reduction | None


_EXPECTED: dict[Reduction, tuple[float, float, float]] = {
    "sum": (1.0, 1.0, 0.0),
    "sequence_mean": (1 / 2, 1 / 4, 3 / 8),
    "token_mean": (1 / 5, 1 / 4, 0.0),
}
"""What `beside`, `longer` and `cancelled` are under each."""


def sentence(ids: Sequence[int]) -> Datum:
    """A datum of these ids, with no inputs yet."""
    array: Ids = np.asarray(ids, np.int64)
    return Datum(array[:-1], array[1:], {})


def pull(datum: Datum, logprobs: Floats, advantages: Floats) -> Datum:
    """A datum for `importance_sampling` at ratio 1, with these advantages."""
    return Datum(datum.tokens, datum.target_tokens, {"logprobs": logprobs, "advantages": advantages})


def said_at(trainee: Trainee, data: Sequence[Datum]) -> list[Floats]:
    """Log-probs of all targets of data without inputs."""
    return trainee.forward([Datum(d.tokens, d.target_tokens, {"weights": np.ones(len(d.tokens))}) for d in data])


class Call(NamedTuple):
    """One `forward_backward`."""

    data: Sequence[Datum]
    loss_fn: str = "importance_sampling"
    config: Mapping[str, float] = MappingProxyType({})


def moved_by(trainee: Trainee, calls: Sequence[Call], watched: Datum, lr: float, optimizer: OptimizerSpec = PLAIN) -> Floats:
    """Nats that each target of `watched` moves by one step on these calls."""
    before = said_at(trainee, [watched])[0]
    for call in calls:
        trainee.forward_backward(call.data, call.loss_fn, call.config)
    trainee.optim_step(optimizer, lr)
    after: Floats = said_at(trainee, [watched])[0]
    return after - before


def pulls(trainee: Trainee, data: Sequence[Datum], advantages: Sequence[Floats]) -> list[Datum]:
    """Data at ratio 1, with small advantages."""
    return [pull(d, lp, a * PULL) for d, lp, a in zip(data, said_at(trainee, data), advantages, strict=True)]


def rate(eta: float) -> float:
    """The learning rate by which `PLAIN` descends by `eta` x the gradient of pulls of size 1."""
    return eta * PLAIN.eps / PULL


def move(trainee: Trainee, data: Sequence[Datum], advantages: Sequence[Floats], eta: float) -> float:
    """Nats that the first target of the first datum moves by one step on these."""
    return float(moved_by(trainee, [Call(pulls(trainee, data, advantages))], data[0], rate(eta))[0])


def step_size(trainee: Trainee, ids: Sequence[int]) -> float:
    """A step of plain descent that moves the first target by about `_AIM` nats: small enough to be linear, large enough to be seen."""
    datum = sentence(ids[:2])
    eta = 1e-6
    for _ in range(12):
        moved = abs(move(trainee, [datum], [np.ones(1)], eta))
        if moved > 1e-3:
            return eta * _AIM / moved
        eta *= 10.0
    return eta


def measure_reduction(trainee: Trainee, ids: Sequence[int], eta: float | None = None) -> Measured:
    """Runs the four calls on a fresh adapter.

    Args:
        trainee: Is changed a little.
        ids: Five token ids of the base's vocabulary.
        eta: Of `step_size`; None measures it.
    """
    eta = step_size(trainee, ids) if eta is None else eta
    short, long = sentence(ids[:2]), sentence(ids[:5])
    one, first, nothing = np.ones(1), np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(4)
    moved = move(trainee, [short], [one], eta)
    shares = [
        move(trainee, data, advantages, eta) / moved if moved else 0.0
        for data, advantages in (([short, long], [one, nothing]), ([long], [first]), ([short, long], [one, -first]))
    ]
    fits = [name for name, wanted in _EXPECTED.items() if np.allclose(shares, wanted, atol=_TOLERANCE)]
    return Measured(moved, shares[0], shares[1], shares[2], fits[0] if len(fits) == 1 else None)
