"""What a model has computed once and is asked for again: hidden states that heads read, and what was said about rows.

Legend: B row, N target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from stepwell.engine.batch import pad
from stepwell.types import Floats, Row

if TYPE_CHECKING:
    from stepwell.engine.local import LocalModel

__all__ = ["Said", "SharedStates", "WholeRows", "distinct"]

_MOST = 2**27
"""Numbers that are kept, at most: 512 MiB in float32."""

_Question = tuple[bytes, bytes]


def _question(row: Row) -> _Question:
    """All that what a model says at the row's targets depends on, and nothing else: equal for rows that differ in weights or labels."""
    return row.ids.tobytes(), row.targets.tobytes()


def _read_of(row: Row) -> _Question:
    """The same for hidden states: the token at a target is not read."""
    return row.ids[: row.targets[-1]].tobytes(), row.targets.tobytes()


def distinct(rows: Sequence[Row]) -> tuple[list[Row], list[int]]:
    """Rows that ask different things, in order, and for each of all rows which of them asks the same.

    >>> import numpy as np
    >>> rows = [Row.of(np.array(ids), np.array([1])) for ids in ([5, 6], [5, 7], [5, 6])]
    >>> distinct(rows)[1]
    [0, 1, 0]
    """
    numbers: dict[_Question, int] = {}
    made: list[Row] = []
    which = []
    for row in rows:
        number = numbers.setdefault(_question(row), len(made))
        if number == len(made):
            made.append(row)
        which.append(number)
    return made, which


class Said:
    """What a model said about the rows of its last `forward`, as long as its weights are the same."""

    def __init__(self) -> None:
        self._stamp: object = None
        self._found: dict[_Question, dict[str, Floats]] = {}

    def note(self, stamp: object, rows: Sequence[Row], found: Sequence[dict[str, Floats]]) -> None:
        """In place of all that was noted before."""
        self._stamp = stamp
        self._found = {_question(row): made for row, made in zip(rows, found, strict=True)}

    def forget(self) -> None:
        """Nothing is known any more."""
        self._found = {}

    def knows(self, stamp: object, rows: Sequence[Row], names: frozenset[str]) -> bool:
        """Whether all of these outputs were noted under this stamp, for all of these rows."""
        return self._stamp is stamp and all(names <= self._found.get(_question(row), {}).keys() for row in rows)

    def about(
        self, stamp: object, rows: Sequence[Row], names: frozenset[str], ask: Callable[[list[Row]], list[dict[str, Floats]]]
    ) -> list[dict[str, Floats]]:
        """What is said about these rows: as noted under this stamp, where all of these outputs were; else by `ask`."""
        missing = [b for b, row in enumerate(rows) if not self.knows(stamp, [row], names)]
        asked = dict(zip(missing, ask([rows[b] for b in missing]), strict=True)) if missing else {}
        return [asked[b] if b in asked else self._found[_question(row)] for b, row in enumerate(rows)]


class WholeRows:
    """Hidden states at every place of the rows of a model's last `forward`: heads on it read them at places of their own.

    Args:
        most: Numbers that are kept at most; what comes after them is left out.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._stamp: object = None
        self._is_open = False
        self._size = 0
        self._kept: list[tuple[bytes, Tensor]] = []

    @contextmanager
    def noting(self, stamp: object) -> Iterator[None]:
        """What is computed inside is noted under this stamp, in place of all before."""
        self.forget()
        self._stamp, self._is_open = stamp, True
        try:
            yield
        finally:
            self._is_open = False

    def note(self, rows: Sequence[Row], hidden: Tensor) -> None:
        """States of rows, [B, L, width], where anybody wants them noted."""
        for row, states in zip(rows, hidden, strict=True) if self._is_open else ():
            inside = states[: len(row.ids)]
            if self._size + inside.numel() <= self._most:
                self._size += inside.numel()
                self._kept.append((row.ids[: len(inside)].tobytes(), inside.clone()))

    def find(self, stamp: object, row: Row) -> Tensor | None:
        """The states before the row's targets, where a row that begins with all that stands before them was noted. [N, width]"""
        if self._stamp is not stamp:
            return None
        wanted = row.ids[: row.targets[-1]].tobytes()
        return next((states[row.targets - 1] for text, states in self._kept if text.startswith(wanted)), None)

    def forget(self) -> None:
        """Nothing is known any more."""
        self._kept, self._size = [], 0


class SharedStates:
    """The hidden states of a model where one head on it reads: no gradient goes into them, so they are needed as numbers alone.

    What a call has read is kept for the next one as long as the model's weights are the same, so that learning from what was scored takes
    no second forward pass, and of several updates only the first takes one. Kept are `width` numbers for each place of the last call; a
    call that would need more than `most` keeps nothing. Equal rows are read once. Rows that the model has sampled with these weights are
    recalled from the sampler's keys and values, as far as those are still there (`Sampler.recall`), and rows that it was asked about itself
    (`Model.forward`, a judge whose values are a head on it) are taken from there (`WholeRows`).

    Args:
        of: Whose hidden states.
        most: Numbers that are kept at most.
    """

    def __init__(self, of: LocalModel, most: int = _MOST) -> None:
        self._of, self._most = of, most
        self._stamp: object = None
        self._kept: dict[_Question, Tensor] = {}

    def renew(self, rows: Sequence[Row]) -> None:
        """Reads rows afresh. What is scored does not depend on what was asked before, so a resumed run scores to the same bits."""
        self._kept = {}
        self._take(rows)

    def retain(self, rows: Sequence[Row]) -> None:
        """Reads of these rows what the last call has not, or has read with other weights."""
        if self._stamp is not self._of.stamp:
            self._kept = {}
        self._take(rows)

    def at(self, rows: Sequence[Row]) -> Tensor:
        """The states before the targets of some of the rows of the last call, float32; 0 at padding. [B, N, width]"""
        missing = [row for row in rows if len(row.targets) and _read_of(row) not in self._kept]
        found = self._kept | self._read(missing)
        width = max(1, *(len(row.targets) for row in rows))
        states = torch.zeros((len(rows), width, self._of.trunk.width), device=self._of.trunk.device)
        for b, row in enumerate(rows):
            if len(row.targets):
                states[b, : len(row.targets)] = found[_read_of(row)]
        return states

    def _take(self, rows: Sequence[Row]) -> None:
        self._stamp = self._of.stamp
        named = {_read_of(row): row for row in rows if len(row.targets)}
        self._kept = {name: states for name, states in self._kept.items() if name in named}
        if sum(len(row.targets) for row in named.values()) * self._of.trunk.width > self._most:
            self._kept = {}
            return
        self._kept |= self._read([row for name, row in named.items() if name not in self._kept])

    @torch.no_grad()
    def _read(self, rows: Sequence[Row]) -> dict[_Question, Tensor]:
        """[N, width] of each different row."""
        named = {_read_of(row): row for row in rows}
        recalled = self._of.recall(list(named.values()))
        found = {name: states for name, states in zip(named, recalled, strict=True) if states is not None}
        rest = [(name, row) for name, row in named.items() if name not in found]
        for picked in self._of.micro_batches([row for _, row in rest]):
            ids, targets, _ = pad([rest[i][1] for i in picked], self._of.trunk.device)
            hidden = self._of.trunk.hidden(ids[:, :-1])  # no target is predicted from a row's last token
            for b, i in enumerate(picked):
                name, row = rest[i]
                found[name] = hidden[b, targets[b, : len(row.targets)] - 1]
        return found
