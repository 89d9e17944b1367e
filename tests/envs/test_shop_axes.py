"""Axes of difficulty, set one by one; and that difficulty is what makes players fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stepwell.config import ShopConfig
from stepwell.configure import load_domain, parse
from stepwell.domains import build_domain
from stepwell.envs.shop import ShopDomain
from stepwell.envs.shop.axes import Axes, FixedAxes, axes
from stepwell.envs.shop.expert import plan
from stepwell.envs.shop.goal import Goal
from stepwell.envs.shop.players import RulePlayer, forgetful
from stepwell.envs.shop.tasks import Maker, instruction
from stepwell.envs.shop.words import SYNONYMS
from stepwell.errors import ConfigError
from stepwell.testing import check_environment
from stepwell.types import Action, Task

SHOP = ShopDomain()
STORE = SHOP.store


def tasks(fixed: FixedAxes, difficulty: float = 0.5, number: int = 60) -> list[Task]:
    maker = Maker(STORE, fixed)
    return [maker.task(difficulty, seed, "train") for seed in range(number)]


def earned(task: Task, actions: list[Action]) -> float:
    shop = SHOP.environment(task, 0)
    shop.start()
    return next((reply.reward for reply in map(shop.step, actions) if reply.done), 0.0)


def rule_earns(task: Task, noise: float, seed: int) -> float:
    shop = SHOP.environment(task, 0)
    text = shop.start().text
    player = RulePlayer(text, STORE.catalogue, noise=noise, rng=np.random.default_rng(seed))
    for _ in range(10):
        reply = shop.step(player.act(text))
        text = reply.observation.text
        if reply.done:
            return reply.reward
    return 0.0


# -- one by one ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 3])
def test_attributes(number: int) -> None:
    assert {len(Goal.of(task).attributes) for task in tasks(FixedAxes(attributes=number))} == {number}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_options(number: int) -> None:
    assert {len(Goal.of(task).options) for task in tasks(FixedAxes(options=number))} == {number}


def test_distractors_are_products_that_the_expert_opens_in_vain() -> None:
    means = []
    for number in (0, 1, 2, 3):
        plans = [plan(Goal.of(task), STORE) for task in tasks(FixedAxes(distractors=number))]
        means.append(np.mean([done.num_lookalikes for done in plans if done]))
    assert means[0] == 0.0
    assert np.all(np.diff(means) > 0.3), means


def test_wording_and_names() -> None:
    verbatim = tasks(FixedAxes(wording="verbatim"), 1.0)
    assert all(task.prompt.startswith("find ") for task in verbatim)
    free = tasks(FixedAxes(wording="paraphrased"), 0.0)
    assert all(task.prompt.startswith(("i want ", "need ")) for task in free)
    assert not any(set(SYNONYMS.values()) & set(task.prompt.split()) for task in free)
    assert any(set(SYNONYMS.values()) & set(task.prompt.split()) for task in tasks(FixedAxes(wording="synonyms"), 0.0))
    for named in (True, False):
        for wording in ("verbatim", "paraphrased"):
            for task in tasks(FixedAxes(options=1, wording=wording, option_names=named), number=20):  # type: ignore[arg-type]
                ((name, value),) = Goal.of(task).options
                assert (f"{name} {value}" in task.prompt) is named
                assert value in task.prompt.split()


def test_budget() -> None:
    assert {Goal.of(task).limit for task in tasks(FixedAxes(budget="none"), 1.0)} == {None}
    stated = tasks(FixedAxes(budget="stated"), 0.0)
    assert all(str(Goal.of(task).limit) in task.prompt.split() for task in stated)
    missing = tasks(FixedAxes(budget="missing"), 0.0)
    assert all(Goal.of(task).limit is not None and not any(word.isdigit() for word in task.prompt.split()) for task in missing)


def test_with_a_missing_budget_the_cheapest_that_fits_is_right_and_the_expert_sets_no_filter() -> None:
    overspent = 0
    for task in tasks(FixedAxes(budget="missing")):
        goal = Goal.of(task)
        assert Goal.of(Task(**{**vars_of(task)})) == goal
        free = replace(goal, limit=None)
        fitting = [i for i in range(len(STORE.catalogue)) if free.accepts(STORE.product(i))]
        assert goal.accepts(min((STORE.product(i) for i in fitting), key=lambda product: product.price))
        overspent += any(not goal.accepts(STORE.product(i)) for i in fitting)
        actions = list(SHOP.expert(task))
        assert "filter" not in {action.name for action in actions}
        assert earned(task, actions) == 1.0
    assert overspent > 10


def vars_of(task: Task) -> dict[str, object]:
    return {"key": task.key, "prompt": task.prompt, "difficulty": task.difficulty, "split": task.split, "payload": task.payload}


def test_hidden_attributes_stand_on_the_page_only() -> None:
    for hidden in (True, False):
        for task in tasks(FixedAxes(hidden=hidden)):
            goal = Goal.of(task)
            assert bool(set(goal.attributes) & set(STORE.product(goal.target).hidden)) is hidden


@pytest.mark.parametrize("steps", [(3, 4), (7, 8)])
def test_steps_needed(steps: tuple[int, int]) -> None:
    lengths = [len(SHOP.expert(task)) for task in tasks(FixedAxes(steps=steps))]
    assert steps[0] <= min(lengths) <= max(lengths) <= steps[1]


def test_setting_one_axis_changes_no_other() -> None:
    drawn = [axes(0.6, np.random.default_rng(seed)) for seed in range(40)]
    fixed = [axes(0.6, np.random.default_rng(seed), FixedAxes(options=2)) for seed in range(40)]
    assert fixed == [replace(one, num_options=2) for one in drawn]
    assert len({one.num_options for one in drawn}) > 1


def test_a_shop_of_one_budget_form_is_another_set_of_tasks() -> None:
    assert not {task.key for task in tasks(FixedAxes(options=1))} & {task.key for task in tasks(FixedAxes(options=2))}
    assert FixedAxes().key == ""


def test_more_products_have_more_distractors() -> None:
    """The size of the catalogue is an axis, too: where more products look right, a player who opens the first fails more."""
    fixed = FixedAxes(attributes=2, options=1, budget="none", hidden=False, distractors=3)
    means = []
    for products in (100, 300, 1_000):
        maker = Maker(ShopDomain(products=products, num_test_tasks=1).store, fixed)
        plans = [plan(Goal.of(maker.task(0.5, seed, "train")), maker.store) for seed in range(40)]
        means.append(np.mean([done.num_lookalikes for done in plans if done]))
    assert np.all(np.diff(means) > 0), means


def test_the_axes_of_a_config() -> None:
    config = load_domain("shop", ["products=200", "test_tasks=5", "axes.options=2", "axes.budget=missing", "axes.steps=[5,7]"])
    assert isinstance(config, ShopConfig)
    domain = build_domain(config)
    for task in domain.tasks("test"):
        goal = Goal.of(task)
        assert len(goal.options) == 2 and not goal.states_limit
        check_environment(domain, task)
    assert parse({"domain": {"kind": "shop", "axes": {"wording": "verbatim"}}}).domain.axes.wording == "verbatim"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"attributes": 4}, "axes.attributes is 4; allowed is 1 to 3"),
        ({"distractors": -1}, "axes.distractors is -1; allowed is 0 to 3"),
        ({"wording": "verbatm"}, "did you mean 'verbatim'"),
        ({"budget": "mising"}, "did you mean 'missing'"),
        ({"steps": (8, 4)}, r"axes.steps is \[8, 4\]; allowed is \[low, high\]"),
    ],
)
def test_axes_out_of_range(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        FixedAxes(**wrong)  # type: ignore[arg-type]


def test_a_task_that_the_catalogue_cannot_have() -> None:
    with pytest.raises(ConfigError, match="has no task of split 'train' with Axes"):
        Maker(ShopDomain(products=50, num_test_tasks=1).store, FixedAxes(steps=(10, 10), options=0, budget="none", hidden=False)).task(
            0.0, 0, "train"
        )


def test_instruction_of_named_options() -> None:
    goal = Goal("shirt", "clothing", ("soft",), (("color", "red"),), 30, ("soft", "shirt"), 0)
    rng = np.random.default_rng(0)
    assert instruction(goal, 0, rng, names=False) == "find soft shirt with red and price under 30"
    assert instruction(replace(goal, states_limit=False), 0, rng) == "find soft shirt with color red"
    assert "color red" in instruction(goal, 1, rng, names=True)
    assert Axes(1, 1, 0, False, False, 0).names is None


# -- difficulty is real -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ladder() -> list[list[Task]]:
    num_bins, num_tasks = 6, 150
    return [[SHOP.task((b + i / num_tasks) / num_bins, i, "train") for i in range(num_tasks)] for b in range(num_bins)]


def test_the_rule_player_falls_along_difficulty(ladder: list[list[Task]]) -> None:
    success = [np.mean([rule_earns(task, 0.0, i) == 1.0 for i, task in enumerate(some)]) for some in ladder]
    assert np.all(np.diff(success) < 0), success
    assert success[0] > 0.8 and success[-1] < 0.35, success


def test_a_forgetful_player_falls_along_difficulty(ladder: list[list[Task]]) -> None:
    """It knows what the expert knows and forgets every fifth action: what it measures is the number of things to get right."""
    success = []
    for some in ladder:
        plans = [list(SHOP.expert(task)) for task in some]
        won = [
            earned(t, forgetful(p, 0.2, np.random.default_rng((i, n)))) == 1.0
            for i, (t, p) in enumerate(zip(some, plans, strict=True))
            for n in range(6)
        ]
        success.append(np.mean(won))
    assert np.all(np.diff(success) < 0), success
    assert success[0] - success[-1] > 0.12, success
