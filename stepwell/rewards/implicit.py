"""The implicit judge: a language model whose log-ratio to a reference is the reward of a step.

Legend: S step, T sampled token of an episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stepwell.credit import Segment, by_turn, pool
from stepwell.engine.batch import episode_rows, join
from stepwell.errors import ConfigError
from stepwell.losses import PreferenceLoss
from stepwell.protocols import KeptPolicy, Model, Saveable
from stepwell.rewards.outcome import Pay, paid
from stepwell.types import JSON, Episode, Floats, Group, Metrics, Row, Scored

__all__ = ["ImplicitReward", "ImplicitSettings"]


@dataclass(frozen=True, slots=True)
class ImplicitSettings:
    """How the implicit judge scores and learns.

    Attributes:
        beta: Scale of the log-ratio, in reward per nat.
        lr: Learning rate of the judge.
        reference: `moving`: the policy that sampled the episodes (iStar). `frozen`: the judge's own weights at the start (PRIME).
        pay: What the end is paid, and what makes one episode better than another.
        updates: Gradient steps of the judge on each batch; 0 is a static judge.
    """

    beta: float = 0.05
    lr: float = 1e-4
    reference: Literal["moving", "frozen"] = "moving"
    pay: Pay = "success"
    updates: int = 1


class ImplicitReward:
    """Step rewards `r_s = beta * sum over the step's tokens of [log pi_judge - log pi_ref]`, learnt from better and worse episodes.

    Source: iStar, arXiv 2509.19199, equations 3 and 4. The judge starts as the policy, so its first step rewards are exactly 0: numerator
    and denominator come from the same forward path with the same micro-batches. With `reference="frozen"` the rewards are those of PRIME
    (arXiv 2502.01456) under another objective.

    Differs from the authors' code: there the scores are detached before the loss, so that no gradient reaches the judge; and its
    trajectory score is a mean over steps where the paper's product of probabilities is a sum. This is the paper's form.

    `learn` reports `judge/fresh_pair_accuracy`: how often the better of two episodes of a group had the higher sum, measured on
    episodes that the judge had not learnt from (ties count a half).
    """

    def __init__(self, judge: Model, policy: Model, settings: ImplicitSettings, segment: Segment = by_turn) -> None:
        if not (np.isfinite(settings.beta) and settings.beta > 0):
            raise ConfigError(f"reward.beta is {settings.beta}; it needs to be a positive number.")
        self._judge, self._policy, self._settings, self._segment = judge, policy, settings, segment
        self._loss = PreferenceLoss(settings.beta)
        self._frozen: KeptPolicy | None = judge.keep() if settings.reference == "frozen" else None
        self._scored_rows: dict[int, tuple[Episode, Floats]] = {}
        self._fresh: Metrics = {}

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Attaches the component `judge`; failed episodes are unscored."""
        episodes = [episode for group in groups for episode in group.members]
        playable = [episode for episode in episodes if not episode.failed and episode.num_tokens]
        per_episode = [episode_rows(episode) for episode in playable]
        rows = [row for made in per_episode for row in made]
        counts = [len(made) for made in per_episode]
        reference = self._policy.snapshot() if self._frozen is None else self._frozen
        ref = join(reference.logprobs(rows), counts)
        log_ratio = [a - b for a, b in zip(join([made["logprobs"] for made in self._judge.forward(rows)], counts), ref, strict=True)]
        self._scored_rows = {id(episode): (episode, values) for episode, values in zip(playable, ref, strict=True)}
        ratios = {id(episode): values for episode, values in zip(playable, log_ratio, strict=True)}
        self._fresh = self._measure(groups, ratios)
        return [Group(group.task, tuple(self._attach(episode, ratios.get(id(episode))) for episode in group.members)) for group in groups]

    def _attach(self, episode: Episode, log_ratio_T: Floats | None) -> Scored:
        steps = self._segment(episode)
        outcome = paid(episode, self._settings.pay)
        if log_ratio_T is None:
            return Scored(episode, steps, outcome, {"judge": np.zeros(len(steps))}, np.zeros(len(steps), np.bool_))
        reward_S = self._settings.beta * pool(log_ratio_T, steps, "sum")
        old = self._scored_rows[id(episode)][1] if self._frozen is None else None
        return Scored(episode, steps, outcome, {"judge": reward_S}, np.ones(len(steps), np.bool_), old_logprobs_T=old)

    def _measure(self, groups: Sequence[Group[Episode]], ratios: dict[int, Floats]) -> Metrics:
        accuracies = []
        for group in groups:
            scored = [(paid(e, self._settings.pay), float(ratios[id(e)].sum())) for e in group.members if id(e) in ratios]
            pairs = [(a, b) for out_a, a in scored for out_b, b in scored if out_a is not None and out_b is not None and out_a > out_b]
            if pairs:
                accuracies.append(np.mean([(a > b) + 0.5 * (a == b) for a, b in pairs]))
        tokens = [abs(values) for values in ratios.values()]
        measured: Metrics = {"judge/log_ratio_abs": float(np.mean(np.concatenate(tokens))) if tokens else float("nan")}
        measured["judge/fresh_pair_accuracy"] = float(np.mean(accuracies)) if accuracies else float("nan")
        return measured

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics:
        """Preference learning on groups that hold better and worse episodes; the others have no pair and are not computed."""
        rows = self._preference_rows(groups)
        metrics = dict(self._fresh)
        for _ in range(self._settings.updates if rows else 0):
            metrics |= self._judge.backward(rows, self._loss)
            metrics |= {f"judge/{name}": value for name, value in self._judge.step(self._settings.lr).items()}
        metrics["judge/mixed_groups"] = len({row.group for row in rows}) / max(len(groups), 1)
        return metrics

    def _preference_rows(self, groups: Sequence[Group[Scored]]) -> list[Row]:
        rows: list[Row] = []
        number = 0
        for g, group in enumerate(groups):
            members = [m for m in group.members if m.outcome is not None and id(m.episode) in self._scored_rows]
            if len({m.outcome for m in members}) < 2:
                continue
            for member in members:
                _, ref = self._scored_rows[id(member.episode)]
                assert member.outcome is not None
                rows += episode_rows(member.episode, index=number, group=g, label=member.outcome, ref_logprobs=ref)
                number += 1
        return rows

    def models(self) -> dict[str, Saveable]:
        """The judge, and its reference where that is its own."""
        return {"judge": self._judge} | ({} if self._frozen is None else {"judge_reference": self._frozen})

    def state(self) -> dict[str, JSON]:
        """Nothing beside the model: what is kept between scoring and learning lives within one step."""
        return {}

    def restore(self, state: dict[str, JSON]) -> None:
        """Nothing to restore."""
