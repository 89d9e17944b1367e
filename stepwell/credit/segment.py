"""Where steps begin and end: segmentations of an episode's sampled tokens.

Legend: S step, T sampled token of the episode (all turns joined, in order).

A segmentation is a function `Episode -> Steps`. Steps never cross a turn. A turn without a sampled token keeps one empty step, so that a
reward paid in that turn has a place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from stepwell.errors import ConfigError, CreditError
from stepwell.types import Episode, Floats, Ids, Steps, Turn

__all__ = [
    "Pieces",
    "Segment",
    "by_line",
    "by_paragraph",
    "by_token",
    "by_turn",
    "by_window",
    "last_steps",
    "pool",
    "spread",
    "step_of_tokens",
]

Segment = Callable[[Episode], Steps]
Pieces = Callable[[Ids], Sequence[str]]
"""Text of each token, one string a token, which joined give the text; special tokens (end of turn) give an empty string."""

_LINE = re.compile(r"\n\s*")
_PARAGRAPH = re.compile(r"\n[ \t\r]*\n\s*")


def by_turn(episode: Episode) -> Steps:
    """One step a turn: the default."""
    stop_S = np.cumsum([len(turn.token_ids) for turn in episode.turns], dtype=np.int64)
    return Steps(np.arange(len(stop_S)), np.concatenate([[0], stop_S[:-1]]).astype(np.int64)[: len(stop_S)], stop_S)


def by_token(episode: Episode) -> Steps:
    """One step a token."""
    return _steps(episode, lambda turn: range(len(turn.token_ids)))


def by_window(size: int) -> Segment:
    """Steps of `size` tokens; the last one of a turn may be shorter.

    Raises:
        ConfigError: `size` is below 1.
    """
    if size < 1:
        raise ConfigError(f"The step window is {size} tokens; it needs at least 1.")
    return lambda episode: _steps(episode, lambda turn: range(0, len(turn.token_ids), size))


def by_line(pieces: Pieces) -> Segment:
    """One step a line of text. Blank lines belong to the line before them.

    A token that holds the line break and text after it belongs to the line before: tokens are never cut.

    Args:
        pieces: Token ids -> text of each token.
    """
    return lambda episode: _steps(episode, lambda turn: _starts(turn, pieces, _LINE))


def by_paragraph(pieces: Pieces) -> Segment:
    """One step a paragraph: text between blank lines. Otherwise as `by_line`."""
    return lambda episode: _steps(episode, lambda turn: _starts(turn, pieces, _PARAGRAPH))


def spread(values_S: Floats, steps: Steps) -> Floats:
    """Every token gets the value of its step. [T]"""
    if len(values_S) != len(steps):
        raise CreditError(f"Got {len(values_S)} values for {len(steps)} steps; every step needs one.")
    return np.repeat(np.asarray(values_S, np.float64), steps.lengths_S)


def pool(values_T: Floats, steps: Steps, how: Literal["sum", "mean"]) -> Floats:
    """Sum or mean of the tokens' values in each step; 0 for a step without tokens. [S]

    `pool(spread(x), "mean") = x` on steps that have tokens.
    """
    if len(values_T) != steps.num_tokens:
        raise CreditError(f"Got {len(values_T)} values for {steps.num_tokens} sampled tokens; every token needs one.")
    total_S = np.bincount(step_of_tokens(steps), weights=np.asarray(values_T, np.float64), minlength=len(steps)).astype(np.float64)
    return total_S if how == "sum" else total_S / np.maximum(steps.lengths_S, 1)


def step_of_tokens(steps: Steps) -> Ids:
    """Index of the step that each token lies in. [T]"""
    return np.repeat(np.arange(len(steps)), steps.lengths_S)


def last_steps(episode: Episode, steps: Steps) -> Ids:
    """Index of the last step of each turn: where a turn's reward is paid. [number of turns]

    Raises:
        CreditError: a turn has no step.
    """
    last = np.searchsorted(steps.turn_S, np.arange(len(episode.turns)), side="right") - 1
    if np.any(last < 0) or np.any(steps.turn_S[last] != np.arange(len(episode.turns))):
        raise CreditError(f"The episode has {len(episode.turns)} turns, but some have no step; a turn without tokens needs one empty step.")
    return last.astype(np.int64)


def _steps(episode: Episode, starts: Callable[[Turn], Sequence[int]]) -> Steps:
    """Joins the first tokens of the steps of every turn (`starts`, ascending, the first is 0) to the steps of the episode."""
    turn_S: list[int] = []
    start_S: list[int] = []
    offset = 0
    for index, turn in enumerate(episode.turns):
        firsts = list(starts(turn)) or [0]
        turn_S += [index] * len(firsts)
        start_S += [offset + first for first in firsts]
        offset += len(turn.token_ids)
    return Steps(np.array(turn_S, np.int64), np.array(start_S, np.int64), np.array([*start_S[1:], offset][: len(start_S)], np.int64))


def _starts(turn: Turn, pieces: Pieces, separator: re.Pattern[str]) -> list[int]:
    """First tokens of the parts between separators that have text on both sides."""
    texts = pieces(turn.token_ids)
    if len(texts) != len(turn.token_ids):
        raise CreditError(f"Got {len(texts)} pieces of text for {len(turn.token_ids)} tokens; every token needs one (it may be empty).")
    text, begins = "".join(texts), np.cumsum([0, *(len(piece) for piece in texts)])[:-1]
    starts = [0]
    for match in separator.finditer(text):
        first = int(np.searchsorted(begins, match.end(), side="left"))
        if text[: match.start()].strip() and starts[-1] < first < len(texts) and "".join(texts[first:]).strip():
            starts.append(first)
    return starts
