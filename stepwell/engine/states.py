"""Where a critic is asked: the states between the steps of an episode, as rows.

Legend: S step, N target, K step with tokens that lies in one row.

The value of a state is read from what stands before it: the state before a step ends with the last token of its context, the state after a
step with the step's own last token. Inside a turn the state after a step is the one before the next; between turns it is not, as the
environment speaks in between.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from stepwell.engine.batch import parts_of
from stepwell.types import Episode, Floats, Ids, Row, Steps

__all__ = ["StateRow", "state_rows", "step_end_rows"]


class StateRow(NamedTuple):
    """A row whose targets are states, and which state is whose.

    Attributes:
        row: The token at a target is the one that comes next; a head's value there sees what stands before it.
        steps: Indices of the steps with tokens that lie in this row. [K]
        before, after: Index into the row's targets of the state before and after each of them. [K]
    """

    row: Row
    steps: Ids
    before: Ids
    after: Ids


def state_rows(episode: Episode, steps: Steps, *, index: int = 0, group: int = 0) -> list[StateRow]:
    """The states of an episode, in the rows of `parts_of`: training asks about exactly the contexts that sampling saw.

    The last state of a row has no token after it, so the row is one token longer than its part; that token is never read.
    """
    made = []
    num_tokens_S = steps.lengths_S
    for part in parts_of(episode):
        inside = (num_tokens_S > 0) & (steps.start_S >= part.first) & (steps.stop_S <= part.last)
        (chosen,) = np.nonzero(inside)
        places = np.stack(
            [part.targets[steps.start_S[chosen] - part.first], part.targets[steps.stop_S[chosen] - 1 - part.first] + 1], axis=1
        )
        targets, where = np.unique(places, return_inverse=True)
        where = where.reshape(places.shape)
        row = Row.of(np.append(part.ids, part.ids[-1]), targets, episode=index, group=group)
        made.append(StateRow(row, chosen, where[:, 0], where[:, 1]))
    return made


def step_end_rows(episode: Episode, steps: Steps, *, old_logprobs: Floats | None = None) -> list[Row]:
    """Rows with one target for each step with tokens: the place behind its last token. `Row.step` is the step's number.

    Args:
        episode: Whose steps.
        steps: Of it.
        old_logprobs: Of each step, for `Row.old_logprobs`. [S]
    """
    rows = []
    for part in parts_of(episode):
        (chosen,) = np.nonzero((steps.lengths_S > 0) & (steps.start_S >= part.first) & (steps.stop_S <= part.last))
        ends = part.targets[steps.stop_S[chosen] - 1 - part.first] + 1
        row = Row.of(np.append(part.ids, part.ids[-1]), ends, step=chosen.astype(np.int64))
        rows.append(row if old_logprobs is None else replace(row, old_logprobs=old_logprobs[chosen]))
    return rows
