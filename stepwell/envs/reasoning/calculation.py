"""Calculations done operation by operation, right, or with one slip from which all that follows goes on."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from stepwell.envs.reasoning.formula import Operation, apply, read, value
from stepwell.envs.reasoning.reduction import Expression, next_operation, reduced, value_of
from stepwell.errors import ConfigError

__all__ = ["Calculation", "calculate", "same_number", "shown", "which_number"]


class Calculation(NamedTuple):
    """Operations in their order, and the value at the end (a last number that is taken away makes it differ from the last result)."""

    operations: list[Operation]
    value: Fraction


def calculate(start: Expression, at: int | None = None, rng: np.random.Generator | None = None) -> Calculation:
    """The operations that lead from an expression to its value, the innermost and leftmost first.

    Args:
        start: The expression.
        at: Which operation slips, from 0; none by default. What follows is calculated rightly from what the slip has left, and ends early
            where it would divide by 0.
        rng: Draws the slip.

    Raises:
        ConfigError: There is no such operation.
    """
    done: list[Operation] = []
    now, may_be = start, frozenset({start})
    while (todo := _next(now)) is not None:
        said = _slipped(may_be, todo, rng) if len(done) == at and rng is not None else todo
        done.append(said)
        now = min(reduced(frozenset({now}), todo._replace(result=said.result)), key=repr)
        may_be = reduced(may_be, todo)
    if at is not None and at >= len(done):
        raise ConfigError(f"Operation {at} cannot slip; this calculation has operations 0 to {len(done) - 1}.")
    return Calculation(done, _value(now, done))


def shown(number: Fraction) -> str:
    """A number as it stands in a line; a fraction in brackets.

    >>> shown(Fraction(7)), shown(Fraction(-7, 2))
    ('7', '(-7/2)')
    """
    return str(number) if number.denominator == 1 else f"({number})"


def same_number(text: str, number: Fraction) -> bool:
    """Whether a text is this number, or a formula of its value."""
    return which_number(text) == number


def which_number(text: str) -> Fraction | None:
    """The number that a text is, or the value of the formula that it is; None where it is neither.

    >>> which_number("3 + 4.") == which_number("7"), which_number("seven") is None
    (True, True)
    """
    try:
        return value(read(text.strip().rstrip(".")))
    except ValueError:
        return None


def _value(now: Expression, done: list[Operation]) -> Fraction:
    try:
        return value_of(now)
    except ValueError:
        return done[-1].result


def _next(now: Expression) -> Operation | None:
    try:
        return next_operation(now)
    except ValueError:
        return None


def _slipped(may_be: frozenset[Expression], todo: Operation, rng: np.random.Generator) -> Operation:
    """A wrong step in the place of the right one, of a kind drawn at random."""
    while True:
        kind = ("result", "sign", "operand")[int(rng.integers(3))]
        said = next(_slips(todo, kind, rng), todo)
        if _result(said) != said.result or not reduced(may_be, said):
            return said


def _slips(todo: Operation, kind: str, rng: np.random.Generator) -> Iterator[Operation]:
    if kind == "result":
        yield todo._replace(result=todo.result + int(rng.choice([-10, -2, -1, 1, 2, 10])))
        return
    if kind == "sign":
        wrong = todo._replace(sign=str(rng.choice([sign for sign in "+-*" if sign != todo.sign])))
    else:
        wrong = todo._replace(right=todo.right + int(rng.choice([-2, -1, 1, 2])))
    result = _result(wrong)
    if result is not None:
        yield wrong._replace(result=result)


def _result(said: Operation) -> Fraction | None:
    try:
        return apply(said.left, said.sign, said.right)
    except ValueError:
        return None
