"""The reward's parts, by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.envs.shop.webshop.catalogue import Product
from stepwell.envs.shop.webshop.goals import Goal
from stepwell.envs.shop.webshop.reward import Purchase, Target, clean_reward, compat_reward

COLOURS = ("black", "blue", "red")


def product(
    asin: str = "A", query: str = "lamps", path: tuple[str, ...] = ("Home", "Lamps"), attributes: tuple[str, ...] = ("easy clean",)
) -> Product:
    title, bullets = "Red Desk Lamp", ("Water resistant cover",)
    return Product(
        asin, title, "garden", query, " › ".join(path), frozenset(path), "hand made", bullets, (9.0,), "$9.0", {}, attributes, "", ()
    )


def goal(attributes: tuple[str, ...] = ("easy clean",), options: Mapping[str, str] | None = None, limit: float = 10.0) -> Goal:
    return Goal("A", "", attributes, tuple((options or {}).items()), limit, 1.0)


def rewards(target: Target, bought: Purchase) -> tuple[float, float]:
    return compat_reward(target, bought, COLOURS).reward, clean_reward(target, bought).reward


def test_the_right_product_with_the_right_option_at_the_right_price_is_worth_1() -> None:
    target = Target(goal(options={"size": "xl"}), product(), ("desk", "lamp"))
    assert rewards(target, Purchase(product(), ("desk", "lamp"), 9.0, {"size": "xl"})) == (1.0, 1.0)


def test_each_missing_part_costs_its_share() -> None:
    target = Target(goal(("easy clean", "rust proof"), {"size": "xl"}), product(), ("lamp",))
    bought = Purchase(product(), ("lamp",), 11.0, {"size": "s"})
    parts = clean_reward(target, bought)
    assert parts.reward == 1 / 4
    assert (parts.r_att, parts.w_att, parts.r_option, parts.w_option, parts.r_price, parts.w_price) == (0.5, 0.5, 0.0, 0.25, False, 0.25)


def test_a_goal_without_options_has_no_option_part() -> None:
    parts = clean_reward(Target(goal(), product(), ("lamp",)), Purchase(product(), ("lamp",), 9.0, {"size": "s"}))
    assert (parts.reward, parts.r_option, parts.w_option) == (1.0, None, None)


@pytest.mark.parametrize("attribute", ["easy clean", "clean easy", "water resistant", "desk lamp", "hand made"])
def test_attributes_are_found_by_likeness_or_in_the_texts(attribute: str) -> None:
    target = Target(goal((attribute,)), product(), ("lamp",))
    assert rewards(target, Purchase(product(), ("lamp",), 9.0, {})) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("nouns", "query", "path", "kind"),
    [
        (("lamp",), "other", ("Other",), 1.0),  # 1 of 1 nouns
        (("desk",), "lamps", ("Other",), 0.0),  # no noun in common overrides the query
        (("a", "b", "c", "d", "e", "lamp"), "other", ("Other",), 1.0),
    ],
)  # fmt: skip
def test_type_by_nouns(nouns: tuple[str, ...], query: str, path: tuple[str, ...], kind: float) -> None:
    target = Target(goal(), product(), ("lamp",))
    bought = Purchase(product(query=query, path=path), nouns, 9.0, {})
    assert compat_reward(target, bought, COLOURS).r_type == clean_reward(target, bought).r_type == kind


@pytest.mark.parametrize(
    ("shared", "query", "path", "kind"),
    [
        (2, "other", ("Other",), 0.5),  # 0.2 is not above 0.2
        (2, "lamps", ("Other",), 1.0),
        (2, "other", ("Lamps", "Home", "More"), 1.0),
        (2, "other", ("Home", "More"), 0.5),
        (3, "other", ("Other",), 1.0),
        (0, "lamps", ("Home", "Lamps"), 0.0),
        (1, "lamps", ("Other",), 1.0),  # 0.1 is not below 0.1
    ],
)  # fmt: skip
def test_type_by_share_of_nouns(shared: int, query: str, path: tuple[str, ...], kind: float) -> None:
    nouns = tuple("abcdefghij")
    bought = Purchase(product(query=query, path=path), nouns[:shared], 9.0, {})
    assert clean_reward(Target(goal(), product(), nouns), bought).r_type == kind


def test_one_noun_of_eleven_makes_it_a_tenth() -> None:
    target = Target(goal(), product(), tuple("abcdefghijk"))
    assert clean_reward(target, Purchase(product(), ("a",), 9.0, {})).reward == 0.1


def test_repeated_nouns_count_in_compat_alone() -> None:
    target = Target(goal(), product(query="x", path=("y",)), ("lamp", "lamp", "lamp", "lamp", "lamp"))
    bought = Purchase(product(), ("lamp",), 9.0, {})
    assert (compat_reward(target, bought, COLOURS).title_score, clean_reward(target, bought).title_score) == (0.2, 1.0)
    assert (compat_reward(target, bought, COLOURS).r_type, clean_reward(target, bought).r_type) == (0.5, 1.0)


def test_a_title_without_nouns_scores_a_fifth() -> None:
    assert clean_reward(Target(goal(), product(), ()), Purchase(product(), (), 9.0, {})).title_score == 0.2


@pytest.mark.parametrize(
    ("wanted", "chosen", "compat", "clean"),
    [
        ({"color": "red"}, {"color": "red"}, 1.0, 1.0),
        ({"color": "red"}, {"color": "dark red"}, 1.0, 0.0),  # its colour word is red
        ({"color": "redwood"}, {"color": "redwood"}, 0.0, 1.0),  # the quirk: only the chosen side becomes red
        ({"size": "xl"}, {"style": "xl"}, 1.0, 0.0),  # names do not matter in the original
        ({"size": "xl"}, {}, 0.0, 0.0),
        ({"size": "xl"}, {"size": "XL!"}, 1.0, 0.0),
        ({"size": "a\xa0b"}, {"size": "a\xa0b"}, 0.0, 1.0),  # repr writes \xa0
    ],
)  # fmt: skip
def test_options_match_by_the_rules_of_their_variant(wanted: dict[str, str], chosen: dict[str, str], compat: float, clean: float) -> None:
    target = Target(goal(options=wanted), product(), ("lamp",))
    bought = Purchase(product(), ("lamp",), 9.0, chosen)
    assert (compat_reward(target, bought, COLOURS).r_option, clean_reward(target, bought).r_option) == (compat, clean)


def test_goals_of_people_name_bare_values() -> None:
    target = Target(goal(options={"": "dark red"}), product(), ("lamp",))
    assert compat_reward(target, Purchase(product(), ("lamp",), 9.0, {"color": "red wine"}), COLOURS).reward == 1.0


words = st.sampled_from(["red", "blue", "lamp", "easy clean", "xl", "s", "desk", "hand made"])


@given(st.lists(words), st.lists(words), st.dictionaries(words, words), st.dictionaries(words, words), st.floats(0, 20))
def test_rewards_lie_between_0_and_1(
    nouns: list[str], others: list[str], wanted: dict[str, str], chosen: dict[str, str], price: float
) -> None:
    target = Target(goal(("easy clean", "xl"), wanted), product(), nouns)
    for reward in rewards(target, Purchase(product(), others, price, chosen)):
        assert 0 <= reward <= 1


@given(st.dictionaries(words, words), st.dictionaries(words, words), words, words)
def test_choosing_what_is_wanted_never_lowers_the_clean_reward(
    wanted: dict[str, str], chosen: dict[str, str], name: str, value: str
) -> None:
    target = Target(goal(options=wanted | {name: value}), product(), ("lamp",))
    before = clean_reward(target, Purchase(product(), ("lamp",), 9.0, chosen)).reward
    assert clean_reward(target, Purchase(product(), ("lamp",), 9.0, chosen | {name: value})).reward >= before
