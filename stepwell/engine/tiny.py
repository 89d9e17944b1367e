"""A small Llama-architecture model and a word tokenizer, built on the spot: real training with no download."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.llama.modeling_llama import LlamaAttention

__all__ = ["TinySpec", "tiny_model", "word_tokenizer"]

_SPECIAL = ("<|pad|>", "<|unk|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_PIECE = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class TinySpec:
    """Shape of the model; the default has 0.4 million parameters and a vocabulary of at most 4,096 words."""

    layers: int = 2
    width: int = 128
    feedforward: int = 256
    heads: int = 4
    vocabulary: int = 4096
    max_length: int = 1024


def word_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are whole words and single punctuation marks of `texts`, so that a copied word is one copied token.

    Rarer words fall into known pieces and letters (WordPiece); a character that was never seen is `<|unk|>`. The vocabulary is a pure
    function of the texts: ranked by count, then by the word itself.
    """
    counts = Counter(piece for text in texts for piece in _PIECE.findall(text.lower()))
    letters = sorted({letter for word in counts for letter in word} | set("abcdefghijklmnopqrstuvwxyz0123456789[]<>|=;:.,$/'-_{}\""))
    fixed = [*_SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
    words = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if len(word) > 1]
    names = fixed + words[: max(0, vocabulary - len(fixed))]
    tokenizer = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="<|unk|>", max_input_chars_per_word=64))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<|pad|>", unk_token="<|unk|>", eos_token="<|end|>")
    fast.add_special_tokens({"additional_special_tokens": list(_SPECIAL[3:])})
    fast.chat_template = _TEMPLATE
    return fast


def tiny_model(vocab_size: int, spec: TinySpec, seed: int) -> PreTrainedModel:
    """A Llama of this shape with fresh weights; embeddings are tied. The same seed gives the same weights.

    Every attention layer begins as a copier: its output matrix is the transpose of its value matrix, which is orthogonal, so that what is
    attended to is added to the stream unchanged, and tied embeddings name it (the value-output half of *Mimetic Initialization of
    Self-Attention Layers*, Trockman and Kolter 2023). Copying a word out of the context is most of what a small agent has to learn, and
    without this some seeds never learn it (`docs/lab.md`).
    """
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=spec.width,
        intermediate_size=spec.feedforward,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.heads,
        max_position_embeddings=spec.max_length,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        for layer in model.model.layers:
            _begin_as_copier(layer.self_attn)
    return model


@torch.no_grad()
def _begin_as_copier(attention: LlamaAttention) -> None:
    """Makes output times value the identity."""
    values, output = attention.v_proj.weight, attention.o_proj.weight
    nn.init.orthogonal_(values)
    output.copy_(values.T)
