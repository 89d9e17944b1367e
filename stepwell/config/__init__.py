"""What a run is made of, as one frozen tree of settings.

A choice has a `kind`; `kind: package.module:Name` is a class of your own, called with `options`. Every default is here.
`configure.load` turns YAML and `key=value` arguments into a `Config`, or says which key is wrong, what was got and what is allowed.
"""

from stepwell.config.credits import (
    CounterfactualCredit,
    CreditConfig,
    GAECredit,
    GiGPOCredit,
    GroupCredit,
    IStarCredit,
    MinFormCredit,
    PrimeCredit,
    ProcessSupervisionCredit,
    ProcessToGoCredit,
    ReinforcePPBaselineCredit,
    ReinforcePPCredit,
    RePIRLCredit,
    SuffixCredit,
)
from stepwell.config.domains import (
    AxesConfig,
    BasketConfig,
    CaveConfig,
    DomainConfig,
    InterruptionsConfig,
    MazeConfig,
    ShopConfig,
    WebShopConfig,
)
from stepwell.config.engines import (
    ChatConfig,
    CloningOptimizerConfig,
    EngineConfig,
    LocalEngineConfig,
    OptimizerConfig,
    RemoteEngineConfig,
    TinyEngineConfig,
)
from stepwell.config.inverse import InverseConfig
from stepwell.config.judges import (
    EntropyConfig,
    FittedSettings,
    HeadSettings,
    IntrinsicConfig,
    LabelledConfig,
    MonteCarloConfig,
    SoftQConfig,
    TemporalConfig,
)
from stepwell.config.learned import EnvironmentRewardConfig, ImplicitConfig, OutcomeRewardConfig
from stepwell.config.learning import CloningConfig, CurriculumConfig, LossConfig, RolloutConfig, UniformConfig
from stepwell.config.mixtures import JudgeConfig, MixtureConfig, TrainedConfig
from stepwell.config.rewards import RewardConfig, each_judge, says_confidence
from stepwell.config.run import CheckpointConfig, Config, EvaluationConfig, TrackingConfig
from stepwell.config.settings import CUSTOM, CustomConfig

__all__ = [
    "CUSTOM",
    "AxesConfig",
    "BasketConfig",
    "CaveConfig",
    "ChatConfig",
    "CheckpointConfig",
    "CloningConfig",
    "CloningOptimizerConfig",
    "Config",
    "CounterfactualCredit",
    "CreditConfig",
    "CurriculumConfig",
    "CustomConfig",
    "DomainConfig",
    "EngineConfig",
    "EntropyConfig",
    "EnvironmentRewardConfig",
    "EvaluationConfig",
    "FittedSettings",
    "GAECredit",
    "GiGPOCredit",
    "GroupCredit",
    "HeadSettings",
    "IStarCredit",
    "ImplicitConfig",
    "InterruptionsConfig",
    "IntrinsicConfig",
    "InverseConfig",
    "JudgeConfig",
    "LabelledConfig",
    "LocalEngineConfig",
    "LossConfig",
    "MazeConfig",
    "MinFormCredit",
    "MixtureConfig",
    "MonteCarloConfig",
    "OptimizerConfig",
    "OutcomeRewardConfig",
    "PrimeCredit",
    "ProcessSupervisionCredit",
    "ProcessToGoCredit",
    "RePIRLCredit",
    "ReinforcePPBaselineCredit",
    "ReinforcePPCredit",
    "RemoteEngineConfig",
    "RewardConfig",
    "RolloutConfig",
    "ShopConfig",
    "SoftQConfig",
    "SuffixCredit",
    "TemporalConfig",
    "TinyEngineConfig",
    "TrackingConfig",
    "TrainedConfig",
    "UniformConfig",
    "WebShopConfig",
    "each_judge",
    "says_confidence",
]
