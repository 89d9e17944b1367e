"""The outcome, the environment's own rewards, and the implicit judge."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stepwell.config.settings import NotNegative, Positive, Settings

__all__ = ["EnvironmentRewardConfig", "ImplicitConfig", "OutcomeRewardConfig"]


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
    """A language model whose log-ratio to a reference is the reward of a step (iStar, PRIME)."""

    kind: Literal["implicit"] = "implicit"
    pay: Literal["success", "score"] = "success"
    objective: Literal["preference", "cross_entropy"] = "preference"
    """`preference`: better episodes of a group against worse ones (iStar). `cross_entropy`: every outcome for itself (PRIME)."""
    unit: Literal["step", "episode"] = "step"
    """Who is paid: each step its own log-ratio, or the last one that of the episode. Tokens: `credit.level: token`."""
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
