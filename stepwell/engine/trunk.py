"""A causal language model of transformers, seen as hidden states and a vocabulary projection.

Legend: B row, L length, N target, F flat target, V vocabulary.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from stepwell.engine.kv import SlotCache

__all__ = ["TargetOutputs", "Trunk"]

_CHUNK_ELEMENTS = 2**26
"""Logits are made in chunks of at most this many numbers; more than one chunk is recomputed in the backward pass."""
_STRETCHING_ROPE = frozenset({"dynamic", "longrope"})
"""Rotary embeddings whose angles depend on how long the text is by now: cached keys would be those of a shorter text."""
_CLOSE = {torch.float32: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.01}
"""How far two ways to the same hidden states may be apart, relative to the largest."""


class TargetOutputs(NamedTuple):
    """What a language model says at targets, in nats; 0 at padding, float32. [B, N] each, or None where not wanted."""

    logprobs: Tensor
    entropy: Tensor | None
    certainty: Tensor | None


class Trunk:
    """Hidden states and logits of a `transformers` causal LM.

    Attributes:
        module: The language model, in the data type that it computes in.
        caches: Whether its keys and values can live in slots over turns; where not, every turn feeds the whole history.
        splits: Whether logits are the output embedding of the last hidden state and nothing else; where not (scaled or capped
            logits), the model's own forward makes them.
        adapter: Name of the adapter that is switched on, where that is known.
    """

    def __init__(self, module: PreTrainedModel) -> None:
        self.module = module
        self.adapter: str | None = None
        self.base = module.base_model
        self._cache_name = "cache" if "cache" in inspect.signature(self.base.forward).parameters else "past_key_values"
        self.config = module.config
        self._text = self.config.get_text_config()
        self.vocab_size = int(self._text.vocab_size)
        limit = getattr(self._text, "max_position_embeddings", None)
        self.max_length = int(limit) if limit is not None else 1 << 30
        self.splits = self._probe_splits()
        self.caches = self.splits and self._may_cache() and self._probe_caches()

    @property
    def device(self) -> torch.device:
        device: torch.device = next(self.module.parameters()).device
        return device

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = next(self.module.parameters()).dtype
        return dtype

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return int(self._text.hidden_size)

    def new_cache(self) -> SlotCache:
        return SlotCache(int(self._text.num_hidden_layers), self.max_length, self.device, self.dtype)

    def hidden(self, ids: Tensor) -> Tensor:
        """Hidden states of right-padded rows: [B, L] -> [B, L, width]. No mask: no target sees padding."""
        hidden: Tensor = self.base(input_ids=ids, use_cache=False).last_hidden_state
        return hidden

    def hidden_cached(self, ids: Tensor, cache: SlotCache, positions: Tensor, mask: Tensor) -> Tensor:
        """Hidden states of a chunk [R, Q] that extends cached rows."""
        kept = {self._cache_name: cache.cache}
        hidden: Tensor = self.base(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, **kept).last_hidden_state
        return hidden

    def logits(self, hidden_F: Tensor) -> Tensor:
        """[F, width] -> [F, V] in float32."""
        logits: Tensor = self.module.get_output_embeddings()(hidden_F)
        return logits.float()

    def last_logits(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Logits after the last token of right-padded rows, without a cache: [B, L] -> [B, V]."""
        rows = torch.arange(len(ids), device=ids.device)
        if self.splits:
            return self.logits(self.hidden(ids)[rows, lengths - 1])
        return self._whole(ids)[rows, lengths - 1].float()

    def target_outputs(
        self,
        ids: Tensor,
        targets: Tensor,
        mask: Tensor,
        temperature: float,
        want: frozenset[str] = frozenset(),
        note: Callable[[Tensor], None] | None = None,
    ) -> TargetOutputs:
        """Log-probs (and what is wanted of entropy and certainty) at targets.

        Args:
            ids: [B, L]
            targets: [B, N], positions whose token is predicted from what stands before.
            mask: [B, N], True where a target is.
            temperature: Logits are divided by it, as in sampling.
            want: Of {"entropy", "certainty"}.
            note: Is told the hidden states that this takes, [B, L, width], where the model lets them be seen.
        """
        rows = torch.arange(len(ids), device=ids.device)[:, None].expand_as(targets)
        row_F, target_F = rows[mask], targets[mask]
        label_F = ids[row_F, target_F]
        read = ids[:, : self.max_length]  # no target is predicted from a row's last token, which may lie beyond the last position
        whole = self.hidden(read) if self.splits else self._whole(read)
        if self.splits and note is not None:
            note(whole)
        project = self.logits if self.splits else Tensor.float
        size = max(1, _CHUNK_ELEMENTS // self.vocab_size)
        named = ("logprobs", *sorted(want & {"entropy", "certainty"}))
        made = _chunked(whole[row_F, target_F - 1], label_F, project, temperature, named, size)
        laid_out = {
            name: torch.zeros(mask.shape, device=ids.device).masked_scatter(mask, column_F)
            for name, column_F in zip(named, made, strict=True)
        }
        return TargetOutputs(laid_out["logprobs"], laid_out.get("entropy"), laid_out.get("certainty"))

    def _whole(self, ids: Tensor) -> Tensor:
        """Logits by the model's own forward: [B, L] -> [B, L, V]."""
        logits: Tensor = self.module(input_ids=ids, use_cache=False).logits
        return logits

    # -- probes ---------------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _probe_splits(self) -> bool:
        """Puts known numbers in place of the projection's: what goes in must be the last hidden state, what comes out must be untouched."""
        ids = self._some_ids(1, 4)
        seen: list[Tensor] = []

        def replace(_: object, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            seen.append(inputs[0])
            return torch.linspace(-300.0, 300.0, output.numel(), device=output.device).reshape(output.shape).to(output.dtype)

        output = self.module.get_output_embeddings()
        if output is None:
            return False
        hook = output.register_forward_hook(replace)
        try:
            whole = self._whole(ids)
            known = output(seen[0])
        finally:
            hook.remove()
        return _close(seen[0], self.hidden(ids)) and torch.equal(whole.float(), known.float())

    def _may_cache(self) -> bool:
        """False for kinds of attention that slots are known not to fit."""
        kinds = set(getattr(self._text, "layer_types", None) or ["full_attention"])
        window = getattr(self._text, "sliding_window", None) if getattr(self._text, "use_sliding_window", True) else None
        if window is not None and window >= self.max_length:
            kinds, window = kinds - {"sliding_attention"} | {"full_attention"}, None
        rope = getattr(self._text, "rope_parameters", None) or {}
        stretching = str(rope.get("rope_type", "default")) in _STRETCHING_ROPE
        return kinds == {"full_attention"} and window is None and not stretching

    @torch.no_grad()
    def _probe_caches(self) -> bool:
        """Two rows of different lengths, fed in a padded chunk and then token by token; equal states mean that slots work here."""
        ids, ends = self._some_ids(2, 6), (3, 2)
        rows = list(ids.cpu().numpy())
        cache = self.new_cache()
        slots = cache.admit(rows)
        last = ids
        try:
            for step, chunk in enumerate((3, 1, 1)):
                piece = torch.stack([ids[r, cache.lengths[slot] :][:chunk] for r, slot in enumerate(slots)])
                positions, mask = cache.place(slots, chunk)
                last = self.hidden_cached(piece, cache, positions, mask)[:, -1]
                for r, slot in enumerate(slots):
                    cache.hold(slot, rows[r][: ends[r] + step])
        except Exception:
            # Whatever an unknown model raises when it meets a cache that it was not written for, it means: no.
            return False
        return _close(last, self.hidden(ids)[[0, 1], [4, 3]])

    def _some_ids(self, rows: int, length: int) -> Tensor:
        return (torch.arange(rows * length, device=self.device).reshape(rows, length) * 7 + 3) % self.vocab_size


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and float((a - b).abs().max()) <= _CLOSE.get(a.dtype, 0.05) * float(b.abs().max())


def _chunked(
    source: Tensor, label_F: Tensor, project: Callable[[Tensor], Tensor], temperature: float, named: tuple[str, ...], size: int
) -> list[Tensor]:
    """What is named, [F] each; never more than `size` rows of logits are held."""
    pieces = [(source[at : at + size], label_F[at : at + size]) for at in range(0, max(len(label_F), 1), size)]
    if len(pieces) == 1 or not torch.is_grad_enabled():
        made = [_pick(s, y, project, temperature, named) for s, y in pieces]
    else:
        made = [checkpoint(_pick, s, y, project, temperature, named, use_reentrant=False) for s, y in pieces]
    return [torch.cat(columns) for columns in zip(*made, strict=True)]


def _pick(
    source: Tensor, label_F: Tensor, project: Callable[[Tensor], Tensor], temperature: float, named: tuple[str, ...]
) -> tuple[Tensor, ...]:
    logprobs_FV = torch.log_softmax(project(source) / temperature, dim=-1)
    make: dict[str, Callable[[], Tensor]] = {
        "logprobs": lambda: logprobs_FV.gather(1, label_F[:, None])[:, 0],
        "entropy": lambda: -(logprobs_FV.exp() * logprobs_FV).sum(-1),
        "certainty": lambda: -logprobs_FV.mean(-1) - math.log(logprobs_FV.shape[-1]),
    }
    return tuple(make[name]() for name in named)
