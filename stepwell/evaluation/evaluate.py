"""A policy on held-out tasks, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.evaluation.intervals import Interval, bootstrap, wilson
from stepwell.protocols import Domain, Policy
from stepwell.rollout import Player, rollout
from stepwell.types import JSON, Episode, Group, Task

__all__ = ["Evaluation", "evaluate", "summarise"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What held-out episodes say; failed and unscored ones are counted apart and enter nothing else.

    Attributes:
        success: Share of scored episodes that succeeded, with a 95 % Wilson interval.
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
        """All but the episodes."""
        return {
            "success": _named(self.success),
            "score": _named(self.score),
            "episodes": self.episodes,
            "failed": self.failed,
            "unscored": self.unscored,
            "truncated": self.truncated,
            "turns": self.turns,
            "tokens": self.tokens,
            "invalid_rate": self.invalid,
            "by_difficulty": {name: _named(interval) for name, interval in self.by_difficulty.items()},
        }


def _named(interval: Interval) -> dict[str, JSON]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}


def evaluate(
    domain: Domain, tasks: Sequence[Task], policy: Policy, player: Player, *, seed: tuple[int | str, ...], k: int = 1
) -> Evaluation:
    """Plays every task k times and sums up."""
    return summarise(rollout(domain, tasks, policy, player, group_size=k, seed=seed))


def summarise(groups: Sequence[Group[Episode]]) -> Evaluation:
    """Sums up episodes that were played already."""
    episodes = [episode for group in groups for episode in group.members]
    played = [episode for episode in episodes if not episode.failed]
    scored = [episode for episode in played if episode.verdict.score is not None]
    turns = [turn for episode in played for turn in episode.turns]
    bins: dict[str, list[bool]] = {}
    for episode in scored:
        low = min(int(episode.task.difficulty * 5), 4) / 5
        bins.setdefault(f"{low:.1f}-{low + 0.2:.1f}", []).append(bool(episode.verdict.success))
    return Evaluation(
        success=wilson(sum(bool(e.verdict.success) for e in scored), len(scored)),
        score=bootstrap(np.array([e.verdict.score for e in scored], np.float64)),
        episodes=len(episodes),
        failed=len(episodes) - len(played),
        unscored=len(played) - len(scored),
        truncated=sum(e.ending.kind.value == "truncated" for e in played),
        turns=float(np.mean([len(e.turns) for e in played])) if played else float("nan"),
        tokens=float(np.mean([e.num_tokens for e in played])) if played else float("nan"),
        invalid=float(np.mean([not turn.reply.valid for turn in turns])) if turns else float("nan"),
        by_difficulty={name: wilson(sum(wins), len(wins)) for name, wins in sorted(bins.items())},
        groups=tuple(groups),
    )
