"""Losses against values and gradients recorded from verl, TRL and OpenRLHF."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from builders import make_batch
from torch import Tensor

from stepwell.credit import Standardised, compare
from stepwell.losses import Cispo, Clip, Masked, PolicyLoss, PreferenceLoss, Reinforce, kl, token_weights
from stepwell.losses.surrogate import Objective
from stepwell.types import Batch, Outputs, Tallies

Case = dict[str, Any]
Load = Callable[[str], list[Case]]


@pytest.fixture(scope="module")
def load_all(shared_data: Path) -> Load:
    def read(family: str) -> list[Case]:
        with gzip.open(shared_data / "golden" / "algorithms" / f"{family}.json.gz", "rt") as file:
            cases: list[Case] = json.load(file)
        return cases

    return read


@pytest.fixture(scope="module")
def load(load_all: Load) -> Load:
    """Those that are taken as truth."""
    return lambda family: [case for case in load_all(family) if case["trusted"]]


def weights(mask: list[list[int]], averaging: str, constant: float | None = None) -> np.ndarray[Any, Any]:
    """The weight of each place for a peer's name of an averaging rule. [rows, columns]"""
    lengths, width = [sum(row) for row in mask], len(mask[0])
    num_rows = sum(length > 0 for length in lengths)
    per_row = {
        "token-mean": lambda: token_weights(lengths, "token"),
        "seq-mean-token-mean": lambda: token_weights(lengths, "episode"),
        "seq-mean-token-sum": lambda: token_weights(lengths, "constant", constant=1.0),
        "seq-mean-token-sum-norm": lambda: token_weights(lengths, "constant", constant=constant or width),
        "token-sum": lambda: token_weights(lengths, "constant", constant=1.0 / max(num_rows, 1)),
        "sum-over": lambda: token_weights(lengths, "constant", constant=(constant or 1.0) / num_rows),
    }[averaging]()
    weight: np.ndarray[Any, Any] = per_row[:, None] * np.array(mask)
    return weight


def batch_of(case: Case, weight: np.ndarray[Any, Any]) -> Batch:
    inputs = case["inputs"]
    mask = inputs["mask"]
    advantages = [row if isinstance(row, list) else [row] * len(mask[0]) for row in inputs["advantages"]]
    return make_batch(mask, weight=weight.tolist(), advantage=advantages, old=inputs["old_log_probs"], ref=inputs.get("ref_log_probs"))


def differentiate(loss: PolicyLoss, case: Case, batch: Batch) -> tuple[float, Tensor, Tallies]:
    logprobs = torch.tensor(case["inputs"]["log_probs"], dtype=torch.float64, requires_grad=True)
    value, tallies = loss(Outputs(logprobs), batch)
    (grad,) = torch.autograd.grad(value, logprobs)
    return value.item(), grad, tallies


def check(case: Case, loss: PolicyLoss, weight: np.ndarray[Any, Any], tolerance: float) -> Tallies:
    value, grad, tallies = differentiate(loss, case, batch_of(case, weight))
    assert value == pytest.approx(case["outputs"]["loss"], rel=tolerance, abs=tolerance), case["name"]
    expected = torch.tensor(case["outputs"]["grad_log_probs"], dtype=torch.float64)
    assert torch.allclose(grad, expected, rtol=tolerance, atol=tolerance), case["name"]
    return tallies


def tolerance_of(case: Case) -> float:
    return 1e-5 if "float32" in case["dtype"] else 1e-7


def test_clipped_surrogate_of_verl(load: Load) -> None:
    seen = 0
    for case in load("policy_loss_verl"):
        params = case["params"]
        if case["fn"] not in ("ppo", "gspo"):
            continue
        weight = weights(case["inputs"]["mask"], params["agg"], params.get("loss_scale_factor"))
        if "is_weights" in case["inputs"]:
            weight = weight * np.array(case["inputs"]["is_weights"])
        loss = PolicyLoss(
            Clip(params["eps_low"], params["eps_high"], params.get("dual_clip_c")),
            level="episode" if case["fn"] == "gspo" else "token",
            old="given",
        )
        tallies = check(case, loss, weight, tolerance_of(case))
        shares = case["outputs"]["metric_pg_clipfrac"] + case["outputs"]["metric_pg_clipfrac_lower"]
        assert tallies["policy/clip_share"].value == pytest.approx(shares, abs=1e-6), case["name"]
        seen += 1
    assert seen == 16


def test_clipped_surrogate_of_trl(load: Load) -> None:
    seen = 0
    for case in load("policy_loss_trl"):
        params = case["params"]
        rows = len(case["inputs"]["mask"])
        averaging: tuple[str, float | None]
        match params["loss_type"]:
            case "grpo":
                averaging = "seq-mean-token-mean", None
            case "bnpo":
                averaging = "token-mean", None
            case "dr_grpo":
                averaging = "sum-over", float(rows * params["max_completion_length"])
            case "dapo":
                averaging = "sum-over", params["num_items_in_batch"] * params["grad_accum"] / params["steps_per_generation"]
            case _:
                continue
        weight = weights(case["inputs"]["mask"], *averaging)
        if "sampler_is_ratio" in case["inputs"]:
            weight = weight * np.array(case["inputs"]["sampler_is_ratio"])
        loss = PolicyLoss(
            Clip(params["eps_low"], params["eps_high"], params.get("delta")),
            level="episode" if params["level"] == "sequence" else "token",
            old="given",
            kl_coef=params["beta"] or None,
            kl_kind="k3",
        )
        tallies = check(case, loss, weight, tolerance_of(case))
        if "metric_kl" in case["outputs"]:
            assert tallies["policy/kl_ref"].value == pytest.approx(case["outputs"]["metric_kl"], rel=1e-6), case["name"]
        seen += 1
    assert seen == 18


def test_clipped_surrogate_of_openrlhf(load: Load) -> None:
    seen = 0
    for case in load("policy_loss_openrlhf"):
        params = case["params"]
        if case["fn"] not in ("openrlhf_ppo", "openrlhf_gspo") or "correction" in params:
            continue  # a correction for the sampler's log-probs is not part of this loss
        loss = PolicyLoss(
            Clip(params["eps_low"], params["eps_high"], params["dual_clip_c"]),
            level="episode" if case["fn"] == "openrlhf_gspo" else "token",
            old="given",
        )
        weight = weights(case["inputs"]["mask"], params["agg"])
        check(case, loss, weight, tolerance_of(case))
        seen += 1
    assert seen == 9


def test_cispo(load: Load) -> None:
    """verl's bound is 1 + eps_high, TRL's is eps_high itself, with no lower one."""
    seen = 0
    for case in load("policy_loss_verl") + load("policy_loss_trl"):
        params = case["params"]
        if case["fn"] == "cispo":
            loss = PolicyLoss(Cispo(params["eps_low"], params["eps_high"]), old="given")
            weight = weights(case["inputs"]["mask"], params["agg"])
        elif case["fn"] == "trl_cispo":
            loss = PolicyLoss(
                Cispo(1.0, params["eps_high"] - 1.0), old="given", level="episode" if params["level"] == "sequence" else "token"
            )
            items = params["num_items_in_batch"] * params["grad_accum"] / params["steps_per_generation"]
            weight = weights(case["inputs"]["mask"], "sum-over", items)
        else:
            continue
        tallies = check(case, loss, weight, tolerance_of(case))
        if "metric_cispo_clip_ratio" in case["outputs"]:
            """TRL counts only what is bounded above where the advantage is positive: in these cases, nothing is bounded at all."""
            assert case["outputs"]["metric_cispo_clip_ratio"] == tallies["policy/clip_share"].value == 0.0
        seen += 1
    assert seen == 6


def test_reinforce_is_gpg(load: Load) -> None:
    cases = [case for case in load("policy_loss_verl") if case["fn"] == "gpg"]
    for case in cases:
        check(case, PolicyLoss(Reinforce()), weights(case["inputs"]["mask"], case["params"]["agg"]), tolerance_of(case))
    assert len(cases) == 1


def test_masked_importance_sampling_of_openrlhf(load: Load) -> None:
    cases = [case for case in load("policy_loss_openrlhf") if "correction" in case["params"]]
    for case in cases:
        params = case["params"]
        assert params["correction"] == "seq-mask-tis"
        loss = PolicyLoss(Clip(params["eps_low"], params["eps_high"]), old="given", correction=Masked(*params["thresholds"]))
        batch = batch_of(case, weights(case["inputs"]["mask"], params["agg"]))
        batch = replace(batch, sampler_logprobs=torch.tensor(case["inputs"]["sampler_log_probs"], dtype=torch.float64))
        value, grad, tallies = differentiate(loss, case, batch)
        assert value == pytest.approx(case["outputs"]["loss"], rel=1e-7)
        assert torch.allclose(grad, torch.tensor(case["outputs"]["grad_log_probs"], dtype=torch.float64), rtol=1e-7, atol=1e-9)
        assert 0.0 < tallies["sampler/corrected_share"].value < 1.0
    assert len(cases) == 1


@dataclass(frozen=True)
class Sapo:
    """A surrogate of one's own: a soft gate in place of the clip, `4 / tau sigmoid(tau (rho - 1)) A` (SAPO, arXiv 2511.20347)."""

    positive: float
    negative: float

    def __call__(self, logprobs: Tensor, ratio: Tensor, advantage: Tensor) -> Objective:
        tau = torch.where(advantage > 0, self.positive, self.negative)
        return Objective(4.0 / tau * torch.sigmoid(tau * (ratio - 1.0)) * advantage, torch.zeros_like(ratio, dtype=torch.bool))


def test_a_surrogate_of_ones_own_is_sapo(load: Load) -> None:
    seen = 0
    for case in load("policy_loss_verl") + load("policy_loss_trl"):
        if not case["fn"].endswith("sapo"):
            continue
        params = case["params"]
        level: Literal["token", "episode"] = "episode" if params.get("level") == "sequence" else "token"
        loss = PolicyLoss(Sapo(params["tau_pos"], params["tau_neg"]), old="given", level=level)
        check(case, loss, weights(case["inputs"]["mask"], params.get("agg", "seq-mean-token-mean")), tolerance_of(case))
        seen += 1
    assert seen == 5


def check_kl(case: Case) -> None:
    params, inputs = case["params"], case["inputs"]
    estimator = {"kl": "k1", "mse": "k2", "low_var_kl": "k3", "k2+": "k2"}.get(params["estimator"], params["estimator"])
    estimator += "x" if params.get("ratio_weighted") else ""
    limits = {}
    if case["fn"].startswith("openrlhf"):
        limits = {"value_limit": params["clamp"]}
    elif case["fn"].startswith("verl_k3") or case["fn"] == "verl_low_var_kl":
        limits = {"log_limit": 20.0, "value_limit": 10.0}
    columns = {name: torch.tensor(inputs[name], dtype=torch.float64) for name in inputs}
    logprobs = columns["log_probs"].requires_grad_()
    value = kl(logprobs, columns["ref_log_probs"], estimator, old_logprobs=columns.get("old_log_probs"), **limits)
    (grad,) = torch.autograd.grad(value.sum(), logprobs)
    tolerance = tolerance_of(case)
    ours = {"value": value, "sum": value.sum(), "mean": value.mean(), "grad_log_probs": grad}
    for name, expected in case["outputs"].items():
        wanted = torch.tensor(expected, dtype=torch.float64)
        assert torch.allclose(ours[name], wanted, rtol=tolerance, atol=tolerance), (case["name"], name)


def test_kl_estimators(load: Load) -> None:
    """verl's `abs` is left out: |d| is an estimate of no divergence."""
    cases = [case for case in load("kl") if not case["params"]["estimator"].startswith("abs")]
    for case in cases:
        check_kl(case)
    assert len(cases) == 21


def test_openrlhfs_clamp_of_every_estimator_is_an_option(load_all: Load) -> None:
    cases = [case for case in load_all("kl") if not case["trusted"]]
    for case in cases:
        assert max(abs(value) for row in case["outputs"]["value"] for value in row) == pytest.approx(10.0)
        check_kl(case)
    assert [case["fn"] for case in cases] == ["openrlhf_k1", "openrlhf_k2"]


def test_trls_average_counts_rows_without_tokens(load_all: Load) -> None:
    """A convention: of five rows one is masked, and TRL still divides by five. Here four count."""
    (case,) = [case for case in load_all("policy_loss_trl") if not case["trusted"]]
    weight = weights(case["inputs"]["mask"], "seq-mean-token-mean")
    assert sum(any(row) for row in case["inputs"]["mask"]) == 4
    check(case, PolicyLoss(Clip(0.2, 0.2), old="given"), weight * 4 / 5, tolerance_of(case))


def test_an_average_of_nothing_is_zero_where_verl_has_nan(load_all: Load) -> None:
    cases = [case for case in load_all("loss_aggregation_verl") if not case["trusted"]]
    for case in cases:
        assert case["outputs"]["value"] == "nan"
        weight = weights(case["inputs"]["mask"], case["params"]["agg"])
        assert (weight * np.array(case["inputs"]["loss"])).sum() == 0.0
    assert len(cases) == 2


TESTED = {
    *("ppo", "gspo", "cispo", "gpg", "sapo", "agg", "masked_stats"),
    *("trl_grpo", "trl_bnpo", "trl_dr_grpo", "trl_dapo", "trl_cispo", "trl_sapo"),
    *("openrlhf_ppo", "openrlhf_gspo"),
    *("openrlhf_k1", "openrlhf_k2", "openrlhf_k3", "trl_k3", "trl_k3_ratio_weighted"),
    *(f"verl_{name}" for name in ("k1", "k1+", "k2", "k2+", "k3", "k3+", "kl", "mse", "low_var_kl")),
}
ELSEWHERE = {
    **dict.fromkeys(("openrlhf_value", "value_loss"), "test_returns_goldens.py"),
    **dict.fromkeys(("clip_cov", "kl_cov", "dppo_kl", "dppo_tv", "dro", "geo_mean", "verl_abs", "verl_abs+"), "docs/methods"),
}
"""Where else a recorded function is tested, or said not to be part of the library."""


def test_no_recorded_loss_is_passed_over(load_all: Load) -> None:
    families = ("policy_loss_verl", "policy_loss_trl", "policy_loss_openrlhf", "kl", "loss_aggregation_verl")
    assert {case["fn"] for family in families for case in load_all(family)} == TESTED | set(ELSEWHERE)


def test_averaging_of_verl(load: Load) -> None:
    seen = 0
    for case in load("loss_aggregation_verl"):
        if case["fn"] != "agg":
            continue
        params, mask, losses = case["params"], case["inputs"]["mask"], np.array(case["inputs"]["loss"])
        weight = weights(mask, params["agg"], params.get("loss_scale_factor") if params["agg"].endswith("norm") else None)
        if "dp_size" in params:
            """One worker's part of a global batch: its loss is divided by the global count and multiplied by the number of workers."""
            count = params["batch_num_tokens"] if params["agg"] == "token-mean" else params["global_batch_size"]
            local = np.sum(mask) if params["agg"] == "token-mean" else sum(any(row) for row in mask)
            weight = weight * local / count * params["dp_size"]
        assert (weight * np.where(mask, losses, 0.0)).sum() == pytest.approx(case["outputs"]["value"], rel=1e-7, abs=1e-12), case["name"]
        seen += 1
    assert seen == 13


def test_whitening_of_verl(load: Load) -> None:
    """verl adds 1e-8 to counts, so that equal values become 2e-6, not 0."""
    cases = [case for case in load("loss_aggregation_verl") if case["fn"] == "masked_stats"]
    for case in cases:
        mask = np.array(case["inputs"]["mask"], bool)
        ours = compare(Standardised(noise_floor=0.0), np.array(case["inputs"]["x"])[mask])
        np.testing.assert_allclose(ours, np.array(case["outputs"]["whitened"])[mask], atol=2e-6)
    assert len(cases) == 2


def test_preference_is_dpo_for_one_pair_a_group(load: Load) -> None:
    seen = 0
    for case in load("dpo_trl"):
        if case["fn"] != "dpo_sigmoid":
            continue
        inputs, n = case["inputs"], len(case["inputs"]["chosen"])
        batch = make_batch(
            [[1]] * (2 * n),
            ref=[[value] for value in inputs["ref_chosen"] + inputs["ref_rejected"]],
            group=[*range(n), *range(n)],
            label=[1.0] * n + [0.0] * n,
        )
        logprobs = torch.tensor(inputs["chosen"] + inputs["rejected"], dtype=torch.float64)[:, None].requires_grad_()
        value, tallies = PreferenceLoss(beta=case["params"]["beta"])(Outputs(logprobs), batch)
        (grad,) = torch.autograd.grad(value, logprobs)
        assert value.item() == pytest.approx(case["outputs"]["loss"], rel=1e-9), case["name"]
        expected = case["outputs"]["grad_chosen"] + case["outputs"]["grad_rejected"]
        assert grad[:, 0].tolist() == pytest.approx(expected, rel=1e-7, abs=1e-40), case["name"]
        assert tallies["judge/margin"].value == pytest.approx(case["outputs"]["reward_margin_mean"], abs=1e-9)
        if not case["name"].endswith("equal"):
            """TRL counts a tie as wrong; here it is half right."""
            assert tallies["judge/pair_accuracy"].value == pytest.approx(case["outputs"]["reward_accuracy"], rel=1e-6)
        seen += 1
    assert seen == 2
