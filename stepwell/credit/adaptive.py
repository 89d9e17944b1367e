"""A process part that counts as much as the judge has proved to know.

Legend: N members of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.credit.rule import Need, Part, Parts, Rule, credited
from stepwell.errors import CreditError
from stepwell.types import Credited, Group, Scored

__all__ = ["Adaptive", "trust"]


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Another rule, its process part weighed by the judge's confidence: `A = A^outcome + clip(2 c - 1, 0, 1) * A^process`.

    c is `Scored.confidence`: the share of pairs of episodes that the judge ranked as the verdict did, on episodes that it had not learnt
    from. At chance (0.5) or below the process part is 0, for a judge that is always right it is the rule's own. Where the confidence is
    unknown there is no process part, and `credit/unknown_confidence` counts the episode.

    Stepwell's own. With confidence 1 it is the rule inside, with 0.5 the outcome's part of that rule alone.

    Bias: that of the rule inside, for the objective whose process rewards are weighed by the same number, as long as the confidence
    does not depend on the episodes that are credited.

    Raises (when called):
        CreditError: the rule inside has no process part.

    Attributes:
        rule: Any rule with a process part.
    """

    rule: Rule

    @property
    def needs(self) -> frozenset[Need]:
        """What the rule inside needs, and a confidence."""
        return self.rule.needs | {"confidence"}

    def parts(self, groups: Sequence[Group[Scored]]) -> list[Parts]:
        """The rule's parts, the process part weighed."""
        return [_weighed(made) for made in self.rule.parts(groups)]

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return credited(self.parts(groups))


def trust(confidence: float | None) -> float:
    """Weight of the process part: `clip(2 c - 1, 0, 1)`; 0 where the confidence is unknown.

    >>> [trust(c) for c in (None, 0.3, 0.5, 0.75, 1.0)]
    [0.0, 0.0, 0.0, 0.5, 1.0]
    """
    return 0.0 if confidence is None else float(np.clip(2.0 * confidence - 1.0, 0.0, 1.0))


def _weighed(made: Parts) -> Parts:
    process = made.parts.get("process")
    if process is None:
        raise CreditError("The rule has no process part that a judge's confidence could weigh; wrap one that has, such as IStar.")
    confidences = [member.confidence for member in made.flat.group.members]
    known_S = np.repeat(np.array([c is not None for c in confidences], np.bool_), made.flat.sizes)
    weight_S = made.flat.spread(np.array([trust(c) for c in confidences], np.float64))
    return Parts(
        made.flat, {**made.parts, "process": Part(np.where(weight_S > 0, weight_S * process.values_S, 0.0), process.told_S & known_S)}
    )
