"""What is played, and how it is learnt from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from stepwell.config.engines import CloningOptimizerConfig
from stepwell.config.settings import CUSTOM, Count, CustomConfig, Difficulties, NotNegative, Positive, Settings, Share, kind_of

__all__ = [
    "CloningConfig",
    "CurriculumConfig",
    "LossConfig",
    "RolloutConfig",
    "UniformConfig",
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
    draw_budget: Count = 4
    """Groups that may be drawn to find `groups` that may train, as a multiple."""
    wall_s: Positive | None = None
    """Seconds of an episode, at most. A run with a limit is not exactly repeatable."""


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
    Discriminator(kind_of),
]
