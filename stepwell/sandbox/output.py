"""Outputs of programs compared as judges of contests compare them."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

__all__ = ["same_output"]

_MOST_DIGITS = 1000


def same_output(expected: str, got: str) -> bool:
    """Whether both have the same lines, or the same numbers in them: LiveCodeBench's rule.

    White space around the whole and around each line does not count. Two lines differ unless they are equal, or have as many words,
    each a decimal number of the same value.

    >>> same_output("1 2\\n3.50", "1.0 2 \\n 3.5\\n")
    True
    >>> same_output("1 2", "1\\n2")
    False
    """
    lines = [[line.strip() for line in text.strip().split("\n")] for text in (expected, got)]
    return len(lines[0]) == len(lines[1]) and all(map(_same_line, *lines))


def _same_line(expected: str, got: str) -> bool:
    if expected == got:
        return True
    wanted, words = expected.split(), got.split()
    if len(wanted) != len(words):
        return False
    return all(_same_number(*pair) for pair in zip(wanted, words, strict=True))


def _same_number(expected: str, got: str) -> bool:
    if max(len(expected), len(got)) > _MOST_DIGITS:
        return False
    try:
        numbers = Decimal(expected), Decimal(got)
    except InvalidOperation:
        return False
    return all(number.is_finite() for number in numbers) and numbers[0] == numbers[1]
