"""Countdown and the Game of 24: given numbers are combined, two at a time, until one is the target."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

import numpy as np

from stepwell.envs.reasoning.calculation import shown
from stepwell.envs.reasoning.family import Axes, Payload, as_written, number_in, whole_numbers_in
from stepwell.envs.reasoning.formula import Binary, Formula, Number, Operation, apply, value
from stepwell.envs.reasoning.reduction import equations
from stepwell.envs.reasoning.truth import StepTruth, right, unknown, walk, wrong
from stepwell.grading.expression import evaluate
from stepwell.types import JSON

__all__ = ["Countdown", "Pool", "reachable"]

_LEFT = re.compile(r"left:?\s*([-\d/\s]+)")


class Pool(NamedTuple):
    """What there is to combine.

    Attributes:
        numbers: In ascending order.
        target: What has to be made.
        every: Whether all numbers must be used, as in the Game of 24.
    """

    numbers: tuple[Fraction, ...]
    target: Fraction
    every: bool

    def after(self, done: Operation) -> Pool | None:
        """What is left after an operation; None where one of its numbers is not there."""
        rest = Counter(self.numbers)
        rest.subtract([done.left, done.right])
        return None if min(rest.values()) < 0 else self._replace(numbers=tuple(sorted([*rest.elements(), done.result])))

    @property
    def made(self) -> bool:
        """Whether the target is there."""
        return self.target in self.numbers and (len(self.numbers) == 1 or not self.every)


def reachable(pool: Pool) -> bool:
    """Whether the target can still be made, by going through all that can be done.

    >>> numbers = (Fraction(1), Fraction(5), Fraction(5), Fraction(5))
    >>> reachable(Pool(numbers, Fraction(24), every=True)), reachable(Pool(numbers, Fraction(23), every=True))
    (True, False)
    """
    return _fewest(pool) is not None


class Countdown:
    """Each number may be used once, and results go on being used; `every` asks for all numbers.

    A line is right if its equation holds, its numbers are there, and the target can still be reached: a true equation into a dead end is
    wrong. The answer is an expression in the given numbers.
    """

    name = "countdown"
    axes: Mapping[str, tuple[int, int]] = {"numbers": (2, 4), "largest": (9, 25), "every": (0, 1)}

    def draw(self, axes: Axes, rng: np.random.Generator) -> dict[str, JSON]:
        """So many numbers up to the largest, and a whole target that is made of at least two (of all, with `every`)."""
        while True:
            numbers = [int(one) for one in rng.integers(1, axes["largest"] + 1, axes["numbers"])]
            pool = [Fraction(one) for one in numbers]
            used = axes["numbers"] if axes["every"] else int(rng.integers(max(2, axes["numbers"] - 1), axes["numbers"] + 1))
            for _ in range(used - 1):
                left, right_ = (pool.pop(int(rng.integers(len(pool)))) for _ in range(2))
                sign = str(rng.choice(["+", "-", "*", "/"]))
                if sign == "/" and (right_ == 0 or (left / right_).denominator > 1):
                    sign = "+"
                pool.append(apply(left, sign, right_))
                if len(pool) > 1:
                    pool = [pool[-1], *pool[:-1]]
            made = pool[0]
            if made.denominator == 1 and 10 <= made <= 100 and made not in numbers:
                return {"numbers": list(numbers), "target": int(made), "every": axes["every"]}

    def ask(self, payload: Payload) -> str:
        how = "use every number once" if number_in(payload, "every") else "use each number at most once"
        return f"make {number_in(payload, 'target')} from {' '.join(map(str, whole_numbers_in(payload, 'numbers')))}. {how}"

    def solve(self, payload: Payload) -> list[str] | None:
        """With the fewest operations."""
        return _solved(_pool(payload), [], _terms(payload))

    def slip(self, payload: Payload, at: int, rng: np.random.Generator) -> list[str]:
        """The line has a wrong result, a number that is not there, or leads into a dead end; what follows combines what is left."""
        right_lines = self.solve(payload) or []
        before, terms, pool = right_lines[:at], _terms(payload), _pool(payload)
        for line in before:
            done = _done(line)
            terms, pool = _joined(terms, done), pool.after(done) or pool
        choices = [one for one in _all(pool) if (after := pool.after(one)) is not None and not reachable(after)]
        while True:
            said = choices[int(rng.integers(len(choices)))] if choices and rng.random() < 0.5 else _done(right_lines[at])
            kind = int(rng.integers(2))
            if said in choices:
                pass
            elif kind == 0:
                said = said._replace(result=said.result + int(rng.choice([-10, -1, 1, 10])))
            else:
                said = said._replace(right=said.right + 1, result=apply(said.left, "+", said.right + 1), sign="+")
            if self.judge(payload, [*before, _line(said)])[-1] == right():
                continue
            there = pool.after(said)
            if there is None:
                return [*before, _line(said), f"{shown(said.left)} {said.sign} {shown(said.right)}"]
            return [*before, _line(said), *_anyhow(there, _joined(terms, said))]

    def judge(self, payload: Payload, lines: Sequence[str]) -> list[StepTruth]:
        return walk(_pool(payload), lines, _advance)

    def answers(self, payload: Payload, answer: str) -> bool:
        found, fits = _read(payload, answer)
        return fits and found == number_in(payload, "target")

    def meaning(self, payload: Payload, answer: str) -> str:
        """The value of the expression, and whether it uses the numbers as it may: no other difference makes an answer right or wrong."""
        found, fits = _read(payload, answer)
        return as_written(answer) if found is None else f"{found}" if fits else f"{found} of other numbers"

    def shortcut(self, payload: Payload) -> str | None:
        """Does what leads nearest to the target, step by step, and never looks further."""
        pool, terms = _pool(payload), _terms(payload)
        while not pool.made and len(pool.numbers) > 1:
            done = min(_all(pool), key=lambda one: (abs(one.result - pool.target), one))
            terms, pool = _joined(terms, done), pool.after(done) or pool
        return _expression(terms, pool.target) if pool.made else None

    def possible(self, payload: Payload, lines: Sequence[str]) -> tuple[str, ...] | None:
        """All operations on two numbers that are there, and the answer once it is made; nothing behind a line that is no operation."""
        pool, terms = _pool(payload), _terms(payload)
        for line in lines:
            found = _operation(line)
            after = None if found is None or apply(found.left, found.sign, found.right) != found.result else pool.after(found)
            if found is None or after is None:
                return ()
            terms, pool = _joined(terms, found), after
        if pool.made:
            return (f"answer: {_expression(terms, pool.target)}",)
        return tuple(dict.fromkeys(map(_line, _all(pool))))


Terms = tuple[tuple[Fraction, str], ...]


def _read(payload: Payload, answer: str) -> tuple[Fraction | None, bool]:
    """The value of an answer, None where it is no expression; and whether it uses the numbers as it may."""
    try:
        found, used = evaluate(answer.partition("=")[0])
    except ValueError:
        return None, False
    given = Counter(whole_numbers_in(payload, "numbers"))
    return found, used == given if number_in(payload, "every") else not used - given


def _pool(payload: Payload) -> Pool:
    numbers = sorted(Fraction(one) for one in whole_numbers_in(payload, "numbers"))
    return Pool(tuple(numbers), Fraction(number_in(payload, "target")), bool(number_in(payload, "every")))


def _terms(payload: Payload) -> Terms:
    return tuple((Fraction(one), str(one)) for one in whole_numbers_in(payload, "numbers"))


def _joined(terms: Terms, done: Operation) -> Terms:
    """The numbers, each with the expression that it came from, after an operation."""
    rest = list(terms)
    texts = []
    for number in (done.left, done.right):
        texts.append(next((one for one in rest if one[0] == number), (number, shown(number))))
        rest = [one for at, one in enumerate(rest) if at != (rest.index(texts[-1]) if texts[-1] in rest else -1)]
    return (*rest, (done.result, f"({texts[0][1]} {done.sign} {texts[1][1]})"))


def _expression(terms: Terms, target: Fraction) -> str:
    text = next(text for number, text in reversed(terms) if number == target)
    return text[1:-1] if text.startswith("(") else text


def _all(pool: Pool) -> Iterator[Operation]:
    """All operations on two of the numbers; a sum or product of the same two once."""
    for left, other in dict.fromkeys(permutations(pool.numbers, 2)):
        for sign in "+-*/":
            if (sign == "/" and other == 0) or (sign in "+*" and left < other):
                continue
            yield Operation(left, sign, other, apply(left, sign, other))


@lru_cache(maxsize=200_000)
def _fewest(pool: Pool) -> int | None:
    """The fewest operations to the target; None where it cannot be made."""
    if pool.made:
        return 0
    if len(pool.numbers) == 1:
        return None
    after = (pool.after(one) for one in _all(pool))
    needed = [more for one in dict.fromkeys(after) if one is not None and (more := _fewest(one)) is not None]
    return 1 + min(needed) if needed else None


def _solved(pool: Pool, lines: list[str], terms: Terms) -> list[str] | None:
    left = _fewest(pool)
    if left is None:
        return None
    if left == 0:
        return [*lines, _expression(terms, pool.target)]
    ways = [one for one in _all(pool) if (after := pool.after(one)) is not None and _fewest(after) == left - 1]
    best = min(ways, key=lambda one: (one.result.denominator > 1, one.result < 0))
    return _solved(pool.after(best) or pool, [*lines, _line(best)], _joined(terms, best))


def _anyhow(pool: Pool, terms: Terms) -> list[str]:
    """Goes on to the target if what is left makes it, else takes the two smallest together, and answers with what it has then."""
    solved = _solved(pool, [], terms)
    if solved is not None:
        return solved
    if len(pool.numbers) == 1:
        return [_expression(terms, pool.numbers[0])]
    done = next(_all(pool))
    return [_line(done), *_anyhow(pool.after(done) or pool, _joined(terms, done))]


def _line(done: Operation) -> str:
    return f"{shown(done.left)} {done.sign} {shown(done.right)} = {shown(done.result)}"


def _done(line: str) -> Operation:
    found = _operation(line)
    assert found is not None, line
    return found


def _operation(line: str) -> Operation | None:
    """The one operation of a line, with the result that it says."""
    chains = equations(line)
    if len(chains) != 1 or len(chains[0]) != 2:
        return None
    formula = chains[0][0]
    if not isinstance(formula, Binary) or formula.sign == "^":
        return None
    left, right_ = _operand(formula.left), _operand(formula.right)
    if left is None or right_ is None or (formula.sign == "/" and right_ == 0):
        return None
    try:
        return Operation(left, formula.sign, right_, value(chains[0][1]))
    except ValueError:
        return None


def _operand(side: Formula) -> Fraction | None:
    """A number, or a fraction such as 3/5, which is written as a division."""
    if isinstance(side, Number):
        return side.value
    if isinstance(side, Binary) and side.sign == "/" and isinstance(side.left, Number) and isinstance(side.right, Number):
        return side.left.value / side.right.value if side.right.value else None
    return None


def _advance(pool: Pool, line: str) -> tuple[StepTruth, Pool]:
    found = _operation(line)
    if found is None:
        return (wrong("it holds more than one operation, or none that can be done") if equations(line) else unknown("no equation")), pool
    if apply(found.left, found.sign, found.right) != found.result:
        return wrong(f"{found.left} {found.sign} {found.right} is not {found.result}"), pool
    after = pool.after(found)
    if after is None:
        return wrong(f"{found.left} and {found.right} are not both there: {' '.join(map(str, pool.numbers))}"), pool
    left = _LEFT.search(line)
    if left is not None and sorted(left[1].split()) != sorted(map(str, after.numbers)):
        return wrong(f"left are {' '.join(map(str, after.numbers))}"), pool
    if not reachable(after):
        return wrong(f"{pool.target} can no longer be made"), pool
    return right(), after
