"""Credit from the outcome alone, and the two plain ways to add process rewards: a step for itself, and all that is still to come.

Legend: N members of a group, S steps of all members of a group, end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from stepwell.credit.baseline import Baseline, Centred, LeaveOneOut, Raw, Standardised, compare
from stepwell.credit.returns import to_go
from stepwell.credit.rule import Flat, Need, Part, Parts, check_alpha, check_size, credited, outcome_part, outcomes_differ
from stepwell.errors import ConfigError, nearest
from stepwell.types import Credited, Floats, Group, Scored

__all__ = ["IStar", "OutcomeOnly", "ProcessToGo", "returns_part"]

_GRPO, _RLOO, _STEPS = Standardised(), LeaveOneOut(), Standardised(noise_floor=1e-4)


@dataclass(frozen=True, slots=True)
class OutcomeOnly:
    """Every step gets its episode's advantage: `A_s = (R_i - baseline) / scale`.

    With `Standardised` this is GRPO (arXiv 2402.03300, outcome supervision), with `Centred` Dr.GRPO (arXiv 2503.20783), with
    `LeaveOneOut` RLOO (arXiv 2402.14740), with `Raw` REINFORCE. Groups of equal outcomes get 0 (but for `Raw`).

    Bias: none with `LeaveOneOut` and `Raw`; `Centred` is (N - 1) / N x the gradient; `Standardised` is biased: it weighs tasks by how rare
    a success is in the group.

    With `scale="batch"` the difference is divided by the standard deviation of all outcomes of the batch, plus 1e-4 (with `Centred`, TRL's
    `scale_rewards="batch"`): tasks keep their weight relative to each other. Biased as well, if less.

    Raises (when built):
        ConfigError: `scale` is unknown, or would divide twice.
    Raises (when called):
        CreditError: a group is smaller than the baseline needs.

    Attributes:
        baseline: What an outcome is compared with, and its unit.
        scale: `group`: the baseline's own; `batch`: see above.
    """

    baseline: Baseline = _GRPO
    scale: Literal["group", "batch"] = "group"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def __post_init__(self) -> None:
        if self.scale not in ("group", "batch"):
            raise ConfigError(f"scale is {self.scale!r}; {nearest(self.scale, ('group', 'batch'))}.")
        if self.scale == "batch" and isinstance(self.baseline, Standardised):
            raise ConfigError("scale is 'batch' with a baseline that divides by the group's deviation; use Centred or LeaveOneOut.")

    def parts(self, groups: Sequence[Group[Scored]]) -> list[Parts]:
        """The outcome's part."""
        flats = [Flat.of(group) for group in groups]
        unit = 1.0 if self.scale == "group" else _deviation(flats)
        parts = [outcome_part(flat, self.baseline) for flat in flats]
        return [Parts(flat, {"outcome": Part(part.values_S / unit, part.told_S)}) for flat, part in zip(flats, parts, strict=True)]

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return credited(self.parts(groups))


def _deviation(flats: Sequence[Flat]) -> float:
    """Standard deviation of all outcomes that count, plus 1e-4."""
    outcomes = np.concatenate([np.zeros(0), *(flat.outcome_N[flat.counts_N] for flat in flats)])
    return (float(outcomes.std(ddof=1)) if len(outcomes) > 1 else 0.0) + 1e-4


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

    Bias: biased. A step's reward is compared with a mean that holds the rewards of its own episode, and counts for itself alone: what
    a step makes possible later is credited through the outcome only.

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

    needs: ClassVar[frozenset[Need]] = frozenset()

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def parts(self, groups: Sequence[Group[Scored]]) -> list[Parts]:
        """Outcome and process."""
        return [
            Parts(flat, {"outcome": outcome_part(flat, self.baseline), "process": self._process(flat)}) for flat in map(Flat.of, groups)
        ]

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return credited(self.parts(groups))

    def _process(self, flat: Flat) -> Part:
        values_S = np.zeros(flat.num_steps)
        if self.only_mixed and not outcomes_differ(flat.group):
            return Part(values_S, np.zeros(flat.num_steps, np.bool_))
        values_S[flat.scored_S] = self.alpha * compare(self.step_baseline, flat.process_S[flat.scored_S])
        return Part(values_S, flat.scored_S & (flat.scored_S.sum() > 1))


@dataclass(frozen=True, slots=True)
class ProcessToGo:
    """Process rewards summed to the end, against what the group's episodes earned: `A_s = A^E_i + alpha * (G_s - b_i)`.

    `G_s` is the discounted sum of process rewards from step s on, and the baseline compares the whole returns `G_0` of the group's
    members (each rollout once). For rewards that the environment pays itself; with a reward at the last step alone and discount 1 it is
    `OutcomeOnly` of that reward. With `LeaveOneOut` (default) the baseline of an episode does not depend on its own rewards: changing
    the first reward of an episode changes, in that episode, the advantage of its first step alone.

    Unscored steps are skipped by the sums and get no process part. Returns keep their unit: their standard deviation over the group is 0
    where all episodes earn the same, while the returns of later steps still differ, so that a division by it could blow up.

    Bias: none with `LeaveOneOut` and discount 1, for the sum of the outcome (if it has a baseline) and alpha x all process rewards: the
    baseline of an episode is the same at all its steps and holds none of its own rewards. A discount below 1 is biased: it forgets.

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

    needs: ClassVar[frozenset[Need]] = frozenset()

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        allowed = (LeaveOneOut.name, Centred.name, Raw.name)
        if self.return_baseline.name not in allowed:
            raise ConfigError(f"The baseline of returns is {self.return_baseline.name}; allowed are {', '.join(allowed)}.")
        to_go(np.zeros(0), self.discount)

    def parts(self, groups: Sequence[Group[Scored]]) -> list[Parts]:
        """Outcome, where it has a baseline, and process."""
        return [self._parts(flat) for flat in map(Flat.of, groups)]

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return credited(self.parts(groups))

    def _parts(self, flat: Flat) -> Parts:
        outcome = {} if self.baseline is None else {"outcome": outcome_part(flat, self.baseline)}
        returns_S = flat.each(lambda rewards: to_go(rewards, self.discount), flat.process_S)
        return Parts(flat, {**outcome, "process": returns_part(flat, returns_S, self.return_baseline, self.alpha)})


def returns_part(flat: Flat, returns_S: Floats, baseline: Baseline, alpha: float) -> Part:
    """`alpha * (G_s - b_i)` on scored steps; b_i is the baseline of member i among the whole returns of the members (each once).

    Args:
        flat: The group.
        returns_S: Process rewards to come, in any form; the value at a member's first step is its whole return. [S]
        baseline: Nothing is told where it has nothing to compare with.
        alpha: Weight.
    """
    check_size(flat.group, baseline)
    judged = np.flatnonzero(flat.judged_N)
    told_S = flat.scored_S & (len(judged) > 1 or isinstance(baseline, Raw))
    if not told_S.any():
        return Part(np.zeros(flat.num_steps), told_S)
    offset_N = np.zeros(len(flat.sizes))
    offset_N[judged] = baseline.fit(returns_S[np.array(flat.bounds)[judged]]).offset
    return Part(np.where(told_S, alpha * (returns_S - flat.spread(offset_N)), 0.0), told_S)
