"""Tests cut into calls and expected values."""

from __future__ import annotations

import ast
import math
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from stepwell.errors import DataError
from stepwell.sandbox.answers import Nodes
from stepwell.sandbox.asserts import Case, Unsplit, free_names, split


def test_leetcode() -> None:
    tests = """
def check(candidate):
    assert candidate(n = 2,commands = ['RIGHT', 'DOWN']) == 3
    assert candidate(tree_node([1, None, 2]), 5) == -inf
    assert is_same_list(candidate(list_node([1, 2])), list_node([2, 1]))
    assert is_same_tree(candidate(tree_node([])), tree_node([]))
"""
    assert split(tests) == [
        Case((), "candidate(n=2, commands=['RIGHT', 'DOWN'])", 3),
        Case((), "candidate(tree_node([1, None, 2]), 5)", -math.inf),
        Case((), "candidate(list_node([1, 2]))", Nodes("ListNode", [2, 1])),
        Case((), "candidate(tree_node([]))", None),
    ]


def test_primes_leetcode() -> None:
    tests = """
my_solution = Solution()

test_input = { "n": 3 }
assert my_solution.f(**test_input) == [6,0,0]

test_input = { "n": 5 }
assert my_solution.f(**test_input) == [10]
"""
    assert split(tests) == [
        Case(("my_solution = Solution()", "test_input = {'n': 3}"), "my_solution.f(**test_input)", [6, 0, 0]),
        Case(("my_solution = Solution()", "test_input = {'n': 5}"), "my_solution.f(**test_input)", [10]),
    ]


def test_humaneval_and_mbpp() -> None:
    assert split(
        "METADATA = {'author': 'jt'}\n\ndef check(candidate):\n    'doc'\n    assert True\n    assert candidate(1) is None, 'why'\n"
    ) == [Case((), "candidate(1)", None, identical=True)]
    assert split("assert add(root, root1)==(1, {2: [3]}) \nassert sum(10,15) == 6") == [
        Case((), "add(root, root1)", (1, {2: [3]})),
        Case((), "sum(10, 15)", 6),
    ]


def test_an_expected_value_never_goes_inside() -> None:
    """Only what the call names is assigned there."""
    assert split("expected = [1]\nx = 2\nassert f(x) == [1]") == [Case(("x = 2",), "f(x)", [1])]
    with pytest.raises(Unsplit):
        split("expected = [1]\nx = 2\nassert f(x) == expected")


@pytest.mark.parametrize(
    "tests",
    [
        "assert len(f(2)) == 3",
        "assert set(f([1])) == {1}",
        "assert abs(f(2) - 0.5) < 1e-6",
        "assert f(2)",
        "assert not f(2)",
        "assert f(2) != 3",
        "assert f(2) is 3",
        "assert 1 < f(2) < 3",
        "assert f(2) == g(3)",
        "assert f(2).g() == 3",
        "assert math.isclose(f(2), 3)",
        "assert is_same_list(f(2), g(3))",
        "for x in range(3):\n    assert f(x) == 3",
        "import random\nassert f(2) == 3",
        "def check(candidate):\n    assert candidate(2) == 3\ndef helper(): pass",
        "x = input()\nassert f(x) == 3",
        "x, y = 1, 2\nassert f(x) == 3",
        "x = y = 1\nassert f(x) == 3",
    ],
)
def test_what_an_examiner_must_run(tests: str) -> None:
    with pytest.raises(Unsplit):
        split(tests)


def test_tests_that_are_no_python() -> None:
    with pytest.raises(DataError, match="a test is no Python"):
        split("assert f(2 == 3")


def test_free_names() -> None:
    tests = """
import random as r
from string import ascii_lowercase
def helper(a, *b, **c): return a
def check(candidate):
    for x in range(3):
        assert [y for y in helper(x)] == g(x) + sys.maxsize + r.random() + math(2)
"""
    assert free_names(tests) == (["g", "math"], ["sys"])


def test_the_parser_is_asked_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen with CPython 3.11, rarely: SystemError, a recursion depth mismatch, where several threads were in it."""
    parse, inside, most = ast.parse, 0, 0

    def counting(source: str, mode: str = "exec") -> ast.AST:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.002)
        inside -= 1
        return parse(source, mode=mode)

    with monkeypatch.context() as patched, ThreadPoolExecutor(4) as pool:
        patched.setattr(ast, "parse", counting)
        cut = list(pool.map(split, ["assert f(1) == 2"] * 12))
    assert [len(cases) for cases in cut] == [1] * 12
    assert most == 1
