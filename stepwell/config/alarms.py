"""What looks for reward hacking, and what happens where it is found."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stepwell.config.settings import Settings

__all__ = ["AlarmsConfig"]

_Inside = Annotated[float, Field(gt=0, lt=1)]


class AlarmsConfig(Settings):
    """Alarms for reward hacking."""

    action: Literal["none", "log", "lower", "rollback", "stop"] = "none"
    """`none`: nothing is watched; `log`: alarms are in metrics and report; `lower`: the process part of credit weighs less from then on;
    `rollback`: the weights of the best checkpoint are taken back, and the process part weighs less; `stop`: the run ends there."""
    factor: Annotated[float, Field(ge=0, le=1)] = 0.5
    """What an alarm leaves of the weight of the process part, under `lower` and `rollback`."""
    window: Annotated[int, Field(ge=3)] = 10
    """Steps of a window; detectors compare the last with the one before it."""
    rate: _Inside = 1e-4
    """Probability of chance below which a detector looks further, at each check."""
    probes: Annotated[int, Field(ge=0)] = 0
    """Successful episodes a step that the judge is asked about again with their turns shuffled and without their last turn; 0 is none."""
    detectors: tuple[str, ...] = ()
    """Which are asked; none named is all of them."""
