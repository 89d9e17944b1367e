"""Porter's stemmer, with the two changes that he made later and that Lucene follows (`-bli -> -ble`, `-logi -> -log`).

M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980. The measure m of a stem is its number of vowel-consonant
boundaries: [C](VC)^m[V]. Words of one or two letters stay as they are.
"""

from __future__ import annotations

__all__ = ["stem"]

_STEP_2 = (
    *(("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"), ("alli", "al")),
    *(("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"), ("ator", "ate"), ("alism", "al")),
    *(("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"), ("logi", "log")),
)
_STEP_3 = (("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""))
_STEP_4 = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "sion", "tion"),
    *("ou", "ism", "ate", "iti", "ous", "ive", "ize"),
)


def stem(word: str) -> str:
    """The stem of a lower-case word.

    >>> [stem(word) for word in ("caresses", "ponies", "relational", "hopping", "assembly", "technology", "s")]
    ['caress', 'poni', 'relat', 'hop', 'assembl', 'technolog', 's']
    """
    if len(word) < 3:
        return word
    word = _plurals_and_participles(word)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    if len(word) < 2:
        return word
    word = _replace(_replace(word, _STEP_2), _STEP_3)
    return _final(_strip(word))


def _shape(word: str) -> str:
    """A letter v or c for each letter: vowel or consonant (y is a vowel after a consonant)."""
    shape, before = [], "v"
    for letter in word:
        is_vowel = letter in "aeiou" or (letter == "y" and before == "c")
        before = "v" if is_vowel else "c"
        shape.append(before)
    return "".join(shape)


def _measure(word: str) -> int:
    return _shape(word).count("vc")


def _ends_cvc(word: str) -> bool:
    """Ends consonant-vowel-consonant, the last not w, x or y (-wil, -hop): such a stem asks for its e back."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _plurals_and_participles(word: str) -> str:
    if word.endswith("s"):
        if word.endswith(("sses", "ies")):
            word = word[:-2]
        elif not word.endswith("ss"):
            word = word[:-1]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            return _mend(rest) if "v" in _shape(rest) else word
    return word


def _mend(word: str) -> str:
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if len(word) > 1 and word[-1] == word[-2] and _shape(word)[-1] == "c":
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_cvc(word) else word


def _replace(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    for suffix, by in rules:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            return rest + by if _measure(rest) > 0 else word
    return word


def _strip(word: str) -> str:
    for suffix in _STEP_4:
        if word.endswith(suffix):
            rest = word[:-3] if suffix in ("sion", "tion") else word[: -len(suffix)]
            return rest if _measure(rest) > 1 else word
    return word


def _final(word: str) -> str:
    if word.endswith("e"):
        rest = word[:-1]
        measure = _measure(rest)
        if measure > 1 or (measure == 1 and not _ends_cvc(rest)):
            word = rest
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
