"""Losses of judges against values and gradients recorded from PRIME, ImplicitPRM, iStar, rePIRL, ReGAIL, AgentPRM and TRL."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders import make_batch
from torch import Tensor

from stepwell.losses import DiscriminatorLoss, InverseLoss, InverseQLoss, OutcomeLoss, PreferenceLoss, Scalar
from stepwell.protocols import Loss
from stepwell.rewards.confidence import pair_accuracy
from stepwell.types import Batch, Outputs

Case = dict[str, Any]
Floats = list[float]
Load = Callable[[str], list[Case]]
SCALAR = Scalar("none")

LEFT_OUT = {
    "implicitprm_kto": "KTO compares with a divergence that it estimates from mismatched answers; pairs and outcomes teach the same sums",
    "implicitprm_kto_pair": "the same, with a gradient through what should be a constant",
    "implicitprm_step_mse": "it needs a label for every step",
    "prime_detach_dpo_none": "a preference against a constant mean of the others; pairs within the group say the same with both gradients",
    "prime_detach_dpo_bon_acc": "its size grows with the batch",
    "prime_detach_dpo_bon_rm": "its size grows with the batch",
    **dict.fromkeys(
        (
            *("dpo_aot", "dpo_aot_unpaired", "dpo_apo_down", "dpo_apo_zero", "dpo_bco_pair", "dpo_discopop", "dpo_exo_pair"),
            *("dpo_hinge", "dpo_hinge_forward_kl", "dpo_hinge_js_divergence", "dpo_ipo", "dpo_robust", "dpo_sigmoid_norm"),
            *("dpo_sigmoid_forward_kl", "dpo_sigmoid_js_divergence", "dpo_mix", "dpo_nca_pair", "dpo_sft", "dpo_sppo_hard"),
        ),
        "variants that teach a policy from pairs; a step reward is the log-ratio of the plain form alone",
    ),
}
TESTED = {
    *("implicitprm_ce", "implicitprm_dpo", "istar_traj_dpo", "pairwise_logexp", "pairwise_logsigmoid", "prime_ce", "prime_pair_accuracy"),
    *("agentprm_inverse", "regail_bce_dense", "regail_bce_sequence", "regail_wgan_dense", "repirl", "dpo_sigmoid"),
}


@pytest.fixture(scope="module")
def load(shared_data: Path) -> Load:
    """The recorded cases of a function."""
    cases: list[Case] = []
    for family in ("rm_loss_outcome", "rm_loss_irl", "dpo_trl"):
        with gzip.open(shared_data / "golden" / "algorithms" / f"{family}.json.gz", "rt") as file:
            cases += json.load(file)
    return lambda fn: [case for case in cases if fn in ("", case["fn"])]


def leaf(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def differentiate(loss: Loss, batch: Batch, *, logprobs: Tensor | None = None, values: Tensor | None = None) -> tuple[float, Tensor]:
    given = logprobs if logprobs is not None else values
    assert given is not None
    value, _ = loss(Outputs(torch.full_like(given, torch.nan) if logprobs is None else logprobs, None, values), batch)
    return value.item(), torch.autograd.grad(value, given)[0]


def close(found: Any, recorded: Any, case: Case) -> None:
    rtol = 1e-5 if case["dtype"] == "float32" else 1e-8
    np.testing.assert_allclose(np.asarray(found), np.asarray(recorded, np.float64), rtol=rtol, atol=rtol * 1e-2, err_msg=case["name"])


def test_no_recorded_loss_of_a_judge_is_passed_over(load: Load) -> None:
    assert {case["fn"] for case in load("")} == TESTED | set(LEFT_OUT)


# -- outcomes and pairs -------------------------------------------------------------------------------------------------------


def test_cross_entropy_of_prime_and_implicitprm(load: Load) -> None:
    for case in load("prime_ce"):
        batch = make_batch(case["inputs"]["mask"], label=case["inputs"]["labels"])
        loss, grad = differentiate(OutcomeLoss(case["params"]["beta"]), batch, logprobs=leaf(case["inputs"]["token_log_ratios"]))
        close(loss, case["outputs"]["loss"], case)
        close(grad, case["outputs"]["grad_token"], case)
    for case in load("implicitprm_ce"):  # There the sigmoid is computed before its log.
        inputs = case["inputs"]
        num = len(inputs["labels"])
        batch = make_batch([[1]] * num, ref=[[ref] for ref in inputs["ref_log_probs"]], label=inputs["labels"])
        loss, grad = differentiate(OutcomeLoss(case["params"]["beta"]), batch, logprobs=leaf([[x] for x in inputs["log_probs"]]))
        logits = case["params"]["beta"] * (torch.tensor(inputs["log_probs"]) - torch.tensor(inputs["ref_log_probs"]))
        theirs = torch.nn.functional.binary_cross_entropy(torch.sigmoid(logits), torch.tensor(inputs["labels"]))
        close(theirs, case["outputs"]["loss"], case)
        # In float32 a sigmoid near 1 keeps few digits of its distance from 1.
        np.testing.assert_allclose(loss, case["outputs"]["loss"], rtol=2e-4)
        np.testing.assert_allclose(grad[:, 0], case["outputs"]["grad_log_probs"], atol=1e-5)


def paired(
    better: list[float], worse: list[float], ref_better: list[float], ref_worse: list[float], *, beta: float
) -> tuple[float, Tensor]:
    """The preference loss of pairs, a group each; the gradient of the better ones, then of the worse."""
    num = len(better)
    batch = make_batch(
        [[1]] * (2 * num), ref=[[ref] for ref in [*ref_better, *ref_worse]], group=[*range(num)] * 2, label=[1.0] * num + [0.0] * num
    )
    loss, grad = differentiate(PreferenceLoss(beta), batch, logprobs=leaf([[x] for x in [*better, *worse]]))
    return loss, grad[:, 0]


def test_preference_of_implicitprm_and_trl(load: Load) -> None:
    """Where there is one pair a group; `dpo_sigmoid` is compared in test_loss_goldens.py, too."""
    for case in [*load("implicitprm_dpo"), *load("dpo_sigmoid")]:
        inputs, outputs = case["inputs"], case["outputs"]
        references = inputs["ref_chosen"], inputs["ref_rejected"]
        loss, grad = paired(inputs["chosen"], inputs["rejected"], *references, beta=case["params"]["beta"])
        close(loss, outputs["loss"], case)
        close(grad, [*outputs["grad_chosen"], *outputs["grad_rejected"]], case)


def test_a_pairwise_loss_of_scores_is_preference_without_reference(load: Load) -> None:
    """The recorded `log(1 + exp(x))` overflows at a margin of -800; the loss there is 800."""
    for case in [*load("pairwise_logsigmoid"), *load("pairwise_logexp")]:
        better, worse = case["inputs"]["chosen_scores"], case["inputs"]["rejected_scores"]
        loss, grad = paired(better, worse, [0.0] * len(better), [0.0] * len(worse), beta=1.0)
        if not case["trusted"]:
            assert case["outputs"]["loss"] == "inf"
            assert loss == pytest.approx((800.0 + np.log1p(np.exp(-1.0))) / 2)
            assert torch.isfinite(grad).all()
            continue
        close(loss, case["outputs"]["loss"], case)
        close(grad, [*case["outputs"]["grad_chosen"], *case["outputs"]["grad_rejected"]], case)


def test_preference_of_istar_and_its_mean_over_steps(load: Load) -> None:
    """Equal for episodes of one step; the recorded mean over the steps of longer ones is that of the sum with each step's share."""
    for case in load("istar_traj_dpo"):
        inputs = case["inputs"]
        traj = np.array(inputs["traj"])
        share = 1.0 / np.bincount(traj)[traj]
        ratios = leaf(inputs["token_log_ratios"])
        shared = ratios if case["trusted"] else ratios * torch.tensor(share)[:, None]
        batch = make_batch(inputs["mask"], episode=inputs["traj"], group=inputs["group"], label=inputs["success"])
        # Groups are averaged here, pairs there: the same where all groups have equally many pairs, else weighed.
        loss, _ = PreferenceLoss(case["params"]["beta"])(Outputs(shared), batch)
        won = dict(zip(inputs["traj"], inputs["success"], strict=True))
        of = dict(zip(inputs["traj"], inputs["group"], strict=True))
        pairs = [sum(won[a] > won[b] for a in won for b in won if of[a] == of[b] == g) for g in sorted(set(inputs["group"]))]
        if len({p for p in pairs if p}) == 1:
            close(loss.item(), case["outputs"]["loss"], case)
            close(torch.autograd.grad(loss, ratios)[0], case["outputs"]["grad_token"], case)
        else:
            each = []
            for g, p in enumerate(pairs):
                of_group = replace(batch, weight=batch.weight * (batch.group == g)[:, None])
                each.append(p * PreferenceLoss(case["params"]["beta"])(Outputs(shared), of_group)[0])
            total = torch.stack(each).sum() / sum(pairs)
            close(total.item(), case["outputs"]["loss"], case)
            close(torch.autograd.grad(total, ratios)[0], case["outputs"]["grad_token"], case)


def test_accuracies_of_prime(load: Load) -> None:
    """The recorded accuracy of pairs weighs them by the difference of labels (no matter here), and a group without a pair is one half."""
    for case in load("prime_pair_accuracy"):
        inputs, n = case["inputs"], case["params"]["n_samples"]
        ratios, mask = np.array(inputs["token_log_ratios"]), np.array(inputs["mask"])
        scored = list(zip(inputs["labels"], (ratios * mask).sum(axis=1).tolist(), strict=True))
        groups = [scored[at : at + n] for at in range(0, len(scored), n)]
        each = [pair_accuracy([group]) for group in groups]
        close(np.mean([0.5 if one is None else one for one in each]), case["outputs"]["pair_accuracy"], case)
        assert pair_accuracy(groups) == np.mean([one for one in each if one is not None])
        _, tallies = OutcomeLoss(1.0)(Outputs(torch.tensor(ratios)), make_batch(inputs["mask"], label=inputs["labels"]))
        assert tallies["judge/accuracy"].value == pytest.approx(case["outputs"]["sign_accuracy"], abs=1e-6)


# -- inverse reinforcement learning -------------------------------------------------------------------------------------------


def test_repirl_on_each_micro_batch_and_on_the_batch(load: Load) -> None:
    """The recorded value of every micro-batch is ours of those rows; a row without tokens, NaN there, counts nowhere here."""
    loss = InverseLoss(SCALAR, weights="raw", total="average")
    for case in load("repirl"):
        inputs, size = case["inputs"], case["params"]["micro_batch"]
        num = len(inputs["mask"])
        found, grads = [], []
        for at in range(0, num, size):
            cut = slice(at, at + size)
            batch = make_batch(inputs["mask"][cut], old=inputs["old_log_probs"][cut], label=inputs["is_expert"][cut])
            value, grad = differentiate(loss, batch, values=leaf(inputs["token_rewards"][cut]))
            found.append(value)
            grads.append(grad / (num / size))
        if "empty_row" in case["name"]:
            assert case["outputs"]["loss_per_micro_batch"] == ["nan"]
            assert np.isfinite(found).all()
            assert torch.isfinite(torch.cat(grads)).all()
            continue
        close(found, case["outputs"]["loss_per_micro_batch"], case)
        close(torch.cat(grads), case["outputs"]["grad_token_rewards"], case)


def test_the_recorded_weights_of_a_micro_batch_of_one_are_uniform(load: Load) -> None:
    """With one row each the importance weights are all 1: what was released is the uniform form, weighed by counts."""
    (case,) = [case for case in load("repirl") if case["name"].endswith("few_experts_mb1")]
    inputs = case["inputs"]
    batch = make_batch(inputs["mask"], old=inputs["old_log_probs"], label=inputs["is_expert"])
    _, tallies = InverseLoss(SCALAR, weights="uniform")(Outputs(torch.zeros(1), None, leaf(inputs["token_rewards"])), batch)
    experts, others = sum(inputs["is_expert"]), len(inputs["is_expert"]) - sum(inputs["is_expert"])
    close(
        np.mean(case["outputs"]["loss_per_micro_batch"]),
        (others * tallies["judge/policy_reward"].value - experts * tallies["judge/expert_reward"].value) / (experts + others),
        case,
    )


def test_discriminator_of_regail(load: Load) -> None:
    """Recorded labels are smoothed already; with ours from 0 and 1 they are the same."""
    for case in [*load("regail_bce_dense"), *load("regail_bce_sequence")]:
        inputs, dense = case["inputs"], case["fn"] == "regail_bce_dense"
        logits = inputs["logits"] if dense else [[x] for x in inputs["logits"]]
        mask = inputs["mask"] if dense else [[1] for _ in logits]
        weight = [[w] * len(mask[0]) for w in inputs["row_weights"]]
        for labels, smoothing in (
            (inputs["labels"], 0.0),
            ([float(label > 0.5) for label in inputs["labels"]], case["params"]["smooth_pos"]),
        ):
            batch = make_batch(mask, weight=weight, label=labels)
            loss, grad = differentiate(DiscriminatorLoss(SCALAR, smoothing), batch, values=leaf(logits))
            close(loss, case["outputs"]["loss_sum_over_accum_steps"], case)
            close(grad if dense else grad[:, 0], case["outputs"]["grad_logits"], case)


def test_wasserstein_of_regail_is_the_uniform_form(load: Load) -> None:
    """Means over tokens are means over episodes that count as often as they have tokens."""
    for case in load("regail_wgan_dense"):
        inputs = case["inputs"]
        weight = [[float(sum(row))] * len(row) for row in inputs["mask"]]
        batch = make_batch(inputs["mask"], weight=weight, label=inputs["labels"])
        loss, grad = differentiate(InverseLoss(SCALAR, weights="uniform"), batch, values=leaf(inputs["logits"]))
        close(loss, case["outputs"]["loss_sum_over_accum_steps"], case)
        close(grad, case["outputs"]["grad_logits"], case)


def test_inverse_q_of_agentprm(load: Load) -> None:
    """A transition is an episode of two steps, of which the second is no transition; a terminal one is an episode of one step."""
    for case in load("agentprm_inverse"):
        inputs = case["inputs"]
        num = len(inputs["q"])
        following = [0.0 if x == "inf" else x for x in inputs["q_next"]]
        values = leaf([[q, q_next] for q, q_next in zip(inputs["q"], following, strict=True)])
        batch = make_batch(
            [[1, 1 - done] for done in inputs["terminal"]],
            weight=[[1.0, 0.0]] * num,
            step=[[2 * i, 2 * i + 1] for i in range(num)],
            label=inputs["labels"],
        )
        loss, grad = differentiate(InverseQLoss(case["params"]["gamma"]), batch, values=values)
        if not case["trusted"]:
            assert case["outputs"]["loss"] == "nan"
            assert np.isfinite(loss)
            continue
        close(loss, case["outputs"]["loss"], case)
        close(grad, list(zip(case["outputs"]["grad_q"], case["outputs"]["grad_q_next"], strict=True)), case)
