"""Numbers as people write them, exactly."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

__all__ = ["last_number", "read_number", "written"]

_LONGEST = 400
_DIGITS = r"(?:\d{1,3}(?:(?:,|\{,\}|\\,|\\!,|,\\!)\d{3})+|\d+)(?:\.\d*)?|\.\d+"
_SIGN = r"[-+−–]?"
_MONEY = r"(?:\\?\$|€|£|¥|₹)?"
_NUMBER = re.compile(rf"({_SIGN})\s*{_MONEY}\s*({_SIGN})({_DIGITS})(?:[eE]([-+]?\d{{1,3}}))?")
_FRACTION = re.compile(rf"({_SIGN})\s*\\[dt]?frac\s*(?:\{{\s*({_SIGN}\d+)\s*\}}|(\d))\s*(?:\{{\s*({_SIGN}\d+)\s*\}}|(\d))")
_RATIO = re.compile(rf"({_SIGN}\d+)\s*/\s*(\d+)")
_POWER_OF_TEN = re.compile(
    rf"({_SIGN}(?:{_DIGITS}))\s*(?:\\times|\\cdot|×|\*)\s*10\s*(?:\^|\*\*)\s*(?:\{{\s*({_SIGN}\d{{1,3}})\s*\}}|({_SIGN}\d{{1,3}}))"
)
_IN_TEXT = re.compile(rf"(?:(?<![\w.)\]}}])[-+−–])?(?:(?:\\?\$|€|£|¥|₹){_SIGN})?(?<![\w.])(?:{_DIGITS})(?:[eE][-+]?\d{{1,3}}(?!\w))?")


def read_number(text: str) -> Fraction | None:
    r"""The number that a text is, or None where it is no plain number: an expression, a unit, nothing.

    Read are signs, a currency sign, commas between thousands, decimals, e-notation, a x 10^b, a/b and \frac{a}{b}. Leading zeros say
    nothing.

    >>> [str(read_number(text)) for text in ("$1,234.50", "016", "-\\frac{1}{2}", "4.5e3", "2\\times 10^{-3}", "1+1")]
    ['2469/2', '16', '-1/2', '4500', '1/500', 'None']
    """
    text = text.strip()
    if not text or len(text) > _LONGEST:
        return None
    if whole := _NUMBER.fullmatch(text):
        outer, inner, digits, exponent = whole.groups()
        if outer and inner:
            return None
        return _signed(outer or inner) * _decimal(digits) * Fraction(10) ** int(exponent or 0)
    if parts := _FRACTION.fullmatch(text):
        sign, upper, upper_digit, lower, lower_digit = parts.groups()
        return _over(_signed(sign) * _integer(upper or upper_digit), _integer(lower or lower_digit))
    if parts := _RATIO.fullmatch(text):
        return _over(_integer(parts[1]), _integer(parts[2]))
    if parts := _POWER_OF_TEN.fullmatch(text):
        sign = -1 if parts[1][0] in "-−–" else 1
        return sign * _decimal(parts[1].lstrip("-+−–")) * Fraction(10) ** int(_integer(parts[2] or parts[3]))
    return None


def last_number(text: str) -> str | None:
    """The last number that stands in a text, as written: with its sign, without the full stop of its sentence.

    A minus behind a number, a letter or a bracket takes away; it is no sign.

    >>> [last_number(text) for text in ("#### -3", "72 clips, altogether.", "it costs $1,234.00.", "so 10-3 = 7", "x2", "none")]
    ['-3', '72', '$1,234.00', '7', None, None]
    """
    found = [*_IN_TEXT.finditer(text)]
    return found[-1][0].rstrip(".") if found else None


def written(number: float | int) -> str:
    """A number of a data file as text: a whole number without its point.

    >>> written(27.0), written(0.5), written(-3)
    ('27', '0.5', '-3')
    """
    return str(int(number)) if float(number).is_integer() else repr(number)


def _decimal(digits: str) -> Fraction:
    return Fraction(Decimal(re.sub(r"[^\d.]", "", digits)))


def _integer(digits: str) -> Fraction:
    return Fraction(int(digits.replace("−", "-").replace("–", "-")))


def _signed(sign: str) -> int:
    return -1 if sign and sign in "-−–" else 1


def _over(upper: Fraction, lower: Fraction) -> Fraction | None:
    return None if lower == 0 else upper / lower
