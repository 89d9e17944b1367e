"""Expressions such as (3 + 4) * 5 - 6, to be calculated one operation a line: `3 + 4 = 7`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from stepwell.envs.reasoning.calculation import Calculation, calculate, same_number, shown, which_number
from stepwell.envs.reasoning.family import Axes, Payload, as_written, text_in
from stepwell.envs.reasoning.formula import Binary, Formula, Number, apply, read, value, write
from stepwell.envs.reasoning.reduction import Expression, expression, judge
from stepwell.envs.reasoning.truth import StepTruth
from stepwell.types import JSON

__all__ = ["Arithmetic"]

_LARGEST_FACTOR = 60


class Arithmetic:
    """Multi-step arithmetic in whole numbers, + - * and brackets.

    A line is right if its equation holds and is an operation that is left to do, in any order that the laws of arithmetic allow.
    """

    name = "arithmetic"
    axes: Mapping[str, tuple[int, int]] = {"operations": (2, 8), "largest": (9, 60)}

    def draw(self, axes: Axes, rng: np.random.Generator) -> dict[str, JSON]:
        """An expression with so many operations, of numbers up to the largest."""
        return {"expression": write(_draw(axes["operations"], axes["largest"], rng))}

    def ask(self, payload: Payload) -> str:
        return f"calculate {text_in(payload, 'expression')}"

    def solve(self, payload: Payload) -> list[str]:
        return _lines(calculate(_start(payload)))

    def slip(self, payload: Payload, at: int, rng: np.random.Generator) -> list[str]:
        return _lines(calculate(_start(payload), at, rng))

    def judge(self, payload: Payload, lines: Sequence[str]) -> list[StepTruth]:
        return judge(_start(payload), lines)

    def answers(self, payload: Payload, answer: str) -> bool:
        return same_number(answer, value(read(text_in(payload, "expression"))))

    def meaning(self, payload: Payload, answer: str) -> str:
        number = which_number(answer)
        return as_written(answer) if number is None else str(number)

    def shortcut(self, payload: Payload) -> str:
        """From left to right, as if there were neither brackets nor a rank of signs."""
        pieces = re.findall(r"\d+|[-+*]", text_in(payload, "expression").replace("(", "").replace(")", ""))
        total = Fraction(pieces[0])
        for sign, number in zip(pieces[1::2], pieces[2::2], strict=True):
            total = apply(total, sign, Fraction(number))
        return str(total)

    def possible(self, payload: Payload, lines: Sequence[str]) -> None:
        return None


def _start(payload: Payload) -> Expression:
    return expression(read(text_in(payload, "expression")))


def _lines(done: Calculation) -> list[str]:
    steps = [f"{shown(one.left)} {one.sign} {shown(one.right)} = {shown(one.result)}" for one in done.operations]
    return [*steps, shown(done.value)]


def _draw(num_operations: int, largest: int, rng: np.random.Generator) -> Formula:
    if num_operations == 0:
        return Number(Fraction(int(rng.integers(2, largest + 1))))
    before = int(rng.integers(num_operations))
    left, right = _draw(before, largest, rng), _draw(num_operations - 1 - before, largest, rng)
    small = max(abs(value(left)), abs(value(right))) <= _LARGEST_FACTOR
    return Binary(str(rng.choice(["+", "-", "*"] if small else ["+", "-"])), left, right)
