"""Where the answer stands: the last closed box alone, or the known signs of an answer; in a time that grows with the text and no faster."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.grading.extract import boxed, extract
from stepwell.grading.numbers import last_number, read_number

BOXES = [
    (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),  # U68: the first } is not the end
    (r"\boxed{\frac{1}{3}}", r"\frac{1}{3}"),
    (r"\fbox{42}", "42"),
    (r"\boxed{1} ... so \boxed{1}", "1"),
    (r"\boxed{3}, no: \boxed{2}", "2"),
    (r"$\boxed{1}$ and $\boxed{2}$", "1, 2"),
    (r"\boxed{1}, \boxed{1}", "1"),
    (r"\boxed{1} \text{ or } \boxed{2}", "1, 2"),
    (r"\boxed{41} then a long way to the other answer, \boxed{42}", "42"),
    (r"\boxed{\boxed{7}}", "7"),
    (r"\boxed 5", "5"),
    (r"\boxed{\{1,2\}}", r"\{1,2\}"),
    (r"\boxed {x}", "x"),
    (r"\boxed{4", None),
    (r"\boxed{2} or \boxed{4", "2"),
    (r"\boxed{}", None),
    ("", None),
    (r"} } \boxed{a}", "a"),
]


@pytest.mark.parametrize(("text", "found"), BOXES)
def test_boxes_are_closed_where_their_braces_balance(text: str, found: str | None) -> None:
    assert boxed(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("maybe 41, maybe 42", "42"),
        ("#### -3", "-3"),  # U66
        ("The total is 72 clips, altogether.", "72"),
        ("#### 1,234", "1,234"),
        ("It costs $1,234.00.", "1,234.00"),
        ("#### 42\n" + "and then it went on. " * 30, "42"),  # U67
        ("The answer is $x^2$. I hope it is right", "x^2"),
        ("**Answer: 73**", "73"),
        ("so we get\n$y = 3$ and $z = 4$", "z = 4"),
        ("The final answer is: 12 apples", "12 apples"),
        ("nothing", None),
    ],
)
def test_any_reads_the_signs_of_an_answer(text: str, found: str | None) -> None:
    read = extract(text, "any")
    assert (read or "").replace("$", "") == (found or "")


@pytest.mark.parametrize("text", ["maybe 41, maybe 42", "#### 42", "The answer is 42.", "$42$"])
def test_boxed_reads_nothing_but_a_box(text: str) -> None:  # U61
    assert extract(text, "boxed") is None
    assert extract(text, "any") is not None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("#### -3", "-3"),
        ("10-3", "3"),
        ("x - 3", "3"),
        ("(2)-3", "3"),
        ("= -3.5", "-3.5"),
        ("1,234 and 5", "5"),
        ("-$1,234.00", "-$1,234.00"),
        ("$-5", "$-5"),
        ("1e5 m", "1e5"),
        ("page 3.", "3"),
        ("v2.x3", None),
        ("−7", "−7"),
    ],
)
def test_the_last_number_keeps_sign_and_commas(text: str, number: str | None) -> None:
    assert last_number(text) == number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("1,234", 1234), ("$1,234.50", 1234.5), ("016", 16), ("-.5", -0.5), ("1/4", 0.25), (r"-\dfrac{1}{4}", -0.25), (r"\frac12", 0.5)],
        *[("4.5e3", 4500), (r"2\times10^{-2}", 0.02), ("2*10^3", 2000), ("−7", -7), (r"10{,}000", 10000), ("3.", 3)],
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, value: float) -> None:
    assert read_number(text) == Fraction(str(value))


@pytest.mark.parametrize("text", ["", "1+1", "x", "1/0", r"\frac{1}{0}", "--3", "1,23", "12_3", "9" * 500, "1e9999", "nan", "inf"])
def test_what_is_no_plain_number_is_none(text: str) -> None:
    assert read_number(text) is None


@given(st.integers(-(10**12), 10**12), st.booleans())
def test_every_whole_number_is_read_back(number: int, commas: bool) -> None:
    text = f"{number:,}" if commas else str(number)
    assert read_number(text) == number
    assert read_number(last_number(f"it is {text}, all in all.") or "") == number


HUGE = [
    r"\boxed{",
    r"\boxed{1}",
    "$",
    "answer is ",
    "(",
    "9",
    "1,",
    r"\text{and",
    "**",
    r"\(",
    r"\[",
    "-",
    "a ",
    "{",
    "}",
    "#### ",
    r"\boxed ",
]


@pytest.mark.parametrize("piece", HUGE)
def test_200_kB_of_anything_are_searched_in_linear_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    start = time.process_time()
    extract(text, "any")
    extract(text, "boxed")
    assert time.process_time() - start < 4


@given(st.text(alphabet="\\{}boxedf 1,$and", max_size=200))
def test_no_text_breaks_the_search(text: str) -> None:
    extract(text, "boxed")
    extract(text, "any")


@given(st.text(alphabet="abc{}\\,1 ", max_size=60).filter(lambda text: text.strip()))
def test_a_balanced_text_comes_out_of_its_box(text: str) -> None:
    depth = 0
    for letter in text.replace("\\\\", "").replace("\\{", "").replace("\\}", ""):
        depth += (letter == "{") - (letter == "}")
        if depth < 0:
            return
    if depth == 0 and not text.endswith("\\"):
        assert boxed(f"so \\boxed{{{text}}} it is") == text.strip()
