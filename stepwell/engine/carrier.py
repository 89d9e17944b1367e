"""Any loss of log-probs over a wire that knows four: for trainers that speak the Tinker API.

A server of that API computes `cross_entropy`, `importance_sampling`, `ppo` and `cispo`. A loss that is one of them is sent as it is
(`native_call`). Any other is **carried**: ask for the log-probs, differentiate the loss with respect to them here, and send the
gradient g as `importance_sampling` with `logprobs` the log-probs themselves and `advantages` -g. The ratio is 1, so whatever the server
clips or caps does not bind, and the gradient that it applies is that of the loss, exactly. One more forward pass is its price.

Servers differ in what they divide by. `scales` undoes it, here and nowhere else, so that gradient clipping and the sum of several
`backward` mean the same everywhere. What is not a function of log-probs (entropy, values) cannot be carried: `CapabilityError`.

Legend: B row, L row length, N target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch

from stepwell.engine.batch import pad
from stepwell.errors import CapabilityError, ConfigError
from stepwell.losses import Cispo, Clip, CloningLoss, PolicyLoss, Reinforce, Watched
from stepwell.protocols import Loss, OptimizerSpec
from stepwell.types import Floats, Ids, Metrics, Outputs, Row

__all__ = ["Carrier", "Datum", "Dialect", "NativeCall", "Reduction", "Remote", "native_call", "scales"]

_CARRIER = "importance_sampling"
_CPU = torch.device("cpu")


# -- the seam -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Datum:
    """One sequence as the Tinker API takes it: position i of `tokens` predicts `target_tokens[i]`, the token after it.

    Attributes:
        tokens: [L - 1]
        target_tokens: [L - 1]
        inputs: What the loss reads beside targets, by name: `weights` for `cross_entropy`, `logprobs` and `advantages` for the others.
            0 where the row has no target. Each [L - 1]
    """

    tokens: Ids
    target_tokens: Ids
    inputs: Mapping[str, Floats]


class Remote(Protocol):
    """What a trainer on the other side must offer: four verbs of the Tinker API, with answers waited for.

    `forward` and `forward_backward` return the log-probs of `target_tokens`, one array a datum, at temperature 1 under the weights
    before the call. Gradients add up until `optim_step`, which applies and clears them. Waiting matters: a server may join calls that
    it finds together in its queue, and compute the loss of the first for all.
    """

    def forward(self, data: Sequence[Datum]) -> list[Floats]:
        """Data for `cross_entropy`; no gradient."""
        ...

    def forward_backward(self, data: Sequence[Datum], loss_fn: str, loss_fn_config: Mapping[str, float]) -> list[Floats]: ...
    def optim_step(self, optimizer: OptimizerSpec, lr: float) -> Metrics: ...


Reduction = Literal["sum", "sequence_mean", "token_mean"]
"""What a server makes of token losses l: their sum; the mean over all sequences since the last step of each one's mean over its positions;
or the mean over all positions of a call."""


class Dialect(NamedTuple):
    """How a kind of server speaks the API.

    Attributes:
        reduction: See `Reduction`.
        native: Losses that it computes as the API's documentation says. `importance_sampling` may be missing here and still carry.
    """

    reduction: Reduction
    native: frozenset[str]


# -- what is sent -------------------------------------------------------------------------------------------------------------


class NativeCall(NamedTuple):
    """A loss as a server computes it: its name, its settings, and which data it reads."""

    loss_fn: str
    config: Mapping[str, float]
    inputs: Literal["weights", "advantages"]
    """`weights`: those of the rows; `advantages`: weight x advantage, sent as `weights` to `cross_entropy`."""


def native_call(loss: Loss) -> NativeCall | None:
    """The call whose gradient is that of this loss, or None where there is none.

    | loss | call |
    |---|---|
    | `CloningLoss` | `cross_entropy` |
    | `Reinforce`, or any surrogate with a detached old policy (the ratio is 1) | `cross_entropy`, weights w A |
    | `Clip(low, high)` of a token's own ratio | `ppo`, thresholds 1 - low and 1 + high; advantages w A |
    | `Clip(1, inf)` of a token's own ratio | `importance_sampling` |
    | `Cispo(low, high)` of a token's own ratio | `cispo`, thresholds 1 - low and 1 + high |

    With KL, entropy, a correction, a dual clip or a pooled ratio there is none. Differs from the local loss in one thing: a server does not
    clamp log-ratios at 20 nats.
    """
    if isinstance(loss, Watched):
        return native_call(loss.loss)
    if isinstance(loss, CloningLoss):
        return NativeCall("cross_entropy", {}, "weights")
    if not isinstance(loss, PolicyLoss) or loss.correction is not None or loss.kl_coef is not None or loss.entropy_coef is not None:
        return None
    surrogate = loss.surrogate
    if isinstance(surrogate, Reinforce) or (loss.old == "detached" and isinstance(surrogate, Clip | Cispo)):
        return NativeCall("cross_entropy", {}, "advantages")
    if loss.level != "token" or not isinstance(surrogate, Clip | Cispo):
        return None
    thresholds = {"clip_low_threshold": 1.0 - surrogate.low, "clip_high_threshold": 1.0 + surrogate.high}
    if isinstance(surrogate, Clip) and surrogate.dual is None and (surrogate.low, surrogate.high) == (1.0, np.inf):
        return NativeCall("importance_sampling", {}, "advantages")
    if not np.isfinite(surrogate.high) or (isinstance(surrogate, Clip) and surrogate.dual is not None):
        return None
    return NativeCall("ppo" if isinstance(surrogate, Clip) else "cispo", thresholds, "advantages")


def scales(data: Sequence[Datum], reduction: Reduction) -> list[float]:
    """What advantages must be multiplied by so that the server's reduction of all data is their plain sum; one factor a datum.

    Args:
        data: All that is sent between two steps, in one call. Positions without a target count in the server's means, too.
        reduction: The server's.
    """
    lengths = [len(datum.target_tokens) for datum in data]
    factor = {"sum": lambda n: 1.0, "sequence_mean": lambda n: float(n * len(lengths)), "token_mean": lambda n: float(sum(lengths))}
    return [factor[reduction](n) for n in lengths]


def _datum(row: Row, **columns: Floats) -> Datum:
    """A row with each column laid out over its positions."""
    inputs = {name: np.zeros(len(row.ids) - 1) for name in columns}
    for name, values in columns.items():
        inputs[name][row.targets - 1] = values
    return Datum(row.ids[:-1], row.ids[1:], inputs)


# -- the carrier --------------------------------------------------------------------------------------------------------------


class Carrier:
    """The learning half of `protocols.Model` on a remote trainer: `forward`, `backward` and `step` with the gradients of a local one.

    A carried loss is sent with the step, all of it in one call: only then is it known what a server's mean will run over. Native calls
    are made at once, and only where the server sums.

    Args:
        remote: The trainer.
        dialect: How it speaks; see `engine.servers`.
        optimizer: AdamW's settings, sent with every step.

    Raises:
        CapabilityError: Another optimiser than AdamW.
    """

    def __init__(self, remote: Remote, dialect: Dialect, optimizer: OptimizerSpec) -> None:
        if optimizer.kind != "adamw":
            raise CapabilityError(
                f"The optimiser is {optimizer.kind!r}; a server of the Tinker API has adamw alone: set optimizer.kind to it."
            )
        self.remote, self.dialect, self.optimizer = remote, dialect, optimizer
        self._pending: list[Datum] = []
        self._called = self._broken = False

    def forward(self, rows: Sequence[Row], want: frozenset[str] = frozenset()) -> list[dict[str, Floats]]:
        """See `protocols.Model.forward`; log-probs alone.

        Raises:
            CapabilityError: Something else is wanted.
        """
        _check_carries(want)
        return [{"logprobs": logprobs} for logprobs in self._logprobs(rows)]

    def backward(self, rows: Sequence[Row], loss: Loss) -> Metrics:
        """See `protocols.Model.backward`. Exact for losses that span rows, too.

        Raises:
            CapabilityError: The loss reads more than log-probs.
        """
        _check_carries(loss.wants)
        if not rows:
            return {}
        call = native_call(loss) if self.dialect.reduction == "sum" else None
        data = _native_data(rows, call) if call is not None and call.loss_fn in self.dialect.native else None
        if call is None or data is None:
            return self._carry(rows, loss)
        self._called = True
        found = self.remote.forward_backward(data, call.loss_fn, call.config)
        _, metrics = _evaluated(rows, [_at(row, logprobs) for row, logprobs in zip(rows, found, strict=True)], loss)
        return metrics

    def step(self, lr: float) -> Metrics:
        """See `protocols.Model.step`. A gradient that is not finite is not sent, and counted; where there is none, nothing moves.

        Native calls made before it cannot be taken back: they are applied at a rate of 0, which moves the optimiser's moments alone.
        """
        pending, called, broken = self._pending, self._called, self._broken
        self._pending, self._called, self._broken = [], False, False
        if broken:
            pending = []
        if pending:
            factors = scales(pending, self.dialect.reduction)
            scaled = [
                Datum(d.tokens, d.target_tokens, {**d.inputs, "advantages": factor * d.inputs["advantages"]})
                for d, factor in zip(pending, factors, strict=True)
            ]
            self.remote.forward_backward(scaled, _CARRIER, {})
        metrics = self.remote.optim_step(self.optimizer, 0.0 if broken else lr) if pending or called else {"grad_norm": 0.0}
        return {**metrics, "skipped_updates": float(broken)}

    def _logprobs(self, rows: Sequence[Row]) -> list[Floats]:
        found = self.remote.forward([_datum(row, weights=row.weight) for row in rows]) if rows else []
        return [_at(row, logprobs) for row, logprobs in zip(rows, found, strict=True)]

    def _carry(self, rows: Sequence[Row], loss: Loss) -> Metrics:
        logprobs = self._logprobs(rows)
        grad, metrics = _evaluated(rows, logprobs, loss)
        for b, (row, said) in enumerate(zip(rows, logprobs, strict=True)):
            pull = grad[b, : len(row.targets)]
            self._broken = self._broken or not bool(np.all(np.isfinite(pull)))
            if np.any(pull):
                self._pending.append(_datum(row, logprobs=said, advantages=-pull))
        return metrics


def _check_carries(want: frozenset[str]) -> None:
    if want:
        raise CapabilityError(
            f"{' and '.join(sorted(want)).capitalize()} cannot be had from a remote engine, which carries losses of log-probs alone; "
            "switch the term off (an entropy_coef of None), or use a local engine."
        )


def _at(row: Row, logprobs: Floats) -> Floats:
    """Log-probs at the row's targets. [N]"""
    if len(logprobs) != len(row.ids) - 1:
        raise ConfigError(f"The server returned {len(logprobs)} log-probs for a sequence of {len(row.ids) - 1} positions; one each is due.")
    return np.asarray(logprobs, np.float64)[row.targets - 1]


def _native_data(rows: Sequence[Row], call: NativeCall) -> list[Datum] | None:
    """The rows as the call reads them; None where they hold what a server would refuse or read otherwise."""
    data = []
    for row in rows:
        value = row.weight if call.inputs == "weights" else np.where(row.weight != 0, row.weight * row.advantage, 0.0)
        old = np.where(row.weight != 0, row.old_logprobs, 0.0)
        if not (np.all(np.isfinite(value)) and np.all(np.isfinite(old)) and np.all(row.weight >= 0)):
            return None
        data.append(_datum(row, weights=value) if call.loss_fn == "cross_entropy" else _datum(row, logprobs=old, advantages=value))
    return data


def _evaluated(rows: Sequence[Row], logprobs: Sequence[Floats], loss: Loss) -> tuple[Floats, Metrics]:
    """Gradient of the loss by log-probs [B, N], and what it reports."""
    _, _, batch = pad(rows, _CPU, torch.float64)
    leaf = torch.zeros(batch.mask.shape, dtype=torch.float64)
    for b, values in enumerate(logprobs):
        leaf[b, : len(values)] = torch.from_numpy(values)
    leaf.requires_grad_(True)
    value, tallies = loss(Outputs(leaf), batch)
    grad = torch.autograd.grad(value, leaf, allow_unused=True)[0] if value.requires_grad else None
    found: Floats = np.zeros(leaf.shape) if grad is None else grad.numpy()
    return found, {name: tally.value for name, tally in tallies.items()}
