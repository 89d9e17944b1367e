"""`stepwell grade --with code`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import stepwell

from stepwell.sandbox import available

TESTS = ["assert f(2) == 4", "assert f(3) == 9"]


def _file(folder: Path, *lines: object) -> Path:
    path = folder / "programs.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_programs_are_graded(tmp_path: Path) -> None:
    if all(available().values()):
        pytest.skip(f"no isolation works here: {available()} (see docs/concepts/sandbox.md for how to get one)")
    path = _file(
        tmp_path,
        {"tests": TESTS, "answer": "```python\ndef f(x): return x ** 2\n```", "id": 1},
        {"tests": {"test_list": TESTS}, "answer": "def f(x): return 2 * x"},
        {"tests": {"inputs": ["2\n"], "outputs": ["4"]}, "answer": "print(int(input()) ** 2)"},
        {"tests": TESTS, "answer": "Sorry."},
        {"tests": TESTS, "answer": "def f(x):\n    while True: pass"},
    )
    said = stepwell("grade", path, "--with", "code", "--json", "--limit", "2", "--workers", "2")
    assert said.code == 0, said.err
    graded = [json.loads(line) for line in said.out.splitlines()]
    assert [one["verdict"] for one in graded] == ["right", "wrong", "right", "unparsed", "timeout"]
    assert [one["extracted"] for one in graded[:2]] == ["def f(x): return x ** 2\n", "def f(x): return 2 * x"]
    assert all(set(one) == {"verdict", "extracted", "seconds"} for one in graded)
    assert "line 2: wrong: test 2 of 2: another value" in said.err


def test_unsafe_is_an_explicit_wish(tmp_path: Path) -> None:
    path = _file(tmp_path, {"tests": TESTS, "answer": "def f(x): return x * x"})
    said = stepwell("grade", path, "--with", "code", "--json", "--isolation", "unsafe")
    assert json.loads(said.out)["verdict"] == "right"


@pytest.mark.parametrize(
    ("line", "options", "told"),
    [
        ({"gold": 3, "answer": "x"}, (), "has the keys 'gold', 'answer'; a line is"),
        ({"tests": {"x": 1}, "answer": "x"}, (), "it must be a list of assertions, or an object with one of"),
        ({"tests": TESTS, "answer": "x"}, ("--limit", "0"), "--limit is 0.0; give seconds above 0"),
    ],
)
def test_bad_input(line: object, options: tuple[str, ...], told: str, tmp_path: Path) -> None:
    said = stepwell("grade", _file(tmp_path, line), "--with", "code", *options)
    assert said.code == 2
    assert told in said.err


def test_isolation_is_for_programs(tmp_path: Path) -> None:
    said = stepwell("grade", _file(tmp_path, {"gold": "3", "answer": "3"}), "--with", "exact", "--isolation", "bwrap")
    assert (said.code, said.err) == (2, "error: --isolation is for programs; exact runs none. Leave it out.\n")
