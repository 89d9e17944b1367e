"""How rewards become advantages."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Tag

from stepwell.config.settings import CUSTOM, Count, CustomConfig, NotNegative, Positive, Settings, Share, kind_of

__all__ = [
    "CreditConfig",
    "GAECredit",
    "GroupCredit",
    "IStarCredit",
    "ProcessToGoCredit",
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


class GAECredit(Settings):
    """PPO: what a step earned against what a critic expected, by generalised advantage estimation."""

    kind: Literal["gae"] = "gae"
    level: Literal["turn", "token"] = "turn"
    """What a step is, to the reward and to the critic; a reward of your own cuts its steps itself."""
    discount: Share = 1.0
    lam: Share = 1.0
    """How far rewards are trusted (1: unbiased whatever the critic says) or the critic (0: less variance)."""
    outcome_weight: NotNegative = 1.0
    """Of the outcome; 0 where step rewards hold it already."""
    alpha: NotNegative = 1.0
    whiten: bool = True
    """Whether the advantages of a batch are centred and divided by their standard deviation."""
    truncated: Literal["bootstrap", "graded"] = "bootstrap"
    """What an episode is that was cut from outside: one that goes on as the critic expects, or one that is over as it stands."""
    critic: Literal["own", "shared"] = "own"
    """A second model (an adapter where the policy is one), or a scalar on the policy's hidden states without gradient into them."""
    lr: Positive | None = None
    """Of the critic; None is the policy's at its highest."""
    updates: Count = 1
    """Gradient steps of the critic on each batch."""
    clip: Positive | None = 0.2
    """How far a value may move on one batch, in units of reward; None is no clip."""
    max_grad_norm: Positive = 1.0


CreditConfig = Annotated[
    Annotated[GroupCredit, Tag("grpo")]
    | Annotated[GroupCredit, Tag("drgrpo")]
    | Annotated[GroupCredit, Tag("rloo")]
    | Annotated[IStarCredit, Tag("istar")]
    | Annotated[ProcessToGoCredit, Tag("process_to_go")]
    | Annotated[GAECredit, Tag("gae")]
    | Annotated[CustomConfig, Tag(CUSTOM)],
    Discriminator(kind_of),
]
