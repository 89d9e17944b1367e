"""Tests read in the forms of the benchmarks."""

from __future__ import annotations

import base64
import json
import pickle
import zlib

import pytest

from stepwell.errors import DataError
from stepwell.sandbox.forms import suite_of
from stepwell.sandbox.packed import unpack
from stepwell.sandbox.suites import IMPORTS, CallSuite, FunctionSuite, ProgramSuite
from stepwell.types import JSON

CASES = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]


def pack(value: object, protocol: int = 4) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()


def test_rows_of_each_benchmark() -> None:
    assert suite_of(["assert f(1) == 2", "assert f(2) == 3"]) == CallSuite("assert f(1) == 2\nassert f(2) == 3")
    assert suite_of({"task_id": "x", "prompt": "import math", "entry_point": "Solution().f", "test": "def check(c): pass"}) == CallSuite(
        "def check(c): pass", before="import math", entry_point="Solution().f"
    )
    assert suite_of({"prompt": "in words", "test": "assert Solution().f() == 1"}) == CallSuite("assert Solution().f() == 1", before=IMPORTS)
    assert suite_of(
        {"test_list": ["assert a"], "challenge_test_list": ["assert b"], "test_setup_code": "x\r\ny", "test_imports": ["import re"]}
    ) == CallSuite("assert a\nassert b", before="import re", after="x\ny")
    assert suite_of({"test_list": ["assert a"], "challenge_test_list": None}) == CallSuite("assert a")
    assert suite_of({"inputs": ["1\n", ["2", "3"]], "outputs": ["x", ["y"]]}) == ProgramSuite(("1\n", "2\n3"), ("x", "y"))
    assert suite_of({"inputs": [[1, [2]]], "outputs": [3], "fn_name": "f"}) == FunctionSuite("f", ((1, [2]),), (3,))


def test_livecodebench() -> None:
    assert suite_of({"public_test_cases": json.dumps(CASES)}) == ProgramSuite(("1 2\n",), ("3\n",))
    both = suite_of({"public_test_cases": json.dumps(CASES), "private_test_cases": pack(json.dumps([{**CASES[0], "output": "4"}]))})
    assert both == ProgramSuite(("1 2\n", "1 2\n"), ("3\n", "4"))
    calls = [{"input": '[1, 2]\n"x"', "output": '{"a": [1]}', "testtype": "functional"}]
    assert suite_of({"public_test_cases": calls, "private_test_cases": "", "metadata": '{"func_name": "f"}'}) == FunctionSuite(
        "f", (([1, 2], "x"),), ({"a": [1]},)
    )


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ("assert 1", "tests: got 'assert 1'; give a list of assertions, or an object with one of"),
        ({}, r"tests: the keys are \(none\); give"),
        ({"question": 1}, "tests: the keys are 'question'; give"),
        ([1], "it must be a list of texts"),
        ({"test": 3}, "tests: test is '3'; it must be a text"),
        ({"inputs": [], "outputs": []}, "there are 0 inputs and 0 outputs"),
        ({"inputs": ["1"], "outputs": []}, "there are 1 inputs and 0 outputs"),
        ({"inputs": [1], "outputs": ["1"]}, "it must be a text, or a list of lines"),
        ({"inputs": "1", "outputs": ["1"]}, "tests: inputs is '1'; it must be a list"),
        ({"inputs": ["1"], "outputs": [1], "fn_name": "f"}, "it must be the list of its arguments"),
        ({"inputs": [[1]], "outputs": [1], "fn_name": "f(); g"}, "it must be a name of Python"),
        ({"public_test_cases": "[1"}, "is no JSON"),
        ({"public_test_cases": [{"input": "1", "output": "1", "testtype": "odd"}]}, "testtype is 'odd'; allowed is"),
        ({"public_test_cases": [{"input": "1", "output": "1", "testtype": "functional"}]}, "metadata has no func_name"),
        ({"public_test_cases": [{"input": 1, "output": "1"}]}, "tests: input is '1'; it must be a text"),
        ({"private_test_cases": "no base64!"}, "not packed as LiveCodeBench packs them"),
    ],
)
def test_what_is_no_test(tests: JSON, said: str) -> None:
    with pytest.raises(DataError, match=said):
        suite_of(tests)


@pytest.mark.parametrize("protocol", range(6))
def test_unpacking(protocol: int) -> None:
    text = 'with "quotes", Ж and 𝄞\n' * 100
    assert unpack(pack(text, protocol)) == text


class Trap:
    """What a pickle may hide: it runs a program when it is loaded."""

    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("loaded",))


@pytest.mark.parametrize("value", [Trap(), ["a", "b"], {"a": "b"}, 3, b"bytes", None, ("a",)])
def test_a_pickle_of_anything_else_is_refused(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    packed = pack(value)
    if isinstance(value, Trap):
        pickle.loads(zlib.decompress(base64.b64decode(packed)))
        assert capsys.readouterr().out == "loaded\n", "the trap works on one who loads it"
    with pytest.raises(DataError, match=r"the instruction|0 texts"):
        unpack(packed)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("packed", ["", "!", base64.b64encode(b"no zlib").decode(), base64.b64encode(zlib.compress(b"no pickle")).decode()])
def test_what_is_not_packed(packed: str) -> None:
    with pytest.raises(DataError):
        unpack(packed)


def test_a_bomb_is_not_unpacked() -> None:
    bomb = base64.b64encode(zlib.compress(b"\0" * 10_000_000)).decode()
    assert len(bomb) < 20_000
    with pytest.raises(DataError, match="they are more than 1000000 bytes unpacked"):
        unpack(bomb, most_bytes=1_000_000)
