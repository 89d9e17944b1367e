"""What a trained policy is worth in 1 to 16 attempts, how many ways it knows, and what its judge chooses."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from chains.plan import SIZES
from stepwell.build import Built, first_tasks
from stepwell.envs.reasoning import ReasoningDomain, Truth, lines_of
from stepwell.evaluation.aggregate import Aggregate, of_steps
from stepwell.evaluation.breadth import breadth
from stepwell.evaluation.evaluate import evaluate
from stepwell.protocols import Domain, RewardLearner
from stepwell.rewards.confidence import auc
from stepwell.searching.choose import choose, worth
from stepwell.searching.pool import Pool, pool_of
from stepwell.searching.settings import Method
from stepwell.seeding import generator
from stepwell.types import JSON, Episode, Group, Scored

__all__ = ["AGGREGATES", "METHODS", "measured", "steps_auc"]

METHODS: tuple[Method, ...] = ("majority", "best_of_n", "weighted", "group")
AGGREGATES: tuple[Aggregate, ...] = ("mean", "sum", "min", "last")
"""How the rewards of a candidate's steps may become one score."""
ATTEMPTS = max(SIZES)
_DRAWS = 20


def measured(built: Built, split: str, num_tasks: int) -> dict[str, JSON]:
    """On the first tasks of a split, each attempted 16 times at temperature 1, and once greedily.

    Keys: `attempts`, at each task; `wins`, successes of each task; `greedy`, success of each task; `distinct`, expected number of different
    right solutions in 8 attempts; and where the run has a judge that learns: `chosen`, method -> number of candidates -> share of right
    choices of each task, with the mean of a candidate's step rewards as its score; `best_by`, another aggregate of step rewards -> the same
    of best of n, and `lot`, the same of a judge that knows nothing (a number by lot for each different solution); `taken`, aggregate ->
    mean number of lines of the candidate that is best of all, and of all that finished; `auc`, how well the judge's step rewards tell right
    steps from first wrong ones; `right` and `wrong`, the judge's mean step reward of solutions that succeed and fail.
    """
    began = time.process_time()
    domain, player, policy = built.domain, built.speaker.player, built.policy.snapshot()
    tasks = first_tasks(domain, split, num_tasks)
    groups = evaluate(domain, tasks, policy, player.at(1.0), seed=("study", "sampled"), samples=ATTEMPTS).groups
    greedy = evaluate(domain, tasks, policy, player.at(0.0), seed=("study", "greedy")).groups
    found: dict[str, JSON] = {
        "attempts": ATTEMPTS,
        "wins": [sum(bool(one.verdict.success) for one in group.members) for group in groups],
        "greedy": [bool(group.members[0].verdict.success) for group in greedy],
        "distinct": round(breadth([[_approach(one) for one in group.members] for group in groups], 8).distinct.mean, 4),
    }
    judge = built.trainer.judge()
    if isinstance(judge, RewardLearner):
        heard = judge.score(groups)
        said = [[one.rewards["judge"][one.scored_S].tolist() for one in group.members] for group in heard]
        found |= {**_chosen(built, groups, said), "auc": steps_auc(domain, heard)}
    return {**found, "cpu_s": round(time.process_time() - began, 3)}


def _approach(episode: Episode) -> tuple[str, ...] | None:
    return tuple(line for turn in episode.turns for line in lines_of(turn.action)) if episode.verdict.success else None


def _scores(said: Sequence[Sequence[float]], how: Aggregate) -> list[float | None]:
    return [of_steps(one, how) if one else None for one in said]


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


def _chosen(built: Built, groups: Sequence[Group[Episode]], said: Sequence[Sequence[Sequence[float]]]) -> dict[str, JSON]:
    """What is chosen by step rewards, of which there is a list for every attempt at every task."""
    pools = {
        how: [pool_of(built.domain, g.task, g.members, _scores(s, how), votes=True) for g, s in zip(groups, said, strict=True)]
        for how in AGGREGATES
    }
    chosen: dict[str, JSON] = {method: {str(n): [_worth(pool, method, n) for pool in pools["mean"]] for n in SIZES} for method in METHODS}
    lots = [[_by_lot(pool, draw) for draw in range(_DRAWS)] for pool in pools["mean"]]
    best_by: dict[str, JSON] = {"lot": {str(n): [_rounded([_worth(one, "best_of_n", n) for one in some]) for some in lots] for n in SIZES}}
    best_by |= {
        how: {str(n): [_worth(pool, "best_of_n", n) for pool in some] for n in SIZES} for how, some in pools.items() if how != "mean"
    }
    sides: dict[bool, list[float]] = {True: [], False: []}
    for one in (candidate for pool in pools["mean"] for candidate in pool.candidates):
        if one.score is not None:
            sides[bool(one.episode.verdict.success)].append(one.score)
    taken: dict[str, JSON] = {how: _lines_taken(some) for how, some in pools.items()}
    return {"chosen": chosen, "best_by": best_by, "taken": taken, "right": _rounded(sides[True]), "wrong": _rounded(sides[False])}


def _by_lot(pool: Pool, draw: int) -> Pool:
    """The scores of a judge that knows nothing and is of one mind about equal solutions: a number by lot for each different text."""
    texts = [tuple(turn.text for turn in one.episode.turns) for one in pool.candidates]
    rng = generator("study", "lot", pool.task.key, draw)
    score = {text: float(rng.random()) for text in dict.fromkeys(texts)}
    return replace(pool, candidates=tuple(one._replace(score=score[text]) for one, text in zip(pool.candidates, texts, strict=True)))


def _lines_taken(pools: Sequence[Pool]) -> list[JSON]:
    """Lines of whom the judge takes of all, and of all who finished."""
    taken = [choose(pool, "best_of_n", probability=False).member for pool in pools]
    best = [len(pool.candidates[at].episode.turns) for pool, at in zip(pools, taken, strict=True) if at is not None]
    ended = [len(one.episode.turns) for pool in pools for one in pool.candidates if one.answer is not None]
    return [_rounded(best), _rounded(ended)]


def _rounded(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


def _worth(pool: Pool, method: Method, n: int) -> float:
    return round(worth(pool, method, n, generator("study", "subsets", pool.task.key, n), probability=False), 4)
