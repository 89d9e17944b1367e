"""Replaying lines of recorded actions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stepwell.envs.shop.webshop import WebShopDomain, replay
from stepwell.errors import DataError


def one(domain: WebShopDomain, **request: Any) -> list[dict[str, Any]]:
    (answer,) = replay(domain, [json.dumps(request)])
    assert answer["goal"] == request["goal"]
    steps: Any = answer["steps"]
    return list(steps)


def test_the_first_step_is_the_start(small_compat: WebShopDomain) -> None:
    start, after = one(small_compat, goal=3, actions=["search[ ]"])
    assert list(start) == ["observation", "reward", "done", "has_search_bar", "clickables", "valid", "state_key"]
    assert start["observation"] == f"WebShop [SEP] Instruction: [SEP] {small_compat.store.goals[3].instruction} [SEP] Search"
    assert (start["reward"], start["done"], start["has_search_bar"], start["clickables"], start["valid"]) == (
        0.0,
        False,
        True,
        ["search"],
        True,
    )
    assert after["clickables"] == ["back to search", "next >"]
    assert len(after["state_key"]) == 16


def test_settings_of_a_line_count_for_it_alone(small_compat: WebShopDomain) -> None:
    rich, attrs, plain = replay(
        small_compat,
        [
            json.dumps({"goal": 0, "mode": "text_rich", "actions": []}),
            "",
            json.dumps(
                {
                    "goal": 0,
                    "mode": "text",
                    "show_attrs": True,
                    "num_prev_obs": 1,
                    "actions": ["search[Cassia Infusion No. 4]", "click[x000000004]"],
                }
            ),
            json.dumps({"goal": 0, "actions": []}),
        ],
    )
    steps: list[Any] = [rich["steps"], attrs["steps"], plain["steps"]]
    assert steps[0][0]["observation"].endswith("[button] Search [button_]\n")
    assert "attributes" in steps[1][2]["clickables"]
    assert steps[1][1]["observation"].startswith("WebShop [SEP] ")
    assert steps[2][0]["observation"].endswith("[SEP] Search")


def test_the_clean_shop_replays_too(small_clean: WebShopDomain) -> None:
    steps = one(small_clean, goal=0, actions=["search[tea]", "click[p1]", "click[nothing]", "click[buy now]"])
    assert [step["valid"] for step in steps] == [True, True, True, False, True]
    assert [step["done"] for step in steps] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "requests.jsonl, line 2: not JSON"),
        ("[]", "line 2: expected a JSON object"),
        ('{"goal": 0}', "line 2: actions is None"),
        ('{"goal": 0, "actions": [1]}', r"line 2: actions is \[1\]"),
        ('{"goal": -1, "actions": []}', "line 2: goal is -1"),
        ('{"goal": 99999, "actions": []}', "line 2: goal is 99999; the shop has goals 0 to"),
        ('{"goal": true, "actions": []}', "line 2: goal is True"),
        ('{"goal": 0, "actions": [], "mode": "html"}', "line 2: mode is 'html'"),
        ('{"goal": 0, "actions": [], "show_attrs": 1}', "line 2: show_attrs is 1"),
        ('{"goal": 0, "actions": [], "num_prev_obs": 1.5}', "line 2: num_prev_obs is 1.5"),
        ('{"goal": 0, "action": []}', "line 2: unknown key 'action'; did you mean 'actions'"),
    ],
)  # fmt: skip
def test_a_line_that_is_none_is_named_after_the_lines_before_were_answered(small_compat: WebShopDomain, line: str, message: str) -> None:
    answers = replay(small_compat, ['{"goal": 0, "actions": []}', line], "requests.jsonl")
    assert next(answers)["goal"] == 0
    with pytest.raises(DataError, match=message):
        next(answers)


def test_settings_of_compat_are_refused_by_the_clean_shop(small_clean: WebShopDomain) -> None:
    with pytest.raises(DataError, match="mode belongs to variant=compat"):
        list(replay(small_clean, ['{"goal": 0, "actions": [], "mode": "text"}']))
