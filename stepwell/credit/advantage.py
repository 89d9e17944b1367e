"""Credit rules: from scored groups to an advantage for every step.

Legend: N members of a group that count, S step.

A rule takes all groups of a training step and gives them back with advantages. What every rule keeps to:

- A member **counts** in the outcome's baseline if it did not fail, its outcome is scored and it has sampled tokens. Each rollout counts
  once, whatever its number of steps.
- A failed episode gets zero advantages and enters no statistic.
- An unscored outcome gives no outcome part, an unscored step no process part; the other part stays. Statistics leave both out.
- Nothing to compare with gives 0, and `credit_metrics` counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.credit.baseline import Baseline, Centred, LeaveOneOut, Standardised, compare
from stepwell.credit.returns import to_go
from stepwell.errors import ConfigError, CreditError
from stepwell.types import Bools, Credited, Floats, Group, Scored

__all__ = ["IStar", "OutcomeOnly", "ProcessToGo", "outcome_counts", "outcomes_differ"]

_GRPO, _RLOO, _STEPS = Standardised(), LeaveOneOut(), Standardised(noise_floor=1e-4)


@dataclass(frozen=True, slots=True)
class OutcomeOnly:
    """Every step gets its episode's advantage: `A_s = (R_i - baseline) / scale`.

    With `Standardised` this is GRPO (arXiv 2402.03300, outcome supervision), with `Centred` Dr.GRPO (arXiv 2503.20783), with
    `LeaveOneOut` RLOO (arXiv 2402.14740). Groups of equal outcomes get 0.

    Raises (when called):
        CreditError: a group is smaller than the baseline needs.

    Attributes:
        baseline: What an outcome is compared with, and its unit.
    """

    baseline: Baseline = _GRPO

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return [_credited(group, _outcome_parts(group, self.baseline), None) for group in groups]


@dataclass(frozen=True, slots=True)
class IStar:
    """Episode credit plus step credit: `A_s = A^E_i + alpha * A^S_s`.

    `A^E` is the outcome's advantage as in `OutcomeOnly`. `A^S_s = (r_s - mean(R)) / (std(R) + noise_floor)` with R the process
    rewards of **all** scored steps of all members of the group. A step is paid for itself: no sum over later steps.

    Source: iStar, arXiv 2509.19199 (there alpha = 1). With `alpha = 0` it is `OutcomeOnly`; `step_baseline=Centred()` keeps
    the unit of the reward (and with it the judge's beta), which the standard deviation removes.

    Differs from the paper: groups whose outcomes are all equal get no process part by default (`only_mixed`; a judge learnt from pairs
    of better and worse episodes has nothing to say about them: measured as noise), and the standard deviation has a noise floor.
    Differs from the authors' code, which takes the step statistics from the first step of every trajectory only.

    Raises (when built):
        ConfigError: alpha is negative or not finite.
    Raises (when called):
        CreditError: a group is smaller than the baseline needs.

    Attributes:
        baseline: For the outcome (the paper: RLOO on WebShop, GRPO on SOTOPIA).
        alpha: Weight of the process part.
        step_baseline: For the process rewards; the noise floor is in their unit (beta x nats for a log-ratio judge).
        only_mixed: Whether groups of equal outcomes go without process part.
    """

    baseline: Baseline = _GRPO
    alpha: float = 1.0
    step_baseline: Baseline = _STEPS
    only_mixed: bool = True

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return [_credited(group, _outcome_parts(group, self.baseline), self._process_parts(group)) for group in groups]

    def _process_parts(self, group: Group[Scored]) -> list[Floats]:
        parts = [np.zeros(len(member.steps)) for member in group.members]
        if self.only_mixed and not outcomes_differ(group):
            return parts
        masks = [_scored_steps(member) for member in group.members]
        pooled = np.concatenate([member.process_S[mask_S] for member, mask_S in zip(group.members, masks, strict=True)] or [np.zeros(0)])
        advantages = self.alpha * compare(self.step_baseline, pooled)
        stops = np.cumsum([mask_S.sum() for mask_S in masks])
        for part_S, mask_S, stop in zip(parts, masks, stops, strict=True):
            part_S[mask_S] = advantages[stop - mask_S.sum() : stop]
        return parts


@dataclass(frozen=True, slots=True)
class ProcessToGo:
    """Process rewards summed to the end, against what the group's episodes earned: `A_s = A^E_i + alpha * (G_s - b_i)`.

    `G_s` is the discounted sum of process rewards from step s on, and the baseline compares the whole returns `G_0` of the group's
    members (each rollout once). For rewards that the environment pays itself; with a reward at the last step alone and discount 1 it is
    `OutcomeOnly` of that reward. With `LeaveOneOut` (default) the baseline of an episode does not depend on its own rewards: changing
    the first reward of an episode changes, in that episode, the advantage of its first step alone.

    Unscored steps are skipped by the sums and get no process part. Returns keep their unit: their standard deviation over the group is 0
    where all episodes earn the same, while the returns of later steps still differ, so that a division by it could blow up.

    Source: the reward-to-go estimator (Sutton and Barto, 2nd edition, section 13.4) with the baseline of RLOO, arXiv 2402.14740.

    Raises (when built):
        ConfigError: alpha is negative or not finite, the discount lies outside [0, 1], or `return_baseline` divides by a deviation.
    Raises (when called):
        CreditError: a group is smaller than a baseline needs.

    Attributes:
        baseline: For the outcome part; None leaves the outcome out (where the environment's rewards hold it already).
        alpha: Weight of the process part.
        return_baseline: For the returns.
        discount: Per step, in [0, 1].
    """

    baseline: Baseline | None = _RLOO
    alpha: float = 1.0
    return_baseline: Baseline = _RLOO
    discount: float = 1.0

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)
        if self.return_baseline.name not in (LeaveOneOut.name, Centred.name):
            raise ConfigError(f"The baseline of returns is {self.return_baseline.name}; allowed are {LeaveOneOut.name} and {Centred.name}.")
        to_go(np.zeros(0), self.discount)

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return [_credited(group, self._outcome_parts(group), self._process_parts(group)) for group in groups]

    def _outcome_parts(self, group: Group[Scored]) -> list[float]:
        return [0.0] * len(group.members) if self.baseline is None else _outcome_parts(group, self.baseline)

    def _process_parts(self, group: Group[Scored]) -> list[Floats]:
        _check_size(group, self.return_baseline)
        parts = [np.zeros(len(member.steps)) for member in group.members]
        masks = [_scored_steps(member) for member in group.members]
        counted = [n for n, mask_S in enumerate(masks) if mask_S.any()]
        if len(counted) < 2:
            return parts
        returns = {n: to_go(group.members[n].process_S, self.discount) for n in counted}
        offset_N = self.return_baseline.fit(np.array([returns[n][0] for n in counted])).offset
        for n, offset in zip(counted, offset_N, strict=True):
            parts[n] = np.where(masks[n], self.alpha * (returns[n] - offset), 0.0)
        return parts


def outcome_counts(member: Scored) -> bool:
    """Whether a member takes part in the outcome's baseline: not failed, outcome scored, some token sampled."""
    return not member.episode.failed and member.outcome is not None and member.episode.num_tokens > 0


def outcomes_differ(group: Group[Scored]) -> bool:
    """Whether the members that count have at least two different outcomes."""
    return len({member.outcome for member in group.members if outcome_counts(member)}) > 1


def _outcome_parts(group: Group[Scored], baseline: Baseline) -> list[float]:
    """The outcome's advantage of each member, 0 where it does not count."""
    _check_size(group, baseline)
    counted = [n for n, member in enumerate(group.members) if outcome_counts(member)]
    values_N = np.array([group.members[n].outcome for n in counted], np.float64)
    if not np.all(np.isfinite(values_N)):
        raise CreditError(
            f"Task {group.task.key!r} has outcomes {values_N.tolist()}; outcomes are finite, and None where there is no score."
        )
    parts = [0.0] * len(group.members)
    for n, advantage in zip(counted, compare(baseline, values_N), strict=True):
        parts[n] = float(advantage)
    return parts


def _credited(group: Group[Scored], outcome: list[float], process: list[Floats] | None) -> Group[Credited]:
    members = []
    for n, member in enumerate(group.members):
        parts = {"outcome": np.full(len(member.steps), outcome[n])}
        if process is not None:
            parts["process"] = process[n]
        total_S = parts["outcome"] + parts["process"] if process is not None else parts["outcome"]
        members.append(Credited(member, total_S, parts))
    return Group(group.task, tuple(members))


def _scored_steps(member: Scored) -> Bools:
    """Steps whose process reward counts. [S]"""
    return member.scored_S & (not member.episode.failed) & (member.steps.lengths_S > 0)


def _check_size(group: Group[Scored], baseline: Baseline) -> None:
    if len(group.members) < baseline.min_members:
        raise CreditError(f"rollout.group_size is {len(group.members)}; {baseline.name} needs at least {baseline.min_members}.")


def _check_alpha(alpha: float) -> None:
    if not (np.isfinite(alpha) and alpha >= 0):
        raise ConfigError(f"credit.alpha is {alpha}; allowed is a finite number of at least 0 (0 switches the process part off).")
