"""The implicit judge: a language model whose log-ratio to a reference is the reward of a step.

Legend: S step, T sampled token of an episode, B row, N target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stepwell.credit import Segment, by_turn, pool
from stepwell.engine.batch import episode_rows, join, pad
from stepwell.errors import ConfigError, nearest
from stepwell.losses import OutcomeLoss, PreferenceLoss
from stepwell.protocols import Model, Saveable
from stepwell.rewards.confidence import Confidence, pair_accuracy
from stepwell.rewards.outcome import Pay, paid
from stepwell.rewards.reference import Reference
from stepwell.types import JSON, Batch, Bools, Episode, Floats, Group, Metrics, Outputs, Row, Scored, Steps, Tallies

__all__ = ["ImplicitReward", "ImplicitSettings"]

_OBJECTIVES = ("preference", "cross_entropy")
_UNITS = ("step", "episode")


@dataclass(frozen=True, slots=True)
class ImplicitSettings:
    """How the implicit judge scores and learns.

    Attributes:
        beta: Scale of the log-ratio, in reward per nat.
        lr: Learning rate of the judge.
        reference: `moving`: the policy that sampled the episodes (iStar). `frozen`: the judge's own weights at the start (PRIME).
        pay: What the end is paid, and what makes one episode better than another.
        updates: Gradient steps of the judge on each batch; 0 is a static judge.
        judged: `all`, or `mixed`: only groups with better and worse episodes. The others have no pair to learn from, and credit that
            ignores their process part (`IStar.only_mixed`) would throw their scores away; their steps are then unscored.
        memory: Weight of the past in the judge's confidence, in [0, 1): the running mean forgets half of it in 7 batches at 0.9.
        objective: `preference`: better episodes of a group against worse ones (iStar). `cross_entropy`: each episode's outcome, in [0, 1],
            for itself (PRIME, ImplicitPRM); groups without a pair teach too.
        unit: `step`: every step is paid its own log-ratio. `episode`: the last step with tokens is paid that of all of them: an outcome
            model. For tokens choose steps of one token (`credit.by_token`).

    Raises (when built):
        ConfigError: a value that cannot work.
    """

    beta: float = 0.05
    lr: float = 1e-4
    reference: Literal["moving", "frozen"] = "moving"
    pay: Pay = "success"
    updates: int = 1
    judged: Literal["all", "mixed"] = "all"
    memory: float = 0.9
    objective: Literal["preference", "cross_entropy"] = "preference"
    unit: Literal["step", "episode"] = "step"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.beta) and self.beta > 0):
            raise ConfigError(f"reward.beta is {self.beta}; it needs to be a positive number.")
        for what, value, known in (("objective", self.objective, _OBJECTIVES), ("unit", self.unit, _UNITS)):
            if value not in known:
                raise ConfigError(f"Unknown {what} {value!r} of the implicit judge; {nearest(value, known)}")


class _Said(NamedTuple):
    """What judge and reference said about an episode's sampled tokens, by one forward path. [T] each"""

    episode: Episode
    judge_T: Floats
    ref_T: Floats

    @property
    def total(self) -> float:
        """The trajectory's log-ratio, in nats."""
        return float((self.judge_T - self.ref_T).sum())

    @property
    def known(self) -> bool:
        """False where a model said something that is no number."""
        return bool(np.isfinite(self.judge_T).all() and np.isfinite(self.ref_T).all())


class ImplicitReward:
    """Step rewards `r_s = beta * sum over the step's tokens of [log pi_judge - log pi_ref]`, learnt from outcomes of whole episodes.

    Source: iStar, arXiv 2509.19199, equations 3 and 4 (`preference`, the moving reference); PRIME, arXiv 2502.01456, and ImplicitPRM,
    arXiv 2412.01981 (`cross_entropy`, the frozen one). The judge starts as the policy, so its first step rewards are exactly 0: numerator
    and denominator come from the same forward path with the same micro-batches.

    Differs from iStar's code: there the scores are detached before the loss, so that no gradient reaches the judge; and its
    trajectory score is a mean over steps where the paper's product of probabilities is a sum. This is the paper's form.

    With the moving reference, all turns must be from the policy's present version: score before the policy is updated.

    `learn` reports `judge/fresh_pair_accuracy`: how often the better of two episodes of a group had the higher sum, measured on
    episodes that the judge had not learnt from (ties count a half). The running mean of it over batches is the judge's confidence: `score`
    attaches what it was before this batch, and nothing as long as no batch held a pair. An episode about which a model says something
    that is no number is unscored, taught nothing, and counted (`judge/not_finite`).
    """

    def __init__(self, judge: Model, policy: Model, settings: ImplicitSettings, segment: Segment = by_turn) -> None:
        judge.snapshot()  # A head has no log-probs, and says so here.
        self._judge, self._settings, self._segment = judge, settings, segment
        self._loss = PreferenceLoss(settings.beta) if settings.objective == "preference" else OutcomeLoss(settings.beta)
        self._confidence = Confidence(settings.memory)
        self._reference = Reference(policy, judge if settings.reference == "frozen" else None)
        self._said: dict[int, _Said] = {}
        self._scored_by = -1
        self._fresh: float | None = None
        self._metrics: Metrics = {}

    # -- scoring --------------------------------------------------------------------------------------------------------------

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Attaches the component `judge`; failed episodes are unscored.

        Raises:
            StaleWeightsError: The reference is the policy, and turns are from other versions of it than the present one.
        """
        judged = groups if self._settings.judged == "all" else [group for group in groups if self._is_mixed(group)]
        episodes = [e for group in judged for e in group.members if not e.failed and e.num_tokens]
        reference = self._reference.of(episodes)
        per_episode = [episode_rows(episode) for episode in episodes]
        rows = [row for made in per_episode for row in made]
        counts = [len(made) for made in per_episode]
        ref = join(reference.logprobs(rows), counts)
        judge = join([made["logprobs"] for made in self._judge.forward(rows)], counts)
        heard = [_Said(e, j, r) for e, j, r in zip(episodes, judge, ref, strict=True)]
        self._said = {id(said.episode): said for said in heard if said.known}
        self._scored_by = self._judge.version
        self._measure(groups, len(heard) - len(self._said))
        return [Group(group.task, tuple(self._attach(episode) for episode in group.members)) for group in groups]

    def _is_mixed(self, group: Group[Episode]) -> bool:
        return len({paid(e, self._settings.pay) for e in group.members if e.num_tokens} - {None}) > 1

    def _attach(self, episode: Episode) -> Scored:
        steps = self._segment(episode)
        outcome = paid(episode, self._settings.pay)
        said, confidence = self._said.get(id(episode)), self._confidence.value
        if said is None:
            nothing_S = np.zeros(len(steps), np.bool_)
            return Scored(episode, steps, outcome, {"judge": np.zeros(len(steps))}, nothing_S, confidence=confidence)
        reward_S = self._settings.beta * pool(said.judge_T - said.ref_T, steps, "sum")
        scored_S = np.ones(len(steps), np.bool_)
        if self._settings.unit == "episode":
            reward_S, scored_S = _at_the_end(reward_S, steps)
        old = None if self._reference.is_frozen else said.ref_T
        return Scored(episode, steps, outcome, {"judge": reward_S}, scored_S, old_logprobs_T=old, confidence=confidence)

    def _measure(self, groups: Sequence[Group[Episode]], not_finite: int) -> None:
        scored = [[(paid(e, self._settings.pay), self._said[id(e)].total) for e in g.members if id(e) in self._said] for g in groups]
        self._fresh = pair_accuracy([[(outcome, total) for outcome, total in group if outcome is not None] for group in scored])
        tokens = [np.abs(said.judge_T - said.ref_T) for said in self._said.values()]
        self._metrics = {
            "judge/log_ratio_abs": float(np.mean(np.concatenate(tokens))) if tokens else float("nan"),
            "judge/fresh_pair_accuracy": float("nan") if self._fresh is None else self._fresh,
            "judge/not_finite": float(not_finite),
        }

    # -- learning -------------------------------------------------------------------------------------------------------------

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics:
        """Learns from outcomes; by preference only from groups that hold better and worse episodes: the others have no pair.

        Raises:
            ConfigError: The groups are not those that were scored last, or an outcome that cross-entropy cannot take for a probability.
        """
        rows, said = self._rows(groups)
        metrics = self._metrics | self._confidence.remember(self._fresh)
        for _ in range(self._settings.updates if rows else 0):
            known = self._judge.version == self._scored_by
            metrics |= self._backward_known(rows, said) if known else self._judge.backward(rows, self._loss)
            metrics |= {f"judge/{name}": value for name, value in self._judge.step(self._settings.lr).items()}
        mixed = sum(len({m.outcome for m in group.members if m.outcome is not None and m.episode.num_tokens}) > 1 for group in groups)
        metrics["judge/mixed_groups"] = mixed / max(len(groups), 1)
        return metrics

    def _rows(self, groups: Sequence[Group[Scored]]) -> tuple[list[Row], list[Floats]]:
        """Rows of the episodes that teach, and what the judge said at each row's targets."""
        rows: list[Row] = []
        said: list[Floats] = []
        number = 0
        for g, group in enumerate(groups):
            members = [m for m in group.members if m.outcome is not None and m.episode.num_tokens]
            if len({m.outcome for m in members}) < 2 and (self._settings.objective, self._settings.judged) != ("cross_entropy", "all"):
                continue
            for member in members:
                about = self._said.get(id(member.episode))
                if about is None and not member.scored_S.any() and self._metrics["judge/not_finite"]:
                    continue
                if about is None or member.outcome is None:
                    raise ConfigError(
                        "learn was given an episode that the last call of score did not see; score and learn the same groups."
                    )
                made = episode_rows(member.episode, index=number, group=g, label=member.outcome, ref_logprobs=about.ref_T)
                rows += made
                said += np.split(about.judge_T, np.cumsum([len(row.targets) for row in made])[:-1])
                number += 1
        return rows, said

    def _backward_known(self, rows: Sequence[Row], said: Sequence[Floats]) -> Metrics:
        """`backward` of the loss, without the forward pass that scoring has made already.

        The loss is differentiated with respect to what the judge said; that gradient weighs the tokens. Exact, as the judge is the same.
        """
        _, _, batch = pad(rows, torch.device("cpu"))
        logprobs = torch.zeros(batch.mask.shape)
        for b, values in enumerate(said):
            logprobs[b, : len(values)] = torch.from_numpy(values)
        logprobs.requires_grad_(True)
        value, tallies = self._loss(Outputs(logprobs), batch)
        grad = torch.autograd.grad(value, logprobs)[0].double().numpy()
        self._judge.backward([replace(row, weight=grad[b, : len(row.targets)]) for b, row in enumerate(rows)], _Weighted())
        return {name: tally.value for name, tally in tallies.items()}

    # -- state ----------------------------------------------------------------------------------------------------------------

    def models(self) -> dict[str, Saveable]:
        """The judge, and its reference where that is its own."""
        return {"judge": self._judge} | self._reference.models()

    def state(self) -> dict[str, JSON]:
        """The confidence; what is kept between scoring and learning lives within one step."""
        return {"confidence": self._confidence.state()}

    def restore(self, state: dict[str, JSON]) -> None:
        """The confidence."""
        self._confidence.restore(state["confidence"])


def _at_the_end(reward_S: Floats, steps: Steps) -> tuple[Floats, Bools]:
    """All of an episode's reward at its last step with tokens; the steps before it are paid nothing, which is a score."""
    made_S = np.zeros(len(steps))
    made_S[np.flatnonzero(steps.lengths_S)[-1]] = reward_S.sum()
    return made_S, np.ones(len(steps), np.bool_)


@dataclass(frozen=True, slots=True)
class _Weighted:
    """`sum of w log pi`: carries a gradient with respect to log-probs back to the weights."""

    @property
    def spans_rows(self) -> bool:
        return False

    @property
    def wants(self) -> frozenset[str]:
        return frozenset()

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        return torch.where(batch.mask, batch.weight * outputs.logprobs, 0.0).sum(), {}
