"""Judges that are made of judges: several at once, or one that another run has trained."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from stepwell.config.inverse import InverseConfig
from stepwell.config.judges import EntropyConfig, IntrinsicConfig, LabelledConfig, MonteCarloConfig, SoftQConfig, TemporalConfig
from stepwell.config.learned import EnvironmentRewardConfig, ImplicitConfig
from stepwell.config.settings import CUSTOM, CustomConfig, Settings, kind_of

__all__ = ["AnyJudge", "JudgeConfig", "MixtureConfig", "TrainedConfig"]


class TrainedConfig(Settings):
    """The judge of another run, which reads the episodes as text and learns no more; its model and tokenizer may be others."""

    kind: Literal["trained"] = "trained"
    pay: Literal["success", "score"] = "success"
    run: Annotated[str, Field(min_length=1)]
    """The folder of the run: of `stepwell train-judge`, or of a training with a judge that reads text."""
    checkpoint: Literal["last", "best"] = "last"
    """The last one, or the best by evaluation."""


AnyJudge = (
    Annotated[EnvironmentRewardConfig, Tag("environment")]
    | Annotated[ImplicitConfig, Tag("implicit")]
    | Annotated[InverseConfig, Tag("inverse")]
    | Annotated[MonteCarloConfig, Tag("montecarlo")]
    | Annotated[TemporalConfig, Tag("temporal")]
    | Annotated[LabelledConfig, Tag("labelled")]
    | Annotated[SoftQConfig, Tag("soft_q")]
    | Annotated[EntropyConfig, Tag("entropy")]
    | Annotated[IntrinsicConfig, Tag("intrinsic")]
    | Annotated[TrainedConfig, Tag("trained")]
    | Annotated[CustomConfig, Tag(CUSTOM)]
)
"""Whatever may judge steps; a union that needs a discriminator."""
JudgeConfig = Annotated[AnyJudge, Discriminator(kind_of)]

Name = Annotated[str, Field(pattern=r"^[a-z][a-z_]*$")]
Weight = Annotated[float, Field(allow_inf_nan=False)]


class MixtureConfig(Settings):
    """Several judges at once: the reward of a step is the weighted sum of theirs."""

    kind: Literal["mixture"] = "mixture"
    pay: Literal["success", "score"] = "success"
    learn: Literal["before", "after"] = "after"
    """Whether the judges learn before or after they score a batch."""
    judges: Annotated[dict[Name, JudgeConfig], Field(min_length=1)]
    """By name, each with a kind and settings of its own; `pay` and `learn` are those of the mixture."""
    weights: Annotated[dict[str, Weight], Field(default_factory=dict)]
    """By name; 1 where none is given. A judge of weight 0 is measured and not paid."""

    @model_validator(mode="before")
    @classmethod
    def _hand_down(cls, tree: Any) -> Any:
        """The judges pay and learn as the mixture does."""
        if not isinstance(tree, dict) or not isinstance(tree.get("judges"), dict):
            return tree
        shared = {name: tree.get(name, cls.model_fields[name].default) for name in ("pay", "learn")}
        judges = {}
        for name, judge in tree["judges"].items():
            kind = kind_of(judge)
            names = () if kind == CUSTOM else ("pay", "learn") if kind in ("implicit", "inverse") else ("pay",)
            judges[name] = {**{one: shared[one] for one in names}, **judge} if isinstance(judge, dict) else judge
        return {**tree, "judges": judges}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for name, judge in self.judges.items():
            for setting in ("pay", "learn"):
                own, shared = getattr(judge, setting, getattr(self, setting)), getattr(self, setting)
                if own != shared:
                    raise ValueError(
                        f"reward.judges.{name}.{setting} is {own!r} and reward.{setting} {shared!r}; set it at reward.{setting} alone"
                    )
        unknown = sorted(set(self.weights) - set(self.judges))
        if unknown:
            raise ValueError(f"reward.weights names {unknown[0]!r}, which is no judge; judges are {', '.join(self.judges)}")
        if not any(self.weights.get(name, 1.0) for name in self.judges):
            raise ValueError("reward.weights are all 0: no judge would be paid; give one of them another weight")
        return self
