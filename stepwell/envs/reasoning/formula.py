"""Formulas in numbers, x, + - * / ^ and brackets: read by a small parser of our own, never run as code. Exact, in fractions.

sum     = product (("+" | "-") product)*
product = signed (("*" | "/" | nothing) signed)*
signed  = "-" signed | power
power   = atom ["^" signed] ["%"]
atom    = number | x | "(" sum ")"
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

__all__ = ["Binary", "Formula", "Linear", "Name", "Number", "Operation", "linear", "operations", "read", "value", "write"]

_LONGEST, _DEEPEST, _GREATEST_POWER, _MOST_DIGITS = 300, 40, 12, 40
_TOKEN = re.compile(r"\s*(?:(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)|([a-zA-Z])|(\*\*|[-+*/^()%]))")
_PLAIN = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")", "$": " ", "€": " ", "£": " "})


@dataclass(frozen=True, slots=True)
class Number:
    """A number."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Name:
    """The unknown, x."""


@dataclass(frozen=True, slots=True)
class Binary:
    """An operation: one of `+ - * / ^` on two formulas."""

    sign: str
    left: Formula
    right: Formula


Formula = Number | Name | Binary


class Operation(NamedTuple):
    """One operation on two numbers, and what it gives."""

    left: Fraction
    sign: str
    right: Fraction
    result: Fraction


class Linear(NamedTuple):
    """`slope * x + constant`."""

    slope: Fraction
    constant: Fraction


def read(text: str) -> Formula:
    """The formula that a text is.

    Raises:
        ValueError: It is none, or longer, deeper or with larger numbers than any step of a solution.

    >>> str(value(read("2(3 + 4) - 50%"))), write(read("3x+4"))
    ('27/2', '3 * x + 4')
    """
    if len(text) > _LONGEST:
        raise ValueError(f"it has {len(text)} letters; at most {_LONGEST} are read")
    reader = _Reader(_tokens(text.translate(_PLAIN)))
    formula = reader.sum(0)
    if reader.token is not None:
        raise ValueError(f"{reader.token!r} is one too many")
    return formula


def value(formula: Formula) -> Fraction:
    """The value of a formula without x.

    Raises:
        ValueError: There is an x, a division by 0, or a power that no step of a solution has.
    """
    done = [*operations(formula)]
    if done:
        return done[-1].result
    assert isinstance(formula, Number)
    return formula.value


def operations(formula: Formula) -> Iterator[Operation]:
    """The operations of a formula without x, in an order in which they can be done: the last gives its value. None for a plain number.

    Raises:
        ValueError: As `value`.
    """

    def go(one: Formula) -> Generator[Operation, None, Fraction]:
        if isinstance(one, Name):
            raise ValueError("there is an x in it")
        if isinstance(one, Binary):
            left = yield from go(one.left)
            right = yield from go(one.right)
            result = apply(left, one.sign, right)
            yield Operation(left, one.sign, right, result)
            return result
        return one.value

    yield from go(formula)


def apply(left: Fraction, sign: str, right: Fraction) -> Fraction:
    """What one operation gives.

    Raises:
        ValueError: A division by 0, or a power that no step of a solution has.
    """
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    if sign == "/":
        if right == 0:
            raise ValueError("it divides by 0")
        return left / right
    if right.denominator != 1 or abs(right) > _GREATEST_POWER or (left == 0 and right <= 0) or abs(left.numerator) > 10**6:
        raise ValueError(f"powers are read up to {_GREATEST_POWER}, of numbers up to a million")
    return left ** int(right)


def linear(formula: Formula) -> Linear:
    """A formula of degree 1 at most, as `slope * x + constant`.

    Raises:
        ValueError: It has another degree, or divides by 0 or x.

    >>> str(linear(read("2(x - 3) + x")).slope), str(linear(read("2(x - 3) + x")).constant)
    ('3', '-6')
    """
    if isinstance(formula, Name):
        return Linear(Fraction(1), Fraction(0))
    if isinstance(formula, Number):
        return Linear(Fraction(0), formula.value)
    left, right = linear(formula.left), linear(formula.right)
    if formula.sign in "+-":
        return Linear(apply(left.slope, formula.sign, right.slope), apply(left.constant, formula.sign, right.constant))
    if formula.sign == "*" and not left.slope:
        left, right = right, left
    if right.slope or (formula.sign == "^" and left.slope):
        raise ValueError("it is not linear in x")
    return Linear(
        apply(left.slope, formula.sign, right.constant) if left.slope else left.slope, apply(left.constant, formula.sign, right.constant)
    )


def write(formula: Formula) -> str:
    """A formula as text, with a space around each sign and no bracket that is not needed."""
    if isinstance(formula, Name):
        return "x"
    if isinstance(formula, Number):
        return str(formula.value)
    rank = _RANK[formula.sign]
    left, right = write(formula.left), write(formula.right)
    if _rank(formula.left) < rank:
        left = f"({left})"
    if _rank(formula.right) < rank or (_rank(formula.right) == rank and formula.sign in "-/"):
        right = f"({right})"
    return f"{left} {formula.sign} {right}"


_RANK = {"+": 1, "-": 1, "*": 2, "/": 2, "^": 3}


def _rank(formula: Formula) -> int:
    if isinstance(formula, Number) and (formula.value < 0 or formula.value.denominator != 1):
        return 0
    return _RANK[formula.sign] if isinstance(formula, Binary) else 9


def _tokens(text: str) -> Iterator[str]:
    at = 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"{text[at : at + 10].strip()!r} cannot stand in a formula")
        number, letter, sign = found.groups()
        if number and len(number) > _MOST_DIGITS:
            raise ValueError(f"a number of {len(number)} digits is longer than any that is read")
        yield number.replace(",", "") if number else letter or sign.replace("**", "^")
        at = found.end()


class _Reader:
    """Reads tokens by the grammar above, one ahead."""

    def __init__(self, tokens: Iterator[str]) -> None:
        self._rest = tokens
        self.token: str | None = next(tokens, None)

    def sum(self, depth: int) -> Formula:
        if depth > _DEEPEST:
            raise ValueError(f"its brackets are deeper than {_DEEPEST}")
        made = self._product(depth)
        while self.token in ("+", "-"):
            made = Binary(self._take(), made, self._product(depth))
        return made

    def _product(self, depth: int) -> Formula:
        made = self._signed(depth)
        while self.token is not None and (self.token in "*/(" or self.token.isalpha()):
            sign = self._take() if self.token in "*/" else "*"
            made = Binary(sign, made, self._signed(depth))
        return made

    def _signed(self, depth: int) -> Formula:
        if depth > _DEEPEST:
            raise ValueError(f"its signs are deeper than {_DEEPEST}")
        if self.token != "-":
            return self._power(depth)
        self._take()
        made = self._signed(depth + 1)
        return Number(-made.value) if isinstance(made, Number) else Binary("*", Number(Fraction(-1)), made)

    def _power(self, depth: int) -> Formula:
        made = self._atom(depth)
        if self.token == "^":
            made = Binary(self._take(), made, self._signed(depth + 1))
        if self.token == "%":
            self._take()
            made = Number(made.value / 100) if isinstance(made, Number) else Binary("/", made, Number(Fraction(100)))
        return made

    def _atom(self, depth: int) -> Formula:
        token = self._take()
        if token == "(":
            made = self.sum(depth + 1)
            if self._take() != ")":
                raise ValueError("a bracket is not closed")
            return made
        if token in ("x", "X"):
            return Name()
        if token[:1].isdigit() or token[:1] == ".":
            return Number(Fraction(token.rstrip(".")))
        raise ValueError(f"{token!r} stands where a number is expected" if token else "it ends where a number is expected")

    def _take(self) -> str:
        token, self.token = self.token or "", next(self._rest, None)
        return token
