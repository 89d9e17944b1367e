"""One training run as a generator, and judges that watch it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from stepwell.engine.batch import episode_rows
from stepwell.engine.table import TableModel
from stepwell.losses import CloningLoss, PolicyLoss
from stepwell.protocols import OptimizerSpec, ProcessReward, RewardLearner
from stepwell.seeding import generator
from stepwell.trainer import Learning, Schedule, update
from stepwell.types import Episode, Group, Metrics, Scored
from truth.arms import CLONING, LEARN_FIRST, Setting, Stage, judge_of, rule_of
from truth.cells import Cell, start_of
from truth.world import SEES, Player

__all__ = ["BATCH", "Moment", "Watch", "train"]

BATCH = 16
"""Episodes of a step."""


class Watch(NamedTuple):
    """What judges said of a batch before they learnt from it, and the batch. Episodes are in the same order everywhere."""

    player: Player
    groups: list[Group[Episode]]
    said: Mapping[str, list[Group[Scored]]]


class Moment(NamedTuple):
    """The state of a run after a step.

    Attributes:
        episodes: Played so far, with all continuations and demonstrations.
        success: Exact expected worth of an episode of the policy.
        metrics: Of the judge.
        watch: What onlookers said, where there are any.
    """

    episodes: int
    success: float
    metrics: Metrics
    watch: Watch | None = None


def train(
    cell: Cell, arm: str, setting: Setting, seed: int, *, onlookers: Mapping[str, Setting] | None = None, size: int | None = None
) -> Iterator[Moment]:
    """Trains without end; the first moment is before the first step.

    Args:
        cell: Where.
        arm: Who judges.
        setting: See `arms`.
        seed: Of starting policy and draws.
        onlookers: Judges that see every batch and learn from it, and have no say.
        size: Members of a group, if not the cell's.
    """
    start = start_of(cell, seed)
    policy = start.world.policy(start.world.engine(SEES["view"]), start.policy_XA, OptimizerSpec())
    engines = {name: start.world.engine(window) for name, window in SEES.items()}
    for engine in engines.values():
        start.world.policy(engine, start.policy_XA, OptimizerSpec())  # What judges that are language models start as.
    player = Player(start.world, policy, cell.grader, generator(seed, "rollout"))
    judge_player = Player(start.world, policy, cell.grader, generator(seed, "continuation"))
    reward = judge_of(arm, Stage(engines, policy, judge_player, seed), setting)
    others: dict[str, ProcessReward] = {}
    for name, other in (onlookers or {}).items():
        own = Player(start.world, policy, cell.grader, generator(seed, "onlooker", name))
        others[name] = judge_of(name, Stage(engines, policy, own, seed), other)
    size = size or cell.size
    coef = float(setting.get("kl", 0.0)) or None
    loss = PolicyLoss(kl_coef=coef)
    plan = Learning(steps=1, groups=BATCH // size, group_size=size, loss=loss, schedule=Schedule(1.0), averaging="constant", constant=BATCH)
    rule = rule_of(setting)
    yield Moment(judge_player.episodes, start.world.values(player.chosen_XA).start, {})
    step = 0
    while True:
        if arm == CLONING:
            _clone(policy, judge_player.demonstration(step), float(setting["clone"]))
        groups = player.play(plan.groups, size)
        watched = {name: judge.score(groups) for name, judge in others.items()}
        scored = reward.score(groups)
        metrics: Metrics = {}
        if isinstance(reward, RewardLearner) and arm in LEARN_FIRST:
            metrics |= reward.learn(scored)
            scored = reward.score(groups)
        credited = rule(scored)
        for name, judge in others.items():
            _learn(judge, watched[name])
        watch = Watch(player, groups, watched) if others else None
        if watch is not None:
            yield Moment(player.episodes + judge_player.episodes, start.world.values(player.chosen_XA).start, metrics, watch)
        update(policy, credited, plan, lr=float(setting["lr"]), seed=(seed, step))
        if isinstance(reward, RewardLearner) and arm not in LEARN_FIRST:
            metrics |= reward.learn(scored)
        step += 1
        if watch is None:
            yield Moment(player.episodes + judge_player.episodes, start.world.values(player.chosen_XA).start, metrics)


def _clone(policy: TableModel, demonstration: Episode, lr: float) -> None:
    """One step towards a demonstration."""
    num = demonstration.num_tokens
    policy.backward(episode_rows(demonstration, weight=np.full(num, 1.0 / num)), CloningLoss())
    policy.step(lr)


def _learn(judge: ProcessReward, scored: list[Group[Scored]]) -> None:
    if isinstance(judge, RewardLearner):
        judge.learn(scored)
