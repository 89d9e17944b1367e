"""Step rewards between the judge and the credit rule: weights over the episode, potentials, scale, bounds, length.

Applied in this order: `weights`, `potential`, `normalise`, `clip`, `horizon`, `cap`. What the judge said stays as it was, in the records
and for the judge's own learning; the credit rule reads the one component `shaped`. Outcomes are not touched.
Legend: S steps of one episode.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from stepwell.errors import ConfigError, nearest
from stepwell.types import JSON, Credited, Floats, Group, Ids, Metrics, Scored

__all__ = ["Shaping", "capped", "horizon_scale", "potential_based", "shaped_metrics", "time_weights", "with_raw"]

Horizon = Literal["none", "mean", "reference"]
Normalise = Literal["none", "batch", "running"]


def time_weights(turn_S: Sequence[int] | Ids, turns: int, start: float, end: float) -> Floats:
    """Weights that go from `start` at the first turn to `end` at the last one that the episode may have, in a straight line.

    Source: EVO-RAG, arXiv 2505.17391, reweighs its step rewards by the time in the episode; we found no formula of it, this one is ours.

    >>> time_weights([0, 1, 2], 5, 1.0, 0.0).tolist()
    [1.0, 0.75, 0.5]
    """
    done_S = np.asarray(turn_S, np.float64) / max(turns - 1, 1)
    return start + (end - start) * np.minimum(done_S, 1.0)


def potential_based(values_S: Floats, *, discount: float = 1.0, terminal: bool = True) -> Floats:
    """Rewards from a potential: `r_s = discount * v_s - v_{s-1}`, v_s being what the judge says of the state after step s.

    `v` is 0 before the first step, and after the last one of an episode that is over. With discount 1 they then sum to 0 whatever the judge
    says, and no policy's expected return changes: the optimal policy stays what it was (Ng, Harada and Russell 1999, theorem 1).

    >>> potential_based(np.array([0.2, 0.7, 0.9])).round(3).tolist()
    [0.2, 0.5, -0.7]
    """
    after_S = values_S.copy()
    if terminal and len(after_S):
        after_S[-1] = 0.0
    rewards_S: Floats = discount * after_S - np.concatenate([np.zeros(1), values_S[:-1]])[: len(values_S)]
    return rewards_S


def horizon_scale(num_steps: int, horizon: Horizon, reference: int) -> float:
    """By what the rewards of an episode of so many steps are multiplied, so that their sum cannot grow with their number.

    `mean`: 1 / S; `reference`: min(1, reference / S), which leaves short episodes alone.

    >>> horizon_scale(8, "mean", 4), horizon_scale(8, "reference", 4), horizon_scale(2, "reference", 4)
    (0.125, 0.5, 1.0)
    """
    if horizon == "none" or num_steps == 0:
        return 1.0
    return 1.0 / num_steps if horizon == "mean" else min(1.0, reference / num_steps)


def capped(rewards_S: Floats, cap: float) -> Floats:
    """The same, scaled down where their sum is larger than the cap (in size).

    With outcomes 0 and 1 and a cap below 1/2, no failed episode gets more in all than one that succeeds.

    >>> capped(np.array([1.0, 1.0, 2.0]), 0.4).tolist()
    [0.1, 0.1, 0.2]
    """
    total = abs(float(rewards_S.sum()))
    return rewards_S if total <= cap else rewards_S * (cap / total)


@dataclass(slots=True)
class Shaping:
    """Shapes the step rewards of a batch.

    Attributes:
        weights: Component -> weights at the first and at the last turn; a component that is not named keeps weight 1.
        turns: Limit of turns of an episode, for `weights`.
        potential: Whether what the judge says is taken for the value of the state after a step; see `potential_based`.
        discount: Of potentials.
        normalise: Division by the root mean square of the scored steps: of the `batch`, or over the run so far (`running`). Nothing is
            subtracted, so that 0 stays 0 and no length is favoured.
        memory: Weight of the past in `running`.
        clip: Bound of a step's reward, in size.
        horizon: See `horizon_scale`.
        reference: See `horizon_scale`.
        cap: Bound of an episode's sum, in size.

    With `horizon="mean"` and a cap below half the gap between the outcomes of success and failure, retries cannot beat first-try success.

    Raises (when built):
        ConfigError: A value out of range.
    """

    weights: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    turns: int = 1
    potential: bool = False
    discount: float = 1.0
    normalise: Normalise = "none"
    memory: float = 0.9
    clip: float | None = None
    horizon: Horizon = "none"
    reference: int = 5
    cap: float | None = None
    _square: float | None = None

    def __post_init__(self) -> None:
        for name, value in {"clip": self.clip, "cap": self.cap}.items():
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigError(f"shaping.{name} is {value}; it needs a positive number, or nothing.")
        if not 0.0 <= self.discount <= 1.0 or not 0.0 <= self.memory < 1.0:
            raise ConfigError(f"shaping.discount is {self.discount} and memory {self.memory}; allowed are [0, 1] and [0, 1).")
        if self.reference < 1 or self.turns < 1:
            raise ConfigError(f"shaping.reference is {self.reference} and the limit of turns {self.turns}; both are at least 1.")
        for name, pair in self.weights.items():
            if not all(math.isfinite(weight) for weight in pair):
                raise ConfigError(f"shaping.weights of {name!r} are {list(pair)}; they are finite numbers.")

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Scored]]:
        """The same episodes, with the one component `shaped`.

        Raises:
            ConfigError: A weight is for a component that the reward has not.
        """
        raw = [[self._weighed(member) for member in group.members] for group in groups]
        pairs = [pair for rows, group in zip(raw, groups, strict=True) for pair in zip(rows, group.members, strict=True)]
        scale = self._scale([row[member.scored_S] for row, member in pairs])
        return [
            Group(group.task, tuple(self._bounded(member, row / scale) for member, row in zip(group.members, rows, strict=True)))
            for group, rows in zip(groups, raw, strict=True)
        ]

    def _weighed(self, member: Scored) -> Floats:
        for name in self.weights:
            if member.rewards and name not in member.rewards:
                raise ConfigError(f"shaping.weights names the component {name!r}; {nearest(name, member.rewards)}.")
        total_S = np.zeros(len(member.steps))
        for name, values_S in member.rewards.items():
            start, end = self.weights.get(name, (1.0, 1.0))
            total_S = total_S + time_weights(member.steps.turn_S, self.turns, start, end) * values_S
        if self.potential:
            return potential_based(_carried(total_S, member), discount=self.discount, terminal=member.episode.ending.terminal)
        return np.where(member.scored_S, total_S, 0.0)

    def _scale(self, rows: Sequence[Floats]) -> float:
        if self.normalise == "none":
            return 1.0
        scored = np.concatenate([np.zeros(0), *rows])
        square = float(np.mean(scored**2)) if len(scored) else None
        if self.normalise == "running" and square is not None:
            self._square = square if self._square is None else self.memory * self._square + (1.0 - self.memory) * square
            square = self._square
        return max(math.sqrt(square or 0.0), 1e-8) if square else 1.0

    def _bounded(self, member: Scored, rewards_S: Floats) -> Scored:
        shaped_S = rewards_S if self.clip is None else np.clip(rewards_S, -self.clip, self.clip)
        shaped_S = shaped_S * horizon_scale(int(member.scored_S.sum()), self.horizon, self.reference)
        shaped_S = shaped_S if self.cap is None else capped(np.where(member.scored_S, shaped_S, 0.0), self.cap)
        return replace(member, rewards={"shaped": np.where(member.scored_S, shaped_S, 0.0)} if member.rewards else {})

    def state(self) -> dict[str, JSON]:
        """The running scale."""
        return {"square": self._square}

    def restore(self, state: Mapping[str, JSON]) -> None:
        """Goes on from `state`."""
        square = state.get("square")
        self._square = float(square) if isinstance(square, float | int) else None


def with_raw(credited: Sequence[Group[Credited]], scored: Sequence[Group[Scored]]) -> list[Group[Credited]]:
    """Credit that was made from shaped rewards, with what the judge said in the records."""

    def back(member: Credited, raw: Scored) -> Credited:
        return replace(member, scored=replace(raw, outcome=member.scored.outcome))

    pairs = zip(credited, scored, strict=True)
    return [Group(group.task, tuple(map(back, group.members, before.members))) for group, before in pairs]


def shaped_metrics(groups: Sequence[Group[Scored]]) -> Metrics:
    """`reward/shaped`: mean over judged episodes of the sum of their shaped rewards; `reward/shaped_step` of their mean."""
    judged = [m for group in groups for m in group.members if m.scored_S.any() and "shaped" in m.rewards and not m.episode.failed]
    found = [member.rewards["shaped"][member.scored_S] for member in judged]
    if not found:
        return {}
    return {
        "reward/shaped": float(np.mean([row.sum() for row in found])),
        "reward/shaped_step": float(np.mean([row.mean() for row in found])),
    }


def _carried(values_S: Floats, member: Scored) -> Floats:
    """Where the judge says nothing, the value of the state is what it was."""
    last, made = 0.0, np.zeros(len(values_S))
    for s, (value, said) in enumerate(zip(values_S.tolist(), member.scored_S.tolist(), strict=True)):
        last = value if said else last
        made[s] = last
    return made
