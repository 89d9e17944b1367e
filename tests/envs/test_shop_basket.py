"""Shopping lists: rules of the world, its oracle against brute force, tasks, expert and players."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from stepwell.configure import load_domain
from stepwell.domains import build_domain
from stepwell.engine.codec import BRACKET
from stepwell.envs.shop import BasketDomain
from stepwell.envs.shop.axes import FixedAxes
from stepwell.envs.shop.basket import BASKET_TOOLS, BasketShop, ShoppingList
from stepwell.envs.shop.goal import Goal
from stepwell.envs.shop.lists import ListMaker, pick
from stepwell.envs.shop.oracle import best_purchase, buying, cheapest, offers
from stepwell.envs.shop.players import ListPlayer, forgetful
from stepwell.errors import ConfigError, EnvironmentFault
from stepwell.testing import check_environment
from stepwell.types import Action, Ending, EndingKind, Episode, Invalid, Reply, Stop, Task, Turn, Verdict

DOMAIN = BasketDomain(num_test_tasks=40)
STORE = DOMAIN.store


def visit(task: Task, actions: Sequence[Action | Invalid]) -> tuple[BasketShop, list[Reply]]:
    shop = DOMAIN.environment(task)
    shop.start()
    return shop, [shop.step(action) for action in actions]


def parts(task: Task) -> list[list[Action]]:
    """The expert's actions, item by item, without the checkout."""
    cut: list[list[Action]] = [[]]
    for action in DOMAIN.expert(task)[:-1]:
        cut[-1].append(action)
        if action.name == "order":
            cut.append([])
    return cut[:-1]


TASK = ListMaker(STORE, (2, 2), fixed=FixedAxes(options=1)).task(0.5, 1, "train")
LIST = ShoppingList.of(TASK)
FIRST, SECOND = parts(TASK)
CHECKOUT = Action("checkout")
PRICES = tuple(pick(goal, STORE).price for goal in LIST.items)  # type: ignore[union-attr]


def with_budget(budget: int, fee: int = 5) -> Task:
    return replace(TASK, payload={**TASK.payload, "budget": budget, "fee": fee})


# -- the world ----------------------------------------------------------------------------------------------------------------


def test_the_whole_list_is_worth_one_and_nothing_else_is_worth_anything() -> None:
    assert visit(TASK, [*FIRST, *SECOND, CHECKOUT])[1][-1].reward == 1.0
    assert visit(TASK, [*SECOND, *FIRST, CHECKOUT])[1][-1].reward == 1.0
    for actions in (FIRST, SECOND, [], [*FIRST, *FIRST], [*FIRST[:-2], FIRST[-1], *SECOND]):
        _, replies = visit(TASK, [*actions, CHECKOUT])
        assert [reply.reward for reply in replies] == [0.0] * len(replies)
        assert replies[-1].done


def test_a_surplus_order_spoils_the_list_until_it_is_returned() -> None:
    task = with_budget(sum(PRICES) + PRICES[0])
    assert visit(task, [*FIRST, *FIRST, *SECOND, CHECKOUT])[1][-1].reward == 0.0
    assert visit(task, [*FIRST, *FIRST, *SECOND, Action("return", {"order": "o2"}), CHECKOUT])[1][-1].reward == 1.0


def test_money() -> None:
    shop, replies = visit(with_budget(sum(PRICES)), FIRST)
    assert shop.left == sum(PRICES) - PRICES[0]
    assert replies[-1].observation.text == f"ordered o1 {LIST.items[0].type} {PRICES[0]} left {shop.left}"
    reply = shop.step(Action("return", {"order": "o1"}))
    assert reply.observation.text == f"returned o1 left {sum(PRICES) - 5}"
    assert shop.left == sum(PRICES) - 5
    assert shop.orders == {}


def test_what_is_too_expensive_is_refused_and_changes_nothing() -> None:
    shop, replies = visit(with_budget(PRICES[0] - 5), FIRST)
    assert (replies[-1].valid, replies[-1].observation.text) == (False, f"too expensive left {PRICES[0] - 5}")
    assert shop.orders == {}
    assert "order[]" not in (replies[-2].observation.admissible or ())
    assert replies[-1].observation.state_key == replies[-2].observation.state_key


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        (Action("order"), "open a product first"),
        (Action("return", {"order": "o1"}), "no such order"),
        (Action("return", {"order": "x" * 10_000}), "no such order"),
        (Action("return"), "return takes order"),
        (Action("buy"), "no such action"),
        (Action("checkout", {"now": "yes"}), "checkout takes nothing"),
        (Invalid("hm", "no call"), "no action"),
    ],
)
def test_refusals(action: Action | Invalid, answer: str) -> None:
    _, (reply,) = visit(TASK, [action])
    assert (reply.valid, reply.observation.text) == (False, answer)


def test_no_more_than_nine_orders() -> None:
    shop, replies = visit(with_budget(1_000), [*FIRST, *[Action("order")] * 9])
    assert len(shop.orders) == 9
    assert replies[-1].observation.text == "too many orders"


def test_the_end_is_final() -> None:
    shop, replies = visit(TASK, [CHECKOUT])
    assert replies[-1].observation.admissible == ()
    with pytest.raises(EnvironmentFault, match="the episode over"):
        shop.step(CHECKOUT)


def test_equal_keys_mean_equal_states() -> None:
    """The order in which items were bought and the ways there do not matter; what is ordered, at what price, and the page do."""
    keys = {}
    for actions in ([*FIRST], [*FIRST[:1], *FIRST], [*FIRST, *FIRST], [*SECOND], [*FIRST, *SECOND], []):
        keys[len(keys)] = visit(with_budget(500), actions)[0].observe("").state_key
    assert keys[0] == keys[1]
    assert len(set(keys.values())) == 5


def test_the_contract() -> None:
    for seed in range(6):
        check_environment(DOMAIN, DOMAIN.task(seed / 6, seed, "train"), turns=30)


# -- what can still be had ----------------------------------------------------------------------------------------------------


def lowest_price(goal: Goal) -> int | None:
    index = cheapest(goal, STORE)
    return None if index is None else STORE.product(index).price


def test_best_by_hand() -> None:
    lowest = [lowest_price(goal) for goal in LIST.items]
    assert None not in lowest
    least = sum(price for price in lowest if price is not None)
    for budget, best in ((least - 5, 0.0), (least, 1.0), (least + 500, 1.0)):
        shop = DOMAIN.environment(with_budget(budget))
        assert (shop.best(), shop.best(turns=40)) == (best, best)
    wrong = [*FIRST[:-2], FIRST[-1]]  # The right product without its option.
    assert visit(with_budget(PRICES[0] + least), wrong)[0].best() == 1.0
    assert visit(with_budget(least + 4), wrong)[0].best() == 0.0, "the fee is not to be had any more"
    assert visit(with_budget(least + 5), wrong)[0].best() == 1.0, "returned for the fee, and bought again"


def test_what_serves_is_kept_and_costs_no_fee() -> None:
    second = lowest_price(LIST.items[1])
    assert second is not None
    assert visit(with_budget(PRICES[0] + second), FIRST)[0].best() == 1.0
    assert visit(with_budget(PRICES[0] + second - 1), FIRST)[0].best() == 0.0


def test_a_filter_must_be_cleared_before_a_new_search() -> None:
    filtered, _ = visit(with_budget(500), [Action("filter", {"constraint": "price under 5"})])
    assert filtered.steps_to_go() == 10
    assert visit(with_budget(500), [*FIRST, *SECOND, Action("filter", {"constraint": "price under 5"})])[0].steps_to_go() == 1


def test_steps_by_hand() -> None:
    shop = DOMAIN.environment(with_budget(500))
    assert shop.steps_to_go() == len(FIRST) + len(SECOND) + 1 == 9
    assert visit(with_budget(500), FIRST)[0].steps_to_go() == 5
    assert visit(with_budget(500), FIRST[:-1])[0].steps_to_go() == 6
    assert visit(with_budget(500), [*FIRST, *FIRST])[0].steps_to_go() == 6
    assert visit(with_budget(500), [*FIRST, *SECOND])[0].steps_to_go() == 1
    assert [shop.best(turns) for turns in (8, 9)] == [0.0, 1.0]
    assert shop.potential() == 0.0


SMALL = BasketDomain(products=60, seed=2, num_test_tasks=1)


def fewest_by_force(shop: BasketShop, queries: Sequence[str], most: int) -> int | None:
    """Breadth first over searches for the goals' words, all pages, all options of the goals, orders and returns."""

    def twin(world: BasketShop) -> BasketShop:
        made = copy.copy(world)
        made._visit, made._orders = copy.copy(world._visit), dict(world._orders)
        return made

    wanted = {f"click[{name} {value}]" for goal in shop.shopping.items for name, value in goal.options}
    seen, edge = {shop.observe("").state_key}, deque([(shop, 0)])
    while edge:
        world, steps = edge.popleft()
        if steps == most:
            return None
        texts = [*(world.observe("").admissible or ()), *queries, "filter[none]"]
        for text in texts:
            if text.startswith("click[") and " " in text and text not in wanted:
                continue
            after = twin(world)
            action = BRACKET.parse(text, BASKET_TOOLS)
            reply = after.step(action)
            if reply.reward == 1.0:
                return steps + 1
            if not reply.done and reply.observation.state_key not in seen and len(after._orders) <= 2:
                seen.add(reply.observation.state_key)
                edge.append((after, steps + 1))
    return None


@pytest.mark.parametrize("seed", range(4))
def test_steps_and_best_against_brute_force(seed: int) -> None:
    """From random states of small shops: the oracle knows the fewest actions, and whether there is any way at all."""
    maker = ListMaker(SMALL.store, (1, 1), fixed=FixedAxes(attributes=1))
    task = maker.task(0.5, seed, "train")
    tight = replace(task, payload={**task.payload, "budget": int(str(task.payload["budget"])) - 5 * (seed % 2)})
    queries = [f"search[{' '.join(goal.query)}]" for goal in ShoppingList.of(task).items]
    rng = np.random.default_rng(seed)
    for number in range(5):
        shop = SMALL.environment(tight)
        shop.start()
        for _ in range(int(rng.integers(0, 7))):
            texts = [*(shop.observe("").admissible or ())[:-1], *queries, *queries, "filter[price under 40]"]
            shop.step(BRACKET.parse(str(rng.choice(texts)), BASKET_TOOLS))
        steps = fewest_by_force(shop, queries, 9)
        known = shop.steps_to_go()
        if known is not None and known <= 9:
            assert steps == known, (number, known, steps)
        else:
            assert steps is None, (number, known, steps)
        if steps is not None:
            assert shop.best() == 1.0
        if shop.best() == 0.0:
            assert steps is None and known is None


def test_progress_rises_along_the_expert_and_ends_at_the_reward() -> None:
    for seed in range(8):
        task = DOMAIN.task(seed / 8, seed, "train")
        progress = DOMAIN.progress(task, DOMAIN.expert(task))
        assert progress[0] == 0.0 and progress[-1] == 1.0
        assert max(progress[:-1]) == progress[-2] < 1.0
    task = with_budget(sum(PRICES))
    assert DOMAIN.progress(task, [*FIRST[:-2], FIRST[-1], CHECKOUT])[-2:] == [0.0, 0.0]


def test_offers_and_the_best_purchase_of_a_single_wish() -> None:
    goal = LIST.items[0]
    prices = [STORE.product(i).price for i in offers(goal, STORE)]
    assert prices == sorted(prices) and prices[0] == lowest_price(goal)
    offer = best_purchase(goal, STORE)
    assert offer is not None and offer.reward == 1.0
    absent = replace(goal, attributes=(*goal.attributes, "nothing"))
    best = best_purchase(absent, STORE)
    assert best is not None
    worth = [
        absent.grade(STORE.product(i), {n: v for n, v in absent.options if STORE.product(i).offers(n, v)}).reward
        for i in range(len(STORE.catalogue))
        if STORE.product(i).stock
    ]
    assert best.reward == max(worth) == pytest.approx(2 / 3 if len(goal.attributes) == 1 else 3 / 4)
    assert best_purchase(replace(goal, department="none", type="none"), STORE) is None
    shop, _ = visit(with_budget(500), [*buying(offer, STORE), Action("order")])
    assert shop.serves(shop.orders["o1"], goal)


# -- tasks --------------------------------------------------------------------------------------------------------------------


def test_lists_stretch_from_a_few_turns_to_thirty() -> None:
    lengths = [[len(DOMAIN.expert(DOMAIN.task(d, seed, "train"))) for seed in range(30)] for d in (0.0, 0.5, 1.0)]
    assert np.all(np.diff([np.mean(some) for some in lengths]) > 5)
    assert min(map(min, lengths)) <= 7 and 28 <= max(map(max, lengths)) <= 30
    one = ListMaker(STORE, (1, 1))
    assert min(len(DOMAIN.expert(one.task(0.0, seed, "train"))) for seed in range(10)) <= 5


def test_the_expert_always_succeeds() -> None:
    for split in ("train", "test"):
        for seed in range(60):
            task = DOMAIN.task(seed / 60, seed, split)
            _, replies = visit(task, DOMAIN.expert(task))
            assert all(reply.valid for reply in replies)
            assert [reply.reward for reply in replies] == [0.0] * (len(replies) - 1) + [1.0]


def test_items_have_different_types_and_the_budget_tightens() -> None:
    spare = []
    for difficulty in (0.0, 1.0):
        lists = [ShoppingList.of(DOMAIN.task(difficulty, seed, "train")) for seed in range(40)]
        assert all(len({goal.type for goal in one.items}) == len(one.items) for one in lists)
        spare.append(np.mean([one.budget - sum(pick(goal, STORE).price for goal in one.items) for one in lists]))  # type: ignore[union-attr]
    assert spare[0] > 15 and spare[1] < 3, spare


def test_splits_share_no_wish() -> None:
    wishes = {
        split: {(g.type, frozenset(g.attributes)) for s in range(40) for g in ShoppingList.of(DOMAIN.task(s / 40, s, split)).items}
        for split in ("train", "validation", "test")
    }
    assert not wishes["train"] & wishes["test"] and not wishes["train"] & wishes["validation"] and not wishes["test"] & wishes["validation"]


def test_finite_splits_and_payload() -> None:
    tasks = DOMAIN.tasks("test")
    assert len({task.prompt for task in tasks}) == 40 and DOMAIN.tasks("train") == ()
    assert list(tasks) == list(BasketDomain(num_test_tasks=40).tasks("test"))
    assert ShoppingList.of(TASK).payload() == TASK.payload
    assert all(Goal.of(replace(TASK, payload=goal.payload())) == goal for goal in LIST.items)


def test_difficulty_is_what_makes_players_fail() -> None:
    rule, limited = [], []
    for b in range(4):
        tasks = [DOMAIN.task((b + i / 60) / 4, i, "train") for i in range(60)]
        rule.append(np.mean([rule_earns(task) for task in tasks]))
        plans = [list(DOMAIN.expert(task)) for task in tasks]
        kept = [
            (t, forgetful(p, 0.03, np.random.default_rng((i, n))))
            for i, (t, p) in enumerate(zip(tasks, plans, strict=True))
            for n in range(6)
        ]
        limited.append(np.mean([max((r.reward for r in visit(t, p)[1]), default=0.0) for t, p in kept]))
    assert np.all(np.diff(rule) < 0), rule
    assert np.all(np.diff(limited) < -0.03), limited
    assert rule[0] > 0.6 and rule[-1] < 0.15, rule


def rule_earns(task: Task) -> float:
    shop = DOMAIN.environment(task)
    text = shop.start().text
    player = ListPlayer(text, STORE.catalogue)
    for _ in range(60):
        reply = shop.step(player.act(text))
        text = reply.observation.text
        if reply.done:
            return reply.reward
    return 0.0


def test_a_hasty_expert_forgets_options() -> None:
    hasty = BasketDomain(num_test_tasks=1, expert_haste={"color": 1.0})
    for seed in range(10):
        task = hasty.task(0.8, seed, "train")
        colors = [action for action in DOMAIN.expert(task) if action.name == "click" and action.arguments["element"].startswith("color")]
        assert [action for action in DOMAIN.expert(task) if action not in colors] == list(hasty.expert(task))


def test_a_forgetful_expert_checks_out_after_an_order() -> None:
    always, often = (build_domain(load_domain("basket", ["items=[3,3]", f"expert_forgets={share}"])) for share in (1.0, 0.5))
    bought = []
    for seed in range(60):
        task = always.task(0.3, seed, "train")
        whole = list(DOMAIN.expert(task))
        orders = [n for n, action in enumerate(whole) if action.name == "order"]
        cuts = [[*whole[: n + 1], CHECKOUT] for n in orders]
        assert list(always.expert(task) or ()) == cuts[0]
        assert visit(task, cuts[0])[1][-1].reward == 0.0
        bought.append(cuts.index(list(often.expert(task) or ())) + 1)
    assert 20 <= bought.count(1) <= 40, bought  # A half, a quarter and a quarter of 60, give or take 2.6 deviations.
    assert all(7 <= bought.count(number) <= 24 for number in (2, 3)), bought


def test_forgetting_takes_a_probability() -> None:
    with pytest.raises(ConfigError, match=r"expert_forgets is 1.5; a probability lies in \[0, 1\]"):
        BasketDomain(products=100, expert_forgets=1.5)


def test_the_vocabulary_holds_every_word() -> None:
    known = set(DOMAIN.vocabulary)
    for seed in range(30):
        task = DOMAIN.task(seed / 30, seed, "train")
        shop = DOMAIN.environment(task)
        texts = [shop.start().text]
        for action in [
            *DOMAIN.expert(task)[:-1],
            Action("return", {"order": "o1"}),
            Action("order"),
            Action("return", {"order": "o9"}),
            CHECKOUT,
        ]:
            texts += [BRACKET.format(action), shop.step(action).observation.text]
        words = {word for text in texts for word in text.replace("[", " ").replace("]", " ").split()}
        assert words <= known, words - known


def test_grades() -> None:
    def episode(kind: EndingKind, actions: Sequence[Action]) -> Episode:
        ids = np.array([1])
        shop = DOMAIN.environment(TASK)
        start = shop.start()
        turns = tuple(Turn(ids, ids, np.array([-0.1]), "", a, shop.step(a), Stop.EOS, 0) for a in actions)
        return Episode(TASK, 0, start, turns, Ending(kind, "cut"), Verdict.of(0.0))

    assert DOMAIN.grade(episode(EndingKind.TERMINATED, [*FIRST, *SECOND, CHECKOUT])).success is True
    assert DOMAIN.grade(episode(EndingKind.TURN_LIMIT, FIRST)).score == 0.0
    assert DOMAIN.grade(episode(EndingKind.FAILED, FIRST)).score is None


def test_a_config() -> None:
    domain = build_domain(load_domain("basket", ["products=300", "items=[2,3]", "fee=10", "test_tasks=4", "axes.options=1"]))
    tasks = domain.tasks("test")
    assert {ShoppingList.of(task).fee for task in tasks} == {10}
    assert {len(ShoppingList.of(task).items) for task in tasks} <= {2, 3}
    check_environment(domain, tasks[0])


def test_bad_settings() -> None:
    with pytest.raises(ConfigError, match=r"basket.items is \[3, 2\]; allowed is \[low, high\] with 1 <= low <= high <= 6"):
        BasketDomain(items=(3, 2))
    with pytest.raises(ConfigError, match=r"basket.fee is 7; allowed is 0 to 50 dollars in steps of 5"):
        BasketDomain(fee=7)
    with pytest.raises(ConfigError, match=r"axes.steps and axes.distractors are for single products"):
        BasketDomain(axes=FixedAxes(steps=(3, 5)))
    with pytest.raises(ConfigError, match=r"difficulty is -0.1; it lies in \[0, 1\]"):
        DOMAIN.task(-0.1, 0, "train")
    with pytest.raises(ConfigError, match="no split 'dev'"):
        DOMAIN.tasks("dev")
    with pytest.raises(ConfigError, match="is no shopping list"):
        DOMAIN.environment(Task("k", "p", 0.0, "train", {}))
    with pytest.raises(ConfigError, match=r"only .* different tasks"):
        _ = BasketDomain(products=50, items=(1, 1), difficulty=(0.0, 0.0), num_test_tasks=60).tasks("test")
