"""The critic: what each state is worth under the policy, learnt from what came after it.

Legend: S step, N target of a row (a state), K step with tokens that lies in one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from stepwell.credit.gae import GAE, Estimate
from stepwell.engine.states import StateRow, state_rows
from stepwell.errors import CapabilityError, ConfigError
from stepwell.losses import ValueLoss
from stepwell.protocols import Capabilities, Model, ProcessReward, RewardLearner, Saveable
from stepwell.types import JSON, Bools, Episode, Floats, Group, Metrics, Row, Scored

__all__ = ["Critic", "CriticSettings", "check_values"]

Charge = Callable[[Sequence[Group[Scored]]], Sequence[Group[Scored]]]
_VALUES = frozenset({"values"})


def check_values(capabilities: Capabilities) -> None:
    """Whether an engine can carry a critic.

    Raises:
        CapabilityError: It has no models with a scalar head.
    """
    if "head" not in capabilities.kinds or not capabilities.values:
        raise CapabilityError(
            f"A critic needs a model with a scalar head, and this engine has only {', '.join(sorted(capabilities.kinds))}; "
            "choose a credit rule that compares the episodes of a group (credit.kind=rloo, say), or another engine."
        )


@dataclass(frozen=True, slots=True)
class CriticSettings:
    """How the critic learns.

    Attributes:
        lr: Learning rate.
        updates: Gradient steps on each batch.
        clip: Of values, see `losses.ValueLoss`.
        inner_learns: Whether a reward that learns does so before or after it scores a batch. The critic always learns after.
    """

    lr: float = 1e-5
    updates: int = 2
    clip: float | None = 0.2
    inner_learns: Literal["before", "after"] = "after"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lr) and self.lr > 0):
            raise ConfigError(f"The critic's lr is {self.lr}; it needs to be a positive number.")
        if self.updates < 1:
            raise ConfigError(f"The critic's updates are {self.updates}; it needs at least 1 on each batch.")


class _Asked(NamedTuple):
    """The states of one episode, and what the critic said about them. [N] for each row"""

    episode: Episode
    rows: list[StateRow]
    values: list[Floats]


class Critic:
    """A reward whose steps also have values: `score` is the inner reward's with `values_S` and `final_value` attached.

    The value of a step is that of the state **before** it, read where its first token is about to be sampled. The critic is asked as well
    what is to come **after** each step, read at the step's last token: the last of these is the `final_value` that a truncated episode
    bootstraps from. Both learn towards the returns of `rule`; what comes after the end of an episode is 0, and unknown where it was cut.

    `learn` reports, measured on episodes that the critic had not learnt from, `critic/explained_variance`
    (`1 - var(return - value) / var(return)` over steps: 1 is perfect, 0 a constant, below 0 worse than one; left out where all returns
    are equal), `critic/value` and `critic/return`, their means; and the tallies of the loss, `critic/grad_norm`, and what the inner
    reward reports.

    Source: PPO, arXiv 1707.06347, and GAE, arXiv 1506.02438. Differs from token-level implementations in that what comes after a turn is
    asked at the turn's own last token: it needs no context that the model could not hold.

    Args:
        inner: Says what steps and ends are paid.
        model: With a head.
        rule: The credit rule that the values are for: it makes the targets.
        settings: How the critic learns.
        charge: What outcomes are charged with before credit reads them (`credit.shaping.Overlong`), so that values foretell what is paid.

    Raises:
        ConfigError: `inner_learns` is `before` and the inner reward does not learn.
    """

    def __init__(
        self, inner: ProcessReward | RewardLearner, model: Model, rule: GAE, settings: CriticSettings, *, charge: Charge | None = None
    ) -> None:
        if settings.inner_learns == "before" and not isinstance(inner, RewardLearner):
            raise ConfigError(f"The reward {type(inner).__name__} does not learn, so it cannot learn before it scores.")
        self._inner, self._model, self._rule, self._settings, self._charge = inner, model, rule, settings, charge
        self._loss = ValueLoss(settings.clip)
        self._asked: dict[int, _Asked] = {}
        self._learnt: Metrics = {}

    # -- values ---------------------------------------------------------------------------------------------------------------

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """What the inner reward says, with values; a failed episode has none."""
        scored = self._inner.score(groups)
        if self._settings.inner_learns == "before" and isinstance(self._inner, RewardLearner):
            self._learnt = self._inner.learn(scored)
            scored = self._inner.score(groups)
        members = [member for group in scored for member in group.members if not member.episode.failed]
        per_member = [state_rows(member.episode, member.steps, index=i) for i, member in enumerate(members)]
        said = iter(self._model.forward([made.row for rows in per_member for made in rows], _VALUES))
        self._asked = {
            id(member.episode): _Asked(member.episode, rows, [next(said)["values"] for _ in rows])
            for member, rows in zip(members, per_member, strict=True)
        }
        return [Group(group.task, tuple(self._attach(member) for member in group.members)) for group in scored]

    def _attach(self, member: Scored) -> Scored:
        asked = self._asked.get(id(member.episode))
        if asked is None:
            return member
        values_S = np.zeros(len(member.steps))
        final = None
        for made, values_N in zip(asked.rows, asked.values, strict=True):
            values_S[made.steps] = values_N[made.before]
            final = float(values_N[made.after[-1]])
        return replace(member, values_S=values_S, final_value=final)

    # -- learning -------------------------------------------------------------------------------------------------------------

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics:
        """Regression of values on returns, then what the inner reward learns.

        Raises:
            ConfigError: The groups are not those that were scored last.
        """
        charged = groups if self._charge is None else self._charge(groups)
        members = [member for group in charged for member in group.members]
        estimates = self._rule.estimate(members)
        metrics = self._measured(members, estimates)
        rows = self._rows(members, estimates)
        for _ in range(self._settings.updates if rows else 0):
            metrics |= self._model.backward(rows, self._loss)
            metrics |= {f"critic/{name}": value for name, value in self._model.step(self._settings.lr).items()}
        if isinstance(self._inner, RewardLearner):
            metrics |= self._learnt if self._settings.inner_learns == "before" else self._inner.learn(groups)
        return metrics

    def _measured(self, members: Sequence[Scored], estimates: Sequence[Estimate]) -> Metrics:
        """How well the values that credit was given with foretold the returns, over steps that count."""
        pairs = [
            (e.returns_S[e.counts_S], m.values_S[e.counts_S]) for m, e in zip(members, estimates, strict=True) if m.values_S is not None
        ]
        returns, values = (np.concatenate([pair[i] for pair in pairs] or [np.zeros(0)]) for i in (0, 1))
        if not len(returns):
            return {}
        metrics = {"critic/value": float(values.mean()), "critic/return": float(returns.mean())}
        if returns.min() < returns.max():
            metrics["critic/explained_variance"] = float(1.0 - (returns - values).var() / returns.var())
        return metrics

    def _rows(self, members: Sequence[Scored], estimates: Sequence[Estimate]) -> list[Row]:
        """Every state whose return is known, each with the same weight."""
        rows = []
        for member, estimate in zip(members, estimates, strict=True):
            if not estimate.counts_S.any():
                continue
            asked = self._asked.get(id(member.episode))
            if asked is None:
                raise ConfigError("learn was given an episode that the last call of score did not see; score and learn the same groups.")
            (steps,) = np.nonzero(estimate.counts_S)
            next_S = np.zeros(len(member.steps))
            next_S[steps[:-1]] = estimate.returns_S[steps[1:]]
            is_known_S = estimate.counts_S.copy()
            is_known_S[steps[-1]] = not self._rule.bootstraps(member)
            rows += [_targets(*pair, estimate.returns_S, next_S, is_known_S) for pair in zip(asked.rows, asked.values, strict=True)]
        total = sum(float(row.weight.sum()) for row in rows)
        return [replace(row, weight=row.weight / total) for row in rows]

    # -- state ----------------------------------------------------------------------------------------------------------------

    def models(self) -> dict[str, Saveable]:
        """The critic, and what the inner reward has."""
        return {"critic": self._model} | (self._inner.models() if isinstance(self._inner, RewardLearner) else {})

    def state(self) -> dict[str, JSON]:
        """The inner reward's: the critic's own is in its model."""
        return self._inner.state() if isinstance(self._inner, RewardLearner) else {}

    def restore(self, state: dict[str, JSON]) -> None:
        """Hands the inner reward its state back."""
        if isinstance(self._inner, RewardLearner):
            self._inner.restore(state)


def _targets(made: StateRow, values_N: Floats, returns_S: Floats, next_S: Floats, is_known_S: Bools) -> Row:
    """The row with what its states should have been worth: the state before a step its return, the one after it what came next.

    Inside a turn the state after a step is the one before the next, and both are worth the same.
    """
    returns_N, weight_N = np.zeros(len(values_N)), np.zeros(len(values_N))
    returns_N[made.after], weight_N[made.after] = next_S[made.steps], is_known_S[made.steps]
    returns_N[made.before], weight_N[made.before] = returns_S[made.steps], 1.0
    return replace(made.row, returns=returns_N, old_values=values_N, weight=weight_N)
