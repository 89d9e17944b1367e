"""Stepwell trains LLM agents and reasoners with process rewards: a reward for every step, learned together with the policy.

```python
config = stepwell.load("quick", ["seed=1"])
for step, metrics in stepwell.train(config, Path("runs/mine")):
    print(step, metrics["rollout/success"])
```

Names are imported when they are first used, so that `import stepwell` takes no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwell.build import build_domain
    from stepwell.config import Config
    from stepwell.configure import dump, load, load_domain, parse
    from stepwell.errors import (
        CapabilityError,
        ConfigError,
        ContractViolation,
        CreditError,
        DataError,
        EnvironmentFault,
        MissingExtraError,
        RecordError,
        RunError,
        StaleWeightsError,
        StepwellError,
    )
    from stepwell.evaluation.evaluate import Evaluation, evaluate, pass_at
    from stepwell.evaluation.intervals import Interval
    from stepwell.judge_evaluation import JudgeEvaluation, evaluate_judge
    from stepwell.protocols import (
        Assign,
        Curriculum,
        Domain,
        Engine,
        Environment,
        Loss,
        Model,
        ModelSpec,
        OptimizerSpec,
        Policy,
        ProcessReward,
        RewardLearner,
    )
    from stepwell.run import NothingLeftError, train
    from stepwell.scoring import OpenedJudge, StepScores, open_judge
    from stepwell.searching.search import search
    from stepwell.searching.settings import SearchSettings
    from stepwell.solutions import Solution, read_solutions
    from stepwell.teaching import teach
    from stepwell.trained import Trained, export, open_model, open_run
    from stepwell.trainer import Trainer
    from stepwell.types import (
        Action,
        Completion,
        Credited,
        Ending,
        EndingKind,
        Episode,
        Group,
        Invalid,
        Metrics,
        Observation,
        Outputs,
        Reply,
        Row,
        Sampling,
        Scored,
        Steps,
        Stop,
        Task,
        Tool,
        Turn,
        Verdict,
    )

__all__ = [
    "Action",
    "Assign",
    "CapabilityError",
    "Completion",
    "Config",
    "ConfigError",
    "ContractViolation",
    "CreditError",
    "Credited",
    "Curriculum",
    "DataError",
    "Domain",
    "Ending",
    "EndingKind",
    "Engine",
    "Environment",
    "EnvironmentFault",
    "Episode",
    "Evaluation",
    "Group",
    "Interval",
    "Invalid",
    "JudgeEvaluation",
    "Loss",
    "Metrics",
    "MissingExtraError",
    "Model",
    "ModelSpec",
    "NothingLeftError",
    "Observation",
    "OpenedJudge",
    "OptimizerSpec",
    "Outputs",
    "Policy",
    "ProcessReward",
    "RecordError",
    "Reply",
    "RewardLearner",
    "Row",
    "RunError",
    "Sampling",
    "Scored",
    "SearchSettings",
    "Solution",
    "StaleWeightsError",
    "StepScores",
    "Steps",
    "StepwellError",
    "Stop",
    "Task",
    "Tool",
    "Trained",
    "Trainer",
    "Turn",
    "Verdict",
    "build_domain",
    "dump",
    "evaluate",
    "evaluate_judge",
    "export",
    "load",
    "load_domain",
    "open_judge",
    "open_model",
    "open_run",
    "parse",
    "pass_at",
    "read_solutions",
    "search",
    "teach",
    "train",
]

__version__ = "0.1.0"

_MODULES = (
    "errors",
    "types",
    "protocols",
    "config",
    "configure",
    "evaluation.intervals",
    "evaluation.evaluate",
    "trainer",
    "build",
    "run",
    "trained",
    "solutions",
    "scoring",
    "searching.settings",
    "searching.search",
    "teaching",
    "judge_evaluation",
)
"""Where the names are, those without torch first."""


def __getattr__(name: str) -> object:
    if name in __all__:
        for module in map(importlib.import_module, (f"stepwell.{home}" for home in _MODULES)):
            if name in vars(module)["__all__"]:
                globals()[name] = vars(module)[name]
                return globals()[name]
    raise AttributeError(f"module 'stepwell' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
