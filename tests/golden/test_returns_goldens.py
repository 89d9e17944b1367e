"""Advantages, returns and the critic's loss against numbers recorded from verl, rlax, torchrl and OpenRLHF."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders import make_batch, make_episode, make_group

from stepwell.credit import Whitened, by_token, to_go
from stepwell.credit.gae import GAE, lambda_advantages
from stepwell.losses import ValueLoss, token_weights
from stepwell.types import Ending, EndingKind, Floats, Outputs, Scored

Case = dict[str, Any]
Load = Callable[[str], list[Case]]


@pytest.fixture(scope="module")
def load(shared_data: Path) -> Load:
    def read(family: str) -> list[Case]:
        with gzip.open(shared_data / "golden" / "algorithms" / f"{family}.json.gz", "rt") as file:
            cases: list[Case] = json.load(file)
        return [case for case in cases if case["trusted"]]

    return read


def token_episode(rewards: Floats, values: Floats, *, after: float | None = None) -> Scored:
    """One step a token; with `after`, the episode was cut."""
    episode = make_episode([len(rewards)] if len(rewards) else [])
    if after is not None:
        episode = replace(episode, ending=Ending(EndingKind.TRUNCATED, "full"))
    scored_S = np.ones(len(rewards), np.bool_)
    return Scored(episode, by_token(episode), 0.0, {"judge": rewards}, scored_S, values_S=values, final_value=after)


def test_token_level_gae_of_verl(load: Load) -> None:
    """Observation tokens are skipped, empty rows count nowhere, and whitening is over all trained tokens."""
    seen = 0
    for case in load("advantages_verl"):
        if case["fn"] != "gae":
            continue
        inputs, params = case["inputs"], case["params"]
        masks = [np.array(row, np.bool_) for row in inputs["response_mask"]]
        columns = zip(inputs["token_level_rewards"], inputs["values"], masks, strict=True)
        batch = [token_episode(np.array(rewards)[mask], np.array(values)[mask]) for rewards, values, mask in columns]
        rule = GAE(params["gamma"], params["lam"])
        estimates = rule.estimate(batch)
        white = [member.advantages_S for member in Whitened(rule)([make_group(*batch)])[0].members]
        for n, mask in enumerate(masks):
            for ours, theirs, tolerance in (
                (estimates[n].advantages_S, "advantages_raw", 1e-8),
                (estimates[n].returns_S, "returns", 1e-8),
                (white[n], "advantages_whitened", 1e-7),
            ):
                assert np.allclose(ours, np.array(case["outputs"][theirs][n])[mask], rtol=tolerance, atol=tolerance), (case["name"], theirs)
        seen += 1
    assert seen == 5


def pieces(is_end: list[Any]) -> list[slice]:
    """The episodes of an array that holds several, one after the other; the last may go on."""
    stops = [i + 1 for i, end in enumerate(is_end) if end]
    bounds = sorted({0, *stops, len(is_end)})
    return [slice(a, b) for a, b in pairwise(bounds)]


def test_gae_and_lambda_returns_of_rlax(load: Load) -> None:
    """A discount of 0 ends an episode; what is open at the end of the array is bootstrapped."""
    seen = 0
    for case in load("returns_rlax"):
        inputs = case["inputs"]
        lam = {"gae": case["params"].get("lam"), "lambda_returns": case["params"].get("lam"), "discounted_returns": 1.0}.get(case["fn"])
        if not isinstance(lam, float):
            continue
        discounts, rewards = np.array(inputs["discounts"]), np.array(inputs["rewards"])
        values = np.array(inputs["values"]) if "values" in inputs else np.append(0.0, inputs["next_values"])
        ours = []
        for cut in pieces([discount == 0.0 for discount in discounts]):
            over = discounts[cut][-1] == 0.0
            # All discounts of a case but the zeros are equal; a lone step that ends has none.
            discount = max(float(discounts.max()), 0.0)
            after = 0.0 if over else float(values[cut.stop])
            ours.append(lambda_advantages(rewards[cut], values[cut], after=after, discount=discount, lam=lam))
            if case["fn"] != "gae":
                ours[-1] = ours[-1] + values[cut]
        expected = case["outputs"]["advantages" if case["fn"] == "gae" else "returns"]
        assert np.allclose(np.concatenate(ours), expected, rtol=1e-9, atol=1e-9), case["name"]
        seen += 1
    assert seen == 13


def test_one_step_errors_and_returns_of_rlax(load: Load) -> None:
    """Every step is cut off from the next: its own discount, and the value of what comes after."""
    seen = 0
    for case in load("returns_rlax"):
        inputs = case["inputs"]
        if case["fn"] not in ("td_learning", "n_step_returns"):
            continue
        n_step = case["fn"] == "n_step_returns"
        assert case["params"].get("n", 1) == 1
        following = inputs["next_values" if n_step else "v_next"]
        before = [0.0] * len(following) if n_step else inputs["v"]
        columns = zip(inputs["rewards"], before, following, inputs["discounts"], strict=True)
        ours = [lambda_advantages(np.array([r]), np.array([v]), after=after, discount=d, lam=0.5)[0] for r, v, after, d in columns]
        assert np.allclose(ours, case["outputs"]["returns" if n_step else "td_error"], rtol=1e-9, atol=1e-9), case["name"]
        seen += 1
    assert seen == 4


def test_gae_and_returns_of_torchrl(load: Load) -> None:
    """Truncation bootstraps from the value of the next state, termination does not; both end the recursion."""
    seen: dict[str, int] = {}
    for case in load("returns_torchrl"):
        fn, inputs, params = case["fn"], case["inputs"], case["params"]
        lam = {"gae": params.get("lam"), "td_lambda_returns": params.get("lam"), "td1_returns": 1.0, "td0_returns": 0.0}.get(fn)
        if lam is None and fn != "reward_to_go":
            continue
        for row, rewards in enumerate(inputs["rewards"]):
            rewards = np.array(rewards)
            ends = [True] * len(rewards) if fn == "td0_returns" else inputs["done"][row]
            ours, baseline = [], []
            for cut in pieces(ends):
                if lam is None:
                    ours.append(to_go(rewards[cut], params["gamma"]))
                    continue
                following = np.array(inputs["next_values"][row][cut])
                values = np.array(inputs["values"][row][cut]) if "values" in inputs else np.append(0.0, following[:-1])
                open_end = not inputs["terminated"][row][cut.stop - 1]
                # torchrl's V(s_(t+1)) and V(s_t) come from two forward passes; the rule has one value for each state.
                shaped = rewards[cut] + params["gamma"] * np.append(following[:-1] - values[1:], 0.0)
                member = token_episode(shaped, values, after=float(following[-1]) if open_end else None)
                estimate = GAE(params["gamma"], lam).estimate([member])[0]
                ours.append(estimate.advantages_S if fn == "gae" else estimate.returns_S)
                baseline.append(estimate.returns_S)
            expected = case["outputs"]["advantages" if fn == "gae" else "returns"][row]
            assert np.allclose(np.concatenate(ours), expected, rtol=1e-7, atol=1e-7), case["name"]
            if fn == "gae":
                assert np.allclose(np.concatenate(baseline), case["outputs"]["value_targets"][row], rtol=1e-7, atol=1e-7), case["name"]
        seen[fn] = seen.get(fn, 0) + 1
    assert seen == {"gae": 5, "reward_to_go": 4, "td0_returns": 5, "td1_returns": 4, "td_lambda_returns": 5}


def test_the_critics_loss_of_openrlhf(load: Load) -> None:
    seen = 0
    for case in load("policy_loss_openrlhf"):
        if case["fn"] != "openrlhf_value":
            continue
        inputs, mask = case["inputs"], np.array(case["inputs"]["mask"])
        kind = {"token-mean": "token", "seq-mean-token-mean": "episode"}[case["params"]["agg"]]
        weight = token_weights(mask.sum(1).tolist(), kind)[:, None] * mask  # type: ignore[arg-type]
        columns = {
            ours: torch.tensor(inputs[theirs], dtype=torch.float64)
            for ours, theirs in (("returns", "returns"), ("old_values", "old_values"))
        }
        batch = replace(make_batch(mask.tolist(), weight=weight.tolist()), **columns)
        values = torch.tensor(inputs["value_preds"], dtype=torch.float64, requires_grad=True)
        loss, _ = ValueLoss(case["params"]["clip"])(Outputs(values, None, values), batch)
        (grad,) = torch.autograd.grad(loss, values)
        assert loss.item() == pytest.approx(case["outputs"]["loss"], rel=1e-7), case["name"]
        assert torch.allclose(grad, torch.tensor(case["outputs"]["grad_value_preds"], dtype=torch.float64), rtol=1e-7, atol=1e-8)
        seen += 1
    assert seen == 1
