"""The soft Q judge: a language model and a value, right together where soft Bellman's equation holds.

Legend: S step, K step with tokens, T sampled token, N state of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from stepwell.credit.segment import Segment, by_turn, pool, spread, step_of_tokens
from stepwell.engine.batch import episode_rows, join
from stepwell.engine.states import StateRow, state_rows
from stepwell.errors import ConfigError
from stepwell.losses.fitted import FitLoss
from stepwell.losses.soft_q import SoftQLoss
from stepwell.protocols import KeptPolicy, Loss, Model, Saveable
from stepwell.rewards.confidence import Confidence, pair_accuracy
from stepwell.rewards.fitted import Form, finite
from stepwell.rewards.outcome import Pay, paid
from stepwell.types import JSON, Bools, EndingKind, Episode, Floats, Group, Ids, Metrics, Row, Scored, Steps

__all__ = ["SoftQReward", "SoftQSettings", "soft_targets"]

_VALUES = frozenset({"values"})


@dataclass(frozen=True, slots=True)
class SoftQSettings:
    """What the judge says, and how it learns.

    Attributes:
        pay: What the end of an episode is paid.
        beta: Reward per nat: the temperature of the policy that the judge comes to be.
        form: `progress`: `Q(s, a) - V(s) = beta log pi/pi_ref`. `value`: `Q(s, a)`.
        lam: In [0, 1]: 1 is right about whole episodes, 0 about single steps, as far as the values after them are.
        lr, value_lr: Learning rates of the language model and of the values.
        updates: Gradient steps of both on each batch of fresh episodes (online).
        warm: Gradient steps on demonstrations before the first episode is scored (offline).
        batch: Demonstrations of such a step.
        memory: Of the confidence, see `rewards.confidence.Confidence`.

    Raises (when built):
        ConfigError: a number out of range.
    """

    pay: Pay = "success"
    beta: float = 0.05
    form: Form = "progress"
    lam: float = 1.0
    lr: float = 1e-6
    value_lr: float = 1e-3
    updates: int = 1
    warm: int = 0
    batch: int = 16
    memory: float = 0.9

    def __post_init__(self) -> None:
        for name, value in {"beta": self.beta, "lr": self.lr, "value_lr": self.value_lr}.items():
            if not (np.isfinite(value) and value > 0):
                raise ConfigError(f"reward.{name} is {value}; it needs to be a positive number.")
        if not 0.0 <= self.lam <= 1.0:
            raise ConfigError(f"reward.lam is {self.lam}; it lies in [0, 1].")
        if min(self.updates, self.warm) < 0 or self.batch < 1 or self.updates + self.warm == 0:
            raise ConfigError(
                f"reward.updates is {self.updates}, reward.warm {self.warm} and reward.batch {self.batch}; at least one of the first two "
                "must be positive, or the judge never learns, and a batch has at least 1."
            )


def soft_targets(values_K: Floats, bonus_K: Floats, end: float, lam: float) -> Floats:
    """What state and step together should be worth, `V_k + beta log pi/pi_ref`, in an episode that is paid at its end alone. [K]

    `y_K = end` for the last step, `y_k = (1 - lam) V_(k+1) + lam (y_(k+1) - bonus_(k+1))`: the next state's value as the judge says it, or
    as the rest of the episode does. The soft Bellman residual is `V_k + bonus_k - y_k`.

    Args:
        values_K: Of the state before each step.
        bonus_K: `beta log pi/pi_ref` of each step.
        end: What the end is paid, or is expected to be.
        lam: See above.

    >>> soft_targets(np.array([0.5, 0.8]), np.array([0.1, 0.3]), 1.0, lam=0.0)
    array([0.8, 1. ])
    >>> soft_targets(np.array([0.5, 0.8]), np.array([0.1, 0.3]), 1.0, lam=1.0)
    array([0.7, 1. ])
    """
    target_K = np.full(len(values_K), end)
    for k in reversed(range(len(values_K) - 1)):
        target_K[k] = (1.0 - lam) * values_K[k + 1] + lam * (target_K[k + 1] - bonus_K[k + 1])
    return target_K


class _Said(NamedTuple):
    """What is said about one episode: log-probs of judge and reference, and values before and after each step with tokens."""

    episode: Episode
    steps: Steps
    judge_T: Floats
    ref_T: Floats
    rows: list[StateRow]
    values: list[Floats]

    @property
    def at(self) -> Ids:
        return np.concatenate([np.zeros(0, np.int64), *(made.steps for made in self.rows)])

    def value(self, side: str) -> Floats:
        """[K]"""
        pairs = zip(self.rows, self.values, strict=True)
        return np.concatenate([np.zeros(0), *(v[m.before if side == "before" else m.after] for m, v in pairs)])

    def bonus(self, beta: float) -> Floats:
        """`beta log pi/pi_ref` of each step. [S]"""
        return beta * pool(self.judge_T - self.ref_T, self.steps, "sum")


class SoftQReward:
    """A judge that is the soft-optimal policy in the making: `Q(s, a) = V(s) + beta log pi_judge/pi_ref(a | s)`.

    The component `judge` of a step is `beta x` the log-ratio of its tokens (`progress`), or that and the value before it (`value`). Judge
    and values minimise the squared soft Bellman residual `beta log pi/pi_ref + V(s) - r - V(s')`, with lambda-returns in place of the last
    terms (`soft_targets`); `V = 0` after the end. Each takes the other as it was when the batch was scored. Where all residuals are 0, V is
    `beta log E_ref[exp(R / beta)]` and the judge the policy that maximises `E[R] - beta KL(pi || pi_ref)`.

    The equation holds for any data. Offline, the judge learns from demonstrations before the first episode is scored (`warm`); online, from
    the episodes of each batch (`updates`). The judge starts as the policy, which is kept as the reference: its first rewards are exactly 0.

    Source: DQO, arXiv 2410.09302. Differs in that a step is an action, and that V may share the judge's hidden states without a gradient
    into them.

    `learn` reports `judge/fresh_error`, the mean size of the residual before it learns, and `judge/confidence`: how often the sum of the
    log-ratios ranks episodes as the verdict does.

    Args:
        judge: A language model that starts as the policy.
        value: With a head.
        settings: As above.
        segment: Where steps begin and end.
        demonstration: From a number to an episode, for learning offline.

    Raises:
        ConfigError: `warm` without demonstrations.
    """

    def __init__(
        self,
        judge: Model,
        value: Model,
        settings: SoftQSettings,
        *,
        segment: Segment = by_turn,
        demonstration: Callable[[int], Episode] | None = None,
    ) -> None:
        if settings.warm and demonstration is None:
            raise ConfigError(f"reward.warm is {settings.warm}, and there are no demonstrations; set reward.demonstrations, or warm to 0.")
        self._judge, self._value, self._settings, self._segment = judge, value, settings, segment
        self._demonstration = demonstration
        self._reference: KeptPolicy = judge.keep()  # A head has no log-probs, and says so here.
        self._losses: tuple[Loss, Loss] = (SoftQLoss(settings.beta), FitLoss("square"))
        self._said: dict[int, _Said] = {}
        self._done = 0
        self._confidence = Confidence(settings.memory)

    # -- scoring --------------------------------------------------------------------------------------------------------------

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Attaches the component `judge`; failed episodes and steps without tokens are unscored. The first call learns offline."""
        self._learn_offline()
        episodes = [episode for group in groups for episode in group.members]
        said = self._ask(episodes)
        self._said = {id(one.episode): one for one in said}
        return [Group(group.task, tuple(self._attached(self._said[id(e)]) for e in group.members)) for group in groups]

    def _ask(self, episodes: Sequence[Episode]) -> list[_Said]:
        steps = [self._segment(episode) for episode in episodes]
        rows = [[] if e.failed else episode_rows(e) for e in episodes]
        flat, counts = [row for some in rows for row in some], [len(some) for some in rows]
        judge = join([finite(made["logprobs"]) for made in self._judge.forward(flat)], counts)
        ref = join(self._reference.logprobs(flat), counts)
        states = [[] if e.failed else state_rows(e, cut) for e, cut in zip(episodes, steps, strict=True)]
        values = iter(self._value.forward([made.row for some in states for made in some], _VALUES))
        return [
            _Said(episode, cut, j, r, some, [finite(next(values)["values"]) for _ in some])
            for episode, cut, j, r, some in zip(episodes, steps, judge, ref, states, strict=True)
        ]

    def _attached(self, one: _Said) -> Scored:
        reward_S, scored_S = np.zeros(len(one.steps)), np.zeros(len(one.steps), np.bool_)
        outcome = paid(one.episode, self._settings.pay)
        if not one.episode.failed:
            scored_S[one.at] = True
            reward_S = np.where(scored_S, one.bonus(self._settings.beta), 0.0)
            if self._settings.form == "value":
                reward_S[one.at] += one.value("before")
        return Scored(one.episode, one.steps, outcome, {"judge": reward_S}, scored_S, confidence=self._confidence.value)

    # -- learning -------------------------------------------------------------------------------------------------------------

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics:
        """Updates of judge and values on the episodes that were scored last.

        Raises:
            ConfigError: The groups are not those.
        """
        said = [[self._said.get(id(member.episode)) for member in group.members] for group in groups]
        if any(one is None for some in said for one in some):
            raise ConfigError("learn was given an episode that the last call of score did not see; score and learn the same groups.")
        known = [[one for one in some if one is not None] for some in said]
        pairs = [
            [(m.outcome, float(one.bonus(1.0).sum())) for m, one in zip(g.members, some, strict=True) if m.outcome is not None]
            for g, some in zip(groups, known, strict=True)
        ]
        metrics = self._confidence.remember(pair_accuracy(pairs))
        everyone = [one for some in known for one in some]
        residuals = [self._residuals(one) for one in everyone]
        if sum(map(len, residuals)):
            metrics["judge/fresh_error"] = float(np.abs(np.concatenate(residuals)).mean())
        for number in range(self._settings.updates):
            metrics |= self._update(everyone if number == 0 else self._ask([one.episode for one in everyone]))
        return metrics

    def _learn_offline(self) -> None:
        while self._done < self._settings.warm:
            assert self._demonstration is not None
            first = self._done * self._settings.batch
            self._update(self._ask([self._demonstration(first + n) for n in range(self._settings.batch)]))
            self._done += 1

    def _end(self, one: _Said) -> tuple[float | None, bool]:
        """What the end is worth, and whether that is known or only expected; None where nothing can be learnt."""
        if one.episode.failed or not len(one.at):
            return None, False
        if one.episode.ending.kind is EndingKind.TRUNCATED:
            return float(one.value("after")[-1]), False
        return paid(one.episode, self._settings.pay), True

    def _targets(self, one: _Said) -> tuple[Floats, Floats, bool] | None:
        """Of each step: `y`, the bonus, and whether the end is known. [K], [K]"""
        end, is_known = self._end(one)
        if end is None:
            return None
        bonus_K = one.bonus(self._settings.beta)[one.at]
        return soft_targets(one.value("before"), bonus_K, end, self._settings.lam), bonus_K, is_known

    def _residuals(self, one: _Said) -> Floats:
        made = self._targets(one)
        return np.zeros(0) if made is None else one.value("before") + made[1] - made[0]

    def _update(self, said: Sequence[_Said]) -> Metrics:
        """One step of each: the residual's gradient with respect to the judge, and with respect to V."""
        judge_rows: list[Row] = []
        value_rows: list[Row] = []
        for one in said:
            made = self._targets(one)
            if made is not None:
                target_K, bonus_K, is_known = made
                judge_rows += _judge_rows(one, target_K - one.value("before"))
                value_rows += _value_rows(one, target_K - bonus_K, is_known)
        if not judge_rows:
            return {}
        steps = sum(len(one.at) for one in said if self._end(one)[0] is not None)
        judge_rows = [replace(row, weight=row.weight / steps) for row in judge_rows]
        total = sum(float(row.weight.sum()) for row in value_rows)
        value_rows = [replace(row, weight=row.weight / total) for row in value_rows]
        metrics = self._judge.backward(judge_rows, self._losses[0])
        self._value.backward(value_rows, self._losses[1])
        self._value.step(self._settings.value_lr)
        return metrics | {f"judge/{name}": value for name, value in self._judge.step(self._settings.lr).items()}

    # -- state ----------------------------------------------------------------------------------------------------------------

    def models(self) -> dict[str, Saveable]:
        """Judge, values, and the policy at the start."""
        return {"judge": self._judge, "judge_value": self._value, "judge_reference": self._reference}

    def state(self) -> dict[str, JSON]:
        """How far it has learnt offline, and the confidence."""
        return {"done": self._done, "confidence": self._confidence.state()}

    def restore(self, state: dict[str, JSON]) -> None:
        """Goes on where it was."""
        done = state["done"]
        assert isinstance(done, int)
        self._done = done
        self._confidence.restore(state["confidence"])


def _judge_rows(one: _Said, wanted_K: Floats) -> list[Row]:
    """All sampled tokens, each with what its step should say."""
    wanted_S = np.zeros(len(one.steps))
    wanted_S[one.at] = wanted_K
    return episode_rows(one.episode, step_T=step_of_tokens(one.steps), ref_logprobs=one.ref_T, returns=spread(wanted_S, one.steps))


def _value_rows(one: _Said, worth_K: Floats, is_known: bool) -> list[Row]:
    """The state before each step, and the one after it: worth what the next was, or 0 when all is paid."""
    next_K = np.append(worth_K[1:], 0.0)
    known_K: Bools = np.append(np.ones(len(worth_K) - 1, np.bool_), is_known)
    made, first = [], 0
    for state, values_N in zip(one.rows, one.values, strict=True):
        cut = slice(first, first + len(state.steps))
        first = cut.stop
        worth_N, weight_N = np.zeros(len(values_N)), np.zeros(len(values_N))
        worth_N[state.after], weight_N[state.after] = next_K[cut], known_K[cut]
        worth_N[state.before], weight_N[state.before] = worth_K[cut], 1.0
        made.append(replace(state.row, returns=worth_N, weight=weight_N))
    return made
