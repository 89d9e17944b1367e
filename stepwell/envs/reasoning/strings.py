"""Rules that change a string, applied one after the other: the string after each rule is a line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from stepwell.envs.reasoning.family import Axes, Payload, as_written, text_in
from stepwell.envs.reasoning.truth import StepTruth, right, unknown, walk, wrong
from stepwell.errors import DataError
from stepwell.types import JSON

__all__ = ["Strings", "change"]

_LETTERS = "abcdefgh"
_RULES = ("reverse", "swap the first two", "first to the end", "last to the front", "double the last", "drop the first", "sort")
_REPLACE = re.compile(r"replace (\w) by (\w)")
_LINE = re.compile(r"[a-h](?:\s*[a-h])*|none")


def change(rule: str, letters: str) -> str:
    """What a rule makes of a string.

    Raises:
        DataError: There is no such rule.

    >>> [change(rule, "cab") for rule in ("reverse", "first to the end", "double the last", "sort", "replace a by b")]
    ['bac', 'abc', 'cabb', 'abc', 'cbb']
    """
    made = {
        "reverse": letters[::-1],
        "swap the first two": letters[1:2] + letters[:1] + letters[2:],
        "first to the end": letters[1:] + letters[:1],
        "last to the front": letters[-1:] + letters[:-1],
        "double the last": letters + letters[-1:],
        "drop the first": letters[1:],
        "sort": "".join(sorted(letters)),
    }
    if found := _REPLACE.fullmatch(rule):
        return letters.replace(found[1], found[2])
    if rule not in made:
        raise DataError(f"There is no rule {rule!r}; known are {', '.join(made)}, and replace a by b.")
    return made[rule]


class Strings:
    """A string and a list of rules. Line k is right if it is what rule k makes of the string before it.

    Letters are written apart (`b a c`), so that each is a token; spaces say nothing.
    """

    name = "strings"
    axes: Mapping[str, tuple[int, int]] = {"rules": (1, 7), "letters": (3, 8)}

    def draw(self, axes: Axes, rng: np.random.Generator) -> dict[str, JSON]:
        """So many letters and rules."""
        letters = "".join(rng.choice(list(_LETTERS), axes["letters"]))
        rules: list[JSON] = []
        now = letters
        for _ in range(axes["rules"]):
            rule = str(rng.choice(_RULES))
            if rng.random() < 0.2:
                rule = f"replace {rng.choice(sorted(set(now)))} by {rng.choice(list(_LETTERS))}"
            if rule == "drop the first" and len(now) < 3:
                rule = "double the last"
            now = change(rule, now)
            rules.append(rule)
        return {"letters": letters, "rules": rules}

    def ask(self, payload: Payload) -> str:
        rules = "; ".join(f"{number}. {rule}" for number, rule in enumerate(_rules(payload), 1))
        return f"start with {_apart(text_in(payload, 'letters'))}. apply: {rules}. write the letters after each rule"

    def solve(self, payload: Payload) -> list[str]:
        return _lines(text_in(payload, "letters"), _rules(payload))

    def slip(self, payload: Payload, at: int, rng: np.random.Generator) -> list[str]:
        """Another rule than the one asked for, a letter too few, or two letters in each other's place."""
        rules = _rules(payload)
        before = [line.replace(" ", "") for line in self.solve(payload)[:at]]
        now = before[-1] if before else text_in(payload, "letters")
        todo = change(rules[at], now)
        while True:
            kind = int(rng.integers(3))
            where = int(rng.integers(len(todo)))
            if kind == 0:
                said = change(str(rng.choice(_RULES)), now)
            elif kind == 1:
                said = todo[:where] + todo[where + 1 :]
            else:
                said = todo[:where] + todo[where + 1 : where + 2] + todo[where : where + 1] + todo[where + 2 :]
            if said and said != todo:
                return [*map(_apart, before), _apart(said), *_lines(said, rules[at + 1 :])]

    def judge(self, payload: Payload, lines: Sequence[str]) -> list[StepTruth]:
        rules = _rules(payload)

        def advance(state: tuple[str, int], line: str) -> tuple[StepTruth, tuple[str, int]]:
            letters, number = state
            said = _letters(line)
            if said is None:
                return unknown("it is no list of letters"), state
            if number == len(rules):
                return (right() if said == letters else wrong("all rules have been applied")), state
            after = change(rules[number], letters)
            if said != after:
                return wrong(f"{rules[number]} makes {_apart(after)} of {_apart(letters)}"), state
            return right(), (after, number + 1)

        return walk((text_in(payload, "letters"), 0), lines, advance)

    def answers(self, payload: Payload, answer: str) -> bool:
        return _letters(answer) == self.solve(payload)[-1].replace(" ", "")

    def meaning(self, payload: Payload, answer: str) -> str:
        letters = _letters(answer)
        return as_written(answer) if letters is None else letters

    def shortcut(self, payload: Payload) -> str:
        """Applies each rule once, however often it is asked for, and at most three in all."""
        rules = list(dict.fromkeys(_rules(payload)))[:3]
        return _lines(text_in(payload, "letters"), rules)[-1]

    def possible(self, payload: Payload, lines: Sequence[str]) -> tuple[str, ...] | None:
        return None


def _rules(payload: Payload) -> list[str]:
    found = payload.get("rules")
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise DataError(f"The payload of a reasoning task has rules = {found!r:.60}; it must be a list of texts.")
    return [str(rule) for rule in found]


def _apart(letters: str) -> str:
    return " ".join(letters) or "none"


def _letters(line: str) -> str | None:
    """The letters of a line, behind a colon where there is one; None where there are words."""
    said = line.lower().rpartition(":")[2].strip().rstrip(".")
    if not _LINE.fullmatch(said):
        return None
    together = "".join(said.split())
    return "" if together == "none" else together


def _lines(letters: str, rules: Sequence[str]) -> list[str]:
    """The letters after each rule, and once more as the answer."""
    lines = []
    for rule in rules:
        letters = change(rule, letters)
        lines.append(_apart(letters))
    return [*lines, _apart(letters)]
