"""What a finished run tells: report.md with plots, report.json, and a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import NamedTuple, cast

from jinja2 import Environment, StrictUndefined
from rich.table import Table

from stepwell.errors import DataError
from stepwell.evaluation.intervals import Interval, difference
from stepwell.files import disk_errors, read_json, to_json, write_atomic
from stepwell.plots import Plot, draw
from stepwell.tracking import read_metrics
from stepwell.types import JSON

__all__ = ["Change", "Facts", "read_facts", "summary_table", "write_report"]


class Change(NamedTuple):
    """A share before and after training; None where it was not measured."""

    before: Interval | None
    after: Interval | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What the report says beside the plots.

    Attributes:
        title: A heading, such as `quick, seed 0`.
        evaluated: What success was measured on, such as `200 held-out tasks`.
        success: At temperature 1.
        success_greedy: At temperature 0.
        train_seconds: Of training alone, over all processes of a resumed run.
        episodes: Trained on.
        tokens: Sampled for them.
        notes: Sentences that belong beside the numbers.
    """

    title: str
    evaluated: str
    success: Change
    success_greedy: Change
    train_seconds: float
    episodes: int
    tokens: int
    peak_memory_bytes: int
    seed: int
    config_hash: str
    notes: tuple[str, ...] = ()


class _Row(NamedTuple):
    name: str
    before: str
    after: str
    change: str


def write_report(run: Path, facts: Facts) -> Path:
    """Writes report.json, plots/*.png and report.md into the run's folder; returns the path of report.md.

    report.json holds `success` and `success_greedy` (each with `before` and `after`: mean, low, high, or null where not measured),
    `train_seconds`, `episodes`, `tokens`, `peak_memory_bytes`, `seed` and `config_hash`.

    Raises:
        RunError: The disk refuses.
        DataError: metrics.jsonl is damaged.
    """
    lines = read_metrics(run)
    with disk_errors(f"The report could not be written to {run}"):
        write_atomic(run / "report.json", to_json(_as_json(facts), "report") + "\n")
        plots, missing = draw(lines, run / "plots")
        write_atomic(run / "report.md", _markdown(facts, plots, missing))
    return run / "report.md"


def read_facts(run: Path) -> Facts:
    """The facts that `write_report` wrote into the run's report.json.

    Raises:
        DataError: There is no report.json, or it is damaged.
    """
    path = run / "report.json"
    found = read_json(path)
    try:
        changes = {name: _change_of(found.pop(name)) for name in ("success", "success_greedy")}
        notes = tuple(map(str, cast("list[JSON]", found.pop("notes"))))
        return Facts(**changes, notes=notes, **found)  # type: ignore[arg-type]
    except (KeyError, TypeError) as fault:
        raise DataError(f"{path} is no report of this version of Stepwell: {fault}.") from fault


def _change_of(found: JSON) -> Change:
    assert isinstance(found, dict)
    return Change(*(None if found[name] is None else Interval(**found[name]) for name in ("before", "after")))


def summary_table(facts: Facts) -> Table:
    """Success before and after, for the terminal."""
    table = Table(title=facts.title, caption=f"{facts.evaluated}; 95 % intervals; {_time(facts.train_seconds)} of training")
    table.add_column("")
    for name in ("before", "after", "change"):
        table.add_column(name, justify="right")
    for row in _rows(facts):
        table.add_row(row.name, row.before, row.after, row.change, style="")
    return table


def _as_json(facts: Facts) -> dict[str, JSON]:
    return {
        "success": _change_json(facts.success),
        "success_greedy": _change_json(facts.success_greedy),
        "train_seconds": facts.train_seconds,
        "episodes": facts.episodes,
        "tokens": facts.tokens,
        "peak_memory_bytes": facts.peak_memory_bytes,
        "seed": facts.seed,
        "config_hash": facts.config_hash,
        "title": facts.title,
        "evaluated": facts.evaluated,
        "notes": facts.notes,
    }


def _change_json(change: Change) -> dict[str, JSON]:
    return {name: _interval_json(interval) for name, interval in change._asdict().items()}


def _interval_json(interval: Interval | None) -> JSON:
    known = _measured(interval)
    return None if known is None else {name: float(value) for name, value in known._asdict().items()}


def _measured(interval: Interval | None) -> Interval | None:
    """None where nothing was measured, which a mean of NaN (no graded episode) says too."""
    return None if interval is None or math.isnan(interval.mean) else interval


def _markdown(facts: Facts, plots: Sequence[Plot], missing: Sequence[str]) -> str:
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False)
    template = environment.from_string(resources.files("stepwell").joinpath("templates/report.md.jinja").read_text(encoding="utf-8"))
    memory = f"{facts.peak_memory_bytes / 2**30:.2f} GiB"
    return template.render(facts=facts, rows=_rows(facts), plots=plots, missing=missing, time=_time(facts.train_seconds), memory=memory)


def _rows(facts: Facts) -> list[_Row]:
    changes = {"success at temperature 1": facts.success, "success, greedy": facts.success_greedy}
    return [_row(name, change) for name, change in changes.items() if change != Change(None, None)]


def _row(name: str, change: Change) -> _Row:
    before, after = (_measured(interval) for interval in change)
    moved = "-"
    if before is not None and after is not None:
        points = difference(before, after)
        moved = f"{100 * points.mean:+.1f} points ({100 * points.low:+.1f} to {100 * points.high:+.1f})"
    return _Row(name, _percent(before), _percent(after), moved)


def _percent(interval: Interval | None) -> str:
    if interval is None:
        return "not measured"
    return f"{100 * interval.mean:.1f} % ({100 * interval.low:.1f} to {100 * interval.high:.1f})"


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
