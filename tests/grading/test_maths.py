"""Mathematical answers: a table of what is the same, the five verdicts, strictness, hanging and dying workers, threads and forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stepwell.errors import ConfigError, DataError, MissingExtraError, StepwellError
from stepwell.evaluation.votes import classes, weighted
from stepwell.grading.graded import Grade, Graded
from stepwell.grading.maths import Maths, quick_verdict

pytest.importorskip("math_verify", reason="math-verify is not installed: pip install 'stepwell[maths]'")

HANGING = r"\sum_{k=1}^{10000000} \sin(k!)"
STUCK = "9^{9^{9^{9}}}x"
"""Hangs in one instruction of C: no signal handler of Python's ever runs."""


@pytest.fixture(scope="module")
def maths() -> Iterator[Maths]:
    with Maths("any", workers=1) as opened:
        yield opened


SAME = [
    (r"13", r"\text{13}"),  # U63, four cases
    (r"\sqrt{\frac{1}{n}}", r"\frac{1}{\sqrt{n}}"),
    (r"\frac{\pi}{2}", "pi/2"),
    ("2x+4y-3=0", "y=-x/2+3/4"),
    ("(0,12.5)", "0<x<12.5"),  # U64, both ways
    ("0<x<12.5", "(0,12.5)"),
    ("73", "**73**"),  # U65
    ("16", "016"),
    ("8", "2**3"),
    ("p-q", "p - q"),
    (r"11\sqrt2", r"\sqrt{242}"),
    ("x^2+2x+1", "(x+1)^2"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}"),
    (r"1 \pm \sqrt{2}", r"1+\sqrt{2}, 1-\sqrt{2}"),
    ("1,-2", "-2, 1"),
    ("42", "x=42"),
    ("x", "y=x"),
    ("42", "42 apples"),
    (r"90^\circ", "90"),
    (r"50\%", "50"),
    (r"50\%", "0.5"),
    ("0.5", r"50\%"),
    (r"\frac32", "1.5"),
    ("4.5e33", r"4.5 \times 10^{33}"),
    (r"10,\!080", "10080"),
    (r"\text{Monday}", "monday"),
    (r"\text{(B)}", r"\textbf{(B)}"),
    ("4210_{5}", "4210_5"),
    ("4210_{5}", "4210"),
    (r"x \in [-2,7]", "[-2,7]"),
    (r"(1/2, pi/2)", r"\left(0.5, \frac{\pi}{2}\right)"),
    (27.0, "27"),
    ("6+9i", "6 + 9 i"),
    ("10!", "3628800"),
    (r"\{1,2,3\}", "3, 1, 2"),
]
DIFFERENT = [
    ("3*x-1*y+13=0", "3x+4y+14=0"),  # U62
    (r"\Theta(n)", "O(n)"),  # U63
    (r"\frac{1}{2}", r"\frac{1}{3}"),  # U68
    ("(0,12.5)", r"0\le x<12.5"),  # U64: a bound that is met is another, from either side
    (r"0\le x<12.5", "(0,12.5)"),
    ("(1,2)", r"\{1,2\}"),
    ("(1,2)", "(2,1)"),
    ("(1,2,3)", "(1,3,2)"),
    ("[0,1)", "(0,1)"),
    ("42", "41 or 42"),
    ("42", r"41 \text{ or } 42"),
    ("42", "41=42"),
    ("x", "x=x"),
    ("x+1", "x+1 = x + 1"),
    ("42", "42=42"),
    ("42", "junk 42"),
    ("1/3", "0.333"),
    (r"\sqrt{2}", "1.4142"),
    ("|x|", "x"),
    (r"\sqrt{x^2}", "x"),
    (r"\ln(x^2)", r"2\ln x"),
    ("x^2", "y^2"),
    ("x^2=1", "x=1"),
    ("2x+4y-3=0", "y=-x/2+3/5"),
    (r"\text{listen}", "silent"),
    ("4210_{5}", "4210_6"),
    ("42", "-42"),
    ("1,2", "1,2,3"),
    ("50", "0.5"),
    ("23", "2**3"),
]


@pytest.mark.parametrize(("gold", "answer"), SAME)
def test_the_same_is_right(maths: Maths, gold: str | float, answer: str) -> None:
    graded = maths.grade(gold, rf"so \boxed{{{answer}}}.")
    assert (graded.grade, graded.reason) == (Grade.RIGHT, "")


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_another_is_wrong(maths: Maths, gold: str, answer: str) -> None:
    assert maths.grade(gold, rf"so \boxed{{{answer}}}.").grade is Grade.WRONG


def test_parts_are_compared_each_used_once(maths: Maths) -> None:
    assert maths.same(r"\sqrt{1/n}, n", r"n, 1/\sqrt{n}").grade is Grade.RIGHT
    assert maths.same(r"\sqrt{1/n}, n", r"1/\sqrt{n}, 1/\sqrt{n}").grade is Grade.WRONG
    assert maths.same(r"(\sqrt{1/n}, n)", r"(1/\sqrt{n}, n)").grade is Grade.RIGHT
    assert maths.same(r"(\sqrt{1/n}, n)", r"(n, 1/\sqrt{n})").grade is Grade.WRONG


def test_a_guess_pays_nothing_where_a_box_is_asked_for() -> None:
    with Maths() as strict:
        guess = strict.grade("42", "maybe 41, maybe 42")
        assert (guess.grade, guess.extracted) == (Grade.UNPARSED, None)
        assert guess.verdict().score == 0.0
        assert strict.grade("42", r"\boxed{42}").verdict().score == 1.0


def test_a_vote_is_by_meaning(maths: Maths) -> None:
    """U12: 0.5 (weight 0.4) and its fraction (0.4) are one answer, which has more than 2 (0.5); by letters 2 would win."""
    voted = classes(["0.5", r"\frac{1}{2}", "2"], lambda one, other: maths.same(one, other).grade is Grade.RIGHT)
    assert voted == [0, 0, 1]
    assert weighted(voted, [0.4, 0.4, 0.5]) == 0 and weighted([0, 1, 2], [0.4, 0.4, 0.5]) == 2
    assert weighted(voted[::-1], [0.5, 0.25, 0.25]) == 1, "of equal sums the first one met"


def test_what_cannot_be_read_is_never_the_same(maths: Maths) -> None:
    """U62: two that cannot be read do not match; a gold answer that cannot be read is our error, not the answer's."""
    assert maths.same("3 +* (", "4 +* )").grade is Grade.ERROR
    gold = maths.same("(((", "5")
    assert gold.grade is Grade.ERROR and "gold answer '((('" in gold.reason
    assert gold.verdict().score is None and "(((" in gold.verdict().reason
    answer = maths.same("5", "(((")
    assert answer.grade is Grade.UNPARSED and answer.verdict().score == 0.0
    assert maths.same("", "").grade is Grade.ERROR
    assert maths.same("5", "").grade is Grade.UNPARSED
    assert maths.same("  ", "5").grade is Grade.ERROR


def test_gold_answers_are_texts_or_numbers(maths: Maths) -> None:
    with pytest.raises(DataError, match=r"A gold answer is '\[1\]'; it must be a text or a number"):
        maths.grade([1], "1")
    with pytest.raises(DataError, match="must be a text or a number"):
        maths.grade(True, "1")


def test_an_answer_of_200_kB_takes_no_time(maths: Maths) -> None:
    start = time.process_time()
    assert maths.grade("42", "word " * 40_000 + r"\boxed{42}").grade is Grade.RIGHT
    long = maths.grade("42", r"\boxed{" + "1+" * 100_000 + "1}")
    assert long.grade is Grade.UNPARSED and "200001 letters" in long.reason
    assert maths.grade("1+" * 100_000 + "1", "42").grade is Grade.ERROR
    assert time.process_time() - start < 3


@pytest.mark.slow
def test_a_hanging_answer_costs_its_limit_and_no_other_item() -> None:
    """How long it takes by the clock says `bench/grading.py`: here the machine may be busy."""
    clean = [(f"x/{n}", rf"\boxed{{\frac{{x}}{{{n}}}}}") for n in range(2, 12)]
    with Maths(workers=2, limit_s=0.6) as maths:
        graded = maths.grade_all([*clean[:5], ("1", rf"\boxed{{{HANGING}}}"), ("x", rf"\boxed{{{STUCK}}}"), *clean[5:]])
    assert [one.grade for one in graded] == [Grade.RIGHT] * 5 + [Grade.TIMEOUT] * 2 + [Grade.RIGHT] * 5
    assert all(one.seconds >= 0.6 and one.reason == "comparing was cut after 0.6 s" for one in graded[5:7])
    assert [one.verdict().score for one in graded[5:7]] == [0.0, 0.0]  # hanging is no way out of a lost episode


@pytest.mark.slow
def test_a_gold_answer_that_hangs_is_not_the_answers_doing() -> None:
    with Maths(workers=1, limit_s=0.6) as maths:
        graded = maths.grade(HANGING, r"\boxed{1}")
    assert graded.grade is Grade.TIMEOUT and graded.verdict().score is None


@pytest.mark.slow
def test_a_worker_that_dies_is_an_error_and_is_replaced() -> None:
    with Maths(workers=1) as maths:
        assert maths.grade("x/2", r"\boxed{\frac{x}{2}}").grade is Grade.RIGHT
        zygote = maths._workers._idle[0]._process.pid
        (worker,) = (int(pid) for pid in Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split())
        os.kill(worker, signal.SIGKILL)
        time.sleep(0.3)
        died = maths.grade("x/3", r"\boxed{\frac{x}{3}}")
        assert died.grade is Grade.ERROR and died.reason == "the worker died while it compared"
        assert maths.grade("x/3", r"\boxed{\frac{x}{3}}").grade is Grade.RIGHT
        os.killpg(maths._workers._idle[0]._process.pid, signal.SIGKILL)
        assert maths.grade("x/4", r"\boxed{\frac{x}{4}}").grade is Grade.ERROR
        assert maths.grade("x/4", r"\boxed{\frac{x}{4}}").grade is Grade.RIGHT


def test_many_threads_get_their_own_replies(maths: Maths) -> None:
    wrong: list[int] = []

    def work(first: int) -> None:
        for n in range(first, first + 8):
            if maths.grade(f"x/{n}", rf"\boxed{{\frac{{x}}{{{n}}}}}").grade is not Grade.RIGHT:
                wrong.append(n)
            if maths.grade(f"x/{n}", rf"\boxed{{\frac{{x}}{{{n + 1}}}}}").grade is not Grade.WRONG:
                wrong.append(n)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(100, 140, 10)))
    assert threading.current_thread() is threading.main_thread() and wrong == []


def test_what_was_compared_once_is_known(maths: Maths) -> None:
    first = maths.grade("x/77", r"\boxed{\frac{x}{77}}")
    assert maths.grade("x/77", r"\boxed{\frac{x}{77}}") is first


SCRIPT = """
import os, sys
from stepwell.grading.maths import Maths
maths = Maths(workers=1)                       # no `if __name__ == "__main__"` here
print(maths.grade("x/2", "\\\\boxed{\\\\frac{x}{2}}").grade, flush=True)
child = os.fork()
print(maths.grade("x/3", "\\\\boxed{\\\\frac{x}{3}}").grade, flush=True)
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
print(maths.grade("x/4", "\\\\boxed{\\\\frac{x}{4}}").grade, flush=True)
"""


@pytest.mark.slow
def test_a_plain_script_may_grade_and_fork_and_leaves_nothing_running(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=250)
    assert (done.stdout.split(), done.stderr) == (["right"] * 4, "")


ORPHAN = """
import os, signal, threading
from stepwell.grading.maths import Maths
maths = Maths(workers=1, limit_s=1)
maths.grade("x/2", "\\\\boxed{\\\\frac{x}{2}}")
print(maths._workers._idle[0]._process.pid, flush=True)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
maths.grade("x", "\\\\boxed{9^{9^{9^{9}}}x}")
"""


@pytest.mark.slow
def test_a_worker_that_hangs_does_not_outlive_a_killed_parent_for_long() -> None:
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, timeout=250)
    group = int(done.stdout)
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.2)
    os.killpg(group, signal.SIGKILL)
    pytest.fail("a worker still runs long after its parent was killed")


def test_bad_settings_are_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="The limit of a comparison is 0; give seconds above 0"):
        Maths(limit_s=0)
    with pytest.raises(ConfigError, match="workers is 0; give 1 or more"):
        Maths(workers=0)
    closed = Maths(workers=1)
    closed.close()
    closed.close()
    with pytest.raises(StepwellError, match="The grader is closed"):
        closed.grade("x/2", r"\boxed{\frac{x}{2}}")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"math-verify is not installed; install it with: pip install 'stepwell\[maths\]'"):
        Maths()


def test_a_worker_that_cannot_start_says_why() -> None:
    from stepwell.grading.workers import Workers

    workers = Workers("stepwell.grading.nowhere", 1)
    with pytest.raises(StepwellError, match=r"did not start: .*No module named"):
        workers.ask({}, 1.0)
    workers.close()


@pytest.mark.parametrize(("gold", "answer"), [("x", "y"), ("x+1", "1+x"), (r"\frac{x}{2}", "x/2"), ("(1,2)", "1,2"), ("yes", "x")])
def test_formulas_are_left_to_the_workers(gold: str, answer: str) -> None:
    assert quick_verdict(gold, answer) is None


def test_a_reason_stands_where_nothing_could_be_said() -> None:
    assert Graded(Grade.ERROR, None, 0.0, "why").verdict().reason == "grading: error: why"
    assert Graded(Grade.WRONG, "3", 0.01).to_json() == {"verdict": "wrong", "extracted": "3", "seconds": 0.01}
