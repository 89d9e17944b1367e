"""What a step shows of reward hacking: numbers from the judged episodes of one step, which detectors compare over steps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from stepwell.rewards.confidence import pair_accuracy
from stepwell.types import Episode, Floats, Group, Metrics, Scored

__all__ = ["FEATURES", "repetition", "signals"]

FEATURES = ("tokens", "steps", "repetition")
"""What a judge should not pay for: sampled tokens, turns, share of turns that say the same in the same state again."""


def signals(groups: Sequence[Group[Scored]]) -> Metrics:
    """The numbers of one step; NaN where there is nothing to measure.

    The judge's *total* is the sum of an episode's process rewards. Episodes that failed, or without a scored step, are left out.

    | name | meaning |
    |---|---|
    | `judge` | mean total |
    | `success` | mean outcome |
    | `tokens`, `steps`, `repetition` | means over episodes; see `FEATURES` |
    | `entropy` | mean of -log p over sampled tokens: the policy's entropy a token, nats |
    | `last_share` | mean of the last scored step's share of the sum of absolute step rewards, over episodes with two scored steps or more |
    | `pair_accuracy` | how often, of two episodes of a task, the total is higher for the better outcome |
    | `F_xx`, `F_yy`, `F_xy`, `F_df` | sums of squares and products of feature F and total about their means over *comparable* episodes |
    | `gain_xx`, `gain_xy`, `gain_df` | the same of total (x) and outcome (y), about the means over a task |

    Comparable are episodes of one task that ended alike: with the same outcome in the same state (`state_key`). What a judge pays more
    there cannot be paid for a better end.
    """
    members = [[m for m in g.members if not m.episode.failed and m.scored_S.any() and m.outcome is not None] for g in groups]
    every = [member for group in members for member in group]
    made: Metrics = {
        "judge": _mean([_total(m) for m in every]),
        "success": _mean([_outcome(m) for m in every]),
        "tokens": _mean([float(m.episode.num_tokens) for m in every]),
        "steps": _mean([float(len(m.episode.turns)) for m in every]),
        "repetition": _mean([repetition(m.episode) for m in every]),
        "entropy": -_mean([float(m.episode.logprobs_T.mean()) for m in every if m.episode.num_tokens]),
        "last_share": _mean([share for m in every if (share := _last_share(m)) is not None]),
    }
    found = pair_accuracy([[(_outcome(m), _total(m)) for m in group] for group in members])
    made["pair_accuracy"] = math.nan if found is None else found
    alike = _alike(every)
    for feature in FEATURES:
        pairs = [(np.array([_feature(m, feature) for m in cell]), np.array([_total(m) for m in cell])) for cell in alike]
        made |= {f"{feature}_{name}": value for name, value in _sums(pairs).items()}
    gains = [(np.array([_total(m) for m in group]), np.array([_outcome(m) for m in group])) for group in members]
    return made | {f"gain_{name}": value for name, value in _sums(gains).items()}


def repetition(episode: Episode) -> float:
    """Share of turns that say what was said before in the same state (`state_key`; where there is none, the text that was seen)."""
    seen = [episode.start, *(turn.reply.observation for turn in episode.turns)]
    said = [(before.state_key or before.text, turn.text) for before, turn in zip(seen, episode.turns, strict=False)]
    return 1.0 - len(set(said)) / len(said) if said else 0.0


def _feature(member: Scored, name: str) -> float:
    episode = member.episode
    if name == "repetition":
        return repetition(episode)
    return float(episode.num_tokens if name == "tokens" else len(episode.turns))


def _total(member: Scored) -> float:
    return float(member.process_S.sum())


def _outcome(member: Scored) -> float:
    assert member.outcome is not None
    return member.outcome


def _last_share(member: Scored) -> float | None:
    """None where there is one step, or nothing is paid."""
    sizes = np.abs(member.process_S[member.scored_S])
    return float(sizes[-1] / sizes.sum()) if len(sizes) > 1 and sizes.sum() > 0 else None


def _alike(members: Sequence[Scored]) -> list[list[Scored]]:
    """Cells of comparable episodes, those of one left out."""
    cells: dict[tuple[str, float, str | None], list[Scored]] = defaultdict(list)
    for member in members:
        turns = member.episode.turns
        end = turns[-1].reply if turns else None
        cells[member.episode.task.key, _outcome(member), end.observation.state_key if end else ""].append(member)
    return [cell for cell in cells.values() if len(cell) > 1]


def _sums(pairs: Sequence[tuple[Floats, Floats]]) -> Metrics:
    """Sums of squares and products about each cell's means, and the degrees of freedom that are left."""
    centred = [(x - x.mean(), y - y.mean()) for x, y in pairs if len(x) > 1]
    return {
        "xx": float(sum(x @ x for x, _ in centred)),
        "yy": float(sum(y @ y for _, y in centred)),
        "xy": float(sum(x @ y for x, y in centred)),
        "df": float(sum(len(x) - 1 for x, _ in centred)),
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan
