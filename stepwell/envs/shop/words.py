"""All words of the generated shop.

Each is one plain lower-case word with one meaning, so that a word-level tokenizer has it as one token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["DEPARTMENTS", "OPTION_VALUES", "PLAIN_WORDS", "SYNONYMS", "Department", "brand_names"]


@dataclass(frozen=True, slots=True)
class Department:
    """A part of the shop: its kinds of product, the attributes they can have, and the options they come in."""

    name: str
    types: tuple[str, ...]
    attributes: tuple[str, ...]
    options: tuple[str, ...]


def _department(name: str, types: str, attributes: str, options: str) -> Department:
    return Department(name, tuple(types.split()), tuple(attributes.split()), tuple(options.split()))


DEPARTMENTS: tuple[Department, ...] = (
    _department(
        "clothing",
        "shirt jacket dress sweater skirt coat scarf vest",
        "soft warm cotton wool slim loose casual formal striped washable lined stretchy hooded knitted waterproof pleated",
        "color size",
    ),
    _department(
        "home",
        "lamp chair table rug shelf curtain mirror clock",
        "wooden modern rustic round folding sturdy compact metal padded vintage glass stackable framed woven adjustable hanging",
        "color size",
    ),
    _department(
        "beauty",
        "soap lotion shampoo cream perfume balm serum scrub",
        "gentle organic vegan moist fresh cooling natural herbal creamy foaming travel sensitive whitening oily nightly daily",
        "scent pack",
    ),
    _department(
        "grocery",
        "tea coffee cookies cereal snacks sauce pasta candy",
        "crunchy sweet spicy salty raw roasted smoked dried instant whole tender fruity sugarfree glutenfree dairyfree lowfat",
        "flavor pack",
    ),
    _department(
        "electronics",
        "speaker headset camera keyboard charger radio tablet printer",
        "wireless portable fast quiet loud slender digital rugged smart foldable backlit noiseless magnetic rechargeable curved tiltable",
        "color power",
    ),
    _department(
        "outdoor",
        "tent backpack bottle rope stove hammock cooler lantern",
        "sealed insulated heavy floating padlocked reflective windproof rustproof camouflage inflatable breathable wheeled strapped "
        "ventilated braided telescopic",
        "color size",
    ),
)

OPTION_VALUES: dict[str, tuple[str, ...]] = {
    "color": ("red", "blue", "green", "black", "white", "yellow", "purple", "gray", "brown", "pink"),
    "size": ("tiny", "small", "medium", "large", "huge"),
    "scent": ("rose", "mint", "lavender", "vanilla", "coconut", "cedar"),
    "flavor": ("cocoa", "berry", "ginger", "honey", "lemon", "cinnamon"),
    "pack": ("single", "double", "triple", "dozen"),
    "power": ("battery", "solar", "wired", "usb"),
}

SYNONYMS: dict[str, str] = {
    "soft": "fluffy",
    "warm": "cozy",
    "waterproof": "rainproof",
    "wooden": "timber",
    "modern": "contemporary",
    "sturdy": "solid",
    "gentle": "mild",
    "fresh": "clean",
    "natural": "pure",
    "sweet": "sugary",
    "spicy": "hot",
    "crunchy": "crispy",
    "wireless": "cordless",
    "fast": "quick",
    "quiet": "silent",
    "heavy": "weighty",
    "sealed": "airtight",
    "insulated": "thermal",
}
"""Attribute -> the word that an ambiguous task uses for it. A synonym occurs in no product, so searching for it finds nothing."""

_PLAIN_TEXT = (
    "find with and price under i want a that is in for less than dollars need below which "  # instructions
    "search click filter buy p1 p2 p3 p4 next back none "  # actions
    "also sold out chosen bought no results "  # pages
    "action such takes query element constraint nothing words too many needs open product first here"  # refusals
)
PLAIN_WORDS: tuple[str, ...] = tuple(_PLAIN_TEXT.split())
"""The words of instructions, actions and pages beside those of the catalogue (some numbers, too)."""

_ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "dr", "kr", "tr", "st", "pl")
_VOWELS = ("a", "e", "i", "o", "u")


def brand_names(count: int, rng: np.random.Generator) -> tuple[str, ...]:
    """`count` distinct invented words of three syllables; a word ends in `x`, so that none is a word of the tables above."""
    syllables = [onset + vowel for onset in _ONSETS for vowel in _VOWELS]
    total = len(syllables) ** 3
    if not 0 <= count <= total:
        raise ValueError(f"{count} brand names were asked for; there are between 0 and {total}.")
    picks = rng.choice(total, size=count, replace=False).tolist()
    n = len(syllables)
    return tuple(syllables[i // (n * n)] + syllables[i // n % n] + syllables[i % n] + "x" for i in picks)
