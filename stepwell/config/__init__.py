"""What a run is made of, as one frozen tree of settings.

A choice has a `kind`; `kind: package.module:Name` is a class of your own, called with `options`. Every default is here.
`configure.load` turns YAML and `key=value` arguments into a `Config`, or says which key is wrong, what was got and what is allowed.
"""

from stepwell.config.credits import CreditConfig, GAECredit, GroupCredit, IStarCredit, ProcessToGoCredit
from stepwell.config.domains import CaveConfig, DomainConfig, MazeConfig, ShopConfig, WebShopConfig
from stepwell.config.engines import ChatConfig, CloningOptimizerConfig, EngineConfig, LocalEngineConfig, OptimizerConfig, TinyEngineConfig
from stepwell.config.learning import CloningConfig, CurriculumConfig, LossConfig, RolloutConfig, UniformConfig
from stepwell.config.rewards import EnvironmentRewardConfig, ImplicitConfig, OutcomeRewardConfig, RewardConfig
from stepwell.config.run import CheckpointConfig, Config, EvaluationConfig, TrackingConfig
from stepwell.config.settings import CUSTOM, CustomConfig

__all__ = [
    "CUSTOM",
    "CaveConfig",
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
    "GAECredit",
    "GroupCredit",
    "IStarCredit",
    "ImplicitConfig",
    "LocalEngineConfig",
    "LossConfig",
    "MazeConfig",
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
