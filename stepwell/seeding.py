"""One seed decides everything: every random draw has a seed derived from what it is for."""

from __future__ import annotations

import hashlib

import numpy as np

__all__ = ["PLACES", "Seed", "among", "derive", "generator"]

PLACES = 2**16
"""Siblings have places below this."""


class Seed(int):
    """A seed that knows its siblings: the seeds of draws that differ in their place alone, such as members of a group in one turn.

    It is the number that `derive` gives, and whoever draws with it may take it for that. A server to which the draws of one prompt go in
    one request numbers them by itself: there a sibling's seed is made of the family and the place.

    Attributes:
        family: A seed in [0, 2**63) that all siblings have.
        place: Among them, in [0, PLACES).
    """

    family: int
    place: int

    def __new__(cls, number: int, family: int = 0, place: int = 0) -> Seed:
        made = super().__new__(cls, number)
        made.family, made.place = family, place
        return made


def derive(*parts: int | str) -> int:
    """A seed in [0, 2**63) for the draw named by `parts`, e.g. (run seed, step, group slot, member, turn).

    Stable over processes and machines (BLAKE2b of the parts; never Python's `hash`).

    >>> derive(0, "rollout", 3) == derive(0, "rollout", 3), derive(0, 12) == derive(0, 1, 2)
    (True, False)
    """
    text = "\x1f".join(f"{'int' if isinstance(part, Seed) else type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def among(name: tuple[int | str, ...], *more: int | str) -> int:
    """`derive(*name, *more)`, which knows its siblings: those whose `name` differs in the last part alone, which is their place.

    A last part that is a `Seed` brings family and place along; one that is no place, such as a word, makes a seed without siblings.

    >>> [seed.place for seed in (among((0, "slot", member), 3) for member in range(3))]
    [0, 1, 2]
    >>> among((0, "slot", 1), 3) == derive(0, "slot", 1, 3)
    True
    """
    number, last = derive(*name, *more), name[-1]
    if isinstance(last, Seed):
        return Seed(number, derive(*name[:-1], last.family, "siblings", *more), last.place)
    if isinstance(last, int) and 0 <= last < PLACES:
        return Seed(number, derive(*name[:-1], "siblings", *more), last)
    return number


def generator(*parts: int | str) -> np.random.Generator:
    """A numpy generator for the draw named by `parts`."""
    return np.random.Generator(np.random.PCG64(derive(*parts)))
