"""The original shop over the small catalogue: what was recorded here stays, and the accidents are where they should be."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.envs.shop.webshop import WebShopDomain, WebShopSettings, replay
from stepwell.envs.shop.webshop.compat import CompatEnvironment
from stepwell.errors import ConfigError
from stepwell.types import Action, Invalid


def environment(domain: WebShopDomain, goal: int = 0, **settings: Any) -> CompatEnvironment:
    played = domain.replayed(goal, replace(domain.compat_settings, **settings))
    assert isinstance(played, CompatEnvironment)
    return played


def goal_of(domain: WebShopDomain, asin: str) -> int:
    return next(index for index, goal in enumerate(domain.store.goals) if goal.asin == asin)


def test_recorded_episodes_do_not_change(small_compat: WebShopDomain, small_folder: Path) -> None:
    rows = [json.loads(line) for line in (small_folder / "episodes.jsonl").read_text(encoding="utf-8").splitlines()]
    answers = replay(small_compat, [json.dumps(row["request"]) for row in rows])
    assert len(rows) == 16
    for row, answer in zip(rows, answers, strict=True):
        assert answer == row["answer"]


def test_search_is_taken_everywhere_and_click_only_in_view(small_compat: WebShopDomain) -> None:
    shop = environment(small_compat)
    assert (shop.has_search_bar, shop.clickables) == (True, ("search",))
    assert [shop.act(text).valid for text in ("click[search]", "click[buy now]", "search[]", "buy", "", "Search[tea]", " search[tea]")] == [
        False
    ] * 7
    assert shop.act("search[ ]").observation.text.endswith("Page 1 (Total results: 0) [SEP] Next >")
    assert shop.act("search[green teas]").valid
    assert shop.clickables[:3] == ("back to search", "next >", shop.clickables[2])
    item = shop.act(f"click[{shop.clickables[2].upper()}] and more")
    assert item.valid
    assert "buy now" in shop.clickables
    assert shop.act("search[lamps]").valid


def test_the_url_quirks_belong_to_compat(small_compat: WebShopDomain) -> None:
    for word, page in (("search_results", "Page 0 (Total"), ("item_page", "Page 1 (Total")):
        shop = environment(small_compat)
        shop.act(f"search[{word} green teas]")
        shop.act(f"click[{shop.clickables[2]}]")
        shop.act("click[features]")
        assert page in shop.act("click[< prev]").observation.text
    shop.act("search[green teas]")
    shop.act(f"click[{shop.clickables[2]}]")
    shop.act("click[features]")
    assert "Buy Now" in shop.act("click[< prev]").observation.text


def test_text_rich_marks_by_the_url(small_compat: WebShopDomain) -> None:
    shop = environment(small_compat, mode="text_rich")
    shop.act("search[Fenwick Jacket No. 2]")
    assert shop.clickables[2] == "x000000002"
    shop.act("click[x000000002]")
    unmarked = shop.act('click[a4 "red" café]').observation.text
    assert "[clicked button]" not in unmarked, "quotes and letters outside ASCII are escaped in the URL, so the value is never marked"
    marked = shop.act("click[blue_1 | 2]").observation.text
    assert marked.startswith("You have clicked blue_1 | 2.\nInstruction:\n")
    assert "  [clicked button] blue_1 | 2 [clicked button_]\n" in marked
    assert "\n[clicked button] X000000002 [clicked button_]\n" in shop.act("click[< prev]").observation.text
    shop.act("click[back to search]")
    assert "clicked" not in shop.act("search[Fenwick Jacket No. 2]").observation.text


def test_a_value_under_two_names_goes_to_the_last_one(small_compat: WebShopDomain) -> None:
    shop = environment(small_compat, goal_of(small_compat, "X000000003"))
    shop.act("search[Fenwick Shoes No. 3]")
    shop.act("click[x000000003]")
    assert shop.clickables == ("back to search", "< prev", "description", "features", "reviews", "buy now", "small", "large")
    shop.act("click[large]")
    shop.act("click[small]")
    assert '{"bottom": "small", "top": "large"}' in shop.act("click[buy now]").observation.text


def test_history_stands_in_front_oldest_first(small_compat: WebShopDomain) -> None:
    shop = environment(small_compat, num_prev_obs=1, num_prev_actions=2)
    plain = environment(small_compat)
    first = shop.start().text
    assert first == plain.start().text
    assert shop.act("search[ ]").observation.text == f"{first} [SEP] search[ ] [SEP] {plain.act('search[ ]').observation.text}"
    second = plain.act("search[ ]").observation.text
    assert shop.act("nonsense").observation.text == f"search[ ] [SEP] {second} [SEP] nonsense [SEP] {second}"


def test_a_purchase_is_final_for_a_policy_and_not_for_a_replay(small_compat: WebShopDomain) -> None:
    def bought() -> CompatEnvironment:
        shop = environment(small_compat)
        shop.act("search[tea]")
        shop.act(f"click[{shop.clickables[2]}]")
        assert shop.act("click[buy now]").done
        return shop

    after = bought().step(Action("search", {"query": "tea"}))
    assert (after.valid, after.done, after.reward) == (False, True, 0.0)
    after = bought().act("search[tea]")
    assert (after.valid, after.done, after.reward) == (True, False, 0.0)


def test_calls_of_tools_are_the_texts_they_stand_for(small_compat: WebShopDomain) -> None:
    by_text, by_call = environment(small_compat), environment(small_compat)
    assert by_text.start() == by_call.start()
    for name, argument, value in (("search", "query", "Green TEAS"), ("click", "element", "next >"), ("click", "element", "nothing")):
        assert by_call.step(Action(name, {argument: value})) == by_text.act(f"{name}[{value}]")
    assert [tool.arguments for tool in by_call.tools] == [("query",), ("element",)]


NO_CALLS = [
    *(Invalid("search[tea]", "the codec said so"), Action("buy"), Action("search")),
    *(Action("search", {"element": "tea"}), Action("search", {"query": ""})),
]


@pytest.mark.parametrize("action", NO_CALLS)
def test_what_is_no_call_changes_nothing(small_compat: WebShopDomain, action: Action | Invalid) -> None:
    shop = environment(small_compat)
    reply = shop.step(action)
    assert (reply.observation, reply.valid, reply.done, reply.reward) == (shop.start(), False, False, 0.0)


def test_state_keys_tell_states_apart_and_equal_ones_together(small_compat: WebShopDomain) -> None:
    def key(*actions: str, mode: str = "text") -> str:
        shop = environment(small_compat, mode=mode)
        return [shop.act(action) for action in actions][-1].observation.state_key

    search, item = "search[Cassia Infusion No. 4]", "click[x000000004]"
    assert key(search, item, "click[blue]", "click[mint]") == key(search, item, "click[mint]", "click[blue]")
    assert key(search, item, "click[blue]") != key(search, item)
    assert key(search, "click[next >]", "click[< prev]") == key(search)
    assert key(search) != key("search[lamps]")
    assert key(search, item, "click[< prev]") == key(search)
    assert key(search, item, "click[< prev]", mode="text_rich") != key(search, mode="text_rich")
    assert key(search, item, "click[features]") != key(search, item, "click[description]")


@given(
    st.lists(
        st.one_of(
            st.text(max_size=30), st.sampled_from(["search[tea]", "click[x000000004]", "click[next >]", "click[buy now]", "click[a[b]"])
        )
    )
)
def test_no_text_breaks_the_shop(small_compat: WebShopDomain, texts: list[str]) -> None:
    shop = environment(small_compat)
    before = shop.start()
    for text in texts:
        reply = shop.act(text)
        if not reply.valid:
            assert reply.observation == before
        before = reply.observation


def test_instructions_and_limits_follow_the_seed(small_compat: WebShopDomain, small_folder: Path) -> None:
    again, other = (WebShopDomain(WebShopSettings(small_folder, seed=seed)) for seed in (0, 1))
    assert again.store.goals == small_compat.store.goals
    assert [goal.asin for goal in other.store.goals] == [goal.asin for goal in small_compat.store.goals]
    assert other.store.goals != small_compat.store.goals
    assert other.store.prices != small_compat.store.prices


def test_goals_of_people_are_read_from_their_file(small_folder: Path) -> None:
    domain = WebShopDomain(WebShopSettings(small_folder, goals="human"))
    assert sorted(goal.asin for goal in domain.store.goals) == ["X000000001", "X000000007"]
    for goal in domain.store.goals:
        assert goal.instruction == f"i want a blue lamp, and price lower than {goal.price_upper:.2f} dollars"
        assert (goal.attributes, goal.options, goal.weight) == (("easy clean",), (("", "blue"),), 1.0)


def test_the_file_of_all_goals_of_people_serves_a_small_catalogue_too(small_folder: Path, tmp_path: Path) -> None:
    """As it is to be had: there is none of the small one's own."""
    for path in small_folder.iterdir():
        name = "items_human_ins.json" if path.name == "items_human_ins_1000.json" else path.name
        shutil.copy(path, tmp_path / name)
    there, here = (WebShopDomain(WebShopSettings(folder, goals="human")).store.goals for folder in (small_folder, tmp_path))
    assert there == here and len(here) == 2


def test_an_unknown_mode_is_named(small_folder: Path) -> None:
    with pytest.raises(ConfigError, match="mode is 'text_ritch'; did you mean 'text_rich'"):
        WebShopSettings(small_folder, mode="text_ritch")  # type: ignore[arg-type]
