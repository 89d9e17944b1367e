"""The outcome, the environment's own rewards, and the implicit judge."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stepwell.config.settings import NotNegative, Positive, Settings

__all__ = ["EnvironmentRewardConfig", "ImplicitConfig", "OutcomeRewardConfig"]


class OutcomeRewardConfig(Settings):
    """The end alone is paid."""

    kind: Literal["outcome"] = "outcome"
    pay: Literal["success", "score"] = "success"


class EnvironmentRewardConfig(Settings):
    """The environment's own reward of every step, or an oracle's."""

    kind: Literal["environment"] = "environment"
    pay: Literal["success", "score"] = "success"
    steps: Literal["reward", "progress"] = "reward"
    """`reward`: what the environment pays. `progress`: what the step changed in the domain's own measure of how far the task is done, which
    sees all that no player can; a ceiling for judges (generated shops)."""
    invalid_penalty: NotNegative = 0.0

    @model_validator(mode="after")
    def _penalty_is_of_rewards(self) -> Self:
        if self.steps == "progress" and self.invalid_penalty:
            raise ValueError(
                f"reward.invalid_penalty is {self.invalid_penalty} with reward.steps=progress, which charges wasted turns by itself; "
                "set it to 0, or reward.steps to 'reward'"
            )
        return self


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
