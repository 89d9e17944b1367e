"""Runs with judges that have learnt a little."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import stepwell

_SMALL = (
    *("domain.kind=reasoning", "domain.task=arithmetic", "domain.test_tasks=6", "engine.threads=1", "steps=1", "cloning.steps=4"),
    *("evaluation.every=0", "evaluation.episodes=6", "rollout.turns=3", "rollout.max_tokens=10", "credit.kind=process_to_go"),
)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A run of the smallest size with these settings, made once for each."""
    made: dict[tuple[str, ...], Path] = {}

    def train(*settings: str) -> Path:
        if settings not in made:
            folder = tmp_path_factory.mktemp("searched") / "run"
            for _ in stepwell.train(stepwell.load("smoke", [*_SMALL, *settings]), folder):
                pass
            made[settings] = folder
        return made[settings]

    return train
