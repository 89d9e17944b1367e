"""The clean shop: short, complete, fair."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.envs.shop.webshop import WebShopDomain
from stepwell.envs.shop.webshop.clean import CleanEnvironment, option_elements
from stepwell.types import Action, Invalid


def environment(domain: WebShopDomain, asin: str = "X000000004") -> CleanEnvironment:
    goal = next(index for index, goal in enumerate(domain.store.goals) if goal.asin == asin)
    played = domain.environment(domain.goal_task(goal), 0)
    assert isinstance(played, CleanEnvironment)
    return played


def test_pages_are_short_and_complete(small_clean: WebShopDomain) -> None:
    shop = environment(small_clean)
    instruction = small_clean.store.goals[shop._goal_index].instruction
    assert shop.start().text == f"{instruction}\npage: search"
    lines = shop.act("search[Cassia Infusion No. 4]").observation.text.splitlines()
    assert lines[:3] == [instruction, "page: results 1 of 2", "p1 Cassia Infusion No. 4, hand made infusion for work & more | $68.99"]
    assert lines[-1] == "[back to search] [next >]"
    assert len(lines) == 13
    assert shop.act("click[p1]").observation.text.splitlines() == [
        instruction,
        "page: item",
        "Cassia Infusion No. 4, hand made infusion for work & more",
        "price: $68.99",
        "color: blue; white; black; brown; green",
        "flavor name: mint; lemon",
        "[back to search] [< prev] [description] [features] [buy now]",
    ]
    shop.act("click[mint]")
    assert shop.act("click[white]").observation.text.splitlines()[6] == "chosen: flavor name: mint; color: white"
    assert shop.act("click[features]").observation.text.splitlines()[1:] == ["page: features", "second bullet", "[back to search] [< prev]"]
    assert "chosen: flavor name: mint; color: white" in shop.act("click[< prev]").observation.text
    done = shop.act("click[buy now]")
    assert done.done
    assert done.observation.text.splitlines()[1:] == [
        "bought: Cassia Infusion No. 4, hand made infusion for work & more",
        "chosen: flavor name: mint; color: white",
    ]


def test_the_price_shown_is_the_price_paid(small_clean: WebShopDomain) -> None:
    shop = environment(small_clean)
    price = small_clean.store.prices["X000000008"]
    assert 1299.0 < price < 1399.5
    shop.act("search[Bruno Jacket No. 8]")
    assert f"price: ${price:.2f}" in shop.act("click[p1]").observation.text


def test_ambiguous_values_are_clicked_with_their_name(small_clean: WebShopDomain) -> None:
    product = small_clean.store.products["X000000003"]
    assert option_elements(product) == {
        "top: small": ("top", "small"),
        "large": ("top", "large"),
        "bottom: small": ("bottom", "small"),
        "bottom: description": ("bottom", "description"),
    }
    shop = environment(small_clean, "X000000003")
    shop.act("search[Fenwick Shoes No. 3]")
    shop.act("click[p1]")
    assert not shop.act("click[small]").valid
    assert shop.act("click[bottom: description]").valid
    assert shop.act("click[top: large]").valid
    assert "chosen: bottom: description; top: large" in shop.act("click[top: large]").observation.text
    assert "page: description" in shop.act("click[description]").observation.text


def test_pages_that_do_not_exist_cannot_be_opened(small_clean: WebShopDomain) -> None:
    shop = environment(small_clean)
    assert [
        shop.act(text).valid for text in ("click[next >]", "click[p1]", "click[buy now]", "click[search]", "search[]", "search[ ]")
    ] == [False] * 6
    assert shop.act("search[no such words at all zzz]").observation.text.splitlines()[1:] == ["page: results 1 of 1", "[back to search]"]
    shop.act("search[green teas]")
    pages = 1
    while shop.act("click[next >]").valid:
        pages += 1
    assert shop.start().text.splitlines()[1] == f"page: results {pages} of {pages}"
    assert "next >" not in shop.clickables


def test_words_that_upset_the_original_do_no_harm(small_clean: WebShopDomain) -> None:
    shop = environment(small_clean)
    shop.act("search[search_results item_page green teas]")
    shop.act("click[p1]")
    assert "page: results 1" in shop.act("click[< prev]").observation.text
    shop.act("click[p1]")
    shop.act("click[description]")
    assert "page: item" in shop.act("click[< prev]").observation.text


def test_leaving_an_item_drops_its_options(small_clean: WebShopDomain) -> None:
    shop = environment(small_clean)
    shop.act("search[Cassia Infusion No. 4]")
    shop.act("click[p1]")
    before = shop.act("click[mint]").observation
    shop.act("click[< prev]")
    assert "chosen" not in shop.act("click[p1]").observation.text
    assert shop.act("click[mint]").observation == before


def test_state_keys_do_not_depend_on_how_a_state_was_reached(small_clean: WebShopDomain) -> None:
    one, other = environment(small_clean), environment(small_clean)
    one.act("search[green teas]")
    other.act("search[lamps]")
    assert one.act("search[teas green]").observation == other.act("search[GREEN teas]").observation
    assert one.act("click[p1]").observation.state_key != one.act("click[< prev]").observation.state_key


def test_a_purchase_is_final(small_clean: WebShopDomain) -> None:
    shop = environment(small_clean)
    for text in ("search[Cassia Infusion No. 4]", "click[p1]", "click[buy now]"):
        done = shop.act(text)
    assert done.done
    assert 0 < done.reward < 1
    after = shop.step(Action("search", {"query": "tea"}))
    assert (after.observation, after.done, after.valid, after.reward) == (done.observation, True, False, 0.0)


def test_every_goal_can_be_met_by_the_expert(small_clean: WebShopDomain) -> None:
    for split in ("train", "validation", "test"):
        for task in small_clean.tasks(split):
            shop = small_clean.environment(task, 0)
            replies = [shop.step(action) for action in small_clean.expert(task) or ()]
            assert all(reply.valid for reply in replies)
            assert (replies[-1].done, replies[-1].reward) == (True, 1.0), task.key


@given(
    st.lists(
        st.one_of(st.text(max_size=30), st.sampled_from(["search[tea]", "click[p1]", "click[p10]", "click[next >]", "click[buy now]"]))
    )
)
def test_no_text_breaks_the_shop(small_clean: WebShopDomain, texts: list[str]) -> None:
    shop = environment(small_clean)
    before = shop.start()
    for text in texts:
        reply = shop.act(text)
        assert reply.valid or reply.observation == before
        before = reply.observation


@pytest.mark.parametrize(
    "action", [Invalid("x", "y"), Action("buy"), Action("search", {"element": "tea"}), Action("click", {"element": "x", "y": "z"})]
)
def test_what_is_no_call_changes_nothing(small_clean: WebShopDomain, action: Action | Invalid) -> None:
    shop = environment(small_clean)
    reply = shop.step(action)
    assert (reply.observation, reply.valid, reply.done) == (shop.start(), False, False)


def test_real_goals_split_by_product_and_can_all_be_met(real_clean: WebShopDomain) -> None:
    sizes = {split: len(goals) for split, goals in real_clean.splits.items()}
    assert sum(sizes.values()) == 1002  # at most 4 goals of each of 415 products
    for task in real_clean.tasks("test"):
        shop = real_clean.environment(task, 0)
        replies = [shop.step(action) for action in real_clean.expert(task) or ()]
        assert replies[-1].reward == 1.0
        assert max(len(reply.observation.text) for reply in replies) < 2500
