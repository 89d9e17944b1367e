"""What a trained policy is worth in 1 to 16 attempts, how many ways it knows, and what its judge chooses."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from chains.plan import SIZES
from stepwell.build import Built, first_tasks
from stepwell.envs.reasoning import ReasoningDomain, Truth, lines_of
from stepwell.evaluation.breadth import breadth
from stepwell.evaluation.evaluate import evaluate
from stepwell.protocols import Domain, RewardLearner
from stepwell.rewards.confidence import auc
from stepwell.searching.choose import worth
from stepwell.searching.pool import Pool, pool_of
from stepwell.searching.settings import Method
from stepwell.seeding import generator
from stepwell.types import JSON, Episode, Group, Scored

__all__ = ["METHODS", "measured", "steps_auc"]

METHODS: tuple[Method, ...] = ("majority", "best_of_n", "weighted", "group")
ATTEMPTS = max(SIZES)


def measured(built: Built, split: str, num_tasks: int) -> dict[str, JSON]:
    """On the first tasks of a split, each attempted 16 times at temperature 1, and once greedily.

    Keys: `wins`, successes of each task; `greedy`, success of each task; `distinct`, expected number of different right solutions in 8
    attempts; `chosen`, method -> number of candidates -> share of right choices of each task, where the run has a judge that learns;
    `auc`, how well the judge's step rewards tell right steps from first wrong ones; `right` and `wrong`, the judge's mean step reward of
    solutions that succeed and fail.
    """
    began = time.process_time()
    domain, player, policy = built.domain, built.speaker.player, built.policy.snapshot()
    tasks = first_tasks(domain, split, num_tasks)
    groups = evaluate(domain, tasks, policy, player.at(1.0), seed=("study", "sampled"), samples=ATTEMPTS).groups
    greedy = evaluate(domain, tasks, policy, player.at(0.0), seed=("study", "greedy")).groups
    found: dict[str, JSON] = {
        "wins": [sum(bool(one.verdict.success) for one in group.members) for group in groups],
        "greedy": [bool(group.members[0].verdict.success) for group in greedy],
        "distinct": round(breadth([[_approach(one) for one in group.members] for group in groups], 8).distinct.mean, 4),
    }
    judge = built.trainer.judge()
    if isinstance(judge, RewardLearner):
        heard = judge.score(groups)
        scores = [[_mean(one.rewards["judge"][one.scored_S]) for one in group.members] for group in heard]
        found |= {**_chosen(built, groups, scores), "auc": steps_auc(domain, heard)}
    return {**found, "cpu_s": round(time.process_time() - began, 3)}


def _approach(episode: Episode) -> tuple[str, ...] | None:
    return tuple(line for turn in episode.turns for line in lines_of(turn.action)) if episode.verdict.success else None


def _mean(said: Sequence[float]) -> float | None:
    return float(sum(said) / len(said)) if len(said) else None


def steps_auc(domain: Domain, heard: Sequence[Group[Scored]]) -> float | None:
    """How often a right step has a higher reward than a first wrong one, over all steps of all attempts whose truth is known."""
    assert isinstance(domain, ReasoningDomain)
    scores: list[float] = []
    good: list[bool] = []
    for one in (member for group in heard for member in group.members):
        for truth, reward, scored in zip(domain.episode_truth(one.episode), one.rewards["judge"], one.scored_S, strict=True):
            if scored and truth.truth is not Truth.UNKNOWN:
                scores.append(float(reward))
                good.append(truth.truth is Truth.RIGHT)
    found = auc(np.array(scores), np.array(good, np.bool_))
    return None if math.isnan(found) else round(found, 4)


def _chosen(built: Built, groups: Sequence[Group[Episode]], scores: Sequence[Sequence[float | None]]) -> dict[str, JSON]:
    pools = [pool_of(built.domain, g.task, g.members, s, votes=True) for g, s in zip(groups, scores, strict=True)]
    chosen: dict[str, JSON] = {}
    for method in METHODS:
        chosen[method] = {str(n): [_worth(pool, method, n) for pool in pools] for n in SIZES}
    sides: dict[bool, list[float]] = {True: [], False: []}
    for group, said in zip(groups, scores, strict=True):
        for one, score in zip(group.members, said, strict=True):
            if score is not None:
                sides[bool(one.verdict.success)].append(score)
    return {"chosen": chosen, "right": _rounded(sides[True]), "wrong": _rounded(sides[False])}


def _rounded(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


def _worth(pool: Pool, method: Method, n: int) -> float:
    return round(worth(pool, method, n, generator("study", "subsets", pool.task.key, n), probability=False), 4)
