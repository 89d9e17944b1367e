"""Keys and values of many rows that live across turns, without holes.

Token j of a row stands in column j of the row's slot, in every layer. A turn feeds only its new tokens, each written at its own place;
padding of a chunk lands behind the row's end, is masked, and is overwritten by what comes next. So a row may be cut back to any prefix for
nothing, and only whole rows ever move: those that are still sampling are brought to the first slots, where attention reads one
contiguous view, once enough of them have finished.

Legend: R slot of a batch, C column (position), H head, D head width, Q new tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from stepwell.types import Ids

__all__ = ["SlotCache"]

_COLUMNS = 64
"""Columns are added in multiples of this."""
_GROWTH = 1.25
"""Room for columns grows by this factor at least, so that long episodes are not copied at every turn."""
_WORTH = 8
"""A shared prefix of fewer tokens is not worth a copy."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the next chunk goes: which slots, [R]; which column each token takes, [R, Q]; how many columns attention reads."""

    read: Tensor | slice
    slots: Tensor
    columns: Tensor
    width: int
    room: tuple[int, int]


class _SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's keys and values, [slots, C, H, D]."""

    is_sliding = False
    keys: Tensor | None
    values: Tensor | None
    at: _Place

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the first chunk allocates."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Writes a chunk [R, H, Q, D] at its place and returns all that its rows hold, [R, H, width, D]."""
        at = self.at
        keys = self.keys = _grown(self.keys, at.room, key_states)
        values = self.values = _grown(self.values, at.room, value_states)
        self.is_initialized = True
        keys[at.slots, at.columns] = key_states.transpose(1, 2)
        values[at.slots, at.columns] = value_states.transpose(1, 2)
        return keys[at.read, : at.width].transpose(1, 2), values[at.read, : at.width].transpose(1, 2)

    def copy(self, sources: Tensor, targets: Tensor, width: int, room: tuple[int, int]) -> None:
        """Gives each target slot the first columns of its source; all are read before any is written."""
        assert self.keys is not None and self.values is not None, "something was fed before"
        keys = self.keys = _grown(self.keys, room, self.keys)
        values = self.values = _grown(self.values, room, self.values)
        keys[targets, :width] = keys[sources, :width]
        values[targets, :width] = values[sources, :width]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.at.width, 0

    def get_seq_length(self, *_: object) -> int:
        return self.at.width

    def get_max_length(self) -> int:
        return -1

    def get_max_cache_shape(self) -> int:
        """The same under the name that transformers used before 5.20."""
        return -1


class SlotCache:
    """Slots of cached rows.

    Attributes:
        tokens: The token ids whose keys and values each slot holds.
        lengths: How many they are; ahead of `tokens` while a row is being extended.
    """

    def __init__(self, num_layers: int, max_length: int, device: torch.device, dtype: torch.dtype) -> None:
        self.layers = [_SlotLayer() for _ in range(num_layers)]
        self.cache = Cache(layers=self.layers)
        self.max_length, self.device, self.dtype = max_length, device, dtype
        self.tokens: list[Ids] = []
        self.lengths: list[int] = []
        self.columns = 0

    # -- which slot -----------------------------------------------------------------------------------------------------------

    def admit(self, contexts: Sequence[Ids]) -> list[int]:
        """Gives every context a slot of its own that holds a prefix of it, the longest that is to be had.

        The last token of a context is always left to be fed, so that its hidden state exists. A slot's row is taken over where the context
        extends all of it; else the longest common prefix with any slot is cut out or copied.

        Args:
            contexts: Token ids, each at least 1 long.

        Returns:
            The slot of each context.
        """
        while len(self.tokens) < len(contexts):
            self.tokens.append(np.zeros(0, np.int64))
            self.lengths.append(0)
        placed = self._place_extended(contexts)
        copies = self._place_rest(contexts, placed)
        self._copy(copies)
        for i, (slot, length) in placed.items():
            self.hold(slot, contexts[i][:length])
        return [placed[i][0] for i in range(len(contexts))]

    def _place_extended(self, contexts: Sequence[Ids]) -> dict[int, tuple[int, int]]:
        """Index of a context -> slot whose whole row is a proper prefix of it (the longest, each slot once), and that row's length."""
        lengths = np.array(self.lengths)
        last = np.array([held[-1] if len(held) else -1 for held in self.tokens])
        open_ = lengths > 0
        placed: dict[int, tuple[int, int]] = {}
        for i, context in enumerate(contexts):
            maybe = np.flatnonzero(open_ & (lengths < len(context)))
            maybe = maybe[context[lengths[maybe] - 1] == last[maybe]]
            for slot in maybe[np.argsort(-lengths[maybe], kind="stable")].tolist():
                if np.array_equal(context[: lengths[slot]], self.tokens[slot]):
                    placed[i] = (slot, int(lengths[slot]))
                    open_[slot] = False
                    break
        return placed

    def _place_rest(self, contexts: Sequence[Ids], placed: dict[int, tuple[int, int]]) -> list[tuple[int, int, int]]:
        """Adds a slot and a length for every context that extends no row; returns copies (source, target, length)."""
        free = set(range(len(self.tokens))) - {slot for slot, _ in placed.values()}
        rest = [i for i in range(len(contexts)) if i not in placed]
        best = dict(zip(rest, self._common([contexts[i] for i in rest]), strict=True))
        for i, (source, length) in best.items():
            if source in free and length >= _WORTH:
                placed[i] = (source, length)
                free.remove(source)
        copies = []
        for i, (source, length) in best.items():
            if i not in placed:
                target = min(free)
                free.remove(target)
                placed[i] = (target, length if length >= _WORTH else 0)
                if length >= _WORTH:
                    copies.append((source, target, length))
        return copies

    def _common(self, contexts: Sequence[Ids]) -> list[tuple[int, int]]:
        """For each context the slot that shares the longest proper prefix with it, and how long that is."""
        longest = max(self.lengths)
        if not contexts or longest == 0:
            return [(0, 0)] * len(contexts)
        held = np.full((len(self.tokens), longest), -1, np.int64)
        for s, ids in enumerate(self.tokens):
            held[s, : len(ids)] = ids
        found = []
        for context in contexts:
            width = min(len(context) - 1, longest)
            same = np.ones((len(held), width + 1), np.bool_)
            same[:, width] = False
            same[:, :width] = held[:, :width] == context[:width]
            shared = same.argmin(axis=1)
            found.append((int(shared.argmax()), int(shared.max())))
        return found

    def _copy(self, copies: Sequence[tuple[int, int, int]]) -> None:
        if copies:
            sources, targets, lengths = zip(*copies, strict=True)
            source, target = (torch.tensor(slots, device=self.device) for slots in (sources, targets))
            for layer in self.layers:
                layer.copy(source, target, max(lengths), (len(self.tokens), self.columns))

    # -- what slots hold ------------------------------------------------------------------------------------------------------

    def hold(self, slot: int, ids: Ids) -> None:
        """Notes what the slot holds now."""
        self.tokens[slot], self.lengths[slot] = ids, len(ids)

    def copy(self, source: int, targets: Sequence[int]) -> None:
        """Gives slots `targets` all that slot `source` holds."""
        self._copy([(source, target, self.lengths[source]) for target in targets])
        for target in targets:
            self.hold(target, self.tokens[source])

    def compact(self, slots: Sequence[int]) -> dict[int, int]:
        """Brings these slots to the first places, each exchanged with one that stood there; returns old -> new for all that moved."""
        n = len(slots)
        holes = sorted(set(range(n)) - set(slots))
        outside = sorted(slot for slot in slots if slot >= n)
        moved = {**dict(zip(outside, holes, strict=True)), **dict(zip(holes, outside, strict=True))}
        self._copy([(old, new, max(self.lengths[old], 1)) for old, new in moved.items()])
        before = {old: (self.tokens[old], self.lengths[old]) for old in moved}
        for old, new in moved.items():
            self.tokens[new], self.lengths[new] = before[old]
        return moved

    def place(self, slots: Sequence[int], chunk: int) -> tuple[Tensor, Tensor]:
        """Says where the next chunk of `chunk` tokens goes for these slots.

        Returns:
            position ids [R, Q] and additive attention mask [R, 1, Q, width].
        """
        starts = torch.tensor([self.lengths[slot] for slot in slots], device=self.device)
        width = max(self.lengths[slot] for slot in slots) + chunk
        columns = starts[:, None] + torch.arange(chunk, device=self.device)[None]
        self._point(slots, columns, width)
        seen = torch.arange(width, device=self.device)[None, None] <= columns[:, :, None]
        # Padding behind the model's last position exists for nobody; learned position tables have no row for it.
        return columns.clamp(max=self.max_length - 1), self._mask(seen)

    def find(self, texts: Sequence[Ids]) -> list[int | None]:
        """For each text a slot of its own that holds it, but for its last token, and little beyond; None where there is none."""
        held = {slot: tokens.tobytes() for slot, tokens in enumerate(self.tokens)}
        found: list[int | None] = []
        for text in texts:
            wanted = text[:-1].tobytes()
            slot = min((slot for slot, tokens in held.items() if tokens.startswith(wanted)), key=lambda slot: len(held[slot]), default=None)
            found.append(slot)
            if slot is not None:
                del held[slot]
        return found

    def again(self, slots: Sequence[int], places: Ids) -> tuple[Tensor, Tensor]:
        """Says how tokens at places of rows are read once more, each by itself against what its row holds before it.

        Their keys and values land behind the ends of all these rows and are seen by themselves alone: what is held stays as it is.

        Args:
            slots: Whose rows, each once.
            places: At most the length of its row. [R, Q]

        Returns:
            position ids [R, Q] and additive attention mask [R, 1, Q, width].
        """
        first = max(self.lengths[slot] for slot in slots)
        width = first + places.shape[1]
        columns = torch.arange(first, width, device=self.device)[None].expand(*places.shape)
        self._point(slots, columns, width)
        positions = torch.from_numpy(places).to(self.device)
        column = torch.arange(width, device=self.device)[None, None]
        return positions, self._mask((column < positions[:, :, None]) | (column == columns[:, :, None]))

    def _point(self, slots: Sequence[int], columns: Tensor, width: int) -> None:
        """The next chunk goes to these columns, [R, Q], and attention reads `width`."""
        if width > self.columns:
            self.columns = -(-int(max(width, _GROWTH * self.columns)) // _COLUMNS) * _COLUMNS
        index = torch.tensor(slots, device=self.device)
        read = slice(0, len(slots)) if list(slots) == list(range(len(slots))) else index
        for layer in self.layers:
            layer.at = _Place(read, index[:, None], columns, width, (len(self.tokens), self.columns))

    def _mask(self, seen: Tensor) -> Tensor:
        """[R, Q, width] -> [R, 1, Q, width]"""
        mask = torch.zeros(seen.shape, dtype=self.dtype, device=self.device).masked_fill_(~seen, torch.finfo(self.dtype).min)
        return mask[:, None]


def _grown(held: Tensor | None, room: tuple[int, int], like: Tensor) -> Tensor:
    """`held` [slots, C, H, D] with at least this room for slots and columns; made for the heads of `like` [R, H, Q, D] if there is none."""
    if held is None:
        return like.new_zeros((*room, like.shape[1], like.shape[3]))
    if held.shape[0] >= room[0] and held.shape[1] >= room[1]:
        return held
    grown = like.new_zeros((max(room[0], held.shape[0]), max(room[1], held.shape[1]), *held.shape[2:]))
    grown[: held.shape[0], : held.shape[1]] = held
    return grown
