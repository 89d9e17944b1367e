"""The graders by name: what `stepwell grade --with NAME` opens. A grader is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from stepwell.errors import DataError
from stepwell.grading.graded import Grader
from stepwell.sandbox import IsolationName, Limits
from stepwell.sandbox.forms import FORM, suite_of
from stepwell.types import JSON

__all__ = ["KINDS", "Kind", "Options", "Reads"]

Reads = Literal["boxed", "any"]
"""Where the answer is looked for: in a box alone, or in the box, else after `####` or "the answer is", else at the end of the text."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to grade.

    Attributes:
        reads: Where the answer is looked for.
        limit_s: Seconds that an answer may take; None is the grader's own.
        workers: Worker processes; None is the number of cores.
        isolation: What programs run in; None is the best that the machine offers. Of `code` alone.
    """

    reads: Reads = "any"
    limit_s: float | None = None
    workers: int | None = None
    isolation: IsolationName | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """A grader as the command knows it.

    Attributes:
        key: Where a line of the file holds what is right.
        form: What must stand there, in words.
        fits: Whether a value may stand there.
        open: Makes the grader.
        limited: Whether it works in processes, so that a limit and a number of workers mean something.
    """

    key: Literal["gold", "tests"]
    form: str
    fits: Callable[[JSON], bool]
    open: Callable[[Options], Grader]
    limited: bool = False


def _is_plain(gold: JSON) -> bool:
    return isinstance(gold, str) or (isinstance(gold, int | float) and not isinstance(gold, bool))


def _is_suite(tests: JSON) -> bool:
    try:
        suite_of(tests)
    except DataError:
        return False
    return True


def _code(options: Options) -> Grader:
    from stepwell.grading.code import Code

    limits = Limits() if options.limit_s is None else Limits(seconds=options.limit_s)
    return Code(options.isolation or "auto", limits=limits, workers=options.workers)


def _exact(options: Options) -> Grader:
    from stepwell.grading.exact import Exact

    return Exact(reads=options.reads)


def _maths(options: Options) -> Grader:
    from stepwell.grading.maths import LIMIT_S, Maths

    return Maths(options.reads, limit_s=options.limit_s or LIMIT_S, workers=options.workers)


def _numeric(options: Options) -> Grader:
    from stepwell.grading.numeric import Numeric

    return Numeric(options.reads)


def _choice(options: Options) -> Grader:
    from stepwell.grading.choice import Choice

    return Choice(options.reads)


_PLAIN = "a text or a number"
KINDS: Mapping[str, Kind] = {
    "choice": Kind("gold", _PLAIN, _is_plain, _choice),
    "code": Kind("tests", FORM, _is_suite, _code, limited=True),
    "exact": Kind("gold", _PLAIN, _is_plain, _exact),
    "maths": Kind("gold", _PLAIN, _is_plain, _maths, limited=True),
    "numeric": Kind("gold", _PLAIN, _is_plain, _numeric),
}
"""Name -> grader."""
