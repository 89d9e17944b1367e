"""Answers that are an expression in given numbers with a given value: Countdown, the Game of 24. Exact, and never evaluated as code."""

from __future__ import annotations

import ast
import operator
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import TracebackType
from typing import Self

from stepwell.errors import DataError
from stepwell.grading.extract import extract
from stepwell.grading.graded import Grade, Graded
from stepwell.grading.kinds import Reads
from stepwell.grading.tidy import tidy
from stepwell.syntax import parse
from stepwell.types import JSON

__all__ = ["Expression", "evaluate"]

_LONGEST = 300
_BINARY: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def evaluate(text: str) -> tuple[Fraction, Counter[int]]:
    """The exact value of an expression in whole numbers, + - * / and brackets; and how often it uses each number.

    Raises:
        ValueError: It is none, is longer than 300 letters, or divides by 0.

    >>> value, used = evaluate("(5 - 1/5) * 5")
    >>> str(value), used[5]
    ('24', 3)
    """
    if len(text) > _LONGEST:
        raise ValueError(f"it has {len(text)} letters; at most {_LONGEST} are read")
    used: Counter[int] = Counter()
    try:
        return _value(_body(text.strip()), used), used
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError("it is no expression in + - * / and brackets") from None
    except ZeroDivisionError:
        raise ValueError("it divides by 0") from None


def _body(text: str) -> ast.expr:
    whole = parse(text, "eval")
    assert isinstance(whole, ast.Expression)
    return whole.body


def _value(node: ast.expr, used: Counter[int]) -> Fraction:
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left, used), _value(node.right, used))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, used)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        used[node.value] += 1
        return Fraction(node.value)
    raise ValueError("only whole numbers, + - * / and brackets may stand in it")


@dataclass(frozen=True, slots=True)
class Expression:
    r"""Right is an expression of the target's value that uses the given numbers, each as often as it is given at most (or exactly).

    `gold` is `{"numbers": [...], "target": ..., "every": bool}`. What stands behind a sign of equality is passed over.

    >>> Expression("any").grade({"numbers": [3, 5, 7], "target": 15, "every": False}, "The answer is 10+5").grade
    <Grade.WRONG: 'wrong'>
    """

    reads: Reads = "boxed"

    def grade(self, gold: JSON, answer: str) -> Graded:
        """Grades one answer."""
        start = time.perf_counter()
        numbers, target, every = _asked(gold)
        found = extract(answer, self.reads)
        if found is None:
            return Graded(Grade.UNPARSED, None, time.perf_counter() - start, "no expression was found in the answer")
        plain = tidy(found).partition("=")[0].replace(r"\times", "*").replace(r"\cdot", "*").replace(r"\div", "/")
        try:
            value, used = evaluate(plain)
        except ValueError as error:
            return Graded(Grade.UNPARSED, found, time.perf_counter() - start, str(error))
        fits = used == numbers if every else not used - numbers
        return Graded(Grade.RIGHT if fits and value == target else Grade.WRONG, found, time.perf_counter() - start)

    def grade_all(self, items: Sequence[tuple[JSON, str]]) -> list[Graded]:
        """Grades many answers, in order."""
        return [self.grade(gold, answer) for gold, answer in items]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        """Nothing is held."""


def _asked(gold: JSON) -> tuple[Counter[int], int, bool]:
    form = '{"numbers": [whole number, ...], "target": whole number, "every": true | false}'
    numbers, target = (gold.get("numbers"), gold.get("target")) if isinstance(gold, Mapping) else (None, None)
    if not isinstance(numbers, Sequence) or not all(type(one) is int for one in numbers) or type(target) is not int:
        raise DataError(f"The numbers of a problem are {str(gold)[:80]!r}; they must be {form}.")
    assert isinstance(gold, Mapping)
    return Counter(int(str(one)) for one in numbers), target, bool(gold.get("every", False))
