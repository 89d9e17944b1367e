"""A stage is skipped or taken twice in every marked line: each is a type error."""

from __future__ import annotations

from every_stage import mean_process, old_logprobs, weigh

from stepwell.engine.batch import policy_rows
from stepwell.protocols import Assign, ProcessReward, RewardLearner
from stepwell.types import Credited, Episode, Group, Metrics, Row, Scored


def unscored_into_list(episodes: list[Group[Episode]]) -> float:
    return mean_process(episodes)  # E: arg-type


def not_scored(assign: Assign, episodes: list[Group[Episode]]) -> list[Group[Credited]]:
    return assign(episodes)  # E: arg-type


def not_credited(reward: ProcessReward, episodes: list[Group[Episode]]) -> list[Row]:
    return policy_rows(reward.score(episodes), weigh, old_logprobs)  # E: arg-type


def scored_twice(reward: ProcessReward, scored: list[Group[Scored]]) -> list[Group[Scored]]:
    return reward.score(scored)  # E: arg-type


def learnt_from_episodes(judge: RewardLearner, episodes: list[Group[Episode]]) -> Metrics:
    return judge.learn(episodes)  # E: arg-type


def group_of_another_stage(episodes: list[Group[Episode]]) -> list[Group[Scored]]:
    return episodes  # E: return-value
