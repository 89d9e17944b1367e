"""How rewards become advantages."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from stepwell.config.settings import CUSTOM, Count, CustomConfig, NotNegative, Positive, Settings, Share, kind_of

__all__ = [
    "CounterfactualCredit",
    "CreditConfig",
    "GAECredit",
    "GiGPOCredit",
    "GroupCredit",
    "IStarCredit",
    "InterruptedCredit",
    "MinFormCredit",
    "PrimeCredit",
    "ProcessSupervisionCredit",
    "ProcessToGoCredit",
    "RePIRLCredit",
    "ReinforcePPBaselineCredit",
    "ReinforcePPCredit",
    "SuffixCredit",
]


class InterruptedCredit(Settings):
    """What credit does around interruptions, after the rule; see `domain.interruptions`."""

    kind: Literal["none", "segment", "decay", "counterfactual"] = "none"
    """`decay`: the outcome counts `factor` times for steps before an event; `segment`: the same, and what is lost is given to the steps
    after; `counterfactual`: steps before it get what would have come without it, steps after what they made of it."""
    factor: Annotated[float, Field(gt=0, le=1)] = 0.5
    """For each event that is still to come; of `segment` and `decay`."""
    continuations: Count = 2
    """Of `counterfactual`: episodes played on without the event, and as many after it, for each interrupted one."""


Baseline = Literal["grpo", "drgrpo", "rloo", "raw"]
Level = Literal["turn", "token"]
Mix = Literal["fixed", "adaptive"]


class GroupCredit(Settings):
    """Every step gets its episode's advantage."""

    kind: Literal["grpo", "drgrpo", "rloo"] = "grpo"
    scale: Literal["group", "batch"] = "group"
    """`batch`: what `drgrpo` or `rloo` gives is divided by the standard deviation of all outcomes of the batch."""

    @model_validator(mode="after")
    def _divides_once(self) -> Self:
        if self.kind == "grpo" and self.scale == "batch":
            raise ValueError("credit.scale is 'batch' and credit.kind 'grpo', which divides by the group's deviation; use drgrpo or rloo")
        return self


class ReinforcePPCredit(Settings):
    """REINFORCE++: all rewards to come, whitened over the batch; no comparison within a group."""

    kind: Literal["reinforce_pp"] = "reinforce_pp"
    alpha: NotNegative = 1.0
    discount: Share = 1.0
    level: Level = "turn"


class ReinforcePPBaselineCredit(Settings):
    """REINFORCE++ with baseline: the outcome less its group's mean, whitened over the batch."""

    kind: Literal["reinforce_pp_baseline"] = "reinforce_pp_baseline"


class IStarCredit(Settings):
    """Episode advantage plus `alpha` x step advantage."""

    kind: Literal["istar"] = "istar"
    baseline: Baseline = "grpo"
    alpha: NotNegative = 1.0
    noise_floor: Positive = 1e-4
    """Added to the standard deviation of step rewards, in reward."""
    only_mixed: bool = True
    """Groups of equal outcomes get no process part."""
    mix: Mix = "fixed"
    level: Level = "turn"


class ProcessToGoCredit(Settings):
    """Episode advantage plus `alpha` x centred sum of the step rewards that are still to come."""

    kind: Literal["process_to_go"] = "process_to_go"
    baseline: Baseline | Literal["none"] = "rloo"
    """For the outcome; `none` where step rewards hold it already."""
    alpha: NotNegative = 1.0
    discount: Share = 1.0
    mix: Mix = "fixed"
    level: Level = "turn"


class ProcessSupervisionCredit(Settings):
    """DeepSeekMath's process supervision: standardised step rewards, summed to the end."""

    kind: Literal["process_supervision"] = "process_supervision"
    baseline: Baseline | Literal["none"] = "none"
    """For the outcome; `none` leaves it out, as the paper does."""
    alpha: NotNegative = 1.0
    noise_floor: Positive = 1e-4
    """Added to the standard deviation of step rewards, in reward."""
    mix: Mix = "fixed"
    level: Level = "turn"


class PrimeCredit(Settings):
    """PRIME: step rewards to come less what a step of the others earned on average, and RLOO of the outcome."""

    kind: Literal["prime"] = "prime"
    alpha: NotNegative = 1.0
    discount: Share = 1.0
    form: Literal["paper", "released"] = "paper"
    """Of the leave-one-out: the paper's, or that of the released code."""
    unit: Literal["reward", "largest_return"] = "reward"
    """`largest_return`: step rewards are divided by the largest sum to come of the batch, as released."""
    whiten: bool = True
    """Whether the advantages of a batch are centred and divided by their standard deviation, over tokens."""
    mix: Mix = "fixed"
    level: Level = "turn"


class RePIRLCredit(Settings):
    """rePIRL: sums to come, against those of the others that are still going at the same step."""

    kind: Literal["repirl"] = "repirl"
    alpha: NotNegative = 0.05
    discount: Share = 1.0
    alone: Literal["episode", "raw"] = "episode"
    """Who is still going alone is compared with the others' whole episodes, or with nothing, as released."""
    unit: Literal["reward", "largest_return"] = "reward"
    """`largest_return`: step rewards are divided by the largest sum to come of the batch, as released."""
    whiten: bool = True
    """Whether the advantages of a batch are centred and divided by their standard deviation, over tokens."""
    mix: Mix = "fixed"
    level: Level = "turn"


class GiGPOCredit(Settings):
    """GiGPO: episode advantage plus a comparison of turns that began in the same state."""

    kind: Literal["gigpo"] = "gigpo"
    baseline: Baseline = "grpo"
    alpha: NotNegative = 1.0
    step_baseline: Literal["grpo", "drgrpo", "rloo"] = "grpo"
    """What the returns of one state are compared with."""
    discount: Share = 0.95
    pays: Literal["outcome", "process", "both"] = "outcome"
    """What a return is made of."""


class MinFormCredit(Settings):
    """PURE: an episode is worth what its worst step is."""

    kind: Literal["min_form"] = "min_form"
    baseline: Baseline | Literal["none"] = "rloo"
    """For the outcome; `none` leaves it out."""
    alpha: NotNegative = 1.0
    temperature: NotNegative = 0.1
    """Of the smooth minimum, in units of reward; 0 is the minimum itself."""
    mix: Mix = "fixed"
    level: Level = "turn"


class SuffixCredit(Settings):
    """PRL and FRPO: episode advantage less `beta` x the log-ratio to the policy at the start that is still to come."""

    kind: Literal["suffix"] = "suffix"
    baseline: Baseline = "grpo"
    beta: NotNegative = 0.01
    """Price of a nat."""
    since: Literal["first", "last"] = "first"
    """Token of the step from which is summed; `last` is PRL's released form."""
    level: Level = "turn"


class CounterfactualCredit(Settings):
    """Episode advantage plus `alpha` x what the outcome loses when the turn is left out of a replay."""

    kind: Literal["counterfactual"] = "counterfactual"
    baseline: Baseline = "grpo"
    alpha: NotNegative = 1.0


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
    """Whether the advantages of a batch's tokens are centred and divided by their standard deviation."""
    truncated: Literal["bootstrap", "graded"] = "bootstrap"
    """What an episode is that was cut from outside: one that goes on as the critic expects, or one that is over as it stands."""
    critic: Literal["own", "shared"] = "own"
    """A second model (an adapter where the policy is one), or a scalar on the policy's hidden states without gradient into them."""
    lr: Positive | None = None
    """Of the critic; None is four times the policy's at its highest."""
    updates: Count = 2
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
    | Annotated[ProcessSupervisionCredit, Tag("process_supervision")]
    | Annotated[ReinforcePPCredit, Tag("reinforce_pp")]
    | Annotated[ReinforcePPBaselineCredit, Tag("reinforce_pp_baseline")]
    | Annotated[PrimeCredit, Tag("prime")]
    | Annotated[RePIRLCredit, Tag("repirl")]
    | Annotated[GiGPOCredit, Tag("gigpo")]
    | Annotated[MinFormCredit, Tag("min_form")]
    | Annotated[SuffixCredit, Tag("suffix")]
    | Annotated[CounterfactualCredit, Tag("counterfactual")]
    | Annotated[GAECredit, Tag("gae")]
    | Annotated[CustomConfig, Tag(CUSTOM)],
    Discriminator(kind_of),
]
