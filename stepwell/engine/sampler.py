"""Lock-step batched decoding on a KV cache that lives across turns.

Legend: R row (one context), V vocabulary, Q new tokens of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from stepwell.engine.kv import SlotCache
from stepwell.engine.trunk import Trunk
from stepwell.types import Completion, Ids, Sampling, Stop

__all__ = ["Sampler", "Work"]

_BUCKET = 0.6
"""Chunks shorter than this share of the longest in their bucket start a new bucket."""
_PREFILL_TOKENS = 16384
"""Padded positions of one prefill call, at most."""


class Decoder(Protocol):
    """The part of a tokenizer that sampling needs."""

    def decode(self, token_ids: Sequence[int]) -> str: ...


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
    uniforms: np.ndarray[tuple[int], np.dtype[np.float64]]
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop: Stop | None = None


class Sampler:
    """Samples from a trunk; owns the cache of its rows.

    Every row draws from its own generator, one uniform number a token (inverse transform), so that a row's tokens depend on its seed and
    its logits alone, not on its neighbours.
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
        rows = [_Row(s, np.random.Generator(np.random.PCG64(seed)).random(s.max_tokens)) for s, seed in zip(sampling, seeds, strict=True)]
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
        if self._cache is None:
            self._cache = self.trunk.new_cache()
        cache = self._cache
        cache.admit(contexts)
        hidden = self._prefill(cache, contexts)
        alive = list(range(len(rows)))
        while True:
            chosen = self._choose(self.trunk.logits(hidden), [rows[r] for r in alive])
            stay = [rows[r].stop is None for r in alive]
            order = _settle(cache, stay)
            alive = [alive[j] for j in order]
            if not alive:
                return
            ids = chosen[torch.tensor(order, device=chosen.device)][:, None]
            slots = list(range(len(alive)))
            positions, mask = cache.place(slots, 1)
            hidden = self.trunk.hidden_cached(ids, cache, positions, mask)[:, 0]
            for slot, r in enumerate(alive):
                cache.tokens[slot] = np.append(cache.tokens[slot], rows[r].token_ids[-1])
            self.work.positions += len(alive)

    def _prefill(self, cache: SlotCache, contexts: list[Ids]) -> Tensor:
        """Feeds what is new of every context; returns the hidden state of each last token, [R, width]."""
        twin: dict[bytes, int] = {}
        source = [twin.setdefault(c.tobytes(), r) if not len(cache.tokens[r]) else r for r, c in enumerate(contexts)]
        fresh = sorted({r for r in source}, key=lambda r: len(contexts[r]) - len(cache.tokens[r]))
        last: list[Tensor | None] = [None] * len(contexts)
        while fresh:
            longest = len(contexts[fresh[-1]]) - len(cache.tokens[fresh[-1]])
            bucket: list[int] = []
            while fresh and (len(bucket) + 1) * longest <= max(_PREFILL_TOKENS, longest):
                if len(contexts[fresh[-1]]) - len(cache.tokens[fresh[-1]]) < _BUCKET * longest:
                    break
                bucket.append(fresh.pop())
            self._feed(cache, contexts, sorted(bucket), last)
        for r, s in enumerate(source):
            if s != r:
                last[r] = last[s]
        for s in set(source):
            copies = [r for r, of in enumerate(source) if of == s and r != s]
            if copies:
                cache.copy(s, copies)
        return torch.stack([h for h in last if h is not None])

    def _feed(self, cache: SlotCache, contexts: list[Ids], bucket: list[int], last: list[Tensor | None]) -> None:
        chunks = [contexts[r][len(cache.tokens[r]) :] for r in bucket]
        width = max(len(chunk) for chunk in chunks)
        ids = np.zeros((len(bucket), width), np.int64)
        for i, chunk in enumerate(chunks):
            ids[i, : len(chunk)] = chunk
        positions, mask = cache.place(bucket, width)
        hidden = self.trunk.hidden_cached(torch.from_numpy(ids).to(self.trunk.device), cache, positions, mask)
        for i, (r, chunk) in enumerate(zip(bucket, chunks, strict=True)):
            last[r] = hidden[i, len(chunk) - 1]
            cache.tokens[r] = contexts[r]
        self.work.positions += ids.size
        self.work.padding += ids.size - sum(len(chunk) for chunk in chunks)

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

    def _choose(self, logits_RV: Tensor, rows: list[_Row]) -> Tensor:
        """Draws one token for each row, notes it and its log-prob, and says in `row.stop` whether the row is done."""
        temperature = rows[0].sampling.temperature
        logprobs_RV = torch.log_softmax(logits_RV / (temperature or 1.0), dim=-1)
        if temperature == 0:
            chosen_R = logits_RV.argmax(dim=-1)
        else:
            uniform_R = torch.tensor([row.uniforms[len(row.token_ids)] for row in rows], device=logits_RV.device, dtype=torch.float64)
            mass_RV = logprobs_RV.double().exp().cumsum(dim=-1)
            chosen_R = torch.searchsorted(mass_RV, (uniform_R * mass_RV[:, -1])[:, None], right=True)[:, 0]
        logprob_R = logprobs_RV.gather(1, chosen_R[:, None])[:, 0]
        for row, token, logprob in zip(rows, chosen_R.tolist(), logprob_R.tolist(), strict=True):
            row.token_ids.append(token)
            row.logprobs.append(logprob)
            row.stop = self._stops(row)
        return chosen_R

    def _stops(self, row: _Row) -> Stop | None:
        if row.token_ids[-1] in self.eos_ids:
            return Stop.EOS
        if row.sampling.stop and self.decode(row.token_ids).endswith(row.sampling.stop):
            return Stop.STRING
        return Stop.LENGTH if len(row.token_ids) >= row.sampling.max_tokens else None

    def _complete(self, row: _Row) -> Completion:
        assert row.stop is not None
        shown = row.token_ids[:-1] if row.stop is Stop.EOS else row.token_ids
        return Completion(np.array(row.token_ids, np.int64), np.array(row.logprobs, np.float64), self.decode(shown), row.stop)


def _settle(cache: SlotCache, stay: list[bool]) -> list[int]:
    """Moves rows that go on to the first slots; returns for each of these slots the place where its row was."""
    order = list(range(len(stay)))
    first, last = 0, len(stay)
    while first < last:
        if stay[order[first]]:
            first += 1
            continue
        last -= 1
        if stay[order[last]]:
            cache.swap(first, last)
            order[first], order[last] = order[last], order[first]
            first += 1
    return order[:first]
