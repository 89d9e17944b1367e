"""The generated shop says and asks what it always did: recorded runs depend on every word of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict

import pytest

from stepwell.envs.shop import ShopDomain

TOLD = {
    "default": "b7905e7730641ce35acdc587ad067eb7e6d786d3758669d4d327fa19e0704031",
    "small and hasty": "56ae6cc4864a3563fb481f8de16ee80f6a40501e2270455e760378f794abd0be",
    "with brands": "30d8d582919b19f80f7efc599560bbf939e4f925fcaedf0bcc3c5ad2c968f125",
}
"""SHA-256 of everything that 180 experts' visits show, of the test tasks and of the vocabulary; recorded before axes could be set."""

HASTE: Mapping[str, float] = {"size": 0.75, "color": 0.3}


def shop(name: str) -> ShopDomain:
    if name == "default":
        return ShopDomain()
    if name == "with brands":
        return ShopDomain(products=20_000)
    return ShopDomain(products=300, seed=4, difficulty=(0.0, 0.25), num_test_tasks=40, expert_haste=HASTE)


@pytest.mark.parametrize("name", TOLD)
def test_nothing_that_is_shown_has_changed(name: str) -> None:
    domain = shop(name)
    told: list[str] = []
    for split in ("train", "validation", "test"):
        for seed in range(60):
            task = domain.task(seed / 60, seed, split)
            environment = domain.environment(task, 0)
            told += [json.dumps(asdict(task), sort_keys=True), environment.start().text]
            for action in domain.expert(task):
                reply = environment.step(action)
                seen = reply.observation
                told += [json.dumps([action.name, dict(action.arguments)]), seen.text, seen.state_key, repr(reply.reward)]
                told.append(" ".join(seen.admissible or ()))
    told += [task.prompt for task in domain.tasks("test")]
    told += domain.vocabulary
    assert hashlib.sha256("\n".join(told).encode()).hexdigest() == TOLD[name]


@pytest.mark.parametrize(
    ("difficulty", "seed", "split", "prompt"),
    [
        (0.0, 0, "train", "find heavy rope with color purple"),
        (0.25, 1, "test", "find windproof heavy tent with size large"),
        (0.5, 2, "train", "find cotton warm sweater with size large"),
        (0.75, 3, "validation", "need cinnamon single tea below 50 dollars which is crunchy instant"),
        (1.0, 4, "train", "need brown huge backpack below 60 dollars which is weighty padlocked rustproof"),
        (1.0, 5, "test", "i want a coffee that is roasted and whole and hot in honey and triple for less than 100 dollars"),
    ],
)
def test_some_instructions(difficulty: float, seed: int, split: str, prompt: str) -> None:
    task = ShopDomain().task(difficulty, seed, split)
    assert (task.prompt, task.key) == (prompt, f"shop/0/1000/{split}/{difficulty!r}/{seed}")
