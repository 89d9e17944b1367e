"""The temporal judge: promise and progress of every step, learnt from plain episodes by temporal differences.

Legend: S step, K step with tokens, N target of a row (a state).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from stepwell.credit.segment import Segment, by_turn
from stepwell.engine.states import StateRow, state_rows
from stepwell.errors import ConfigError
from stepwell.losses.fitted import PromiseLoss
from stepwell.protocols import Model, Saveable
from stepwell.rewards.confidence import Confidence, pair_accuracy
from stepwell.rewards.fitted import Form, finite
from stepwell.rewards.outcome import Pay, paid
from stepwell.types import JSON, Bools, EndingKind, Episode, Floats, Group, Ids, Metrics, Row, Scored, Steps

__all__ = ["TemporalReward", "TemporalSettings", "promise_targets"]

_VALUES = frozenset({"values"})


@dataclass(frozen=True, slots=True)
class TemporalSettings:
    """What the judge says, and how it learns.

    Attributes:
        pay: What the end of an episode is paid.
        form: `value`: promise, `Q(s, a)`. `progress`: `A(s, a) = Q(s, a) - V(s)`.
        discount: For each turn that is still to come, in (0, 1].
        lam: In [0, 1]; lower trusts the judge's own values more: less variance, more bias.
        beta: Weight of being right about progress, against being right about promise.
        truncated: What an episode is that was cut from outside: one that goes on as the judge expects (`bootstrap`), or one that is over
            as it stands (`graded`).
        lr: Learning rate.
        updates: Gradient steps on each batch.
        memory: Of the confidence, see `rewards.confidence.Confidence`.

    Raises (when built):
        ConfigError: a number out of range.
    """

    pay: Pay = "success"
    form: Form = "progress"
    discount: float = 1.0
    lam: float = 0.95
    beta: float = 1.0
    truncated: Literal["bootstrap", "graded"] = "bootstrap"
    lr: float = 1e-5
    updates: int = 2
    memory: float = 0.9

    def __post_init__(self) -> None:
        if not 0.0 < self.discount <= 1.0:
            raise ConfigError(f"reward.discount is {self.discount}; it lies in (0, 1].")
        if not 0.0 <= self.lam <= 1.0:
            raise ConfigError(f"reward.lam is {self.lam}; it lies in [0, 1].")
        if not (np.isfinite(self.lr) and self.lr > 0) or self.updates < 1:
            raise ConfigError(f"The judge's lr is {self.lr} and its updates {self.updates}; both need to be positive.")


class Targets(NamedTuple):
    """What a judge should have said about the steps of one episode: promise and progress. [K] each"""

    promise: Floats
    progress: Floats


def promise_targets(values_K: Floats, turn_K: Ids, end: float, *, discount: float, lam: float) -> Targets:
    """Generalised advantages of an episode that is paid at its end alone, and the action values that go with them.

    `delta_k = g_k V_(k+1) - V_k`, with `g_k = discount^(turns from step k to step k+1)`, and `end - V_K` for the last step;
    `A_k = delta_k + g_k lam A_(k+1)`; `Q_k = A_k + V_k`.

    With the true V, `A_k` has the true advantage as its mean, whatever lambda. Differs from the residual `r + discount Q(s', a') - Q(s, a)`
    of notes on AgentPRM (arXiv 2511.08325), whose mean given state and action is 0: progress would be noise.

    Args:
        values_K: Of the state before each step.
        turn_K: That each step lies in.
        end: What the end is paid, or is expected to be.
        discount: For each turn.
        lam: See above.

    >>> promise_targets(np.array([0.5, 0.8]), np.array([0, 1]), 1.0, discount=1.0, lam=0.0)
    Targets(promise=array([0.8, 1. ]), progress=array([0.3, 0.2]))
    """
    factor_K = discount ** np.diff(turn_K, append=turn_K[-1:]).astype(np.float64)
    progress = np.zeros(len(values_K))
    later = 0.0
    for k in reversed(range(len(values_K))):
        is_last = k == len(values_K) - 1
        after = end if is_last else factor_K[k] * values_K[k + 1]
        later = after - values_K[k] + (0.0 if is_last else factor_K[k] * lam * later)
        progress[k] = later
    return Targets(progress + values_K, progress)


class _Asked(NamedTuple):
    """The states of one episode, and what was said about those before and after each step with tokens."""

    episode: Episode
    steps: Steps
    rows: list[StateRow]
    values: list[Floats]

    def around(self) -> tuple[Ids, Floats, Floats]:
        """Numbers of the steps, and values before and after each. [K] each"""
        none = np.zeros(0)
        at = np.concatenate([np.zeros(0, np.int64), *(made.steps for made in self.rows)])
        pairs = list(zip(self.rows, self.values, strict=True))
        return at, np.concatenate([none, *(v[m.before] for m, v in pairs)]), np.concatenate([none, *(v[m.after] for m, v in pairs)])


class TemporalReward:
    """A scalar head that says how good things stand, before and after every step: `Q(s, a)` after it, `V(s)` before it.

    The component `judge` of a step is its promise or its progress. Targets come from the episodes of the batch alone, by `promise_targets`
    with the values that the judge said before it learns; the loss is `PromiseLoss`. No continuation is played.

    Source: AgentPRM, arXiv 2511.08325 (promise and progress, TD with GAE, `L_Q + beta L_A`). The environment draws nothing, so what stands
    after a step and before the next is the same state: one head says both. Differs in that the temporal differences are those of V (see
    `promise_targets`).

    `learn` reports `judge/fresh_error`, the mean distance between promise and its target before the judge learns, and `judge/confidence`.

    Args:
        model: With a head.
        settings: As above.
        segment: Where steps begin and end.
    """

    def __init__(self, model: Model, settings: TemporalSettings, segment: Segment = by_turn) -> None:
        self._model, self._settings, self._segment = model, settings, segment
        self._loss = PromiseLoss(settings.beta)
        self._asked: dict[int, _Asked] = {}
        self._confidence = Confidence(settings.memory)

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Attaches the component `judge`; a failed episode and a step without tokens are unscored."""
        episodes = [episode for group in groups for episode in group.members]
        steps = [self._segment(episode) for episode in episodes]
        rows = [[] if e.failed else state_rows(e, cut) for e, cut in zip(episodes, steps, strict=True)]
        said = iter(self._model.forward([made.row for some in rows for made in some], _VALUES))
        asked = [
            _Asked(episode, cut, some, [finite(next(said)["values"]) for _ in some])
            for episode, cut, some in zip(episodes, steps, rows, strict=True)
        ]
        self._asked = {id(one.episode): one for one in asked}
        made = iter(asked)
        return [Group(group.task, tuple(self._attached(next(made)) for _ in group.members)) for group in groups]

    def _attached(self, one: _Asked) -> Scored:
        at, before, after = one.around()
        reward_S, scored_S = np.zeros(len(one.steps)), np.zeros(len(one.steps), np.bool_)
        reward_S[at] = after if self._settings.form == "value" else after - before
        scored_S[at] = True
        outcome = paid(one.episode, self._settings.pay)
        return Scored(one.episode, one.steps, outcome, {"judge": reward_S}, scored_S, confidence=self._confidence.value)

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics:
        """Teaches promise and progress of the episodes that were scored last.

        Raises:
            ConfigError: The groups are not those.
        """
        rows: list[Row] = []
        gaps: list[Floats] = [np.zeros(0)]
        ranked: list[list[tuple[float, float]]] = []
        for group in groups:
            ranked.append([])
            for member in group.members:
                one = self._asked.get(id(member.episode))
                if one is None:
                    raise ConfigError(
                        "learn was given an episode that the last call of score did not see; score and learn the same groups."
                    )
                at, before, after = one.around()
                end, is_known = self._end(one, after)
                if end is None:
                    continue
                targets = promise_targets(before, one.steps.turn_S[at], end, discount=self._settings.discount, lam=self._settings.lam)
                is_known_K = np.append(np.ones(len(at) - 1, np.bool_), is_known)
                gaps.append(np.abs(after - targets.promise)[is_known_K])
                if member.outcome is not None:
                    ranked[-1].append((member.outcome, float(after.mean())))
                rows += _rows(one, targets, is_known_K)
        metrics = self._confidence.remember(pair_accuracy(ranked))
        if not rows:
            return metrics
        metrics["judge/fresh_error"] = float(np.concatenate(gaps).mean())
        total = sum(float(row.weight.sum()) for row in rows)
        rows = [replace(row, weight=row.weight / total) for row in rows]
        for _ in range(self._settings.updates):
            metrics |= self._model.backward(rows, self._loss)
            metrics |= {f"judge/{name}": value for name, value in self._model.step(self._settings.lr).items()}
        return metrics

    def _end(self, one: _Asked, after: Floats) -> tuple[float | None, bool]:
        """What the end is worth, and whether that is known or only expected; None where nothing can be learnt."""
        if one.episode.failed or not len(after):
            return None, False
        if one.episode.ending.kind is EndingKind.TRUNCATED and self._settings.truncated == "bootstrap":
            return float(after[-1]), False
        return paid(one.episode, self._settings.pay), True

    def models(self) -> dict[str, Saveable]:
        """The judge."""
        return {"judge": self._model}

    def state(self) -> dict[str, JSON]:
        """The confidence; what is kept between scoring and learning lives within one step."""
        return {"confidence": self._confidence.state()}

    def restore(self, state: dict[str, JSON]) -> None:
        """The confidence."""
        self._confidence.restore(state["confidence"])


def _rows(one: _Asked, targets: Targets, is_known_K: Bools) -> list[Row]:
    """States with their targets: before a step and after it, what the step was worth; and what it changed where it ends.

    Inside a turn the state after a step is the one before the next, and is taught as that.
    """
    made, first = [], 0
    for state, values_N in zip(one.rows, one.values, strict=True):
        cut = slice(first, first + len(state.steps))
        first = cut.stop
        worth_N, change_N, weight_N = np.zeros(len(values_N)), np.zeros(len(values_N)), np.zeros(len(values_N))
        step_N = np.full(len(values_N), -1, np.int64)
        worth_N[state.after], change_N[state.after] = targets.promise[cut], targets.progress[cut]
        step_N[state.after], weight_N[state.after] = state.steps, is_known_K[cut]
        worth_N[state.before], weight_N[state.before] = targets.promise[cut], 1.0
        made.append(replace(state.row, returns=worth_N, advantage=change_N, weight=weight_N, step=step_N))
    return made
