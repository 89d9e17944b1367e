"""Tests as benchmarks write them: a row of each is known by its keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from stepwell.errors import DataError
from stepwell.sandbox.packed import unpack
from stepwell.sandbox.suites import IMPORTS, CallSuite, FunctionSuite, ProgramSuite, Suite
from stepwell.types import JSON

__all__ = ["FORM", "suite_of"]

FORM = (
    "a list of assertions, or an object with one of: test and entry_point (LeetCodeDataset, HumanEval), test (PRIME's LeetCode), "
    "test_list (MBPP), inputs and outputs (APPS), public_test_cases or private_test_cases (LiveCodeBench)"
)
"""What `suite_of` reads, in words."""

Row = Mapping[str, JSON]


def suite_of(tests: JSON) -> Suite:
    """The tests of a row, whose other keys are passed over.

    | keys | benchmark | meaning |
    |---|---|---|
    | `test`, `entry_point`, `prompt`? | LeetCodeDataset, HumanEval | `check(candidate)`; the prompt runs first |
    | `test`, no `entry_point` | PRIME's LeetCode | assertions about `Solution()` |
    | `test_list`, `test_setup_code`?, `test_imports`?, `challenge_test_list`? | MBPP | assertions |
    | `inputs`, `outputs`, `fn_name`? | APPS and its like | standard input and output, or arguments and value |
    | `public_test_cases`, `private_test_cases`?, `metadata`? | LiveCodeBench | `{"input", "output", "testtype"}`; the private ones packed |

    Raises:
        DataError: It has none of these forms, or a value of another type.
    """
    if isinstance(tests, list):
        return CallSuite("\n".join(_texts(tests, "tests")))
    if not isinstance(tests, Mapping):
        raise DataError(f"tests: got {str(tests)[:80]!r}; give {FORM}.")
    for key, read in _READERS.items():
        if key in tests:
            return read(tests)
    raise DataError(f"tests: the keys are {', '.join(map(repr, tests)) or '(none)'}; give {FORM}.")


def _check(row: Row) -> Suite:
    entry = _text(row, "entry_point", "")
    return CallSuite(_text(row, "test"), before=_text(row, "prompt", "") if entry else IMPORTS, entry_point=entry)


def _mbpp(row: Row) -> Suite:
    assertions = [*_texts(row["test_list"], "test_list"), *_texts(row.get("challenge_test_list", []), "challenge_test_list")]
    before = "\n".join(_texts(row.get("test_imports", []), "test_imports"))
    return CallSuite("\n".join(assertions), before=before, after=_text(row, "test_setup_code", "").replace("\r\n", "\n"))


def _apps(row: Row) -> Suite:
    inputs, outputs = _list(row, "inputs"), _list(row, "outputs")
    if name := _text(row, "fn_name", ""):
        return FunctionSuite(name, tuple(map(_arguments, inputs)), tuple(outputs))
    return ProgramSuite(tuple(map(_lines, inputs)), tuple(map(_lines, outputs)))


def _arguments(given: JSON) -> tuple[JSON, ...]:
    if not isinstance(given, list):
        raise DataError(f"tests: an input of a function is {str(given)[:80]!r}; it must be the list of its arguments.")
    return tuple(given)


def _lines(text: JSON) -> str:
    if isinstance(text, list):
        return "\n".join(_texts(text, "a case"))
    if not isinstance(text, str):
        raise DataError(f"tests: a case of a program is {str(text)[:80]!r}; it must be a text, or a list of lines.")
    return text


def _livecodebench(row: Row) -> Suite:
    cases = [case for key in ("public_test_cases", "private_test_cases") for case in _cases(row.get(key, []))]
    kinds = {case.get("testtype", "stdin") for case in cases}
    inputs, outputs = ([_text(case, key) for case in cases] for key in ("input", "output"))
    if kinds == {"stdin"}:
        return ProgramSuite(tuple(inputs), tuple(outputs))
    if kinds != {"functional"}:
        raise DataError(
            f"tests: testtype is {', '.join(map(repr, kinds)) or '(none)'}; allowed is 'stdin' or 'functional', the same for all."
        )
    metadata = row.get("metadata", "{}")
    told = _json(metadata) if isinstance(metadata, str) else metadata
    if not isinstance(told, Mapping) or not isinstance(told.get("func_name"), str):
        raise DataError("tests: they are functional, and metadata has no func_name; it must name the function.")
    arguments = tuple(tuple(_json(line) for line in text.split("\n") if line.strip()) for text in inputs)
    return FunctionSuite(_text(told, "func_name"), arguments, tuple(map(_json, outputs)))


def _cases(value: JSON) -> list[Row]:
    if isinstance(value, str):
        value = _json(value if value.lstrip().startswith("[") or not value.strip() else unpack(value)) if value.strip() else []
    if not isinstance(value, list) or not all(isinstance(case, Mapping) for case in value):
        raise DataError(f"tests: the cases are {str(value)[:80]!r}; they must be a list of objects, or its text, packed or not.")
    return [case for case in value if isinstance(case, Mapping)]


def _json(text: str) -> JSON:
    try:
        value: JSON = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"tests: {text[:80]!r} is no JSON ({error}).") from None
    return value


def _text(row: Row, key: str, default: str | None = None) -> str:
    value = row.get(key, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise DataError(f"tests: {key} is {str(value)[:80]!r}; it must be a text.")
    return value


def _list(row: Row, key: str) -> Sequence[JSON]:
    value = row.get(key)
    if not isinstance(value, list):
        raise DataError(f"tests: {key} is {str(value)[:80]!r}; it must be a list.")
    return value


def _texts(value: JSON, what: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError(f"tests: {what} is {str(value)[:80]!r}; it must be a list of texts.")
    return [item for item in value if isinstance(item, str)]


_READERS: Mapping[str, Callable[[Row], Suite]] = {
    "test": _check,
    "test_list": _mbpp,
    "inputs": _apps,
    "public_test_cases": _livecodebench,
    "private_test_cases": _livecodebench,
}
"""The key that tells a benchmark -> its reader."""
