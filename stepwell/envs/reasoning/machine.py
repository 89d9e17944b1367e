"""A state machine: a table says which state follows which, and each move is a line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from stepwell.envs.reasoning.family import Axes, Payload, as_written, number_in, text_in
from stepwell.envs.reasoning.truth import StepTruth, right, unknown, walk, wrong
from stepwell.errors import DataError
from stepwell.types import JSON

__all__ = ["Machine"]

_STATES = "abcdefgh"
_MOVE = re.compile(r"([a-h]) to ([a-h])")
_TEMPTING = 3


class Machine:
    """States, each with one that follows it, and a number of moves. Line k is right if it is the k-th move.

    All that a line needs stands in the problem, word for word; what is hard is to go on from the right place, for as long as is asked.

    >>> rng = np.random.default_rng(0)
    >>> task = Machine().draw({"states": 4, "moves": 2}, rng)
    >>> Machine().ask(task)
    'd to a. c to b. b to c. a to d. begin at a. 2 moves. write each move'
    >>> Machine().solve(task)
    ['a to d', 'd to a', 'a']
    """

    name = "machine"
    axes: Mapping[str, tuple[int, int]] = {"states": (4, 8), "moves": (2, 8)}

    def draw(self, axes: Axes, rng: np.random.Generator) -> dict[str, JSON]:
        """So many states, each with another that follows it, and so many moves."""
        states = _STATES[: axes["states"]]
        follows = {one: str(rng.choice([other for other in states if other != one])) for one in states}
        table = " ".join(f"{states[at]}{follows[states[at]]}" for at in rng.permutation(len(states)))
        return {"table": table, "begin": str(rng.choice(list(states))), "moves": axes["moves"]}

    def ask(self, payload: Payload) -> str:
        table = " ".join(f"{one} to {other}." for one, other in _table(payload).items())
        return f"{table} begin at {text_in(payload, 'begin')}. {number_in(payload, 'moves')} moves. write each move"

    def solve(self, payload: Payload) -> list[str]:
        return _lines(_table(payload), text_in(payload, "begin"), number_in(payload, "moves"))

    def slip(self, payload: Payload, at: int, rng: np.random.Generator) -> list[str]:
        """The line goes to another state; what follows goes on from there."""
        table, before = _table(payload), self.solve(payload)[:at]
        now = before[-1][-1] if before else text_in(payload, "begin")
        other = str(rng.choice([state for state in table if state not in (now, table[now])]))
        return [*before, f"{now} to {other}", *_lines(table, other, number_in(payload, "moves") - at - 1)]

    def judge(self, payload: Payload, lines: Sequence[str]) -> list[StepTruth]:
        table, moves = _table(payload), number_in(payload, "moves")

        def advance(state: tuple[str, int], line: str) -> tuple[StepTruth, tuple[str, int]]:
            now, made = state
            said = _MOVE.fullmatch(as_written(line))
            if said is None:
                return unknown("it is no move"), state
            if made == moves:
                return wrong("all moves have been made"), state
            if (said[1], said[2]) != (now, table[now]):
                return wrong(f"the move is {now} to {table[now]}"), state
            return right(), (table[now], made + 1)

        return walk((text_in(payload, "begin"), 0), lines, advance)

    def answers(self, payload: Payload, answer: str) -> bool:
        return self.meaning(payload, answer) == self.solve(payload)[-1]

    def meaning(self, payload: Payload, answer: str) -> str:
        return as_written(answer).rstrip(".")

    def shortcut(self, payload: Payload) -> str:
        """Makes three moves at most."""
        return _lines(_table(payload), text_in(payload, "begin"), min(_TEMPTING, number_in(payload, "moves")))[-1]

    def possible(self, payload: Payload, lines: Sequence[str]) -> tuple[str, ...] | None:
        return None


def _table(payload: Payload) -> dict[str, str]:
    """State -> the one that follows."""
    table = {pair[0]: pair[1] for pair in text_in(payload, "table").split() if len(pair) == 2}
    if not table or not set(table.values()) | {text_in(payload, "begin")} <= set(table):
        raise DataError(f"The payload of a reasoning task has table = {text_in(payload, 'table')!r:.60}; a state needs one that follows.")
    return table


def _lines(table: Mapping[str, str], now: str, moves: int) -> list[str]:
    """The moves from a state, and the last state as the answer."""
    lines = []
    for _ in range(moves):
        lines.append(f"{now} to {table[now]}")
        now = table[now]
    return [*lines, now]
