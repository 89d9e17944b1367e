"""Exact texts, numbers within a tolerance, letters of a choice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import ConfigError
from stepwell.grading.choice import Choice
from stepwell.grading.exact import Exact
from stepwell.grading.graded import Grade
from stepwell.grading.kinds import KINDS, Options
from stepwell.grading.numeric import Numeric

R, W, U, E = Grade.RIGHT, Grade.WRONG, Grade.UNPARSED, Grade.ERROR


@pytest.mark.parametrize(
    ("gold", "answer", "boxed", "anywhere"),
    [
        ("cat", r"\boxed{cat}", R, R),
        ("cat", r"\boxed{Cat}", W, W),
        ("the cat", "\\boxed{the\n  cat}", R, R),
        ("cat", "cat", U, R),
        ("cat", " cat\n", U, R),
        ("cat", "a cat", U, W),
        ("cat", "I think\n#### cat", U, R),
        (27.0, "27", U, R),
        (27.5, r"\boxed{27.5}", R, R),
        ("", r"\boxed{}", E, E),
        ("cat", "", U, U),
    ],
)
def test_exact(gold: str | float, answer: str, boxed: Grade, anywhere: Grade) -> None:
    assert (Exact("boxed").grade(gold, answer).grade, Exact("any").grade(gold, answer).grade) == (boxed, anywhere)


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        ("-3", "#### -3", R),  # U66
        ("3", "#### -3", W),
        ("72", "The total is 72 clips, altogether.", R),
        ("1234", "It costs $1,234.00.", R),
        ("42", "#### 42\n" + "and so on and on; " * 30, R),  # U67
        ("16", "016", R),
        ("0.5", "it is 1/2", W),  # the last number of a text is 2; a fraction counts where it is the answer
        ("0.5", r"\boxed{\frac12}", R),
        ("7", r"\boxed{x = 7}", R),
        ("5", r"\boxed{5 \text{ cm}}", R),
        ("5", r"\boxed{x}", U),
        ("5", "none", U),
        ("x", "5", E),
        ("", "5", E),
        ("71.1", "71.08", W),
    ],
)
def test_numeric(gold: str, answer: str, verdict: Grade) -> None:
    assert Numeric("any").grade(gold, answer).grade is verdict


def test_numeric_boxed_reads_nothing_but_a_box() -> None:
    assert Numeric().grade("42", "maybe 42").grade is U
    assert Numeric().grade("42", r"\boxed{42}").grade is R


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        *[("71.1", "71.08", True), ("71.1", "71.05", True), ("71.1", "71.04", False), ("71", "71.4", True), ("71", "71.5", False)],
        *[("-0.5", "-0.45", True), ("-0.5", "-0.44", False), ("2.0", "1.96", True)],
    ],
)
def test_rounded_as_the_gold_answer_is(gold: str, answer: str, right: bool) -> None:  # U69
    assert (Numeric("any", rounded=True).grade(gold, answer).grade is R) is right


def test_tolerances_are_exact_fractions() -> None:
    assert Numeric("any", absolute=0.1).grade("3.0", "3.1").grade is R
    assert Numeric("any", absolute=0.1).grade("3.0", "3.1000001").grade is W
    assert Numeric("any", absolute=0.25).grade("3", "3.25").grade is R
    assert Numeric("any", absolute=0.25).grade("3", "3.2500001").grade is W
    assert Numeric("any", relative=0.5).grade("-4", "-6").grade is R
    assert Numeric("any", relative=0.5).grade("-4", "-6.01").grade is W


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_tolerances_are_numbers_from_0(value: float) -> None:
    with pytest.raises(ConfigError, match="tolerance is"):
        Numeric(absolute=value)
    with pytest.raises(ConfigError, match="tolerance is"):
        Numeric(relative=value)


@given(st.fractions(max_denominator=1000), st.fractions(max_denominator=1000))
def test_numbers_are_right_if_and_only_if_equal(one: object, other: object) -> None:
    assert (Numeric().grade(str(one), rf"\boxed{{{other}}}").grade is R) is (one == other)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (r"\boxed{B}", R),
        (r"\boxed{\text{(B)}}", R),
        (r"\boxed{\textbf{b}}", R),
        (r"\boxed{B. 7 cm}", R),
        (r"\boxed{A}", W),
        ("The answer is (B).", R),
        ("The correct answer is **B**", R),
        ("Answer: b) seven", R),
        ("B", R),
        ("(C) because", W),
        ("#### B", R),
        ("Option B.", R),
        ("I need A hint", U),
        ("A dog is not a bee", U),
        ("Z", U),
        ("", U),
        ("Be quick", U),
        ("A and B are both right", U),
    ],
)
def test_choice(answer: str, verdict: Grade) -> None:
    assert Choice("any").grade("B", answer).grade is verdict


def test_choice_boxed_and_its_letters() -> None:
    assert Choice().grade("B", "B").grade is U
    assert Choice("any", "ABCD").grade("E", "E").grade is E
    assert Choice("any", "ABCDE").grade("(e)", "E").grade is R
    for letters in ("", "A", "AA", "A1", "Aa"):
        with pytest.raises(ConfigError, match="give at least two different ones"):
            Choice("any", letters)


@pytest.mark.parametrize("name", ["exact", "numeric", "choice"])
def test_graders_by_name_read_what_they_are_told_to(name: str) -> None:
    kind = KINDS[name]
    gold = "B" if name == "choice" else "7"
    with kind.open(Options("any")) as grader:
        assert [one.grade for one in grader.grade_all([(gold, gold), (gold, ""), (gold, rf"\boxed{{{gold}}}")])] == [R, U, R]
    with kind.open(Options("boxed")) as grader:
        assert grader.grade(gold, gold).grade is U
    assert kind.fits("x") and kind.fits(1) and kind.fits(0.5)
    assert not (kind.fits(None) or kind.fits(True) or kind.fits(["x"]))
