"""WebShop's reward: how well the product bought, with the options chosen, fits the goal.

```
reward = r_type * (matched attributes + matched options + [price <= limit]) / (attributes + options + 1)
```

S. Yao et al., "WebShop", arXiv 2207.01206, equation 1. Two rules share it: `compat_reward` does what the original program does, with all
its quirks; `clean_reward` matches options by name and value and counts nouns as a set: every goal is worth 1 with its own product.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rapidfuzz.fuzz import token_set_ratio

from stepwell.envs.shop.webshop.catalogue import Product
from stepwell.envs.shop.webshop.goals import Goal

__all__ = ["Parts", "Purchase", "Target", "clean_reward", "compat_reward"]

_ALIKE = 85
_LATIN_1 = re.compile("[\x80-\xff]")
_NOT_WORD = re.compile(r"\W")


@dataclass(frozen=True, slots=True)
class Target:
    """A goal, the product it was made from, and the nouns of that product's title, in order, with repetitions."""

    goal: Goal
    product: Product
    nouns: Sequence[str]


@dataclass(frozen=True, slots=True)
class Purchase:
    """A product bought: its nouns, its actual price, and the options chosen (name -> value)."""

    product: Product
    nouns: Sequence[str]
    price: float
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Parts:
    """A reward and what it is made of; `r_option` and `w_option` are None where the goal names no option.

    Attributes:
        r_type: 1, 0.5, 0.1 or 0: is it the kind of product asked for.
        r_att, r_option, r_price: Share of attributes and of options matched; whether the price is low enough.
        w_att, w_option, w_price: What each counts for.
        query_match, category_match, title_score: What `r_type` is made of.
    """

    reward: float
    r_type: float
    r_att: float
    w_att: float
    query_match: bool
    category_match: bool
    title_score: float
    r_option: float | None
    w_option: float | None
    r_price: bool
    w_price: float


def compat_reward(target: Target, bought: Purchase, colours: Sequence[str]) -> Parts:
    """The original's reward, float for float.

    Any chosen value may match any option of the goal; both sides are first replaced by a colour word: the goal's where its name or value
    *is* one, the chosen value by the first one *in* it. The nouns in common are divided by the length of the goal's noun list,
    repetitions counted.

    Args:
        colours: The original's ordered list of colour words.
    """
    chosen = tuple(_chosen_text(value, tuple(colours)) for value in bought.options.values())
    wanted = [_wanted_text(name, value, tuple(colours)) for name, value in target.goal.options]
    num_options = sum(any(_alike(want, have) for have in chosen) for want in wanted)
    shared = len(set(target.nouns) & set(bought.nouns))
    return _parts(target, bought, num_options, shared / len(target.nouns) if target.nouns else 0.2)


def clean_reward(target: Target, bought: Purchase) -> Parts:
    """The reward with fixed matching: an option counts where the value chosen under its own name is the value asked for."""
    num_options = sum(bought.options.get(name) == value for name, value in target.goal.options)
    nouns = set(target.nouns)
    return _parts(target, bought, num_options, len(nouns & set(bought.nouns)) / len(nouns) if nouns else 0.2)


def _parts(target: Target, bought: Purchase, num_options: int, title_score: float) -> Parts:
    goal = target.goal
    query_match = bought.product.query == target.product.query
    category_match = len(bought.product.path & target.product.path) >= 2
    kind = _type(query_match or category_match, title_score)
    num_attributes = sum(_has(bought.product, attribute) for attribute in goal.attributes)
    affordable = bought.price <= goal.price_upper
    parts = len(goal.attributes) + len(goal.options) + 1
    return Parts(
        reward=kind * ((num_attributes + num_options + affordable) / parts),
        r_type=kind,
        r_att=num_attributes / len(goal.attributes) if goal.attributes else 0.0,
        w_att=len(goal.attributes) / parts,
        query_match=query_match,
        category_match=category_match,
        title_score=title_score,
        r_option=num_options / len(goal.options) if goal.options else None,
        w_option=len(goal.options) / parts if goal.options else None,
        r_price=affordable,
        w_price=1 / parts,
    )


def _type(related: bool, title_score: float) -> float:
    if title_score == 0:
        return 0.0
    if title_score < 0.1:
        return 0.1
    return 1.0 if related or title_score > 0.2 else 0.5


def _has(product: Product, attribute: str) -> bool:
    """An attribute of about this name, or its words in the title, the bullets or the description."""
    if any(_alike(own, attribute) for own in product.attributes):
        return True
    texts: Iterable[str] = (product.title, " ".join(product.bullets), product.description)
    return any(attribute in text.lower() for text in texts)


@lru_cache(maxsize=1 << 15)
def _alike(one: str, other: str) -> bool:
    """Token-set similarity above 85 of 100 (thefuzz 0.19)."""
    a, b = _plain(one), _plain(other)
    return bool(a) and bool(b) and round(token_set_ratio(a, b)) > _ALIKE


@lru_cache(maxsize=1 << 15)
def _plain(text: str) -> str:
    """Letters, digits and underscores in lower case; Latin-1 characters are dropped, all else is a blank."""
    return _NOT_WORD.sub(" ", _LATIN_1.sub("", text)).lower().strip()


@lru_cache(maxsize=1 << 15)
def _chosen_text(value: str, colours: tuple[str, ...]) -> str:
    return next((colour for colour in colours if colour in value), value)


@lru_cache(maxsize=1 << 15)
def _wanted_text(name: str, value: str, colours: tuple[str, ...]) -> str:
    if not name:  # a goal written by a person names values only
        return _chosen_text(value, colours)
    return next((colour for colour in colours if colour in (name, value)), repr((name, value)))
