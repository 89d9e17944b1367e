r"""Formulas in one way of writing: spacing, sizes of brackets, markdown, `\text{13}` for 13, `pi` for `\pi`. No meaning is changed."""

from __future__ import annotations

import re

__all__ = ["split_base", "tidy", "without_unit", "word"]

_DROPPED = re.compile(
    r"\\left(?![a-zA-Z])|\\right(?![a-zA-Z])|\\[bB]igg?[lrm]?(?![a-zA-Z])|\\displaystyle(?![a-zA-Z])|\\limits(?![a-zA-Z])|\\q?quad(?![a-zA-Z])"
    r"|(?<!\\)\\[!,;:]|~|\\?\$|(?<!\\)\\[()\[\]]|`"
)
_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname\*?)\s*\{([^{}]*)\}")
_BOTH_BARE = re.compile(r"\\frac\s*(\d)\s*(\d)")
_UPPER_BARE = re.compile(r"\\frac\s*(\d)\s*(?=\{)")
_LOWER_BARE = re.compile(r"\\frac\s*(\{[^{}]*\})\s*(\d)")
_BARE_ROOT = re.compile(r"\\sqrt\s*([0-9a-zA-Z])")
_ROOT = re.compile(r"(?<![\\a-zA-Z])sqrt\s*\(([^()]*)\)")
_PI = re.compile(r"(?<![\\a-zA-Z])pi(?![a-zA-Z])|π")
_INFINITY = re.compile(r"(?<![\\a-zA-Z])(?:infinity|inf|oo)(?![a-zA-Z])|∞")
_SIMPLE_SCRIPT = re.compile(r"([\^_])\{([0-9a-zA-Z])\}")
_LIST_WORD = re.compile(r"\s*,?\s*(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])\s*")
_SPACE = re.compile(r"(?<![a-zA-Z])\s+|(?<=[a-zA-Z])\s+(?![a-zA-Z0-9])")
_THOUSANDS = re.compile(r"(?<!\d)\d{1,3}(?:,\d{3})+(?!\d)(?!,)")
_BASE = re.compile(r"(-?[0-9A-Za-z]+)_(?:\{(\d+)\}|(\d+))")
_UNIT = re.compile(
    r"(.*?[0-9})])\s*(?:\^\s*\{?\s*\\circ\s*\}?\s*[CF]?|°\s*[CF]?|\\degree|\\?%|\\(?:text|mathrm|mbox|textrm)\s*\{[^{}]*\}(?:\s*\^\s*\{?[-0-9]+\}?)?"
    r"|\s[a-zA-Z]{2,}[a-zA-Z .]*)\s*",
    re.DOTALL,
)
_ONE_FOR_ONE = str.maketrans({"−": "-", "–": "-", "×": "*", "·": "*", "÷": "/", "≤": r"\le ", "≥": r"\ge ", "\u00a0": " ", "\n": " "})
_SAME = {r"\\[dt]frac(?![a-zA-Z])": r"\\frac", r"\\(?:leq|leqslant)(?![a-zA-Z])": r"\\le", r"\\(?:geq|geqslant)(?![a-zA-Z])": r"\\ge"}


def tidy(text: str) -> str:
    r"""The formula in one way of writing.

    >>> [tidy(text) for text in (r"$\left( 3, \dfrac{\pi}{2} \right)$", "**73**", r"\text{13}", "pi/2", r"\frac12 \, x^{2}")]
    ['(3,\\frac{\\pi}{2})', '73', '13', '\\pi/2', '\\frac{1}{2}x^2']
    """
    text = text.translate(_ONE_FOR_ONE).strip().strip("*").replace("**", "^")
    for written, one in _SAME.items():
        text = re.sub(written, one, text)
    text = _DROPPED.sub("", re.sub(r"(?<!\\)\\ ", " ", text))
    text = _LIST_WORD.sub(",", _TEXT.sub(r"\1", text))
    text = _BOTH_BARE.sub(r"\\frac{\1}{\2}", text)
    text = _LOWER_BARE.sub(r"\\frac\1{\2}", _UPPER_BARE.sub(r"\\frac{\1}", text))
    text = _ROOT.sub(r"\\sqrt{\1}", _BARE_ROOT.sub(r"\\sqrt{\1}", text))
    text = _INFINITY.sub(r"\\infty", _PI.sub(r"\\pi", text))
    text = re.sub(r"(?<=\d)\{,\}(?=\d{3})", "", text)
    if not re.search(r"[(\[{]", text):  # (1,234) is a pair
        text = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), text)
    text = _SPACE.sub("", _SIMPLE_SCRIPT.sub(r"\1\2", text).strip())
    return text.rstrip(".").strip()


def word(text: str) -> str | None:
    r"""The word or words that a tidied answer is (yes, Monday, no solution), in small letters; None where it is a formula.

    >>> word("No solution"), word("xy"), word(r"\sin x"), word("x=y")
    ('no solution', None, None, None)
    """
    words = re.sub(r"[()\s]+", " ", text).strip()
    return words.casefold() if re.fullmatch(r"[A-Za-z][A-Za-z' -]*", words) and re.search("[A-Za-z]{3}", words) else None


def without_unit(text: str) -> str:
    r"""A formula, not tidied yet, without the unit, degree or percent sign behind its number.

    >>> without_unit("42 apples"), without_unit(r"30^\circ"), without_unit(r"10\text{ cm}^2"), without_unit("2 x")
    ('42', '30', '10', '2 x')
    """
    found = _UNIT.fullmatch(text.strip().rstrip("."))
    return found[1].strip() if found else text


def split_base(text: str) -> tuple[str, int] | None:
    """The digits and the base of a number written with its base as a subscript, or None.

    >>> split_base("2516_8"), split_base("A5_{11}"), split_base("12")
    (('2516', 8), ('A5', 11), None)
    """
    found = _BASE.fullmatch(text)
    base = found and (found[2] or found[3])
    return (found[1].upper(), int(base)) if found and base else None
