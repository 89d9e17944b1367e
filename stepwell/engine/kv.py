"""Keys and values of many rows that live across turns, without holes.

Token j of row r stands in column j of slot r, in every layer. A turn feeds only its new tokens, each written at its own place; padding of
a chunk lands behind the row's end, is masked, and is overwritten by what comes next. So nothing has to be compacted but the rows
themselves: rows that are still sampling occupy the first slots, and attention reads one contiguous view.

Legend: R slot, C column (position), H head, D head width, Q new tokens.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from stepwell.types import Ids

__all__ = ["SlotCache"]

_COLUMNS = 64
"""Columns are added in multiples of this."""


class _SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's keys and values, [R, C, H, D]; `place` says where the next chunk goes."""

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.rows: Tensor | slice = slice(0, 0)
        self.columns: Tensor = torch.zeros(0)
        self.width = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: `SlotCache.reserve` allocates; the first chunk fixes shapes."""

    def allocate(self, rows: int, columns: int, like: Tensor) -> None:
        """Grows to at least this size, keeping what is there."""
        heads, width = like.shape[1], like.shape[3]
        old_keys, old_values = self.keys, self.values
        if old_keys is not None and old_keys.shape[0] >= rows and old_keys.shape[1] >= columns:
            return
        shape = (
            (rows, columns, heads, width)
            if old_keys is None
            else (max(rows, old_keys.shape[0]), max(columns, old_keys.shape[1]), heads, width)
        )
        self.keys = torch.zeros(shape, dtype=like.dtype, device=like.device)
        self.values = torch.zeros(shape, dtype=like.dtype, device=like.device)
        if old_keys is not None and old_values is not None:
            self.keys[: old_keys.shape[0], : old_keys.shape[1]] = old_keys
            self.values[: old_values.shape[0], : old_values.shape[1]] = old_values
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Writes a chunk [b, H, Q, D] at its place and returns all that its rows hold, [b, H, width, D]."""
        self.allocate(self.num_rows, self.num_columns, key_states)
        assert self.keys is not None and self.values is not None
        index = self.index
        self.keys[index, self.columns] = key_states.transpose(1, 2)
        self.values[index, self.columns] = value_states.transpose(1, 2)
        return self.keys[self.rows, : self.width].transpose(1, 2), self.values[self.rows, : self.width].transpose(1, 2)

    def place(self, rows: Tensor | slice, index: Tensor, columns: Tensor, width: int, size: tuple[int, int]) -> None:
        self.rows, self.index, self.columns, self.width = rows, index, columns, width
        self.num_rows, self.num_columns = size

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.width, 0

    def get_seq_length(self, *_: object) -> int:
        return self.width

    def get_max_length(self) -> int:
        return -1

    def get_max_cache_shape(self) -> int:
        """The same under the name that transformers used before 5.20."""
        return -1


class SlotCache:
    """Slots of cached rows. `tokens[r]` are the token ids whose keys and values slot r holds."""

    def __init__(self, num_layers: int, device: torch.device, dtype: torch.dtype) -> None:
        self.layers = [_SlotLayer() for _ in range(num_layers)]
        self.cache = Cache(layers=self.layers)
        self.device, self.dtype = device, dtype
        self.tokens: list[Ids] = []
        self.columns = 0

    def admit(self, contexts: list[Ids]) -> None:
        """Makes slot i hold the longest whole cached row that is a proper prefix of context i; others are emptied.

        The last token of a context is always left to be fed, so that its logits exist.
        """
        by_tokens: dict[bytes, list[int]] = {}
        for r, held in enumerate(self.tokens):
            by_tokens.setdefault(held.tobytes(), []).append(r)
        lengths = sorted({len(held) for held in self.tokens if len(held)}, reverse=True)
        source: list[int] = []
        for context in contexts:
            slots = next((by_tokens[key] for n in lengths if n < len(context) and by_tokens.get(key := context[:n].tobytes())), None)
            source.append(slots.pop(0) if slots else -1)
        held = [self.tokens[r] if r >= 0 else np.zeros(0, np.int64) for r in source]
        self._gather(source)
        self.tokens = held

    def _gather(self, source: list[int]) -> None:
        if source == list(range(len(source))) or all(r < 0 for r in source):
            return
        index = torch.tensor([max(r, 0) for r in source], device=self.device)
        for layer in self.layers:
            if layer.keys is not None and layer.values is not None:
                layer.keys, layer.values = layer.keys[index], layer.values[index]

    def copy(self, source: int, targets: list[int]) -> None:
        """Gives slots `targets` all that slot `source` holds."""
        n = len(self.tokens[source])
        for layer in self.layers:
            assert layer.keys is not None and layer.values is not None
            layer.keys[targets, :n] = layer.keys[source, :n]
            layer.values[targets, :n] = layer.values[source, :n]
        for r in targets:
            self.tokens[r] = self.tokens[source]

    def swap(self, a: int, b: int) -> None:
        """Exchanges two slots."""
        if a == b:
            return
        pair = torch.tensor([a, b], device=self.device)
        for layer in self.layers:
            assert layer.keys is not None and layer.values is not None
            layer.keys[pair] = layer.keys[pair.flip(0)]
            layer.values[pair] = layer.values[pair.flip(0)]
        self.tokens[a], self.tokens[b] = self.tokens[b], self.tokens[a]

    def place(self, rows: list[int], chunk: int) -> tuple[Tensor, Tensor]:
        """Says where the next chunk of `chunk` tokens goes for `rows`.

        Returns:
            position ids [b, Q] and additive attention mask [b, 1, Q, width].
        """
        starts = torch.tensor([len(self.tokens[r]) for r in rows], device=self.device)
        width = max(len(self.tokens[r]) for r in rows) + chunk
        if width > self.columns:
            self.columns = -(-width // _COLUMNS) * _COLUMNS
        positions = starts[:, None] + torch.arange(chunk, device=self.device)[None]
        index = torch.tensor(rows, device=self.device)
        first = rows == list(range(len(rows)))
        for layer in self.layers:
            layer.place(slice(0, len(rows)) if first else index, index[:, None], positions, width, (len(self.tokens), self.columns))
        seen = torch.arange(width, device=self.device)[None, None] <= positions[:, :, None]
        mask = torch.zeros(seen.shape, dtype=self.dtype, device=self.device).masked_fill_(~seen, torch.finfo(self.dtype).min)
        return positions, mask[:, None]
