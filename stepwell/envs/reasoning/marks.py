"""The marks of GSM8K: `3 * 4 = <<3*4=12>> 12 apples`."""

from __future__ import annotations

import re
from typing import NamedTuple

from stepwell.envs.reasoning.formula import Formula, read

__all__ = ["Marked", "marked"]

_MARK = re.compile(r"<\s*<(.*?)>\s*>")
_NEXT = re.compile(r"\s*\$?\s*(-?[\d,]*\.?\d+(?:/\d+)?)")


class Marked(NamedTuple):
    """A line with marks.

    Attributes:
        formulas: The two sides of each mark that can be read.
        unread: The marks that cannot.
        bare: The line without its marks.
        differs: The first mark behind which another number stands than the one in it, and that number.
    """

    formulas: list[tuple[Formula, Formula]]
    unread: list[str]
    bare: str
    differs: tuple[str, str] | None


def marked(line: str) -> Marked:
    """A line, taken apart.

    >>> made = marked("he buys 3 * 4 = <<3*4=12>> 12 apples")
    >>> made.bare, len(made.formulas), made.differs
    ('he buys 3 * 4 =  12 apples', 1, None)
    """
    formulas, unread, differs = [], [], None
    for mark in _MARK.finditer(line):
        left, _, result = mark[1].rpartition("=")
        try:
            formulas.append((read(left), read(result)))
        except ValueError:
            unread.append(mark[1])
        behind = _NEXT.match(line, mark.end())
        if behind is not None and differs is None and _plain(behind[1]) != _plain(result):
            differs = mark[1], behind[1]
    return Marked(formulas, unread, _MARK.sub("", line), differs)


def _plain(number: str) -> str:
    text = number.replace(",", "").replace("$", "").strip()
    return text.rstrip("0").rstrip(".") if "." in text else text
