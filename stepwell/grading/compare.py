r"""Whether two formulas say the same: math-verify, and what it misses. Runs in a worker process (`stepwell.grading.worker`), never in ours.

After math-verify 0.9 has said no, right is also:

- expressions that are the same real function: at random points both are real and agree, or neither is real (sqrt(1/n) and 1/sqrt(n),
  but not ln(x^2) and 2 ln x, nor |x| and x);
- equations of which one is the other times a constant;
- lists, tuples and sets whose parts are the same, one by one.

And where it says yes, wrong is nevertheless: a tuple for a set (order counts in one alone); an equation between two different numbers
(`41=42` hedges), or of something with itself (`x=x` says nothing).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from stepwell.grading.numbers import read_number
from stepwell.grading.split import Parts, split

if TYPE_CHECKING:
    from sympy import Basic, Expr

__all__ = ["Answer", "Outcome", "compare", "warm"]

Outcome = Literal["same", "different", "gold unread", "answer unread"]
_POINTS = 12
_NEEDED = 4
_DIGITS = 30


class Answer(NamedTuple):
    """A formula: as it was written, and tidied."""

    written: str
    tidy: str


def warm() -> None:
    """Imports sympy and math-verify, and builds their parsers: two seconds once, which no answer should pay for."""
    compare(Answer(r"\frac{1}{2}x", r"\frac{1}{2}x"), Answer("x/2", "x/2"))


def compare(gold: Answer, answer: Answer) -> Outcome:
    """Whether the answer is the gold answer. The order matters where math-verify makes it matter: see its documentation."""
    if not _readable(gold):
        return "gold unread"
    if not _readable(answer):
        return "answer unread"
    return "same" if _same(gold, answer) else "different"


def _same(gold: Answer, answer: Answer) -> bool:
    kinds = split(gold.tidy), split(answer.tidy)
    if {kinds[0].kind, kinds[1].kind} == {"tuple", "set"} or _hedges(gold, answer):
        return False
    if _verified(gold, answer):
        return True
    if len(kinds[0].parts) > 1 or len(kinds[1].parts) > 1:
        return _parts_same(*kinds)
    return any(_alike(one, other) for one in _parsed(gold) for other in _parsed(answer))


def _parts_same(gold: Parts, answer: Parts) -> bool:
    """Parts one by one: in order where one of the two is a tuple, else in any order, each used once."""
    brackets_differ = (gold.open, gold.close) != (answer.open, answer.close) and "list" not in (gold.kind, answer.kind)
    if len(gold.parts) != len(answer.parts) or brackets_differ:
        return False
    wanted, left = [Answer(part, part) for part in gold.parts], [Answer(part, part) for part in answer.parts]
    if not all(_readable(part) for part in (*wanted, *left)):
        return False
    if "tuple" in (gold.kind, answer.kind) or gold.kind == "interval":
        return all(_same(one, other) for one, other in zip(wanted, left, strict=True))
    for part in wanted:
        found = next((other for other in left if _same(part, other)), None)
        if found is None:
            return False
        left.remove(found)
    return True


# -- by math-verify -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _read(text: str) -> tuple[Basic, ...]:
    from math_verify import parse
    from math_verify.parser import LatexExtractionConfig

    found = parse(f"\\boxed{{{text}}}", [LatexExtractionConfig(boxed_match_priority=0)], parsing_timeout=None)
    return tuple(one for one in found if not isinstance(one, str))


def _parsed(answer: Answer) -> tuple[Basic, ...]:
    """The formulas that math-verify reads in it: tidied, or else as it was written."""
    return _read(answer.tidy) or _read(answer.written)


def _readable(answer: Answer) -> bool:
    return read_number(answer.tidy) is not None or bool(_parsed(answer))


def _verified(gold: Answer, answer: Answer) -> bool:
    from math_verify import verify

    numbers = read_number(gold.tidy), read_number(answer.tidy)
    if numbers[0] is not None and numbers[1] is not None:
        return numbers[0] == numbers[1]
    return bool(verify(list(_parsed(gold)), list(_parsed(answer)), allow_set_relation_comp=True, timeout_seconds=None))


# -- what it misses -----------------------------------------------------------------------------------------------------------


def _hedges(gold: Answer, answer: Answer) -> bool:
    """Whether an answer names two numbers with a sign of equality between, or one thing twice, where the gold answer is no equation."""
    sides = answer.tidy.split("=")
    values = {read_number(side) for side in sides} - {None}
    return len(sides) > 1 and "=" not in gold.tidy and (len(values) > 1 or len(set(sides)) == 1)


def _alike(one: Basic, other: Basic) -> bool:
    from sympy import Eq, Expr

    if isinstance(one, Eq) and isinstance(other, Eq):
        ratios = _ratios(one.lhs - one.rhs, other.lhs - other.rhs)
        return len(ratios) >= _NEEDED and all(abs(ratio) > 1e-9 and abs(ratio - ratios[0]) <= 1e-12 * abs(ratio) for ratio in ratios)
    if isinstance(one, Expr) and isinstance(other, Expr) and one.free_symbols == other.free_symbols and one.free_symbols:
        return _same_function(one, other)
    return False


def _same_function(one: Expr, other: Expr) -> bool:
    agreed = 0
    for first, second in _values(one, other):
        real = [abs(value.imag) <= 1e-12 * (1 + abs(value)) for value in (first, second)]
        if real[0] != real[1]:
            return False
        if real[0]:
            if abs(first - second) > 1e-9 * (1 + abs(first)):
                return False
            agreed += 1
    return agreed >= _NEEDED


def _ratios(one: Expr, other: Expr) -> Sequence[complex]:
    if one.free_symbols != other.free_symbols:
        return []
    return [first / second for first, second in _values(one, other) if abs(second) > 1e-9]


def _values(one: Expr, other: Expr) -> Sequence[tuple[complex, complex]]:
    """The values of both at random points, of both signs, where both have one. The same points for the same formulas."""
    draws = random.Random(0)
    symbols = sorted(one.free_symbols, key=str)
    found = []
    for _ in range(_POINTS):
        point = {symbol: draws.choice((-1, 1, 1)) * draws.uniform(0.3, 4.0) for symbol in symbols}
        try:
            found.append((complex(one.evalf(_DIGITS, subs=point)), complex(other.evalf(_DIGITS, subs=point))))
        except (TypeError, ValueError, ZeroDivisionError, OverflowError):
            continue
    return [pair for pair in found if all(abs(value) < 1e100 for value in pair)]
