"""Where the steps of a solution end, and an episode that is shown to a judge step by step.

In a domain of several turns a turn is a step. Where a message is the whole solution, a step ends with the token that completes a separator.

Legend: S step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from stepwell.credit import Segment
from stepwell.types import Episode, Ids, Steps, Stop, Turn

__all__ = ["as_turns", "by_separator"]


def by_separator(separator: str, decode: Callable[[Sequence[int]], str]) -> Segment:
    """Steps that end with the token which completes the separator: exactly where sampling with it as a stop string would have stopped.

    Args:
        separator: Not empty.
        decode: Token ids to text.
    """

    def segment(episode: Episode) -> Steps:
        turns: list[int] = []
        starts: list[int] = []
        first = 0
        for number, turn in enumerate(episode.turns):
            begins = [first + at for at in _starts(turn.token_ids, separator, decode)]
            turns += [number] * len(begins)
            starts += begins
            first += len(turn.token_ids)
        return Steps(np.array(turns, np.int64), np.array(starts, np.int64), np.array([*starts[1:], first][: len(starts)], np.int64))

    return segment


def _starts(ids: Ids, separator: str, decode: Callable[[Sequence[int]], str]) -> list[int]:
    starts = [0]
    tokens = ids.tolist()
    for end in range(1, len(tokens)):
        if separator in decode(tokens[starts[-1] : end]):
            starts.append(end)
    return starts


def as_turns(episode: Episode, steps: Steps) -> Episode:
    """The same tokens with a turn for each step, as a judge of turns reads them; the environment's reply belongs to the last of a turn."""
    if len(steps) == len(episode.turns):
        return episode
    made: list[Turn] = []
    first = 0
    for number, turn in enumerate(episode.turns):
        spans = [(int(a) - first, int(b) - first) for a, b, t in zip(steps.start_S, steps.stop_S, steps.turn_S, strict=True) if t == number]
        for start, stop in spans:
            last = stop == len(turn.token_ids)
            made.append(
                replace(
                    turn,
                    context_ids=np.concatenate([turn.context_ids, turn.token_ids[:start]]),
                    token_ids=turn.token_ids[start:stop],
                    logprobs=turn.logprobs[start:stop],
                    reply=turn.reply if last else replace(turn.reply, reward=0.0, done=False),
                    stop=turn.stop if last else Stop.STRING,
                )
            )
        first += len(turn.token_ids)
    return replace(episode, turns=tuple(made))
