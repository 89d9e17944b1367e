"""Faults of other libraries with their right answers, by id: ids, masks, log-probs and steps that do not line up cannot be made at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import make_episode

from stepwell.credit import by_turn
from stepwell.errors import RecordError
from stepwell.types import Action, Credited, Observation, Reply, Row, Scored, Steps, Stop, Turn

TEN, EIGHT = np.arange(10), np.arange(8)
PER_TARGET = ("weight", "advantage", "old_logprobs", "ref_logprobs", "returns", "old_values", "step", "sampler_logprobs")


def test_u36_a_turn_has_a_log_prob_for_each_id() -> None:
    """U36: ten sampled ids are not eight, and a turn was said to somebody."""
    with pytest.raises(RecordError, match="A turn has 8 token ids and 10 log-probs; the two must be equally long"):
        Turn(np.array([1]), EIGHT, np.zeros(10), "", Action("look"), Reply(Observation("")), Stop.EOS, 0)
    with pytest.raises(RecordError, match="A turn has an empty context"):
        Turn(np.zeros(0, np.int64), EIGHT, np.zeros(8), "", Action("look"), Reply(Observation("")), Stop.EOS, 0)


@pytest.mark.parametrize("column", PER_TARGET)
def test_u36_every_column_of_a_row_has_the_length_of_its_targets(column: str) -> None:
    """U36: eight trained positions and a column of ten."""
    row = Row.of(TEN, np.arange(1, 9))
    assert len(row.weight) == len(row.targets) == 8
    with pytest.raises(RecordError, match=rf"Row\.{column} has 10 entries for 8 targets"):
        replace(row, **{column: TEN})  # type: ignore[arg-type]


@pytest.mark.parametrize("targets", [[0, 1], [1, 10], [1, 1], [3, 2]])
def test_u36_targets_are_positions_of_the_ids(targets: list[int]) -> None:
    """U36: no position before the first prediction, behind the last id, or twice."""
    with pytest.raises(RecordError, match=r"Row\.targets must be ascending positions in \[1, 10\)"):
        Row.of(TEN, np.array(targets))


@pytest.mark.parametrize("name", ["ref_logprobs_T", "old_logprobs_T"])
def test_u36_what_is_said_of_tokens_has_as_many_entries(name: str) -> None:
    """U36: two models' log-probs of an episode of three tokens."""
    episode = make_episode([2, 1])
    known = Scored(episode, by_turn(episode), 1.0, {}, np.zeros(2, np.bool_))
    assert len(getattr(replace(known, **{name: np.zeros(3)}), name)) == 3  # type: ignore[arg-type]
    with pytest.raises(RecordError, match=rf"{name} has 2 entries; the episode has 3 sampled tokens"):
        replace(known, **{name: np.zeros(2)})  # type: ignore[arg-type]
    with pytest.raises(RecordError, match="got 3 advantages for 2 steps"):
        Credited(known, np.zeros(3))


@pytest.mark.parametrize(
    ("starts", "stops", "said"),
    [
        ([0, 3], [2, 4], "must partition"),
        ([1, 2], [2, 4], "must partition"),
        ([0], [2, 4], "1 starts and 2 stops"),
        ([0, 2], [2, 3], "cover 3"),
    ],
)
def test_u36_steps_cover_every_sampled_token_once(starts: list[int], stops: list[int], said: str) -> None:
    """U36: no gap, no overlap, nothing left over of four tokens."""
    episode = make_episode([2, 2])
    with pytest.raises(RecordError, match=said):
        Scored(episode, Steps(np.array([0, 1]), np.array(starts), np.array(stops)), 1.0, {}, np.zeros(2, np.bool_))
