"""What judges know: their scores of fresh steps against exact advantages, while the policy moves.

All judges of a run see the same batches and have no say in what the policy learns (GRPO on outcomes). Every batch is scored before anyone
learns from it. The truth is the advantage of the policy that sampled the batch (`now`), and of the best one (`best`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stepwell.envs.exact import Values
from stepwell.rewards.confidence import pair_accuracy
from stepwell.types import Bools, Episode, Floats, Group, Scored
from truth.arms import Setting, scores_of
from truth.cells import Cell, start_of
from truth.loop import train
from truth.measures import auc, brier, calibration_error, located, spearman, spearman_within
from truth.world import TIE, World

__all__ = ["BEHAVIOUR", "measured"]

BEHAVIOUR: Setting = {"lr": 0.1, "credit": "grpo"}
PHASES = ("early", "middle", "late")


def measured(cell: Cell, judges: Mapping[str, Setting], seed: int, steps: int) -> dict[str, dict[str, dict[str, float]]]:
    """For each judge and third of the run: Spearman, AUC and so on over all fresh steps of that third."""
    world = start_of(cell, seed).world
    per_third = math.ceil(steps / len(PHASES))
    seen: dict[str, list[list[_Batch]]] = {name: [[] for _ in PHASES] for name in judges}
    course = train(cell, "grpo", BEHAVIOUR, seed, onlookers=judges)
    next(course)
    for step in range(steps):
        watch = next(course).watch
        assert watch is not None
        now = world.values(watch.player.chosen_XA)
        for name, groups in watch.said.items():
            truth = [_Truth.of(world, now, episode) for group in watch.groups for episode in group.members]
            seen[name][step // per_third].append(_Batch(groups, truth, name.endswith(" value")))
    return {name: {phase: _numbers(part) for phase, part in zip(PHASES, parts, strict=True)} for name, parts in seen.items()}


class _Truth(NamedTuple):
    """What is true of the steps of an episode. [S] each

    Attributes:
        now, best: Advantages, under the policy that sampled it and under the best one.
        decides: Where it matters to the best one what is done.
        chance: What the episode is worth after the step.
    """

    now: Floats
    best: Floats
    decides: Bools
    chance: Floats

    @classmethod
    def of(cls, world: World, now: Values, episode: Episode) -> _Truth:
        """By the exact values of the policy."""
        best = world.advantages(world.best, episode)
        return cls(world.advantages(now, episode), best, world.decides(world.best, episode), world.action_values(now, episode))


class _Batch:
    """One batch with what a judge said and what is true."""

    def __init__(self, groups: Sequence[Group[Scored]], truth: Sequence[_Truth], speaks_of_chances: bool) -> None:
        members = [member for group in groups for member in group.members]
        self.pairs = pair_accuracy([[(_worth(m.episode), _mean(m)) for m in group.members] for group in groups])
        self.steps = []
        for member, true in zip(members, truth, strict=True):
            said_S, known_S = scores_of(member)
            self.steps.append((said_S[known_S], true.now[known_S], true.best[known_S], true.decides[known_S]))
        self.episodes = [(_mean(m), _worth(m.episode)) for m in members]
        self.turns = sum(len(m.steps) for m in members)
        promises = zip(members, truth, strict=True)
        self.promises = [
            (_promise(m), _worth(m.episode), true.chance) for m, true in promises if speaks_of_chances or m.values_S is not None
        ]


def _worth(episode: Episode) -> float:
    """What the episode was really worth, whatever the grader said."""
    return sum(turn.reply.reward for turn in episode.turns)


def _mean(member: Scored) -> float:
    said_S, known_S = scores_of(member)
    return float(said_S[known_S].mean()) if known_S.any() else 0.0


def _promise(member: Scored) -> Floats:
    """What a judge of chances said of the end after each step but the last. [S - 1]"""
    return member.process_S[:-1] if member.values_S is None else member.values_S[1:]


def _numbers(batches: Sequence[_Batch]) -> dict[str, float]:
    steps = [one for batch in batches for one in batch.steps if len(one[0])]
    if not steps:
        return {}
    said, now, best, decides = (np.concatenate([one[i] for one in steps]) for i in range(4))
    episodes = [one for batch in batches for one in batch.episodes]
    level, worth = np.array([a for a, _ in episodes]), np.array([b for _, b in episodes])
    middle = worth - worth.mean() if len(np.unique(worth)) > 2 else worth - 0.5
    pairs = [batch.pairs for batch in batches if batch.pairs is not None]
    made = {
        "spearman_now": spearman(said, now),
        "spearman_best": spearman(said[decides], best[decides]),
        "auc_now": auc(said, now),
        "auc_best": auc(said, np.where(best < -TIE, -1.0, decides.astype(np.float64))),
        "within_now": spearman_within([(one[0], one[1]) for one in steps]),
        "located": located([(one[0], one[1]) for one in steps]),
        "episode_auc": auc(level, middle),
        "pairs": float(np.mean(pairs)) if pairs else math.nan,
        "share_scored": len(said) / max(sum(batch.turns for batch in batches), 1),
    }
    told = [(p, np.full(len(p), w), q[:-1]) for batch in batches for p, w, q in batch.promises]
    if told:
        promise, happened, chance = (np.clip(np.concatenate([one[i] for one in told]), 0.0, 1.0) for i in range(3))
        made |= {
            "ece": calibration_error(promise, happened),
            "brier": brier(promise, happened),
            "brier_truth": brier(chance, happened),
            "chance_error": float(np.abs(promise - chance).mean()),
        }
    return {name: round(value, 4) for name, value in made.items()}
