"""What is kept of a finished run: success on held-out tasks, undisturbed and interrupted, the learning curve, judge and curriculum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from stepwell.ablation.calibration import calibration, said_of
from stepwell.ablation.variants import can_interrupt, clean, perturbed
from stepwell.build import build_domain, first_tasks
from stepwell.config import Config, OutcomeRewardConfig
from stepwell.evaluation.evaluate import Evaluation, evaluate
from stepwell.evaluation.recovery import compared
from stepwell.tracking import MetricsLine, episode_steps, read_episodes, read_metrics
from stepwell.trained import open_run
from stepwell.types import JSON, Metrics

__all__ = ["alarms_of", "curriculum_of", "curve_of", "divergences", "episodes_of", "measure"]

_LATE = 1 / 3
"""Share of the run, from its end, in which judge and curriculum are looked at."""
_ZONE = (0.4, 0.6)
_ALSO_PLAYED = ("judge/continuations", "credit/event_episodes")
"""Episodes that a judge or a credit rule has the policy play on."""


def measure(run: Path, config: Config, whole: Config, *, episodes_before: int = 0) -> dict[str, JSON]:
    """The numbers of a run that is through.

    Args:
        run: Its folder.
        config: Its config.
        whole: That of the full system, which says what interrupts.
        episodes_before: Played before the run, for the run: those that a static judge has learnt from. They count as its own.
    """
    lines = read_metrics(run)
    late = [step for step in episode_steps(run) if step > config.cloning.steps + (1 - _LATE) * config.steps]
    records = [record for step in late for record in read_episodes(run, step)]
    learns = not isinstance(config.reward, OutcomeRewardConfig)
    found = calibration(*said_of(records)) if learns else None
    return {
        **_played(run, whole),
        "episodes_before": episodes_before,
        "curve": curve_of(lines, config.rollout.group_size, episodes_before),
        "judge": None if found is None else {name: _number(value) for name, value in found._asdict().items()},
        "curriculum": curriculum_of(lines),
        "divergences": divergences(lines) if learns else None,
        "alarms": alarms_of(lines),
        "train_seconds": float(sum(line.metrics.get("time/step_s", 0.0) for line in lines)),
    }


def _played(run: Path, whole: Config) -> dict[str, JSON]:
    """The held-out tasks, twice with the same draws: where nothing happens, and where something does."""
    trained = open_run(run)

    def play(world: Config) -> Evaluation:
        domain = build_domain(world.domain)
        tasks = first_tasks(domain, "test", whole.evaluation.episodes)
        return evaluate(domain, tasks, trained.policy, trained.player.at(1.0), seed=(whole.seed, "test", "temperature 1"))

    calm = play(clean(whole))
    if not can_interrupt(whole):
        return {"clean": _told(calm), "perturbed": None}
    rough = play(perturbed(whole))
    return {
        "clean": _told(calm),
        "perturbed": {**_told(rough), **compared(calm.groups, rough.groups)},
    }


def _told(found: Evaluation) -> dict[str, JSON]:
    """Sums, and each task's key, difficulty and success (None where it has no grade)."""
    tasks: list[JSON] = []
    for group in found.groups:
        (episode,) = group.members
        success = None if episode.failed or episode.verdict.success is None else bool(episode.verdict.success)
        tasks.append([group.task.key, group.task.difficulty, success])
    return {**found.to_json(), "tasks": tasks}


def episodes_of(line: MetricsLine, group_size: int) -> float:
    """Episodes that a step has played for whatever purpose, but for validation."""
    return group_size * line.metrics.get("rollout/drawn_groups", 0.0) + sum(line.metrics.get(name, 0.0) for name in _ALSO_PLAYED)


def curve_of(lines: Sequence[MetricsLine], group_size: int, before: int = 0) -> dict[str, JSON]:
    """Validation success against all episodes played so far: those that the curriculum turned away and continuations too.

    >>> first, second = {"eval/success": 0.5}, {"rollout/drawn_groups": 3.0, "judge/continuations": 8.0, "eval/success": 1.0}
    >>> curve_of([MetricsLine(1, first), MetricsLine(2, second)], 4)
    {'episodes': [0.0, 20.0], 'success': [0.5, 1.0]}
    """
    played, episodes, success = float(before), [], []
    for line in lines:
        played += episodes_of(line, group_size)
        value = line.metrics.get("eval/success", math.nan)
        if not math.isnan(value):
            episodes.append(played)
            success.append(value)
    return {"episodes": episodes, "success": success}


def curriculum_of(lines: Sequence[MetricsLine]) -> dict[str, JSON]:
    """Mean difficulty of what was asked in the first and in the last third, and there the share of steps with success in [0.4, 0.6]."""
    asked = _values(lines, "curriculum/difficulty")
    success = _values(lines, "curriculum/success") or _values(lines, "rollout/success")
    first, last = (_third(asked, end) for end in (False, True))
    ending = _third(success, True)
    return {
        "difficulty_first": _mean(first),
        "difficulty_last": _mean(last),
        "success_asked": _mean(ending),
        "in_zone": _mean([float(_ZONE[0] <= value <= _ZONE[1]) for value in ending]),
    }


def alarms_of(lines: Sequence[MetricsLine]) -> float | None:
    """Alarms for reward hacking in the run (docs: concepts/alarms); None where nothing watched (`alarms.action=none`).

    >>> alarms_of([MetricsLine(1, {"alarms/fired": 0.0}), MetricsLine(2, {"alarms/fired": 2.0})]), alarms_of([MetricsLine(1, {})])
    (2.0, None)
    """
    fired = _values(lines, "alarms/fired")
    return sum(fired) if fired else None


def divergences(lines: Sequence[MetricsLine]) -> float | None:
    """Share of the intervals between validations in which the judge's mean reward rose over the interval before and success fell.

    None with fewer than two intervals. Noise alone gives about a quarter, so that shares say something only beside each other, and none of
    them that a judge was exploited.
    """
    paid: list[float] = []
    points: list[tuple[float, float]] = []
    for line in lines:
        said = _judged(line.metrics)
        paid += [] if said is None else [said]
        value = line.metrics.get("eval/success", math.nan)
        if not math.isnan(value) and paid:
            points.append((float(np.mean(paid)), value))
            paid = []
    if len(points) < 2:
        return None
    return float(np.mean([now[0] > then[0] and now[1] < then[1] for then, now in pairwise(points)]))


def _judged(metrics: Metrics) -> float | None:
    """Mean step reward of all judges, before shaping."""
    said = [v for k, v in metrics.items() if k.startswith("reward/") and k.endswith("_step") and k != "reward/shaped_step"]
    known = [value for value in said if not math.isnan(value)]
    return sum(known) if known else None


def _values(lines: Sequence[MetricsLine], name: str) -> list[float]:
    found = [line.metrics.get(name, math.nan) for line in lines]
    return [value for value in found if not math.isnan(value)]


def _third(values: Sequence[float], last: bool) -> Sequence[float]:
    size = max(1, len(values) // 3)
    return values[-size:] if last else values[:size]


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
