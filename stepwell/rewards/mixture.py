"""Several judges at once: the reward of a step is the weighted sum of theirs.

Legend: S step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stepwell.errors import ContractViolation
from stepwell.protocols import ProcessReward, RewardLearner, Saveable
from stepwell.rewards.confidence import Confidence, pair_accuracy, ranked_by_reward
from stepwell.types import JSON, Bools, Episode, Floats, Group, Metrics, Scored

__all__ = ["MixtureReward", "Part"]


class Part(NamedTuple):
    """A judge of a mixture, and the weight of its rewards; at 0 it is measured and not paid."""

    judge: ProcessReward
    weight: float = 1.0


class MixtureReward:
    r"""Judges with weights.

    $$r_s = \sum_k w_k \, r_{k,s}$$

    The components of a step are the judges' own, times their weights, by the judges' names. A step is scored where every judge that is paid
    has scored it: a sum in which one is missing is another quantity, and taking it for 0 would reward or punish what nobody has judged.
    `judge/NAME/unscored_steps` says how many steps a judge alone has left out. Of one judge with weight 1 it is that judge.

    `learn` lets every judge learn; the metrics of each, `judge/...`, are `judge/NAME/...`. `judge/confidence` is of the sum.

    Args:
        parts: By name.
        memory: Of the confidence, see `rewards.confidence.Confidence`.
    """

    def __init__(self, parts: Mapping[str, Part], memory: float = 0.9) -> None:
        self._parts = dict(parts)
        self._own: dict[str, list[Group[Scored]]] = {}
        self._confidence = Confidence(memory)
        self._ranked: list[list[tuple[float, float]]] = []

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """The components of all judges, weighted; each judge sees all groups."""
        self._own = {name: list(part.judge.score(groups)) for name, part in self._parts.items()}
        made = []
        for g, group in enumerate(groups):
            by_name = {name: own[g].members for name, own in self._own.items()}
            members = (self._together({name: some[m] for name, some in by_name.items()}) for m in range(len(group.members)))
            made.append(Group(group.task, tuple(members)))
        self._ranked = ranked_by_reward(made)
        return made

    def _together(self, said: Mapping[str, Scored]) -> Scored:
        first = next(iter(said.values()))
        for name, one in said.items():
            if not np.array_equal(one.steps.stop_S, first.steps.stop_S):
                raise ContractViolation(
                    f"The judges cut an episode of task {first.episode.task.key!r} differently: {next(iter(said))} into {len(first.steps)} "
                    f"steps, {name} into {len(one.steps)}; judges of a mixture give rewards to the same steps."
                )
        scored_S = np.logical_and.reduce([one.scored_S for name, one in said.items() if self._parts[name].weight])
        rewards: dict[str, Floats] = {}
        for name, one in said.items():
            for component, values_S in one.rewards.items():
                weighted_S = np.where(scored_S & one.scored_S, self._parts[name].weight * values_S, 0.0)
                called = name if len(one.rewards) == 1 else f"{name}_{component}"
                _check_new(called, rewards)
                rewards[called] = weighted_S
        return Scored(first.episode, first.steps, first.outcome, rewards, scored_S, confidence=self._confidence.value)

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics:
        """Each judge from its own opinion of these episodes."""
        metrics = self._confidence.remember(pair_accuracy(self._ranked)) | self._unscored()
        for name, part in self._parts.items():
            if isinstance(part.judge, RewardLearner):
                said = part.judge.learn(self._own[name])
                metrics |= {f"judge/{name}/{key.removeprefix('judge/')}": value for key, value in said.items()}
        return metrics

    def _unscored(self) -> Metrics:
        """Steps of episodes that are alive, without a number of this judge, where all the others that are paid have one."""
        counts = dict.fromkeys(self._parts, 0)
        for groups in zip(*self._own.values(), strict=True):
            for members in zip(*(group.members for group in groups), strict=True):
                if members[0].episode.failed:
                    continue
                masks: dict[str, Bools] = {name: member.scored_S for name, member in zip(self._own, members, strict=True)}
                for name in counts:
                    others = [mask for other, mask in masks.items() if other != name and self._parts[other].weight]
                    counts[name] += int((np.logical_and.reduce([~masks[name], *others])).sum())
        return {f"judge/{name}/unscored_steps": float(count) for name, count in counts.items()}

    def models(self) -> dict[str, Saveable]:
        """Of all judges: `NAME_judge`, and whatever else they have."""
        made: dict[str, Saveable] = {}
        for name, part in self._parts.items():
            if isinstance(part.judge, RewardLearner):
                for model, weights in part.judge.models().items():
                    _check_new(f"{name}_{model}", made)
                    made[f"{name}_{model}"] = weights
        return made

    def state(self) -> dict[str, JSON]:
        """Of all judges, and the confidence."""
        judges: dict[str, JSON] = {name: part.judge.state() for name, part in self._parts.items() if isinstance(part.judge, RewardLearner)}
        return {"judges": judges, "confidence": self._confidence.state()}

    def restore(self, state: dict[str, JSON]) -> None:
        """Goes on where it was."""
        judges = state["judges"]
        assert isinstance(judges, dict)
        for name, own in judges.items():
            judge = self._parts[name].judge
            assert isinstance(judge, RewardLearner)
            judge.restore(own)
        self._confidence.restore(state["confidence"])


def _check_new(name: str, known: Collection[str]) -> None:
    if name in known:
        raise ContractViolation(
            f"Two parts of the mixture are both called {name!r}: a judge, and another one's part, whose name is added to the judge's own. "
            "Rename one judge."
        )
