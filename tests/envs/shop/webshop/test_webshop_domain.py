"""WebShop as a domain: splits, tasks, verdicts, experts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepwell.envs.shop.webshop import WebShopDomain, WebShopSettings
from stepwell.envs.shop.webshop.goals import Goal
from stepwell.errors import ConfigError
from stepwell.testing import check_environment
from stepwell.types import Action, Ending, EndingKind, Episode, Observation, Reply, Stop, Task, Turn, Verdict


def episode(task: Task, *replies: Reply) -> Episode:
    ids = np.array([1])
    turns = tuple(Turn(ids, ids, np.zeros(1), "", Action("click", {"element": "x"}), reply, Stop.EOS, 0) for reply in replies)
    return Episode(task, 0, Observation("start"), turns, Ending(EndingKind.TERMINATED), Verdict.unscored("not graded yet"))


def test_compat_splits_are_the_published_ones(small_compat: WebShopDomain) -> None:
    total = len(small_compat.store.goals)
    assert total > 500
    assert [task.key for task in small_compat.tasks("test")] == [f"webshop/compat/{i}" for i in range(500)]
    assert [task.payload["goal"] for task in small_compat.tasks("train")] == list(range(500, total))


def test_clean_splits_share_no_product_and_cap_goals(small_clean: WebShopDomain) -> None:
    goals = small_clean.store.goals
    products = {split: [goals[i].asin for i in indices] for split, indices in small_clean.splits.items()}
    assert set(products) == {"test", "validation", "train"}
    assert not set(products["test"]) & set(products["train"])
    assert not set(products["validation"]) & (set(products["train"]) | set(products["test"]))
    everywhere = [asin for asins in products.values() for asin in asins]
    assert set(everywhere) == {goal.asin for goal in goals}
    assert max(everywhere.count(asin) for asin in everywhere) == 4
    wanted: list[tuple[str, object]] = [(goals[i].asin, goals[i].options) for indices in small_clean.splits.values() for i in indices]
    assert len(set(wanted)) == len(wanted)
    assert len(set(products["test"])) == round(0.2 * len(set(everywhere)))


def test_the_clean_split_follows_its_seed_and_cap(small_folder: Path, small_clean: WebShopDomain) -> None:
    again, other = (WebShopDomain(WebShopSettings(small_folder, variant="clean", seed=seed)) for seed in (0, 1))
    assert again.splits == small_clean.splits
    assert other.splits != small_clean.splits
    one = WebShopDomain(WebShopSettings(small_folder, variant="clean", goals_per_product=1))
    goals: tuple[Goal, ...] = one.store.goals
    assert sum(map(len, one.splits.values())) == len({goal.asin for goal in goals})


def test_tasks_say_what_is_asked_and_how_hard_it_is(small_compat: WebShopDomain) -> None:
    for task in small_compat.tasks("test")[:50]:
        goal = small_compat.store.goals[int(str(task.payload["goal"]))]
        assert task.prompt == goal.instruction
        assert task.difficulty == (len(goal.attributes) + len(goal.options) - 1) / 3
        assert task.split == "test"


def test_a_drawn_task_is_near_the_difficulty_asked_for_and_repeats(small_compat: WebShopDomain) -> None:
    drawn = [small_compat.task(0.95, seed, "test") for seed in range(40)]
    assert {task.difficulty for task in drawn} == {1.0}
    assert len({task.key for task in drawn}) > 30
    assert drawn[:5] == [small_compat.task(0.95, seed, "test") for seed in range(5)]
    assert {task.split for task in drawn} == {"test"}
    assert small_compat.task(0.0, 0, "test").difficulty == min(task.difficulty for task in small_compat.tasks("test")) < 1


def test_unknown_splits_and_foreign_tasks_are_named(small_compat: WebShopDomain, small_clean: WebShopDomain) -> None:
    with pytest.raises(ConfigError, match="no split 'trian'; did you mean 'train'"):
        small_compat.tasks("trian")
    task = small_compat.tasks("test")[3]
    for payload in ({"goal": 4}, {"goal": 10**6}, {"goal": "3"}, {}):
        with pytest.raises(ConfigError, match="is not of this shop"):
            small_compat.environment(Task(task.key, task.prompt, 0.0, "test", payload), 0)


def test_the_verdict_is_the_reward_of_the_purchase(small_compat: WebShopDomain) -> None:
    task = small_compat.tasks("test")[0]
    page, done = Reply(Observation("page")), Reply(Observation("receipt"), 0.75, done=True)
    assert small_compat.grade(episode(task, page, done)) == Verdict(0.75, False)
    assert small_compat.grade(episode(task, page, Reply(Observation("receipt"), 1.0, done=True))) == Verdict(1.0, True)
    assert small_compat.grade(episode(task, page)) == Verdict(0.0, False)
    assert small_compat.grade(episode(task)) == Verdict(0.0, False)


def test_the_expert_solves_what_it_offers_and_offers_nothing_else(small_compat: WebShopDomain) -> None:
    refused = set()
    for task in (*small_compat.tasks("test"), *small_compat.tasks("train")):
        plan = small_compat.expert(task)
        if plan is None:
            refused |= {value for _, value in small_compat.store.goals[int(str(task.payload["goal"]))].options}
            continue
        shop = small_compat.environment(task, 0)
        replies = [shop.step(action) for action in plan]
        assert (replies[-1].done, replies[-1].reward) == (True, 1.0)
    # `description` is taken for a button, `blue_1 | 2` becomes blue on one side only; the others go with `description`
    assert refused == {"description", "blue_1 | 2", "small", "large"}


def test_contracts_hold(small_compat: WebShopDomain, small_clean: WebShopDomain) -> None:
    for domain in (small_compat, small_clean):
        for task in domain.tasks("test")[:3]:
            check_environment(domain, task)


def test_real_goals_that_cannot_be_met_have_no_expert(real_compat: WebShopDomain) -> None:
    assert len(real_compat.tasks("test")) + len(real_compat.tasks("train")) == 6910
    assert sum(real_compat.expert(task) is None for task in real_compat.tasks("test")) == 20


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"variant": "clear"}, "variant is 'clear'; did you mean 'clean'"),
        ({"variant": "clean", "mode": "text_rich"}, "belong to variant=compat"),
        ({"variant": "clean", "goals": "human"}, "goals=human needs variant=compat"),
        ({"goals_per_product": 0}, "goals_per_product is 0"),
        ({"catalogue": "big"}, "catalogue is 'big'; Known"),
        ({"goals": "humans"}, "goals is 'humans'; did you mean 'human'"),
        ({"nouns": "none"}, "no noun lists of 'none'; Known: en_core_web_sm-3.6.0"),
    ],
)  # fmt: skip
def test_settings_that_cannot_work_are_named(small_folder: Path, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WebShopDomain(WebShopSettings(small_folder, **settings))  # type: ignore[arg-type]
