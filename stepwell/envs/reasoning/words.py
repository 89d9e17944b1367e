"""Word problems with solutions in GSM8K's form: `3 * 4 = <<3*4=12>> 12 apples`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from stepwell.envs.reasoning.calculation import Calculation, calculate, same_number, shown, which_number
from stepwell.envs.reasoning.family import Axes, Payload, as_written, text_in
from stepwell.envs.reasoning.formula import read, value, write
from stepwell.envs.reasoning.marks import marked
from stepwell.envs.reasoning.reduction import Expression, equations, expression, judge
from stepwell.envs.reasoning.truth import StepTruth, Truth, wrong
from stepwell.types import JSON

__all__ = ["Words"]

_NAMES = ("tom", "ann", "sam", "mia", "leo", "eva", "max", "zoe")
_THINGS = ("apples", "books", "coins", "cards", "shells", "stamps", "pens", "nuts")
_BAGS = ("bags", "boxes", "packs")
_OTHERS = ("brother", "sister", "friend")


class Words:
    """Stories of somebody who has some things, gets, buys, gives and shares, and about others' things that are not asked for.

    A line is right if its marks hold and are operations that are left to do for the answer, in any order that the laws of arithmetic
    allow, and if the numbers in its words are those of its marks. A line without marks is read by its equations.
    """

    name = "words"
    axes: Mapping[str, tuple[int, int]] = {"events": (1, 5), "largest": (9, 40), "others": (0, 2)}

    def draw(self, axes: Axes, rng: np.random.Generator) -> dict[str, JSON]:
        """So many events with numbers up to the largest, and so many sentences that say nothing about what is asked."""
        name, thing = str(rng.choice(_NAMES)), str(rng.choice(_THINGS))
        start = int(rng.integers(2, axes["largest"] + 1))
        sentences, formula = [f"{name} has {start} {thing}."], str(start)
        for _ in range(axes["events"]):
            sentence, formula = _event(formula, thing, axes["largest"], rng)
            sentences.append(f"{name} {sentence}.")
        for other in rng.permutation(_OTHERS)[: axes["others"]]:
            number = int(rng.integers(2, axes["largest"] + 1))
            sentences.insert(int(rng.integers(1, len(sentences) + 1)), f"{name}'s {other} has {number} {thing}.")
        story = " ".join([*sentences, f"how many {thing} does {name} have now?"])
        return {"story": story, "thing": thing, "formula": write(read(formula))}

    def ask(self, payload: Payload) -> str:
        return text_in(payload, "story")

    def solve(self, payload: Payload) -> list[str]:
        return _lines(payload, calculate(_start(payload)))

    def slip(self, payload: Payload, at: int, rng: np.random.Generator) -> list[str]:
        return _lines(payload, calculate(_start(payload), at, rng))

    def judge(self, payload: Payload, lines: Sequence[str]) -> list[StepTruth]:
        found = judge(_start(payload), [_calculated(line) for line in lines])
        for at, (line, truth) in enumerate(zip(lines, found, strict=True)):
            fault = _fault(line) if truth.truth is not Truth.WRONG else ""
            if fault:
                return [*found[:at], wrong(fault), *judge(Fraction(0), ["0 = 1", *lines[at + 1 :]])[1:]]
        return found

    def answers(self, payload: Payload, answer: str) -> bool:
        return same_number(answer.replace(text_in(payload, "thing"), ""), value(read(text_in(payload, "formula"))))

    def meaning(self, payload: Payload, answer: str) -> str:
        number = which_number(answer.replace(text_in(payload, "thing"), ""))
        return as_written(answer) if number is None else str(number)

    def shortcut(self, payload: Payload) -> str:
        """Adds up all numbers of the story."""
        words = text_in(payload, "story").replace(".", " ").split()
        return str(sum(int(word) for word in words if word.isdigit()))

    def possible(self, payload: Payload, lines: Sequence[str]) -> tuple[str, ...] | None:
        return None


def _event(formula: str, thing: str, largest: int, rng: np.random.Generator) -> tuple[str, str]:
    """What happens, and the formula of what somebody has then."""
    has = value(read(formula))
    number = int(rng.integers(2, largest + 1))
    divisors = [one for one in range(2, 6) if has % one == 0 and has > one]
    kind = int(rng.integers(5))
    if kind == 0 and has > 3:
        given = int(rng.integers(1, min(int(has), largest)))
        return f"gives away {given} {thing}", f"{formula} - {given}"
    if kind == 1:
        bags, each = int(rng.integers(2, 7)), int(rng.integers(2, 10))
        return f"buys {bags} {rng.choice(_BAGS)} of {each} {thing} each", f"{formula} + {bags} * {each}"
    if kind == 2 and divisors:
        parts = int(rng.choice(divisors))
        return f"makes {parts} equal piles of all of them and keeps 1 pile", f"({formula}) / {parts}"
    if kind == 3 and has <= 3 * largest:
        times = int(rng.integers(2, 4))
        return f"wins until there are {times} times as many", f"({formula}) * {times}"
    return f"gets {number} more {thing}", f"{formula} + {number}"


def _start(payload: Payload) -> Expression:
    return expression(read(text_in(payload, "formula")))


def _lines(payload: Payload, done: Calculation) -> list[str]:
    lines = []
    for one in done.operations:
        left, result = f"{shown(one.left)} {one.sign} {shown(one.right)}", shown(one.result)
        lines.append(f"{left} = <<{left.replace(' ', '')}={result}>> {result} {text_in(payload, 'thing')}")
    return [*lines, shown(done.value)]


def _calculated(line: str) -> str:
    """The marks of a line as equations; the line itself where it has none."""
    made = marked(line)
    return ", ".join(f"{write(left)} = {write(result)}" for left, result in made.formulas) or line


def _fault(line: str) -> str:
    """What is wrong with a line whose marks are right: a mark that says nothing, or words that say something else."""
    made = marked(line)
    if made.unread:
        return f"the mark {made.unread[0]!r} is no equation"
    if made.differs is not None:
        return f"behind the mark {made.differs[0]!r} stands {made.differs[1]}"
    for chain in equations(made.bare) if made.formulas else []:
        try:
            if len({value(side) for side in chain}) > 1:
                return "its words say another equation than its marks"
        except ValueError as error:
            return str(error)
    return ""
