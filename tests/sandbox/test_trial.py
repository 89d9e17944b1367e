"""Programs tried against tests of each form, without any attack."""

from __future__ import annotations

import pytest

from stepwell.errors import DataError
from stepwell.sandbox import Isolation, Limits, SandboxError
from stepwell.sandbox.isolation import Started, started
from stepwell.sandbox.output import same_output
from stepwell.sandbox.suites import IMPORTS, CallSuite, FunctionSuite, ProgramSuite, Suite
from stepwell.sandbox.trial import Outcome, Trial, try_out

LIMITS = Limits(seconds=20)


def _try(code: str, suite: Suite, isolation: Isolation) -> Trial:
    return try_out(code, suite, isolation=isolation, limits=LIMITS)


LEETCODE = CallSuite(
    "def check(candidate):\n    assert candidate(nums = [3, 1]) == [1, 3]\n    assert candidate(nums = []) == []\n",
    before="from typing import *\n",
    entry_point="Solution().order",
)


def test_a_method(isolation: Isolation) -> None:
    code = "class Solution:\n    def order(self, nums: List[int]) -> List[int]:\n        return sorted(nums)"
    assert _try(code, LEETCODE, isolation) == (Outcome.PASSED, "", 2, 2)
    wrong = code.replace("sorted(nums)", "nums")
    assert _try(wrong, LEETCODE, isolation) == (Outcome.FAILED, "test 1 of 2: another value", 0, 2)
    half = code.replace("sorted(nums)", "sorted(nums) or None")
    assert _try(half, LEETCODE, isolation) == (Outcome.FAILED, "test 2 of 2: another value", 1, 2)


@pytest.mark.parametrize(
    ("code", "outcome", "reason"),
    [
        ("class Solution: pass", Outcome.FAILED, "before the tests: AttributeError: 'Solution' object has no attribute 'order'"),
        ("x = 1", Outcome.FAILED, "before the tests: NameError: name 'Solution' is not defined"),
        ("raise ValueError('no  \\n luck')", Outcome.FAILED, "before the tests: ValueError: no luck"),
        ("class Solution:\n    def order(self, nums): return nums[0]", Outcome.FAILED, "test 1 of 2: another value"),
        ("class Solution:\n    def order(self, nums): return 1 / 0", Outcome.FAILED, "test 1 of 2: ZeroDivisionError: division by zero"),
        (
            "class Solution:\n    def order(self) return 3",
            Outcome.NO_PYTHON,
            "before the tests: SyntaxError: expected ':' (<candidate>, line 2)",
        ),
        ("def f(:", Outcome.NO_PYTHON, "before the tests: SyntaxError: invalid syntax (<candidate>, line 1)"),
        ("x = '\0'", Outcome.NO_PYTHON, "before the tests: SyntaxError: source code string cannot contain null bytes"),
    ],
)
def test_why_it_failed(code: str, outcome: Outcome, reason: str, any_isolation: Isolation) -> None:
    trial = _try(code, LEETCODE, any_isolation)
    assert trial.outcome is outcome
    assert trial.reason.replace("ValueError: source", "SyntaxError: source") == reason


def test_inputs_are_not_shared_between_tests(any_isolation: Isolation) -> None:
    suite = CallSuite("x = [3, 1]\nassert f(x) == [1, 3]\nassert f(x) == [1, 3]")
    assert _try("def f(x):\n    x.sort()\n    return x", suite, any_isolation).outcome is Outcome.PASSED


def test_inputs_of_the_candidates_classes(any_isolation: Isolation) -> None:
    """MBPP 367: the setup builds a tree of the candidate's own nodes."""
    suite = CallSuite("assert total(root) == 3", after="root = Node(1)\nroot.left = Node(2)")
    code = (
        "class Node:\n    def __init__(self, v): self.v, self.left = v, None\ndef total(n): return n.v + (total(n.left) if n.left else 0)"
    )
    assert _try(code, suite, any_isolation).outcome is Outcome.PASSED
    assert _try("def total(n): return 3", suite, any_isolation).outcome is Outcome.FAILED


EXAMINED = CallSuite(
    """
import random

def check(candidate):
    draw = random.Random(1)
    for _ in range(5):
        x = draw.random()
        assert abs(candidate(x) - x / 2) < 1e-9, "not the half"
    assert sorted(candidate([4, 2])) == [1, 2] and helper(3) == 4 and sys.maxsize > 1
    try:
        candidate("x")
    except ValueError as error:
        assert str(error) == "no number"
    else:
        assert False
""",
    before="def helper(x): return x + 1\ndef half(x):\n    ''' half of a number '''\n",
    entry_point="half",
)
HALF = """
def helper(x): return 'not the one that the tests use'
def half(x):
    if isinstance(x, str):
        raise ValueError('no number')
    return {a / 2 for a in x} if isinstance(x, list) else x / 2
"""


def test_an_examiner_runs_what_cannot_be_cut(isolation: Isolation) -> None:
    assert _try(HALF, EXAMINED, isolation) == (Outcome.PASSED, "", 1, 1)
    assert _try(HALF.replace("else x / 2", "else x"), EXAMINED, isolation) == (
        Outcome.FAILED,
        "test 1 of 1: an assertion fails: not the half",
        0,
        1,
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("'no number'", "'number'", "an assertion fails"),
        ("raise ValueError('no number')", "return 1", "an assertion fails"),
        ("raise ValueError('no number')", "class Own(Exception): pass\n        raise Own('x')", "Own: x"),
        ("a / 2 for a in x", "a for a in x", "an assertion fails"),
        ("else x / 2", "else None", "TypeError: unsupported operand type(s) for -: 'NoneType' and 'float'"),
        ("def half", "def whole", "before the tests: "),
    ],
)
def test_what_an_examiner_finds(old: str, new: str, said: str, any_isolation: Isolation) -> None:
    trial = _try(HALF.replace(old, new), CallSuite(EXAMINED.tests, before="def helper(x): return x + 1", entry_point="half"), any_isolation)
    assert trial.outcome is Outcome.FAILED
    assert said in trial.reason


def test_instances_stay_inside(any_isolation: Isolation) -> None:
    suite = CallSuite("counter = Counter2(3)\ncounter.add(4)\nassert counter.add(5) in (12, 13)\nassert Counter2(1).add(1) in {2}")
    code = "class Counter2:\n    def __init__(self, n): self.n = n\n    def add(self, m):\n        self.n += m\n        return self.n"
    assert _try(code, suite, any_isolation).outcome is Outcome.PASSED
    assert _try(code.replace("+= m", "= m"), suite, any_isolation).outcome is Outcome.FAILED


def test_nodes_cross_the_wall(any_isolation: Isolation) -> None:
    suite = CallSuite("s = Solution()\nmake = lambda v: list_node(v)\nassert values(s.f(make([1, 2]))) == [2, 1]", before=IMPORTS)
    suite = CallSuite("values = lambda n: [n.val] + values(n.next) if n else []\n" + suite.tests, before=IMPORTS)
    code = (
        "class Solution:\n    def f(self, head: Optional[ListNode]) -> Optional[ListNode]:\n        last = None\n"
        "        while head: head.next, last, head = last, head, head.next\n        return last"
    )
    assert _try(code, suite, any_isolation).outcome is Outcome.PASSED


@pytest.mark.parametrize("tests", ["", "f(3) == 9", "assert True", "def check(candidate):\n    pass"])
def test_what_asserts_nothing_is_no_test(tests: str, any_isolation: Isolation) -> None:
    with pytest.raises(DataError, match="nothing is asserted"):
        _try("def f(x): return 0", CallSuite(tests, entry_point="f"), any_isolation)


@pytest.mark.parametrize(
    "tests",
    [
        "def test_f():\n    assert f(3) == 9",
        "import unittest\nclass T(unittest.TestCase):\n    def test_f(self):\n        assert f(3) == 9",
    ],
)
def test_tests_that_never_call_the_program_say_nothing_of_it(tests: str, any_isolation: Isolation) -> None:
    trial = _try("def f(x): return 0", CallSuite(tests), any_isolation)
    assert trial.outcome is Outcome.BROKEN
    assert "never calls the program" in trial.reason


@pytest.mark.parametrize("part", ["before", "tests"])
def test_a_benchmark_that_is_broken_is_no_fault_of_the_program(part: str, any_isolation: Isolation) -> None:
    if part == "tests":
        with pytest.raises(DataError, match="a test is no Python"):
            _try("x = 1", CallSuite("assert ("), any_isolation)
        return
    trial = _try("def f(x): return x", CallSuite("assert f(1) == 1", before="import nothing_of_that_name"), any_isolation)
    assert trial.outcome is Outcome.BROKEN
    assert trial.reason == "the tests' own code: ModuleNotFoundError: No module named 'nothing_of_that_name'"


# -- programs -----------------------------------------------------------------------------------------------------------------

DOUBLES = ProgramSuite(("2\n1 2\n", "1\n5\n"), ("2 4", "10\n"))


@pytest.mark.parametrize(
    "code",
    [
        "n = int(input())\nprint(*(2 * int(x) for x in input().split()))",
        "import sys\nlines = sys.stdin.read().splitlines()\nprint(*(2 * int(x) for x in lines[1].split()), sep=' ')",
        "data = open(0).read().split()\nprint(' '.join(str(2 * int(x)) for x in data[1:]), end='')",
        "import os\ndata = os.read(0, 1000).split()\nos.write(1, b' '.join(b'%d' % (2 * int(x)) for x in data[1:]))",
        "import sys\ninput = sys.stdin.buffer.readline\ninput()\n"
        "sys.stdout.write(' '.join(f'{2 * int(x)}.0' for x in input().split()))\nsys.exit()",
        "def main():\n    for line in list(__import__('sys').stdin)[1:]:\n        print(*(2 * int(x) for x in line.split()))\n"
        "if __name__ == '__main__':\n    main()",
        "from __future__ import annotations\ninput()\nprint(*[sqrt(x * x) * 2 for x in map(int, input().split())])",
        "state = globals().setdefault('state', [])\nstate.append(1)\nassert len(state) == 1\ninput()\n"
        "print(*(2 * int(x) for x in input().split()))",
    ],
)
def test_ways_to_read_and_write(code: str, any_isolation: Isolation) -> None:
    assert _try(code, DOUBLES, any_isolation) == (Outcome.PASSED, "", 2, 2)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print('2 4')", "test 2 of 2: another output"),
        ("print('2 4'); raise ValueError", "test 1 of 2: the program ends with code 1"),
        ("print('2 4'); import sys; sys.exit(3)", "test 1 of 2: the program ends with code 3"),
        ("print('2 4'); import sys; sys.exit('bad')", "test 1 of 2: the program ends with code 1"),
        ("print('2 4', flush=True); import os; os.abort()", "test 1 of 2: the program ends with code -6"),
        ("def f(:", "test 1 of 2: the program ends with code 1"),
        ("", "test 1 of 2: another output"),
        ("print(input()); input(); input()", "test 1 of 2: the program ends with code 1"),
    ],
)
def test_why_a_program_failed(code: str, reason: str, any_isolation: Isolation) -> None:
    trial = _try(code, DOUBLES, any_isolation)
    assert (trial.outcome, trial.reason) == (Outcome.FAILED, reason)


def test_much_input_that_is_not_read(any_isolation: Isolation) -> None:
    suite = ProgramSuite(("x" * 2_000_000,), ("7",), before="")
    assert _try("print(7)", suite, any_isolation).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("1\n2\n", "1\n2", True), ("1 2", "1  2", True), ("abc", "abc \n\n", True), ("1.50 x", "1.5 x", False), ("1.50 2", "1.5 2.0", True),
        ("1e3", "1000", True), ("nan", "nan", True), ("nan", "NaN", False), ("inf", "Infinity", False), ("abc", "ABC", False),
        ("1\n\n2", "1\n2", False), ("", "", True), ("", "0", False), ("1" * 2000, "1" * 2000, True), ("1" * 2000, "0" + "1" * 2000, False),
        ("0.1", "0.10000001", False), ("sNaN 1", "sNaN 1.0", False),
    ],
)  # fmt: skip
def test_outputs(expected: str, got: str, same: bool) -> None:
    assert same_output(expected, got) is same


# -- functions ----------------------------------------------------------------------------------------------------------------


def test_functions(isolation: Isolation) -> None:
    suite = FunctionSuite("pair", (([1, 2], {"a": 1}), ([], {})), ([[2, 1], ["a"]], [[], []]))
    body = "return tuple(x[::-1]), list(d)"
    for code in (f"class Solution:\n    def pair(self, x: List[int], d): {body}", f"def pair(x: List[int], d): {body}"):
        assert _try(code, suite, isolation) == (Outcome.PASSED, "", 2, 2)
    assert _try("def pair(x, d): return [[2, 1], ['a']]", suite, isolation).passed == 1


# -- the sandbox itself -------------------------------------------------------------------------------------------------------


class _Broken:
    name, walls, safe = "broken", "none", True

    def __init__(self, *command: str) -> None:
        self._command = list(command)

    def start(self, limits: Limits) -> Started:
        return started(self._command, {"PATH": "/usr/bin:/bin"})


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("/bin/sh", "-c", "echo out of luck. >&2; exit 1"), r"^sandbox: no interpreter could be started in broken: out of luck\.$"),
        (("/bin/false",), r"^sandbox: no interpreter could be started in broken: its process ended\.$"),
        (("/no/such/program",), r"^sandbox: /no/such/program could not be started: .*No such file"),
        (
            ("/bin/sh", "-c", """read x; echo '{"failed": "no filter"}'"""),
            r"^sandbox: the walls in broken could not be built: no filter\.$",
        ),
    ],
)
def test_a_sandbox_that_fails_says_nothing_of_the_program(command: tuple[str, ...], said: str) -> None:
    with pytest.raises(SandboxError, match=said):
        _try("def f(x): return x", CallSuite("assert f(1) == 1"), _Broken(*command))
