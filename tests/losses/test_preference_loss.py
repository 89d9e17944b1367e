"""The judge's trajectory preference, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from builders import make_batch

from stepwell.errors import ConfigError
from stepwell.losses import PreferenceLoss
from stepwell.types import Batch, Outputs

NAN = math.nan


def run(loss: PreferenceLoss, logprobs: list[list[float]], batch: Batch) -> tuple[float, list[list[float]], dict[str, float]]:
    leaf = torch.tensor(logprobs, dtype=torch.float64, requires_grad=True)
    value, tallies = loss(Outputs(leaf), batch)
    (grad,) = torch.autograd.grad(value, leaf)
    return value.item(), grad.tolist(), {name: tally.value for name, tally in tallies.items()}


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_one_pair_by_hand() -> None:
    """R+ = 1.5, R- = -0.5: a sum over tokens, not a mean; the padded place does not matter."""
    batch = make_batch([[1, 1], [1, 0]], ref=[[-2.0, -2.0], [-1.0, NAN]], label=[1.0, 0.0])
    value, grad, tallies = run(PreferenceLoss(beta=0.5), [[-1.0, -1.5], [-1.5, NAN]], batch)
    assert value == pytest.approx(-math.log(sigmoid(0.5 * 2.0)))
    pull = 0.5 * sigmoid(-1.0)
    assert grad == [pytest.approx([-pull, -pull]), [pytest.approx(pull), 0.0]]
    assert tallies["judge/pair_accuracy"] == 1.0
    assert tallies["judge/margin"] == pytest.approx(1.0)
    assert tallies["judge/loss"] == pytest.approx(value)


def test_the_gradient_reaches_the_judge_and_raises_pair_accuracy() -> None:
    """The released code's fault (no gradient) cannot come back: descent on the loss orders a pair that stood the wrong way."""
    batch = make_batch([[1, 1], [1, 1]], ref=[[-2.0, -2.0], [-2.0, -2.0]], label=[1.0, 0.0])
    logprobs = torch.tensor([[-2.5, -2.5], [-1.5, -1.5]], dtype=torch.float64, requires_grad=True)
    loss = PreferenceLoss(beta=0.5)
    assert loss(Outputs(logprobs), batch)[1]["judge/pair_accuracy"].value == 0.0
    for _ in range(20):
        (grad,) = torch.autograd.grad(loss(Outputs(logprobs), batch)[0], logprobs)
        assert torch.all(grad != 0)
        logprobs = (logprobs - grad).detach().requires_grad_()
    assert loss(Outputs(logprobs), batch)[1]["judge/pair_accuracy"].value == 1.0


def test_groups_count_equally_and_pairs_stay_inside_their_group() -> None:
    """Group 0: one success, two failures (2 pairs); group 1: one pair; group 2: no pair, though its labels differ from others'."""
    scores = [0.4, 0.1, -0.2, 0.3, 0.5, 9.0]
    batch = make_batch([[1]] * 6, group=[0, 0, 0, 1, 1, 2], label=[1.0, 0.0, 0.0, 0.5, 0.2, 7.0])
    value, _, tallies = run(PreferenceLoss(beta=1.0), [[score] for score in scores], batch)
    pairs = [[0.3, 0.6], [-0.2]]
    losses = [sum(-math.log(sigmoid(x)) for x in margins) / len(margins) for margins in pairs]
    assert value == pytest.approx(sum(losses) / 2)
    assert tallies["judge/pair_accuracy"] == pytest.approx(0.5)
    assert tallies["judge/margin"] == pytest.approx((0.45 - 0.2) / 2)
    assert tallies["judge/mixed_groups"] == pytest.approx(2 / 3)


def test_rows_of_one_episode_are_summed() -> None:
    whole = make_batch([[1, 1], [1, 0]], label=[1.0, 0.0])
    cut = make_batch([[1, 0], [1, 0], [1, 0]], episode=[0, 0, 1], label=[1.0, 1.0, 0.0])
    first = run(PreferenceLoss(), [[0.3, 0.4], [0.1, 0.0]], whole)
    second = run(PreferenceLoss(), [[0.3, 0.0], [0.4, 0.0], [0.1, 0.0]], cut)
    assert first[0] == pytest.approx(second[0])
    assert first[2] == pytest.approx(second[2])


def test_the_size_of_the_weight_does_not_matter_but_zero_leaves_out() -> None:
    plain = make_batch([[1, 1], [1, 0]], label=[1.0, 0.0])
    weighted = make_batch([[1, 1], [1, 1]], weight=[[0.1, 0.1], [0.3, 0.0]], label=[1.0, 0.0])
    assert run(PreferenceLoss(), [[0.3, 0.4], [0.1, 0.0]], plain)[0] == run(PreferenceLoss(), [[0.3, 0.4], [0.1, 9.0]], weighted)[0]


def test_unscored_and_empty_episodes_pair_with_nothing() -> None:
    batch = make_batch([[1], [1], [0]], label=[1.0, NAN, 0.0])
    value, grad, tallies = run(PreferenceLoss(), [[0.5], [0.5], [NAN]], batch)
    assert value == 0.0
    assert grad == [[0.0], [0.0], [0.0]]
    assert math.isnan(tallies["judge/loss"])
    assert tallies["judge/mixed_groups"] == 0.0


def test_a_batch_of_nothing_is_zero() -> None:
    value, grad, _ = run(PreferenceLoss(), [[NAN]], make_batch([[0]]))
    assert (value, grad) == (0.0, [[0.0]])


def test_far_scores_stay_finite() -> None:
    batch = make_batch([[1], [1]], label=[1.0, 0.0])
    value, grad, _ = run(PreferenceLoss(beta=1.0), [[-5000.0], [5000.0]], batch)
    assert value == 10000.0
    assert grad == [[-1.0], [1.0]]


@pytest.mark.parametrize("beta", [0.0, -1.0, NAN])
def test_a_beta_that_is_not_positive_is_refused(beta: float) -> None:
    with pytest.raises(ConfigError, match="The judge's beta is"):
        PreferenceLoss(beta=beta)


def test_it_spans_rows() -> None:
    assert PreferenceLoss().spans_rows
    assert PreferenceLoss().wants == frozenset()
