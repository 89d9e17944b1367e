"""What is played, and how it is learnt from."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from stepwell.config.engines import CloningOptimizerConfig
from stepwell.config.settings import (
    CUSTOM,
    Count,
    CustomConfig,
    Decay,
    Difficulties,
    NotNegative,
    Positive,
    Settings,
    Share,
    Unread,
    check_read,
    kind_of,
)

__all__ = [
    "CloningConfig",
    "CurriculumConfig",
    "EntropyCurriculumConfig",
    "LossConfig",
    "PoolsConfig",
    "RolloutConfig",
    "ShapingConfig",
    "UniformConfig",
    "ZoneConfig",
]


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
    ahead: bool = False
    """Whether the next batch is sampled while this one is learnt from, so that its weights are one update old; for engines on a server. The
    loss must know: `loss.old_logprobs: sampler`, or `trainer` with a `loss.correction`."""
    draw_budget: Count = 4
    """Groups that may be drawn to find `groups` that may train, as a multiple."""
    wall_s: Positive | None = None
    """Seconds of an episode, at most. A run with a limit is not exactly repeatable."""


class LossConfig(Settings):
    """The policy's loss and how often it is applied to a batch."""

    surrogate: Literal["clip", "cispo", "reinforce"] = "clip"
    """`clip`: PPO's; `cispo`: the clip bounds a token's weight and never stops it; `reinforce`: no ratio."""
    clip_low: Share = 0.2
    clip_high: NotNegative = 0.2
    dual_clip: Annotated[float, Field(gt=1, allow_inf_nan=False)] | None = None
    """The surrogate `clip` is at least this x the advantage where that is negative; None is off."""
    ratio: Literal["token", "step", "episode"] = "token"
    """What shares one probability ratio."""
    pooling: Literal["sum", "mean"] = "mean"
    """How the log-ratios of its tokens are joined."""
    correction: Literal["none", "truncate", "mask"] = "none"
    """Of a sampler that differs from the trainer: `truncate` weighs tokens, `mask` leaves out whole episodes too."""
    correction_low: Share = 0.5
    """`mask` keeps episodes whose mean ratio is at least this."""
    correction_high: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """`truncate`: the largest weight. `mask` keeps episodes whose mean ratio is at most this."""
    kl: Literal["none", "k1", "k2", "k3", "k1+", "k3+", "k1x", "k3x"] = "none"
    """Estimator of the KL term to the policy at the start of learning; `k1` in the reward, the others in the loss."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Where the KL term acts: on the tokens of an update, or as a cost of what a step leads to."""
    kl_coef: NotNegative = 0.01
    entropy_coef: NotNegative = 0.0
    averaging: Literal["token", "episode", "constant"] = "token"
    constant: Positive | None = None
    """Tokens that `constant` averaging divides by."""
    old_logprobs: Literal["detached", "trainer", "sampler"] = "detached"
    """Denominator of the ratio. One update on a batch needs none (detached); more need the trainer's."""
    epochs: Count = 1
    minibatches: Count = 1
    overlong_limit: Count | None = None
    """Sampled tokens of an episode at which its outcome loses all of `overlong_penalty`; None is off."""
    overlong_buffer: Count = 4096
    """Tokens before `overlong_limit` over which the loss grows from 0."""
    overlong_penalty: Positive = 1.0

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Settings that exclude each other, or that nothing would read."""
        if self.kl == "k1" and self.kl_in == "loss":
            raise ValueError("loss.kl is 'k1', whose gradient is 0 on average as a loss; set loss.kl_in to 'reward', or loss.kl to 'k2'")
        if self.kl_in == "reward" and self.kl not in ("k1", "none"):
            raise ValueError(f"loss.kl is {self.kl!r} in the reward; there only 'k1' has the gradient of the KL divergence")
        if self.kl_in == "reward" and self.kl == "none":
            raise ValueError("loss.kl_in is 'reward' and loss.kl 'none'; set loss.kl to 'k1'")
        if self.dual_clip is not None and self.surrogate != "clip":
            raise ValueError(f"loss.dual_clip goes with loss.surrogate 'clip'; {self.surrogate!r} has none")
        if self.surrogate == "reinforce" and self.ratio != "token":
            raise ValueError(f"loss.ratio is {self.ratio!r}, but loss.surrogate 'reinforce' uses no ratio")
        if self.correction != "none" and self.old_logprobs == "sampler":
            raise ValueError("loss.correction weighs the trainer's old log-probs against the sampler's; set loss.old_logprobs to 'trainer'")
        if self.overlong_limit is not None and self.overlong_buffer > self.overlong_limit:
            raise ValueError(
                f"loss.overlong_buffer is {self.overlong_buffer} and loss.overlong_limit {self.overlong_limit}; at most the limit"
            )
        check_read(self, "loss", _READ_BY)
        return self


_KL = ("k1", "k2", "k3", "k1+", "k3+", "k1x", "k3x")
_READ_BY: tuple[Unread, ...] = (
    ("kl_coef", "kl", _KL),
    ("clip_low", "surrogate", ("clip", "cispo")),
    ("clip_high", "surrogate", ("clip", "cispo")),
    ("pooling", "ratio", ("step", "episode")),
    ("constant", "averaging", ("constant",)),
    ("correction_low", "correction", ("mask",)),
    ("correction_high", "correction", ("truncate", "mask")),
)


class ShapingConfig(Settings):
    """Step rewards between the judge and the credit rule, in the order of these settings; by default they are left alone."""

    weights: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """Component -> its weights at the first turn and at the last (EVO-RAG); one that is not named keeps weight 1."""
    potential: bool = False
    """What the judge says is the value of the state after a step, and its change is the reward: the optimal policy stays what it was."""
    discount: Share = 1.0
    """Of potentials."""
    normalise: Literal["none", "batch", "running"] = "none"
    """Division by the root mean square over steps: of the batch, or over the run so far."""
    clip: Positive | None = None
    """Bound of a step's reward, in size."""
    horizon: Literal["none", "mean", "reference"] = "none"
    """`mean`: divided by the number of steps; `reference`: multiplied by min(1, reference / steps)."""
    reference: Count = 5
    """Steps, for `horizon: reference`."""
    cap: Positive | None = None
    """Bound of an episode's sum, in size. Below 1/2, with outcomes 0 and 1, no failed episode gets more than one that succeeds."""

    @model_validator(mode="after")
    def _reference_is_read(self) -> Self:
        check_read(self, "shaping", (("reference", "horizon", ("reference",)),))
        return self

    @property
    def is_on(self) -> bool:
        """Whether anything is shaped."""
        return bool(self.weights or self.potential or self.clip or self.cap or self.normalise != "none" or self.horizon != "none")


class CloningConfig(Settings):
    """The warm start: learning from demonstrations."""

    steps: Annotated[int, Field(ge=0)] = 0
    """0 is no warm start."""
    batch: Count = 8
    """Demonstrations of a step."""
    demonstrations: str = "expert"
    """`expert` is the domain's scripted one; otherwise a JSONL file of `{"task": key, "actions": [text, ...]}`."""
    optimizer: CloningOptimizerConfig = CloningOptimizerConfig()


class _CurriculumSettings(Settings):
    difficulty: Difficulties | None = None
    """Range of training tasks; None is the domain's."""
    admit: Literal["all", "mixed", "accuracy"] = "all"
    """Which groups may train: `mixed` (DAPO) those of which some episodes succeed and some do not; `accuracy` (PRIME) those whose success
    is in the range."""
    accuracy: tuple[Share, Share] = (0.2, 0.8)
    """The range of `admit: accuracy`."""
    flat: Literal["stop", "take"] = "stop"
    """Where the draw budget is spent and too few groups may train: stop with a message, or take refused ones."""


class UniformConfig(_CurriculumSettings):
    """Tasks of uniformly drawn difficulty."""

    kind: Literal["uniform"] = "uniform"


class _BinSettings(_CurriculumSettings):
    bins: Annotated[int, Field(ge=2)] = 10
    """Bins of difficulty whose success is followed."""
    keep: Annotated[float, Field(gt=0, le=1)] = 0.9
    """What a step leaves of the counts that success is estimated from."""


class EntropyCurriculumConfig(_BinSettings):
    """Discovery, refinement, mastery, by the entropy of success."""

    kind: Literal["entropy"] = "entropy"
    gamma: Positive = 4.0
    """Refinement draws a bin by the entropy of its success to this power."""
    visits: Count = 4
    """Groups that discovery plays of every bin, at least."""
    patience: Count = 3
    """Steps without a rise of the mean entropy that end discovery."""
    edge: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Share of the range that counts as its end: where success there is 0.8, mastery begins."""
    rehearsal: Decay = 0.2
    """Share of draws that mastery takes from what is mastered."""
    drop: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Fall of success in mastered bins that ends mastery."""
    target: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Expected success of what is drawn."""


class ZoneConfig(_BinSettings):
    """A generator that moves to where success is one half (GenEnv)."""

    kind: Literal["zone"] = "zone"
    beta: Positive = 20.0
    """Sharpness of its reward exp(-beta (p - centre)^2)."""
    kl: Positive = 0.15
    """Price of leaving the uniform distribution; smaller is narrower."""
    rate: Annotated[float, Field(gt=0, le=1)] = 0.5
    """How far a step moves it."""
    centre: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """The success that is aimed at."""


class PoolsConfig(_CurriculumSettings):
    """A fixed number of tasks, of which those are asked whose success is in a range, and new ones."""

    kind: Literal["pools"] = "pools"
    size: Count = 512
    """Tasks in all."""
    again: Annotated[int, Field(ge=0)] = 50
    """Steps that a task outside the range rests; 0 is for good."""


CurriculumConfig = Annotated[
    Annotated[UniformConfig, Tag("uniform")]
    | Annotated[EntropyCurriculumConfig, Tag("entropy")]
    | Annotated[ZoneConfig, Tag("zone")]
    | Annotated[PoolsConfig, Tag("pools")]
    | Annotated[CustomConfig, Tag(CUSTOM)],
    Discriminator(kind_of),
]
