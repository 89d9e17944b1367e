"""KL-regularised credit by the suffix log-ratio: PRL and FRPO.

Legend: S steps of all members of a group, end to end, T sampled token of one episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from stepwell.credit.baseline import Baseline, Standardised
from stepwell.credit.rule import Flat, Need, Part, Parts, credited, outcome_part
from stepwell.errors import ConfigError, CreditError, nearest
from stepwell.types import Credited, Floats, Group, Scored, Steps

__all__ = ["SuffixLogRatio", "suffix_log_ratio"]

Since = Literal["first", "last"]
_SINCE: tuple[Since, ...] = ("first", "last")
_GRPO = Standardised()


@dataclass(frozen=True, slots=True)
class SuffixLogRatio:
    """The outcome's advantage minus what is still to be paid for leaving the reference: `A_s = A^E_i - beta * sum of delta_t, t >= s`.

    `delta_t = log pi_old(token t) - log pi_ref(token t)` of the sampled tokens, from the step's first token to the episode's end. It is
    the reward-to-go of a KL penalty, and enters after the outcome has been compared, never before. Observations are not sampled and cost
    nothing. No process reward is read: the policy is its own judge.

    Source: FRPO, arXiv 2601.10201 v2 (beta 0.01), by tokens; PRL is its first version. `since="last"` is PRL's released form, which
    sums from the step's last token (beta = 1 / eta, 0.005 to 0.01) and so drops the step's own cost but for that token. For steps of one
    token the two are the same. With beta = 0 it is `OutcomeOnly`.

    Bias: with `LeaveOneOut` or `Raw` none, for R - beta x the sum of delta, the KL-regularised return; the last-token form is biased.

    Raises (when built):
        ConfigError: beta is negative or not finite, or `since` is unknown.
    Raises (when called):
        CreditError: an episode has no log-probs under the reference, or some are not finite; a group is smaller than the baseline needs.

    Attributes:
        baseline: For the outcome.
        beta: Price of a nat.
        since: `first` or `last` token of the step.
    """

    baseline: Baseline = _GRPO
    beta: float = 0.01
    since: Since = "first"
    needs: ClassVar[frozenset[Need]] = frozenset({"reference", "old_logprobs"})

    def __post_init__(self) -> None:
        if not (np.isfinite(self.beta) and self.beta >= 0):
            raise ConfigError(f"credit.beta is {self.beta}; allowed is a finite number of at least 0 (0 switches the penalty off).")
        if self.since not in _SINCE:
            raise ConfigError(f"since is {self.since!r}; {nearest(self.since, _SINCE)}.")

    def parts(self, groups: Sequence[Group[Scored]]) -> list[Parts]:
        """The outcome's part, and as `process` the suffix."""
        return [
            Parts(flat, {"outcome": outcome_part(flat, self.baseline), "process": self._process(flat)}) for flat in map(Flat.of, groups)
        ]

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return credited(self.parts(groups))

    def _process(self, flat: Flat) -> Part:
        told_S = np.repeat([not member.episode.failed for member in flat.group.members], flat.sizes) & (flat.lengths_S > 0)
        suffix = [
            np.zeros(len(member.steps)) if member.episode.failed else suffix_log_ratio(_log_ratio(member), member.steps, self.since)
            for member in flat.group.members
        ]
        return Part(np.where(told_S, -self.beta * np.concatenate([np.zeros(0), *suffix]), 0.0), told_S)


def suffix_log_ratio(log_ratio_T: Floats, steps: Steps, since: Since = "first") -> Floats:
    """Sum of the log-ratios from each step's first (or last) token to the end of the episode; 0 for a step without tokens. [S]"""
    suffix = np.append(np.cumsum(log_ratio_T[::-1])[::-1], 0.0)
    at_S = steps.start_S if since == "first" else steps.stop_S - 1
    return np.where(steps.lengths_S > 0, suffix[at_S], 0.0)


def _log_ratio(member: Scored) -> Floats:
    if member.ref_logprobs_T is None:
        episode = member.episode
        raise CreditError(
            f"Member {episode.member} of task {episode.task.key!r} has no log-probs under a reference, and credit by the suffix log-ratio "
            "is made of them; give the trainer a reference (Parts.reference), or attach Scored.ref_logprobs_T."
        )
    old_T = member.episode.logprobs_T if member.old_logprobs_T is None else member.old_logprobs_T
    log_ratio_T = old_T - member.ref_logprobs_T
    if not np.all(np.isfinite(log_ratio_T)):
        raise CreditError(
            f"Log-probs of member {member.episode.member} of task {member.episode.task.key!r} hold NaN or infinity; credit by the suffix "
            "log-ratio needs a finite one of every sampled token, under the policy and under the reference."
        )
    return log_ratio_T
