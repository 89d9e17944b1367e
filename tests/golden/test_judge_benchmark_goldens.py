"""ProcessBench's and PRMBench's numbers, as their own evaluators gave them."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepwell.evaluation.judge_benchmarks import prmbench, processbench
from stepwell.evaluation.judged import Judged
from stepwell.evaluation.step_metrics import best_threshold, first_below


def cases(shared_data: Path, family: str, fn: str) -> list[dict[str, Any]]:
    path = shared_data / "golden" / "algorithms" / f"{family}.json.gz"
    return [case for case in json.loads(gzip.decompress(path.read_bytes())) if case["fn"] == fn and case["trusted"]]


def judged(scores: list[float], label: int, problem: int, subset: str = "x") -> Judged:
    labels = [1.0 if label < 0 or at < label else 0.0 if at == label else None for at in range(max(len(scores), label + 1))]
    return Judged(str(problem), subset, tuple(scores) + (1.0,) * (len(labels) - len(scores)), tuple(labels), (1,) * len(labels))


def test_processbench_f1(shared_data: Path) -> None:
    """A prediction becomes scores with one step below the threshold; one that could not be parsed is wrong either way."""
    found = cases(shared_data, "eval_processbench", "processbench_f1")
    assert len(found) >= 4
    for case in found:
        made = []
        for n, (label, said) in enumerate(zip(case["inputs"]["labels"], case["inputs"]["predictions"], strict=True)):
            size = max(label, -1 if said is None else said, 0) + 2
            wrong = 0 if label != 0 else 1
            scores = [1.0] * size
            if said != -1:
                scores[wrong if said is None else said] = 0.0
            made.append(judged(scores, label, n))
        result = processbench(made, threshold=0.5)[0][0]
        assert result.who == "judge"
        for name, key in (("error_accuracy", "error_accuracy"), ("correct_accuracy", "correct_accuracy"), ("f1", "f1")):
            assert 100 * result.numbers[name].mean == pytest.approx(case["outputs"][key], abs=1e-9), case["name"]


def test_the_rule_at_a_threshold(shared_data: Path) -> None:
    """The first step with a score below the threshold is said to be wrong."""
    found = cases(shared_data, "eval_processbench", "threshold_then_f1")
    assert found
    for case in found:
        inputs, outputs, threshold = case["inputs"], case["outputs"], case["params"]["threshold"]
        said = [first_below(np.array(scores), threshold) for scores in inputs["step_scores"]]
        assert said == outputs["predictions"], case["name"]
        made = [judged(list(s), label, n) for n, (s, label) in enumerate(zip(inputs["step_scores"], inputs["labels"], strict=True))]
        numbers = processbench(made, threshold=threshold)[0][0].numbers
        for name in ("error_accuracy", "correct_accuracy", "f1"):
            assert 100 * numbers[name].mean == pytest.approx(outputs[name], abs=1e-9), case["name"]


def test_the_best_threshold(shared_data: Path) -> None:
    """At theirs, their F1; at ours, on the same solutions, at least that of the best of their grid."""
    found = cases(shared_data, "eval_processbench", "threshold_search")
    assert found
    for case in found:
        inputs, outputs = case["inputs"], case["outputs"]
        said = [[1 / (1 + math.exp(-score)) for score in scores] for scores in inputs["step_scores"]]
        made = [judged(scores, label, n) for n, (scores, label) in enumerate(zip(said, inputs["labels"], strict=True))]
        assert processbench(made, threshold=outputs["threshold"])[0][0].numbers["f1"].mean == pytest.approx(outputs["f1"], abs=1e-9)
        ours = best_threshold([one.bounds for one in made], np.array([one.first_error >= 0 for one in made]))
        assert processbench(made, threshold=ours)[0][0].numbers["f1"].mean >= outputs["f1"] - 1e-9


def test_prmbench(shared_data: Path) -> None:
    found = cases(shared_data, "eval_prmbench", "prmbench")
    assert len(found) >= 8
    for case in found:
        said = {one["id"]: one for one in case["inputs"]["predictions"]}
        made = []
        for n, item in enumerate(case["inputs"]["items"]):
            scores, redundant = said[item["id"]]["scores"], said[item["id"]].get("redundancy_labels")
            if redundant is not None and item["category"] in ("redundency", "circular"):  # a critic's second opinion, for these classes
                scores = [1.0 - label for label in redundant]
            labels = tuple(0.0 if at in item["error_steps"] else 1.0 for at in range(1, len(scores) + 1))
            made.append(Judged(str(n), item["category"], tuple(scores), labels, (1,) * len(scores)))
        counted = [one for one in made if one.subset != "correct"]
        results = {r.subset: r.numbers for r in prmbench(counted, threshold=case["params"]["threshold"])[0] if r.who == "judge"}
        total, per_class = case["outputs"]["total"], case["outputs"]["per_category"]
        whole = results.get("all") or next(iter(results.values()))
        assert whole["prmscore"].mean == pytest.approx(case["outputs"]["prmscore"], abs=1e-12), case["name"]
        for name, key in (("f1", "f1"), ("negative_f1", "negative_f1"), ("step_accuracy", "total_step_acc")):
            assert whole[name].mean == pytest.approx(total[key], abs=1e-12), case["name"]
            for subset, numbers in results.items():
                if subset != "all" and per_class[key].get(subset, -1) != -1:
                    assert numbers[name].mean == pytest.approx(per_class[key][subset], abs=1e-12), (case["name"], subset)
        assert whole["first_error_accuracy"].mean == pytest.approx(total["first_error_acc"], abs=1e-12), case["name"]
