"""Agreement with recorded gradings of another program (Qwen2.5-Math's), and gold answers against themselves; every difference is known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepwell.entries import read_entries
from stepwell.grading.graded import Grade
from stepwell.grading.maths import Maths

pytest.importorskip("math_verify", reason="math-verify is not installed: pip install 'stepwell[maths]'")


@pytest.fixture(scope="module")
def maths() -> Iterator[Maths]:
    with Maths("any", limit_s=2, workers=2) as opened:
        yield opened


def _rows(shared_data: Path, name: str) -> list[dict[str, Any]]:
    path = shared_data / "data" / "bench" / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return [row for _, row in read_entries(path, "Gradings", "a line is an object") if isinstance(row, dict)]


MATH500 = {
    (r"10,\!080", "10080"): Grade.RIGHT,  # the other grader does not know a thin space between thousands
    (r"\text{(B)}", r"\textbf{(B)}"): Grade.RIGHT,  # nor bold letters
    ("15x - 80", "19x - 4x + 1 - 81 = 15x - 80"): Grade.RIGHT,  # it read 80 where there was no box
}
MINERVA = {
    # Right: the other grader's parser fails on them.
    (r"\frac{v_{0}}{r_{0}}\frac{1}{(1+r/r_{0})^{3/2}}", r"\frac{v_{0}}{r_{0}\left(1+\frac{r}{r_{0}}\right)^{3 / 2}}"): Grade.RIGHT,
    ("1e-5", r"1 \times 10^{-5}"): Grade.RIGHT,
    ("3e8", r"3 \times 10^{8}"): Grade.RIGHT,
    ("9e11", r"9 \times 10^{11}"): Grade.RIGHT,
    (r"cx^{-2}-\frac{\cos(2x)}{2x^{2}}", r"-\frac{1}{2 x^{2}} \cos (2 x)+\frac{C}{x^{2}}"): Grade.RIGHT,
    (
        r"x_{0}\cos(\omegat)+\dot{x}_{0}\sin(\omegat)/\omega",
        r"x(t) = x_0 \cos(\omega t) + \frac{\dot{x}_0}{\omega} \sin(\omega t)",
    ): Grade.RIGHT,
    (
        r"\frac{\cos(2t)}{15}+C_{1}e^{t}+C_{2}e^{-t}+C_{3}\cos(t)+C_{4}\sin(t)",
        r"C_{1} e^{t}+C_{2} e^{-t}+C_{3} \cos t+C_{4} \sin t+\frac{\cos (2 t)}{15}",
    ): Grade.RIGHT,
    # Wrong: it lets a number be a hundred times too small, or 1e-4 off.
    ("4080", "40.8"): Grade.WRONG,
    ("24.310", "24.309"): Grade.WRONG,
    # Wrong: ours takes log for the logarithm to base 10, where it is not written ln.
    (r"\ln2+i\pi/3", r"\log(2)+i\frac{\pi}{3}"): Grade.WRONG,
}


@pytest.mark.parametrize(("name", "gold", "known"), [("math500", "answer", MATH500), ("minerva", "gt", MINERVA)])
@pytest.mark.slow
def test_every_difference_to_the_recorded_gradings_is_known(
    shared_data: Path, maths: Maths, name: str, gold: str, known: dict[tuple[str, str], Grade]
) -> None:
    """On every twentieth row and those that differ; all rows: `python bench/grading_parity.py ../shared/data/bench`."""
    every = _rows(shared_data, f"grader_parity_{name}.jsonl.gz")
    golds = {gold for gold, _ in known}
    rows = [row for number, row in enumerate(every) if number % 20 == 0 or row[gold] in golds]
    graded = maths.grade_all([(row[gold], row["code"][0]) for row in rows])
    apart = {
        (row[gold], one.extracted): one.grade
        for row, one in zip(rows, graded, strict=True)
        if (one.grade is Grade.RIGHT) is not row["score"][0]
    }
    assert apart == known


@pytest.mark.parametrize(("name", "rows", "unread"), [("math500", 500, 0), ("aime24", 30, 0)])
def test_gold_answers_are_themselves(shared_data: Path, maths: Maths, name: str, rows: int, unread: int) -> None:
    golds = [row["answer"] for row in _rows(shared_data, f"{name}.jsonl.gz")]
    graded = maths.grade_all([(gold, rf"\boxed{{{gold}}}") for gold in golds])
    assert (len(graded), sum(one.grade is not Grade.RIGHT for one in graded)) == (rows, unread)
