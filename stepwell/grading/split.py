"""A formula in its parts: lists, tuples, sets and intervals, by the commas that stand in no bracket."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Parts", "split"]

_OPEN, _CLOSE = "([{", ")]}"


class Parts(NamedTuple):
    """The parts of a formula, what holds them together, and its brackets as written ("" where there are none)."""

    kind: Literal["list", "tuple", "set", "interval", "one"]
    parts: tuple[str, ...]
    open: str = ""
    close: str = ""


def split(text: str) -> Parts:
    r"""The parts of a tidied formula. Round brackets make a tuple, square or mixed ones around two parts an interval.

    >>> split("(3,4)").parts, split(r"\{1,2\}").kind, split("1,f(2,3)").parts, split("[0,1)").kind, split("x+1").kind
    (('3', '4'), 'set', ('1', 'f(2,3)'), 'interval', 'one')
    """
    if text.startswith("\\{") and text.endswith("\\}"):
        return Parts("set", _commas(text[2:-2]), "{", "}")
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and _closes_last(text):
        parts = _commas(text[1:-1])
        if len(parts) > 1:
            mixed = (text[0], text[-1]) != ("(", ")")
            return Parts("interval" if mixed and len(parts) == 2 else "tuple", parts, text[0], text[-1])
    parts = _commas(text)
    return Parts("list" if len(parts) > 1 else "one", parts)


def _closes_last(text: str) -> bool:
    """Whether the bracket that the text begins with is closed by its last letter and by none before."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if depth == 0:
            return at == len(text) - 1
    return False


def _commas(text: str) -> tuple[str, ...]:
    parts, start, depth = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return tuple(part for part in parts if part)
