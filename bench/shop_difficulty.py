"""Success of players that do not learn, by difficulty: the table in docs/concepts/difficulty.md. `python bench/shop_difficulty.py`"""

from __future__ import annotations

import numpy as np

from stepwell.envs.shop import ShopDomain
from stepwell.envs.shop.players import RulePlayer, forgetful
from stepwell.types import Task

SHOP = ShopDomain()
BINS, TASKS, TURNS = 8, 300, 10


def rule(task: Task, noise: float, seed: int) -> bool:
    shop = SHOP.environment(task)
    text = shop.start().text
    player = RulePlayer(text, SHOP.store.catalogue, noise=noise, rng=np.random.default_rng(seed))
    for _ in range(TURNS):
        reply = shop.step(player.act(text))
        text = reply.observation.text
        if reply.done:
            return reply.reward == 1.0
    return False


def forgets(task: Task, share: float, seed: int) -> bool:
    shop = SHOP.environment(task)
    shop.start()
    for action in forgetful(SHOP.expert(task), share, np.random.default_rng(seed)):
        reply = shop.step(action)
        if reply.done:
            return reply.reward == 1.0
    return False


def main() -> None:
    bins = [[SHOP.task((b + i / TASKS) / BINS, i, "train") for i in range(TASKS)] for b in range(BINS)]
    players = {"rule": (rule, 0.0), "rule, every tenth word wrong": (rule, 0.1)}
    players |= {"forgets every tenth action": (forgets, 0.1), "forgets every fifth action": (forgets, 0.2)}
    for name, (play, share) in players.items():
        cells = [f"{np.mean([play(task, share, i) for i, task in enumerate(tasks)]):.2f}" for tasks in bins]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
