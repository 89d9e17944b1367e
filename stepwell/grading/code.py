"""Programs graded by tests, in a sandbox (`stepwell.sandbox`)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple, Self

from stepwell.errors import DataError
from stepwell.grading.graded import Grade, Graded
from stepwell.sandbox import IsolationName, Limits, SandboxError, choose
from stepwell.sandbox.forms import suite_of
from stepwell.sandbox.suites import CallSuite, FunctionSuite, Suite
from stepwell.sandbox.trial import Outcome, Trial, try_out
from stepwell.types import JSON

__all__ = ["Code", "extract_code"]

_FENCE = re.compile(r"^[ \t]*```[ \t]*([A-Za-z0-9_+.-]*)[^\n]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_PYTHON = ("", "python", "python3", "py")
_LONGEST = 2**20


class Code:
    """Grades an answer by running the program in it against tests.

    The program is the last code block of the answer that defines what the tests call, else the last block, else the whole text. An answer
    of HumanEval may also be the continuation of the prompt.

    A program that raises, crashes, or wants too much memory is wrong, and one that takes too long is a timeout, which scores 0: both are
    its own doing. `error` means that the tests or the sandbox failed, and leaves the answer unscored.

    Args:
        isolation: Of the sandbox; `auto` is the best that this machine offers.
        limits: Of each program.
        workers: Programs at once; None is the number of cores.

    Raises:
        ConfigError: There is no such isolation here.
    """

    def __init__(self, isolation: IsolationName = "auto", *, limits: Limits | None = None, workers: int | None = None) -> None:
        self._isolation = choose(isolation)
        self._limits = limits or Limits()
        self._workers = workers or os.cpu_count() or 1

    def grade(self, gold: JSON, answer: str) -> Graded:
        """One answer. `gold` is its tests, in a form that `stepwell.sandbox.forms` reads."""
        start = time.perf_counter()
        try:
            suite = suite_of(gold)
            found = extract_code(answer, suite)
            if not found.code.strip():
                return Graded(Grade.UNPARSED, None, time.perf_counter() - start, "there is no program in it")
            trial = try_out(found.program, suite, isolation=self._isolation, limits=self._limits)
        except (DataError, SandboxError) as fault:
            return Graded(Grade.ERROR, None, time.perf_counter() - start, str(fault))
        grade, reason = _grade(trial, found)
        extracted = None if grade is Grade.UNPARSED else found.code
        return Graded(grade, extracted, time.perf_counter() - start, reason, own_doing=grade is Grade.TIMEOUT)

    def grade_all(self, items: Sequence[tuple[JSON, str]]) -> list[Graded]:
        """Many answers, in order, as many at once as there are workers."""
        with ThreadPoolExecutor(self._workers) as pool:
            return list(pool.map(lambda item: self.grade(*item), items))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        return None


class Found(NamedTuple):
    """The program in an answer.

    Attributes:
        code: What stands in the answer.
        program: What is run: with the prompt in front, where the answer continues it.
        fenced: Whether it stood in a code block.
    """

    code: str
    program: str
    fenced: bool


def extract_code(answer: str, suite: Suite) -> Found:
    """The program in an answer to a problem with these tests; of what a model thought aloud (`</think>`) nothing is taken.

    >>> extract_code("So:\\n```python\\ndef f(x):\\n    return x\\n```\\nDone.", CallSuite("assert f(1) == 1")).code
    'def f(x):\\n    return x\\n'
    """
    said = answer.rpartition("</think>")[2]
    blocks = [body for language, body in _FENCE.findall(said) if language.lower() in _PYTHON]
    name = _defines(suite)
    telling = [block for block in blocks if name and _defined(name, block)]
    code = (telling or blocks or [said])[-1]
    if len(code) > _LONGEST:
        code = ""
    continues = isinstance(suite, CallSuite) and bool(name) and not _defined(name, code) and _defined(name, suite.before)
    return Found(code, f"{suite.before}{code}" if continues and code.strip() else code, bool(blocks))


def _defines(suite: Suite) -> str:
    """The name that a program must define; empty where any will do."""
    if isinstance(suite, FunctionSuite):
        return suite.function
    return re.match(r"\w*", suite.entry_point)[0] if isinstance(suite, CallSuite) else ""  # type: ignore[index]


def _defined(name: str, code: str) -> bool:
    return re.search(rf"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+{re.escape(name)}\b", code, re.MULTILINE) is not None


def _grade(trial: Trial, found: Found) -> tuple[Grade, str]:
    match trial.outcome:
        case Outcome.PASSED:
            return Grade.RIGHT, ""
        case Outcome.FAILED:
            return Grade.WRONG, trial.reason
        case Outcome.TIMEOUT:
            return Grade.TIMEOUT, trial.reason
        case Outcome.BROKEN:
            return Grade.ERROR, trial.reason
        case Outcome.NO_PYTHON:
            if found.fenced:
                return Grade.WRONG, trial.reason
            return Grade.UNPARSED, f"there is no code block, and the text is no Python ({trial.reason})"
