"""The generated shop as an environment: pages, rewards, refusals, replay."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.engine.codec import BRACKET
from stepwell.envs.shop import ShopDomain
from stepwell.envs.shop.expert import page_of_first, steps_by_new_results
from stepwell.envs.shop.goal import Goal, Grade
from stepwell.envs.shop.shop import TOOLS, Shop
from stepwell.envs.shop.store import NO_FILTERS, Filters
from stepwell.errors import ConfigError, EnvironmentFault
from stepwell.testing import check_environment
from stepwell.types import Action, Invalid, Reply, Task

DOMAIN = ShopDomain(products=400, seed=5, num_test_tasks=60)
STORE = DOMAIN.store


def task_for(goal: Goal) -> Task:
    return Task(key="t", prompt="find something", difficulty=0.0, split="test", payload=goal.payload())


def visit(goal: Goal, lines: Sequence[str]) -> tuple[Shop, list[Reply]]:
    shop = Shop(task_for(goal), STORE)
    shop.start()
    replies = []
    for line in lines:
        action = BRACKET.parse(line, TOOLS)
        assert isinstance(action, Action), line
        replies.append(shop.step(action))
    return shop, replies


def stocked(num_options: int = 2) -> int:
    """A product with several values in stock for both options, and with something sold out."""
    for index in range(len(STORE.catalogue)):
        product = STORE.product(index)
        if product.stock and len(product.options) == num_options and all(len(v) > 1 for _, v in product.options) and product.sold_out:
            return index
    raise AssertionError("no such product")


TARGET = stocked()
PRODUCT = STORE.product(TARGET)
(NAME, VALUES), (NAME_2, VALUES_2) = PRODUCT.options
GOAL = Goal(
    type=PRODUCT.type,
    department=PRODUCT.department,
    attributes=PRODUCT.shown[:2],
    options=((NAME, VALUES[0]), (NAME_2, VALUES_2[0])),
    limit=PRODUCT.price + 5,
    query=(*PRODUCT.shown, *PRODUCT.hidden, PRODUCT.type),
    target=TARGET,
)
SEARCH = f"search[{' '.join(GOAL.query)}]"


def slot_of(target: int, found: Sequence[int]) -> str:
    place = list(found).index(target)
    assert place < 4
    return f"p{place + 1}"


OPEN = f"click[{slot_of(TARGET, STORE.search(GOAL.query))}]"


# -- rewards ------------------------------------------------------------------------------------------------------------------


def test_a_purchase_that_matches_everything_is_worth_exactly_one() -> None:
    lines = [SEARCH, OPEN, f"click[{NAME} {VALUES[0]}]", f"click[{NAME_2} {VALUES_2[0]}]", "buy[]"]
    _, replies = visit(GOAL, lines)
    assert [r.reward for r in replies] == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert [r.done for r in replies] == [False] * 4 + [True]
    assert all(r.valid for r in replies)


def test_a_missing_option_costs_its_share() -> None:
    _, replies = visit(GOAL, [SEARCH, OPEN, f"click[{NAME} {VALUES[0]}]", f"click[{NAME_2} {VALUES_2[1]}]", "buy[]"])
    assert replies[-1].reward == pytest.approx(4 / 5)  # 2 attributes, 1 of 2 options, the price


def test_the_last_value_chosen_counts() -> None:
    _, replies = visit(GOAL, [SEARCH, OPEN, f"click[{NAME} {VALUES[1]}]", f"click[{VALUES[0]}]", f"click[{NAME_2} {VALUES_2[0]}]", "buy[]"])
    assert replies[-1].reward == 1.0


def test_going_back_forgets_the_options() -> None:
    _, replies = visit(GOAL, [SEARCH, OPEN, f"click[{NAME} {VALUES[0]}]", "click[back]", OPEN, "buy[]"])
    assert replies[-1].reward == pytest.approx(3 / 5)


@pytest.mark.parametrize(
    ("grade", "reward"),
    [
        (Grade(type=1.0, num_attributes=2, num_options=1, price=True, num_wanted=4), 1.0),
        (Grade(type=1.0, num_attributes=2, num_options=1, price=False, num_wanted=4), 0.75),
        (Grade(type=0.5, num_attributes=1, num_options=0, price=True, num_wanted=4), 0.25),
        (Grade(type=0.0, num_attributes=2, num_options=1, price=True, num_wanted=4), 0.0),
        (Grade(type=1.0, num_attributes=1, num_options=1, price=None, num_wanted=3), 2 / 3),
    ],
)
def test_reward_by_hand(grade: Grade, reward: float) -> None:
    assert grade.reward == pytest.approx(reward, abs=1e-15)


def test_grade_reads_the_product() -> None:
    other_type = next(
        t for t, d in zip(STORE.catalogue.types, STORE.catalogue.departments, strict=True) if d == PRODUCT.department and t != PRODUCT.type
    )
    chosen = {NAME: VALUES[0]}
    absent = next(w for w in STORE.catalogue.attribute_words if w not in PRODUCT.attributes)
    goal = Goal(
        other_type, PRODUCT.department, (PRODUCT.hidden[0], absent), ((NAME, VALUES[0]), (NAME, VALUES[1])), PRODUCT.price, ("x",), 0
    )
    assert goal.grade(PRODUCT, chosen) == Grade(type=0.5, num_attributes=1, num_options=1, price=False, num_wanted=5)
    assert Goal("x", "y", ("z",), (), None, ("x",), 0).grade(PRODUCT, {}) == Grade(0.0, 0, 0, None, 1)


def test_a_goal_accepts_what_can_be_bought_for_the_full_reward() -> None:
    assert GOAL.accepts(PRODUCT)
    assert not GOAL.accepts(PRODUCT._replace(stock=0))
    assert not GOAL.accepts(PRODUCT._replace(type="rock"))
    assert not GOAL.accepts(PRODUCT._replace(price=PRODUCT.price + 5))
    assert not GOAL.accepts(PRODUCT._replace(shown=PRODUCT.shown[1:]))
    assert not GOAL.accepts(PRODUCT._replace(options=PRODUCT.options[:1]))
    assert GOAL.accepts(PRODUCT._replace(shown=(), hidden=PRODUCT.attributes))


# -- pages --------------------------------------------------------------------------------------------------------------------


def test_results_show_slots_titles_and_prices() -> None:
    _, (reply,) = visit(GOAL, [SEARCH])
    lines = reply.observation.text.splitlines()
    assert len(lines) == 5
    assert lines[4] == "next"
    for line, (slot, index) in zip(lines, enumerate(STORE.search(GOAL.query)[:4], start=1), strict=False):
        product = STORE.product(index)
        assert line == f"p{slot} {' '.join(product.shown)} {product.type} {product.price}" + ("" if product.stock else " sold out")


def test_a_product_page_shows_hidden_attributes_options_and_what_is_sold_out() -> None:
    _, (_, reply) = visit(GOAL, [SEARCH, OPEN])
    assert reply.observation.text.splitlines() == [
        f"{PRODUCT.title} {PRODUCT.price}",
        f"also {' '.join(PRODUCT.hidden)}",
        f"{NAME} {' '.join(VALUES)}",
        f"{NAME_2} {' '.join(VALUES_2)}",
        *(f"sold out {name} {value}" for name, value in PRODUCT.sold_out),
    ]


def test_chosen_options_are_shown() -> None:
    _, replies = visit(GOAL, [SEARCH, OPEN, f"click[{NAME} {VALUES[1]}]", f"click[{NAME_2} {VALUES_2[0]}]", f"click[{NAME} {VALUES[0]}]"])
    assert replies[2].observation.text == f"chosen {NAME} {VALUES[1]}"
    assert replies[4].observation.text == f"chosen {NAME} {VALUES[0]} {NAME_2} {VALUES_2[0]}"


def test_next_and_back_turn_pages() -> None:
    _, replies = visit(GOAL, [f"search[{PRODUCT.type}]", "click[next]", "click[p1]", "click[back]", "click[back]"])
    found = STORE.search([PRODUCT.type])
    assert replies[1].observation.text == STORE.results_text(found, 1)
    assert replies[2].observation.text == STORE.product_text(found[4])
    assert replies[3].observation.text == STORE.results_text(found, 1)
    assert replies[4].observation == replies[0].observation


def test_filters_apply_before_and_after_a_search() -> None:
    limit = PRODUCT.price + 5
    _, before = visit(GOAL, [f"filter[price under {limit}]", SEARCH])
    _, after = visit(GOAL, [SEARCH, f"filter[price under {limit}]"])
    assert before[0].observation.text == f"filter price under {limit}"
    assert before[1].observation == after[1].observation
    prices = [int(re.findall(r"\d+", line)[1]) for line in after[1].observation.text.splitlines() if line.startswith("p")]
    assert prices
    assert max(prices) < limit
    _, cleared = visit(GOAL, [f"filter[price under {limit}]", SEARCH, "filter[none]"])
    assert cleared[2].observation.text == STORE.results_text(STORE.search(GOAL.query), 0)


def test_filter_by_an_option_in_stock() -> None:
    shop, replies = visit(GOAL, [f"search[{PRODUCT.type}]", f"filter[{NAME} {VALUES[0]}]"])
    assert replies[1].valid
    found = [index for index in STORE.search([PRODUCT.type]) if STORE.product(index).offers(NAME, VALUES[0])]
    lines = [line.removesuffix(" sold out") for line in replies[1].observation.text.splitlines()]
    assert lines[0] == f"p1 {STORE.product(found[0]).title} {STORE.product(found[0]).price}"
    assert shop.potential() > 0


def test_nothing_found_is_an_answer() -> None:
    _, (reply,) = visit(GOAL, ["search[zzz]"])
    assert (reply.observation.text, reply.valid, reply.observation.admissible) == ("no results", True, ())


def test_start_shows_the_instruction_once() -> None:
    task = DOMAIN.tasks("test")[0]
    shop = DOMAIN.environment(task, 0)
    assert shop.start().text == task.prompt
    texts = [shop.step(action).observation.text for action in DOMAIN.expert(task)]
    assert not any(task.prompt in text for text in texts)


# -- refusals -----------------------------------------------------------------------------------------------------------------


def sold_out_value() -> str:
    name, value = PRODUCT.sold_out[0]
    return f"{name} {value}"


@pytest.mark.parametrize(
    ("before", "action", "answer"),
    [
        ([], Action("buy"), "open a product first"),
        ([], Action("click", {"element": "p1"}), "no p1 here"),
        ([], Action("click", {"element": "back"}), "no back here"),
        ([], Action("click", {"element": "next"}), "no next here"),
        ([], Action("click", {"element": "color red"}), "open a product first"),
        ([], Action("click", {"element": "the moon"}), "no such element"),
        ([], Action("click", {"element": ""}), "no such element"),
        ([], Action("search", {"query": " ?! "}), "search needs words"),
        ([], Action("search", {"query": "red " * 33}), "too many words"),
        ([], Action("search", {}), "search takes query"),
        ([], Action("click", {"item": "p1"}), "click takes element"),
        ([], Action("buy", {"now": "yes"}), "buy takes nothing"),
        ([], Action("sell"), "no such action"),
        ([], Invalid("hm", "no call"), "no action"),
        ([], Action("filter", {"constraint": "price over 30"}), "no such filter"),
        ([], Action("filter", {"constraint": "price under ²"}), "no such filter"),
        ([], Action("filter", {"constraint": "price under 9999999999"}), "no such filter"),
        ([], Action("filter", {"constraint": "size red"}), "no such filter"),
        ([SEARCH], Action("buy"), "open a product first"),
        ([SEARCH, OPEN], Action("click", {"element": "p1"}), "no p1 here"),
        ([SEARCH, OPEN], Action("click", {"element": "next"}), "no next here"),
        ([SEARCH, OPEN], Action("click", {"element": sold_out_value()}), f"sold out {sold_out_value()}"),
    ],
)
def test_an_action_without_meaning_changes_nothing(before: list[str], action: Action | Invalid, answer: str) -> None:
    shop, replies = visit(GOAL, before)
    key = replies[-1].observation.state_key if replies else Shop(task_for(GOAL), STORE).start().state_key
    reply = shop.step(action)
    assert (reply.observation.text, reply.valid, reply.reward, reply.done) == (answer, False, 0.0, False)
    assert reply.observation.state_key == key


def test_a_value_that_the_product_does_not_come_in_is_refused() -> None:
    offered = {*VALUES, *(value for _, value in PRODUCT.sold_out)}
    value = next(
        v for v in ("red", "blue", "green", "black", "white", "rose", "mint", "cocoa", "berry", "honey", "lemon") if v not in offered
    )
    shop, _ = visit(GOAL, [SEARCH, OPEN])
    reply = shop.step(Action("click", {"element": value}))
    assert not reply.valid
    assert reply.observation.text.endswith(f"{value} here")


def test_a_product_that_is_sold_out_cannot_be_bought() -> None:
    index = next(i for i in range(len(STORE.catalogue)) if not STORE.product(i).stock)
    product = STORE.product(index)
    query = (*product.attributes, product.type)
    slot = slot_of(index, STORE.search(query))
    shop, replies = visit(GOAL, [f"search[{' '.join(query)}]", f"click[{slot}]", "buy[]"])
    assert f"{slot} {product.title} {product.price} sold out" in replies[0].observation.text
    assert (replies[2].observation.text, replies[2].valid, replies[2].done) == ("sold out", False, False)
    assert "buy[]" not in (replies[1].observation.admissible or ())
    assert shop.step(Action("click", {"element": "back"})).valid


def test_stepping_on_after_the_end_is_a_fault() -> None:
    shop, _ = visit(GOAL, [SEARCH, OPEN, "buy[]"])
    with pytest.raises(EnvironmentFault, match="episode over"):
        shop.step(Action("buy"))


def test_a_foreign_task_is_refused_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"'maze/3'.*payload has no usable"):
        DOMAIN.environment(Task("maze/3", "walk", 0.1, "train", {"seed": 3}), 0)


# -- contract -----------------------------------------------------------------------------------------------------------------


def random_actions(rng: np.random.Generator, number: int) -> list[Action | Invalid]:
    words = [
        "p1",
        "p2",
        "next",
        "back",
        "color red",
        "size small",
        "price under 50",
        "none",
        PRODUCT.type,
        *PRODUCT.shown,
        "",
        "[",
        "ÄÖ",
        "color",
    ]
    names = ["search", "click", "click", "click", "filter", "sell"]
    keys = {"search": "query", "click": "element", "filter": "constraint"}
    actions: list[Action | Invalid] = []
    for _ in range(number):
        name = str(rng.choice(names))
        actions.append(Action(name, {keys.get(name, "x"): str(rng.choice(words))}) if rng.random() < 0.9 else Invalid("...", "garbage"))
    return actions


def test_the_shop_keeps_the_contract_of_environments() -> None:
    for seed in range(10):
        check_environment(DOMAIN, DOMAIN.draw(seed), seed=seed)


def test_replaying_the_actions_reaches_the_same_states() -> None:
    for seed in range(20):
        task = DOMAIN.draw(seed)
        actions = random_actions(np.random.default_rng(seed), 40)
        first, second = DOMAIN.environment(task, 0), DOMAIN.environment(task, 7)
        assert first.start() == second.start()
        assert [first.step(a) for a in actions] == [second.step(a) for a in actions]


def test_equal_state_keys_mean_equal_futures() -> None:
    """The same page reached on two ways has one key, and answers alike; different choices have different keys."""
    _, one = visit(GOAL, [SEARCH, OPEN, f"click[{NAME} {VALUES[0]}]", f"click[{NAME_2} {VALUES_2[0]}]"])
    _, two = visit(GOAL, [SEARCH, "click[next]", "click[back]", OPEN, f"click[{NAME_2} {VALUES_2[0]}]", f"click[{NAME} {VALUES[0]}]"])
    assert one[-1].observation.state_key == two[-1].observation.state_key
    assert one[0].observation.state_key == two[2].observation.state_key
    keys = [reply.observation.state_key for reply in one]
    assert len(set(keys)) == len(keys)
    _, pages = visit(GOAL, [f"search[{PRODUCT.type}]", "click[next]", "filter[price under 60]", f"filter[{NAME} {VALUES[0]}]"])
    assert len({reply.observation.state_key for reply in pages}) == 4


@given(st.lists(st.tuples(st.sampled_from(["search", "click", "filter", "buy", "x"]), st.text(max_size=30)), max_size=12))
def test_garbage_never_crashes(lines: list[tuple[str, str]]) -> None:
    shop = DOMAIN.environment(DOMAIN.tasks("test")[1], 0)
    shop.start()
    keys = {"search": "query", "click": "element", "filter": "constraint"}
    for name, text in lines:
        reply = shop.step(Action(name, {keys[name]: text} if name in keys else {"y": text}))
        assert reply.observation.text
        assert 0.0 <= shop.potential() <= 1.0


def test_what_is_called_admissible_is_accepted() -> None:
    rng = np.random.default_rng(0)
    num_tried = 0
    for task in DOMAIN.tasks("test")[:20]:
        actions: list[Action] = [Action("search", {"query": PRODUCT.type})]
        for _ in range(4):
            shop = DOMAIN.environment(task, 0)
            shop.start()
            admissible = [shop.step(action) for action in actions][-1].observation.admissible or ()
            assert admissible
            parsed = [a for a in (BRACKET.parse(text, TOOLS) for text in admissible) if isinstance(a, Action)]
            assert len(parsed) == len(admissible)
            for action in parsed:
                again = DOMAIN.environment(task, 0)
                again.start()
                assert [again.step(a) for a in (*actions, action)][-1].valid, action
                num_tried += 1
            actions.append(parsed[int(rng.integers(len([a for a in parsed if a.name != "buy"])))])
    assert num_tried > 300


# -- progress -----------------------------------------------------------------------------------------------------------------


def test_potential_counts_the_actions_to_go() -> None:
    goal = GOAL
    lines = [
        SEARCH,
        OPEN,
        "click[back]",
        OPEN,
        f"click[{NAME} {VALUES[1]}]",
        f"click[{NAME} {VALUES[0]}]",
        f"click[{NAME_2} {VALUES_2[0]}]",
        "buy[]",
    ]
    shop = Shop(task_for(goal), STORE)
    shop.start()
    potentials = [shop.potential()]
    for line in lines:
        action = BRACKET.parse(line, TOOLS)
        shop.step(action)
        potentials.append(shop.potential())
    # search, open, two options, buy: 5 actions; opening and leaving costs what it had won; the wrong value wins nothing
    assert potentials == pytest.approx([0, 1 / 5, 2 / 5, 1 / 5, 2 / 5, 2 / 5, 3 / 5, 4 / 5, 1.0])


def test_potential_after_a_wrong_purchase_is_its_reward() -> None:
    shop, replies = visit(GOAL, [SEARCH, OPEN, "buy[]"])
    assert shop.potential() == replies[-1].reward == pytest.approx(3 / 5)


def fewest_actions(shop: Shop, goal: Goal) -> int:
    """By breadth-first search over all clicks, the goal's query and limit, and clearing the filters."""
    always = [Action("search", {"query": " ".join(goal.query)}), Action("filter", {"constraint": "none"})]
    always += [] if goal.limit is None else [Action("filter", {"constraint": f"price under {goal.limit}"})]
    level, seen = [shop], set[str]()
    for num_steps in range(20):
        following = []
        for state in level:
            if state.potential() == 1.0:
                return num_steps
            observation = state.step(Invalid("", ""))  # changes nothing, shows what is possible
            clicks = [BRACKET.parse(text, TOOLS) for text in observation.observation.admissible or ()]
            for action in [*always, *clicks]:
                after = copy.copy(state)
                reply = after.step(action)
                if reply.reward < 1.0 and reply.done:
                    continue
                if reply.observation.state_key not in seen:
                    seen.add(reply.observation.state_key)
                    following.append(after)
        level = following
    raise AssertionError("no way to the goal")


def test_potential_agrees_with_a_search_through_all_states() -> None:
    rng = np.random.default_rng(1)
    limited = [task for task in (DOMAIN.task(0.9, seed, "train") for seed in range(12)) if Goal.of(task).limit is not None][:2]
    values = set()
    for task in [DOMAIN.task(0.3, 0, "train"), *limited]:
        goal = Goal.of(task)
        at_start = fewest_actions(DOMAIN.environment(task, 0), goal)
        walks = [random_walk(DOMAIN.environment(task, 0), goal, rng, length) for length in (3, 4, 5, 6)]
        for walk in [*walks, *scripted_walks(goal)]:
            shop = DOMAIN.environment(task, 0)
            for action in walk:
                shop.step(action)
            expected = max(0.0, 1.0 - fewest_actions(copy.copy(shop), goal) / at_start)
            assert shop.potential() == pytest.approx(expected), walk
            values.add(round(expected, 3))
    assert len(values) >= 4


def test_a_filter_may_save_turning_pages() -> None:
    """Cheap products far down in the results of their type: filter (and search), open, buy."""
    num_found = 0
    for index in range(len(STORE.catalogue)):
        product = STORE.product(index)
        goal = Goal(product.type, product.department, product.shown[:1], (), 10, (product.type,), index)
        if product.price > 5 or not product.stock or (page_of_first(goal, STORE, goal.query, NO_FILTERS) or 0) < 2:
            continue
        num_found += 1
        assert page_of_first(goal, STORE, goal.query, Filters(under=10)) == 0
        assert steps_by_new_results(goal, STORE, (), NO_FILTERS) == 4
        assert steps_by_new_results(goal, STORE, goal.query, NO_FILTERS) == 3
        assert steps_by_new_results(goal, STORE, ("zzz",), Filters(under=10)) == 3
        assert steps_by_new_results(goal, STORE, goal.query, Filters(under=1)) == 3
        assert steps_by_new_results(goal, STORE, goal.query, Filters(under=1, options=(("color", "nocolor"),))) == 4
    assert num_found > 2


def scripted_walks(goal: Goal) -> list[list[Action]]:
    following, opening = Action("click", {"element": "next"}), Action("click", {"element": "p4"})
    wanted, type_ = Action("search", {"query": " ".join(goal.query)}), Action("search", {"query": goal.type})
    impossible = Action("filter", {"constraint": "price under 1"})
    return [[], [wanted, following], [type_], [type_, following, following], [type_, opening], [impossible], [impossible, type_]]


def random_walk(shop: Shop, goal: Goal, rng: np.random.Generator, length: int) -> list[Action]:
    """Actions of a customer who wanders about and buys nothing."""
    walker = copy.copy(shop)
    actions: list[Action] = []
    free = [Action("search", {"query": " ".join(goal.query)}), Action("search", {"query": goal.type})]
    free += [Action("filter", {"constraint": "price under 60"}), *(Action("filter", {"constraint": f"{n} {v}"}) for n, v in goal.options)]
    for i in range(length):
        texts = walker.step(Invalid("", "")).observation.admissible or ()
        clicks = [a for a in (BRACKET.parse(text, TOOLS) for text in texts) if isinstance(a, Action) and a.name != "buy"]
        choices = free if i == 0 or not clicks or rng.random() < 0.2 else clicks
        actions.append(choices[int(rng.integers(len(choices)))])
        walker.step(actions[-1])
    return actions


def test_progress_replays_an_episode() -> None:
    task = DOMAIN.tasks("test")[3]
    actions = DOMAIN.expert(task)
    progress = DOMAIN.progress(task, actions)
    assert len(progress) == len(actions) + 1
    assert (progress[0], progress[-1]) == (0.0, 1.0)
