"""A causal language model of transformers, seen as hidden states and a vocabulary projection.

Legend: B row, L length, N target, F flat target, V vocabulary.
"""

from __future__ import annotations

import inspect

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from stepwell.engine.kv import SlotCache

__all__ = ["Trunk"]

_CHUNK_ELEMENTS = 2**26
"""Logits are made in chunks of at most this many numbers; more than one chunk is recomputed in the backward pass."""


class Trunk:
    """Hidden states and logits of a `transformers` causal LM.

    Attributes:
        module: The language model, in the data type that it computes in.
        caches: Whether its keys and values can live in slots over turns; where not, every turn feeds the whole history.
        splits: Whether logits are the output embedding of the last hidden state; where not (scaled or capped logits), the model's own
            forward makes them.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.base: nn.Module = module.base_model if hasattr(module, "base_model") else module
        self._cache_name = "cache" if "cache" in inspect.signature(self.base.forward).parameters else "past_key_values"
        self.config = module.config
        self.vocab_size = int(self.config.get_text_config().vocab_size)
        limit = self.config.get_text_config().max_position_embeddings
        self.max_length = int(limit) if limit is not None else 1 << 30
        self.splits = self._probe_splits()
        self.caches = self.splits and self._probe_caches()

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.module.parameters()).dtype

    @property
    def num_layers(self) -> int:
        return int(self.config.get_text_config().num_hidden_layers)

    def new_cache(self) -> SlotCache:
        return SlotCache(self.num_layers, self.device, self.dtype)

    def hidden(self, ids: Tensor) -> Tensor:
        """Hidden states of right-padded rows: [B, L] -> [B, L, width]. No mask: no target sees padding."""
        return self.base(input_ids=ids, use_cache=False).last_hidden_state  # type: ignore[no-any-return]

    def hidden_cached(self, ids: Tensor, cache: SlotCache, positions: Tensor, mask: Tensor) -> Tensor:
        """Hidden states of a chunk [b, Q] that extends cached rows."""
        kept = {self._cache_name: cache.cache}
        return self.base(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, **kept).last_hidden_state  # type: ignore[no-any-return]

    def logits(self, hidden_F: Tensor) -> Tensor:
        """[F, width] -> [F, V] in float32."""
        return self.module.get_output_embeddings()(hidden_F).float()  # type: ignore[operator]

    def last_logits(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Logits after the last token of right-padded rows, without a cache: [B, L] -> [B, V]."""
        rows = torch.arange(len(ids), device=ids.device)
        if self.splits:
            return self.logits(self.hidden(ids)[rows, lengths - 1])
        return self.module(input_ids=ids, use_cache=False).logits[rows, lengths - 1].float()  # type: ignore[no-any-return]

    def target_outputs(self, ids: Tensor, targets: Tensor, mask: Tensor, temperature: float, entropy: bool) -> tuple[Tensor, Tensor | None]:
        """Log-probs (and entropy) at targets.

        Args:
            ids: [B, L]
            targets: [B, N], positions whose token is predicted from what stands before.
            mask: [B, N], True where a target is.
            temperature: Logits are divided by it, as in sampling.

        Returns:
            log-probs [B, N] and entropy [B, N] in nats (or None), 0 at padding, float32.
        """
        rows = torch.arange(len(ids), device=ids.device)[:, None].expand_as(targets)
        row_F, target_F = rows[mask], targets[mask]
        label_F = ids[row_F, target_F]
        if self.splits:
            source = self.hidden(ids)[row_F, target_F - 1]
            project = self.logits
        else:
            source = self.module(input_ids=ids, use_cache=False).logits[row_F, target_F - 1]
            project = _as_float
        logprob_F, entropy_F = self._chunked(source, label_F, project, temperature, entropy)
        logprobs = torch.zeros(mask.shape, device=ids.device).masked_scatter(mask, logprob_F)
        if entropy_F is None:
            return logprobs, None
        return logprobs, torch.zeros(mask.shape, device=ids.device).masked_scatter(mask, entropy_F)

    def _chunked(self, source: Tensor, label_F: Tensor, project: object, temperature: float, entropy: bool) -> tuple[Tensor, Tensor | None]:
        size = max(1, _CHUNK_ELEMENTS // self.vocab_size)
        pieces = list(zip(source.split(size), label_F.split(size), strict=True))
        if len(pieces) == 1 or not torch.is_grad_enabled():
            made = [_pick(s, y, project, temperature, entropy) for s, y in pieces]
        else:
            made = [checkpoint(_pick, s, y, project, temperature, entropy, use_reentrant=False) for s, y in pieces]
        logprob_F = torch.cat([logprob for logprob, _ in made])
        return logprob_F, torch.cat([h for _, h in made]) if entropy else None

    @torch.no_grad()
    def _probe_splits(self) -> bool:
        ids = torch.arange(4, device=self.device)[None] % self.vocab_size
        try:
            whole = self.module(input_ids=ids, use_cache=False).logits.float()
            parts = self.logits(self.hidden(ids))
        except (AttributeError, TypeError):
            return False
        return whole.shape == parts.shape and torch.allclose(whole, parts, atol=1e-3, rtol=1e-3)

    @torch.no_grad()
    def _probe_caches(self) -> bool:
        """Feeds four tokens at once, and as 3 + 1 through the cache; equal last states mean that slots work for this model."""
        text = self.config.get_text_config()
        kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"} or (getattr(text, "sliding_window", None) and getattr(text, "use_sliding_window", True)):
            return False
        ids = torch.arange(4, device=self.device)[None] % self.vocab_size
        cache = self.new_cache()
        cache.tokens = [ids[0, :0].cpu().numpy()]
        try:
            positions, mask = cache.place([0], 3)
            self.hidden_cached(ids[:, :3], cache, positions, mask)
            cache.tokens = [ids[0, :3].cpu().numpy()]
            positions, mask = cache.place([0], 1)
            last = self.hidden_cached(ids[:, 3:], cache, positions, mask)[0, 0]
        except (AttributeError, TypeError, NotImplementedError, ValueError):
            return False
        return torch.allclose(self.hidden(ids)[0, 3].float(), last.float(), atol=0.05, rtol=0.05)


def _as_float(logits: Tensor) -> Tensor:
    return logits.float()


def _pick(source: Tensor, label_F: Tensor, project: object, temperature: float, entropy: bool) -> tuple[Tensor, Tensor]:
    logits = project(source) / temperature  # type: ignore[operator]
    logprobs_FV = torch.log_softmax(logits, dim=-1)
    logprob_F = logprobs_FV.gather(1, label_F[:, None])[:, 0]
    entropy_F = -(logprobs_FV.exp() * logprobs_FV).sum(-1) if entropy else logprob_F.detach()
    return logprob_F, entropy_F
