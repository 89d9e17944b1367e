"""Text to search terms, as Lucene's English analyser does it.

Words by the default word boundaries of Unicode (UAX #29), as far as shops need them; then: possessive `'s` off, stop words out, Porter's
stemmer. Emoji and pictographs are terms; hyphen and slash separate; `3.5`, `d'issey` and `wi_fi` stay whole. Callers lower-case the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from stepwell.envs.shop.porter import stem

__all__ = ["STOP_WORDS", "analyse", "words"]

STOP_WORDS = frozenset(
    (
        *("a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of", "on", "or"),
        *("such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with"),
    )
)
_LONGEST = 255
"""Lucene cuts longer words into pieces of this many characters."""

_HAN = "\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"
_HIRAGANA = "\u3041-\u3096\u309d-\u309f\U0001f200"
_KATAKANA = "\u3031-\u3035\u309b\u309c\u30a0-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u32d0-\u32fe\u3300-\u3357\uff66-\uff9d"
_SOUTH_EAST_ASIAN = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ecd\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u1780-\u17d3\u17d7\u17dc\u1950-\u19df"
)
_KANA_MARKS = "\uff9e\uff9f"
_CIRCLED_LETTERS = "\u24b6-\u24e9"
_PICTOGRAPHS = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u2388\u23cf\u23e9-\u23f3\u23f8-\u23fa\u24c2"
    "\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705\u2708-\u2712\u2714\u2716\u271d\u2721"
    "\u2728\u2733\u2734\u2744\u2747\u274c\u274e\u2753-\u2755\u2757\u2763-\u2767\u2795-\u2797\u27a1\u27b0\u27bf\u2934\u2935"
    "\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001f0ff\U0001f10d-\U0001f10f\U0001f12f\U0001f16c-\U0001f171\U0001f17e\U0001f17f\U0001f18e\U0001f191-\U0001f19a"
    "\U0001f1ad-\U0001f1e5\U0001f201-\U0001f20f\U0001f21a\U0001f22f\U0001f232-\U0001f23a\U0001f23c-\U0001f23f\U0001f249-\U0001f3fa"
    "\U0001f400-\U0001f53d\U0001f546-\U0001f64f\U0001f680-\U0001f6ff\U0001f774-\U0001f77f\U0001f7d5-\U0001f7ff\U0001f80c-\U0001f80f"
    "\U0001f848-\U0001f84f\U0001f85a-\U0001f85f\U0001f888-\U0001f88f\U0001f8ae-\U0001f8ff\U0001f90c-\U0001f93a\U0001f93c-\U0001f945"
    "\U0001f947-\U0001faff\U0001fc00-\U0001fffd"
)
_FLAGS = "\U0001f1e6-\U0001f1ff"
_SKIN_TONES = "\U0001f3fb-\U0001f3ff"
_MID_LETTER = ":\u00b7\u0387\u05f4\u2027\ufe13\ufe55\uff1a"
_MID_EITHER = ".'\u2018\u2019\u2024\ufe52\uff07\uff0e"
_MID_DIGIT = ",;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b"
_JOINERS = "_\u203f\u2040\u2054\ufe33\ufe34\ufe4d-\ufe4f\uff3f\u202f"


def analyse(text: str) -> list[str]:
    """The search terms of a lower-case text, in order, repetitions kept.

    >>> analyse("the women's easy-assembly shelf, 3.5 ft")
    ['women', 'easi', 'assembl', 'shelf', '3.5', 'ft']
    """
    return [term for word in words(text) if (term := _term(word))]


def words(text: str) -> Iterable[str]:
    """The words of a text by Unicode's default boundaries; what is neither letter, digit nor pictograph is left out."""
    for word in (_ascii_pattern() if text.isascii() else _pattern()).findall(text):
        if len(word) <= _LONGEST:
            yield word
        else:
            yield from (word[i : i + _LONGEST] for i in range(0, len(word), _LONGEST))


@lru_cache(maxsize=1 << 16)
def _term(word: str) -> str:
    """The term of a word; "" for a stop word."""
    if len(word) > 1 and word[-1] in "sS" and word[-2] in "'’＇":
        word = word[:-2]
    word = word.lower()
    return "" if word in STOP_WORDS else stem(word)


@lru_cache(maxsize=1)
def _ascii_pattern() -> re.Pattern[str]:
    """What `_pattern` comes to in ASCII; several times as fast."""
    return re.compile(_run("[A-Za-z]", "[0-9]", "", mid_letter="[:.']", mid_digit="[,;.']", joiner="_"))


@lru_cache(maxsize=1)
def _pattern() -> re.Pattern[str]:
    """The pattern of a word; its character classes are read from Python's own Unicode tables once."""
    classes = _character_classes()
    attached = f"[{classes['extend']}{_SKIN_TONES}\u200c\u200d]*+"
    run = _run(
        f"[{classes['letter']}{_CIRCLED_LETTERS}]{attached}",
        f"[{classes['digit']}]{attached}",
        f"(?:[{_KATAKANA}]{attached})++|",
        mid_letter=f"[{_MID_LETTER}{_MID_EITHER}]{attached}",
        mid_digit=f"[{_MID_DIGIT}{_MID_EITHER}]{attached}",
        joiner=f"[{_JOINERS}]{attached}",
    )
    pictograph = f"[{_PICTOGRAPHS}]{attached}"
    return re.compile(
        f"[0-9#*]\ufe0f?\u20e3|[{_FLAGS}]{{2}}|{pictograph}(?:(?<=\u200d){pictograph})*+|{run}"
        f"|[{_HAN}{_HIRAGANA}]{attached}|(?:[{_SOUTH_EAST_ASIAN}]{attached})++"
    )


def _run(letter: str, digit: str, kana: str, *, mid_letter: str, mid_digit: str, joiner: str) -> str:
    """Letters and digits in any order, with single marks between two of a kind, and runs held together by joiners."""
    letters = f"{letter}(?:(?:{mid_letter})?{letter})*+"
    digits = f"{digit}(?:(?:{mid_digit})?{digit})*+"
    run = f"(?:{kana}(?:{letters}|{digits})++)"
    return f"(?:{joiner})*+{run}(?:(?:{joiner})++{run})*(?:{joiner})*+"


def _character_classes() -> dict[str, str]:
    """Regex character classes `letter`, `digit`, `extend` (marks and format characters that stay with the character before them)."""
    kind_of = {"Nd": "digit", "Nl": "letter", "Mn": "extend", "Mc": "extend", "Me": "extend", "Cf": "extend"}
    kind_of |= dict.fromkeys(("Lu", "Ll", "Lt", "Lm", "Lo"), "letter")
    other = re.compile(f"[{_HAN}{_HIRAGANA}{_KATAKANA}{_SOUTH_EAST_ASIAN}\u200b]")
    ranges: dict[str, list[list[int]]] = {"letter": [], "digit": [], "extend": []}
    for code in (*range(0x20000), *range(0xE0000, 0xE01F0)):
        character = chr(code)
        kind = "extend" if character in _KANA_MARKS else kind_of.get(unicodedata.category(character))
        if kind is None or other.match(character):
            continue
        if ranges[kind] and ranges[kind][-1][1] == code - 1:
            ranges[kind][-1][1] = code
        else:
            ranges[kind].append([code, code])
    return {kind: "".join(f"{re.escape(chr(a))}-{re.escape(chr(b))}" for a, b in spans) for kind, spans in ranges.items()}
