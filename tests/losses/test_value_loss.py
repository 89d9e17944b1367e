"""The critic's loss: four corners by hand, its laws, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from builders import make_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stepwell.errors import CapabilityError, ConfigError, ContractViolation
from stepwell.losses import ValueLoss
from stepwell.types import Batch, Mean, Outputs, Tallies

NAN = math.nan


def with_targets(batch: Batch, returns: list[list[float]], old: list[list[float]]) -> Batch:
    return replace(batch, returns=torch.tensor(returns, dtype=torch.float64), old_values=torch.tensor(old, dtype=torch.float64))


def run(loss: ValueLoss, values: list[list[float]] | Tensor, batch: Batch) -> tuple[float, Tensor, Tallies]:
    leaf = torch.as_tensor(values, dtype=torch.float64).clone().requires_grad_()
    value, tallies = loss(Outputs(torch.full_like(leaf, NAN), None, leaf), batch)
    (grad,) = torch.autograd.grad(value, leaf)
    return value.item(), grad, tallies


def test_four_corners_by_hand() -> None:
    """Old value 0, clip 0.2. Towards the return 1 beyond the clip: held at 0.2, no gradient. Away from it: the full error."""
    values = [[0.5, -0.5, 0.1, 1.5]]
    batch = with_targets(make_batch([[1, 1, 1, 1]], weight=[[1.0, 2.0, 1.0, 1.0]]), [[1.0] * 4], [[0.0] * 4])
    value, grad, tallies = run(ValueLoss(0.2), values, batch)
    errors = [0.8**2, 2 * 1.5**2, 0.9**2, 0.8**2]
    assert value == pytest.approx(0.5 * sum(errors))
    assert grad[0].tolist() == pytest.approx([0.0, 2 * -1.5, -0.9, 0.0])
    assert tallies["critic/clip_share"] == Mean(2.0, 4.0)
    assert tallies["critic/loss"].total == pytest.approx(value) and tallies["critic/loss"].weight == 5.0
    free, grad, tallies = run(ValueLoss(None), values, batch)
    assert free == pytest.approx(0.5 * (0.5**2 + 2 * 1.5**2 + 0.9**2 + 0.5**2))
    assert grad[0].tolist() == pytest.approx([-0.5, -3.0, -0.9, 0.5])
    assert tallies["critic/clip_share"].value == 0.0


def test_nothing_is_clipped_before_the_first_update() -> None:
    """The gradient at the old values is that of the plain square, whatever the clip."""
    old = [[0.3, -1.7, 1e6]]
    batch = with_targets(make_batch([[1, 1, 1]]), [[1.0, 2.0, 3.0]], old)
    clipped, free = run(ValueLoss(1e-3), old, batch), run(ValueLoss(None), old, batch)
    assert clipped[0] == free[0]
    assert torch.equal(clipped[1], free[1])
    assert clipped[2]["critic/clip_share"].total == 0.0


def test_padding_and_what_weighs_nothing_do_not_matter() -> None:
    batch = with_targets(make_batch([[1, 1, 0]], weight=[[1.0, 0.0, 1.0]]), [[1.0, NAN, NAN]], [[0.0, NAN, NAN]])
    value, grad, tallies = run(ValueLoss(0.2), [[0.5, NAN, NAN]], batch)
    assert value == pytest.approx(0.32)
    assert torch.equal(grad, torch.zeros(1, 3, dtype=torch.float64))
    assert tallies["critic/clip_share"] == Mean(1.0, 1.0)


def test_nothing_that_counts_is_zero() -> None:
    value, grad, tallies = run(ValueLoss(), [[0.5]], make_batch([[0]]))
    assert value == 0.0 and not grad.any()
    assert math.isnan(tallies["critic/loss"].value)


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_rows_and_micro_batches_add_up(seed: int) -> None:
    """Row order does not matter; the loss, its gradient and the sums of its tallies are those of the parts together."""
    rng = np.random.default_rng(seed)
    shape = (4, 3)
    mask = rng.random(shape) < 0.7
    batch = with_targets(
        make_batch(mask.astype(int).tolist(), weight=rng.random(shape).tolist()),
        rng.normal(size=shape).tolist(),
        rng.normal(size=shape).tolist(),
    )
    values = torch.tensor(rng.normal(size=shape))
    whole = run(ValueLoss(0.5), values, batch)
    order = rng.permutation(4)

    def part(rows: list[int]) -> tuple[float, Tensor, Tallies]:
        names = (
            "mask",
            "weight",
            "returns",
            "old_values",
            "advantage",
            "old_logprobs",
            "ref_logprobs",
            "step",
            "episode",
            "group",
            "label",
        )
        return run(ValueLoss(0.5), values[rows], replace(batch, **{name: vars_of(batch)[name][rows] for name in names}))

    parts = [part(rows.tolist()) for rows in np.split(order, [1, 3])]
    assert sum(found for found, _, _ in parts) == pytest.approx(whole[0])
    assert torch.allclose(torch.cat([grad for _, grad, _ in parts]), whole[1][order])
    for name, tally in whole[2].items():
        assert sum(tallies[name].total for _, _, tallies in parts) == pytest.approx(tally.total)
        assert sum(tallies[name].weight for _, _, tallies in parts) == pytest.approx(tally.weight)


def vars_of(batch: Batch) -> dict[str, Tensor]:
    return {name: getattr(batch, name) for name in Batch.__dataclass_fields__}


def test_what_cannot_work_is_said() -> None:
    for clip in (0.0, -1.0, NAN, math.inf):
        with pytest.raises(ConfigError, match=r"The clip of values is .*positive number, or None"):
            ValueLoss(clip)
    batch = make_batch([[1]])
    with pytest.raises(CapabilityError, match="gave no values; the critic's loss needs one with a head"):
        ValueLoss()(Outputs(torch.zeros(1, 1)), batch)
    with pytest.raises(ContractViolation, match="shape"):
        ValueLoss()(Outputs(torch.zeros(1, 2), None, torch.zeros(1, 2)), batch)
    assert ValueLoss().wants == {"values"} and not ValueLoss().spans_rows
