"""metrics.jsonl: one JSON object for each step, `{"step": 12, "rollout/success": 0.5, ...}`; every name is in docs/metrics.md.

A missing value (nothing to measure at that step) is NaN in memory and `null` in the file. A mean over steps leaves missing values out
and says how many there were. Names that measure time begin with `time/`; everything else is reproducible.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from stepwell.errors import DataError
from stepwell.files import append_line, cut_torn_tail, write_atomic
from stepwell.types import EndingKind, Episode, Group, Invalid, Metrics, Scored, Stop, Turn

__all__ = [
    "MetricsLine",
    "Present",
    "append_metrics",
    "check_names",
    "copy_metrics",
    "cut_metrics",
    "episode_metrics",
    "mean_present",
    "read_metrics",
    "reward_metrics",
]

_NAME = re.compile(r"[a-z][a-z0-9_]*(/[A-Za-z0-9_.@+-]+)+")
_FILE = "metrics.jsonl"


class MetricsLine(NamedTuple):
    """The metrics of one step; missing values are NaN."""

    step: int
    metrics: Metrics


class Present(NamedTuple):
    """A mean over the values that are there (NaN if none is), how many those are, and how many are missing."""

    mean: float
    num_present: int
    num_missing: int


def mean_present(values: Iterable[float | None]) -> Present:
    """The mean of the values that are not missing (None or NaN); infinity counts, and shows.

    >>> mean_present([0.5, float("nan"), 0.7])
    Present(mean=0.6, num_present=2, num_missing=1)
    """
    every = [math.nan if value is None else value for value in values]
    there = [value for value in every if not math.isnan(value)]
    return Present(math.fsum(there) / len(there) if there else math.nan, len(there), len(every) - len(there))


# -- the file -----------------------------------------------------------------------------------------------------------------


def check_names(metrics: Metrics) -> None:
    """Raises `ValueError` for a name that is not `area/name`, or a value that is no number."""
    for name, value in metrics.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"A metric is named {name!r}; names are area/name, such as rollout/success.")
        if isinstance(value, bool) or not isinstance(value, float | int):
            raise ValueError(
                f"The metric {name} is {value!r} of type {type(value).__name__}; metrics are floats (NaN where nothing was measured)."
            )


def append_metrics(run: Path, step: int, metrics: Metrics) -> None:
    """Appends one durable line. NaN becomes null; so does infinity, for which JSON has no form: that one is warned about."""
    check_names(metrics)
    infinite = [name for name, value in metrics.items() if math.isinf(value)]
    if infinite:
        warnings.warn(f"Infinite at step {step}, written as null: {', '.join(infinite)}.", RuntimeWarning, stacklevel=2)
    values = {name: float(value) if math.isfinite(value) else None for name, value in metrics.items()}
    append_line(run / _FILE, json.dumps({"step": step, **values}))


def read_metrics(run: Path) -> list[MetricsLine]:
    """Every line of the run's metrics.jsonl, in order (none where there is no file); a torn last line is left out.

    Raises:
        DataError: A line is no metrics line; the file and the line's number are named.
    """
    path = run / _FILE
    return [_parsed(path, number, line) for number, line in enumerate(_lines(path), 1)]


def copy_metrics(there: Path, run: Path) -> None:
    """The lines of another run, in the place of this one's."""
    write_atomic(run / _FILE, (there / _FILE).read_bytes())


def cut_metrics(run: Path, step: int | None) -> None:
    """Leaves the lines of steps up to `step` (None: none), byte for byte, in an atomic rewrite.

    Lines come in the order of their steps, so whatever follows the first later step goes, readable or not. A damaged line before it
    raises `DataError`: lines of older steps are never lost by guessing.
    """
    path = run / _FILE
    if not path.exists():
        return
    kept: list[bytes] = []
    lines = _lines(path)
    for number, line in enumerate(lines, 1):
        try:
            found = _parsed(path, number, line).step
        except DataError:
            if any(_is_older(path, later, step) for later in lines[number:]):
                raise
            break
        if step is None or found > step:
            break
        kept.append(line)
    content = b"".join(line + b"\n" for line in kept)
    if content != path.read_bytes():
        write_atomic(path, content)


def last_step(run: Path) -> int | None:
    """The step of the last line, after cutting off one that its writer did not finish."""
    cut_torn_tail(run / _FILE)
    lines = _lines(run / _FILE)
    return _parsed(run / _FILE, len(lines), lines[-1]).step if lines else None


def _lines(path: Path) -> list[bytes]:
    """The finished lines of a file, without their ends."""
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def _parsed(path: Path, number: int, line: bytes) -> MetricsLine:
    try:
        entry = json.loads(line)
        step = entry.pop("step")
        if not isinstance(step, int):
            raise TypeError(f"step is {step!r}")
        return MetricsLine(step, {name: math.nan if value is None else float(value) for name, value in entry.items()})
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        raise DataError(f'{path}, line {number} is no metrics line ({fault}); expected {{"step": 12, "area/name": 0.5, ...}}.') from fault


def _is_older(path: Path, line: bytes, step: int | None) -> bool:
    try:
        return step is not None and _parsed(path, 0, line).step <= step
    except DataError:
        return False


# -- of episodes --------------------------------------------------------------------------------------------------------------


def episode_metrics(groups: Sequence[Group[Episode]], area: str = "rollout") -> Metrics:
    """What the episodes were like; each rollout counts once, whatever its number of steps.

    Failed episodes (infrastructure) enter `failed` and `episodes` alone. Success and score are means over graded episodes, NaN where
    there is none.
    """
    every = [episode for group in groups for episode in group.members]
    sound = [episode for episode in every if not episode.failed]
    turns = [turn for episode in sound for turn in episode.turns]

    def share_ending(kind: EndingKind) -> float:
        return mean_present(float(episode.ending.kind is kind) for episode in every).mean

    interrupted = [e for e in sound if e.verdict.success is not None and any(turn.reply.event is not None for turn in e.turns)]
    return _interrupted(interrupted, sound, area) | {
        f"{area}/episodes": float(len(every)),
        f"{area}/success": mean_present(None if e.verdict.success is None else float(e.verdict.success) for e in sound).mean,
        f"{area}/score": mean_present(e.verdict.score for e in sound).mean,
        f"{area}/unscored": float(sum(e.verdict.score is None for e in sound)),
        f"{area}/turns": mean_present(float(len(e.turns)) for e in sound).mean,
        f"{area}/tokens": mean_present(float(e.num_tokens) for e in sound).mean,
        f"{area}/invalid_actions": mean_present(float(is_invalid(turn)) for turn in turns).mean,
        f"{area}/cut_turns": mean_present(float(turn.stop is Stop.LENGTH) for turn in turns).mean,
        f"{area}/turn_limit": share_ending(EndingKind.TURN_LIMIT),
        f"{area}/truncated": share_ending(EndingKind.TRUNCATED),
        f"{area}/failed": share_ending(EndingKind.FAILED),
    }


def _interrupted(interrupted: Sequence[Episode], sound: Sequence[Episode], area: str) -> Metrics:
    """What came of episodes in which something happened; nothing where nothing did."""
    if not interrupted:
        return {}
    first = [next(n for n, turn in enumerate(e.turns) if turn.reply.event is not None) for e in interrupted]
    after = [float(len(e.turns) - 1 - at) for e, at in zip(interrupted, first, strict=True) if e.verdict.success]
    return {
        f"{area}/interrupted": len(interrupted) / len(sound),
        f"{area}/recovered": mean_present(float(bool(e.verdict.success)) for e in interrupted).mean,
        f"{area}/recovery_turns": mean_present(after).mean,
    }


def is_invalid(turn: Turn) -> bool:
    """True where the text was no action, or one that had no meaning there."""
    return isinstance(turn.action, Invalid) or not turn.reply.valid


def reward_metrics(groups: Sequence[Group[Scored]]) -> Metrics:
    """What each component of the process reward paid, raw: means over episodes, so a long episode weighs no more than a short one.

    `reward/<component>` is the mean over episodes of the component's sum over the scored steps, `reward/<component>_step` of its mean
    over them. Failed episodes, and episodes without a scored step, are left out. (The outcome's mean is `credit/outcome`.)
    """
    members = [m for group in groups for m in group.members if not m.episode.failed and m.scored_S.any()]
    metrics: Metrics = {}
    for name in sorted({name for member in members for name in member.rewards}):
        paid = [member.rewards[name][member.scored_S] for member in members if name in member.rewards]
        metrics[f"reward/{name}"] = mean_present(float(values_S.sum()) for values_S in paid).mean
        metrics[f"reward/{name}_step"] = mean_present(float(values_S.mean()) for values_S in paid).mean
    return metrics
