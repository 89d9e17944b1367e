r"""Written solutions of others, such as GSM8K's and MATH's references or a model's: their equations in numbers are checked, step by step.

A step with an equation that does not hold is wrong; one whose equations all hold is right as far as that goes; one without an equation in
numbers is unknown. How sure each is was measured on labelled steps (`RIGHT`, `WRONG`; see docs/concepts/reasoning.md for the command).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from stepwell.envs.reasoning.formula import Formula, value
from stepwell.envs.reasoning.marks import marked
from stepwell.envs.reasoning.reduction import equations
from stepwell.envs.reasoning.truth import StepTruth, right, unknown, wrong

__all__ = ["RIGHT", "WRONG", "judge_text", "plain_formulas", "steps_of"]

RIGHT = 0.86
"""How likely a step whose equations all hold is right."""
WRONG = 0.9
"""How likely a step with an equation that does not hold is wrong."""

_FRAC = re.compile(r"\\[dt]?frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\d))")
_MIXED = re.compile(r"(?<![\d.)])(\d+) ?\\[dt]?frac\{(\d+)\}\{(\d+)\}(?! *\\frac)")
_POWER = re.compile(r"\^\{([^{}]*)\}")
_SIGNS = {r"\cdot": "*", r"\times": "*", r"\div": "/", r"\left": "", r"\right": "", r"\%": "%", r"\$": "", r"\,": "", r"\!": "", "&": ""}
_SIGNS |= {r"\(": "", r"\)": "", r"\[": "\n", r"\]": "\n", "{,}": "", r"\text{": " {", r"\quad": " "}
_TIMES = re.compile(r"(?<=[\d)]) ?x ?(?=[\d(.])")
_MOST_TENTHS = 8


def judge_text(steps: Sequence[str]) -> list[StepTruth]:
    """What is known of each step of a written solution, each by itself.

    >>> [one.truth.value for one in judge_text(["3 * 4 = <<3*4=12>>12", "so it is 12 - 5 = 8", "thus he wins"])]
    ['right', 'wrong', 'unknown']
    """
    return [_judged(step) for step in steps]


def steps_of(solution: str) -> list[str]:
    """The steps of a reference solution: its lines (GSM8K), without the line of the answer; of one line its sentences (MATH)."""
    lines = [line.strip() for line in solution.splitlines() if line.strip() and not line.startswith("####")]
    return lines if len(lines) > 1 else [one for one in re.split(r"(?<=[.!?])\s+(?=[A-Z$])", solution.strip()) if one]


def plain_formulas(text: str) -> str:
    r"""LaTeX of arithmetic as plain signs.

    >>> plain_formulas(r"$\frac{1}{2}\cdot 6^{2}$")
    '((1)/(2))* 6^(2)'
    """
    for sign, plain in _SIGNS.items():
        text = re.sub(re.escape(sign) + r"(?![a-zA-Z])", plain, text) if sign[-1].isalpha() else text.replace(sign, plain)
    text = _MIXED.sub(r"(\1+(\2)/(\3))", text)
    for _ in range(3):
        text = _FRAC.sub(lambda found: f"(({found[1] or found[2]})/({found[3] or found[4]}))", text)
        text = _POWER.sub(r"^(\1)", text)
    return _TIMES.sub("*", text.replace("$", ""))


def _judged(step: str) -> StepTruth:
    made = marked(step)
    chains: list[list[Formula]] = [list(pair) for pair in made.formulas] + equations(plain_formulas(made.bare))
    rounded, held = "", 0
    for chain in chains:
        try:
            values = [value(side) for side in chain]
        except ValueError:
            continue
        for before, after in pairwise(values):
            if before != after and not _rounds(before, after):
                if after.denominator == 1 and abs(before - after) < 1 and before.denominator > 1:
                    rounded = f"{before} = {after} may be rounded"
                    continue
                if before in (100 * after, after / 100) and ("%" in step or "percent" in step):
                    rounded = f"{before} = {after} may be a percentage"
                    continue
                return wrong(f"it says {before} = {after}", WRONG)
            held += 1
    if rounded:
        return unknown(rounded)
    if made.differs is not None:
        return wrong(f"behind the mark {made.differs[0]!r} stands {made.differs[1]}", WRONG)
    return right(RIGHT) if held else unknown("it holds no equation in numbers")


def _rounds(exact: Fraction, said: Fraction) -> bool:
    """Whether `said` is a decimal that `exact` rounds to, or is cut to."""
    for tenths in range(1, _MOST_TENTHS):
        if (said * 10**tenths).denominator == 1:
            return abs(exact - said) < Fraction(1, 10**tenths) and said.denominator > 1
    return False
