"""How rewards become advantages."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Tag

from stepwell.config.settings import CUSTOM, CustomConfig, NotNegative, Positive, Settings, Share, kind_of

__all__ = [
    "CreditConfig",
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


CreditConfig = Annotated[
    Annotated[GroupCredit, Tag("grpo")]
    | Annotated[GroupCredit, Tag("drgrpo")]
    | Annotated[GroupCredit, Tag("rloo")]
    | Annotated[IStarCredit, Tag("istar")]
    | Annotated[ProcessToGoCredit, Tag("process_to_go")]
    | Annotated[CustomConfig, Tag(CUSTOM)],
    Discriminator(kind_of),
]
