"""Credit against numbers recorded from verl, TRL and iStar's code (their case names are the test ids)."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import make_group, make_scored

from stepwell.credit import (
    GAE,
    Baseline,
    Centred,
    GiGPO,
    IStar,
    LeaveOneOut,
    OutcomeOnly,
    Prime,
    Raw,
    ReinforcePlusPlus,
    RePIRL,
    Standardised,
    SuffixLogRatio,
    Whitened,
    spread,
    to_go,
)
from stepwell.credit.leave_out import largest_return
from stepwell.credit.rule import Flat
from stepwell.protocols import Assign
from stepwell.types import Credited, Floats, Group, Observation, Scored, Steps

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
    values: Floats = np.array(values_N)[:, None] * np.array(mask)
    return values


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


def paid_by(row: list[float | str], weights: list[float]) -> float | None:
    """The weighted sum of the components that are there; None where none is."""
    given = [weight * value for weight, value in zip(weights, row, strict=True) if not isinstance(value, str)]
    return sum(given) if given else None


def test_outcome_advantages_of_trl(load: Callable[[str], list[Case]]) -> None:
    seen = 0
    for case in load("advantages_trl"):
        params = case["params"]
        if case["fn"] not in ("trl_group", "trl_none"):
            continue
        baseline = Standardised(ddof=params["ddof"], noise_floor=params["eps"]) if params["scale"] == "group" else Centred()
        outcomes = [paid_by(row, params["weights"]) for row in case["inputs"]["rewards"]]
        group = [n // params["n_samples"] for n in range(len(outcomes))]
        ours = by_group(OutcomeOnly(baseline), [make_scored([1], outcome=outcome) for outcome in outcomes], group)
        assert np.allclose(ours, case["outputs"]["advantages"], rtol=1e-9, atol=1e-9), case["name"]
        seen += 1
    assert seen == 9


def test_outcomes_in_the_unit_of_the_batch(load: Callable[[str], list[Case]]) -> None:
    seen = 0
    for case in load("advantages_trl"):
        if case["fn"] != "trl_batch":
            continue
        params = case["params"]
        outcomes = [paid_by(row, params["weights"]) for row in case["inputs"]["rewards"]]
        groups = blocks([make_scored([1], outcome=outcome) for outcome in outcomes], params["n_samples"])
        ours = [float(m.advantages_S[0]) for group in OutcomeOnly(Centred(), "batch")(groups) for m in group.members]
        assert np.allclose(ours, case["outputs"]["advantages"], rtol=1e-9, atol=1e-9), case["name"]
        seen += 1
    assert seen == 5


def blocks(scored: list[Scored], size: int) -> list[Group[Scored]]:
    """Consecutive groups."""
    return [make_group(*scored[n : n + size], key=str(n)) for n in range(0, len(scored), size)]


def by_tokens(mask: list[int], *, outcome: float | None, process: list[float] | None = None) -> Scored:
    """An episode whose steps are its sampled tokens; what stands at a masked place is left out."""
    kept = None if process is None else [value for value, m in zip(process, mask, strict=True) if m]
    length = sum(mask)
    return make_scored(
        [length], outcome=outcome, process=kept, steps=Steps(np.zeros(length, np.int64), np.arange(length), np.arange(1, length + 1))
    )


def on_mask(values: list[list[float]], mask: list[list[int]]) -> list[list[float]]:
    """The values at places that are not masked, row by row."""
    return [[v for v, m in zip(row, keep, strict=True) if m] for row, keep in zip(values, mask, strict=True)]


def members_of(groups: list[Group[Credited]]) -> list[Credited]:
    return [member for group in groups for member in group.members]


def check(ours: list[Credited], expected: list[list[float]], name: str, tolerance: float = 1e-7) -> None:
    for member, row in zip(ours, expected, strict=True):
        assert np.allclose(member.advantages_S, row, rtol=tolerance, atol=tolerance), name


def test_reinforce_plus_plus(load: Callable[[str], list[Case]]) -> None:
    seen = 0
    for case in load("advantages_verl"):
        if case["fn"] != "reinforce_pp":
            continue
        inputs, mask = case["inputs"], case["inputs"]["response_mask"]
        scored = [by_tokens(m, outcome=None, process=row) for m, row in zip(mask, inputs["token_level_rewards"], strict=True)]
        ours = members_of(ReinforcePlusPlus(discount=case["params"]["gamma"])(blocks(scored, 1)))
        check(ours, on_mask(case["outputs"]["advantages"], mask), case["name"])
        seen += 1
    assert seen == 3


def test_reinforce_plus_plus_with_baseline(load: Callable[[str], list[Case]]) -> None:
    seen = 0
    for case in load("advantages_verl"):
        if case["fn"] != "reinforce_pp_baseline":
            continue
        inputs, mask = case["inputs"], case["inputs"]["response_mask"]
        scored = [by_tokens(m, outcome=sum(row)) for m, row in zip(mask, inputs["token_level_rewards"], strict=True)]
        ours = regrouped(Whitened(OutcomeOnly(Centred())), scored, inputs["group"])
        check(ours, on_mask(case["outputs"]["advantages"], mask), case["name"])
        seen += 1
    assert seen == 2


def regrouped(rule: Assign, scored: list[Scored], group: list[int]) -> list[Credited]:
    """One batch of interleaved groups; back in the order of the rows."""
    keys = sorted(set(group))
    places = [[n for n, g in enumerate(group) if g == key] for key in keys]
    credited = rule([make_group(*(scored[n] for n in at), key=str(key)) for key, at in zip(keys, places, strict=True)])
    found = {n: member for at, made in zip(places, credited, strict=True) for n, member in zip(at, made.members, strict=True)}
    return [found[n] for n in range(len(scored))]


def every(family: str, shared_data: Path) -> list[Case]:
    """Untrusted cases too: what they show is reproduced by a named option."""
    with gzip.open(shared_data / "golden" / "algorithms" / f"{family}.json.gz", "rt") as file:
        cases: list[Case] = json.load(file)
    return cases


def test_prime_by_the_paper_and_as_released(shared_data: Path) -> None:
    """The released form is the peer's; the paper's was computed beside it. Whitened, the released one is the peer's advantage."""
    seen = 0
    for case in every("advantages_prm", shared_data):
        if case["fn"] not in ("prime_rloo_recipe", "prime_rloo_returns"):
            continue
        inputs, params, mask = case["inputs"], case["params"], case["inputs"]["response_mask"]
        alpha, discount = params.get("coef_process", 1.0), params.get("gamma_process", params.get("gamma", 1.0))
        scored = [
            by_tokens(m, outcome=outcome, process=row)
            for m, outcome, row in zip(mask, inputs["outcome"], inputs["process_rewards"], strict=True)
        ]
        groups = blocks(scored, params["n_samples"])
        released = Prime(alpha, discount, "released")
        check(members_of(Prime(alpha, discount)(groups)), on_mask(case["own"]["returns_paper_formula"], mask), case["name"], 1e-6)
        check(members_of(released(groups)), on_mask(case["outputs"]["returns"], mask), case["name"], 1e-6)
        check(members_of(Whitened(released)(groups)), on_mask(case["outputs"]["advantages_whitened"], mask), case["name"], 1e-6)
        seen += 1
    assert seen == 5


def test_the_unit_of_prime(load: Callable[[str], list[Case]]) -> None:
    seen = 0
    for case in load("advantages_prm"):
        if case["fn"] != "prime_implicit_reward":
            continue
        mask = case["inputs"]["response_mask"]
        rewards = np.array(case["inputs"]["log_probs"]) - np.array(case["inputs"]["ref_log_probs"])
        scored = [by_tokens(m, outcome=0.0, process=row) for m, row in zip(mask, rewards.tolist(), strict=True)]
        unit = largest_return([Flat.of(make_group(*scored))]) + case["params"]["norm_eps"]
        ours = [(member.process_S / unit).tolist() for member in scored]
        for mine, row in zip(ours, on_mask(case["outputs"]["normalised"], mask), strict=True):
            assert np.allclose(mine, row, rtol=1e-9, atol=1e-12), case["name"]
        seen += 1
    assert seen == 3


def test_repirl(load: Callable[[str], list[Case]]) -> None:
    seen: list[str] = []
    for case in load("advantages_prm"):
        inputs, params = case["inputs"], case["params"]
        if case["fn"] in ("repirl_masked_rloo", "repirl_masked_grpo"):
            mask = inputs["mask"]
            scored = [by_tokens(m, outcome=None, process=row) for m, row in zip(mask, inputs["rewards"], strict=True)]
            baseline = LeaveOneOut() if case["fn"].endswith("rloo") else Standardised(noise_floor=0.0)
            rule: Assign = RePIRL(1.0, params["gamma"], "raw", step_baseline=baseline)
            expected = case["outputs"]["advantages"]
        elif case["fn"] == "repirl_advantage_rloo":
            mask, paid = inputs["response_mask"], params["coef_outcome"]
            scored = [
                by_tokens(m, outcome=outcome if paid else None, process=row)
                for m, outcome, row in zip(mask, inputs["outcome"], inputs["process_rewards"], strict=True)
            ]
            rule = Whitened(RePIRL(params["coef_process"], params["gamma"], "raw", "largest_return"))
            expected = case["outputs"]["advantages_whitened"]
        else:
            continue
        check(members_of(rule(blocks(scored, params["n_samples"]))), on_mask(expected, mask), case["name"])
        seen.append(case["fn"])
    assert len(seen) == 7


def test_repirl_with_a_critic(load: Callable[[str], list[Case]]) -> None:
    """Rewards of both kinds in the unit of the batch, then generalised advantages at discount and lambda 1, whitened."""
    seen = 0
    for case in load("advantages_prm"):
        if case["fn"] != "repirl_advantage_gae_patched":
            continue
        inputs, params, mask = case["inputs"], case["params"], case["inputs"]["response_mask"]
        scored = []
        for row, outcome, values, keep in zip(inputs["process_rewards"], inputs["outcome"], inputs["values"], mask, strict=True):
            rewards = params["coef_process"] * np.array(row)
            rewards[np.flatnonzero(keep)[-1]] += params["coef_outcome"] * outcome
            member = by_tokens(keep, outcome=None, process=rewards.tolist())
            scored.append(replace(member, values_S=np.array([v for v, m in zip(values, keep, strict=True) if m])))
        unit = largest_return([Flat.of(make_group(*scored))]) + params["norm_eps"]
        rule = GAE(params["gamma"], params["lam"], outcome_weight=0.0, alpha=1 / unit)
        groups = blocks(scored, len(scored))
        check(members_of(rule(groups)), on_mask(case["outputs"]["advantages_raw"], mask), case["name"])
        check(members_of(Whitened(rule)(groups)), on_mask(case["outputs"]["advantages_whitened"], mask), case["name"])
        seen += 1
    assert seen == 3


def test_the_suffix_log_ratio_of_prl(load: Callable[[str], list[Case]]) -> None:
    seen = 0
    for case in load("advantages_prm"):
        if case["fn"] != "prl_v1":
            continue
        inputs, params, mask = case["inputs"], case["params"], case["inputs"]["response_mask"]
        scored = []
        for n, keep in enumerate(mask):
            length = sum(keep)
            ends = (
                inputs["step_end_token"][n]
                if "step_end_token" in inputs
                else [int((t + 1) % params["step_len"] == 0) for t in range(length)]
            )
            starts = [0, *(t + 1 for t in range(length - 1) if ends[t] and params["adv"] == "orm")]
            starts = list(range(length)) if params["adv"] == "prm" else starts
            steps = Steps(np.zeros(len(starts), np.int64), np.array(starts), np.array([*starts[1:], length]))
            member = make_scored([length], outcome=inputs["outcome"][n], steps=steps, process=[None] * len(starts))
            old, ref = (np.array(inputs[name][n][:length]) for name in ("old_log_probs", "ref_log_probs"))
            scored.append(replace(member, old_logprobs_T=old, ref_logprobs_T=ref))
        baseline: Baseline = Standardised() if params["norm_by_std"] else Centred()
        baseline = Raw() if params["adv"] == "prm" else baseline
        ours = regrouped(SuffixLogRatio(baseline, 1 / params["eta"], "last"), scored, inputs["group"])
        for member_credited, row in zip(ours, on_mask(case["outputs"]["advantages"], mask), strict=True):
            assert np.allclose(spread(member_credited.advantages_S, member_credited.scored.steps), row, rtol=1e-9, atol=1e-9), case["name"]
        seen += 1
    assert seen == 5


def test_anchor_states_of_gigpo(load: Callable[[str], list[Case]]) -> None:
    """Returns are given: they are the rewards at discount 0."""
    seen: list[str] = []
    for case in load("advantages_gigpo"):
        inputs, params = case["inputs"], case["params"]
        if case["fn"] == "gigpo_step_returns":
            for traj in set(inputs["traj"]):
                at = [n for n, t in enumerate(inputs["traj"]) if t == traj]
                returns = to_go(np.array(inputs["step_rewards"])[at], params["gamma"])
                assert np.allclose(returns, np.array(case["outputs"]["returns"])[at], rtol=1e-5, atol=1e-6)
            continue
        baseline: Baseline = Standardised(noise_floor=params["epsilon"]) if params["divide_by_std"] else Centred()
        count = len(inputs["group"])
        episode = inputs.get("traj", list(range(count)))
        by_episode = {key: [n for n in range(count) if episode[n] == key] for key in dict.fromkeys(episode)}
        lengths = [sum(row) for row in inputs["response_mask"]]
        scored, group, order = [], [], []
        for at in by_episode.values():
            outcome = inputs["outcome"][at[0]] if "outcome" in inputs else None
            rewards = [inputs["step_returns"][n] for n in at] if "step_returns" in inputs else [0.0] * len(at)
            states = [str(inputs["anchor"][n]) for n in at] if "anchor" in inputs else [""] * len(at)
            scored.append(in_states(make_scored([lengths[n] for n in at], outcome=outcome, process=rewards), states))
            group.append(inputs["group"][at[0]])
            order += at
        rule = GiGPO(baseline, params.get("step_weight", 1.0), baseline, discount=0.0, pays="process")
        ours = np.concatenate([member.advantages_S for member in regrouped(rule, scored, group)])
        expected = [
            next((v for v, m in zip(row, keep, strict=True) if m), 0.0)
            for row, keep in zip(case["outputs"]["advantages"], inputs["response_mask"], strict=True)
        ]
        assert np.allclose(ours, np.array(expected)[order], rtol=1e-9, atol=1e-9), case["name"]
        seen.append(case["fn"])
    assert len(seen) == 19


def in_states(member: Scored, states: list[str]) -> Scored:
    """With these keys of the states that the turns begin in."""
    after = [*states[1:], ""]
    turns = tuple(
        replace(turn, reply=replace(turn.reply, observation=Observation("seen", key)))
        for turn, key in zip(member.episode.turns, after, strict=True)
    )
    return replace(member, episode=replace(member.episode, start=Observation("start", states[0]), turns=turns))


def test_dual_credit_of_istar_with_one_step_a_trajectory(load: Callable[[str], list[Case]]) -> None:
    """There the released code's fault (statistics of first steps alone) has no effect."""
    seen = 0
    for case in load("advantages_istar_code"):
        inputs, params = case["inputs"], case["params"]
        rules: dict[str, Assign] = {
            "istar_code_grpo_mean": IStar(Centred(), params["step_weight"], Centred(), only_mixed=False),
            "istar_code_grpo_std": IStar(Standardised(), params["step_weight"], Standardised(), only_mixed=False),
            "istar_code_rloo": IStar(LeaveOneOut(), params["step_weight"], LeaveOneOut(), only_mixed=False),
            "istar_code_combined": IStar(LeaveOneOut(), params["step_weight"], LeaveOneOut(), only_mixed=False),
            "istar_code_rloo_process_only": IStar(LeaveOneOut(), 1.0, LeaveOneOut(), only_mixed=False),
            "istar_code_reinforce_pp_baseline": Whitened(IStar(Centred(), 1.0, Centred(), only_mixed=False), apart=params["step_weight"]),
        }
        if case["fn"] not in rules:
            continue
        mask = inputs["response_mask"]
        process = [sum(score for score, m in zip(s, row, strict=True) if m) for s, row in zip(inputs["token_scores"], mask, strict=True)]
        paid = [None if case["fn"].endswith("process_only") else outcome for outcome in inputs["outcome"]]
        scored = [make_scored([sum(row)], outcome=o, process=[p]) for row, o, p in zip(mask, paid, process, strict=True)]
        ours = rows([float(member.advantages_S[0]) for member in regrouped(rules[case["fn"]], scored, inputs["group"])], mask)
        assert np.allclose(ours, case["outputs"]["advantages"], rtol=1e-9, atol=1e-9), case["name"]
        seen += 1
    assert seen == 6
