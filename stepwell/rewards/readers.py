"""Where a judge is read, and what its outputs say a step is worth: a scalar at the end of each step, or a log-ratio of its tokens.

Legend: S step, T sampled token, N target of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from stepwell.credit import pool
from stepwell.engine.batch import episode_rows
from stepwell.engine.states import step_end_rows
from stepwell.losses import Form, LogRatio, Scalar
from stepwell.types import Bools, Episode, Floats, Row, Steps

__all__ = ["Columns", "ImpliedReader", "LogRatioReader", "ScalarReader", "StepReader"]

Said = Sequence[Mapping[str, Floats]]


class Columns(NamedTuple):
    """What policy and reference say about an episode's tokens; NaN where they are not asked. [T] each"""

    policy_T: Floats
    ref_T: Floats


class StepReader(Protocol):
    """From an episode to rows, and from a model's outputs to rewards."""

    @property
    def form(self) -> Form:
        """The same, for losses."""
        ...

    def rows(self, episode: Episode, steps: Steps, columns: Columns) -> list[Row]:
        """Where the judge is read; `Row.step` is the number of the step in the episode."""
        ...

    def rewards(self, rows: Sequence[Row], said: Said, num_steps: int) -> tuple[Floats, Bools]:
        """Reward of each step, and where there is one: the step is read, and the number is one. [S] each"""
        ...


@dataclass(frozen=True, slots=True)
class ScalarReader:
    """A head's value once a step, behind the step's last token: it has seen the whole step and nothing of what came after.

    Attributes:
        form: From values to rewards.
    """

    form: Scalar

    def rows(self, episode: Episode, steps: Steps, columns: Columns) -> list[Row]:
        """A target for each step with tokens; `old_logprobs` is the log-prob of the whole step."""
        return step_end_rows(episode, steps, old_logprobs=pool(columns.policy_T, steps, "sum"))

    def rewards(self, rows: Sequence[Row], said: Said, num_steps: int) -> tuple[Floats, Bools]:
        """The head's value, bounded where the form says so. A step without tokens is not read."""
        bound = np.tanh if self.form.bound == "tanh" else np.asarray
        return _per_step(rows, [bound(made["values"]) for made in said], num_steps)


@dataclass(frozen=True, slots=True)
class ImpliedReader:
    """Rewards implied by action values, `Q_s - discount Q_(s+1)`; the value after the last step is 0.

    Attributes:
        discount: Per step.
    """

    discount: float = 0.95

    @property
    def form(self) -> Scalar:
        """Values as they are."""
        return Scalar("none")

    def rows(self, episode: Episode, steps: Steps, columns: Columns) -> list[Row]:
        """As `ScalarReader`. What comes after the last step of an episode that was cut is not known: its weight is 0."""
        rows = step_end_rows(episode, steps)
        if rows and not episode.ending.terminal:
            is_last_N = np.arange(len(rows[-1].targets)) == len(rows[-1].targets) - 1
            rows[-1] = replace(rows[-1], weight=np.where(is_last_N, 0.0, rows[-1].weight))
        return rows

    def rewards(self, rows: Sequence[Row], said: Said, num_steps: int) -> tuple[Floats, Bools]:
        """See above; unscored where a value is missing."""
        q_S, read_S = _per_step(rows, [made["values"] for made in said], num_steps)
        steps = np.concatenate([np.zeros(0, np.int64), *(row.step for row in rows)])
        next_S, known_S = np.zeros(num_steps), np.zeros(num_steps, np.bool_)
        next_S[steps[:-1]], known_S[steps[:-1]] = q_S[steps[1:]], read_S[steps[1:]]
        known_S[steps[-1:]] = [row.weight[-1] != 0 for row in rows[-1:]]
        known_S &= read_S
        return np.where(known_S, q_S - self.discount * next_S, 0.0), known_S


@dataclass(frozen=True, slots=True)
class LogRatioReader:
    """The log-ratio of the judge to its reference, summed over the step's tokens.

    Attributes:
        form: With beta.
    """

    form: LogRatio

    def rows(self, episode: Episode, steps: Steps, columns: Columns) -> list[Row]:
        """A target for each sampled token."""
        step_T = np.repeat(np.arange(len(steps)), steps.lengths_S)
        return episode_rows(episode, step_T=step_T, old_logprobs=columns.policy_T, ref_logprobs=columns.ref_T)

    def rewards(self, rows: Sequence[Row], said: Said, num_steps: int) -> tuple[Floats, Bools]:
        """The sum of beta x (judge - reference)."""
        return _per_step(
            rows, [self.form.beta * (made["logprobs"] - row.ref_logprobs) for row, made in zip(rows, said, strict=True)], num_steps
        )


def _per_step(rows: Sequence[Row], values: Sequence[Floats], num_steps: int) -> tuple[Floats, Bools]:
    """Sums over the targets of each step; a step without a target, or with a number that is none, is not known."""
    total_S, known_S = np.zeros(num_steps), np.zeros(num_steps, np.bool_)
    for row, values_N in zip(rows, values, strict=True):
        np.add.at(total_S, row.step, values_N)
        known_S[row.step] = True
    known_S &= np.isfinite(total_S)
    return np.where(known_S, total_S, 0.0), known_S
