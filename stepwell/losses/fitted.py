"""Losses that fit a judge to a number for each step.

Legend: B row, N target (here: the end of a step), M step that counts, K label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from stepwell.errors import CapabilityError, ConfigError, nearest
from stepwell.losses.policy import counting
from stepwell.types import Batch, Mean, Outputs, Tallies

__all__ = ["FitLoss", "Fitting", "LabelLoss", "PromiseLoss"]

Fitting = Literal["square", "logistic"]
_KINDS: tuple[Fitting, ...] = ("square", "logistic")


@dataclass(frozen=True, slots=True)
class FitLoss:
    """A scalar head is to say a number at the end of each step.

    - `square`: `sum of w (v - y)^2 / 2`. The head's value is the number; any finite `y`.
    - `logistic`: `sum of w [-y log sigmoid(v) - (1 - y) log(1 - sigmoid(v))]`: binary cross-entropy, computed from the logit. The number
      is `sigmoid(v)`, `y` lies in [0, 1]; a soft label is a probability (Math-Shepherd, arXiv 2312.08935, equations 3 and 4).

    `v` is `outputs.values`, `y` is `batch.returns`, `w` is `batch.weight`. Both are least where the number is the mean of `y`.

    Tallies: `judge/loss` (weighted mean), `judge/error` (weighted mean distance between the number and `y`).

    Attributes:
        kind: As above.

    Raises (when built):
        ConfigError: an unknown kind.
    Raises (when called):
        CapabilityError: the engine gave no values.
        ValueError: `logistic`, and a `y` outside [0, 1].
    """

    kind: Fitting = "logistic"

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ConfigError(f"Unknown fitting {self.kind!r}; {nearest(self.kind, _KINDS)}.")

    @property
    def spans_rows(self) -> bool:
        """A plain sum over targets."""
        return False

    @property
    def wants(self) -> frozenset[str]:
        """Values."""
        return frozenset({"values"})

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        """The loss and its tallies."""
        values, targets, weight = _fitted(outputs, batch)
        if self.kind == "square":
            said = values
            loss = 0.5 * (weight * (values - targets) ** 2).sum()
        else:
            _check_shares(targets)
            said = torch.sigmoid(values)
            loss = (weight * binary_cross_entropy_with_logits(values, targets, reduction="none")).sum()
        return loss, _tallies(loss, (said - targets).abs(), weight)


@dataclass(frozen=True, slots=True)
class LabelLoss:
    """A language model is to say the right one of K label tokens at the end of each step.

    `sum over steps of w [- sum over k of y_k log q_k]`, `q = softmax over k of log pi(label k | the text up to the end of the step)`: the
    probability of each label given that one of them is said. It does not depend on the order in which the labels are listed.

    One row for each step and label, the label being its target. `batch.step` numbers the steps, `batch.label` the labels (0 to K - 1);
    `batch.returns` holds `y_k` (which sum to 1 over the labels of a step), `batch.weight` the same `w` for all labels of a step.

    Source: Math-Shepherd, arXiv 2312.08935 (two labels). With three it reads PRM800K's, arXiv 2305.20050. Differs from training on all
    of the vocabulary: what else the model might say at that place is left alone.

    Tallies: `judge/loss` (weighted mean over steps), `judge/error` (weighted mean distance between probability and `y`, over labels).

    Raises (when called):
        ValueError: a `y` outside [0, 1], or a step without one row for every label.
    """

    @property
    def spans_rows(self) -> bool:
        """The labels of a step lie in different rows."""
        return True

    @property
    def wants(self) -> frozenset[str]:
        """Log-probs alone."""
        return frozenset()

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        """The loss and its tallies."""
        counts = counting(batch)
        if not bool(counts.any()):
            return torch.where(batch.mask, outputs.logprobs, 0.0).sum() * 0.0, _tallies(
                outputs.logprobs.new_zeros(()), *[batch.weight[counts]] * 2
            )
        _check_shares(batch.returns[counts])
        steps, owner = torch.unique(batch.step[counts], return_inverse=True)
        label = batch.label[:, None].expand_as(batch.step)[counts].long()
        shape = (len(steps), int(label.max()) + 1)
        if len(owner) != shape[0] * shape[1] or len(torch.unique(owner * shape[1] + label)) != len(owner):
            raise ValueError(f"{len(owner)} rows for {shape[0]} steps and {shape[1]} labels; every step needs one row for every label.")
        at = (owner, label)
        logits_MK = outputs.logprobs.new_zeros(shape).index_put(at, outputs.logprobs[counts])
        targets_MK = batch.returns.new_zeros(shape).index_put(at, batch.returns[counts])
        weight_M = batch.weight.new_zeros(shape).index_put(at, batch.weight[counts])[:, 0]
        logq_MK = torch.log_softmax(logits_MK, dim=1)
        loss = -(weight_M * (targets_MK * logq_MK).sum(dim=1)).sum()
        return loss, _tallies(loss, (logq_MK.exp() - targets_MK).abs().mean(dim=1), weight_M)


@dataclass(frozen=True, slots=True)
class PromiseLoss:
    """A scalar head is to say how good things stand, and to be right as well about what a step changes.

    `sum of w [ (v - y)^2 / 2 + beta 1[a step ends here] (v - v' - d)^2 / 2 ]`, with `v'` the value of the state before that step: the
    target just before this one in its row (`engine.states`). `y` is `batch.returns`, `d` is `batch.advantage`, a step ends where
    `batch.step` is at least 0.

    Source: AgentPRM, arXiv 2511.08325 (promise and progress): `L_Q + beta L_A`, the advantage being the difference of two readings of one
    head. With `beta=0` it is half the squared error.

    Tallies: `judge/loss`, `judge/error` (weighted mean of `|v - y|`), `judge/progress_error` (weighted mean of `|v - v' - d|` over steps).

    Attributes:
        beta: Weight of the second part.

    Raises (when built):
        ConfigError: beta is negative or not finite.
    Raises (when called):
        CapabilityError: the engine gave no values.
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.beta < float("inf"):
            raise ConfigError(f"The weight of progress is {self.beta}; allowed is a finite number of at least 0.")

    @property
    def spans_rows(self) -> bool:
        """Both readings of a step lie in one row."""
        return False

    @property
    def wants(self) -> frozenset[str]:
        """Values."""
        return frozenset({"values"})

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        """The loss and its tallies."""
        values, targets, weight = _fitted(outputs, batch)
        loss = 0.5 * (weight * (values - targets) ** 2).sum()
        tallies = _tallies(loss, (values - targets).abs(), weight)
        assert outputs.values is not None
        ends = (counting(batch) & (batch.step >= 0))[:, 1:] & batch.mask[:, :-1]
        change = (outputs.values[:, 1:] - outputs.values[:, :-1])[ends]
        share, wanted = batch.weight[:, 1:][ends], batch.advantage[:, 1:][ends]
        loss = loss + 0.5 * self.beta * (share * (change - wanted) ** 2).sum()
        gap = (share * (change - wanted).abs()).sum()
        tallies["judge/loss"] = Mean(loss.item(), weight.sum().item())
        return loss, tallies | {"judge/progress_error": Mean(gap.item(), share.sum().item())}


def _fitted(outputs: Outputs, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Values, targets and weights where something counts."""
    if outputs.values is None:
        raise CapabilityError("The model gave no values; this loss fits a scalar head (kind head).")
    counts = counting(batch, outputs.values, batch.returns)
    return outputs.values[counts], batch.returns[counts], batch.weight[counts]


def _check_shares(targets: Tensor) -> None:
    if bool(((targets < 0) | (targets > 1)).any()):
        raise ValueError(
            f"Targets lie between {targets.min().item()} and {targets.max().item()}; a probability lies in [0, 1] "
            "(fit other numbers by 'square')."
        )


def _tallies(loss: Tensor, error: Tensor, weight: Tensor) -> Tallies:
    total = weight.sum().item()
    return {"judge/loss": Mean(loss.item(), total), "judge/error": Mean((weight * error.detach()).sum().item(), total)}
