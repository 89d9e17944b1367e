"""Process supervision as in DeepSeekMath: standardised step rewards, summed to the end.

Legend: S steps of all members of a group, end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.credit.baseline import Baseline, Standardised, compare
from stepwell.credit.returns import to_go
from stepwell.credit.rule import Flat, Need, Part, Parts, check_alpha, credited, outcome_part
from stepwell.types import Credited, Group, Scored

__all__ = ["ProcessSupervision"]

_STEPS = Standardised(noise_floor=1e-4)


@dataclass(frozen=True, slots=True)
class ProcessSupervision:
    """Standardised step rewards to come: `A_s = A^E_i + alpha * sum over k >= s of (r_k - mean(R)) / (std(R) + noise_floor)`.

    R holds the process rewards of all scored steps of all members of the group.

    Source: GRPO with process supervision, DeepSeekMath, arXiv 2402.03300, section 4.1.3 (there without outcome part: `baseline=None`, the
    default here). With one step an episode it is GRPO on the process reward.

    Bias: biased where the policy decides how many steps it takes: every further step adds one more difference from the mean, so that
    episodes grow where steps are better than the mean and shrink where they are worse, whatever they earn in all. Where all have
    equally many steps the mean and the deviation still hold the episode's own rewards.

    Raises (when built):
        ConfigError: alpha is negative or not finite.
    Raises (when called):
        CreditError: a group is smaller than the baseline needs.

    Attributes:
        baseline: For the outcome; None leaves the outcome out, as the paper does.
        alpha: Weight of the process part.
        step_baseline: For the step rewards.
    """

    baseline: Baseline | None = None
    alpha: float = 1.0
    step_baseline: Baseline = _STEPS
    needs: ClassVar[frozenset[Need]] = frozenset()

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def parts(self, groups: Sequence[Group[Scored]]) -> list[Parts]:
        """Outcome, where it has a baseline, and process."""
        return [self._parts(flat) for flat in map(Flat.of, groups)]

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return credited(self.parts(groups))

    def _parts(self, flat: Flat) -> Parts:
        outcome = {} if self.baseline is None else {"outcome": outcome_part(flat, self.baseline)}
        told_S = flat.scored_S & (flat.scored_S.sum() > 1)
        compared_S = np.zeros(flat.num_steps)
        compared_S[told_S] = compare(self.step_baseline, flat.process_S[told_S])
        process_S = np.where(told_S, self.alpha * flat.each(to_go, compared_S), 0.0)
        return Parts(flat, {**outcome, "process": Part(process_S, told_S)})
