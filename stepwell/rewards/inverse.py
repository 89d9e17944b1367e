"""Judges that learn from experts: what must be rewarded, so that experts do what they do?

Legend: S step, T sampled token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from stepwell.credit import Segment, by_turn
from stepwell.engine.batch import episode_rows, join
from stepwell.errors import ConfigError, nearest
from stepwell.losses import DiscriminatorLoss, InverseLoss, InverseQLoss, LogRatio, Scalar
from stepwell.losses.inverse import Total, Weights
from stepwell.protocols import Loss, Model, Policy, Saveable
from stepwell.rewards.confidence import Confidence, pair_accuracy
from stepwell.rewards.examples import Drawn, Examples
from stepwell.rewards.outcome import Pay, paid
from stepwell.rewards.readers import Columns, ImpliedReader, LogRatioReader, ScalarReader, StepReader
from stepwell.rewards.reference import Reference, present_policy
from stepwell.types import JSON, Bools, Episode, Floats, Group, Metrics, Row, Scored, Steps

__all__ = ["InverseReward", "InverseSettings", "Objective", "check_experts"]

Objective = Literal["irl", "discriminator", "iq"]
_CHOICES = {"objective": ("discriminator", "iq", "irl"), "form": ("head", "log_ratio"), "reference": ("frozen", "moving")}


@dataclass(frozen=True, slots=True)
class InverseSettings:
    """How the judge scores and learns.

    Attributes:
        objective: `irl`: maximum likelihood of the experts (rePIRL). `discriminator`: which steps are an expert's (ReGAIL). `iq`: the same
            with rewards implied by action values (InversePRM).
        form: `head`: a scalar behind each step. `log_ratio`: of a language model to its reference; not for `iq`.
        lr: Learning rate of the judge.
        updates: Gradient steps on each batch; 0 is a static judge.
        pay: What the end is paid.
        correct: `positive`: the policy's episodes that succeeded count as experts', the others as its own; ungraded ones are left out,
            and so are demonstrations that failed. `policy`: no verdict is read, all of the policy's episodes are its own.
        bound: Of a head with `irl`: `tanh` or `none`.
        weights, temper, total: Of `irl`, see `losses.InverseLoss`.
        smoothing, logit: Of `discriminator`, see `losses.DiscriminatorLoss`.
        clip: Of `discriminator`: rewards are cut to [-clip, clip]; None is off.
        discount: Of `iq`.
        beta, reference: Of `log_ratio`: its scale, and `frozen` (the judge's own weights at the start) or `moving` (the policy that
            sampled).
        memory: Weight of the past in the judge's confidence, in [0, 1).

    Raises (when built):
        ConfigError: a value that cannot work.
    """

    objective: Objective = "irl"
    form: Literal["head", "log_ratio"] = "head"
    lr: float = 1e-4
    updates: int = 1
    pay: Pay = "success"
    correct: Literal["positive", "policy"] = "positive"
    bound: Literal["tanh", "none"] = "tanh"
    weights: Weights = "length"
    temper: float = 0.1
    total: Total = "average"
    smoothing: float = 0.1
    logit: Literal["f", "airl"] = "f"
    clip: float | None = None
    discount: float = 0.95
    beta: float = 0.05
    reference: Literal["frozen", "moving"] = "frozen"
    memory: float = 0.9

    def __post_init__(self) -> None:
        for what, value in (("objective", self.objective), ("form", self.form), ("reference", self.reference)):
            if value not in _CHOICES[what]:
                raise ConfigError(f"Unknown {what} {value!r} of the inverse judge; {nearest(value, _CHOICES[what])}")
        if self.correct not in ("positive", "policy"):
            raise ConfigError(f"Unknown use of correct episodes {self.correct!r}; {nearest(self.correct, ('positive', 'policy'))}")
        if self.objective == "iq" and self.form == "log_ratio":
            raise ConfigError("objective is 'iq' with form 'log_ratio'; action values are a head's: set form to 'head'.")
        if self.clip is not None and not (np.isfinite(self.clip) and self.clip > 0):
            raise ConfigError(f"The clip of rewards is {self.clip}; it needs to be a positive number, or None for off.")
        self.loss()

    def reader(self) -> StepReader:
        """Where the judge is read."""
        if self.form == "log_ratio":
            return LogRatioReader(LogRatio(self.beta))
        if self.objective == "iq":
            return ImpliedReader(self.discount)
        return ScalarReader(Scalar(self.bound if self.objective == "irl" else "none"))

    def loss(self) -> Loss:
        """What the judge learns by."""
        if self.objective == "iq":
            return InverseQLoss(self.discount)
        if self.objective == "discriminator":
            return DiscriminatorLoss(self.reader().form, self.smoothing, self.logit)
        return InverseLoss(self.reader().form, self.weights, self.temper, self.total)

    @property
    def weighs(self) -> bool:
        """Whether the loss weighs the policy's episodes by how likely they were when they were sampled."""
        return self.objective == "irl" and self.weights != "uniform"

    @property
    def asks_policy(self) -> bool:
        """Whether the loss reads what the policy says of all episodes, experts' too."""
        return self.objective == "discriminator" and self.logit == "airl"


class _Heard(NamedTuple):
    """An episode with the judge's rows, and what it said there. [S] each"""

    episode: Episode
    steps: Steps
    rows: list[Row]
    rewards_S: Floats
    known_S: Bools


class InverseReward:
    """Step rewards learnt from what tells experts' episodes from the policy's.

    Experts' episodes are demonstrations, a few new ones for each batch, and with `correct="positive"` the policy's own that succeeded
    (pseudo-experts; that makes the judge outcome-supervised, which rePIRL's released code is). A judge that starts as a head, or as a
    log-ratio to itself, says exactly 0 at first.

    Sources: rePIRL, arXiv 2602.07832; ReGAIL, arXiv 2510.01857; InversePRM in arXiv 2502.10325. Differs from rePIRL's code: the head is
    linear and is read once a step (its tokens, where a step is one token), weights are normalised over the batch, and by default
    those of a step's average. Importance weights divide by the probability with which the sampler drew, so episodes of several versions of
    the policy, and of a sampler that rounds otherwise than the trainer, are weighed right; `logit="airl"` asks the trainer.

    A batch without an episode of one of the two kinds teaches nothing. A step of which the judge says no number, or of which it is not
    asked (without tokens; with `iq` the last of an episode that was cut), is unscored.

    `learn` reports `judge/fresh_pair_accuracy` and `judge/confidence` as the implicit judge does, against verdicts and by the sum (or
    mean, where the objective averages) of an episode's rewards; `judge/experts` and `judge/others`, the episodes of the two kinds;
    `judge/pseudo_experts`, those of the experts' that are the policy's own; `judge/spoilt`, those of the others' that are spoilt copies;
    `judge/left_out`, episodes that are neither; `judge/not_finite`, steps of which it says no number; and the tallies of the loss.

    Args:
        judge: A head, or a language model for `form="log_ratio"`.
        policy: Who samples.
        settings: See there.
        examples: Demonstrations; None leaves the policy's own successes.
        segment: Where steps begin and end.

    Raises:
        ConfigError: Neither demonstrations nor own successes.
        CapabilityError: The judge is not of the form.
    """

    def __init__(
        self, judge: Model, policy: Model, settings: InverseSettings, examples: Examples | None = None, *, segment: Segment = by_turn
    ) -> None:
        check_experts(settings, examples)
        judge.forward([], settings.reader().form.wants)
        self._judge, self._policy, self._settings, self._examples, self._segment = judge, policy, settings, examples, segment
        self._reader, self._loss = settings.reader(), settings.loss()
        self._reference: Reference | None = None
        if settings.form == "log_ratio":
            self._reference = Reference(policy, judge if settings.reference == "frozen" else None)
        self._confidence = Confidence(settings.memory)
        self._shown = 0
        self._drawn, self._learns, self._learnt = Drawn((), ()), False, False
        self._heard: dict[int, _Heard] = {}
        self._fresh: float | None = None
        self._metrics: Metrics = {}

    # -- scoring --------------------------------------------------------------------------------------------------------------

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Attaches the component `judge`; failed episodes are unscored.

        Episodes that were learnt from and are scored again, as a judge that learns before it scores does, are not learnt from a second
        time: no demonstrations are drawn for them, and the policy is not asked.

        Raises:
            StaleWeightsError: The policy is asked (a moving reference, or `airl`) about turns that another version of it sampled.
        """
        played = [e for group in groups for e in group.members if not e.failed and e.num_tokens]
        self._learns = bool(self._settings.updates) and not (self._learnt and all(id(episode) in self._heard for episode in played))
        self._learnt = False
        self._drawn = self._examples.drawn(self._shown) if self._examples is not None and self._learns else Drawn((), ())
        shown = [e for e in (*self._drawn.experts, *self._drawn.spoilt) if e.num_tokens]
        columns = [*self._columns(played, played), *self._columns(shown, played)]
        cuts = [self._segment(episode) for episode in (*played, *shown)]
        per_episode = [self._reader.rows(e, s, c) for e, s, c in zip((*played, *shown), cuts, columns, strict=True)]
        said = iter(self._judge.forward([row for rows in per_episode[: len(played)] for row in rows], self._reader.form.wants))
        answers = [[next(said) for _ in rows] for rows in per_episode[: len(played)]] + [None] * len(shown)
        parts = zip((*played, *shown), cuts, per_episode, answers, strict=True)
        self._heard = {id(episode): self._read(episode, steps, rows, answer) for episode, steps, rows, answer in parts}
        self._measure(groups, [self._heard[id(episode)] for episode in played])
        return [Group(group.task, tuple(self._attach(episode) for episode in group.members)) for group in groups]

    def _read(self, episode: Episode, steps: Steps, rows: list[Row], answers: list[dict[str, Floats]] | None) -> _Heard:
        """What the judge said about an episode; a demonstration is not asked about before it is learnt from."""
        if answers is None:
            return _Heard(episode, steps, rows, np.zeros(len(steps)), np.zeros(len(steps), np.bool_))
        rewards_S, known_S = self._reader.rewards(rows, answers, len(steps))
        clip = self._settings.clip
        return _Heard(episode, steps, rows, rewards_S if clip is None else np.clip(rewards_S, -clip, clip), known_S)

    def _columns(self, episodes: Sequence[Episode], played: Sequence[Episode]) -> list[Columns]:
        """What policy and reference say about all sampled tokens, as far as it is read.

        What was played is asked by itself, as the judge is: in the same micro-batches, equal models say equal numbers to the last bit.
        """
        policy_T = ref_T = [np.full(episode.num_tokens, np.nan) for episode in episodes]
        if self._reference is not None:
            ref_T = _said(self._reference.of(played), episodes)
        if self._settings.weighs and episodes is played:
            policy_T = [episode.logprobs_T for episode in episodes]
        if self._settings.asks_policy and self._learns:
            is_there = self._reference is not None and not self._reference.is_frozen
            remedy = "score before the policy is updated, or use a logit that does not read the policy (f)."
            policy_T = ref_T if is_there else _said(present_policy(self._policy, played, remedy), episodes)
        return [Columns(p, r) for p, r in zip(policy_T, ref_T, strict=True)]

    def _attach(self, episode: Episode) -> Scored:
        steps = self._segment(episode)
        outcome, confidence = paid(episode, self._settings.pay), self._confidence.value
        heard = self._heard.get(id(episode))
        if heard is None:
            rewards_S, known_S = np.zeros(len(steps)), np.zeros(len(steps), np.bool_)
        else:
            rewards_S, known_S = heard.rewards_S, heard.known_S
        return Scored(episode, steps, outcome, {"judge": rewards_S}, known_S, confidence=confidence)

    def _measure(self, groups: Sequence[Group[Episode]], played: Sequence[_Heard]) -> None:
        is_mean = self._settings.objective == "discriminator" or (self._settings.objective, self._settings.total) == ("irl", "average")
        pool = np.mean if is_mean else np.sum
        worths = {id(h.episode): float(pool(h.rewards_S[h.known_S])) for h in played if h.known_S.any()}
        pairs = [[(paid(e, self._settings.pay), worths[id(e)]) for e in group.members if id(e) in worths] for group in groups]
        self._fresh = pair_accuracy([[(outcome, worth) for outcome, worth in group if outcome is not None] for group in pairs])
        asked = [np.unique(np.concatenate([row.step[row.weight != 0] for row in h.rows])) for h in played]
        self._metrics = {
            "judge/fresh_pair_accuracy": float("nan") if self._fresh is None else self._fresh,
            "judge/not_finite": float(sum((~h.known_S[steps]).sum() for h, steps in zip(played, asked, strict=True))),
        }

    # -- learning -------------------------------------------------------------------------------------------------------------

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics:
        """Tells experts' episodes from the others, as far as there are both.

        Raises:
            ConfigError: The groups are not those that were scored last.
        """
        metrics = self._metrics | self._confidence.remember(self._fresh)
        experts, others, counts = self._sides(groups)
        metrics |= counts
        rows = self._rows(experts, others) if experts and others and self._learns else []
        for _ in range(self._settings.updates if rows else 0):
            metrics |= self._judge.backward(rows, self._loss)
            metrics |= {f"judge/{name}": value for name, value in self._judge.step(self._settings.lr).items()}
        self._shown += len(self._drawn.experts)
        self._drawn, self._learns, self._learnt = Drawn((), ()), False, True
        return metrics

    def _sides(self, groups: Sequence[Group[Scored]]) -> tuple[list[_Heard], list[_Heard], Metrics]:
        """Experts' episodes and the others, and how many there are."""
        heard, reads_verdicts = self._heard, self._settings.correct == "positive"
        experts: list[_Heard] = []
        others: list[_Heard] = []
        left_out = 0
        for member in (member for group in groups for member in group.members):
            episode = member.episode
            if episode.failed or not episode.num_tokens:
                continue
            if id(episode) not in heard:
                raise ConfigError("learn was given an episode that the last call of score did not see; score and learn the same groups.")
            success = episode.verdict.success if reads_verdicts else False
            if success is None or not heard[id(episode)].known_S.any():
                left_out += 1
            else:
                (experts if success else others).append(heard[id(episode)])
        pseudo = len(experts)
        shown = [e for e in self._drawn.experts if e.num_tokens and not (reads_verdicts and e.verdict.success is False)]
        spoilt = [e for e in self._drawn.spoilt if e.num_tokens]
        experts += [heard[id(episode)] for episode in shown]
        others += [heard[id(episode)] for episode in spoilt]
        left_out += len(self._drawn.experts) - len(shown)
        counts = {"experts": len(experts), "others": len(others), "pseudo_experts": pseudo, "spoilt": len(spoilt), "left_out": left_out}
        return experts, others, {f"judge/{name}": float(value) for name, value in counts.items()}

    def _rows(self, experts: Sequence[_Heard], others: Sequence[_Heard]) -> list[Row]:
        """All rows, labelled. For a discriminator both kinds weigh the same: by episodes, with `iq` by transitions."""
        rows: list[Row] = []
        at = number = 0
        for label, side in ((1.0, experts), (0.0, others)):
            transitions = sum(float(row.weight.sum()) for heard in side for row in heard.rows)
            size = {"irl": 1.0, "discriminator": float(len(side)), "iq": transitions}[self._settings.objective]
            for heard in side:
                made = [replace(row, step=row.step + at, weight=row.weight / (size or 1.0)) for row in heard.rows]
                rows += [replace(row, episode=number, label=label) for row in made]
                at += len(heard.steps)
                number += 1
        return rows

    # -- state ----------------------------------------------------------------------------------------------------------------

    def models(self) -> dict[str, Saveable]:
        """The judge, and its reference where that is its own."""
        return {"judge": self._judge} | ({} if self._reference is None else self._reference.models())

    def state(self) -> dict[str, JSON]:
        """The confidence, and how many demonstrations have been shown."""
        return {"confidence": self._confidence.state(), "shown": self._shown}

    def restore(self, state: dict[str, JSON]) -> None:
        """Takes the state back."""
        self._confidence.restore(state["confidence"])
        shown = state["shown"]
        assert isinstance(shown, int)
        self._shown = shown


def _said(speaker: Policy, episodes: Sequence[Episode]) -> list[Floats]:
    """Log-probs of each episode's sampled tokens. [T] each"""
    per_episode = [episode_rows(episode) for episode in episodes]
    return join(speaker.logprobs([row for made in per_episode for row in made]), [len(made) for made in per_episode])


def check_experts(settings: InverseSettings, examples: Examples | None) -> None:
    """Whether there is anything to learn from.

    Raises:
        ConfigError: There are no demonstrations, and own successes are not to count as experts'; or spoilt copies for an objective that
            takes the others for the policy's own.
    """
    if examples is None and settings.correct == "policy":
        raise ConfigError(
            "There are no experts: no demonstrations, and own episodes that succeed do not count as experts'; "
            "give demonstrations (reward.demonstrations=expert, or a file), or set reward.correct=positive."
        )
    if examples is not None and examples.copies and settings.objective != "discriminator":
        raise ConfigError(
            f"There are spoilt copies of demonstrations with objective {settings.objective!r}, which takes what is not an expert's for the "
            "policy's; leave them out (reward.spoilt=0), or choose reward.objective=discriminator."
        )
