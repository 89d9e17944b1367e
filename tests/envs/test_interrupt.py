"""Interruptions: what happens when, what is said of it, what is still within reach, who shares it; and the contract of environments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from stepwell.configure import load, load_domain
from stepwell.domains import build_domain
from stepwell.envs.interrupt import ANYWHERE, Event, Interrupted, InterruptedEnvironment, Plan
from stepwell.envs.maze import MazeDomain
from stepwell.envs.shop import BasketDomain, ShopDomain
from stepwell.envs.shop.basket import BasketShop, ShoppingList
from stepwell.envs.shop.changed import ChangedStore, Shift, Views
from stepwell.envs.shop.events import KINDS, TRIGGERS, ShopEvents, ShopWorld
from stepwell.envs.shop.expert import plan
from stepwell.envs.shop.goal import Goal
from stepwell.envs.shop.shop import Shop
from stepwell.envs.shop.store import Filters
from stepwell.errors import ConfigError
from stepwell.testing import check_environment
from stepwell.types import Action, Ending, EndingKind, Episode, Invalid, Reply, Stop, Task, Turn, Verdict

SHOP = ShopDomain(products=500, num_test_tasks=30)
LISTS = BasketDomain(products=500, num_test_tasks=20)
SHOP_EVENTS, LIST_EVENTS = ShopEvents(SHOP.store, Shop), ShopEvents(LISTS.store, BasketShop)
TASK = SHOP.task(0.3, 11, "train")
GOAL = Goal.of(TASK)
PATH = list(SHOP.expert(TASK))
"""Search, open, choose, buy."""
BOUGHT = plan(GOAL, SHOP.store)
assert BOUGHT is not None
TARGET = BOUGHT.product


def interrupted(*kinds: str, **settings: object) -> Interrupted:
    return Interrupted(SHOP, Plan(kinds, **{"solvable": 0.4, **settings}), SHOP_EVENTS)  # type: ignore[arg-type]


def event(
    kind: str, change: dict[str, object], *, step: int | None = 1, when: str = "", explicit: bool = True, lasts: int | None = None
) -> Event:
    return Event(kind, change, step, when, explicit, lasts)  # type: ignore[arg-type]


def opened(*events: Event, task: Task = TASK, solvable: float = 0.1) -> InterruptedEnvironment:
    made = InterruptedEnvironment(SHOP_EVENTS.world(task, 0), events, solvable)
    made.start()
    return made


def play(environment: InterruptedEnvironment | Shop, actions: Sequence[Action]) -> list[Reply]:
    return [environment.step(action) for action in actions]


def episode(
    domain: Interrupted, task: Task, actions: Sequence[Action | Invalid], member: int = 0, kind: EndingKind | None = None
) -> Episode:
    environment = domain.environment(task, member)
    start, ids = environment.start(), np.array([1])
    replies: list[Reply] = []
    for action in actions:
        replies.append(environment.step(action))
        if replies[-1].done:
            break
    turns = tuple(Turn(ids, ids, np.array([-0.1]), "", a, r, Stop.EOS, 0) for a, r in zip(actions, replies, strict=False))
    ending = kind or (EndingKind.TERMINATED if replies and replies[-1].done else EndingKind.TURN_LIMIT)
    return Episode(task, member, start, turns, Ending(ending, "cut"), Verdict.of(0.0))


SOLD_OUT = {"what": "stock", "product": TARGET}


def test_the_task_of_these_tests() -> None:
    assert [action.name for action in PATH] == ["search", "click", "click", "buy"]
    assert len(GOAL.options) == 1 and GOAL.limit is None


# -- when, and what is said ---------------------------------------------------------------------------------------------------


def test_it_happens_after_the_step_and_is_said_with_its_reply() -> None:
    environment = opened(event("stock_out", SOLD_OUT, step=2))
    replies = play(environment, PATH)
    title = SHOP.store.product(TARGET).title
    assert [reply.event for reply in replies] == [None, "stock_out", None, None]
    clean = play(SHOP.environment(TASK), PATH)
    assert replies[1].observation.text == f"{clean[1].observation.text}\nnews {title} sold out"
    assert replies[0].observation.text == clean[0].observation.text
    assert (replies[3].observation.text, replies[3].valid, replies[3].done) == ("sold out", False, False)


def test_what_is_not_announced_is_found_out() -> None:
    replies = play(opened(event("stock_out", SOLD_OUT, step=1, explicit=False)), PATH)
    clean = play(SHOP.environment(TASK), PATH)
    assert replies[0].observation.text == clean[0].observation.text
    assert replies[0].event == "stock_out", "the record says it, though the policy is not told"
    assert replies[1].observation.text == clean[1].observation.text + "\nsold out"
    assert "buy[]" not in (replies[1].observation.admissible or ())


def test_what_passes_is_over_after_its_steps() -> None:
    environment = opened(event("stock_out", SOLD_OUT, step=2, lasts=2))
    buy = Action("buy")
    replies = play(environment, [*PATH[:2], buy, PATH[2], buy])
    assert [reply.valid for reply in replies] == [True, True, False, True, True]
    assert replies[3].observation.text.endswith("back again")
    assert replies[4].reward == 1.0


@pytest.mark.parametrize(
    ("when", "at"), [("search", 1), ("click", 2), ("results_shown", 1), ("target_opened", 2), ("option_chosen", 3), ("ready", 3)]
)
def test_an_event_can_wait_for_something(when: str, at: int) -> None:
    replies = play(opened(event("decoy_out", {"what": "stock", "product": 0}, step=None, when=when)), PATH)
    assert [reply.event is not None for reply in replies].index(True) + 1 == at
    assert sum(reply.event is not None for reply in replies) == 1


def test_a_failing_tool_does_nothing_and_says_so_or_not() -> None:
    for explicit, text in ((True, "error try again"), (False, None)):
        environment = opened(event("tool_error", {}, step=1, lasts=2, explicit=explicit))
        replies = play(environment, [PATH[0], PATH[1], PATH[1], PATH[1], *PATH[2:]])
        assert [reply.observation.text for reply in replies[1:3]] == [text or replies[0].observation.text] * 2
        assert replies[3].observation.text == play(SHOP.environment(TASK), PATH)[1].observation.text
        assert replies[-1].reward == 1.0
        assert all(reply.valid for reply in replies)


def test_a_stale_page_lags_behind_though_the_action_was_carried_out() -> None:
    replies = play(opened(event("stale_page", {}, step=1, lasts=1, explicit=False)), PATH)
    assert replies[1].observation.text == replies[0].observation.text
    assert replies[2].observation.text == play(SHOP.environment(TASK), PATH)[2].observation.text
    assert replies[-1].reward == 1.0


def test_empty_results_pass() -> None:
    environment = opened(event("empty_results", {"what": "search"}, step=1, lasts=2))
    replies = play(environment, [PATH[0], PATH[0], PATH[0], PATH[0]])
    assert replies[0].observation.text.endswith("news search is down")
    assert [reply.observation.text.split("\n")[0] for reply in replies[1:3]] == ["no results"] * 2
    assert replies[2].observation.text.endswith("news search works again")
    assert replies[3].observation.text == play(SHOP.environment(TASK), PATH[:1])[0].observation.text


def test_prices() -> None:
    price = SHOP.store.product(TARGET).price
    environment = opened(event("price_rise", {"what": "price", "product": TARGET, "price": price + 10}))
    replies = play(environment, PATH)
    assert replies[0].observation.text.endswith(f"now {price + 10}")
    assert replies[1].observation.text.split("\n")[0] == f"{SHOP.store.product(TARGET).title} {price + 10}"
    assert SHOP.store.product(TARGET).price == price, "the store itself stays as it is"
    assert SHOP.environment(TASK).step(PATH[0]).observation.text != replies[0].observation.text


def test_a_listing_that_is_gone_can_still_be_bought_where_it_is_open() -> None:
    change = {"what": "listing", "product": TARGET}
    assert play(opened(event("delisted", change, step=2)), PATH)[-1].reward == 1.0
    environment = opened(event("delisted", change, step=1))
    assert environment.world.best() == 1.0  # type: ignore[union-attr]
    environment.step(PATH[0])
    environment.step(PATH[0])
    assert TARGET not in environment.world.visit.found  # type: ignore[union-attr]


def test_a_restock_ends_what_was_sold_out_from_the_start() -> None:
    environment = opened(event("restock", SOLD_OUT, step=3))
    replies = play(environment, [PATH[0], PATH[1], PATH[2], Action("buy")])
    assert "sold out" in replies[1].observation.text.split("\n")[-1]
    assert replies[2].observation.text.endswith("back again")
    assert replies[3].reward == 1.0


def test_the_user_revises() -> None:
    name, value = GOAL.options[0]
    other = next(v for n, values in SHOP.store.product(TARGET).options if n == name for v in values if v != value)
    environment = opened(event("option_revised", {"item": 0, "option": [name, other]}, step=3))
    replies = play(environment, [*PATH[:3], Action("click", {"element": f"{name} {other}"}), Action("buy")])
    assert replies[2].observation.text.endswith(f"now {GOAL.type} with {name} {other}")
    assert replies[-1].reward == 1.0
    assert play(opened(event("option_revised", {"item": 0, "option": [name, other]}, step=3)), PATH)[-1].reward < 1.0
    price = SHOP.store.product(TARGET).price
    limited = opened(event("budget_revised", {"limit": price}, step=1))
    replies = play(limited, PATH)
    assert replies[0].observation.text.endswith(f"now price under {price}")
    assert replies[-1].reward == pytest.approx(2 / 3 if len(GOAL.attributes) == 1 else 3 / 4)


def test_a_list_is_revised() -> None:
    task = LISTS.task(0.3, 2, "train")
    wanted, path = ShoppingList.of(task), list(LISTS.expert(task))
    made = InterruptedEnvironment(LIST_EVENTS.world(task, 0), (event("budget_revised", {"budget": wanted.budget + 10}),), 1.0)
    made.start()
    reply = made.step(path[0])
    assert reply.observation.text.endswith(f"now total {wanted.budget + 10} dollars")
    visit = made.world.visit  # type: ignore[union-attr]
    assert (visit.left, visit.shopping.budget) == (wanted.budget + 10, wanted.budget + 10)


def test_an_event_that_would_leave_nothing_does_not_happen() -> None:
    """A budget that the orders made so far have used up cannot be taken back."""
    task = LISTS.task(1.0, 3, "train")
    wanted, path = ShoppingList.of(task), list(LISTS.expert(task))
    for budget, happens in ((wanted.budget - 100, False), (wanted.budget + 5, True)):
        made = InterruptedEnvironment(LIST_EVENTS.world(task, 0), (event("budget_revised", {"budget": budget}, step=2),), 1.0)
        made.start()
        replies = [made.step(action) for action in path]
        assert (made.happened == ("budget_revised",)) is happens
        assert (replies[1].event is not None) is happens
        assert replies[-1].reward == 1.0


# -- what is within reach -----------------------------------------------------------------------------------------------------


def brute(goal: Goal, products: Sequence[int], sold_out: int) -> float:
    """All products, all options that can be chosen there."""
    store, best = SHOP.store, 0.0
    for index in products:
        product = store.product(index)
        if product.stock and index != sold_out:
            chosen = {name: value for name, value in goal.options if product.offers(name, value)}
            best = max(best, goal.grade(product, chosen).reward)
    return best


def test_the_best_that_is_left_is_that_of_all_products() -> None:
    seen = set()
    for seed in range(25):
        task = SHOP.task(0.9, seed, "train")
        goal = Goal.of(task)
        environment = opened(event("stock_out", {"what": "stock", "product": goal.target}), task=task, solvable=0.01)
        environment.step(SHOP.expert(task)[0])
        assert environment.best == pytest.approx(brute(goal, range(500), goal.target))
        seen.add(environment.best == 1.0)
    assert seen == {True, False}


def test_success_is_to_get_what_was_left_and_regret_what_was_not() -> None:
    domain = interrupted("stock_out", lasts="permanent", at=(1,), solvable=0.3)
    task = next(
        t
        for t in (SHOP.task(0.9, s, "train") for s in range(40))
        if domain.events(t) and domain.outcome(episode(domain, t, [Action("search", {"query": "x"})])).best not in (1.0, None)
    )
    best = domain.outcome(episode(domain, task, domain.expert(task) or ())).best
    assert best is not None and 0.3 <= best < 1.0
    done = episode(domain, task, domain.expert(task) or ())
    assert domain.grade(done) == Verdict(best, True)
    assert domain.outcome(done) == (best, best, ("stock_out",)) and domain.outcome(done).regret == 0.0
    half = episode(domain, task, [Action("search", {"query": Goal.of(task).type}), Action("click", {"element": "p1"}), Action("buy")])
    assert domain.grade(half).success is False
    score = domain.grade(half).score
    assert score is not None and domain.outcome(half).regret == pytest.approx(best - score) and score < best
    assert domain.grade(episode(domain, task, [])).success is False
    assert domain.grade(replace(half, ending=Ending(EndingKind.FAILED, "gone"))).score is None


def test_the_best_reachable_reward_is_told_step_by_step() -> None:
    domain = interrupted("option_out", lasts="permanent", at=(1,), solvable=0.3)
    task = next(
        t for t in (SHOP.task(0.9, s, "train") for s in range(60)) if domain.events(t) and domain.reachable(t, SHOP.expert(t)[:1])[-1] < 1.0
    )
    values = domain.reachable(task, list(domain.expert(task) or ()))
    assert values[0] == 1.0 and values[1] == values[-1] < 1.0
    with pytest.raises(ConfigError, match="Nobody can tell the best reachable reward"):
        Interrupted(MazeDomain(num_test_tasks=5), Plan(("tool_error",))).reachable(MazeDomain(num_test_tasks=5).tasks("test")[0], [])


def test_progress_goes_on_through_what_happens() -> None:
    domain = interrupted("stock_out", "price_rise", "option_revised", "tool_error", at=(0.5,), solvable=1.0)
    for task in [t for t in (SHOP.task(0.4, s, "train") for s in range(30)) if domain.events(t)][:12]:
        plan = list(domain.expert(task) or ())
        values = domain.progress(task, plan)
        assert (len(values), values[0], values[-1]) == (len(plan) + 1, 0.0, 1.0)
        assert all(0.0 <= value < 1.0 for value in values[:-1])
    quiet = interrupted("stock_out", share=0.0)
    task = SHOP.task(0.4, 3, "train")
    assert quiet.progress(task, SHOP.expert(task)) == SHOP.progress(task, SHOP.expert(task))
    with pytest.raises(ConfigError, match="Nobody can tell how far an episode"):
        Interrupted(MazeDomain(num_test_tasks=5), Plan(("tool_error",))).progress(MazeDomain(num_test_tasks=5).tasks("test")[0], [])


def test_progress_is_0_while_nothing_acceptable_is_to_be_had() -> None:
    domain = interrupted("stock_out", lasts="transient", steps=2, at=(2,), solvable=1.0)
    found = []
    for task in (t for t in (SHOP.task(0.9, s, "train") for s in range(60)) if domain.events(t)):
        search = Action("search", {"query": " ".join(Goal.of(task).query)})
        found.append(domain.progress(task, [search] * 5))
    assert any(values[1] > 0.0 == values[2] and values[4] > 0.0 for values in found)


# -- drawing ------------------------------------------------------------------------------------------------------------------


def test_a_group_shares_what_happens_or_each_member_meets_its_own() -> None:
    tasks = SHOP.tasks("test")
    shared, own = interrupted("stock_out", "option_out", "decoy_out"), interrupted("stock_out", "option_out", "decoy_out", shared="member")
    assert all(shared.events(task, 0) == shared.events(task, 5) for task in tasks)
    assert any(own.events(task, 0) != own.events(task, 5) for task in tasks)
    again = interrupted("stock_out", "option_out", "decoy_out")
    assert [again.events(task) for task in tasks] == [shared.events(task) for task in tasks]
    assert [interrupted("stock_out", "option_out", "decoy_out", seed=1).events(t) for t in tasks] != [shared.events(t) for t in tasks]


def test_tasks_of_other_splits_are_as_they_are() -> None:
    domain = interrupted("stock_out", splits=("train",))
    assert all(type(domain.environment(task)) is Shop for task in domain.tasks("test"))
    assert any(type(domain.environment(domain.task(0.3, seed, "train"))) is InterruptedEnvironment for seed in range(20))
    assert list(domain.tasks("test")) == list(SHOP.tasks("test")) and domain.difficulty == SHOP.difficulty


def test_share_number_and_times() -> None:
    tasks = [SHOP.task(0.3, seed, "train") for seed in range(120)]
    half = interrupted("tool_error", share=0.5)
    assert np.mean([bool(half.events(task)) for task in tasks]) == pytest.approx(0.5, abs=0.12)
    two = interrupted("tool_error", "stale_page", "decoy_out", number=2)
    assert np.mean([len(two.events(task)) for task in tasks]) > 1.9
    assert all(len({one.kind for one in two.events(task)}) == len(two.events(task)) for task in tasks)
    late = interrupted("tool_error", at=(0.8,))
    lengths = [len(SHOP.expert(task)) for task in tasks]
    assert [late.events(task)[0].step for task in tasks] == [min(max(1, int(0.8 * n + 0.5)), n - 1) for n in lengths]
    assert {interrupted("tool_error", at=(3,)).events(task)[0].step for task in tasks} == {3}
    waiting = interrupted("tool_error", at=("ready",)).events(tasks[0])[0]
    assert (waiting.step, waiting.when) == (None, "ready")


def test_forms() -> None:
    tasks = [SHOP.task(0.3, seed, "train") for seed in range(60)]
    mixed = interrupted("stock_out")
    drawn = [one for task in tasks for one in mixed.events(task)]
    assert {one.explicit for one in drawn} == {True, False} and {one.lasts for one in drawn} == {None, 2}
    fixed = [one for task in tasks for one in interrupted("stock_out", told="implicit", lasts="transient", steps=3).events(task)]
    assert {(one.explicit, one.lasts) for one in fixed} == {(False, 3)}


def test_events_leave_enough_within_reach() -> None:
    tasks = [SHOP.task(0.9, seed, "train") for seed in range(60)]
    strict, lax = interrupted("stock_out", lasts="permanent", solvable=1.0), interrupted("stock_out", lasts="permanent", solvable=0.3)
    assert 0 < sum(bool(strict.events(task)) for task in tasks) < sum(bool(lax.events(task)) for task in tasks)
    for task in tasks[:20]:
        if strict.events(task):
            assert strict.grade(episode(strict, task, strict.expert(task) or ())).score == 1.0


@pytest.mark.parametrize("kind", [*KINDS, *ANYWHERE])
def test_every_kind_happens_in_the_shop_and_keeps_the_contract(kind: str) -> None:
    domain = interrupted(kind, solvable=0.5)
    tasks = [task for task in (SHOP.task(s / 16, s, "train") for s in range(16)) if domain.events(task)]
    assert len(tasks) > 5
    for task in tasks[:2]:
        check_environment(domain, task)
    for task in tasks:
        done = episode(domain, task, domain.expert(task) or ())
        assert domain.grade(done).success is True, (task.key, domain.events(task))
        json.dumps([dict(one.change) for one in domain.events(task)])
    assert sum(any(turn.reply.event == kind for turn in episode(domain, task, domain.expert(task) or ()).turns) for task in tasks) > 3


@pytest.mark.parametrize(
    "kind", ["price_rise", "stock_out", "option_out", "delisted", "budget_revised", "option_revised", "empty_results", "tool_error"]
)
def test_every_kind_happens_to_shopping_lists(kind: str) -> None:
    domain = Interrupted(LISTS, Plan((kind,), shared="member"), LIST_EVENTS)
    tasks = [task for task in (LISTS.task(s / 10, s, "train") for s in range(10)) if domain.events(task)]
    assert len(tasks) > 2
    check_environment(domain, tasks[0], turns=20)
    for task in tasks:
        assert domain.grade(episode(domain, task, domain.expert(task) or ())).success is True, (task.key, domain.events(task))


def test_any_domain_can_have_failing_tools() -> None:
    maze = MazeDomain(num_test_tasks=8)
    domain = Interrupted(maze, Plan(("tool_error", "stale_page"), number=2))
    for task in domain.tasks("test"):
        assert domain.events(task)
        check_environment(domain, task)
        assert len(domain.expert(task) or ()) >= len(maze.expert(task) or ())


def test_equal_keys_mean_equal_states() -> None:
    """What is pending and how long it lasts is part of the state."""
    waiting = opened(event("stock_out", SOLD_OUT, step=3))
    keys = [reply.observation.state_key for reply in play(waiting, [PATH[0], PATH[0]])]
    assert len(set(keys)) == 2, "the same page, one step nearer to the event"
    plain = [reply.observation.state_key for reply in play(SHOP.environment(TASK), [PATH[0], PATH[0]])]
    assert len(set(plain)) == 1


def test_twins_do_not_disturb_each_other() -> None:
    environment = opened(event("stock_out", SOLD_OUT, step=1, lasts=3))
    environment.step(PATH[0])
    twin = environment.twin()
    for action in (PATH[1], PATH[2], PATH[2]):
        twin.step(action)
    assert twin.step(Action("buy")).reward == 1.0
    assert environment.num_steps == 1
    assert "sold out" in environment.step(PATH[1]).observation.text


# -- a store that has changed ---------------------------------------------------------------------------------------------------


def test_a_changed_store_answers_as_a_store_with_those_products_would() -> None:
    views = Views(SHOP.store)
    same = ChangedStore(views)
    words = GOAL.query
    assert same.search(words) == SHOP.store.search(words) and same.product(TARGET) == SHOP.store.product(TARGET)
    changed = ChangedStore(views, (Shift("price", TARGET, price=95), Shift("option", TARGET, option=GOAL.options[0])))
    assert changed.product(TARGET).price == 95 and not changed.product(TARGET).offers(*GOAL.options[0])
    assert GOAL.options[0] in changed.product(TARGET).sold_out
    assert TARGET in SHOP.store.search(words, Filters(under=90)) and TARGET not in changed.search(words, Filters(under=90))
    assert TARGET not in changed.search(words, Filters(options=GOAL.options))
    gone = ChangedStore(views, (Shift("listing", TARGET),))
    assert TARGET not in gone.search(words)
    assert len(gone.search(words)) == 40
    gone.remove(Shift("listing", TARGET))
    assert gone.search(words) == SHOP.store.search(words)


# -- settings -----------------------------------------------------------------------------------------------------------------


def test_a_config() -> None:
    config = load_domain(
        "shop", ["products=300", "test_tasks=10", "interruptions.kinds=[stock_out,tool_error]", "interruptions.at=[0.5,2,ready]"]
    )
    domain = build_domain(config)
    assert isinstance(domain, Interrupted) and domain.plan.at == (0.5, 2, "ready")
    assert not isinstance(build_domain(load_domain("shop", ["products=300"])), Interrupted)
    assert isinstance(build_domain(load_domain("maze", ["test_tasks=5", "interruptions.kinds=[stale_page]"])), Interrupted)
    assert load("smoke", ["interruptions.kinds=[stock_out]"]).domain.interruptions.kinds == ("stock_out",)  # type: ignore[union-attr]
    assert set(TRIGGERS) & {"ready"} and isinstance(SHOP_EVENTS.world(TASK, 0), ShopWorld)


@pytest.mark.parametrize(
    ("kinds", "settings", "said"),
    [
        (("stock_uot",), {}, "did you mean 'stock_out'"),
        ((), {}, "interruptions.kinds is empty; name what may happen"),
        (("tool_error",), {"lasts": "permanent"}, "can only be transient: otherwise no task could be solved"),
        (("restock",), {"lasts": "transient"}, "can only be permanent"),
        (("budget_revised",), {"told": "implicit"}, "'budget_revised' can only be explicit"),
        (("stock_out",), {"at": ()}, "interruptions.at is empty"),
        (("stock_out",), {"at": (1.5,)}, "interruptions.at holds 1.5; allowed are fractions between 0 and 1"),
        (("stock_out",), {"at": (0,)}, "interruptions.at holds 0"),
        (("stock_out",), {"at": ("serch",)}, "did you mean 'search'"),
        (("stock_out",), {"share": 1.5}, r"interruptions.share is 1.5; a share lies in \[0, 1\]"),
        (("stock_out",), {"solvable": 0.0}, "interruptions.solvable is 0.0; allowed is above 0 to 1"),
        (("stock_out",), {"number": 0}, "both are at least 1"),
        (("stock_out",), {"told": "loudly"}, "interruptions.told is 'loudly'"),
        (("stock_out",), {"splits": ()}, "interruptions.splits is empty"),
    ],
)
def test_bad_plans(kinds: tuple[str, ...], settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        interrupted(*kinds, **settings)


def test_an_interruption_that_makes_every_task_unsolvable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShopWorld, "best", lambda self: 0.0)
    with pytest.raises(ConfigError, match=r"leave none of 48 tasks solvable to 0.4"):
        interrupted("stock_out", lasts="permanent")
    interrupted("tool_error")
    with pytest.raises(ConfigError, match="did you mean 'tool_error'"):
        Interrupted(MazeDomain(num_test_tasks=5), Plan(("tool_eror",)))
