"""Losses that fit a number to each step: values by hand, gradients, and where they are least."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from builders import make_batch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from stepwell.errors import CapabilityError, ConfigError
from stepwell.losses.fitted import FitLoss, Fitting, LabelLoss, PromiseLoss
from stepwell.types import Batch, Outputs


def values_of(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64, requires_grad=True)


def batch_of(values: Tensor, returns: list[list[float]], weight: list[list[float]] | None = None, **columns: list[list[float]]) -> Batch:
    made = make_batch([[1] * values.shape[1]] * len(values), weight=weight, **columns)  # type: ignore[arg-type]
    return replace(made, returns=torch.tensor(returns, dtype=torch.float64))


def grad(loss: Tensor, values: Tensor) -> list[list[float]]:
    found = torch.autograd.grad(loss, values)[0]
    return [[float(x) for x in row] for row in found]


def test_square_by_hand() -> None:
    values = values_of([1.0, 3.0])
    loss, tallies = FitLoss("square")(Outputs(values, None, values), batch_of(values, [[0.5, 1.0]], [[1.0, 2.0]]))
    assert loss.item() == 0.5 * (1 * 0.25 + 2 * 4) and tallies["judge/error"].value == pytest.approx((0.5 + 2 * 2) / 3)
    assert grad(loss, values) == [[0.5, 4.0]]


def test_logistic_by_hand() -> None:
    """At 0 all is log 2; a soft label pulls towards its logit; a sure and wrong head is not cut off."""
    values = values_of([0.0, 0.0, 200.0])
    loss, tallies = FitLoss()(Outputs(values, None, values), batch_of(values, [[1.0, 0.25, 0.0]]))
    assert loss.item() == pytest.approx(2 * torch.log(torch.tensor(2.0)).item() + 200.0)
    assert tallies["judge/error"].value == pytest.approx((0.5 + 0.25 + 1.0) / 3)
    assert grad(loss, values) == [pytest.approx([-0.5, 0.25, 1.0])]


@pytest.mark.parametrize("kind", ["square", "logistic"])
@given(targets=st.lists(st.floats(0.05, 0.95), min_size=1, max_size=5))
def test_it_is_least_at_the_mean_of_the_targets(kind: Fitting, targets: list[float]) -> None:
    mean = sum(targets) / len(targets)
    at = mean if kind == "square" else torch.logit(torch.tensor(mean, dtype=torch.float64)).item()
    value = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    values = value.expand(1, len(targets))
    loss, _ = FitLoss(kind)(Outputs(values, None, values), batch_of(values, [targets]))
    assert torch.autograd.grad(loss, value)[0].item() == pytest.approx(0.0, abs=1e-9)


def test_a_row_without_a_place_adds_nothing() -> None:
    """U04: no scored position is 0, never NaN."""
    values = values_of([1.0, 2.0])
    empty = batch_of(values, [[0.5, 0.5]], [[0.0, 0.0]])
    for loss in (FitLoss(), FitLoss("square"), PromiseLoss()):
        made, tallies = loss(Outputs(values, None, values), empty)
        assert made.item() == 0.0 and all(tally.weight == 0 for tally in tallies.values())
    made, _ = LabelLoss()(Outputs(values), empty)
    made.backward()  # type: ignore[no-untyped-call]
    assert made.item() == 0.0 and values.grad is not None and not values.grad.any()


# -- labels ----------------------------------------------------------------------------------------------------------------------


def label_batch(logprobs: Tensor, targets: list[float], steps: list[int], labels: list[int]) -> tuple[Outputs, Batch]:
    made = make_batch([[1]] * len(targets), step=[[s] for s in steps], label=labels)
    return Outputs(logprobs[:, None]), replace(made, returns=torch.tensor(targets, dtype=torch.float64)[:, None])


def test_labels_by_hand() -> None:
    """Two steps; the first is likelier good (odds 3 : 1), the second bad (1 : 1)."""
    logprobs = torch.log(torch.tensor([0.3, 0.1, 0.2, 0.2], dtype=torch.float64)).requires_grad_()
    loss, tallies = LabelLoss()(*label_batch(logprobs, [1.0, 0.0, 0.0, 1.0], [0, 0, 1, 1], [0, 1, 0, 1]))
    assert loss.item() == pytest.approx(-(torch.log(torch.tensor(0.75)) + torch.log(torch.tensor(0.5))).item())
    assert tallies["judge/error"].value == pytest.approx((0.25 + 0.5) / 2) and tallies["judge/loss"].weight == 2
    found = torch.autograd.grad(loss, logprobs)[0]
    assert found.tolist() == pytest.approx([-0.25, 0.25, 0.5, -0.5])


@given(st.permutations(range(6)), st.lists(st.floats(-5, -0.1), min_size=6, max_size=6))
def test_the_order_of_rows_and_labels_does_not_matter(order: list[int], logprobs: list[float]) -> None:
    """U05: labels given as (+, -) or (-, +) are the same loss; so are rows in any order."""
    said = torch.tensor(logprobs, dtype=torch.float64)
    targets, steps, labels = [0.7, 0.2, 0.1, 0.0, 1.0, 0.0], [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2]
    loss, _ = LabelLoss()(*label_batch(said, targets, steps, labels))
    turned = LabelLoss()(*label_batch(said, targets, steps, [2 - k for k in labels]))[0]
    mixed = LabelLoss()(*label_batch(said[order], *([column[i] for i in order] for column in (targets, steps, labels))))[0]  # type: ignore[arg-type]
    assert loss.item() == pytest.approx(turned.item()) == pytest.approx(mixed.item())


def test_a_step_without_all_labels_is_refused() -> None:
    said = torch.zeros(3, dtype=torch.float64)
    with pytest.raises(ValueError, match="3 rows for 2 steps and 2 labels; every step needs one row for every label"):
        LabelLoss()(*label_batch(said, [1.0, 0.0, 1.0], [0, 0, 1], [0, 1, 0]))


# -- promise and progress --------------------------------------------------------------------------------------------------------


def test_promise_and_progress_by_hand() -> None:
    """Three states of two steps in a row; the first two lie around a step that should have gained 0.5, and gained 1."""
    values = values_of([1.0, 2.0, 2.5])
    batch = batch_of(values, [[1.0, 1.0, 2.0]], advantage=[[0.0, 0.5, 1.0]])
    batch = replace(batch, step=torch.tensor([[-1, 0, 1]]))
    loss, tallies = PromiseLoss(beta=2.0)(Outputs(values, None, values), batch)
    assert loss.item() == pytest.approx(0.5 * (0 + 1 + 0.25) + 2 * 0.5 * (0.25 + 0.25))
    assert tallies["judge/progress_error"].value == 0.5 and tallies["judge/error"].value == pytest.approx(1.5 / 3)
    assert grad(loss, values) == [pytest.approx([-1.0, 1.0 + 1.0 + 1.0, 0.5 - 1.0])]
    square, _ = FitLoss("square")(Outputs(values, None, values), batch)
    assert PromiseLoss(beta=0.0)(Outputs(values, None, values), batch)[0].item() == square.item()


# -- refused ---------------------------------------------------------------------------------------------------------------------


def test_what_cannot_work_is_said() -> None:
    with pytest.raises(ConfigError, match="Unknown fitting 'squares'; did you mean 'square'"):
        FitLoss("squares")  # type: ignore[arg-type]
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="weight of progress"):
            PromiseLoss(wrong)
    values = values_of([0.0])
    for loss in (FitLoss(), PromiseLoss()):
        with pytest.raises(CapabilityError, match="kind head"):
            loss(Outputs(values), batch_of(values, [[0.5]]))
    with pytest.raises(ValueError, match=r"Targets lie between 1.5 and 1.5; a probability lies in \[0, 1\]"):
        FitLoss()(Outputs(values, None, values), batch_of(values, [[1.5]]))
