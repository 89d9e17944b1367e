"""Players that need no learning, on WebShop's 1,000 products: `python studies/webshop/players.py --data DIR`.

Test goals 0-499 of `compat` and the test split of `clean`: rules that read the pages, two players that draw, the best that a player of the
first page could do, and the oracle. Writes `players.json` beside this file; every learned agent has to be read against these rows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from stepwell.envs.shop.webshop import WebShopDomain, WebShopSettings
from stepwell.envs.shop.webshop.clean import option_elements
from stepwell.envs.shop.webshop.goals import Goal
from stepwell.envs.shop.webshop.players import (
    Outcome,
    Player,
    choices,
    clean_oracle,
    click,
    compat_oracle,
    plain_rule,
    play,
    scripted,
    search,
    verbatim_rule,
)
from stepwell.envs.shop.webshop.reward import clean_reward, compat_reward
from stepwell.seeding import generator
from stepwell.types import Action, Observation, Task

Play = Callable[[WebShopDomain, Task], Outcome]
RESAMPLES = 10_000


def goal_of(domain: WebShopDomain, task: Task) -> Goal:
    return domain.store.goals[int(str(task.payload["goal"]))]


def by_rule(rule: Callable[[str], Player]) -> Play:
    return lambda domain, task: play(domain.environment(task, 0), rule(task.prompt))


def attributes_rule(domain: WebShopDomain, task: Task) -> Outcome:
    """As `verbatim_rule`, but searches for what the instruction says before options and price."""
    rule, query = verbatim_rule(task.prompt), search(domain.store.products[goal_of(domain, task).asin].instruction)

    def player(page: Observation) -> Action:
        action = rule(page)
        return query if action.name == "search" else action

    return play(domain.environment(task, 0), player)


def random_product(domain: WebShopDomain, task: Task) -> Outcome:
    """Buys any product of the catalogue, without options."""
    store = domain.store
    asin = store.ranked[int(generator("players", "product", task.key).integers(len(store.ranked)))].asin
    target, purchase = store.target(goal_of(domain, task)), store.purchase(asin, {})
    if domain.settings.variant == "clean":
        return Outcome(clean_reward(target, purchase).reward, 0)
    return Outcome(compat_reward(target, purchase, domain.compat_settings.colours).reward, 0)


def random_item(domain: WebShopDomain, task: Task) -> Outcome:
    """Buys a random product of the first page for the whole instruction, with a random value of each option."""
    rng = generator("players", "item", task.key)
    hits = domain.store.search(task.prompt)[:10]
    place = int(rng.integers(len(hits)))
    values: dict[str, list[str]] = {}
    for element, (name, value) in option_elements(hits[place]).items():
        values.setdefault(name, []).append(element if domain.settings.variant == "clean" else value)
    options = [some[int(rng.integers(len(some)))] for some in values.values()]
    item = f"p{place + 1}" if domain.settings.variant == "clean" else hits[place].asin.lower()
    plan = [search(task.prompt), click(item), *map(click, options), click("buy now")]
    return play(domain.environment(task, 0), scripted(plan), len(plan))


def best_of_first_page(domain: WebShopDomain, task: Task) -> Outcome:
    """The best reward that any product of the first page gives with the option values that stand in the instruction."""
    results = domain.environment(task, 0).step(search(task.prompt)).observation

    def opening(item: str) -> Player:
        rule = verbatim_rule(task.prompt)
        return lambda page: click(item) if choices(page) == choices(results) else rule(page)

    return max(play(domain.environment(task, 0), opening(item)) for item in choices(results))


def by_oracle(domain: WebShopDomain, task: Task) -> Outcome:
    goal = goal_of(domain, task)
    plan = clean_oracle(domain.store, goal) if domain.settings.variant == "clean" else compat_oracle(domain.store, goal)
    return play(domain.environment(task, 0), scripted(plan), len(plan)) if plan else Outcome(0.0, 0)


PLAYERS: dict[str, Play] = {
    "random product of the catalogue, no options": random_product,
    "random item of page 1 for the whole instruction, random options": random_item,
    "rule: search the whole instruction, buy the first hit": by_rule(plain_rule),
    "rule + click option values that stand in the instruction": by_rule(verbatim_rule),
    "the same, searching the attribute part of the instruction alone": attributes_rule,
    "best item of page 1 (told the reward) + options that stand in the instruction": best_of_first_page,
    "oracle": by_oracle,
}


def interval(values: np.ndarray) -> list[float]:
    """95 % bootstrap interval of the mean, in percent."""
    rng = generator("players", "bootstrap")
    means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
    return [round(100 * float(bound), 1) for bound in np.percentile(means, [2.5, 97.5])]


def measured(domain: WebShopDomain, player: Play) -> dict[str, object]:
    outcomes = [player(domain, task) for task in domain.tasks("test")]
    rewards = np.array([outcome.reward for outcome in outcomes])
    return {
        "score": round(100 * float(rewards.mean()), 1),
        "score_interval": interval(rewards),
        "success": round(100 * float((rewards == 1).mean()), 1),
        "success_interval": interval((rewards == 1).astype(np.float64)),
        "steps": round(float(np.mean([outcome.num_steps for outcome in outcomes])), 2),
        "episodes": len(outcomes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with WebShop's 1,000 products")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("players.json"))
    arguments = parser.parse_args()
    rows: dict[str, dict[str, object]] = {}
    for variant in ("compat", "clean"):
        domain = WebShopDomain(WebShopSettings(arguments.data, variant=variant))
        rows[variant] = {name: measured(domain, player) for name, player in PLAYERS.items()}
        for name, row in rows[variant].items():
            print(variant, "|", name, "|", row)
    arguments.out.write_text(json.dumps({"split": "test", "seed": 0, "percent": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
