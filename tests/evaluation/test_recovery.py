"""Recovery, pairs and efficiency, by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from stepwell.errors import ConfigError
from stepwell.evaluation.efficiency import area_under, brier_score, efficiency_ratio, episodes_to
from stepwell.evaluation.recovery import first_event, paired_difference, recovery, recovery_given_clean
from stepwell.tracking import episode_metrics
from stepwell.types import Ending, EndingKind, Episode, Group, Invalid, Observation, Reply, Stop, Task, Turn, Verdict


def episode(won: bool | None, events: Sequence[str | None] = (None,), member: int = 0, task: str = "t") -> Episode:
    one = np.array([1])
    turns = tuple(Turn(one, one, np.zeros(1), "", Invalid("x", "x"), Reply(Observation(""), event=name), Stop.EOS, 0) for name in events)
    verdict = Verdict.unscored("lost") if won is None else Verdict.of(float(won))
    return Episode(Task(task, "", 0.5, "test"), member, Observation("x"), turns, Ending(EndingKind.TERMINATED), verdict)


def groups(*members: Sequence[Episode]) -> list[Group[Episode]]:
    return [Group(Task(f"t{n}", "", 0.5, "test"), tuple(some)) for n, some in enumerate(members)]


def test_recovery_by_hand() -> None:
    played = groups(
        [episode(True, [None, "stock_out", None, None]), episode(False, [None, "stock_out", None])],
        [episode(True, [None, None]), episode(True, ["tool_error", None, "stock_out"]), episode(None, ["stock_out"])],
    )
    found = recovery(played)
    assert found.interrupted == 3
    assert found.rate == pytest.approx(2 / 3)
    assert found.steps == 2.0
    assert found.by_kind == {"stock_out": 0.5, "tool_error": 1.0}
    assert first_event(played[0].members[0]) == 1 and first_event(played[1].members[0]) is None
    nothing = recovery(groups([episode(True)]))
    assert nothing.interrupted == 0 and math.isnan(nothing.rate) and math.isnan(nothing.steps)


def test_pairs_by_hand() -> None:
    clean = groups([episode(True), episode(True)], [episode(False), episode(True)], [episode(True), episode(None)])
    hurt = groups([episode(True), episode(False)], [episode(True), episode(False)], [episode(True), episode(True)])
    found = paired_difference(clean, hurt)
    assert found.mean == pytest.approx((0 - 1 + 1 - 1 + 0) / 5)
    assert found.low < found.mean < found.high
    assert recovery_given_clean(clean, hurt) == pytest.approx(2 / 4)
    assert math.isnan(recovery_given_clean(groups([episode(False)]), groups([episode(True)])))
    with pytest.raises(ConfigError, match="compared on the same tasks: got 3 and 2 groups"):
        paired_difference(clean, hurt[:2])


def test_interrupted_episodes_are_counted_in_a_run() -> None:
    played = groups([episode(True, [None, "stock_out"]), episode(False, ["stock_out"]), episode(True)])
    metrics = episode_metrics(played)
    assert metrics["rollout/interrupted"] == pytest.approx(2 / 3) and metrics["rollout/recovered"] == 0.5
    assert metrics["rollout/recovery_turns"] == 0.0
    assert "rollout/interrupted" not in episode_metrics(groups([episode(True)])), "a run without interruptions says what it always said"


def test_episodes_to_a_target_by_hand() -> None:
    x, y = [0, 100, 200, 300, 400], [0.1, 0.3, 0.7, 0.4, 0.8]
    assert episodes_to(0.5, x, y) == 150.0
    assert episodes_to(0.5, x, y, stays=2) == math.inf
    assert episodes_to(0.35, x, y, stays=3) == pytest.approx(112.5)
    assert episodes_to(0.05, x, y) == 0.0
    assert episodes_to(0.9, x, y) == math.inf
    with pytest.raises(ConfigError, match="stays is 0"):
        episodes_to(0.5, x, y, stays=0)


def test_area_by_hand() -> None:
    assert area_under([0, 10, 40], [0.0, 1.0, 0.0]) == pytest.approx((5 + 15) / 40)
    assert area_under([7], [0.3]) == 0.3
    for x, y in (([0, 0], [0.1, 0.2]), ([0], [0.1, 0.2]), ([], []), ([0, 1], [0.1, math.nan])):
        with pytest.raises(ConfigError, match="A learning curve is"):
            area_under(x, y)


def test_ratios_and_brier() -> None:
    assert efficiency_ratio(900.0, 300.0) == 3.0 and efficiency_ratio(300.0, math.inf) == 0.0
    assert math.isnan(efficiency_ratio(math.inf, math.inf))
    assert brier_score(np.array([1.0, 0.5, 0.0]), np.array([True, True, True])) == pytest.approx((0 + 0.25 + 1) / 3)
    assert math.isnan(brier_score(np.zeros(0), np.zeros(0, np.bool_)))
    with pytest.raises(ConfigError, match="of probabilities"):
        brier_score(np.array([1.5]), np.array([True]))
