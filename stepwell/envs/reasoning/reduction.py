"""A state machine of calculations: an expression, and which operations on two of its numbers can be done next.

Sums and products have any number of terms, so that whatever order the laws of arithmetic allow is allowed: in 5 + 12 - 6 both `5 + 12` and
`12 - 6` are steps. Several equal places may be done at once or one by one, so the state is the set of all expressions it may have become.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

from stepwell.envs.reasoning.formula import Binary, Formula, Number, Operation, apply, operations, read, value
from stepwell.envs.reasoning.truth import StepTruth, right, unknown, walk, wrong

__all__ = ["Expression", "Many", "equations", "expression", "judge", "next_operation", "reduced", "value_of"]


@dataclass(frozen=True, slots=True)
class Many:
    """A sum (`sign` is `+`) or product (`*`). Each part counts as it is (1), or is taken away or divided by (-1)."""

    sign: str
    parts: tuple[tuple[int, Expression], ...]


Expression = Fraction | Many
States = frozenset[Expression]

_LONGEST = 5000
_INVERSE = {"+": "-", "*": "/"}
_PIECE = re.compile(r"[-+*/^()\d.,%$=×·÷−–\s]*=[-+*/^()\d.,%$=×·÷−–\s]*")


def expression(formula: Formula) -> Expression:
    """The expression of a formula without x and powers."""
    if isinstance(formula, Number):
        return formula.value
    assert isinstance(formula, Binary)
    sign = "+" if formula.sign in "+-" else "*"
    second = -1 if formula.sign in "-/" else 1
    parts: list[tuple[int, Expression]] = []
    for times, side in ((1, expression(formula.left)), (second, expression(formula.right))):
        inner = side.parts if isinstance(side, Many) and side.sign == sign else ((1, side),)
        parts += [(times * one, part) for one, part in inner]
    return Many(sign, tuple(parts))


def value_of(one: Expression) -> Fraction:
    """The value of an expression."""
    if isinstance(one, Fraction):
        return one
    total = Fraction(0 if one.sign == "+" else 1)
    for times, part in one.parts:
        total = apply(total, one.sign if times == 1 else _INVERSE[one.sign], value_of(part))
    return total


def reduced(states: States, done: Operation) -> States:
    """What the expression may be once an operation is done: in one place, or in all; empty where there is no such place."""
    return frozenset(after for one in states for after in _after(one, done))


def judge(start: Expression, lines: Sequence[str]) -> list[StepTruth]:
    """The truth of lines that hold equations such as `3 + 4 = 7`: each must be true, and one or more operations of the expression."""
    return walk(frozenset({start}), lines, _advance)


def equations(line: str) -> list[list[Formula]]:
    """The sides of each chain of equations in a line of text.

    >>> [[str(value(side)) for side in chain] for chain in equations("so 3 + 4 = 7, and 2 * 7 = 14 = 15 - 1.")]
    [['7', '7'], ['14', '14', '14']]
    """
    return [chain for part in line[:_LONGEST].splitlines() for chain in _behind_a_dash(part.strip())]


def _behind_a_dash(line: str) -> list[list[Formula]]:
    """A dash and a space begin an item of a list, or are the sign of a number (tokenizers of words write `- 2`): the sign where that alone
    makes true what stands there."""
    plain = line.removeprefix("- ")
    found = _chains(plain)
    if plain == line or all(map(_holds, found)):
        return found
    signed = _chains(f"-{plain}")
    return signed if signed and all(map(_holds, signed)) else found


def _holds(chain: Sequence[Formula]) -> bool:
    try:
        return len({value(side) for side in chain}) == 1
    except ValueError:
        return False


def _chains(line: str) -> list[list[Formula]]:
    found: list[list[Formula]] = []
    for piece in _PIECE.finditer(line):
        for chain in re.finditer(r"(?:(?![,.](?:\s|$)).)+", piece[0], re.DOTALL):
            balanced = _balanced(chain[0].strip())
            sides = balanced.split("=")
            start = piece.start() + chain.start() + chain[0].find(balanced)
            stop = start + len(balanced)
            first = _outside(sides[0].strip(), line[:start])
            last = len(sides) > 1 and re.match(r"[a-zA-Z(]|\s*[\\{_^!]|\s+[a-zA-Z](?![a-zA-Z])", line[stop:])
            sides = sides[1 if first else 0 : -1 if last else None]
            if len(sides) > 1 and all(side.strip() for side in sides):
                try:
                    found.append([read(side) for side in sides])
                except ValueError:
                    continue
    return found


def _outside(side: str, before: str) -> bool:
    """Whether the first side goes on to the left, in words or letters: the `- 3` of `x - 3 = 7`, the `18` of `a third of 18 = 6`, the `(2)`
    of `f(2) = 7`, the `1` of `a_1 = 7`."""
    near = before.rstrip()[-1:]
    if not side or re.search(r"(?:\\[a-zA-Z]+|\bx)\s*$", before[-20:]) or near in tuple("_\\^|#{!√'"):
        return True
    if not near or not (near.isalnum() or near in ")}]"):
        return False
    return side[0] in "+-*/^" or (side[0] == "(" and before.endswith(near)) or not re.search(r"[-+*/^]", side)


def _balanced(chain: str) -> str:
    """Without a bracket that belongs to the text around: `4 = 4 (` of `4 = 4 (left: 9)`."""
    while chain.endswith("(") or (chain.count("(") < chain.count(")") and chain.endswith(")")):
        chain = chain[:-1].rstrip()
    while chain.startswith(")") or (chain.count("(") > chain.count(")") and chain.startswith("(")):
        chain = chain[1:].lstrip()
    return chain


def next_operation(one: Expression) -> Operation | None:
    """The first operation on two numbers, the innermost and leftmost; None where nothing is left to do."""
    if isinstance(one, Fraction):
        return None
    for _, part in one.parts:
        if (inner := next_operation(part)) is not None:
            return inner
    for (times, left), (other, right_) in permutations(one.parts, 2):
        if isinstance(left, Fraction) and isinstance(right_, Fraction) and (times == 1 or other == -1):
            sign = one.sign if times == other else _INVERSE[one.sign]
            return Operation(left, sign, right_, apply(left, sign, right_))
    return None


def _advance(states: States, line: str) -> tuple[StepTruth, States]:
    chains = equations(line)
    if not chains:
        return unknown("it holds no equation"), states
    for chain in chains:
        try:
            done = [*operations(chain[0])]
            values = [value(side) for side in chain]
        except ValueError as error:
            return wrong(str(error)), states
        if len(set(values)) > 1:
            return wrong(f"it says {' = '.join(map(str, values))}"), states
        if not done:
            return unknown("nothing is calculated in it"), states
        for operation in done:
            states = reduced(states, operation)
            if not states:
                return wrong(f"{operation.left} {operation.sign} {operation.right} is no operation that is left to do"), states
    return right(), states


def _after(one: Expression, done: Operation) -> Iterator[Expression]:
    if isinstance(one, Fraction):
        return
    inside: dict[int, Expression] = {}
    for at, (times, part) in enumerate(one.parts):
        for made in _after(part, done):
            inside[at] = made
            yield _many(one.sign, (*one.parts[:at], (times, made), *one.parts[at + 1 :]))
    if len(inside) > 1:
        yield _many(one.sign, tuple((times, inside.get(at, part)) for at, (times, part) in enumerate(one.parts)))
    for at, other in permutations(range(len(one.parts)), 2):
        (times, left), (second, right_) = one.parts[at], one.parts[other]
        sign = one.sign if times == second else _INVERSE[one.sign]
        if (left, sign, right_) == (done.left, done.sign, done.right):
            for everywhere in ({}, inside):
                rest = [(how, everywhere.get(place, part)) for place, (how, part) in enumerate(one.parts)]
                rest[at] = (times, done.result)
                del rest[other]
                yield _many(one.sign, tuple(rest))


def _many(sign: str, parts: tuple[tuple[int, Expression], ...]) -> Expression:
    """A sum or product of these parts: parts of the same kind are joined, and a single number is a number."""
    flat: list[tuple[int, Expression]] = []
    for times, part in parts:
        flat += [(times * one, inner) for one, inner in part.parts] if isinstance(part, Many) and part.sign == sign else [(times, part)]
    if len(flat) == 1:
        times, only = flat[0]
        if times == 1:
            return only
        if isinstance(only, Fraction) and (sign == "+" or only):
            return -only if sign == "+" else 1 / only
    return Many(sign, tuple(flat))
