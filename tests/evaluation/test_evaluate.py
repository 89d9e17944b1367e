"""What held-out episodes say."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from builders import make_episode

from stepwell.errors import ConfigError
from stepwell.evaluation.evaluate import pass_at, pass_hat, summarise
from stepwell.evaluation.intervals import wilson
from stepwell.types import Episode, Group, Task


def group(scores: list[float | None], key: str = "a", failed: int = 0) -> Group[Episode]:
    members = [make_episode([1, 2], member=m, score=score) for m, score in enumerate(scores)]
    members += [make_episode([1], member=len(scores) + m, failed=True) for m in range(failed)]
    return Group(Task(key, "do it", 0.5, "test"), tuple(members))


def enumerated(wins: list[bool], k: int) -> float:
    return float(np.mean([any(picked) for picked in combinations(wins, k)]))


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_pass_at_k_is_the_mean_over_all_choices_of_k(k: int) -> None:
    groups = [group([1.0, 0.0, 0.0, 1.0, 0.5]), group([0.0, 0.0, 1.0, 0.0, 0.0], "b"), group([0.0] * 5, "c")]
    wins = [[True, False, False, True, False], [False, False, True, False, False], [False] * 5]
    assert pass_at(groups, k).mean == pytest.approx(np.mean([enumerated(one, k) for one in wins]), abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_pass_hat_k_is_the_mean_over_all_choices_of_k(k: int) -> None:
    groups = [group([1.0, 0.0, 0.0, 1.0, 1.0]), group([1.0] * 5, "b"), group([0.0] * 5, "c")]
    wins = [[True, False, False, True, True], [True] * 5, [False] * 5]
    assert pass_hat(groups, k).mean == pytest.approx(np.mean([np.mean([all(some) for some in combinations(one, k)]) for one in wins]))


@pytest.mark.parametrize(("n", "c", "k", "expected"), [(4, 1, 4, 1.0), (8, 3, 1, 0.375), (8, 3, 4, 13 / 14)])
def test_pass_at_k_of_one_task(n: int, c: int, k: int, expected: float) -> None:
    """U70."""
    assert pass_at([group([1.0] * c + [0.0] * (n - c))], k).mean == pytest.approx(expected)


def test_pass_at_ten_is_not_made_of_single_samples() -> None:
    """U70: 50 of 164 tasks solved, each tried once."""
    tried = [group([float(n < 50)], str(n)) for n in range(164)]
    assert pass_at(tried, 1).mean == pytest.approx(50 / 164)
    with pytest.raises(ConfigError, match="with 1 episodes of each task, k may be 1 to 1"):
        pass_at(tried, 10)


def test_a_task_with_too_few_scored_episodes_is_left_out() -> None:
    groups = [group([1.0, 0.0, None], failed=1), group([0.0, 0.0, 1.0, 1.0], "b")]
    assert pass_at(groups, 2).mean == pytest.approx((1.0 + (1 - 1 / 6)) / 2)
    assert pass_at(groups, 3).mean == pytest.approx(1.0)
    assert np.isnan(pass_at([group([None, None])], 1).mean)


def test_k_beyond_the_episodes_is_refused() -> None:
    with pytest.raises(ConfigError, match="with 2 episodes of each task, k may be 1 to 2"):
        pass_at([group([1.0, 0.0])], 3)
    with pytest.raises(ConfigError, match="pass@0"):
        pass_at([group([1.0])], 0)


def test_one_episode_of_a_task_has_wilsons_interval_and_several_one_over_tasks() -> None:
    single = summarise([group([1.0], "a"), group([0.0], "b"), group([0.0], "c")])
    assert single.success == wilson(1, 3)
    same = summarise([group([1.0] * 50, "a"), group([0.0] * 50, "b")])
    assert same.success == (0.5, 0.0, 1.0), "two tasks say little, however often each is played"
    none = summarise([group([0.0] * 50, "a"), group([0.5] * 50, "b")])
    assert none.success == wilson(0, 2)
    assert none.score.mean == 0.25


def test_failed_and_unscored_episodes_are_counted_apart() -> None:
    found = summarise([group([1.0, None], failed=2)])
    assert (found.episodes, found.failed, found.unscored, found.truncated) == (4, 2, 1, 0)
    assert (found.success.mean, found.turns, found.tokens, found.invalid) == (1.0, 2.0, 3.0, 0.0)
    assert found.by_difficulty == {"0.4-0.6": wilson(1, 1)}


def test_what_was_not_measured_is_null_in_json() -> None:
    found = summarise([group([], failed=2)]).to_json()
    assert found["success"] == {"mean": None, "low": 0.0, "high": 1.0}
    assert (found["turns"], found["invalid_rate"], found["failed"]) == (None, None, 2)
