"""What an ablation tells: report.md with plots, report.json, and the table for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.table import Table

from stepwell.ablation.claims import claims_of
from stepwell.ablation.pictures import draw
from stepwell.ablation.plan import Plan
from stepwell.ablation.results import read_study
from stepwell.files import disk_errors, to_json, write_atomic
from stepwell.types import JSON

__all__ = ["main_table", "to_markdown", "write_report"]

Told = dict[str, JSON]
"""What report.json holds."""
Cell = Callable[[Mapping[str, JSON]], str]
"""From a variant's numbers to a cell of a table."""


def write_report(plan: Plan, *, baseline: str | None = None, target: float | None = None) -> Told:
    """Writes report.json, report.md and plots/ into the plan's folder; returns what report.json holds.

    Raises:
        ConfigError: An unknown baseline, or a target that is no share.
        DataError: No run is through.
        RunError: The disk refuses.
    """
    study = read_study(plan, baseline, target)
    told: Told = {
        "config": plan.base.name,
        "baseline": study.baseline,
        "target": study.target,
        "held_out_tasks": plan.base.evaluation.episodes,
        "steps": plan.base.steps,
        "variants": {name: study.to_json(name) for name in study.arms},
        "claims": [claim._asdict() for claim in claims_of(study)],
        "missing": [job.name for job in plan.jobs if not job.result.exists()],
    }
    with disk_errors(f"The report could not be written to {plan.out}"):
        pictures = draw(study, plan.out / "plots")
        write_atomic(plan.out / "report.json", to_json(told, "report") + "\n")
        write_atomic(plan.out / "report.md", to_markdown(told, [f"plots/{picture.name}" for picture in pictures]))
    return told


def main_table(told: Told) -> Table:
    """Success, undisturbed and interrupted, for the terminal."""
    table = Table(title=f"against {told['baseline']}, in brackets 95 % intervals")
    header, *rows = _rows(told, _SUCCESS)
    for at, column in enumerate(header):
        table.add_column(column, justify="right" if at else "left")
    for row in rows:
        table.add_row(*row)
    return table


def to_markdown(told: Told, pictures: Sequence[str] = ()) -> str:
    """The whole report, from what report.json holds."""
    missing, claims = told["missing"], told["claims"]
    assert isinstance(missing, Sequence) and isinstance(claims, Sequence)
    parts = [f"# Ablation of {told['config']}", _preface(told)]
    parts += [f"> Not through, and in no number: {', '.join(map(str, missing))}."] if missing else []
    parts += ["## What is claimed, and what was measured"]
    parts += ["\n".join(f"- **{_at(claim, 'name')}**: {_at(claim, 'sentence')}" for claim in claims) or "No claim's variants were run."]
    bins = sorted({bin_ for found in _variants(told).values() for bin_ in _mapping(found["success_by_difficulty"])})
    tables: Mapping[str, Mapping[str, Cell]] = {
        "Success on held-out tasks": _SUCCESS,
        "Success by difficulty, %": {bin_: _percent("success_by_difficulty", bin_) for bin_ in bins},
        "Episodes": {"episodes": _number("episodes"), f"to a success of {told['target']:.3f}": _to_target, **_EPISODES},
        "Interrupted tasks": _INTERRUPTED,
        "Judge and curriculum": _JUDGE,
    }
    for title, columns in tables.items():
        parts += [f"## {title}", _markdown(_rows(told, columns))]
    parts += [f"![{picture}]({picture})" for picture in pictures]
    return "\n\n".join(parts) + "\n"


def _preface(told: Told) -> str:
    return (
        f"{told['steps']} steps each, measured on the same {told['held_out_tasks']} held-out tasks at temperature 1. The baseline is "
        f"`{told['baseline']}`. In brackets: 95 % intervals, of success by a bootstrap over seeds and tasks, of all else over seeds; "
        "differences are paired. Episodes are those played, also the ones that a curriculum turned away and those that a static judge was "
        "taught by."
    )


# -- cells: from a variant's numbers to text ----------------------------------------------------------------------------------


def _mapping(found: JSON) -> Mapping[str, JSON]:
    assert isinstance(found, Mapping)
    return found


def _variants(told: Told) -> dict[str, Mapping[str, JSON]]:
    return {name: _mapping(found) for name, found in _mapping(told["variants"]).items()}


def _at(found: JSON | Mapping[str, JSON], *path: str) -> JSON:
    """What lies there; None where anything on the way is None."""
    inner: JSON = dict(found) if isinstance(found, Mapping) else found
    for name in path:
        inner = inner.get(name) if isinstance(inner, Mapping) else None
    return inner


def _text(interval: JSON, scale: float, digits: int, sign: str) -> str:
    mean, low, high = (_at(interval, name) for name in ("mean", "low", "high"))
    if not isinstance(mean, int | float):
        return "-"
    said = f"{scale * mean:{sign}.{digits}f}"
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return said
    return f"{said} ({scale * low:{sign}.{digits}f} to {scale * high:{sign}.{digits}f})"


def _interval(*path: str, digits: int = 3, sign: str = "", scale: float = 1.0) -> Cell:
    return lambda found: _text(_at(found, *path), scale, digits, sign)


def _percent(*path: str, sign: str = "") -> Cell:
    return _interval(*path, digits=1, sign=sign, scale=100.0)


def _number(*path: str) -> Cell:
    return lambda found: f"{_at(found, *path):,.0f}"


def _seeds(found: Mapping[str, JSON]) -> str:
    seeds = found["seeds"]
    assert isinstance(seeds, Sequence)
    return str(len(seeds))


def _to_target(found: Mapping[str, JSON]) -> str:
    mark = "" if str(found["runs_at_target"]) == _seeds(found) else "more than "
    return f"{mark}{found['episodes_to_target']:,.0f}"


def _ratio(found: Mapping[str, JSON]) -> str:
    ratio = _at(found, "against_baseline", "episodes_ratio")
    bound = _at(ratio, "bound")
    return "unknown" if bound == "unknown" else f"{bound or ''} {_text(ratio, 1.0, 2, '')}".strip()


_SUCCESS: Mapping[str, Cell] = {
    "seeds": _seeds,
    "success, %": _percent("success_clean"),
    "difference": _percent("against_baseline", "success_clean", sign="+"),
    "interrupted, %": _percent("success_perturbed"),
    "its difference": _percent("against_baseline", "success_perturbed", sign="+"),
}
_EPISODES: Mapping[str, Cell] = {
    "runs there": lambda found: f"{found['runs_at_target']} of {_seeds(found)}",
    "times fewer": _ratio,
    "mean success of the curve": _interval("area"),
    "difference": _interval("against_baseline", "area", sign="+"),
}
_INTERRUPTED: Mapping[str, Cell] = {
    "interrupted less undisturbed, points": _percent("perturbed_less_clean", sign="+"),
    "recovery, %": _percent("recovery"),
    "of those solved undisturbed, %": _percent("recovery_given_clean"),
    "turns to recover": _interval("recovery_turns", digits=1),
}
_JUDGE: Mapping[str, Cell] = {
    "judge AUC": _interval("judge_auc"),
    "Brier": _interval("judge_brier"),
    "ECE": _interval("judge_ece"),
    "alarms of hacking, a run": _interval("alarms", digits=2),
    "reward up, success down": _interval("divergences"),
    "difficulty asked, first third": _interval("difficulty_first"),
    "last third": _interval("difficulty_last"),
    "success there": _interval("success_asked"),
    "steps within 0.4-0.6": _interval("in_zone"),
    "training s": _interval("train_seconds", digits=0),
}


def _rows(told: Told, columns: Mapping[str, Cell]) -> list[list[str]]:
    """The header and a row for each variant."""
    return [["variant", *columns], *([name, *(cell(found) for cell in columns.values())] for name, found in _variants(told).items())]


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    header, *rest = rows
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rest))
