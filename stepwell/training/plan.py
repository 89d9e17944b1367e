"""What a trainer is told: its parts, the warm start, and how the policy learns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from stepwell.credit import Around
from stepwell.credit.reshape import Shaping
from stepwell.credit.shaping import Overlong
from stepwell.errors import ConfigError
from stepwell.losses import Averaging, PolicyLoss
from stepwell.protocols import Assign, Curriculum, Domain, KeptPolicy, Model, OptimizerSpec, ProcessReward, RewardLearner
from stepwell.rollout import Player
from stepwell.types import Episode

__all__ = ["Cloning", "Learning", "Parts", "Schedule", "never"]


def never(step: int) -> bool:
    """At no step."""
    return False


@dataclass(frozen=True, slots=True)
class Schedule:
    """Learning rate over steps: linear warm-up, then constant, linear or cosine decay to `floor` x lr."""

    lr: float
    warmup: int = 0
    decay: Literal["constant", "linear", "cosine"] = "constant"
    floor: float = 0.0

    def at(self, step: int, steps: int) -> float:
        """Rate of 0-based `step` of `steps`."""
        rising = min(1.0, (step + 1) / (self.warmup + 1))
        done = step / max(steps, 1)
        left = {"constant": 1.0, "linear": 1.0 - done, "cosine": 0.5 * (1.0 + math.cos(math.pi * done))}[self.decay]
        return self.lr * rising * (self.floor + (1.0 - self.floor) * left)


@dataclass(frozen=True, slots=True)
class Cloning:
    """The warm start: `batch` demonstrations a step."""

    steps: int
    batch: int
    schedule: Schedule
    optimizer: OptimizerSpec
    demonstration: Callable[[int], Episode]
    """The n-th demonstration of the run."""


@dataclass(frozen=True, slots=True)
class Learning:
    """How the policy learns.

    Attributes:
        steps: Steps of reinforcement learning.
        groups, group_size: Of a step.
        draw_budget: Groups that may be drawn to find `groups` that the curriculum admits, as a multiple of `groups`.
        averaging, constant: See `losses.token_weights`.
        old_logprobs: `detached`: the ratio is 1 by construction; `trainer`: recomputed before the first update; `sampler`: as sampled.
        epochs, minibatches: Updates on one batch; minibatches are cut between groups.
        learn: Whether the judge learns before or after it scores; before the policy's update in either case.
        kl_in_reward: Weight of `credit.shaping.charge_kl`; None is off, and no reference is needed for it.
        overlong: Costs of length that the outcome is charged with; None is off.
    """

    steps: int
    groups: int
    group_size: int
    loss: PolicyLoss
    schedule: Schedule
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    averaging: Averaging = "token"
    constant: float | None = None
    old_logprobs: Literal["detached", "trainer", "sampler"] = "detached"
    epochs: int = 1
    minibatches: int = 1
    draw_budget: int = 4
    learn: Literal["before", "after"] = "after"
    kl_in_reward: float | None = None
    overlong: Overlong | None = None
    flat: Literal["stop", "take"] = "stop"
    """Where the draw budget is spent and too few groups are admitted: raise, or take refused ones."""
    ahead: Callable[[int], bool] = never
    """Whether the batch of this 0-based step is sampled while the step before it is learnt from, with weights that are one update old. Not
    the first one behind a checkpoint, which would be another after a resumption."""

    def __post_init__(self) -> None:
        if self.old_logprobs == "detached" and self.epochs * self.minibatches > 1:
            raise ConfigError(
                f"old_logprobs is 'detached' with {self.epochs} epochs x {self.minibatches} minibatches; more than one update on a batch "
                "needs the old log-probs: set loss.old_logprobs to 'trainer'."
            )
        if self.minibatches > self.groups:
            raise ConfigError(
                f"loss.minibatches is {self.minibatches}, rollout.groups is {self.groups}; a minibatch holds at least one group."
            )


class Parts(NamedTuple):
    """What a trainer is made of. `judge` is called once, when reinforcement learning begins: a judge may start as the policy."""

    domain: Domain
    policy: Model
    player: Player
    judge: Callable[[], ProcessReward | RewardLearner]
    assign: Assign
    curriculum: Curriculum
    reference: Callable[[], KeptPolicy] | None = None
    """For a KL term: called when reinforcement learning begins."""
    shaping: Shaping | None = None
    """Of step rewards, between the judge and the credit rule."""
    around: Around | None = None
    """What credit does around interruptions, after the rule."""
