"""Seeds: derived from names, and siblings among each other."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from stepwell.seeding import PLACES, Seed, among, derive

parts = st.lists(st.one_of(st.integers(-5, 2**40), st.text(max_size=4)), max_size=3).map(tuple)


@given(parts, st.integers(0, PLACES - 1), parts)
def test_a_sibling_is_the_number_that_is_derived(before: tuple[int | str, ...], place: int, after: tuple[int | str, ...]) -> None:
    """What was drawn before there were siblings is drawn still."""
    seed = among((*before, place), *after)
    assert isinstance(seed, Seed) and seed == derive(*before, place, *after) and seed.place == place
    assert derive("a", seed, "b") == derive("a", int(seed), "b"), "also as a part of another name"
    copied = pickle.loads(pickle.dumps(seed))
    assert (copied, copied.family, copied.place) == (seed, seed.family, seed.place)


@given(parts, parts, st.lists(st.integers(0, PLACES - 1), min_size=2, max_size=4, unique=True))
def test_siblings_differ_in_their_place_alone(before: tuple[int | str, ...], after: tuple[int | str, ...], places: list[int]) -> None:
    seeds = [among((*before, place), *after) for place in places]
    assert len({seed.family for seed in seeds if isinstance(seed, Seed)}) == 1
    assert len(set(seeds)) == len(places)


def test_families_differ_with_every_other_part() -> None:
    names = [(0, "a", 1), (0, "b", 1), (1, "a", 1)]
    seeds = [among(name, turn) for name in names for turn in range(3)]
    assert len({seed.family for seed in seeds if isinstance(seed, Seed)}) == 9


def test_a_draw_of_a_draw_is_its_sibling_too() -> None:
    """A continuation's name has the seed of its prefix and draw in it."""
    one, two = (among((5, among(("prefix", draw))), 2) for draw in (0, 1))
    other = among((5, among(("another", 0))), 2)
    assert isinstance(one, Seed) and isinstance(two, Seed) and isinstance(other, Seed)
    assert (one.family, one.place, two.place) == (two.family, 0, 1) and one.family != other.family
    assert one == derive(5, derive("prefix", 0), 2)


def test_what_is_no_place_has_no_siblings() -> None:
    for last in ("word", -1, PLACES):
        assert not isinstance(among((0, last), 3), Seed)
        assert among((0, last), 3) == derive(0, last, 3)
