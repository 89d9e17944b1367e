"""`stepwell grade`: a line of verdict for a line of answer; bad input is a sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from commands import Said, stepwell


def _file(folder: Path, *lines: str | Mapping[str, object]) -> Path:
    path = folder / "answers.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def _graded(said: Said) -> list[dict[str, Any]]:
    assert said.code == 0, said.err
    return [json.loads(line) for line in said.out.splitlines()]


def test_each_line_is_answered_in_order(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        {"gold": "cat", "answer": r"\boxed{cat}", "id": 1},
        {"gold": "dog", "answer": "cat"},
        {"gold": "", "answer": "x"},
        {"gold": 3, "answer": ""},
    )
    said = stepwell("grade", path, "--with", "exact", "--json")
    assert [(one["verdict"], one["extracted"]) for one in _graded(said)] == [
        ("right", "cat"),
        ("wrong", "cat"),
        ("error", "x"),
        ("unparsed", None),
    ]
    assert all(set(one) == {"verdict", "extracted", "seconds"} and 0 <= one["seconds"] < 1 for one in _graded(said))
    assert said.err.splitlines() == [f"{path}, line 3: error: the gold answer is empty", f"{path}, line 4: unparsed: the answer is empty"]


def test_mathematics_with_a_limit(tmp_path: Path) -> None:
    pytest.importorskip("math_verify", reason="math-verify is not installed: pip install 'stepwell[maths]'")
    path = _file(
        tmp_path,
        {"gold": "42", "answer": "maybe 41, maybe 42"},
        {"gold": r"\frac{x}{2}", "answer": r"\boxed{x/2}"},
        {"gold": "x", "answer": r"\boxed{9^{9^{9^{9}}}x}"},
        {"gold": "(((", "answer": r"\boxed{5}"},
    )
    said = stepwell("grade", path, "--with", "maths", "--json", "--limit", "0.5", "--workers", "1", "--boxed")
    assert [one["verdict"] for one in _graded(said)] == ["unparsed", "right", "timeout", "error"]
    assert f"{path}, line 3: timeout: comparing was cut after 0.5 s" in said.err
    assert f"{path}, line 4: error: the gold answer '(((' is no formula that can be read" in said.err


def test_a_table_without_json(tmp_path: Path) -> None:
    path = _file(tmp_path, *[{"gold": "1", "answer": str(n % 3)} for n in range(12)], *[{"gold": "", "answer": "1"}] * 13)
    said = stepwell("grade", path, "--with", "numeric")
    rows = {line.split()[0]: line.split()[1:] for line in said.out.splitlines()}
    assert rows["right"] == ["4", "16.0", "%"] and rows["wrong"] == ["8", "32.0", "%"] and rows["error"] == ["13", "52.0", "%"]
    assert said.err.splitlines()[-1] == "3 more lines have a reason."


FORM = 'a line is {"gold": a text or a number, "answer": text}.'


@pytest.mark.parametrize(
    ("lines", "options", "sentence"),
    [
        (["{"], [], "answers.jsonl, line 1: not JSON (Expecting property name"),
        (["[1]"], [], f"answers.jsonl, line 1 has a list; {FORM}"),
        (['{"gold": "1"}'], [], f"line 1 has the keys 'gold'; {FORM}"),
        (["{}"], [], f"line 1 has the keys (none); {FORM}"),
        (['{"gold": "1", "answer": 2}'], [], "line 1: answer is '2'; it must be a text."),
        (['{"gold": null, "answer": "2"}'], [], "line 1: gold is 'None'; it must be a text or a number."),
        (["", ""], [], f"answers.jsonl holds no answer; {FORM}"),
        (['{"gold": "1", "answer": "1"}'], ["--with", "mats"], "--with is 'mats'; did you mean 'maths'? Known: "),
        (['{"gold": "1", "answer": "1"}'], ["--with", "maths", "--limit", "0"], "--limit is 0.0; give seconds above 0, such as 5."),
        (
            ['{"gold": "1", "answer": "1"}'],
            ["--limit", "3"],
            "--limit and --workers are for graders that work in processes; exact compares",
        ),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, lines: list[str], options: list[str], sentence: str) -> None:
    said = stepwell("grade", _file(tmp_path, *lines), *(options if "--with" in options else ["--with", "exact", *options]))
    assert (said.code, said.out) == (2, "")
    assert sentence in said.err and len(said.err.splitlines()) == 1


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    said = stepwell("grade", tmp_path / "no.jsonl", "--with", "exact")
    assert said.code == 2 and said.err == f"error: Answers cannot be read from {tmp_path / 'no.jsonl'}: No such file or directory.\n"
