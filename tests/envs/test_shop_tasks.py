"""Catalogues, tasks, splits, difficulty, expert and players of the generated shop."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest

from stepwell.engine.codec import BRACKET
from stepwell.envs.shop import ShopDomain
from stepwell.envs.shop.catalogue import Catalogue
from stepwell.envs.shop.expert import plan
from stepwell.envs.shop.goal import Goal
from stepwell.envs.shop.players import RulePlayer
from stepwell.envs.shop.store import Filters, Store
from stepwell.envs.shop.tasks import SPLITS, Maker, axes, instruction
from stepwell.envs.shop.words import DEPARTMENTS, OPTION_VALUES, SYNONYMS, brand_names
from stepwell.errors import ConfigError
from stepwell.types import Action, Ending, EndingKind, Episode, Stop, Task, Turn, Verdict

DOMAIN = ShopDomain()
CATALOGUE = DOMAIN.store.catalogue


def num_words(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


# -- catalogue ----------------------------------------------------------------------------------------------------------------


def test_every_word_of_the_shop_has_one_meaning() -> None:
    words = [w for d in DEPARTMENTS for w in (d.name, *d.types, *d.attributes)]
    words += [w for values in OPTION_VALUES.values() for w in values] + list(OPTION_VALUES) + list(SYNONYMS.values())
    assert len(words) == len(set(words))
    assert all(re.fullmatch("[a-z]+", word) for word in words)
    assert set(SYNONYMS) <= {w for d in DEPARTMENTS for w in d.attributes}


def test_equal_arguments_give_equal_catalogues() -> None:
    one, two, three = Catalogue.generate(300, 1), Catalogue.generate(300, 1), Catalogue.generate(300, 2)
    assert [one.product(i) for i in range(300)] == [two.product(i) for i in range(300)]
    assert [one.product(i) for i in range(300)] != [three.product(i) for i in range(300)]


def test_products_are_what_they_should_be() -> None:
    departments = {d.name: d for d in DEPARTMENTS}
    for index, document in enumerate(CATALOGUE.documents()):
        product = CATALOGUE.product(index)
        department = departments[product.department]
        assert product.type in department.types
        assert len(set(product.attributes)) == 4
        assert (len(product.shown), len(product.hidden)) == (3, 1)
        assert set(product.attributes) <= set(department.attributes)
        assert product.price in range(5, 100, 5)
        offered = [(name, value) for name, values in product.options for value in values]
        assert not set(offered) & set(product.sold_out)
        for name in department.options:
            assert 2 <= sum(n == name for n, _ in (*offered, *product.sold_out)) <= 4
        assert sorted(document) == sorted([*product.attributes, product.type, *(v for _, v in (*offered, *product.sold_out))])


def test_small_vocabulary() -> None:
    assert len(DOMAIN.vocabulary) < 300


def test_large_catalogues_have_brands_in_their_titles_and_tasks() -> None:
    store = Store(Catalogue.generate(20_000, 0))
    brands = set(store.catalogue.attribute_words[:200])
    assert store.catalogue.num_brands == 200
    assert all(store.product(i).shown[0] in brands and len(store.product(i).shown) == 4 for i in range(50))
    for seed in range(20):
        goal = Goal.of(Maker(store).task(seed / 20, seed, "train"))
        assert goal.attributes[0] in brands
        assert plan(goal, store) is not None


def test_brand_names_are_new_words() -> None:
    names = brand_names(5_000, np.random.default_rng(0))
    assert len(set(names)) == 5_000
    assert not set(names) & {w for d in DEPARTMENTS for w in (*d.types, *d.attributes)}


@pytest.mark.parametrize("size", [0, 49, 5_000_001])
def test_size_out_of_range(size: int) -> None:
    with pytest.raises(ConfigError, match=f"{size} products; allowed are 50 to"):
        ShopDomain(products=size)


def test_search_is_bm25_of_what_was_asked() -> None:
    product = DOMAIN.store.product(17)
    found = DOMAIN.store.search((*product.attributes, product.type))
    assert 17 in found[:4]
    cheap = DOMAIN.store.search([product.type], Filters(under=30))
    assert cheap
    assert all(DOMAIN.store.product(i).price < 30 for i in cheap)


# -- tasks --------------------------------------------------------------------------------------------------------------------


def test_the_same_arguments_give_the_same_task() -> None:
    again = ShopDomain()
    for seed in range(30):
        assert DOMAIN.task(seed / 30, seed, "train") == again.task(seed / 30, seed, "train")
        assert DOMAIN.draw(seed, "test") == again.draw(seed, "test")
    assert DOMAIN.task(0.3, 1, "train") != DOMAIN.task(0.3, 2, "train")
    assert list(DOMAIN.tasks("test")) == list(again.tasks("test"))


def test_finite_splits() -> None:
    assert [len(DOMAIN.tasks(split)) for split in ("train", "validation", "test")] == [0, 200, 200]
    assert len({task.prompt for task in DOMAIN.tasks("test")}) == 200
    difficulties = [task.difficulty for task in DOMAIN.tasks("test")]
    low, high = DOMAIN.difficulty
    assert low <= min(difficulties) < low + 0.1 * (high - low) < low + 0.9 * (high - low) < max(difficulties) <= high


def test_splits_share_neither_products_nor_wishes() -> None:
    tasks = {split: [DOMAIN.task(seed / 800, seed, split) for seed in range(800)] for split in SPLITS}
    targets = {split: {Goal.of(t).target for t in some} for split, some in tasks.items()}
    wishes = {split: {(g.type, frozenset(g.attributes)) for g in map(Goal.of, some)} for split, some in tasks.items()}
    prompts = {split: {t.prompt for t in some} for split, some in tasks.items()}
    for one, two in combinations(SPLITS, 2):
        for sets in (targets, wishes, prompts):
            assert len(sets[one]) > 50
            assert not sets[one] & sets[two]


def test_axes_grow_with_difficulty() -> None:
    def mean(difficulty: float) -> list[float]:
        drawn = [axes(difficulty, np.random.default_rng(seed)) for seed in range(400)]
        return [
            float(np.mean([getattr(a, name) for a in drawn]))
            for name in ("num_attributes", "num_options", "lookalikes", "has_limit", "hidden", "wording")
        ]

    levels = np.array([mean(d) for d in (0.0, 0.5, 1.0)])
    assert np.all(np.diff(levels, axis=0) > 0.05)
    assert axes(0.0, np.random.default_rng(0)).wording == 0


def test_tasks_have_the_lookalikes_asked_for() -> None:
    """The draw of the axes is the first use of a task's generator, so it can be repeated; most tasks get the wanted number."""
    for difficulty, expected in ((0.0, 0.0), (0.3, 0.46), (0.6, 1.12)):
        tasks = [DOMAIN.task(difficulty, seed, "train") for seed in range(300)]
        plans = [plan(Goal.of(task), DOMAIN.store) for task in tasks]
        assert np.mean([done.num_lookalikes for done in plans if done]) == pytest.approx(expected, abs=0.12)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_difficulty_is_what_makes_a_rule_player_fail(noise: float) -> None:
    num_bins, num_tasks = 5, 240
    success = []
    for b in range(num_bins):
        tasks = [DOMAIN.task((b + i / num_tasks) / num_bins, i, "train") for i in range(num_tasks)]
        success.append(np.mean([rule_reward(task, noise, seed) == 1.0 for seed, task in enumerate(tasks)]))
    assert np.all(np.diff(success) < 0), success
    assert success[0] - success[-1] > 0.4, success


def test_noise_is_what_makes_it_fail_more() -> None:
    tasks = [DOMAIN.draw(seed) for seed in range(150)]
    success = [np.mean([rule_reward(task, noise, seed) == 1.0 for seed, task in enumerate(tasks)]) for noise in (0.0, 0.2, 1.0)]
    assert success[0] > 0.6
    first = DOMAIN.rule_player(tasks[0]).act(tasks[0].prompt)
    assert first in DOMAIN.expert(tasks[0])[:1]
    assert success[0] - success[1] > 0.1
    assert success[2] < 0.1


def rule_reward(task: Task, noise: float, seed: int) -> float:
    shop = DOMAIN.environment(task, 0)
    observation = shop.start()
    player = RulePlayer(observation.text, CATALOGUE, noise=noise, rng=np.random.default_rng(seed))
    for _ in range(10):
        reply = shop.step(player.act(observation.text))
        observation = reply.observation
        if reply.done:
            return reply.reward
    return 0.0


GOAL = Goal("shirt", "clothing", ("soft", "slim"), (("color", "red"), ("size", "large")), 30, ("soft", "slim", "shirt"), 0)
PLAIN = Goal("shirt", "clothing", ("soft",), (), None, ("soft", "shirt"), 0)


def test_instructions() -> None:
    rng = np.random.default_rng(0)
    assert instruction(GOAL, 0, rng) == "find soft slim shirt with color red and size large and price under 30"
    assert instruction(PLAIN, 0, rng) == "find soft shirt"
    free = {instruction(GOAL, 1, np.random.default_rng(seed)) for seed in range(20)}
    assert free == {
        "i want a shirt that is soft and slim in red and large for less than 30 dollars",
        "need red large shirt below 30 dollars which is soft slim",
    }
    assert {instruction(PLAIN, 2, np.random.default_rng(seed)) for seed in range(20)} == {
        "i want a shirt that is fluffy",
        "need shirt which is fluffy",
    }


def test_payload_round_trip() -> None:
    assert Goal.of(Task("k", "p", 0.0, "train", GOAL.payload())) == GOAL
    assert Goal.of(Task("k", "p", 0.0, "train", PLAIN.payload())) == PLAIN


def test_errors_name_what_is_allowed() -> None:
    with pytest.raises(ConfigError, match="did you mean 'train'"):
        DOMAIN.task(0.1, 0, "trian")
    with pytest.raises(ConfigError, match=r"difficulty is 1.5; it lies in \[0, 1\]"):
        DOMAIN.task(1.5, 0, "train")
    with pytest.raises(ConfigError, match="no split 'dev'"):
        DOMAIN.tasks("dev")
    with pytest.raises(ConfigError, match=r"\(0.6, 0.2\); allowed is a range"):
        ShopDomain(difficulty=(0.6, 0.2))
    with pytest.raises(ConfigError, match="num_test_tasks is 0"):
        ShopDomain(num_test_tasks=0)
    with pytest.raises(ConfigError, match=r"only \d+ different tasks"):
        _ = ShopDomain(products=50, difficulty=(0.0, 0.0), num_test_tasks=300).tasks("test")


# -- expert -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_expert_always_succeeds_in_few_steps(split: str) -> None:
    lengths = []
    for seed in range(500):
        task = DOMAIN.task(seed / 500, seed, split)
        shop = DOMAIN.environment(task, 0)
        shop.start()
        replies = [shop.step(action) for action in DOMAIN.expert(task)]
        assert all(reply.valid for reply in replies)
        assert [reply.done for reply in replies] == [False] * (len(replies) - 1) + [True]
        assert sum(reply.reward for reply in replies) == 1.0
        lengths.append(len(replies))
    assert max(lengths) <= 10
    assert 4 < np.mean([len(DOMAIN.expert(DOMAIN.draw(seed))) for seed in range(300)]) < 6


def test_a_hasty_expert_buys_before_it_chooses_as_often_as_is_said_of_each_option() -> None:
    hasty = ShopDomain(expert_haste={"size": 0.75, "color": 0.2})
    forgot: dict[str, list[bool]] = {name: [] for name in OPTION_VALUES}
    for seed in range(1_500):
        task = hasty.draw(seed)
        sure, done, options = list(DOMAIN.expert(task)), list(hasty.expert(task)), Goal.of(task).options
        if done != sure:
            assert done[-1] == Action("buy")
            assert done[:-1] == sure[: len(done) - 1]
            assert sure[len(done) - 1].arguments["element"].split(" ")[0] in {name for name, _ in options}
        if len(options) == 1:
            forgot[options[0][0]].append(done != sure)
    share = {name: np.mean(said) for name, said in forgot.items()}
    assert share["size"] == pytest.approx(0.75, abs=0.07)
    assert share["color"] == pytest.approx(0.2, abs=0.07)
    assert [share[name] for name in ("scent", "flavor", "pack", "power")] == [0.0] * 4


def test_haste_about_no_option_of_the_shop_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"expert_haste names the option 'colour'.*color"):
        ShopDomain(products=100, expert_haste={"colour": 0.5})
    with pytest.raises(ConfigError, match=r"expert_haste of 'size' is 1.5; a probability lies in \[0, 1\]"):
        ShopDomain(products=100, expert_haste={"size": 1.5})


def test_other_shops_also_have_experts() -> None:
    for products, seed in ((100, 3), (3_000, 1), (6_000, 2)):
        domain = ShopDomain(products=products, seed=seed)
        for task_seed in range(40):
            task = domain.task(task_seed / 40, task_seed, "train")
            assert domain.progress(task, domain.expert(task))[-1] == 1.0


def test_an_episode_of_the_expert_is_short() -> None:
    """In words, without the tokens of a chat template."""
    totals = []
    for seed in range(300):
        task = DOMAIN.draw(seed)
        shop = DOMAIN.environment(task, 0)
        total = num_words(shop.start().text)
        assert total <= 25
        for action in DOMAIN.expert(task):
            text = shop.step(action).observation.text
            assert num_words(text) <= 36, text
            total += num_words(text) + num_words(BRACKET.format(action))
        totals.append(total)
    assert np.mean(totals) < 125
    assert max(totals) < 220


def test_the_vocabulary_holds_every_word_that_can_be_seen() -> None:
    known = set(DOMAIN.vocabulary)
    rng = np.random.default_rng(0)
    for seed in range(300):
        task = DOMAIN.task(seed / 300, seed, "train")
        shop = DOMAIN.environment(task, 0)
        texts = [shop.start().text]
        for action in DOMAIN.expert(task):
            if rng.random() < 0.3:
                wrong = Action(
                    str(rng.choice(["search", "click", "filter", "buy", "sell"])),
                    {str(rng.choice(["element", "query", "x"])): str(rng.choice(["color red", "p4", "", "size huge", "next"]))},
                )
                texts.append(shop.step(wrong).observation.text)
            texts += [BRACKET.format(action), shop.step(action).observation.text]
        words = {word for text in texts for word in re.findall(r"\w+", text)}
        assert words <= known, words - known


# -- domain -------------------------------------------------------------------------------------------------------------------


def episode(task: Task, actions: list[Action], kind: EndingKind) -> Episode:
    shop = DOMAIN.environment(task, 0)
    start = shop.start()
    ids = np.array([1])
    turns = tuple(Turn(ids, ids, np.array([-0.1]), "", a, shop.step(a), Stop.EOS, 0) for a in actions)
    return Episode(task, 0, start, turns, Ending(kind, "cut"), Verdict.of(0.0))


def test_grades() -> None:
    task = DOMAIN.draw(4)
    actions = list(DOMAIN.expert(task))
    assert DOMAIN.grade(episode(task, actions, EndingKind.TERMINATED)).score == 1.0
    assert DOMAIN.grade(episode(task, actions, EndingKind.TERMINATED)).success is True
    assert DOMAIN.grade(episode(task, actions[:-1], EndingKind.TURN_LIMIT)).score == 0.0
    assert DOMAIN.grade(episode(task, actions[:-1], EndingKind.TURN_LIMIT)).success is False
    assert DOMAIN.grade(episode(task, actions, EndingKind.FAILED)).score is None
