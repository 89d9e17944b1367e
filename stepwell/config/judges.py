"""Judges that say a number for each step."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stepwell.config.settings import Count, NotNegative, Positive, Settings, Share

__all__ = [
    "EntropyConfig",
    "FittedSettings",
    "HeadSettings",
    "IntrinsicConfig",
    "LabelledConfig",
    "MonteCarloConfig",
    "SoftQConfig",
    "TemporalConfig",
]

Pay = Literal["success", "score"]
Form = Literal["value", "progress"]
Discount = Annotated[float, Field(gt=0, le=1)]
Labels = Annotated[tuple[str, ...], Field(min_length=2)]


class HeadSettings(Settings):
    """A scalar head, and how it learns."""

    trunk: Literal["own", "shared"] = "own"
    """Of a head: a second model (an adapter where the policy is one), or the policy's hidden states without gradient into them."""
    lr: Positive = 1e-5
    updates: Count = 1
    """Gradient steps of the judge on each batch."""
    max_grad_norm: Positive = 1.0


class FittedSettings(HeadSettings):
    """What is fitted: a head, or a language model that says a label token."""

    label_tokens: Labels = ("1", "0")
    """Of `judge: label`: words that are one token each, from best to worst."""


class MonteCarloConfig(FittedSettings):
    """How often the policy succeeds from after each step (Math-Shepherd, AgentPRM)."""

    kind: Literal["montecarlo"] = "montecarlo"
    pay: Pay = "success"
    source: Literal["continuations", "visits"] = "continuations"
    """`continuations`: the policy goes on from every step. `visits`: what those of the group came to that share all up to the step."""
    continuations: Count = 4
    """From each step."""
    budget: Literal["fixed", "adaptive"] = "fixed"
    """`adaptive`: `first` everywhere, and `continuations` where the answers at the neighbouring steps differ."""
    first: Count = 2
    """Of an adaptive budget."""
    labels: Literal["soft", "hard"] = "soft"
    """`soft`: the mean of what continuations were paid; `hard`: 1 where any was paid, else 0."""
    form: Form = "value"
    """`value`: how things stand after the step; `progress`: what the step changed."""
    discount: Discount = 1.0
    """For each turn that is still to come."""
    members: Count | None = None
    """How many episodes of a group are continued (None: all); without a fitted judge the steps of the others are unscored."""
    judge: Literal["none", "head", "label"] = "none"
    """What is fitted to the estimates and scores in their place: nothing, a scalar, or a language model that says a label token."""


class TemporalConfig(HeadSettings):
    """Promise and progress of each step, by temporal differences on plain episodes (AgentPRM)."""

    kind: Literal["temporal"] = "temporal"
    pay: Pay = "success"
    form: Form = "progress"
    """`value`: promise, how things stand after the step; `progress`: what the step changed."""
    discount: Discount = 1.0
    """For each turn that is still to come."""
    lam: Share = 0.95
    """How far outcomes are trusted (1: no bias) or the judge's own values (0: less variance)."""
    beta: NotNegative = 1.0
    """Weight of being right about progress, against being right about promise."""
    truncated: Literal["bootstrap", "graded"] = "bootstrap"
    """What an episode is that was cut from outside: one that goes on as the judge expects, or one that is over as it stands."""
    updates: Count = 2
    """Gradient steps of the judge on each batch."""


class LabelledConfig(FittedSettings):
    """A judge fitted to steps that somebody has labelled (PRM800K, Math-Shepherd's data, or your own)."""

    kind: Literal["labelled"] = "labelled"
    pay: Pay = "success"
    data: str
    """A file of labelled solutions: JSON lines, one JSON list, or Parquet, in a layout of PRM800K, Math-Shepherd, TRL and others."""
    limit: Count | None = None
    """Solutions of the file at most, drawn at random; None is all."""
    judge: Literal["head", "label"] = "head"
    """`head`: a scalar. `label`: a language model that says a label token."""
    form: Form = "value"
    """`value`: how good the text is up to the end of the step; `progress`: what the step changed."""
    scale: Literal["share", "rating"] = "share"
    """Of labels: true, false or a number in [0, 1]; or -1, 0 and 1."""
    neutral: Share = 0.5
    """What a rating of 0 is worth."""
    mark: str = "ки"
    """What stands after each step in Math-Shepherd's layout."""
    separator: str = "\n\n"
    """What ends a step when a solution is shown to the judge."""
    max_length: Count | None = None
    """Of a solution, in tokens; steps beyond it are left out with their labels. None is what the model can read."""
    warm: Annotated[int, Field(ge=0)] = 200
    """Updates before the first episode is scored."""
    updates: Annotated[int, Field(ge=0)] = 0
    """Updates on each batch besides."""
    batch: Count = 16
    """Solutions of an update."""
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the problems whose solutions are measured on, not learnt from; at least one problem, if it is not 0."""


class EntropyConfig(Settings):
    """Steps pay for leaving the policy at the start (PRL, FRPO), and may be handed shares of the outcome."""

    kind: Literal["entropy"] = "entropy"
    pay: Pay = "success"
    beta: NotNegative = 0.01
    """Price of a nat."""
    form: Literal["suffix", "immediate"] = "suffix"
    """What a step pays for: all that is still to come from it on, or its own tokens alone."""
    since: Literal["first", "last"] = "first"
    """Token of the step from which the suffix is summed."""
    split: Literal["none", "uniform", "progress"] = "none"
    """How the outcome is shared out among the steps besides; `progress` gives more to later ones."""


class SoftQConfig(Settings):
    """A language model and a value that make soft Bellman's equation true: the soft-optimal policy as judge (DQO)."""

    kind: Literal["soft_q"] = "soft_q"
    pay: Pay = "success"
    beta: Positive = 0.05
    form: Form = "progress"
    """`progress`: Q - V, the log-ratio of the step; `value`: Q."""
    lam: Share = 1.0
    """1 is right about whole episodes, 0 about single steps, as far as the values after them are."""
    lr: Positive = 1e-6
    value_lr: Positive = 1e-3
    """Learning rate of the values."""
    trunk: Literal["shared", "own"] = "shared"
    """What the values read: the judge's hidden states without gradient into them, or a model of their own."""
    updates: Annotated[int, Field(ge=0)] = 1
    """Gradient steps on each batch of fresh episodes: online."""
    warm: Annotated[int, Field(ge=0)] = 0
    """Gradient steps on demonstrations before the first episode is scored: offline."""
    batch: Count = 16
    """Demonstrations of such a step."""
    demonstrations: str = "expert"
    """Of the offline steps: the domain's expert's, or a file's."""
    max_grad_norm: Positive = 1.0


class IntrinsicConfig(Settings):
    """How sure the policy is of what it says (self-certainty), whatever comes of it: collapses, and is here to be measured against."""

    kind: Literal["intrinsic"] = "intrinsic"
    pay: Pay = "success"
    scale: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    """Reward per nat; below 0 it pays for doubt."""
