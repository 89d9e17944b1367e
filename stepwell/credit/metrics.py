"""What credit assignment did, as numbers for the log.

Legend: S step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.credit.rule import outcome_counts, outcomes_differ
from stepwell.types import Credited, Floats, Group, Metrics

__all__ = ["credit_metrics"]


def credit_metrics(groups: Sequence[Group[Credited]]) -> Metrics:
    """Counts, shares and magnitudes; a mean of nothing is left out rather than reported as NaN.

    | name | meaning |
    |---|---|
    | `credit/flat_groups` | share, of groups with an outcome, in which all outcomes are equal: they give no outcome part |
    | `credit/lone_groups` | number of groups with exactly one member that counts: nothing to compare it with |
    | `credit/failed` | number of failed episodes |
    | `credit/unscored_outcomes` | number of episodes that did not fail and have no outcome |
    | `credit/unscored_steps` | number of steps without process reward, of episodes that did not fail and have a judge |
    | `credit/untold_steps` | number of steps that got no process part although the rule has one: unscored, or nothing to compare with |
    | `credit/unknown_confidence` | number of judged episodes that did not fail and whose judge says nothing about how far to trust it |
    | `credit/confidence` | mean confidence of the judge, over the other judged episodes |
    | `credit/outcome` | mean raw outcome, each rollout once |
    | `credit/return` | mean raw sum of process rewards, each rollout with a scored step once |
    | `credit/outcome_abs`, `credit/process_abs`, `credit/advantage_abs` | mean size of each part and of the sum, over sampled tokens |
    """
    members = [member for group in groups for member in group.members]
    alive = [member for member in members if not member.scored.episode.failed]
    judged = [member for member in alive if member.scored.rewards]
    counts = [sum(outcome_counts(member.scored) for member in group.members) for group in groups]
    flat = [
        not outcomes_differ(Group(group.task, tuple(member.scored for member in group.members)))
        for group, count in zip(groups, counts, strict=True)
        if count
    ]
    metrics = {
        "credit/lone_groups": float(counts.count(1)),
        "credit/failed": float(len(members) - len(alive)),
        "credit/unscored_outcomes": float(sum(member.scored.outcome is None for member in alive)),
        "credit/unscored_steps": float(sum(int((~member.scored.scored_S).sum()) for member in judged)),
        "credit/untold_steps": float(sum(int((~member.told_S).sum()) for member in alive if member.told_S is not None)),
        "credit/unknown_confidence": float(sum(member.scored.confidence is None for member in judged)),
    }
    means = {
        "credit/flat_groups": np.array(flat, np.float64),
        "credit/outcome": np.array([member.scored.outcome for member in alive if outcome_counts(member.scored)], np.float64),
        "credit/return": np.array([member.scored.process_S.sum() for member in judged if member.scored.scored_S.any()], np.float64),
        "credit/confidence": np.array([c for member in judged if (c := member.scored.confidence) is not None]),
        "credit/outcome_abs": _sizes(alive, "outcome"),
        "credit/process_abs": _sizes(alive, "process"),
        "credit/advantage_abs": _tokens([(member, member.advantages_S) for member in alive]),
    }
    return metrics | {name: float(values.mean()) for name, values in means.items() if len(values)}


def _sizes(members: Sequence[Credited], part: str) -> Floats:
    return _tokens([(member, member.parts[part]) for member in members if part in member.parts])


def _tokens(values: Sequence[tuple[Credited, Floats]]) -> Floats:
    """Absolute values at every sampled token of all members."""
    return np.concatenate([np.repeat(np.abs(values_S), member.scored.steps.lengths_S) for member, values_S in values] or [np.zeros(0)])
