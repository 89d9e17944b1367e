"""Who judges the steps."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Tag

from stepwell.config.judges import MonteCarloConfig
from stepwell.config.learned import EnvironmentRewardConfig, ImplicitConfig, OutcomeRewardConfig
from stepwell.config.mixtures import AnyJudge, JudgeConfig, MixtureConfig
from stepwell.config.settings import kind_of

__all__ = [
    "EnvironmentRewardConfig",
    "ImplicitConfig",
    "OutcomeRewardConfig",
    "RewardConfig",
    "each_judge",
    "says_confidence",
]


RewardConfig = Annotated[
    Annotated[OutcomeRewardConfig, Tag("outcome")] | AnyJudge | Annotated[MixtureConfig, Tag("mixture")], Discriminator(kind_of)
]


def each_judge(reward: RewardConfig) -> dict[str, RewardConfig | JudgeConfig]:
    """The judges of a mixture by setting (`reward.judges.NAME`), or the reward itself (`reward`)."""
    if isinstance(reward, MixtureConfig):
        return {f"reward.judges.{name}": judge for name, judge in reward.judges.items()}
    return {"reward": reward}


def says_confidence(reward: RewardConfig) -> bool:
    """Whether a reward says how far it can be trusted; one of the user's own may."""
    estimates = isinstance(reward, MonteCarloConfig) and reward.judge == "none"
    return reward.kind not in ("outcome", "environment", "entropy", "intrinsic") and not estimates
