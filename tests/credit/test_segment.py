"""Segmentations: where steps begin and end, and values going back and forth between steps and tokens."""

from __future__ import annotations

import numpy as np
import pytest
from builders import make_episode

from stepwell.credit import by_line, by_paragraph, by_token, by_turn, by_window, last_steps, pool, spread, step_of_tokens
from stepwell.errors import ConfigError, CreditError
from stepwell.types import Ids, Steps


def spans(steps: Steps) -> list[tuple[int, int, int]]:
    return list(zip(steps.turn_S.tolist(), steps.start_S.tolist(), steps.stop_S.tolist(), strict=True))


def test_turns_tokens_and_windows() -> None:
    episode = make_episode([3, 0, 2])
    assert spans(by_turn(episode)) == [(0, 0, 3), (1, 3, 3), (2, 3, 5)]
    assert spans(by_token(episode)) == [(0, 0, 1), (0, 1, 2), (0, 2, 3), (1, 3, 3), (2, 3, 4), (2, 4, 5)]
    assert spans(by_window(2)(episode)) == [(0, 0, 2), (0, 2, 3), (1, 3, 3), (2, 3, 5)]


def test_an_episode_without_turns_has_no_steps() -> None:
    steps = by_turn(make_episode([]))
    assert len(steps) == 0
    assert steps.num_tokens == 0
    assert pool(np.zeros(0), steps, "mean").tolist() == spread(np.zeros(0), steps).tolist() == []


def test_a_window_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="The step window is 0 tokens; it needs at least 1"):
        by_window(0)


@pytest.mark.parametrize(
    ("pieces", "lines", "paragraphs"),
    [
        (["a", " b", "\n", "c", "\n\n", "d", ""], [0, 3, 5], [0, 5]),
        (["\n\n", "a", "\n", "b"], [0, 3], [0]),
        (["a", "\n\nb", "c", "\n", ""], [0, 2], [0, 2]),
        (["a", "\n", " ", "\n", "b"], [0, 4], [0, 4]),
        (["a", "b"], [0], [0]),
        (["a\nb\nc"], [0], [0]),
    ],
)
def test_lines_and_paragraphs_begin_after_their_separator(pieces: list[str], lines: list[int], paragraphs: list[int]) -> None:
    def text_of(token_ids: Ids) -> list[str]:
        return [pieces[token] for token in token_ids]

    episode = make_episode([len(pieces)])
    assert by_line(text_of)(episode).start_S.tolist() == lines
    assert by_paragraph(text_of)(episode).start_S.tolist() == paragraphs
    assert by_line(text_of)(episode).num_tokens == len(pieces)


def test_pieces_that_do_not_match_the_tokens_are_an_error() -> None:
    with pytest.raises(CreditError, match="Got 1 pieces of text for 3 tokens"):
        by_line(lambda ids: ["all"])(make_episode([3]))


def test_values_go_to_tokens_and_back() -> None:
    steps = by_turn(make_episode([3, 0, 2]))
    assert step_of_tokens(steps).tolist() == [0, 0, 0, 2, 2]
    assert spread(np.array([0.5, 9.0, -1.0]), steps).tolist() == [0.5, 0.5, 0.5, -1.0, -1.0]
    assert pool(np.array([1.0, 2.0, 6.0, 4.0, 5.0]), steps, "sum").tolist() == [9.0, 0.0, 9.0]
    assert pool(np.array([1.0, 2.0, 6.0, 4.0, 5.0]), steps, "mean").tolist() == [3.0, 0.0, 4.5]


def test_wrong_numbers_of_values_are_errors() -> None:
    steps = by_turn(make_episode([3, 2]))
    with pytest.raises(CreditError, match="Got 3 values for 2 steps"):
        spread(np.zeros(3), steps)
    with pytest.raises(CreditError, match="Got 4 values for 5 sampled tokens"):
        pool(np.zeros(4), steps, "sum")


def test_the_last_step_of_each_turn() -> None:
    episode = make_episode([3, 0, 2])
    assert last_steps(episode, by_token(episode)).tolist() == [2, 3, 5]
    with pytest.raises(CreditError, match="3 turns, but some have no step"):
        last_steps(episode, Steps(np.array([0, 2]), np.array([0, 3]), np.array([3, 5])))
