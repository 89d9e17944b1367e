"""A whole run as one tree."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from stepwell.config.alarms import AlarmsConfig
from stepwell.config.credits import (
    CounterfactualCredit,
    CreditConfig,
    GAECredit,
    GroupCredit,
    InterruptedCredit,
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
from stepwell.config.domains import DomainConfig, QuestionsConfig, ShopConfig
from stepwell.config.engines import ChatConfig, EngineConfig, OptimizerConfig, RemoteEngineConfig, TinyEngineConfig
from stepwell.config.inverse import InverseConfig
from stepwell.config.learned import ImplicitConfig
from stepwell.config.learning import CloningConfig, CurriculumConfig, LossConfig, RolloutConfig, ShapingConfig, UniformConfig
from stepwell.config.rewards import RewardConfig, each_judge, says_confidence
from stepwell.config.settings import Count, CustomConfig, Settings, folder_name

__all__ = [
    "CheckpointConfig",
    "Config",
    "EvaluationConfig",
    "TrackingConfig",
]


_READS_POLICY = ("soft_q", "entropy", "intrinsic")
"""Judges that ask the policy's present weights about what it has said."""


def _reads_policy(judge: Settings) -> bool:
    """Whether it asks the policy that has played about what was said, as a moving reference and AIRL's logit do."""
    if isinstance(judge, InverseConfig):
        return judge.logit == "airl" or judge.reference == "moving"
    if isinstance(judge, ImplicitConfig):
        return judge.reference == "moving"
    return getattr(judge, "kind", "") in _READS_POLICY


class EvaluationConfig(Settings):
    """Success on tasks that are not trained on."""

    every: Annotated[int, Field(ge=0)] = 0
    """Steps between evaluations on the validation tasks, which choose the best checkpoint; 0 is none."""
    episodes: Count = 200
    """Held-out tasks before and after."""
    during: Count = 100
    """Validation tasks during training."""
    how: Literal["both", "sampled"] = "both"
    """During training: at temperature 1 and greedily, or at temperature 1 alone, by which the best checkpoint is chosen."""


class CheckpointConfig(Settings):
    """When to save."""

    every: Count = 25
    """Steps between checkpoints; the last step is always saved."""
    keep: Count = 2


class TrackingConfig(Settings):
    """What is written down, and where else."""

    episodes_every: Annotated[int, Field(ge=0)] = 1
    """Steps between records of all training episodes; 0 is none."""
    tensorboard: bool = False
    wandb: str | None = None
    """Project."""


class Config(Settings):
    """A whole run."""

    name: Annotated[str, AfterValidator(folder_name)] = "run"
    seed: int = 0
    steps: Annotated[int, Field(ge=0)] = 200
    """Steps of reinforcement learning, after the warm start."""
    domain: DomainConfig = ShopConfig()
    engine: EngineConfig = TinyEngineConfig()
    chat: ChatConfig = ChatConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = ImplicitConfig()
    credit: CreditConfig = IStarCredit()
    interrupted_credit: InterruptedCredit = InterruptedCredit()
    shaping: ShapingConfig = ShapingConfig()
    loss: LossConfig = LossConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    cloning: CloningConfig = CloningConfig()
    curriculum: CurriculumConfig = UniformConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    tracking: TrackingConfig = TrackingConfig()
    alarms: AlarmsConfig = AlarmsConfig()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Settings that exclude each other."""
        groups = self.rollout.groups
        self._check_credit()
        self._check_shaping()
        self._check_ahead()
        self._check_interrupted()
        self._check_alarms()
        updates = self.loss.epochs * self.loss.minibatches
        if updates > 1 and self.loss.old_logprobs == "detached":
            raise ValueError(f"loss.old_logprobs is 'detached' with {updates} updates on a batch; set it to 'trainer' (or 'sampler')")
        if self.loss.minibatches > groups:
            raise ValueError(
                f"loss.minibatches is {self.loss.minibatches} and rollout.groups {groups}; a minibatch holds at least one group"
            )
        if (self.loss.averaging == "constant") != (self.loss.constant is not None):
            raise ValueError("loss.constant goes with loss.averaging 'constant': set both or neither")
        for setting, judge in each_judge(self.reward).items():
            model, policy = getattr(judge, "model", "head"), self.engine.policy
            if model != "head" and (model == "lora") != (policy == "lora"):
                raise ValueError(
                    f"{setting}.model is {model!r} and engine.policy {policy!r}; adapters need a frozen base: both lora, or both full"
                )
        return self

    def _check_shaping(self) -> None:
        """Whether there are step rewards to shape, and a credit rule that reads them."""
        deaf = isinstance(self.credit, GroupCredit | ReinforcePPBaselineCredit | SuffixCredit | CounterfactualCredit)
        if self.shaping.is_on and (self.reward.kind == "outcome" or deaf):
            raise ValueError(
                f"shaping changes step rewards, and with reward {self.reward.kind!r} and credit {self.credit.kind!r} nothing reads any; "
                "leave shaping out, or choose a reward and a credit rule of steps, such as 'implicit' and 'istar'"
            )

    def _check_ahead(self) -> None:
        """Whether what is sampled ahead is sampled elsewhere, and corrected for."""
        if not self.rollout.ahead:
            return
        if not isinstance(self.engine, RemoteEngineConfig):
            raise ValueError(
                f"rollout.ahead is true and engine.kind {self.engine.kind!r}, where sampling and learning share the weights and the cores; "
                "leave it out, or use engine.kind=remote"
            )
        loss = self.loss
        if loss.old_logprobs == "detached" or (loss.old_logprobs == "trainer" and loss.correction == "none"):
            raise ValueError(
                f"rollout.ahead is true and loss.old_logprobs {loss.old_logprobs!r}, by which samples of older weights count as samples of "
                "the present ones; set it to 'sampler', or to 'trainer' with loss.correction=truncate (or mask)"
            )
        judges = each_judge(self.reward)
        reads = [name for name, judge in judges.items() if _reads_policy(judge)]
        if reads:
            raise ValueError(
                f"rollout.ahead is true, and the judge {judges[reads[0]].kind!r} ({reads[0]}) asks the policy that has played, which has "
                "moved on by then; choose one that does not, such as 'implicit' with reference=frozen"
            )
        learns_from = [name for name, judge in judges.items() if isinstance(judge, InverseConfig) and judge.demonstrations != "none"]
        if learns_from:
            raise ValueError(
                f"rollout.ahead is true, and the judge 'inverse' ({learns_from[0]}) plays demonstrations in the domain, where the next "
                f"batch is sampled meanwhile; set {learns_from[0]}.demonstrations=none, so that it learns from the policy's own successes"
            )
        playing = isinstance(self.credit, CounterfactualCredit) or self.interrupted_credit.kind == "counterfactual"
        if playing or any(judge.kind == "montecarlo" for judge in judges.values()):
            raise ValueError(
                "rollout.ahead is true with a judge or a credit rule that plays episodes of its own meanwhile; leave one of the two out"
            )

    def _check_interrupted(self) -> None:
        """Whether anything happens around which credit could change, and whether the rule tells an outcome part."""
        kind, credit = self.interrupted_credit.kind, self.credit
        if kind == "none":
            return
        named = getattr(credit, "baseline", credit.kind)
        if isinstance(self.domain, QuestionsConfig | CustomConfig) or not self.domain.interruptions.kinds:
            raise ValueError(
                f"interrupted_credit.kind is {kind!r}, and nothing happens in this domain; name what may happen in "
                "domain.interruptions.kinds, or set interrupted_credit.kind to 'none'"
            )
        if "train" not in self.domain.interruptions.splits:
            raise ValueError(
                f"interrupted_credit.kind is {kind!r}, and nothing happens to training tasks, as domain.interruptions.splits is "
                f"{list(self.domain.interruptions.splits)}; add 'train' to it, or set interrupted_credit.kind to 'none'"
            )
        if isinstance(credit, GAECredit | ReinforcePPCredit) or named == "none":
            raise ValueError(
                f"interrupted_credit.kind is {kind!r}, which changes the outcome's part of credit, and credit {credit.kind!r} tells none "
                "(or leaves it out: baseline 'none'); choose a rule that compares outcomes, such as 'istar'"
            )
        if kind == "counterfactual" and (named not in ("rloo", "drgrpo", "raw") or getattr(credit, "scale", "group") != "group"):
            raise ValueError(
                f"interrupted_credit.kind is 'counterfactual' and credit {credit.kind!r} divides outcomes by a deviation, or whitens them; "
                "choose credit 'rloo' or 'drgrpo', or a rule with credit.baseline=rloo, drgrpo or raw"
            )
        if kind == "counterfactual" and (isinstance(self.reward, CustomConfig) or self.loss.overlong_limit is not None):
            raise ValueError(
                "interrupted_credit.kind is 'counterfactual', whose continuations are paid as the library's rewards pay, without a charge "
                "for length; choose a reward of the library, and leave loss.overlong_limit out"
            )

    def _check_alarms(self) -> None:
        """Whether there are step rewards to watch, and a process part to lower."""
        action = self.alarms.action
        deaf = isinstance(self.credit, GroupCredit | ReinforcePPBaselineCredit | SuffixCredit | CounterfactualCredit)
        if action != "none" and self.reward.kind == "outcome":
            raise ValueError(
                f"alarms.action is {action!r}, and reward 'outcome' pays no steps: there is no judge to exploit; "
                "leave alarms out, or choose a reward of steps such as 'implicit'"
            )
        if action in ("lower", "rollback") and (deaf or isinstance(self.credit, CustomConfig)):
            raise ValueError(
                f"alarms.action is {action!r}, which weighs the process part of credit, and credit {self.credit.kind!r} tells none; "
                "set alarms.action to 'log' or 'stop', or choose a credit rule of steps such as 'istar'"
            )
        if action == "rollback" and not self.evaluation.every:
            raise ValueError(
                "alarms.action is 'rollback' and evaluation.every 0, so that no checkpoint is the best; set evaluation.every to 1 or more"
            )

    def _check_credit(self) -> None:
        """Whether the rule has something to compare with, and the rewards that it is made of."""
        credit, reward, size = self.credit, self.reward.kind, self.rollout.group_size
        if size < 2 and {credit.kind, getattr(credit, "baseline", "")} & {"rloo", "process_to_go", "prime", "repirl", "min_form"}:
            raise ValueError(f"rollout.group_size is {size}; credit {credit.kind!r} leaves one out and needs at least 2")
        if size < 2 and not isinstance(credit, ReinforcePPCredit | GAECredit | CustomConfig) and getattr(credit, "baseline", "") != "raw":
            raise ValueError(
                f"rollout.group_size is {size}; a group of one has nothing to be compared with: at least 2, credit 'reinforce_pp' "
                "or 'gae', or a credit rule of your own"
            )
        reads = isinstance(credit, PrimeCredit | RePIRLCredit | MinFormCredit | ProcessSupervisionCredit | ProcessToGoCredit)
        if reward == "outcome" and (reads or getattr(credit, "pays", "outcome") != "outcome"):
            raise ValueError(
                f"credit.kind is {credit.kind!r}, which reads step rewards, and reward 'outcome' gives none; "
                "choose another reward, or a credit rule of outcomes such as 'grpo'"
            )
        if reward == "outcome" and isinstance(credit, GAECredit) and credit.alpha and not credit.outcome_weight:
            raise ValueError(
                "credit.outcome_weight is 0, and reward 'outcome' gives no step rewards: nothing would be paid; "
                "set credit.outcome_weight to 1, or choose another reward"
            )
        if getattr(credit, "mix", "fixed") == "adaptive" and not says_confidence(self.reward):
            raise ValueError(
                f"credit.mix is 'adaptive', and reward {reward!r} does not say how far it can be trusted; "
                "set credit.mix to 'fixed', or choose a judge that learns (reward.kind=implicit)"
            )
        if isinstance(credit, CounterfactualCredit) and isinstance(self.reward, CustomConfig):
            raise ValueError(
                f"credit.kind is 'counterfactual', and reward {reward!r} is your own: what the end of a replay is paid is not known; "
                "choose a reward of the library"
            )
        if isinstance(credit, CounterfactualCredit) and self.loss.overlong_limit is not None:
            raise ValueError(
                f"loss.overlong_limit is {self.loss.overlong_limit} with credit 'counterfactual', whose replays are not charged; "
                "leave it out, or choose another credit rule"
            )
        if getattr(credit, "level", "turn") == "token" and any(
            isinstance(judge, CustomConfig) for judge in each_judge(self.reward).values()
        ):
            raise ValueError(
                f"credit.level is 'token', but reward {reward!r} is your own and cuts its steps itself; "
                "cut them by token there, and leave credit.level at 'turn'"
            )
