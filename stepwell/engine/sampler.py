"""Lock-step batched decoding on a KV cache that lives across turns.

Legend: R row (one context), V vocabulary, Q new tokens of a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from stepwell.engine.draw import draw
from stepwell.engine.kv import SlotCache
from stepwell.engine.trunk import Trunk
from stepwell.errors import RunError
from stepwell.types import Completion, Ids, Row, Sampling, Stop

__all__ = ["Sampler", "Work"]

_BUCKET = 0.6
"""Chunks shorter than this share of the longest in their bucket start a new bucket."""
_PREFILL_TOKENS = 16384
"""Padded positions of one prefill call, at most."""
_SHARED = 16
"""A prompt's beginning of fewer tokens is not worth a call of its own."""
_CROWDED = 0.7
"""Rows that still sample are brought together once they are no more than this share of the slots computed: moving a row costs about as
much as computing some tokens of it in vain."""


@dataclass(slots=True)
class Work:
    """Positions that were computed, and how many of them were padding."""

    positions: int = 0
    padding: int = 0

    @property
    def padding_share(self) -> float:
        return self.padding / self.positions if self.positions else 0.0


@dataclass(slots=True)
class _Row:
    """One context while it is being extended."""

    sampling: Sampling
    seeds: Ids
    """One for each token."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop: Stop | None = None


class Sampler:
    """Samples from a trunk; owns the cache of its rows.

    Every row draws with seeds of its own, one for each token, so that a row's tokens depend on its seed and its logits alone, not on its
    neighbours.
    """

    def __init__(self, trunk: Trunk, decode: Callable[[Sequence[int]], str], eos_ids: frozenset[int]) -> None:
        self.trunk = trunk
        self.decode = decode
        self.eos_ids = eos_ids
        self.work = Work()
        self._cache: SlotCache | None = None

    def forget(self) -> None:
        """Drops the cache: the next call feeds whole histories."""
        self._cache = None

    @torch.no_grad()
    def sample(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> list[Completion]:
        """See `protocols.Policy.sample`."""
        self._check(contexts, sampling, seeds)
        rows = [_Row(s, _token_seeds(seed, s.max_tokens)) for s, seed in zip(sampling, seeds, strict=True)]
        if not rows:
            return []
        if self.trunk.caches:
            self._extend_cached([np.asarray(c, np.int64) for c in contexts], rows)
        else:
            self._extend_whole([list(map(int, c)) for c in contexts], rows)
        return [self._complete(row) for row in rows]

    def _check(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> None:
        if not len(contexts) == len(sampling) == len(seeds):
            raise ValueError(f"sample got {len(contexts)} contexts, {len(sampling)} samplings and {len(seeds)} seeds; all must be equal.")
        if len({(s.temperature, s.stop) for s in sampling}) > 1:
            raise ValueError(
                "The rows of one call of sample have different temperatures or stop strings; these must be equal, limits may differ."
            )
        for context, s in zip(contexts, sampling, strict=True):
            if len(context) == 0:
                raise ValueError("sample got an empty context; a context has at least one token.")
            if len(context) + s.max_tokens > self.trunk.max_length:
                raise ValueError(
                    f"A context of {len(context)} tokens with max_tokens {s.max_tokens} exceeds the model's {self.trunk.max_length}; "
                    "shorten the context or lower max_tokens."
                )

    # -- with a cache ---------------------------------------------------------------------------------------------------------

    def _extend_cached(self, contexts: list[Ids], rows: list[_Row]) -> None:
        cache = self.trunk.new_cache() if self._cache is None else self._cache
        self._cache = None  # What an error leaves half written is never used again.
        slots = cache.admit(contexts)
        hidden = self._prefill(cache, contexts, slots)
        alive = list(range(len(rows)))
        while True:
            self._choose(self.trunk.logits(hidden), [rows[r] for r in alive])
            alive = [r for r in alive if rows[r].stop is None]
            if not alive:
                break
            hidden = self._decode(cache, slots, {slots[r]: rows[r].token_ids[-1] for r in alive})
        for slot, context, row in zip(slots, contexts, rows, strict=True):
            cache.hold(slot, np.concatenate([context, np.array(row.token_ids[:-1], np.int64)]))
        self._cache = cache

    def _decode(self, cache: SlotCache, slots: list[int], tokens: dict[int, int]) -> Tensor:
        """Feeds one token to each slot of `tokens`; returns their hidden states in this order. `slots` follows rows that are moved."""
        used = list(tokens)
        if len(used) <= _CROWDED * (1 + max(used)):
            moved = cache.compact(used)
            slots[:] = [moved.get(slot, slot) for slot in slots]
            used = [moved.get(slot, slot) for slot in used]
        width = 1 + max(used)
        ids = np.zeros((width, 1), np.int64)
        ids[used, 0] = list(tokens.values())
        positions, mask = cache.place(range(width), 1)
        hidden = self.trunk.hidden_cached(torch.from_numpy(ids).to(self.trunk.device), cache, positions, mask)
        for slot in used:
            cache.lengths[slot] += 1
        self.work.positions += width
        self.work.padding += width - len(used)
        return hidden[torch.tensor(used, device=hidden.device), 0]

    def _prefill(self, cache: SlotCache, contexts: list[Ids], slots: list[int]) -> Tensor:
        """Feeds what is new of every context; returns the hidden state of each last token, [R, width]."""
        fresh = [r for r, slot in enumerate(slots) if cache.lengths[slot] == 0]
        twin: dict[bytes, int] = {}
        source = {r: twin.setdefault(contexts[r].tobytes(), r) for r in fresh}
        self._prefill_shared(cache, contexts, slots, list(twin.values()))
        last: dict[int, Tensor] = {}
        feeding = [r for r in range(len(contexts)) if source.get(r, r) == r]
        for bucket in _buckets({r: len(contexts[r]) - cache.lengths[slots[r]] for r in feeding}):
            chunks = [contexts[r][cache.lengths[slots[r]] :] for r in bucket]
            hidden = self._feed(cache, [slots[r] for r in bucket], chunks)
            for i, r in enumerate(bucket):
                last[r] = hidden[i, len(chunks[i]) - 1]
                cache.hold(slots[r], contexts[r])
        for first in twin.values():
            copies = [r for r, s in source.items() if s == first and r != first]
            cache.copy(slots[first], [slots[r] for r in copies])
            last |= dict.fromkeys(copies, last[first])
        return torch.stack([last[r] for r in range(len(contexts))])

    def _prefill_shared(self, cache: SlotCache, contexts: list[Ids], slots: list[int], rows: list[int]) -> None:
        """Feeds the beginning that all these different contexts have in common (a system message) once."""
        if len(rows) < 2:
            return
        shortest = min(len(contexts[r]) for r in rows) - 1
        heads = np.stack([contexts[r][:shortest] for r in rows])
        differs = np.flatnonzero((heads != heads[0]).any(axis=0))
        shared = int(differs[0]) if len(differs) else shortest
        if shared < _SHARED:
            return
        first = slots[rows[0]]
        self._feed(cache, [first], [contexts[rows[0]][:shared]])
        cache.hold(first, contexts[rows[0]][:shared])
        cache.copy(first, [slots[r] for r in rows[1:]])

    def _feed(self, cache: SlotCache, slots: list[int], chunks: list[Ids]) -> Tensor:
        """Hidden states [R, Q, width] of chunks padded to one length."""
        width = max(len(chunk) for chunk in chunks)
        ids = np.zeros((len(chunks), width), np.int64)
        for i, chunk in enumerate(chunks):
            ids[i, : len(chunk)] = chunk
        positions, mask = cache.place(slots, width)
        self.work.positions += ids.size
        self.work.padding += ids.size - sum(len(chunk) for chunk in chunks)
        return self.trunk.hidden_cached(torch.from_numpy(ids).to(self.trunk.device), cache, positions, mask)

    @torch.no_grad()
    def recall(self, rows: Sequence[Row]) -> list[Tensor | None]:
        """Hidden states before each row's targets, [N, width]; None where the cache does not hold all that stands before them.

        Only the tokens just before the targets are computed, against keys and values that are there already. The states are those of a
        fresh forward pass but for rounding. Every row has at least one target.
        """
        made: list[Tensor | None] = [None] * len(rows)
        cache = self._cache
        if cache is None:
            return made
        found = cache.find([row.ids[: row.targets[-1]] for row in rows])
        slots = {r: slot for r, slot in enumerate(found) if slot is not None}
        for bucket in _buckets({r: len(rows[r].targets) for r in slots}):
            width = max(len(rows[r].targets) for r in bucket)
            places = np.stack([np.pad(rows[r].targets - 1, (0, width - len(rows[r].targets)), mode="edge") for r in bucket])
            ids = np.stack([rows[r].ids[at] for r, at in zip(bucket, places, strict=True)])
            positions, mask = cache.again([slots[r] for r in bucket], places)
            hidden = self.trunk.hidden_cached(torch.from_numpy(ids).to(self.trunk.device), cache, positions, mask)
            for i, r in enumerate(bucket):
                made[r] = hidden[i, : len(rows[r].targets)]
        return made

    # -- without --------------------------------------------------------------------------------------------------------------

    def _extend_whole(self, contexts: list[list[int]], rows: list[_Row]) -> None:
        alive = list(range(len(rows)))
        while alive:
            lengths = [len(contexts[r]) for r in alive]
            ids = torch.zeros((len(alive), max(lengths)), dtype=torch.int64)
            for i, r in enumerate(alive):
                ids[i, : lengths[i]] = torch.tensor(contexts[r])
            device = self.trunk.device
            logits = self.trunk.last_logits(ids.to(device), torch.tensor(lengths, device=device))
            self.work.positions += ids.numel()
            self.work.padding += ids.numel() - sum(lengths)
            self._choose(logits, [rows[r] for r in alive])
            for r in alive:
                contexts[r].append(rows[r].token_ids[-1])
            alive = [r for r in alive if rows[r].stop is None]

    # -- both -----------------------------------------------------------------------------------------------------------------

    def _choose(self, logits_RV: Tensor, rows: list[_Row]) -> None:
        """Draws one token for each row, notes it and its log-prob, and says in `row.stop` whether the row is done."""
        temperature = rows[0].sampling.temperature
        logprobs_RV = torch.log_softmax(logits_RV / (temperature or 1.0), dim=-1)
        if temperature == 0:
            chosen_R = logits_RV.argmax(dim=-1)
        else:
            seeds = np.array([row.seeds[len(row.token_ids)] for row in rows])
            chosen_R = draw(logprobs_RV, torch.from_numpy(seeds).to(logprobs_RV.device))
        logprob_R = logprobs_RV.gather(1, chosen_R[:, None])[:, 0]
        for row, token, logprob in zip(rows, chosen_R.tolist(), logprob_R.tolist(), strict=True):
            row.token_ids.append(token)
            row.logprobs.append(logprob)
            row.stop = self._stops(row)

    def _stops(self, row: _Row) -> Stop | None:
        if row.token_ids[-1] in self.eos_ids:
            return Stop.EOS
        if row.sampling.stop and self._holds_stop_string(row):
            return Stop.STRING
        return Stop.LENGTH if len(row.token_ids) >= row.sampling.max_tokens else None

    def _holds_stop_string(self, row: _Row) -> bool:
        """Whether the last token completes a stop string. Decodes the end of the text alone, as long as that is enough."""
        longest = max(map(len, row.sampling.stop))
        tail = self.decode(row.token_ids[-longest - 4 :])
        if len(tail) <= longest + 4:
            tail = self.decode(row.token_ids)
        return any(stop in tail for stop in row.sampling.stop)

    def _complete(self, row: _Row) -> Completion:
        assert row.stop is not None
        if math.isnan(sum(row.logprobs)):
            raise RunError(
                f"The model's log-probs at temperature {row.sampling.temperature} are not numbers (NaN): its weights hold NaN or infinity, "
                "or are too large. Look after the model's file; in training, lower the learning rate; or raise a tiny temperature."
            )
        shown = row.token_ids[:-1] if row.stop is Stop.EOS else row.token_ids
        return Completion(np.array(row.token_ids, np.int64), np.array(row.logprobs, np.float64), self.decode(shown), row.stop)


def _token_seeds(seed: int, num_tokens: int) -> Ids:
    return np.random.Generator(np.random.PCG64(seed)).integers(0, 2**63, num_tokens, dtype=np.int64)


def _buckets(chunks: dict[int, int]) -> list[list[int]]:
    """Rows with chunks of similar length, longest first: row -> length of its chunk.

    >>> _buckets({0: 10, 1: 3, 2: 9, 3: 2})
    [[0, 2], [1, 3]]
    """
    buckets: list[list[int]] = []
    longest = 0
    for row in sorted(chunks, key=lambda row: -chunks[row]):
        full = not buckets or (len(buckets[-1]) + 1) * longest > _PREFILL_TOKENS
        if full or chunks[row] < _BUCKET * longest:
            buckets.append([])
            longest = chunks[row]
        buckets[-1].append(row)
    return [sorted(bucket) for bucket in buckets]
