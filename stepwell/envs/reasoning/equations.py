"""Linear equations such as 3 * (x + 2) = x - 4, to be solved one equation a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from stepwell.envs.reasoning.calculation import same_number, which_number
from stepwell.envs.reasoning.family import Axes, Payload, as_written, text_in
from stepwell.envs.reasoning.formula import Linear, linear, read
from stepwell.envs.reasoning.truth import StepTruth, right, unknown, walk, wrong
from stepwell.types import JSON

__all__ = ["Equations"]


class Equations:
    """Linear equations in x with one solution.

    A line is right if it is a linear equation with the same one solution as the problem, whatever way it was found; `0 = 0`, which holds,
    has lost it, and is wrong.
    """

    name = "equations"
    axes: Mapping[str, tuple[int, int]] = {"brackets": (0, 2), "sides": (1, 2), "largest": (6, 12)}

    def draw(self, axes: Axes, rng: np.random.Generator) -> dict[str, JSON]:
        """So many brackets; x on so many sides; coefficients up to the largest, and a whole solution."""
        solution, largest = int(rng.integers(-axes["largest"], axes["largest"] + 1)), axes["largest"]
        while True:
            left = _side(axes["brackets"] > 0, largest, rng)
            side = _side(axes["brackets"] > 1, largest, rng) if axes["sides"] > 1 else ""
            one, other = linear(read(left)), linear(read(side or "0"))
            rest = one.slope * solution + one.constant - other.slope * solution - other.constant
            if one.slope != other.slope and abs(rest) <= 30 * largest:
                break
        tail = "" if rest == 0 and side else f"{side and ' '}{_signed(rest, bool(side))}"
        return {"equation": f"{left} = {side}{tail}"}

    def ask(self, payload: Payload) -> str:
        return f"solve for x: {text_in(payload, 'equation')}"

    def solve(self, payload: Payload) -> list[str]:
        return _solved(text_in(payload, "equation"), [])

    def slip(self, payload: Payload, at: int, rng: np.random.Generator) -> list[str]:
        """The line has another number on one side, or moves one over without turning its sign."""
        before = self.solve(payload)[:at]
        start = text_in(payload, "equation")
        left, side = _sides(_next(before[-1] if before else start) or start)
        while True:
            off = Fraction(int(rng.choice([-3, -2, -1, 1, 2, 3])))
            kind = int(rng.integers(3))
            if kind == 0 and left.slope + off != side.slope and not (left.slope == 1 and left.constant == 0 == side.slope):
                said = _equation(left._replace(slope=left.slope + off), side)
            elif kind == 1 and side.constant:
                said = _equation(left, side._replace(constant=-side.constant))
            else:
                said = _equation(left, side._replace(constant=side.constant + off))
            if _solution(said) not in (None, _solution(start)):
                return _solved(said, [*before, said])

    def judge(self, payload: Payload, lines: Sequence[str]) -> list[StepTruth]:
        solution = _solution(text_in(payload, "equation"))

        def advance(state: None, line: str) -> tuple[StepTruth, None]:
            if line.count("=") != 1 or "x" not in line.lower():
                return unknown("it is no equation in x"), state
            try:
                found = _solution(line)
            except ValueError as error:
                return unknown(str(error)), state
            return (right() if found == solution else wrong("it has another solution" if found is not None else "it has lost x")), state

        return walk(None, lines, advance)

    def answers(self, payload: Payload, answer: str) -> bool:
        solution = _solution(text_in(payload, "equation"))
        return solution is not None and same_number(answer.rpartition("=")[2], solution)

    def meaning(self, payload: Payload, answer: str) -> str:
        number = which_number(answer.rpartition("=")[2])
        return as_written(answer) if number is None else str(number)

    def shortcut(self, payload: Payload) -> str | None:
        """Leaves brackets out, and takes the x of both sides together."""
        bare = text_in(payload, "equation").replace("(", "").replace(")", "")
        left, side = _sides(bare)
        slope = left.slope + side.slope
        return str((side.constant - left.constant) / slope) if slope else None

    def possible(self, payload: Payload, lines: Sequence[str]) -> None:
        return None


def _side(bracket: bool, largest: int, rng: np.random.Generator) -> str:
    slope, constant = (int(one) for one in rng.integers(2, largest + 1, 2))
    if bracket:
        return f"{slope} * (x {_signed(Fraction(constant * int(rng.choice([-1, 1]))), True)})"
    return f"{slope} * x {_signed(Fraction(constant * int(rng.choice([-1, 1]))), True)}"


def _signed(number: Fraction, between: bool) -> str:
    """A number with its sign, as a term behind another one, or alone."""
    if not between:
        return str(number)
    return f"{'-' if number < 0 else '+'} {abs(number)}"


def _sides(equation: str) -> tuple[Linear, Linear]:
    left, _, side = equation.partition("=")
    return linear(read(left)), linear(read(side))


def _solution(equation: str) -> Fraction | None:
    """The one solution; None where there is none, or more."""
    left, side = _sides(equation)
    return (side.constant - left.constant) / (left.slope - side.slope) if left.slope != side.slope else None


def _equation(left: Linear, side: Linear) -> str:
    return f"{_linear(left)} = {_linear(side)}"


def _linear(side: Linear) -> str:
    if not side.slope:
        return str(side.constant)
    term = "x" if side.slope == 1 else f"{side.slope if side.slope.denominator == 1 else f'({side.slope})'} * x"
    return f"{term} {_signed(side.constant, True)}" if side.constant else term


def _next(equation: str) -> str | None:
    """The next line of a solution: without brackets, x on the left, the numbers on the right, x alone; None at the end."""
    left, side = _sides(equation)
    plain = _equation(left, side)
    if plain != equation:
        return plain
    if side.slope:
        return _equation(Linear(left.slope - side.slope, left.constant), Linear(Fraction(0), side.constant))
    if left.constant:
        return _equation(Linear(left.slope, Fraction(0)), Linear(Fraction(0), side.constant - left.constant))
    if left.slope != 1:
        return _equation(Linear(Fraction(1), Fraction(0)), Linear(Fraction(0), side.constant / left.slope))
    return None


def _solved(equation: str, lines: list[str]) -> list[str]:
    """The lines, those that lead from the equation to its solution, and that."""
    while (further := _next(equation)) is not None:
        lines, equation = [*lines, further], further
    return [*lines, equation.rpartition("=")[2].strip()]
