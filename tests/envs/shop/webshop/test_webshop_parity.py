"""`variant=compat` against recordings of the original program: every goal, price, reward, search, page, clickable and end."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.envs.shop.analysis import analyse
from stepwell.envs.shop.webshop import WebShopDomain, replay
from stepwell.envs.shop.webshop.players import compat_oracle, plain_rule, play, scripted, verbatim_rule
from stepwell.envs.shop.webshop.reward import compat_reward


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def read(path: Path) -> Any:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def test_goals_come_in_the_original_order_with_the_original_limits(real_compat: WebShopDomain, golden: Path) -> None:
    goals = real_compat.store.goals
    assert len(goals) == 6910
    count = 0
    for row in rows(golden / "goals.jsonl.gz"):
        goal = goals[row["index"]]
        assert (goal.asin, goal.instruction, list(goal.attributes)) == (row["asin"], row["instruction_text"], row["attributes"])
        assert (dict(goal.options), goal.price_upper, goal.weight) == (row["goal_options"], row["price_upper"], row["weight"])
        count += 1
    assert count == 3580


def test_prices_are_the_originals(real_compat: WebShopDomain, golden: Path) -> None:
    assert real_compat.store.prices == read(golden / "prices.json.gz")


def test_the_index_holds_the_originals_terms(real_compat: WebShopDomain, golden: Path) -> None:
    stats = read(golden / "index_stats.json.gz")
    index = real_compat.store.index
    assert (len(index), index.num_terms, index.num_tokens) == (stats["documents"], stats["unique_terms"], stats["total_terms"])
    lengths = dict(zip((product.asin for product in real_compat.store.ranked), index.lengths_D.tolist(), strict=True))
    assert lengths == stats["doc_len"]
    assert {term: index.document_frequency(term) for term in stats["doc_freq"]} == stats["doc_freq"]


def test_searches_find_the_originals_products_in_its_order(real_compat: WebShopDomain, golden: Path) -> None:
    store, different, count = real_compat.store, [], 0
    for row in rows(golden / "search.jsonl.gz"):
        if row["hits"] is None:  # more than 1,024 terms: the original crashes
            continue
        count += 1
        hits = store.index.search(analyse(row["sent"]), k=50)
        found = [store.ranked[i].asin for i in hits.ids.tolist()]
        assert np.allclose(hits.scores, [score for _, score in row["hits"]], rtol=0, atol=2e-4)
        if found != [asin for asin, _ in row["hits"]]:
            different.append((row["id"], [i for i, (asin, _) in enumerate(row["hits"]) if asin != found[i]]))
    assert count >= 359
    assert different == [(188, [28, 29])], "one list hangs on a float32 tie of 1.5e-7; every other must be equal"


def test_rewards_are_the_originals_to_the_last_bit(real_compat: WebShopDomain, golden: Path) -> None:
    store, colours = real_compat.store, real_compat.compat_settings.colours
    count = 0
    for row in rows(golden / "rewards.jsonl.gz"):
        parts = compat_reward(store.target(store.goals[row["goal_index"]]), store.purchase(row["asin"], row["options"]), colours)
        expected = row["info"] | {"reward": row["reward"]}
        got = {key: getattr(parts, key) for key in expected}
        assert got == expected, row["id"]
        count += 1
    assert count == 2855


def test_every_recorded_episode_is_equal(real_compat: WebShopDomain, golden: Path) -> None:
    recorded = list(rows(golden / "episodes.jsonl.gz"))
    keys = ("mode", "show_attrs", "num_prev_obs", "num_prev_actions")
    requests = [
        {"goal": row["goal_index"], "actions": [step["action"] for step in row["steps"]]} | {k: row[k] for k in keys} for row in recorded
    ]
    count = 0
    for row, answer in zip(recorded, replay(real_compat, map(json.dumps, requests)), strict=True):
        expected = [row["reset"] | {"reward": 0.0, "done": False}, *row["steps"]]
        got: Any = answer["steps"]
        for step, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
            where = (row["id"], row["kind"], step)
            assert mine["observation"] == theirs["obs"], where
            assert mine["clickables"] == theirs["clickables"], where
            assert (mine["reward"], mine["done"], mine["has_search_bar"]) == (theirs["reward"], theirs["done"], theirs["has_search_bar"]), (
                where
            )
            assert mine["valid"] == isinstance(theirs["reward"], float), where
            count += 1
    assert (len(recorded), count) == (198, 198 + 1735)


def test_recorded_purchases_have_the_recorded_parts(real_compat: WebShopDomain, golden: Path) -> None:
    count = 0
    for row in rows(golden / "episodes.jsonl.gz"):
        environment = real_compat.replayed(row["goal_index"], replace(real_compat.compat_settings, show_attrs=row["show_attrs"]))
        for step in row["steps"]:
            environment.act(step["action"])
            if "reward_info" in step:
                assert {key: getattr(environment.parts, key) for key in step["reward_info"]} == step["reward_info"]
                count += 1
    assert count > 80


def test_baselines_are_those_measured_on_the_original_goals(real_compat: WebShopDomain) -> None:
    """Test goals 0-499; measured before with another price seed: 57.3 / 2.2, 79.6 / 56.2, 99.4 / 96.0 (score / success in percent)."""
    tasks = real_compat.tasks("test")
    expected = {plain_rule: (57.1, 2.2), verbatim_rule: (79.4, 56.6)}
    for rule, (score, success) in expected.items():
        rewards = [play(real_compat.environment(task, 0), rule(task.prompt)).reward for task in tasks]
        assert round(100 * float(np.mean(rewards)), 1) == score
        assert round(100 * float(np.mean([reward == 1 for reward in rewards])), 1) == success
    rewards = []
    for task, goal in zip(tasks, real_compat.store.goals[:500], strict=True):
        player = scripted(compat_oracle(real_compat.store, goal) or ())
        rewards.append(play(real_compat.environment(task, 0), player).reward)
    assert (round(100 * float(np.mean(rewards)), 1), sum(reward == 1 for reward in rewards)) == (99.4, 480)


def test_458_goals_cannot_be_met(real_compat: WebShopDomain) -> None:
    store, colours = real_compat.store, real_compat.compat_settings.colours
    best = [compat_reward(store.target(goal), store.purchase(goal.asin, dict(goal.options)), colours).reward for goal in store.goals]
    assert sum(reward < 1 for reward in best) == 458
