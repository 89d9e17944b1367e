"""The checkers against brute force on small instances, the parser, and written solutions of others."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from commands_of_reasoning import run
from hypothesis import given
from hypothesis import strategies as st

from stepwell.envs.reasoning import Countdown, judge_text, steps_of
from stepwell.envs.reasoning.countdown import Pool, reachable
from stepwell.envs.reasoning.formula import Binary, Formula, Number, read, value, write
from stepwell.envs.reasoning.reduction import expression, judge
from stepwell.envs.reasoning.references import RIGHT, WRONG
from stepwell.envs.reasoning.truth import Truth
from stepwell.grading.expression import evaluate

leaves = st.integers(1, 5).map(lambda n: Number(Fraction(n)))
formulas: st.SearchStrategy[Formula] = st.recursive(
    leaves, lambda inner: st.builds(Binary, st.sampled_from(["+", "-", "*"]), inner, inner), max_leaves=4
)


@given(formulas)
def test_what_is_written_is_read_back_and_has_the_value_that_python_gives_it(formula: Formula) -> None:
    text = write(formula)
    assert value(read(text)) == value(formula) == evaluate(text)[0]
    assert write(read(text)) == text


@given(formulas, st.sampled_from("+-*"), st.integers(-6, 12), st.integers(-6, 12))
def test_a_right_first_step_is_one_that_some_rewriting_by_the_laws_of_arithmetic_has(formula: Formula, sign: str, a: int, b: int) -> None:
    """Brute force: all formulas equal by commuting, associating and moving signs, in which `a sign b` stands as a part."""
    left, right = f"({a})" if a < 0 else str(a), f"({b})" if b < 0 else str(b)
    done = value(read(f"{left} {sign} {right}"))
    found = judge(expression(formula), [f"{a} {sign} {b} = {done}"])[0]
    assert (found.truth is Truth.RIGHT) == ((sign, a, b) in _steps(formula))
    assert judge(expression(formula), [f"{a} {sign} {b} = {done + 1}"])[0].truth is Truth.WRONG


def _steps(formula: Formula) -> set[tuple[str, int, int]]:
    """Every operation on two numbers that can be done first: pairs of terms of one sum, or of factors of one product."""
    found: set[tuple[str, int, int]] = set()

    def group(one: Formula, kind: str, turned: bool) -> list[tuple[bool, Formula]]:
        if isinstance(one, Binary) and (one.sign in "+-") == (kind == "+"):
            return group(one.left, kind, turned) + group(one.right, kind, turned != (one.sign == "-"))
        return [(turned, one)]

    def visit(one: Formula) -> None:
        if not isinstance(one, Binary):
            return
        kind = "+" if one.sign in "+-" else "*"
        parts = group(one, kind, False)
        for _, part in parts:
            visit(part)
        for (turned, first), (other, second) in itertools.permutations(parts, 2):
            if isinstance(first, Number) and isinstance(second, Number):
                sign = kind if turned == other else "-"
                found.add((sign, int(first.value), int(second.value)))

    visit(formula)
    return found


@given(st.lists(st.integers(1, 9), min_size=2, max_size=3), st.integers(1, 30), st.booleans())
def test_what_can_be_reached_agrees_with_all_expressions(numbers: list[int], target: int, every: bool) -> None:
    fits = any(
        made == target
        for size in ([len(numbers)] if every else range(1, len(numbers) + 1))
        for chosen in itertools.permutations([Fraction(n) for n in numbers], size)
        for made in _all_values(list(chosen))
    )
    assert reachable(Pool(tuple(sorted(map(Fraction, numbers))), Fraction(target), every)) == fits
    assert (Countdown().solve({"numbers": list(numbers), "target": target, "every": int(every)}) is not None) == fits


def _all_values(chosen: list[Fraction]) -> set[Fraction]:
    """Of all expressions that have these numbers in this order."""
    if len(chosen) == 1:
        return set(chosen)
    made = set()
    for cut in range(1, len(chosen)):
        for a, b in itertools.product(_all_values(chosen[:cut]), _all_values(chosen[cut:])):
            made |= {a + b, a - b, a * b} | ({a / b} if b else set())
    return made


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "(1",
        "1)",
        "1 2)",
        "2 ** 3 ** 99",
        "9^9^9^9",
        "1/0",
        "a + 1",
        "__import__('os')",
        "(" * 200 + "1",
        "-" * 200 + "1",
        "9" * 41,
    ],
)
def test_what_is_no_formula_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        value(read(text))


@pytest.mark.parametrize(
    ("line", "truth"),
    [
        ("16 - 3 - 4 = <<16-3-4=9>>9 eggs", "right"),
        ("16 - 3 - 4 = <<16-3-4=10>>10 eggs", "wrong"),
        ("so he has <<3*4=12>>13", "wrong"),
        ("3 apples and 4 apples are 7 apples", "unknown"),
        ("x - 3 = 7, so x = 10", "unknown"),
        ("f(2) = 7 and a_1 = 5", "unknown"),
        (r"$\frac{1}{2} \cdot 6 = 3$ and $2\frac{1}{2} = \frac{5}{2}$", "right"),
        (r"$3^{2} + 4^{2} = 26$", "wrong"),
        ("2/3 = 0.67", "right"),
        ("20/3 = 7 boxes", "unknown"),
        ("4 / 20 = 20%", "right"),
        ("5! = 5 * 4 * 3 * 2 * 1 = 120", "right"),
    ],
)
def test_equations_of_a_written_step(line: str, truth: str) -> None:
    assert judge_text([line])[0].truth == truth


def test_reference_solutions_are_hardly_ever_called_wrong(shared_data: Path) -> None:
    """Those of GSM8K and MATH are right. What is called wrong in them is a slip of their writers, or an operator of the problem's own."""
    shares = {}
    for name, key in (("gsm8k_test", "answer"), ("math_4500_with_solutions", "solution")):
        with gzip.open(shared_data / "data" / "bench" / f"{name}.jsonl.gz", "rt") as file:
            rows = [json.loads(line) for line in itertools.islice(file, 600)]
        counts = Counter(one.truth for row in rows for one in judge_text(steps_of(row[key])))
        shares[name] = counts[Truth.RIGHT] / counts.total(), counts[Truth.WRONG] / counts.total()
    assert shares["gsm8k_test"][0] > 0.85 and shares["gsm8k_test"][1] < 0.003, shares
    assert shares["math_4500_with_solutions"][0] > 0.03 and shares["math_4500_with_solutions"][1] < 0.003, shares


def test_confidence_is_what_labelled_steps_say(shared_data: Path) -> None:
    counts: Counter[tuple[str, bool]] = Counter()
    for name in ("gsm8k", "math"):
        with gzip.open(shared_data / "data" / "bench" / f"processbench_{name}.json.gz", "rt") as file:
            for row in json.load(file):
                known = row["steps"] if row["label"] < 0 else row["steps"][: row["label"] + 1]
                counts.update((one.truth.value, at != row["label"]) for at, one in enumerate(judge_text(known)))
    assert counts["right", True] / (counts["right", True] + counts["right", False]) == pytest.approx(RIGHT, abs=0.02)
    assert counts["wrong", False] / (counts["wrong", True] + counts["wrong", False]) >= WRONG


def test_labels_are_written_for_judges(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("labels") / "steps.jsonl"
    said = run("step-labels", "strings", "test_tasks=30", "--split", "test", "--solutions", "30", "--out", file, "--json")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert json.loads(said) == {"file": str(file), "solutions": 30, "wrong": sum(0.0 in line["labels"] for line in lines)}
    assert "--task" not in said and len(lines) == 30
    assert "no axis of strings tasks" in run("step-labels", "strings", "axes={size: 3}", "--out", file, code=2)
    assert "The solutions could not be written to" in run("step-labels", "strings", "--solutions", "2", "--out", file.parent, code=2)


def test_a_dash_before_a_space_is_a_sign_where_that_makes_the_line_true_and_else_begins_an_item() -> None:
    said = judge(expression(read("(3 - 5) * 7")), ["3 - 5 = - 2", "- 2 * 7 = - 14"])
    assert [one.truth for one in said] == [Truth.RIGHT] * 2
    listed = judge(expression(read("3 + 4 + 5")), ["- 3 + 4 = 7", "- 7 + 5 = 13"])
    assert [one.truth for one in listed] == [Truth.RIGHT, Truth.WRONG]
