"""Every stage in its order: a type checker has nothing to say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.engine.batch import policy_rows
from stepwell.protocols import Assign, ProcessReward, RewardLearner
from stepwell.types import Credited, Episode, Floats, Group, Metrics, Row, Scored


def weigh(lengths: Sequence[int]) -> Floats:
    return np.full(len(lengths), 1.0 / max(sum(lengths), 1))


def old_logprobs(scored: Scored) -> Floats:
    return scored.episode.logprobs_T


def mean_process(groups: list[Group[Scored]]) -> float:
    return float(np.mean([member.process_S.mean() for group in groups for member in group.members]))


def update(reward: ProcessReward, assign: Assign, episodes: list[Group[Episode]]) -> list[Row]:
    scored: list[Group[Scored]] = reward.score(episodes)
    credited: list[Group[Credited]] = assign(scored)
    mean_process(scored)
    return policy_rows(credited, weigh, old_logprobs)


def learn(judge: RewardLearner, episodes: list[Group[Episode]]) -> Metrics:
    return judge.learn(judge.score(episodes))
