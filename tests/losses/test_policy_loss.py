"""The clipped surrogate, its KL and entropy terms, and cloning: values and gradients by hand, and faults of other libraries (U..)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from builders import make_batch
from torch import Tensor

from stepwell.errors import CapabilityError, ConfigError, ContractViolation
from stepwell.losses import Cispo, Clip, CloningLoss, Masked, PolicyLoss, Reinforce, Surrogate, Truncated, kl, token_weights
from stepwell.protocols import Loss
from stepwell.types import Batch, Outputs

NAN = math.nan


def run(
    loss: Loss, logprobs: list[list[float]], batch: Batch, entropy: Tensor | None = None
) -> tuple[float, list[list[float]], dict[str, float]]:
    """Loss, its gradient by log-probs, and the tallies' means."""
    leaf = torch.tensor(logprobs, dtype=torch.float64, requires_grad=True)
    value, tallies = loss(Outputs(leaf, entropy=entropy), batch)
    (grad,) = torch.autograd.grad(value, leaf)
    return value.item(), grad.tolist(), {name: tally.value for name, tally in tallies.items()}


@pytest.mark.parametrize(
    ("advantage", "ratio", "dual_clip", "loss", "has_gradient"),
    [
        (1.0, 10.0, 3.0, -1.2, False),
        (1.0, 0.5, 3.0, -0.5, True),
        (-1.0, 10.0, None, 10.0, True),
        (-1.0, 10.0, 3.0, 3.0, False),
        (-1.0, 0.5, 3.0, 0.8, False),
        (-1.0, 2.0, 3.0, 2.0, True),
        (1.0, 1.1, None, -1.1, True),
        (-1.0, 0.9, None, 0.9, True),
    ],
)
def test_u47_the_corners_of_the_surrogate(advantage: float, ratio: float, dual_clip: float | None, loss: float, has_gradient: bool) -> None:
    batch = make_batch([[1]], advantage=[[advantage]], old=[[-3.0]])
    value, grad, tallies = run(PolicyLoss(Clip(dual=dual_clip), old="given"), [[-3.0 + math.log(ratio)]], batch)
    assert value == pytest.approx(loss)
    assert grad[0][0] == pytest.approx(-advantage * ratio if has_gradient else 0.0)
    assert tallies["policy/clip_share"] == (0.0 if has_gradient else 1.0)
    assert tallies["policy/ratio_mean"] == pytest.approx(ratio)
    assert tallies["policy/approx_kl_old"] == pytest.approx(ratio - 1 - math.log(ratio))


@pytest.mark.parametrize(
    ("surrogate", "ratio", "pull"),
    [
        (Cispo(0.2, 0.28), 10.0, 1.28),
        (Cispo(0.2, 0.28), 1.1, 1.1),
        (Cispo(0.2, 0.28), 0.1, 0.8),
        (Cispo(high=0.28), 0.1, 0.1),
        (Reinforce(), 10.0, 1.0),
        (Clip(1.0, math.inf), 10.0, 10.0),
        (Clip(1.0, math.inf), 0.1, 0.1),
    ],
)
@pytest.mark.parametrize("advantage", [2.0, -2.0])
def test_surrogates_that_never_stop_a_token(surrogate: Surrogate, ratio: float, pull: float, advantage: float) -> None:
    """CISPO's value is its weight x A log pi; REINFORCE's is A log pi, whatever the ratio."""
    logprob = -3.0 + math.log(ratio)
    batch = make_batch([[1]], advantage=[[advantage]], old=[[-3.0]], weight=[[0.5]])
    value, grad, tallies = run(PolicyLoss(surrogate, old="given"), [[logprob]], batch)
    assert grad[0][0] == pytest.approx(-0.5 * pull * advantage)
    assert value == pytest.approx(-0.5 * pull * advantage * (1.0 if isinstance(surrogate, Clip) else logprob))
    assert tallies["policy/clip_share"] == float(isinstance(surrogate, Cispo) and pull != ratio)
    assert tallies["policy/ratio_mean"] == pytest.approx(ratio)


def test_cispo_bounds_the_ratio_that_a_step_shares() -> None:
    batch = make_batch([[1, 1, 1]], advantage=[[1.0, 1.0, -1.0]], old=[[-1.0, -1.0, -1.0]], step=[[4, 4, 7]])
    loss = PolicyLoss(Cispo(high=0.2), old="given", level="step", pooling="sum")
    _, grad, tallies = run(loss, [[-0.9, -0.8, -0.95]], batch)
    assert grad[0] == pytest.approx([-1.2, -1.2, math.exp(0.05)])
    assert tallies["policy/clip_share"] == pytest.approx(2 / 3)


def test_the_clip_range_is_asymmetric() -> None:
    batch = make_batch([[1, 1]], advantage=[[1.0, -1.0]], old=[[0.0, 0.0]])
    value, _, _ = run(PolicyLoss(Clip(0.1, 0.28), old="given"), [[1.0, -1.0]], batch)
    assert value == pytest.approx(-1.28 + 0.9)


def test_detached_old_ignores_the_recorded_ones() -> None:
    batch = make_batch([[1, 1]], advantage=[[2.0, -1.0]], old=[[NAN, 5.0]], weight=[[0.5, 0.25]])
    value, grad, tallies = run(PolicyLoss(), [[-1.0, -2.0]], batch)
    assert value == -0.75
    assert grad == [[-1.0, 0.25]]
    assert (tallies["policy/ratio_mean"], tallies["policy/clip_share"], tallies["policy/approx_kl_old"]) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(("pooling", "log_ratios"), [("sum", [0.3, 0.3, 0.05]), ("mean", [0.15, 0.15, 0.05])])
def test_a_step_shares_one_ratio(pooling: str, log_ratios: list[float]) -> None:
    """Log-ratios .1 and .2 make one step, .05 another; the gradient of a token is -w A rho of its step."""
    batch = make_batch([[1, 1, 1]], advantage=[[1.0, 1.0, 2.0]], old=[[-1.0, -1.0, -1.0]], step=[[4, 4, 7]])
    loss = PolicyLoss(Clip(high=9.0), old="given", level="step", pooling=pooling)  # type: ignore[arg-type]
    value, grad, _ = run(loss, [[-0.9, -0.8, -0.95]], batch)
    rho = [math.exp(x) for x in log_ratios]
    assert value == pytest.approx(-(rho[0] + rho[1] + 2 * rho[2]))
    assert grad[0] == pytest.approx([-rho[0], -rho[1], -2 * rho[2]])


def test_an_episode_in_two_rows_shares_one_ratio() -> None:
    batch = make_batch([[1, 1], [1, 0], [1, 0]], advantage=[[1.0, 1.0]] * 3, old=[[-1.0, -1.0]] * 3, episode=[5, 5, 6])
    loss = PolicyLoss(Clip(high=9.0), old="given", level="episode")
    _, grad, _ = run(loss, [[-0.9, -0.8], [-1.0, NAN], [-0.5, NAN]], batch)
    assert loss.spans_rows
    assert grad[0] == pytest.approx([-math.exp(0.1)] * 2)
    assert [row[0] for row in grad[1:]] == pytest.approx([-math.exp(0.1), -math.exp(0.5)])
    assert [row[1] for row in grad[1:]] == [0.0, 0.0]


def test_only_a_ratio_over_rows_spans_rows() -> None:
    assert not PolicyLoss(old="given", level="step").spans_rows
    assert not PolicyLoss(level="episode").spans_rows
    assert not CloningLoss().spans_rows


def test_far_log_ratios_stay_finite() -> None:
    batch = make_batch([[1]], advantage=[[-1.0]], old=[[-2000.0]])
    value, grad, _ = run(PolicyLoss(old="given"), [[-1.0]], batch)
    assert value == pytest.approx(math.exp(20.0))
    assert grad == [[0.0]]


# -- averaging ----------------------------------------------------------------------------------------------------------------


def averaged(kind: str, lengths: tuple[int, int], advantage: tuple[float, float]) -> tuple[float, list[list[float]]]:
    weights = token_weights(lengths, kind)  # type: ignore[arg-type]
    width = max(lengths)
    mask = [[int(column < n) for column in range(width)] for n in lengths]
    batch = make_batch(mask, advantage=[[a] * width for a in advantage], weight=[[float(w)] * width for w in weights])
    value, grad, _ = run(PolicyLoss(), [[-1.0] * width] * 2, batch)
    return value, grad


def test_u46_the_loss_may_be_zero_while_the_gradient_is_not() -> None:
    token_value, token_grad = averaged("token", (2, 4), (1.0, -1.0))
    episode_value, episode_grad = averaged("episode", (2, 4), (1.0, -1.0))
    assert token_value == pytest.approx(1 / 3)
    assert episode_value == pytest.approx(0.0)
    assert token_grad == [pytest.approx([-1 / 6, -1 / 6, 0, 0]), pytest.approx([1 / 6] * 4)]
    assert episode_grad == [pytest.approx([-1 / 4, -1 / 4, 0, 0]), pytest.approx([1 / 8] * 4)]


def test_u32_each_episode_weighs_the_same_whatever_its_length() -> None:
    _, grad = averaged("episode", (1, 9), (1.0, -1.0))
    assert [sum(abs(g) for g in row) for row in grad] == pytest.approx([0.5, 0.5])
    _, grad = averaged("token", (1, 9), (1.0, -1.0))
    assert [sum(abs(g) for g in row) for row in grad] == pytest.approx([0.1, 0.9])


def test_u30_a_batch_in_which_nothing_counts_is_zero() -> None:
    batch = make_batch([[0, 0]], advantage=[[NAN, 1.0]])
    for loss in (PolicyLoss(kl_coef=0.1), PolicyLoss(old="given", level="step"), PolicyLoss(old="given", level="episode"), CloningLoss()):
        value, grad, _ = run(loss, [[NAN, NAN]], batch)
        assert value == 0.0
        assert grad == [[0.0, 0.0]]
    assert token_weights([0, 0], "token").tolist() == [0.0, 0.0]


def test_u30_one_token_counts() -> None:
    batch = make_batch([[0, 1]], advantage=[[NAN, 2.0]])
    value, grad, tallies = run(PolicyLoss(), [[NAN, -1.0]], batch)
    assert (value, grad, tallies["policy/loss"]) == (-2.0, [[0.0, -2.0]], -2.0)


@pytest.mark.parametrize("surrogate", [Reinforce(), Clip(dual=3.0), Cispo()])
def test_u30_every_surrogate_is_zero_where_nothing_counts(surrogate: Surrogate) -> None:
    batch = replace(make_batch([[0, 0], [0, 0]], advantage=[[NAN, 1.0]] * 2), sampler_logprobs=torch.full((2, 2), NAN))
    for correction in (None, Truncated(), Masked()):
        loss = PolicyLoss(surrogate, old="given", correction=correction, kl_coef=0.1, kl_kind="k3x")
        value, grad, tallies = run(loss, [[NAN, NAN]] * 2, batch)
        assert (value, grad) == (0.0, [[0.0, 0.0]] * 2)
        assert math.isnan(tallies["policy/loss"])


# -- the sampler's mismatch ---------------------------------------------------------------------------------------------------


def mismatched(distance: list[list[float]], episode: list[int] | None = None) -> Batch:
    """Old log-probs of -1; the sampler said `distance` nats less. A NaN stands outside the mask."""
    mask = [[0 if math.isnan(d) else 1 for d in row] for row in distance]
    batch = make_batch(mask, advantage=[[1.0] * len(row) for row in distance], old=[[-1.0] * len(row) for row in distance], episode=episode)
    return replace(batch, sampler_logprobs=-1.0 - torch.tensor(distance, dtype=torch.float64))


@pytest.mark.parametrize("old", ["given", "detached"])
def test_truncated_importance_sampling_by_hand(old: str) -> None:
    """The trainer finds a token twice, four times, half as likely as the sampler, or equally: weights 2, 3 (cut), 1/2, 1."""
    batch = mismatched([[math.log(2.0), math.log(4.0), math.log(0.5), 0.0, NAN]])
    _, grad, tallies = run(PolicyLoss(old=old, correction=Truncated(3.0)), [[-1.0] * 5], batch)  # type: ignore[arg-type]
    assert grad[0] == pytest.approx([-2.0, -3.0, -0.5, -1.0, 0.0])
    assert tallies["sampler/corrected_share"] == 0.25
    assert tallies["sampler/weight_mean"] == pytest.approx(6.5 / 4)


def test_masked_importance_sampling_leaves_out_whole_episodes() -> None:
    """Episode 5 lies in two rows: its mean distance is 0.5, though that of its first row is 0.2."""
    batch = mismatched([[0.1, 0.3], [1.1, NAN], [-0.3, 0.5]], episode=[5, 5, 6])
    loss = PolicyLoss(old="given", correction=Masked(math.exp(-0.4), math.exp(0.4)))
    _, grad, tallies = run(loss, [[-1.0, -1.0]] * 3, batch)
    assert loss.spans_rows
    assert grad == [[0.0, 0.0], [0.0, 0.0], pytest.approx([-math.exp(-0.3), -math.exp(0.5)])]
    assert tallies["sampler/corrected_share"] == pytest.approx(3 / 5)


def test_a_correction_bounds_what_a_broken_sampler_can_do() -> None:
    """Log-probs of the sampler that are off by hundreds of nats stay finite."""
    batch = mismatched([[500.0, -500.0]])
    _, grad, _ = run(PolicyLoss(old="given", correction=Truncated(2.0)), [[-1.0, -1.0]], batch)
    assert grad[0] == pytest.approx([-2.0, 0.0], abs=1e-8)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Truncated(0.5), "The cap of importance weights is 0.5; it needs to be at least 1"),
        (lambda: Truncated(NAN), "The cap of importance weights is nan"),
        (lambda: Masked(1.2, 2.0), r"Episodes are kept in \[1.2, 2.0\]; the bounds need to hold 1"),
        (lambda: Clip(low=1.5), r"The clip range is \[1 - 1.5, 1 \+ 0.2\]; low lies in \[0, 1\]"),
        (lambda: Clip(high=NAN), "The clip range is .*nan"),
        (lambda: Clip(dual=1.0), "The dual clip is 1.0; it needs to be a number above 1"),
        (lambda: Cispo(high=-0.1), "The clip range"),
    ],
)
def test_ranges_that_cannot_work_are_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


# -- what is missing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "column", "what"),
    [
        (PolicyLoss(), "advantage", "advantages"),
        (PolicyLoss(old="given"), "old_logprobs", "old log-probs"),
        (PolicyLoss(kl_coef=0.0), "ref_logprobs", "reference's log-probs"),
        (PolicyLoss(correction=Truncated()), "sampler_logprobs", "sampler's log-probs"),
    ],
)
def test_a_column_that_is_missing_is_no_number(loss: PolicyLoss, column: str, what: str) -> None:
    """A reference that nobody computed must not be taken for one of probability 1 (log-prob 0)."""
    logprobs = [[-1.0, -1.0, -1.0], [-1.0, -1.0, -1.0]]
    whole = replace(mismatched([[0.0, 0.0, 0.0], [0.0, NAN, 0.0]]), ref_logprobs=torch.full((2, 3), -1.0, dtype=torch.float64))
    hole = torch.full((2, 3), -1.0, dtype=torch.float64)
    hole[1, 1] = NAN
    run(loss, logprobs, replace(whole, **{column: hole}))  # outside the mask it may be anything
    hole[0, 2] = NAN
    with pytest.raises(ConfigError, match=f"reads the {what}, and 1 of 5 targets have none"):
        run(loss, logprobs, replace(whole, **{column: hole}))


def test_no_column_of_the_sampler_at_all() -> None:
    with pytest.raises(ConfigError, match="reads the sampler's log-probs, and 2 of 2 targets have none"):
        run(PolicyLoss(correction=Truncated()), [[-1.0, -1.0]], make_batch([[1, 1]]))


@pytest.mark.parametrize("loss", [PolicyLoss(), PolicyLoss(old="given", level="step"), CloningLoss()])
def test_a_mask_of_another_length_is_refused(loss: Loss) -> None:
    batch = make_batch([[1, 1, 1]])
    with pytest.raises(ContractViolation, match=r"a mask of shape \(1, 3\).*all need the mask's"):
        run(loss, [[-1.0, -1.0]], batch)
    with pytest.raises(ContractViolation, match="a mask of shape"):
        run(loss, [[-1.0, -1.0, -1.0]], replace(batch, weight=torch.ones(1, 2, dtype=torch.float64)))


# -- KL -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_u16_with_equal_rewards_only_the_kl_term_moves_the_policy(beta: float) -> None:
    batch = make_batch([[1, 1]], advantage=[[0.0, 0.0]], ref=[[-2.0, -1.0]])
    value, grad, tallies = run(PolicyLoss(kl_coef=beta), [[-1.0, -1.0]], batch)
    assert value == pytest.approx(beta * 0.5)
    assert grad[0] == pytest.approx([beta * 1.0, 0.0])
    assert tallies["policy/kl_ref"] == pytest.approx(0.25)


def test_u40_kl_does_not_see_masked_tokens() -> None:
    batch = make_batch([[1, 1, 0, 0, 0]], ref=[[-1.0, -1.0, -1.0, -1.0, -1.0]])
    _, grad, tallies = run(PolicyLoss(kl_coef=0.1), [[-1.0, -1.0, -6.0, -6.0, -6.0]], batch)
    assert tallies["policy/kl_ref"] == 0.0
    assert grad == [[0.0] * 5]


@pytest.mark.parametrize("kind", ["k2", "k3", "k1+", "k3+", "k1x", "k3x"])
def test_u51_a_step_on_the_kl_term_lowers_the_exact_kl(kind: str) -> None:
    """Two actions, each sampled as often as the policy says; reward 0."""
    logits = torch.tensor([1.0, -1.0], dtype=torch.float64, requires_grad=True)
    ref = torch.log(torch.tensor([0.5, 0.5], dtype=torch.float64))

    def exact() -> Tensor:
        logprobs = torch.log_softmax(logits, 0)
        return (logprobs.exp() * (logprobs - ref)).sum()

    before = exact().item()
    logprobs = torch.log_softmax(logits, 0)
    probs = logprobs.exp().detach().tolist()
    batch = make_batch([[1, 1]], weight=[probs], ref=[ref.tolist()])
    loss, _ = PolicyLoss(kl_coef=1.0, kl_kind=kind)(Outputs(logprobs[None]), batch)  # type: ignore[arg-type]
    (grad,) = torch.autograd.grad(loss, logits)
    (true_grad,) = torch.autograd.grad(exact(), logits)
    if kind != "k3":
        assert torch.allclose(grad, true_grad)
    with torch.no_grad():
        logits -= 0.1 * grad
    assert exact().item() < before - 1e-3


def test_kl_values_by_hand() -> None:
    logprobs, ref = torch.tensor([-1.0, -3.0], dtype=torch.float64), torch.tensor([-1.5, -1.0], dtype=torch.float64)
    assert kl(logprobs, ref, "k1").tolist() == [0.5, -2.0]
    assert kl(logprobs, ref, "k2").tolist() == [0.125, 2.0]
    assert kl(logprobs, ref, "k3").tolist() == pytest.approx([math.exp(-0.5) - 0.5, math.exp(2.0) - 3.0])
    old = torch.tensor([-1.0 - math.log(2.0), -3.0], dtype=torch.float64)
    assert kl(logprobs, ref, "k1x", old_logprobs=old).tolist() == pytest.approx([1.0, -2.0])
    assert kl(logprobs, ref, "k3x", old_logprobs=old).tolist() == pytest.approx([2 * (math.exp(-0.5) - 0.5), math.exp(2.0) - 3.0])
    assert kl(logprobs, ref, "k3", value_limit=1.0).tolist() == pytest.approx([math.exp(-0.5) - 0.5, 1.0])
    assert kl(logprobs, ref, "k3", log_limit=1.0).tolist() == pytest.approx([math.exp(-0.5) - 0.5, math.e - 2.0])


def test_the_entropy_bonus_raises_entropy() -> None:
    batch = make_batch([[1, 1, 0]], weight=[[0.5, 0.25, 1.0]])
    entropy = torch.tensor([[2.0, 4.0, NAN]], dtype=torch.float64)
    value, _, tallies = run(PolicyLoss(entropy_coef=0.1), [[-1.0, -1.0, -1.0]], batch, entropy)
    assert value == pytest.approx(-0.1 * (0.5 * 2.0 + 0.25 * 4.0))
    assert tallies["policy/entropy"] == 3.0
    assert PolicyLoss(entropy_coef=0.0).wants == {"entropy"}
    assert PolicyLoss().wants == frozenset()
    with pytest.raises(CapabilityError, match="The engine gave no entropy"):
        run(PolicyLoss(entropy_coef=0.1), [[-1.0, -1.0, -1.0]], batch)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kl_kind": "k1"}, "kl_kind is 'k1', whose gradient is 0 on average"),
        ({"kl_kind": "k4"}, "Unknown KL estimator 'k4'"),
        ({"level": "steps"}, "PolicyLoss.level is 'steps'; did you mean 'step'"),
        ({"old": "sampler"}, "PolicyLoss.old is 'sampler'"),
        ({"surrogate": Reinforce(), "level": "step"}, "Reinforce has no ratio that could be shared"),
        ({"kl_coef": -0.1}, "kl_coef is -0.1"),
        ({"entropy_coef": math.inf}, "entropy_coef is inf"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PolicyLoss(**settings)  # type: ignore[arg-type]


# -- cloning ------------------------------------------------------------------------------------------------------------------


def test_cloning_is_the_weighted_negative_log_likelihood() -> None:
    batch = make_batch([[1, 1, 0]], weight=[[0.5, 0.25, 1.0]])
    value, grad, tallies = run(CloningLoss(), [[math.log(0.6), math.log(0.4), NAN]], batch)
    assert value == pytest.approx(-(0.5 * math.log(0.6) + 0.25 * math.log(0.4)))
    assert grad == [[-0.5, -0.25, 0.0]]
    assert tallies["cloning/loss"] == pytest.approx(value / 0.75)
    assert tallies["cloning/probability"] == pytest.approx(0.5)
    assert tallies["cloning/accuracy"] == 0.5


# -- weights ------------------------------------------------------------------------------------------------------------------


def test_weights_by_hand() -> None:
    assert token_weights([2, 0, 6], "token").tolist() == [0.125, 0.0, 0.125]
    assert token_weights([2, 0, 5], "episode").tolist() == [0.25, 0.0, 0.1]
    assert token_weights([2, 0, 6], "constant", constant=10.0).tolist() == [0.05, 0.0, 0.05]
    assert token_weights([], "token").tolist() == []


@pytest.mark.parametrize(
    ("kind", "constant", "message"),
    [
        ("tokens", None, "Unknown averaging 'tokens'; did you mean 'token'"),
        ("constant", None, "'constant' needs a number of tokens"),
        ("token", 5.0, "the other kinds take none"),
        ("constant", 0.0, "The averaging constant is 0.0"),
    ],
)
def test_averaging_that_cannot_work_is_refused(kind: str, constant: float | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        token_weights([1], kind, constant=constant)  # type: ignore[arg-type]
