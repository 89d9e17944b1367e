"""The process part of credit, weighed after the rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepwell.types import Credited, Group

__all__ = ["weighed"]


def weighed(groups: Sequence[Group[Credited]], weight: float) -> list[Group[Credited]]:
    """`A_s = A_s - (1 - weight) * process_s`, with the part itself in the same measure: the outcome's part stays what it was.

    It comes after the rule, because rules that divide by a deviation undo a weight of the step rewards. The `offset` of whitening stays,
    too. Credit without a part `process` is unchanged. Weight 1 changes nothing at all.
    """

    def weigh(member: Credited) -> Credited:
        process_S = member.parts.get("process")
        if process_S is None:
            return member
        parts = {**member.parts, "process": weight * process_S}
        return replace(member, advantages_S=member.advantages_S - (1.0 - weight) * process_S, parts=parts)

    return list(groups) if weight == 1.0 else [Group(group.task, tuple(map(weigh, group.members))) for group in groups]
