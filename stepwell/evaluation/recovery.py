"""How a policy gets over what happens in the middle of an episode, and what it costs: pure functions on played episodes.

An event is a turn whose reply names one (`Reply.event`); what success then means is the domain's affair (see `stepwell.envs.interrupt`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stepwell.errors import ConfigError
from stepwell.evaluation.intervals import Interval, bootstrap
from stepwell.types import JSON, Episode, Group

__all__ = ["Recovery", "compared", "first_event", "paired_difference", "recovery", "recovery_given_clean"]


class Recovery(NamedTuple):
    """What came of interrupted episodes.

    Attributes:
        interrupted: Episodes in which something happened, of those with a grade.
        rate: Share of them that succeed all the same; NaN where there is none.
        steps: Mean number of turns from the first event to the end, over those that succeed; NaN where none does.
        by_kind: Kind of the first event -> rate.
    """

    interrupted: int
    rate: float
    steps: float
    by_kind: Mapping[str, float]


def first_event(episode: Episode) -> int | None:
    """The first turn in whose reply something happened; None where nothing did."""
    return next((number for number, turn in enumerate(episode.turns) if turn.reply.event is not None), None)


def recovery(groups: Sequence[Group[Episode]]) -> Recovery:
    """Recovery over all graded episodes with an event."""
    found = [
        (e, at) for g in groups for e in g.members if not e.failed and e.verdict.success is not None and (at := first_event(e)) is not None
    ]
    kinds: dict[str, list[bool]] = {}
    for episode, at in found:
        kinds.setdefault(str(episode.turns[at].reply.event), []).append(bool(episode.verdict.success))
    won = [(episode, at) for episode, at in found if episode.verdict.success]
    return Recovery(
        interrupted=len(found),
        rate=len(won) / len(found) if found else math.nan,
        steps=float(np.mean([len(episode.turns) - 1 - at for episode, at in won])) if won else math.nan,
        by_kind={kind: float(np.mean(wins)) for kind, wins in sorted(kinds.items())},
    )


def paired_difference(clean: Sequence[Group[Episode]], perturbed: Sequence[Group[Episode]]) -> Interval:
    """Perturbed less clean success on the same tasks and members, with a 95 % bootstrap interval over tasks.

    Pairs of which one has no grade are left out.

    Raises:
        ConfigError: The two are not of the same tasks.
    """
    differences, tasks = [], []
    for number, (wins, losses) in enumerate(_pairs(clean, perturbed)):
        differences += [after - before for before, after in zip(wins, losses, strict=True)]
        tasks += [number] * len(wins)
    return bootstrap(differences, cluster_N=tasks)


def recovery_given_clean(clean: Sequence[Group[Episode]], perturbed: Sequence[Group[Episode]]) -> float:
    """Success of the perturbed episodes whose clean twins succeed: ToolMaze's recovery rate, arXiv 2606.05806. NaN where none does."""
    pairs = [pair for wins, others in _pairs(clean, perturbed) for pair in zip(wins, others, strict=True)]
    kept = [after for before, after in pairs if before == 1.0]
    return float(np.mean(kept)) if kept else math.nan


def compared(clean: Sequence[Group[Episode]], perturbed: Sequence[Group[Episode]]) -> dict[str, JSON]:
    """All of this page about the same tasks played undisturbed and disturbed; None where nothing could be measured.

    Raises:
        ConfigError: The two are not of the same tasks.
    """
    got_over, difference = recovery(perturbed), paired_difference(clean, perturbed)
    return {
        "difference": {name: _number(value) for name, value in difference._asdict().items()},
        "interrupted": got_over.interrupted,
        "recovery": _number(got_over.rate),
        "recovery_turns": _number(got_over.steps),
        "recovery_given_clean": _number(recovery_given_clean(clean, perturbed)),
        "recovery_by_kind": dict(got_over.by_kind),
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _pairs(clean: Sequence[Group[Episode]], perturbed: Sequence[Group[Episode]]) -> list[tuple[list[float], list[float]]]:
    """Success of twins with a grade, task by task."""
    keys = [[group.task.key for group in groups] for groups in (clean, perturbed)]
    sizes = [[len(group.members) for group in groups] for groups in (clean, perturbed)]
    if keys[0] != keys[1] or sizes[0] != sizes[1]:
        raise ConfigError(
            f"Clean and perturbed success are compared on the same tasks: got {len(keys[0])} and {len(keys[1])} groups, or others, or of "
            "other sizes; play the same tasks with the same number of samples."
        )
    made = []
    for one, two in zip(clean, perturbed, strict=True):
        twins = [(_success(a), _success(b)) for a, b in zip(one.members, two.members, strict=True)]
        known = [(a, b) for a, b in twins if a is not None and b is not None]
        made.append(([a for a, _ in known], [b for _, b in known]))
    return made


def _success(episode: Episode) -> float | None:
    return None if episode.failed or episode.verdict.success is None else float(episode.verdict.success)
