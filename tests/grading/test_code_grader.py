"""Answers with programs in them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell.errors import ConfigError
from stepwell.grading import code as code_module
from stepwell.grading.code import Code, extract_code
from stepwell.grading.graded import Grade
from stepwell.sandbox import Limits, SandboxError, available, choose
from stepwell.sandbox import choice as choice_module
from stepwell.sandbox.suites import CallSuite, FunctionSuite
from stepwell.types import JSON

SQUARE: JSON = ["assert f(3) == 9", "assert f(-2) == 4"]
HUMANEVAL: JSON = {
    "prompt": 'import math\n\ndef root(x):\n    """ The root.\n    >>> root(9)\n    3\n    """\n',
    "entry_point": "root",
    "test": "def check(candidate):\n    assert candidate(16) == 4",
}
SUITE = CallSuite("", entry_point="Solution().f")


@pytest.fixture(scope="module")
def grader() -> Iterator[Code]:
    if all(available().values()):
        pytest.skip(f"no isolation works here: {available()} (see docs/concepts/sandbox.md for how to get one)")
    with Code(limits=Limits(seconds=20), workers=2) as opened:
        yield opened


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("```python\ndef f(): pass\n```", "def f(): pass\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("First\n```py\nx = 1\n```\nor better\n```python3\nx = 2\n```\nbye", "x = 2\n"),
        ("```python\nclass Solution:\n    pass\n```\nUse it:\n```python\nprint(Solution())\n```", "class Solution:\n    pass\n"),
        ("```python\nx = 1\n```\n```bash\nls\n```", "x = 1\n"),
        ("```python\nx = 1\nand so on, cut", "x = 1\nand so on, cut"),
        ("  ```python\n  x = 1\n  ```", "  x = 1\n"),
        ("<think>\n```python\nx = 0\n```\n</think>\nx = 1", "\nx = 1"),
        ("def f(): pass", "def f(): pass"),
        ("```python\ns = 'a ``` b'\n```", "s = 'a ``` b'\n"),
        ("", ""),
    ],
)
def test_which_program(answer: str, code: str) -> None:
    assert extract_code(answer, SUITE).code == code


def test_an_answer_may_continue_the_prompt() -> None:
    before = "def f(x):\n    ''' it '''\n"
    suite = CallSuite("", before=before, entry_point="f")
    assert extract_code("    return x\n", suite).program == f"{before}    return x\n"
    assert extract_code("```python\ndef f(x):\n    return x\n```", suite).program == "def f(x):\n    return x\n"
    assert extract_code("```python\nx = 1\n```", FunctionSuite("f", ((1,),), (1,))).program == "x = 1\n"


@pytest.mark.parametrize(
    ("tests", "answer", "grade", "reason"),
    [
        (SQUARE, "```python\ndef f(x): return x * x\n```", Grade.RIGHT, ""),
        (SQUARE, "def f(x): return x * x", Grade.RIGHT, ""),
        (SQUARE, "```python\ndef f(x): return 3 * x\n```", Grade.WRONG, "test 2 of 2: another value"),
        (SQUARE, "```python\ndef f(x) return x\n```", Grade.WRONG, "before the tests: SyntaxError: expected ':' (<candidate>, line 1)"),
        (SQUARE, "I do not know.", Grade.UNPARSED, "there is no code block, and the text is no Python"),
        (SQUARE, "  \n", Grade.UNPARSED, "there is no program in it"),
        (SQUARE, "x" * 2_000_000, Grade.UNPARSED, "there is no program in it"),
        (SQUARE, "```python\ndef f(x): raise SystemExit\n```", Grade.WRONG, "test 1 of 2: SystemExit"),
        (HUMANEVAL, "    return math.isqrt(x)\n", Grade.RIGHT, ""),
        (HUMANEVAL, "```python\nfrom math import isqrt as root\n```", Grade.RIGHT, ""),
        ({"no": 1}, "x = 1", Grade.ERROR, "tests: the keys are 'no'; give"),
        (
            {"test_list": ["assert f(1) == 1"], "test_imports": ["import nothing"]},
            "def f(x): return x",
            Grade.ERROR,
            "the tests' own code: Module",
        ),
    ],
)
def test_grades(tests: JSON, answer: str, grade: Grade, reason: str, grader: Code) -> None:
    graded = grader.grade(tests, answer)
    assert graded.grade is grade
    assert graded.reason.startswith(reason)
    assert (graded.extracted is None) == (grade in (Grade.UNPARSED, Grade.ERROR) and graded.extracted is None)
    assert graded.seconds >= 0


def test_a_program_that_hangs_scores_nothing(grader: Code) -> None:
    """Were it unscored, a policy could leave a lost episode by hanging."""
    with Code(limits=Limits(seconds=0.3)) as opened:
        graded = opened.grade(SQUARE, "```python\ndef f(x):\n    while True: pass\n```")
    assert graded.grade is Grade.TIMEOUT
    assert graded.verdict().score == 0.0
    assert grader.grade({"no": 1}, "x").verdict().score is None


def test_many_at_once_in_order(grader: Code) -> None:
    items: list[tuple[JSON, str]] = [([f"assert f() == {n % 3}"], f"def f(): return {n % 2}") for n in range(12)]
    assert [one.grade is Grade.RIGHT for one in grader.grade_all(items)] == [n % 3 == n % 2 for n in range(12)]


def test_a_sandbox_that_fails_is_no_verdict(grader: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise SandboxError("sandbox: out of processes.")

    monkeypatch.setattr(code_module, "try_out", fail)
    graded = grader.grade(SQUARE, "def f(x): return x * x")
    assert (graded.grade, graded.reason) == (Grade.ERROR, "sandbox: out of processes.")
    assert graded.verdict().score is None


# -- which isolation ----------------------------------------------------------------------------------------------------------


def test_without_isolation_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        choice_module, "available", lambda: {"bwrap": "there is no program bwrap", "sandlock": "the package is not installed"}
    )
    with pytest.raises(ConfigError, match=r"there is no isolation here .*apt install bubblewrap.*pip install .*unsafe"):
        Code()
    with pytest.raises(ConfigError, match=r"isolation is 'bwrap', which does not work here: there is no program bwrap\. Get bubblewrap"):
        Code("bwrap")
    with Code("unsafe", limits=Limits(seconds=20)) as opened:
        assert opened.grade(SQUARE, "def f(x): return x * x").grade is Grade.RIGHT


def test_an_unknown_isolation_is_named() -> None:
    with pytest.raises(ConfigError, match="isolation is 'bwarp'; did you mean 'bwrap'"):
        choose("bwarp")  # type: ignore[arg-type]


# -- benchmarks ---------------------------------------------------------------------------------------------------------------


def _rows(shared_data: Path, name: str) -> list[dict[str, JSON]]:
    return [json.loads(line) for line in gzip.open(shared_data / "data" / "bench" / name, "rt")]


@pytest.mark.parametrize(
    ("name", "solution", "every"),
    [
        ("leetcode_v0.3.1_test.jsonl.gz", "completion", 57),
        ("leetcode_v0.2.0_train.jsonl.gz", "completion", 473),
        ("humaneval.jsonl.gz", "canonical_solution", 41),
        ("mbpp.jsonl.gz", "code", 243),
    ],
)
def test_canonical_solutions_are_right(name: str, solution: str, every: int, shared_data: Path, grader: Code) -> None:
    """A few of each; all are run by bench/sandbox.py --canonical."""
    rows = _rows(shared_data, name)[::every]
    graded = grader.grade_all([(row, str(row[solution])) for row in rows])
    assert [(row["task_id"], one.reason) for row, one in zip(rows, graded, strict=True) if one.grade is not Grade.RIGHT] == []


@pytest.mark.parametrize("number", [32, 33, 38, 44, 50, 53, 151])
def test_humanevals_tests_that_must_be_run(number: int, shared_data: Path, grader: Code) -> None:
    row = _rows(shared_data, "humaneval.jsonl.gz")[number]
    assert grader.grade(row, str(row["canonical_solution"])).grade is Grade.RIGHT
    assert grader.grade(row, "    return None\n").grade is Grade.WRONG


@pytest.mark.parametrize("which", ["func", "stdin"])
def test_livecodebenchs_forms(which: str, shared_data: Path, grader: Code) -> None:
    """The two forms, with cases from the problems' own examples."""
    (first, second) = json.loads((shared_data / "data" / "bench" / f"livecodebench_format_{which}.json").read_text())
    if which == "func":
        cases = [
            {"input": '"coaching"\n"coding"', "output": "4", "testtype": "functional"},
            {"input": '"z"\n"abcde"', "output": "5", "testtype": "functional"},
        ]
        tests: JSON = {"public_test_cases": json.dumps(cases), "metadata": '{"func_name": "appendCharacters"}'}
        answer = second["answer"]
    else:
        inputs = ["11\n00000000008\n", "22\n0011223344556677889988\n", "11\n31415926535\n"]
        cases = [{"input": given, "output": out, "testtype": "stdin"} for given, out in zip(inputs, "120", strict=True)]
        tests, answer = {"public_test_cases": json.dumps(cases)}, second["answer"]
    assert grader.grade(tests, answer).grade is Grade.RIGHT
    assert grader.grade(tests, first["answer"]).grade is Grade.WRONG
