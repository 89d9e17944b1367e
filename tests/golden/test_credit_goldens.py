"""Credit against numbers recorded from verl, TRL and iStar's code (their case names are the test ids)."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import make_group, make_scored

from stepwell.credit import Baseline, Centred, IStar, LeaveOneOut, OutcomeOnly, Standardised
from stepwell.protocols import Assign
from stepwell.types import Floats, Scored

Case = dict[str, Any]


@pytest.fixture(scope="module")
def load(shared_data: Path) -> Callable[[str], list[Case]]:
    def read(family: str) -> list[Case]:
        with gzip.open(shared_data / "golden" / "algorithms" / f"{family}.json.gz", "rt") as file:
            cases: list[Case] = json.load(file)
        return [case for case in cases if case["trusted"]]

    return read


def by_group(rule: Assign, scored: list[Scored], group: list[int]) -> list[float]:
    """The advantage of the first step of each member; groups are interleaved in any order."""
    result = [math.nan] * len(scored)
    for key in sorted(set(group)):
        places = [n for n, g in enumerate(group) if g == key]
        members = rule([make_group(*(scored[n] for n in places))])[0].members
        for n, member in zip(places, members, strict=True):
            result[n] = float(member.advantages_S[0])
    return result


def rows(values_N: list[float], mask: list[list[int]]) -> Floats:
    """Every token of a row gets its value, masked places 0."""
    return np.array(values_N)[:, None] * np.array(mask)


def verl_cases(cases: list[Case]) -> Iterator[tuple[Case, Baseline, float]]:
    for case in cases:
        fn, eps = case["fn"], case["params"].get("epsilon", 0.0)
        if fn in ("grpo_std", "grpo_vectorized_std"):
            yield case, Standardised(noise_floor=eps), 1e-5 if "float32" in case["dtype"] else 1e-9
        elif fn == "grpo_nostd":
            yield case, Centred(), 1e-9
        elif fn in ("rloo", "rloo_vectorized"):
            yield case, LeaveOneOut(), 1e-9


def test_outcome_advantages_of_verl(load: Callable[[str], list[Case]]) -> None:
    seen = []
    for case, baseline, tolerance in verl_cases(load("advantages_verl")):
        inputs = case["inputs"]
        mask = inputs["response_mask"]
        outcomes = [sum(row) for row in inputs["token_level_rewards"]]
        scored = [make_scored([sum(row)], outcome=outcome) for row, outcome in zip(mask, outcomes, strict=True)]
        ours = rows(by_group(OutcomeOnly(baseline), scored, inputs["group"]), mask)
        assert np.allclose(ours, case["outputs"]["advantages"], rtol=tolerance, atol=tolerance), case["name"]
        seen.append(case["name"])
    assert len(seen) == 9


def test_outcome_advantages_of_trl(load: Callable[[str], list[Case]]) -> None:
    seen = 0
    for case in load("advantages_trl"):
        params = case["params"]
        if case["fn"] not in ("trl_group", "trl_none"):
            continue
        baseline = Standardised(ddof=params["ddof"], noise_floor=params["eps"]) if params["scale"] == "group" else Centred()
        outcomes: list[float | None] = []
        for row in case["inputs"]["rewards"]:
            given = [weight * value for weight, value in zip(params["weights"], row, strict=True) if value != "nan"]
            outcomes.append(sum(given) if given else None)
        group = [n // params["n_samples"] for n in range(len(outcomes))]
        ours = by_group(OutcomeOnly(baseline), [make_scored([1], outcome=outcome) for outcome in outcomes], group)
        assert np.allclose(ours, case["outputs"]["advantages"], rtol=1e-9, atol=1e-9), case["name"]
        seen += 1
    assert seen == 9


def test_dual_credit_of_istar_with_one_step_a_trajectory(load: Callable[[str], list[Case]]) -> None:
    """There the released code's fault (statistics of first steps alone) has no effect."""
    seen = 0
    for case in load("advantages_istar_code"):
        inputs, params = case["inputs"], case["params"]
        rules = {
            "istar_code_grpo_mean": IStar(Centred(), params["step_weight"], Centred(), only_mixed=False),
            "istar_code_grpo_std": IStar(Standardised(), params["step_weight"], Standardised(), only_mixed=False),
            "istar_code_rloo": IStar(LeaveOneOut(), params["step_weight"], LeaveOneOut(), only_mixed=False),
        }
        if case["fn"] not in rules:
            continue
        mask = inputs["response_mask"]
        process = [sum(score for score, m in zip(s, row, strict=True) if m) for s, row in zip(inputs["token_scores"], mask, strict=True)]
        scored = [make_scored([sum(row)], outcome=o, process=[p]) for row, o, p in zip(mask, inputs["outcome"], process, strict=True)]
        ours = rows(by_group(rules[case["fn"]], scored, inputs["group"]), mask)
        assert np.allclose(ours, case["outputs"]["advantages"], rtol=1e-9, atol=1e-9), case["name"]
        seen += 1
    assert seen == 3
