"""Curriculum, interruptions, baskets and shaping as blocks of a run: they train, are logged, and resume exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

import stepwell
from stepwell.tracking import read_metrics

BLOCKS = {
    "zone, interruptions, shaping": [
        "curriculum.kind=zone",
        "curriculum.admit=mixed",
        "curriculum.flat=take",
        "interruptions.kinds=[stock_out,tool_error,price_rise]",
        "interruptions.solvable=0.3",
        "shaping.normalise=running",
        "shaping.horizon=mean",
        "shaping.cap=0.4",
    ],
    "entropy in baskets": [
        "domain.kind=basket",
        "products=200",
        "test_tasks=8",
        "items=[1,2]",
        "curriculum.kind=entropy",
        "curriculum.bins=2",
        "curriculum.visits=1",
        "curriculum.patience=1",
        "interruptions.kinds=[option_revised,tool_error]",
        "interruptions.shared=member",
        "interruptions.splits=[train]",
    ],
}
SMALL = [
    *("engine.threads=1", "engine.corpus_tasks=40", "steps=2", "cloning.steps=2", "rollout.turns=4", "reward.judged=all"),
    *("evaluation.every=0", "evaluation.episodes=2", "checkpoint.every=1"),
]


def numbers(run: Path) -> list[dict[str, float]]:
    return [{n: v for n, v in line.metrics.items() if not n.startswith("time/")} for line in read_metrics(run)]


@pytest.mark.parametrize("name", BLOCKS)
def test_a_run_with_these_blocks_resumes_to_the_same_numbers(name: str, tmp_path: Path) -> None:
    config = stepwell.load("smoke", [*BLOCKS[name], *SMALL])
    for _ in stepwell.train(config, tmp_path / "whole"):
        pass
    stopped = stepwell.load("smoke", [*BLOCKS[name], *SMALL, "steps=1"])
    for _ in stepwell.train(stopped, tmp_path / "cut"):
        pass
    for _ in stepwell.train(config, tmp_path / "cut", resume=True):
        pass
    whole, cut = numbers(tmp_path / "whole"), numbers(tmp_path / "cut")
    assert str(whole[-1]) == str(cut[-1])
    last = whole[-1]
    assert "curriculum/success" in last and "curriculum/difficulty" in last
    if "shaping" in str(BLOCKS[name]):
        assert {"reward/shaped", "reward/judge"} <= set(last), "what the judge said stays in the records"
    if "zone" in name:
        assert last["rollout/interrupted"] > 0.5 and "curriculum/refused" in last
    if "entropy" in name:
        assert "rollout/interrupted" in last
        assert "curriculum/phase" in last


def test_flat_data_says_what_was_found_and_what_to_change(tmp_path: Path) -> None:
    """U73: an agent that knows nothing solves nothing."""
    config = stepwell.load("smoke", [*SMALL, "cloning.steps=0", "curriculum.admit=mixed", "rollout.draw_budget=2", "rollout.turns=2"])
    with pytest.raises(
        stepwell.RunError, match=r"4 groups were drawn and 0 admitted .* all episodes succeed in 0 and none in 4. Tasks are too hard"
    ):
        for _ in stepwell.train(config, tmp_path / "flat"):
            pass
