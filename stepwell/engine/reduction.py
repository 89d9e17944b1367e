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
    "Watched",
    "measure_reduction",
    "pull",
    "rate",
    "said_at",
    "sentence",
    "step_size",
]

PLAIN = OptimizerSpec(betas=(0.0, 0.0), eps=100.0, max_grad_norm=1e9)
"""AdamW without memory and with a large eps: the step is lr / eps x gradient."""
PULL = 1e-3
"""Size of advantages: small, so that a server's own clipping does not bind."""
_AIM = 0.03
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


class Watched:
    """A trainee and what it says of some data, asked again after every step.

    Attributes:
        said: Log-probs of each datum's targets, now.
    """

    def __init__(self, trainee: Trainee, data: Sequence[Datum]) -> None:
        self._trainee, self._data = trainee, data
        self.said = said_at(trainee, data)

    def pulls(self, advantages: Sequence[Floats | None]) -> list[Datum]:
        """The data at ratio 1, with small advantages; None leaves a datum out."""
        given = zip(self._data, self.said, advantages, strict=True)
        return [pull(datum, said, advantage * PULL) for datum, said, advantage in given if advantage is not None]

    def move(self, calls: Sequence[Call], eta: float, optimizer: OptimizerSpec = PLAIN) -> float:
        """Nats that the first target of the first datum moves by one step of `eta` on these calls."""
        for call in calls:
            self._trainee.forward_backward(call.data, call.loss_fn, call.config)
        self._trainee.optim_step(optimizer, rate(eta))
        before, self.said = self.said, said_at(self._trainee, self._data)
        return float(self.said[0][0] - before[0][0])


def rate(eta: float) -> float:
    """The learning rate by which `PLAIN` descends by `eta` x the gradient of pulls of size 1."""
    return eta * PLAIN.eps / PULL


def step_size(trainee: Trainee, ids: Sequence[int]) -> float:
    """A step of plain descent that moves the first target by about `_AIM` nats: small enough to be linear, large enough to be seen."""
    watched = Watched(trainee, [sentence(ids[:2])])
    eta = 1e-6
    for _ in range(12):
        moved = abs(watched.move([Call(watched.pulls([np.ones(1)]))], eta))
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
    watched = Watched(trainee, [sentence(ids[:2]), sentence(ids[:5])])
    one, first, nothing = np.ones(1), np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(4)
    moved, *others = (
        watched.move([Call(watched.pulls(advantages))], eta) for advantages in ([one, None], [one, nothing], [None, first], [one, -first])
    )
    shares = [other / moved if moved else 0.0 for other in others]
    fits = [name for name, wanted in _EXPECTED.items() if np.allclose(shares, wanted, atol=_TOLERANCE)]
    return Measured(moved, shares[0], shares[1], shares[2], fits[0] if len(fits) == 1 else None)
