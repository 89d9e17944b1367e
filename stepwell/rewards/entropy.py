"""The entropy reward: steps pay for leaving the policy at the start, and may be handed shares of the outcome.

Legend: S step, T sampled token of an episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stepwell.credit.segment import Segment, by_turn, pool
from stepwell.credit.suffix import suffix_log_ratio
from stepwell.engine.batch import episode_rows, join
from stepwell.errors import ConfigError
from stepwell.protocols import KeptPolicy, Model, Saveable
from stepwell.rewards.outcome import Pay, paid
from stepwell.rewards.reference import present_policy
from stepwell.types import JSON, Episode, Floats, Group, Metrics, Scored, Steps

__all__ = ["EntropyReward", "EntropySettings", "outcome_shares"]

Split = Literal["none", "uniform", "progress"]


@dataclass(frozen=True, slots=True)
class EntropySettings:
    """What a step is paid.

    Attributes:
        beta: Price of a nat.
        form: `suffix`: for all log-ratios from the step's first token (`since="last"`: its last) to the end of the episode.
            `immediate`: for those of the step's own tokens.
        since: See above.
        split: How the outcome is shared out, see `outcome_shares`; `none`: it is not.
        pay: What the end of an episode is paid.

    Raises (when built):
        ConfigError: beta is negative or not finite, or `since` is given to the immediate form.
    """

    beta: float = 0.01
    form: Literal["suffix", "immediate"] = "suffix"
    since: Literal["first", "last"] = "first"
    split: Split = "none"
    pay: Pay = "success"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.beta) and self.beta >= 0):
            raise ConfigError(f"reward.beta is {self.beta}; allowed is a finite number of at least 0 (0 charges nothing).")
        if self.form == "immediate" and self.since == "last":
            raise ConfigError(
                "reward.since is 'last', which the immediate form does not know; leave it at 'first', or set reward.form=suffix."
            )


def outcome_shares(steps: Steps, split: Split) -> Floats:
    """The share of the outcome that each step is handed; they sum to 1 over the steps with tokens, others get nothing. [S]

    `uniform`: 1/n each. `progress`: proportional to the step's number, `2 s / (n (n + 1))` for the s-th of n: later steps get more.
    `none`: 0.
    """
    spoken_S = steps.lengths_S > 0
    if split == "none" or not spoken_S.any():
        return np.zeros(len(steps))
    weight_S = spoken_S.astype(np.float64) if split == "uniform" else np.where(spoken_S, np.cumsum(spoken_S), 0.0)
    shares_S: Floats = weight_S / weight_S.sum()
    return shares_S


class EntropyReward:
    """Step rewards of entropy-regularised learning: `- beta x log-ratio` of the policy to what it was when learning began.

    Component `judge`: `- beta sum over tokens t >= b of [log pi(t) - log pi_start(t)]`, with `b` the step's first token (`suffix`), or the
    same over the step's own tokens alone (`immediate`). The second's rewards to go are the first. Component `share`: the step's share of
    the outcome, where it is split; an episode without an outcome is then unscored. Exactly 0 at the start: both come from one forward path.

    Source: PRL and its second version FRPO, arXiv 2601.10201 (suffix). As credit, added after outcomes have been compared, it is
    `credit.SuffixLogRatio`; here it is a reward that any credit rule can take. `immediate` and the splits are baselines, as the method is
    often retold: the step that leads to a divergence later goes free, and the outcome is handed out without regard to what a step did.

    All turns must be from the policy's present version: score before the policy is updated. `learn` reports `judge/log_ratio_abs`.

    Args:
        policy: Who sampled. What it is now is kept as the start.
        settings: As above.
        segment: Where steps begin and end.
    """

    def __init__(self, policy: Model, settings: EntropySettings, segment: Segment = by_turn) -> None:
        self._policy, self._settings, self._segment = policy, settings, segment
        self._start: KeptPolicy = policy.keep()
        self._metrics: Metrics = {}

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Attaches `judge` (and `share`), and what policy and start say about all tokens.

        Raises:
            StaleWeightsError: Turns are from other versions of the policy than the present one.
        """
        episodes = [e for group in groups for e in group.members if not e.failed and e.num_tokens]
        present = present_policy(self._policy, episodes, "score before the policy is updated.")
        per_episode = [episode_rows(episode) for episode in episodes]
        rows, counts = [row for made in per_episode for row in made], [len(made) for made in per_episode]
        pairs = zip(join(present.logprobs(rows), counts), join(self._start.logprobs(rows), counts), strict=True)
        said = {id(episode): pair for episode, pair in zip(episodes, pairs, strict=True)}
        gaps = [np.abs(now - start) for now, start in said.values()]
        self._metrics = {"judge/log_ratio_abs": float(np.mean(np.concatenate(gaps)))} if gaps else {}
        return [Group(group.task, tuple(self._attach(e, said.get(id(e))) for e in group.members)) for group in groups]

    def _attach(self, episode: Episode, said: tuple[Floats, Floats] | None) -> Scored:
        steps, settings = self._segment(episode), self._settings
        outcome = paid(episode, settings.pay)
        parts = ["judge"] + ["share"] * (settings.split != "none")
        if said is None or (settings.split != "none" and outcome is None):
            nothing = {name: np.zeros(len(steps)) for name in parts}
            return Scored(episode, steps, outcome, nothing, np.zeros(len(steps), np.bool_))
        now_T, start_T = said
        suffix = settings.form == "suffix"
        nats_S = suffix_log_ratio(now_T - start_T, steps, settings.since) if suffix else pool(now_T - start_T, steps, "sum")
        rewards = {"judge": 0.0 - settings.beta * nats_S}
        if settings.split != "none" and outcome is not None:
            rewards["share"] = outcome * outcome_shares(steps, settings.split)
        return Scored(episode, steps, outcome, rewards, steps.lengths_S > 0, ref_logprobs_T=start_T, old_logprobs_T=now_T)

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics:
        """Nothing is learnt; says how far the policy has moved on the episodes that were scored last."""
        return dict(self._metrics)

    def models(self) -> dict[str, Saveable]:
        """The policy at the start."""
        return {"judge_reference": self._start}

    def state(self) -> dict[str, JSON]:
        """None."""
        return {}

    def restore(self, state: dict[str, JSON]) -> None:
        """Nothing to restore."""
