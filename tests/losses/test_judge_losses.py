"""Cross-entropy of outcomes, and the losses of inverse reinforcement learning: their optima, gradients and weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from builders import make_batch
from exact_expectations import World, cave_world
from hypothesis import given
from hypothesis import strategies as st
from speakers import engine, random_rows
from torch import Tensor

from stepwell.engine.batch import episode_rows
from stepwell.engine.local import Budget
from stepwell.errors import CapabilityError, ConfigError
from stepwell.losses import DiscriminatorLoss, InverseLoss, InverseQLoss, LogRatio, OutcomeLoss, PreferenceLoss, Scalar
from stepwell.losses.inverse import Total, Weights
from stepwell.protocols import Loss, ModelSpec
from stepwell.types import Batch, Outputs, Row, Tallies

SCALAR = Scalar("none")
small = st.floats(-3, 3, allow_nan=False)
WEIGHTS: tuple[Weights, ...] = ("raw", "tempered", "length", "uniform")


def leaf(values: Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def heard(loss: Loss, values: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tallies]:
    """Loss, gradient with respect to the head's values, tallies."""
    value, tallies = loss(Outputs(torch.full_like(values, torch.nan), None, values), batch)
    return value, torch.autograd.grad(value, values)[0], tallies


# -- outcomes -----------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(small, small, st.floats(0, 1)), min_size=1, max_size=5), st.floats(0.05, 2.0))
def test_the_gradient_of_an_outcome_is_the_distance_of_sigmoid_and_label(drawn: list[tuple[float, float, float]], beta: float) -> None:
    logprobs = leaf([[a, b] for a, b, _ in drawn])
    batch = make_batch([[1, 1]] * len(drawn), ref=[[b, a] for a, b, _ in drawn], label=[y for *_, y in drawn])
    value, tallies = OutcomeLoss(beta)(Outputs(logprobs), batch)
    (grad,) = torch.autograd.grad(value, logprobs)
    # The log-ratios of the two tokens cancel: R = 0 for every episode.
    assert value.item() == pytest.approx(math.log(2))
    expected = torch.tensor([[beta * (0.5 - y) / len(drawn)] * 2 for *_, y in drawn], dtype=torch.float64)
    torch.testing.assert_close(grad, expected)
    right = [0.5 for *_, y in drawn if y != 0.5]
    assert tallies["judge/accuracy"] == (sum(right), len(right))


def test_a_soft_label_is_matched_by_its_log_odds() -> None:
    beta, label = 0.5, 0.8
    best = math.log(label / (1 - label)) / beta
    batch = make_batch([[1, 1, 1]], ref=[[0.0, 0.0, 0.0]], label=[label])
    for total, sign in ((best, 0), (best - 1, -1), (best + 1, 1)):
        logprobs = leaf([[total - 1.0, 0.5, 0.5]])
        value, _ = OutcomeLoss(beta)(Outputs(logprobs), batch)
        (grad,) = torch.autograd.grad(value, logprobs)
        assert grad.sign().tolist() == [[sign] * 3] if sign else grad.abs().max() < 1e-12


def test_outcomes_of_an_episode_in_rows_unscored_ones_and_those_without_tokens() -> None:
    whole = make_batch([[1, 1, 1], [1, 1, 0]], label=[1.0, 0.0])
    cut = make_batch([[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]], episode=[0, 1, 0, 2, 3], label=[1.0, 0.0, 1.0, 1.0, math.nan])
    one = torch.tensor([[0.3, -0.2, 0.5], [0.1, 0.2, math.nan]], dtype=torch.float64)
    two = torch.tensor([[0.3, -0.2, 9.0], [0.1, 0.2, 9.0], [0.5, 9.0, 9.0], [9.0] * 3, [9.0] * 3], dtype=torch.float64)
    same = [OutcomeLoss(0.7)(Outputs(values), batch) for values, batch in ((one, whole), (two, cut))]
    assert same[0][0].item() == pytest.approx(same[1][0].item())
    assert same[0][0].item() == pytest.approx((math.log1p(math.exp(-0.42)) + math.log1p(math.exp(0.21))) / 2)
    assert [tallies["judge/loss"].weight for _, tallies in same] == [2, 2]
    nothing = make_batch([[1]], label=[math.nan])
    assert OutcomeLoss()(Outputs(torch.ones(1, 1, dtype=torch.float64)), nothing)[0].item() == 0.0


def test_labels_that_are_no_probabilities_are_refused() -> None:
    batch = make_batch([[1], [1]], label=[-1.0, 10.0])
    with pytest.raises(ConfigError, match=r"lie in \[0, 1\], and these reach from -1 to 10; scale the domain's scores, pay success"):
        OutcomeLoss()(Outputs(torch.zeros(2, 1, dtype=torch.float64)), batch)


# -- inverse: weights ---------------------------------------------------------------------------------------------------------

BATCHES = st.lists(st.tuples(st.lists(st.tuples(small, small), min_size=1, max_size=4), st.booleans()), min_size=1, max_size=6)


def drawn_batch(drawn: list[tuple[list[tuple[float, float]], bool]]) -> tuple[Tensor, Batch, int]:
    """Values, a batch of the rows, and how many of them are the policy's."""
    width = max(len(row) for row, _ in drawn)
    padded = [[*row, *[(math.nan, math.nan)] * (width - len(row))] for row, _ in drawn]
    mask = [[1] * len(row) + [0] * (width - len(row)) for row, _ in drawn]
    batch = make_batch(mask, old=[[-abs(b) for _, b in row] for row in padded], label=[float(expert) for _, expert in drawn])
    return leaf([[a for a, _ in row] for row in padded]), batch, sum(not expert for _, expert in drawn)


@given(BATCHES, st.sampled_from(WEIGHTS), st.floats(0, 1), st.sampled_from(["cumulative", "average"]))
def test_weights_are_normalised_over_the_batch(
    drawn: list[tuple[list[tuple[float, float]], bool]], weights: Weights, temper: float, total: Total
) -> None:
    """The pull on the sum of each policy episode adds up to 1, on the experts' to -1; the effective number lies between 1 and theirs."""
    values, batch, num_policy = drawn_batch(drawn)
    _, grad, tallies = heard(InverseLoss(SCALAR, weights, temper, total), values, batch)
    per_target = grad.nan_to_num(0.0)
    assert torch.equal(per_target != 0, batch.mask & (per_target != 0))
    lengths = batch.mask.sum(dim=1)
    pull = per_target[:, 0] * (lengths if total == "average" else 1)
    is_expert = batch.label > 0.5
    assert pull[~is_expert].sum().item() == pytest.approx(1.0 if num_policy else 0.0)
    assert pull[is_expert].sum().item() == pytest.approx(-1.0 if num_policy < len(drawn) else 0.0)
    if num_policy:
        assert 1.0 - 1e-9 <= tallies["judge/ess"].value <= num_policy + 1e-9
        assert tallies["judge/ess_share"].value == pytest.approx(tallies["judge/ess"].value / num_policy)
    if weights == "uniform" and num_policy:
        assert tallies["judge/ess"].value == pytest.approx(num_policy)


@given(BATCHES, st.floats(-5, 5))
def test_tempering_runs_from_uniform_to_raw_and_a_constant_does_not_matter(
    drawn: list[tuple[list[tuple[float, float]], bool]], constant: float
) -> None:
    values, batch, _ = drawn_batch([(row[:2] * 2, expert) for row, expert in drawn])  # All of one length or two: see below.
    for temper, same in ((0.0, "uniform"), (1.0, "raw")):
        one = heard(InverseLoss(SCALAR, "tempered", temper), values, batch)
        other = heard(InverseLoss(SCALAR, same), values, batch)  # type: ignore[arg-type]
        torch.testing.assert_close(one[1], other[1], equal_nan=True)
    first = torch.zeros_like(batch.mask)
    first[:, 0] = True
    moved = replace(batch, old_logprobs=torch.where(first, batch.old_logprobs + constant, batch.old_logprobs))
    raw = [heard(InverseLoss(SCALAR, "raw"), values, b)[1] for b in (batch, moved)]
    torch.testing.assert_close(raw[0], raw[1], equal_nan=True)


def test_weights_by_hand() -> None:
    """Two policy episodes: R = 1 and 0, log pi = -1 and -2 over 1 and 2 targets; an expert's with R = 0.5."""
    values = leaf([[1.0, math.nan], [0.4, -0.4], [0.5, math.nan]])
    batch = make_batch([[1, 0], [1, 1], [1, 0]], old=[[-1.0, math.nan], [-0.5, -1.5], [math.nan, math.nan]], label=[0.0, 0.0, 1.0])
    for weights, logs in (("raw", (2.0, 2.0)), ("tempered", (0.2, 0.2)), ("length", (2.0, 1.0)), ("uniform", (0.0, 0.0))):
        w = np.exp(logs) / np.exp(logs).sum()
        value, _, tallies = heard(InverseLoss(SCALAR, weights), values, batch)  # type: ignore[arg-type]
        assert value.item() == pytest.approx(w[0] * 1.0 + w[1] * 0.0 - 0.5)
        assert tallies["judge/ess"].value == pytest.approx(1 / (w**2).sum())
        assert tallies["judge/expert_reward"].value == 0.5
        assert tallies["judge/policy_reward"].value == 0.5


def test_long_episodes_take_all_raw_weight_and_the_effective_number_says_so() -> None:
    """Methods, trap 1: at a quarter of a nat a token, one of 32 episodes with lengths around 500 has nearly all raw weight."""
    rng = np.random.default_rng(0)
    lengths = np.exp(rng.normal(np.log(500), 0.6, 32))
    batch = make_batch([[1]] * 32, old=[[-0.25 * length] for length in lengths], label=[0.0] * 32)
    values = leaf([[0.0]] * 32)
    ess = {w: heard(InverseLoss(SCALAR, w, 0.01), values, batch)[2]["judge/ess"].value for w in WEIGHTS}
    assert ess["raw"] < 1.1
    assert ess["tempered"] > 8
    assert ess["uniform"] == pytest.approx(32)


# -- inverse: exact -----------------------------------------------------------------------------------------------------------


def exact_gradient(world: World, rewards: Sequence[Tensor], expert_N: np.ndarray) -> list[np.ndarray]:
    """Of `log Z - E_experts[R]` with respect to the reward of every token of every episode, Z summed over all of them."""
    total_N = torch.stack([r.sum() for r in rewards])
    loss = torch.logsumexp(total_N, dim=0) - (torch.tensor(expert_N) * total_N).sum()
    return [grad.numpy() for grad in torch.autograd.grad(loss, list(rewards))]


@pytest.mark.parametrize("drawn", ["from the policy", "each once"])
def test_with_all_trajectories_and_raw_weights_the_gradient_is_exact(drawn: str) -> None:
    """On the cave, through a table of rewards: expected gradient of maximum likelihood, whatever the batch was drawn from."""
    world = cave_world(spread=0.7)
    head = world.model.engine.model("judge", ModelSpec(kind="head", of="policy"))
    rng = np.random.default_rng(1)
    num = len(world.episodes)
    expert_N = rng.dirichlet(np.ones(num))
    said = [episode_rows(episode, index=n)[0] for n, episode in enumerate(world.episodes)]
    logprobs = [made["logprobs"] for made in world.model.forward(said)]
    plain = [replace(row, ids=np.append(row.ids, 0), targets=row.targets + 1) for row in said]  # Read when the token has been said.
    head.backward(plain, _Random(rng))
    head.step(0.1)  # Rewards that are not 0.
    rewards = [torch.tensor(made["values"], requires_grad=True) for made in head.forward(plain, frozenset({"values"}))]
    assert max(float(r.detach().abs().max()) for r in rewards) > 0.05
    if drawn == "each once":
        logprobs = [np.full(len(row.targets), -math.log(num) / len(row.targets)) for row in plain]
    often = world.probabilities if drawn == "from the policy" else np.full(num, 1.0 / num)
    rows = [replace(r, old_logprobs=p, weight=np.full(len(p), w)) for r, p, w in zip(plain, logprobs, often, strict=True)]
    experts = [
        replace(r, episode=num + n, label=1.0, weight=np.full(len(r.targets), w))
        for n, (r, w) in enumerate(zip(plain, expert_N, strict=True))
    ]
    metrics = head.backward([*rows, *experts], InverseLoss(SCALAR, "raw", total="cumulative"))
    exact: dict[tuple[int, ...], float] = {}
    for row, grads in zip(plain, exact_gradient(world, rewards, expert_N), strict=True):
        for target, grad in zip(row.targets.tolist(), grads, strict=True):
            context = tuple(row.ids[:target].tolist())
            exact[context] = exact.get(context, 0.0) + float(grad)
    found = {context: float(grad[0]) for context, grad in head.gradient().items()}
    assert found == pytest.approx(exact, abs=1e-12)
    assert max(map(abs, exact.values())) > 0.01
    assert 0 < metrics["judge/ess"] <= num


class _Random:
    """A gradient at random."""

    spans_rows = False
    wants = frozenset({"values"})

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        assert outputs.values is not None
        return (torch.tensor(self.rng.normal(size=outputs.values.shape)) * outputs.values * batch.mask).sum(), {}


@pytest.mark.parametrize(
    "loss",
    [
        OutcomeLoss(0.3),
        PreferenceLoss(0.3),
        InverseLoss(Scalar(), "raw"),
        InverseLoss(LogRatio(0.3), "length", total="cumulative"),
        DiscriminatorLoss(SCALAR, logit="airl"),
        DiscriminatorLoss(LogRatio(0.3)),
        InverseQLoss(0.9),
    ],
    ids=lambda loss: type(loss).__name__ + "".join(loss.wants),
)
def test_the_gradient_is_the_same_in_any_micro_batches_and_order_of_rows(loss: Loss) -> None:
    rng = np.random.default_rng(0)
    rows, at = [], 0
    for i, row in enumerate(random_rows(7, seed=3)):
        step = np.arange(at, at + len(row.targets))
        at += len(step)
        columns = {name: -rng.random(len(step)) for name in ("old_logprobs", "ref_logprobs")}
        rows.append(replace(row, **columns, step=step, episode=i // 2, group=i // 4, label=float(i // 2 % 2), weight=np.ones(len(step))))  # type: ignore[arg-type]
    found = [gradient_of(loss, rows, Budget()), gradient_of(loss, rows, Budget(tokens=40, rows=1)), gradient_of(loss, rows[::-1], Budget())]
    assert max(np.abs(grad).max() for grad in found[0].values()) > 1e-6
    for other in found[1:]:
        for name, grad in found[0].items():
            np.testing.assert_allclose(other[name], grad, rtol=1e-4, atol=1e-7)


def gradient_of(loss: Loss, rows: Sequence[Row], budget: Budget) -> dict[str, np.ndarray]:
    made = engine(budget=budget)
    model = made.model("policy", ModelSpec())
    if loss.wants:
        model = made.model("judge", ModelSpec(kind="head", of="policy"))
    model.backward(rows, loss)
    return {name: p.grad.double().numpy().copy() for name, p in model.params.items() if p.grad is not None}


# -- discriminators -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("logit", ["f", "airl"])
def test_the_best_discriminator_is_the_log_ratio_of_expert_and_policy(logit: str) -> None:
    """One state, three actions; each class once in all. With AIRL's logit the best f is the expert's log-prob itself."""
    expert, policy = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    best = np.log(expert) if logit == "airl" else np.log(expert / policy)
    batch = make_batch(
        [[1]] * 6,
        weight=[[w] for w in (*expert, *policy)],
        old=[[p] for p in np.log(np.tile(policy, 2))],
        label=[1.0] * 3 + [0.0] * 3,
    )
    shared = torch.tensor(best, dtype=torch.float64, requires_grad=True)
    for moved, least in ((0.0, 0.0), (0.5, 0.02)):
        values = torch.cat([shared + moved, shared + moved])[:, None]
        loss, _ = DiscriminatorLoss(SCALAR, 0.0, logit)(Outputs(values, None, values), batch)  # type: ignore[arg-type]
        grad = torch.autograd.grad(loss, shared)[0]
        assert float(grad.abs().max()) == pytest.approx(0.0, abs=1e-12) if not least else float(grad.min()) > least


def test_smoothing_bounds_the_best_logit() -> None:
    batch = make_batch([[1], [1]], label=[1.0, 0.0])
    best = math.log(0.95 / 0.05)
    _, grad, _ = heard(DiscriminatorLoss(SCALAR, 0.1), leaf([[best], [-best]]), batch)
    assert float(grad.abs().max()) < 1e-12


@given(st.lists(small, min_size=2, max_size=6), st.floats(0, 1))
def test_implied_rewards_telescope(q: list[float], discount: float) -> None:
    """`sum of discount^s (Q_s - discount Q_(s+1)) = Q_0`: with one transition each the loss is that of these rewards, cut or not."""
    num = len(q)
    implied = np.array(q) - discount * np.array([*q[1:], 0.0])
    assert float((discount ** np.arange(num) * implied).sum()) == pytest.approx(q[0])
    batch = make_batch([[1] * num], step=[list(range(num))], label=[1.0])
    value, _, _ = heard(InverseQLoss(discount), leaf([q]), batch)
    assert value.item() == pytest.approx(np.mean(np.logaddexp(0, -implied)))
    cut = replace(batch, weight=torch.tensor([[1.0] * (num - 1) + [0.0]], dtype=torch.float64))
    value, grad, _ = heard(InverseQLoss(discount), leaf([q]), cut)
    assert value.item() == pytest.approx(np.mean(np.logaddexp(0, -implied[:-1])))
    assert float(grad[0, -1]) == pytest.approx(discount / (num - 1) / (1 + math.exp(implied[-2])))


# -- settings -----------------------------------------------------------------------------------------------------------------


def test_settings_are_checked() -> None:
    for made, said in (
        (lambda: InverseLoss(SCALAR, "rw"), "Unknown weights 'rw'; did you mean 'raw'"),  # type: ignore[arg-type]
        (lambda: InverseLoss(SCALAR, total="mean"), "Unknown total 'mean'"),  # type: ignore[arg-type]
        (lambda: InverseLoss(SCALAR, temper=2.0), r"The temper of the weights is 2.0; it lies in \[0, 1\]"),
        (lambda: DiscriminatorLoss(SCALAR, 1.0), r"The smoothing of labels is 1.0; it lies in \[0, 1\)"),
        (lambda: DiscriminatorLoss(SCALAR, logit="g"), "Unknown logit 'g'"),  # type: ignore[arg-type]
        (lambda: InverseQLoss(1.5), r"The discount is 1.5; it lies in \[0, 1\]"),
        (lambda: OutcomeLoss(0.0), "The judge's beta is 0.0; it needs to be a positive number"),
        (lambda: LogRatio(-1.0), "The judge's beta is -1.0"),
        (lambda: Scalar("clip"), "Unknown bound 'clip'; Known: none, tanh"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError, match=said):
            made()
    batch = make_batch([[1]], label=[1.0])
    for loss in (InverseLoss(Scalar()), DiscriminatorLoss(SCALAR), InverseQLoss()):
        with pytest.raises(CapabilityError, match=r"The model gave no values.*kind head"):
            loss(Outputs(torch.zeros(1, 1, dtype=torch.float64)), batch)


def test_tanh_bounds_a_scalar_and_a_log_ratio_is_in_units_of_beta() -> None:
    values = torch.tensor([[0.0, 100.0, -0.5]], dtype=torch.float64)
    batch = make_batch([[1, 1, 1]], ref=[[1.0, 0.0, 0.5]])
    assert Scalar()(Outputs(values, None, values), batch).tolist() == [pytest.approx([0.0, 1.0, math.tanh(-0.5)])]
    assert LogRatio(0.5)(Outputs(values), batch).tolist() == [[-0.5, 50.0, -0.5]]
