r"""Where in a text the answer stands. Every search is linear in the length of the text, whatever the text is.

Two rules, `boxed` for training and `any` for measuring:

- `boxed`: the last `\boxed{...}` (or `\fbox{...}`) whose braces balance. Nothing else counts, so that a guess in passing pays nothing.
  Boxes side by side, joined by no more than a comma, "and" or "or", are one answer of several parts: `\boxed{1}, \boxed{2}` is `1, 2`.
- `any`: that; else what follows the last `####`; else what follows the last "answer is" or "answer:"; else the last formula of the last
  line that has one; else the last number.
"""

from __future__ import annotations

import re

from stepwell.grading.kinds import Reads
from stepwell.grading.numbers import last_number

__all__ = ["boxed", "extract", "said"]

_TOKEN = re.compile(r"\\(?:boxed|fbox)\s*\{|\\boxed\s+(?=[^\s{])|\\.|[{}]", re.DOTALL)
_BARE = re.compile(r"\S+?(?=[\s.,$]|$)")
_JOINT = re.compile(r"(?:\s|\$|\\\(|\\\)|\\\[|\\\]|,|\\,|\\;|\\quad|\band\b|\bor\b|\\text\s*\{\s*(?:and|or)\s*\})*")
_SAID = re.compile(r"(?:answer|result)\b[*_ ]*(?:is|are|:|=)[*_: ]*", re.IGNORECASE)
_FORMULA = re.compile(r"\$\$([^$]{1,2000})\$\$|\$([^$\n]{1,2000})\$|\\\(([^\n]{1,2000}?)\\\)|\\\[(.{1,2000}?)\\\]", re.DOTALL)
_SENTENCE_END = re.compile(r"[.;]\s+(?=[A-Z])|\n")
_LONGEST_LINE = 2000


def extract(text: str, reads: Reads) -> str | None:
    r"""What the text gives as its answer, or None.

    >>> extract("maybe 41, maybe 42", "boxed") is None, extract("so \\fbox{42}.", "boxed"), extract("#### -3", "any")
    (True, '42', '-3')
    """
    found = boxed(text)
    if found is None and reads == "any":
        found = _marked(text) or said(text) or _formula(text) or last_number(text)
    return found


def boxed(text: str) -> str | None:
    r"""The content of the last box, or of the last boxes that stand side by side; None where no box is closed.

    >>> boxed(r"\boxed{\frac{1}{2}}"), boxed(r"\boxed{1} and so \boxed{1}"), boxed(r"$\boxed{1}$ or $\boxed{2}$"), boxed(r"\boxed{4")
    ('\\frac{1}{2}', '1', '1, 2', None)
    """
    boxes = _boxes(text)
    if not boxes:
        return None
    parts = [boxes[-1]]
    for before in reversed(boxes[:-1]):
        between = text[before[1] : parts[-1][0]]
        if len(between) > 40 or not _JOINT.fullmatch(between):
            break
        parts.append(before)
    contents = list(dict.fromkeys(_inner(text[start:stop]) for start, stop in reversed(parts)))
    return ", ".join(part for part in contents if part) or None


def _boxes(text: str) -> list[tuple[int, int]]:
    """Start and stop of the closed boxes that lie in no other closed box, in order."""
    opened: list[int | None] = []
    closed: list[tuple[int, int]] = []
    for token in _TOKEN.finditer(text):
        kind = token[0]
        if kind == "{":
            opened.append(None)
        elif kind == "}":
            start = opened.pop() if opened else None
            if start is not None:
                while closed and closed[-1][0] > start:
                    closed.pop()
                closed.append((start, token.end()))
        elif kind.endswith("{") and len(kind) > 2:
            opened.append(token.start())
        elif kind.startswith("\\boxed") and (bare := _BARE.match(text, token.end())):
            closed.append((token.start(), bare.end()))
    return closed


def _inner(box: str) -> str:
    """The content of a box, and of a box in it."""
    while match := re.match(r"\\(?:boxed|fbox)\s*(\{)?", box):
        box = (box[match.end() : -1] if match[1] else box[match.end() :]).strip()
    return box


def _marked(text: str) -> str | None:
    """What follows the last `####`, up to the end of its line."""
    at = text.rfind("####")
    return _clean(text[at + 4 :].lstrip(" ").split("\n", 1)[0]) if at >= 0 else None


def said(text: str) -> str | None:
    """What follows the last "answer is" or "answer:", up to the end of its sentence."""
    found = [*_SAID.finditer(text)]
    if not found:
        return None
    rest = text[found[-1].end() : found[-1].end() + _LONGEST_LINE].lstrip()
    if formula := _FORMULA.match(rest):
        return _clean(next(group for group in formula.groups() if group is not None))
    return _clean(_SENTENCE_END.split(rest, maxsplit=1)[0])


def _formula(text: str) -> str | None:
    """The last formula between dollars or brackets, if it stands in the last line that is not empty."""
    line = text.rstrip().rsplit("\n", 1)[-1][-_LONGEST_LINE:]
    found = [*_FORMULA.finditer(line)]
    return _clean(next(group for group in found[-1].groups() if group is not None)) if found else None


def _clean(text: str) -> str | None:
    """Without white space, markdown and the full stop around it."""
    return text.strip().strip("*`").rstrip(".").strip().strip("*`") or None
