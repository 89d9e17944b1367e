"""Small models, tokenizers and worlds, for tests of everything that speaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from stepwell.engine.chat import Chat
from stepwell.engine.codec import BRACKET
from stepwell.engine.local import Budget, LocalEngine, Text
from stepwell.engine.tiny import TinySpec, tiny_model, word_tokenizer
from stepwell.envs.shop import ShopDomain
from stepwell.protocols import Environment
from stepwell.rollout import Limits, Player
from stepwell.types import (
    Action,
    Completion,
    Episode,
    Ids,
    Invalid,
    Observation,
    Reply,
    Row,
    Sampling,
    Task,
    Tool,
    Verdict,
)

torch.set_num_threads(1)

SMALL = TinySpec(layers=2, width=32, feedforward=48, heads=2, max_length=512)
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


# -- models -------------------------------------------------------------------------------------------------------------------


def ids(*values: int) -> Ids:
    return np.array(values, np.int64)


def loud(module: PreTrainedModel, scale: float = 6.0, seed: int = 0) -> PreTrainedModel:
    """Fresh weights say nearly the same for every context; larger ones make attention and positions matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.ndim == 2:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.02 * scale * (0.5 if "embed" in name else 1.0))
    return module


def engine(vocab: int = 64, *, budget: Budget | None = None, dtype: torch.dtype = torch.float32, eos: int = 2) -> LocalEngine:
    """A small Llama with loud weights and no text."""
    module = loud(tiny_model(vocab, SMALL, seed=0)).to(dtype)
    return LocalEngine(module, Text(lambda tokens: " ".join(map(str, tokens)), frozenset({eos})), budget)


def random_rows(num_rows: int, vocab: int = 64, seed: int = 0, longest: int = 24) -> list[Row]:
    """Rows of different lengths with random targets, weights and advantages."""
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(num_rows):
        length = int(rng.integers(4, longest))
        targets = np.flatnonzero(rng.random(length) < 0.5)
        targets = targets[targets > 0] if (targets > 0).any() else np.array([1])
        row = Row.of(rng.integers(3, vocab, length), targets, episode=index, group=index // 2)
        n = len(targets)
        rows.append(
            replace(
                row, weight=rng.uniform(0.1, 1.0, n), advantage=rng.normal(size=n), ref_logprobs=rng.normal(size=n) - 4, label=index % 2
            )
        )
    return rows


def write_qwen2(folder: Path, texts: Sequence[str], max_length: int = 768) -> Path:
    """A tiny Qwen2-architecture model and a ChatML tokenizer, as `save_pretrained` writes Qwen2.5-3B-Instruct."""
    tokenizer = chatml_tokenizer(texts, 400)
    config = Qwen2Config(
        vocab_size=len(tokenizer) + 11,  # Qwen2.5 has more rows than its tokenizer has tokens, too
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        use_sliding_window=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    loud(Qwen2ForCausalLM(config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def chatml_tokenizer(texts: Sequence[str], size: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE with the special tokens of ChatML; pad and end of turn are different tokens."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False))
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    fast.chat_template = CHATML
    return fast


def merging_tokenizer() -> PreTrainedTokenizerFast:
    """Of {a, b, c, ab, bc}: the text abc is encoded as [ab, c], whatever was sampled (U35)."""
    vocab = {name: i for i, name in enumerate(["<|end|>", "<|user|>", "<|assistant|>", "a", "b", "c", "ab", "bc"])}
    backend = Backend(models.BPE(vocab=vocab, merges=[("a", "b"), ("b", "c")]))
    backend.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>")
    fast.add_special_tokens({"additional_special_tokens": ["<|user|>", "<|assistant|>"]})
    fast.chat_template = (
        "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    return fast


# -- in the generated shop ----------------------------------------------------------------------------------------------------


@lru_cache
def shop() -> ShopDomain:
    return ShopDomain(products=60)


@lru_cache
def shop_texts() -> tuple[str, ...]:
    domain = shop()
    return (*domain.vocabulary, *domain.vocabulary, "search[] click[] filter[] buy[]")


@dataclass(frozen=True)
class Speaker:
    """An engine and how it speaks."""

    engine: LocalEngine
    player: Player
    tokenizer: PreTrainedTokenizerFast


def speak(
    module: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, *, turns: int = 4, temperature: float = 1.0, budget: Budget | None = None
) -> Speaker:
    chat = Chat.of(tokenizer)
    made = LocalEngine(module, Text(tokenizer.decode, chat.eos_ids), budget)
    sampling = Sampling(temperature=temperature, max_tokens=6)
    return Speaker(made, Player(chat, BRACKET, sampling, Limits(turns=turns, context=made.max_length)), tokenizer)


def shop_speaker(*, turns: int = 4, temperature: float = 1.0, budget: Budget | None = None) -> Speaker:
    """A tiny Llama and a word tokenizer over the generated shop."""
    tokenizer = word_tokenizer(shop_texts(), 600)
    return speak(loud(tiny_model(len(tokenizer), SMALL, seed=0)), tokenizer, turns=turns, temperature=temperature, budget=budget)


def toy_speaker(*, turns: int = 4, budget: Budget | None = None) -> Speaker:
    """A tiny Llama over the eight tokens of `merging_tokenizer`: learns within a few updates."""
    tokenizer = merging_tokenizer()
    return speak(loud(tiny_model(len(tokenizer), SMALL, seed=0), scale=3.0), tokenizer, turns=turns, budget=budget)


# -- scripted worlds and policies ---------------------------------------------------------------------------------------------

SAY = Tool("say", "Says it.", {"type": "object", "properties": {"what": {"type": "string"}}})


@dataclass
class Script:
    """An environment that answers from a list; an exception in it is raised. After the list it is done."""

    start_with: str | Exception
    replies: Sequence[str | Exception | Callable[[], str]]
    tools: Sequence[Tool] = (SAY,)
    seen: list[Action | Invalid] = field(default_factory=list)

    def start(self) -> Observation:
        if isinstance(self.start_with, Exception):
            raise self.start_with
        return Observation(self.start_with)

    def step(self, action: Action | Invalid) -> Reply:
        reply = self.replies[len(self.seen)]
        self.seen.append(action)
        if isinstance(reply, Exception):
            raise reply
        text = reply() if callable(reply) else reply
        return Reply(Observation(text), reward=0.25, done=len(self.seen) == len(self.replies), valid=isinstance(action, Action))


@dataclass
class Scripted:
    """A domain of scripted environments; `script(task, member)` makes them."""

    script: Callable[[Task, int], Environment]
    verdict: Callable[[Episode], Verdict] = lambda episode: Verdict.of(1.0)

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        return Task(f"script/{split}/{seed}", "do it", difficulty, split)

    def tasks(self, split: str) -> Sequence[Task]:
        return tuple(self.task(0.5, seed, split) for seed in range(4))

    def environment(self, task: Task, member: int) -> Environment:
        return self.script(task, member)

    def grade(self, episode: Episode) -> Verdict:
        return self.verdict(episode)

    def expert(self, task: Task) -> Sequence[Action] | None:
        return None


@dataclass
class Parrot:
    """A policy that says given ids, and notes what it was asked: `says(context, nth call)`."""

    says: Callable[[Ids, int], Completion]
    version: int = 0
    asked: list[list[Ids]] = field(default_factory=list)
    sampled: list[Sampling] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def sample(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> list[Completion]:
        self.asked.append([context.copy() for context in contexts])
        self.sampled += sampling
        self.seeds += seeds
        return [self.says(context, len(self.asked) - 1) for context in contexts]

    def logprobs(self, rows: Sequence[Row]) -> list[np.ndarray]:
        raise NotImplementedError
