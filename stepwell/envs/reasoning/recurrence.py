"""A recurrence modulo a number: each line multiplies what the line before it found, so that one wrong line spoils all that follow."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from stepwell.envs.reasoning.family import Axes, Payload, as_written, number_in
from stepwell.envs.reasoning.truth import StepTruth, right, unknown, walk, wrong
from stepwell.errors import DataError
from stepwell.types import JSON

__all__ = ["Recurrence"]

_LINE = re.compile(r"(\d{1,6}) \* (\d{1,6}) = (\d{1,6})")
_TEMPTING = 3


class Recurrence:
    """`x` is multiplied by a factor modulo a number, a number of times. Line k is right if it is the k-th product.

    A line holds all that the next one needs but the number of lines, and the next is a function of it alone. The factor has no divisor in
    common with the modulus, so that a move maps no two residues to one: a path that has gone wrong never meets the right one again, unless
    a second mistake undoes the first. Longer tasks are therefore solved less often, whoever solves them.

    >>> rng = np.random.default_rng(0)
    >>> task = Recurrence().draw({"moves": 2, "modulus": 11, "factors": 2}, rng)
    >>> Recurrence().ask(task)
    'x is 7. 2 times, x becomes 3 * x modulo 11. write each line'
    >>> Recurrence().solve(task)
    ['3 * 7 = 10', '3 * 10 = 8', '8']
    """

    name = "recurrence"
    axes: Mapping[str, tuple[int, int]] = {"moves": (2, 12), "modulus": (11, 97), "factors": (2, 8)}

    def draw(self, axes: Axes, rng: np.random.Generator) -> dict[str, JSON]:
        """One of the smallest factors that can be undone, and a start that the factor moves."""
        modulus = axes["modulus"]
        factors = [one for one in range(2, modulus) if math.gcd(one, modulus) == 1][: axes["factors"]]
        factor = int(rng.choice(factors))
        starts = [x for x in range(1, modulus) if factor * x % modulus != x]
        return {"start": int(rng.choice(starts)), "factor": factor, "modulus": modulus, "moves": axes["moves"]}

    def ask(self, payload: Payload) -> str:
        start, factor, modulus, moves = _read(payload)
        return f"x is {start}. {moves} times, x becomes {factor} * x modulo {modulus}. write each line"

    def solve(self, payload: Payload) -> list[str]:
        return self.stumble(payload, (), np.random.default_rng(0))

    def slip(self, payload: Payload, at: int, rng: np.random.Generator) -> list[str]:
        """The line finds another residue; what follows goes on from there."""
        return self.stumble(payload, (at,), rng)

    def stumble(self, payload: Payload, at: Collection[int], rng: np.random.Generator) -> list[str]:
        """The same with any number of lines wrong."""
        now, factor, modulus, moves = _read(payload)
        lines = []
        for number in range(moves):
            found = factor * now % modulus
            if number in at:
                found = int(rng.choice([other for other in range(1, modulus) if other not in (now, found)]))
            lines.append(f"{factor} * {now} = {found}")
            now = found
        return [*lines, str(now)]

    def judge(self, payload: Payload, lines: Sequence[str]) -> list[StepTruth]:
        start, factor, modulus, moves = _read(payload)

        def advance(state: tuple[int, int], line: str) -> tuple[StepTruth, tuple[int, int]]:
            now, made = state
            said = _LINE.fullmatch(as_written(line))
            if said is None:
                return unknown("it is no line of this task"), state
            if made == moves:
                return wrong("x has been multiplied as often as is asked"), state
            found = factor * now % modulus
            if tuple(int(one) for one in said.groups()) != (factor, now, found):
                return wrong(f"the line is {factor} * {now} = {found}"), state
            return right(), (found, made + 1)

        return walk((start, 0), lines, advance)

    def answers(self, payload: Payload, answer: str) -> bool:
        return self.meaning(payload, answer) == self.solve(payload)[-1]

    def meaning(self, payload: Payload, answer: str) -> str:
        return as_written(answer).removeprefix("x =").strip().rstrip(".")

    def shortcut(self, payload: Payload) -> str:
        """Multiplies three times at most."""
        return self.solve({**payload, "moves": min(_TEMPTING, number_in(payload, "moves"))})[-1]

    def possible(self, payload: Payload, lines: Sequence[str]) -> tuple[str, ...] | None:
        return None


def _read(payload: Payload) -> tuple[int, int, int, int]:
    """Start, factor, modulus, moves."""
    start, factor, modulus, moves = (number_in(payload, key) for key in ("start", "factor", "modulus", "moves"))
    if not (0 <= start < modulus and moves >= 1 and math.gcd(factor, modulus) == 1):
        raise DataError(
            f"The payload of a recurrence has start {start}, factor {factor}, modulus {modulus} and {moves} moves; the start must be below "
            "the modulus, the factor without a common divisor with it, and there must be a move."
        )
    return start, factor, modulus, moves
