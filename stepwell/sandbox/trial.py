"""A program tried against its tests: the program behind the wall, the expected values and the comparison outside.

Tests that cannot be cut into calls and expected values (loops, helpers, tolerances) are run by an *examiner*: a second interpreter behind
walls of its own, which runs the benchmark's test code and never the candidate's. A call of the candidate crosses both walls as data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from stepwell.sandbox.answers import Form, Tagged, equal
from stepwell.sandbox.asserts import Case, Unsplit, check_demand, free_names, split
from stepwell.sandbox.isolation import Isolation
from stepwell.sandbox.limits import Limits
from stepwell.sandbox.output import same_output
from stepwell.sandbox.session import Session, Stopped, StoppedError
from stepwell.sandbox.suites import CallSuite, FunctionSuite, ProgramSuite, Suite
from stepwell.types import JSON

__all__ = ["Outcome", "Trial", "try_out"]

_CANDIDATE = "candidate"
"""What tests call the entry point."""


class Outcome(StrEnum):
    """How a trial ended.

    PASSED: Every test.
    FAILED: A test: another value, an exception, a crash, too much memory or output.
    TIMEOUT: The program took longer than its limit.
    NO_PYTHON: The code cannot be compiled.
    BROKEN: The benchmark's own code fails before the program has run.
    """

    PASSED = "passed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    NO_PYTHON = "no python"
    BROKEN = "broken"


class Trial(NamedTuple):
    """Of one program: how it ended, why, and the number of tests that it passed before the first that it failed."""

    outcome: Outcome
    reason: str
    passed: int
    total: int


class _EndedError(Exception):
    """The trial is over."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


@dataclass(slots=True)
class _Count:
    passed: int = 0
    total: int = 1


def try_out(code: str, suite: Suite, *, isolation: Isolation, limits: Limits) -> Trial:
    """Runs the program against its tests, up to the first that it fails.

    Raises:
        DataError: The tests are no Python, or assert nothing.
        SandboxError: The sandbox could not be started: nothing is said of the program.
    """
    count = _Count()
    try:
        match suite:
            case CallSuite():
                _calls(code, suite, isolation, limits, count)
            case FunctionSuite():
                _functions(code, suite, isolation, limits, count)
            case ProgramSuite():
                _programs(code, suite, isolation, limits, count)
    except StoppedError as stopped:
        outcome = Outcome.TIMEOUT if stopped.how is Stopped.TIMEOUT else Outcome.FAILED
        return Trial(outcome, f"{_test(count)}: {stopped}", count.passed, count.total)
    except _EndedError as ended:
        return Trial(ended.outcome, str(ended), count.passed, count.total)
    except RecursionError:  # of walking through an answer; tests are read with limits of their own
        return Trial(Outcome.FAILED, f"{_test(count)}: an answer nested too deeply", count.passed, count.total)
    return Trial(Outcome.PASSED, "", count.total, count.total)


def _test(count: _Count) -> str:
    return f"test {count.passed + 1} of {count.total}"


# -- calls --------------------------------------------------------------------------------------------------------------------


def _calls(code: str, suite: CallSuite, isolation: Isolation, limits: Limits, count: _Count) -> None:
    check_demand(suite.tests)
    try:
        cases = split(suite.tests)
    except Unsplit:
        cases = None
    with Session(isolation, limits) as inside:
        _prepare(inside, code, suite.before)
        for part in (f"{_CANDIDATE} = {suite.entry_point}" if suite.entry_point else "", suite.after):
            _run(inside, part, Outcome.FAILED)
        if cases is None:
            _examine(inside, suite, isolation, limits)
            return
        count.total = max(1, len(cases))
        for case in cases:
            _check(inside, case, count)


def _prepare(inside: Session, code: str, before: str) -> None:
    _run(inside, before, Outcome.BROKEN)
    _run(inside, code, Outcome.FAILED)


def _run(inside: Session, source: str, blame: Outcome) -> None:
    if source.strip():
        _kept(
            inside.ask({"do": "run", "source": source}),
            "done",
            blame,
            "before the tests" if blame is Outcome.FAILED else "the tests' own code",
        )


def _check(inside: Session, case: Case, count: _Count) -> None:
    for source in case.inputs:
        _run(inside, source, Outcome.FAILED)
    got = _kept(inside.ask({"do": "value", "source": case.call}), "value", Outcome.FAILED, _test(count))
    same = got is case.expected if case.identical else equal(case.expected, got)
    if not same:
        raise _EndedError(Outcome.FAILED, f"{_test(count)}: another value")
    count.passed += 1


def _kept(answer: Tagged, kind: str, blame: Outcome, where: str) -> Form:
    """What the answer holds, where it is of this kind; else the trial is over."""
    if answer.kind == kind:
        return answer.inner
    name, message = _raised(answer)
    outcome = Outcome.NO_PYTHON if blame is Outcome.FAILED and kind == "done" and name in _UNREADABLE else blame
    raise _EndedError(outcome, f"{where}: {name}{': ' * bool(message)}{message}")


_UNREADABLE = ("SyntaxError", "IndentationError", "TabError")


def _raised(answer: Tagged) -> tuple[str, str]:
    match answer:
        case Tagged("raised", [str(name), str(message)]):
            return name[:60], " ".join(message.split())[:200]
    return "an answer out of order", ""


# -- tests that are run -------------------------------------------------------------------------------------------------------


def _examine(inside: Session, suite: CallSuite, isolation: Isolation, limits: Limits) -> None:
    others, modules = free_names(suite.tests)
    own = [_CANDIDATE] if suite.entry_point else []
    own += [suite.entry_point] if suite.entry_point.isidentifier() else []
    call = f"\ncheck({_CANDIDATE})" if own and "def check(" in suite.tests else ""
    with Session(isolation, limits, "examiner") as examiner:
        answer = examiner.ask(
            {
                "do": "examine",
                "before": [suite.before, *(f"import {name}" for name in modules)],
                "source": suite.tests + call,
                "own": list(own),
                "others": list(others),
            }
        )
        called = False
        while answer.kind == "call":
            called = True
            answer = examiner.ask(_as_request(_asked(inside, answer)))
    if answer != ("passed", True):
        said = answer.inner if answer.kind == "failed" else ": ".join(_raised(answer))
        raise _EndedError(Outcome.FAILED, f"test 1 of 1: {said}")
    if not called:  # test functions that nothing calls, as for pytest or unittest
        raise _EndedError(Outcome.BROKEN, "the tests' own code never calls the program; give assertions, or a function check(candidate)")


def _asked(inside: Session, answer: Tagged) -> Tagged:
    """The candidate's answer to a call of the examiner's."""
    match answer.inner:
        case [str(function), str(handle), arguments, keywords]:
            asked: dict[str, JSON] = {"function": function, "handle": handle, "args": plain(arguments), "kwargs": plain(keywords)}
            got = inside.ask({"do": "call", **asked})
            return got if got.kind == "value" else Tagged("raised", list(_raised(got)))
    raise _EndedError(Outcome.BROKEN, "the tests' own code makes a call that cannot be read")


def _as_request(answer: Tagged) -> dict[str, JSON]:
    return {answer.kind: plain(answer.inner)}


def plain(form: Form) -> JSON:
    """A form as it was read."""
    if isinstance(form, Tagged):
        return {form.kind: plain(form.inner)}
    return [plain(item) for item in form] if isinstance(form, list) else form


# -- functions and programs ---------------------------------------------------------------------------------------------------


def _functions(code: str, suite: FunctionSuite, isolation: Isolation, limits: Limits, count: _Count) -> None:
    count.total = len(suite.values)
    name = suite.function
    with Session(isolation, limits) as inside:
        _prepare(inside, code, suite.before)
        _run(inside, f"{_CANDIDATE} = Solution().{name} if 'Solution' in globals() else {name}", Outcome.FAILED)
        for arguments, expected in zip(suite.arguments, suite.values, strict=True):
            call: dict[str, JSON] = {"function": _CANDIDATE, "handle": "", "args": _encoded(list(arguments)), "kwargs": {"dict": []}}
            got = _kept(inside.ask({"do": "call", **call}), "value", Outcome.FAILED, _test(count))
            if not equal(expected, got, loose=True):
                raise _EndedError(Outcome.FAILED, f"{_test(count)}: another value")
            count.passed += 1


def _encoded(value: JSON) -> JSON:
    """JSON in the forms that cross the wall: an object is a dict."""
    if isinstance(value, dict):
        return {"dict": [[key, _encoded(item)] for key, item in value.items()]}
    return [_encoded(item) for item in value] if isinstance(value, list) else value


def _programs(code: str, suite: ProgramSuite, isolation: Isolation, limits: Limits, count: _Count) -> None:
    count.total = len(suite.outputs)
    with Session(isolation, limits, "programs") as inside:
        for stdin, expected in zip(suite.inputs, suite.outputs, strict=True):
            program: dict[str, JSON] = {"before": suite.before, "source": code, "stdin": stdin, "output_bytes": limits.answer_bytes // 8}
            got = inside.ask({"do": "program", **program})
            match got:
                case Tagged("ended", [str(out), 0]) if same_output(expected, out):
                    count.passed += 1
                case Tagged("ended", [str(), 0]):
                    raise _EndedError(Outcome.FAILED, f"{_test(count)}: another output")
                case Tagged("ended", [str(), int(exit_code)]):
                    raise _EndedError(Outcome.FAILED, f"{_test(count)}: the program ends with code {exit_code}")
                case Tagged("flood"):
                    raise _EndedError(Outcome.FAILED, f"{_test(count)}: more output than {limits.answer_mib / 8:g} MiB")
                case _:
                    raise _EndedError(Outcome.FAILED, f"{_test(count)}: an answer out of order")
