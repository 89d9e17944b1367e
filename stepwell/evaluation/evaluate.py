"""A policy on held-out tasks, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.errors import ConfigError, RunError
from stepwell.evaluation.attempts import pass_at_k, pass_hat_k
from stepwell.evaluation.intervals import Interval, bootstrap, wilson
from stepwell.protocols import Domain, Policy
from stepwell.rollout import Player, rollout
from stepwell.tracking.metrics import is_invalid
from stepwell.types import JSON, EndingKind, Episode, Group, Task

__all__ = ["Evaluation", "evaluate", "pass_at", "pass_hat", "summarise"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What held-out episodes say; failed and unscored ones are counted apart and enter nothing else.

    Attributes:
        success: Share of scored episodes that succeeded, with a 95 % interval: Wilson's, or with several episodes of a task a bootstrap
            over tasks (and where all or none succeeded, Wilson's with one trial for each task).
        score: Mean score in [0, 1], with a 95 % bootstrap interval.
        turns, tokens: Means over episodes that did not fail.
        invalid: Share of turns that were no valid action.
        by_difficulty: Bin of difficulty -> success.
    """

    success: Interval
    score: Interval
    episodes: int
    failed: int
    unscored: int
    truncated: int
    turns: float
    tokens: float
    invalid: float
    by_difficulty: dict[str, Interval]
    groups: tuple[Group[Episode], ...]

    def to_json(self) -> dict[str, JSON]:
        """All but the episodes; None where nothing could be measured."""
        return {
            "success": _named(self.success),
            "score": _named(self.score),
            "episodes": self.episodes,
            "failed": self.failed,
            "unscored": self.unscored,
            "truncated": self.truncated,
            "turns": _number(self.turns),
            "tokens": _number(self.tokens),
            "invalid_rate": _number(self.invalid),
            "by_difficulty": {name: _named(interval) for name, interval in self.by_difficulty.items()},
        }


def _named(interval: Interval) -> dict[str, JSON]:
    return {name: _number(value) for name, value in interval._asdict().items()}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def evaluate(
    domain: Domain, tasks: Sequence[Task], policy: Policy, player: Player, *, seed: tuple[int | str, ...], samples: int = 1
) -> Evaluation:
    """Plays every task `samples` times and sums up.

    Raises:
        ConfigError: There is no task.
        RunError: Every episode failed: the infrastructure is dead, and nothing was measured.
    """
    if not tasks:
        raise ConfigError("There is no task to evaluate on; name a split that has tasks.")
    found = summarise(rollout(domain, tasks, policy, player, group_size=samples, seed=seed))
    if found.failed == found.episodes:
        reason = found.groups[0].members[0].ending.reason
        raise RunError(f"All {found.episodes} episodes of an evaluation failed, so nothing could be measured. The first: {reason}")
    return found


def summarise(groups: Sequence[Group[Episode]]) -> Evaluation:
    """Sums up episodes that were played already."""
    every = [(g, episode) for g, group in enumerate(groups) for episode in group.members]
    played = [(g, episode) for g, episode in every if not episode.failed]
    scored = [(g, episode) for g, episode in played if episode.verdict.score is not None]
    turns = [turn for _, episode in played for turn in episode.turns]
    bins: dict[str, list[tuple[int, Episode]]] = {}
    for g, episode in scored:
        low = min(int(episode.task.difficulty * 5), 4) / 5
        bins.setdefault(f"{low:.1f}-{low + 0.2:.1f}", []).append((g, episode))
    return Evaluation(
        success=_success(scored),
        score=bootstrap([float(e.verdict.score or 0.0) for _, e in scored], cluster_N=[g for g, _ in scored]),
        episodes=len(every),
        failed=len(every) - len(played),
        unscored=len(played) - len(scored),
        truncated=sum(e.ending.kind is EndingKind.TRUNCATED for _, e in played),
        turns=_mean([len(e.turns) for _, e in played]),
        tokens=_mean([e.num_tokens for _, e in played]),
        invalid=_mean([is_invalid(turn) for turn in turns]),
        by_difficulty={name: _success(bins[name]) for name in sorted(bins)},
        groups=tuple(groups),
    )


def _success(scored: Sequence[tuple[int, Episode]]) -> Interval:
    """Wilson's interval supposes independent trials, which several episodes of a task are not."""
    wins = [float(bool(episode.verdict.success)) for _, episode in scored]
    tasks = [g for g, _ in scored]
    if len(set(tasks)) == len(tasks):
        return wilson(int(sum(wins)), len(wins))
    return _over_tasks(wins, tasks)


def _over_tasks(values: Sequence[float], tasks: Sequence[int]) -> Interval:
    """A bootstrap over tasks; where all values are 0, or all 1, Wilson's interval of as many trials as there are tasks."""
    num_tasks = len(set(tasks))
    if values and set(values) in ({0.0}, {1.0}):
        return wilson(num_tasks if values[0] else 0, num_tasks)
    return bootstrap(values, cluster_N=tasks)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def pass_at(groups: Sequence[Group[Episode]], k: int) -> Interval:
    r"""How likely one of k episodes of a task succeeds, over tasks, with a 95 % bootstrap interval over them.

    $$\text{pass@}k = \text{mean over tasks of } 1 - \binom{n-c}{k} / \binom{n}{k}$$

    with n scored episodes of a task and c successes: unbiased for any k <= n (Chen et al. 2021, arXiv 2107.03374, equation 1). A task
    with fewer than k scored episodes is left out; with none left the mean is NaN.

    Raises:
        ConfigError: k is below 1, or above the number of episodes of each task.
    """
    return _over_subsets(groups, k, pass_at_k, f"pass@{k}")


def pass_hat(groups: Sequence[Group[Episode]], k: int) -> Interval:
    r"""How likely all of k episodes of a task succeed: how reliable a policy is (Yao et al. 2024, arXiv 2406.12045).

    $$\text{pass}^k = \text{mean over tasks of } \binom{c}{k} / \binom{n}{k}$$

    Everything else as in `pass_at`.
    """
    return _over_subsets(groups, k, pass_hat_k, f"pass^{k}")


def _over_subsets(groups: Sequence[Group[Episode]], k: int, of: Callable[[int, int, int], float], name: str) -> Interval:
    most = max((len(group.members) for group in groups), default=0)
    if not 1 <= k <= most:
        raise ConfigError(f"{name} was asked for; with {most} episodes of each task, k may be 1 to {most}.")
    values = []
    for group in groups:
        wins = [bool(e.verdict.success) for e in group.members if not e.failed and e.verdict.success is not None]
        if len(wins) >= k:
            values.append(of(len(wins), sum(wins), k))
    return _over_tasks(values, range(len(values)))
