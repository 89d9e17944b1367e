"""The tables of the study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stepwell.evaluation.intervals import Interval
from stepwell.files import write_atomic
from truth import plan, plots
from truth.arms import CLONING, EXPERTS, OUTCOME_ONLY
from truth.cells import Cell
from truth.measures import interval
from truth.parts import Scale
from truth.results import CellRuns, Ratio, quality_of, runs_of, weights_of

__all__ = ["write_report"]

_QUALITY = (
    ("auc_now", "AUC, now"),
    ("spearman_now", "Spearman, now"),
    ("within_now", "within episode"),
    ("located", "finds the worst step"),
    ("episode_auc", "AUC of episodes"),
    ("pairs", "pairs"),
    ("auc_best", "AUC, best policy"),
    ("spearman_best", "Spearman, best policy"),
)
_KINDS = dict.fromkeys(EXPERTS, "told more") | {CLONING: "told more, no judge"}
_CHANCES = (
    ("ece", "ECE"),
    ("brier", "Brier"),
    ("brier_truth", "Brier of the true chance"),
    ("chance_error", "distance from the true chance"),
)


def write_report(out: Path, scale: Scale) -> None:
    """Writes `table.md` and `plots/` from what is there."""
    results = out / "results"
    sections = [_quality(results, scale), _weights(results), *_runs(results, scale)]
    write_atomic(out / "table.md", "\n\n".join(filter(None, sections)) + "\n")
    plots.write_all(results, out / "plots", scale)
    print((out / "table.md").read_text(encoding="utf-8"))


def _said(value: Interval | None, digits: int = 2) -> str:
    if value is None or math.isnan(value.mean):
        return ""
    return f"{value.mean:.{digits}f} [{value.low:.{digits}f}, {value.high:.{digits}f}]"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([_row(*head), "|" + "---|" * len(head), *(_row(*row) for row in rows)])


def _quality(results: Path, scale: Scale) -> str:
    """Scores of fresh steps against exact advantages."""
    made = ["## What judges know", "Last third of the run, mean over seeds and 95 % bootstrap interval; `early` is the first third."]
    for cell in scale.quality:
        found = quality_of(results / "quality", cell)
        if not found:
            continue
        late = {judge: phases["late"] for judge, phases in found.items() if phases["late"]}
        told = [judge for judge in late if not judge.endswith(" value")]
        told.sort(key=lambda judge: -_or_zero(late[judge].get("auc_now")))
        rows = [[j, _said(found[j]["early"].get("auc_now")), *(_said(late[j].get(name)) for name, _ in _QUALITY)] for j in told]
        made += [f"### {cell.name}", _table(["judge", "AUC, now, early", *(title for _, title in _QUALITY)], rows)]
        chances = [[j, *(_said(late[j].get(name), 3) for name, _ in _CHANCES)] for j in late if "ece" in late[j]]
        if chances:
            made.append(_table(["judge of chances", *(title for _, title in _CHANCES)], chances))
    return "\n\n".join(made) if len(made) > 2 else ""


def _or_zero(value: Interval | None) -> float:
    return 0.0 if value is None or math.isnan(value.mean) else value.mean


def _weights(results: Path) -> str:
    """Importance weights against the exact partition function."""
    found = weights_of(results / "weights")
    rows = [
        [
            str(horizon),
            key.split("-")[1],
            key.split("-")[0],
            _said(one["bias"]),
            _said(one["spread"]),
            _said(one.get("error")),
            _said(one.get("ess"), 1),
        ]
        for horizon, kinds in found.items()
        for key, one in sorted(kinds.items(), key=lambda item: (int(item[0].split("-")[1]), item[0]))
    ]
    if not rows:
        return ""
    words = (
        "The gradient of log Z by the step rewards, estimated from a batch of the policy's episodes. Bias, spread (standard deviation) and "
        "root mean square error as shares of the length of the true gradient; for log Z itself in nats."
    )
    return "\n\n".join(["## Importance weights", words, _table(["horizon", "batch", "weights", "bias", "spread", "error", "ESS"], rows)])


def _runs(results: Path, scale: Scale) -> list[str]:
    """Episodes that judges save."""
    options = {"target": plan.TARGET, "budget": float(scale.budget)}
    efficiency = runs_of(results / "efficiency", scale.efficiency, **options)
    cells = runs_of(results / "map", scale.cells, **options)
    made = []
    if efficiency:
        made.append(f"## Episodes to a success of {plan.TARGET}")
        made += [_efficiency(one, scale.budget) for one in efficiency]
    if cells:
        made += ["## Where process rewards pay", _map(cells), *_factors(cells), _every_judge(cells)]
    return made


def _efficiency(runs: CellRuns, budget: int) -> str:
    order = sorted(runs.arms.values(), key=lambda arm: (arm.episodes, -float(np.mean(arm.areas))))
    rows = []
    for arm in order:
        reached = f"{'>' if not all(arm.is_reached) else ''}{_said(interval(arm.reached), 0)}"
        kind = "outcome only" if arm.name in OUTCOME_ONLY else "oracle" if arm.name == "oracle" else _KINDS.get(arm.name, "")
        rows.append(
            [arm.name, kind, reached, f"{sum(arm.is_reached)} of {len(arm.is_reached)}", _said(interval(arm.areas)), _said(runs.gain(arm))]
        )
    head = ["arm", "", "episodes", "reached it", "area under the curve", f"above {runs.baseline.name}, paired"]
    return f"### {runs.cell.name}, {len(runs.seeds)} seeds, {budget} episodes\n\n{_table(head, rows)}"


def _times(value: Ratio) -> str:
    return f"{'>' if value.is_bound else ''}{value.value:.1f} [{value.low:.1f}, {value.high:.1f}]"


def _map(cells: Sequence[CellRuns]) -> str:
    rows = []
    for runs in sorted(cells, key=lambda runs: _order(runs.cell)):
        base = runs.baseline
        row = [*_place(runs.cell), str(len(runs.seeds)), base.name, f"{'>' if not all(base.is_reached) else ''}{base.episodes:.0f}"]
        row.append(_times(runs.saving(runs.arms["oracle"])) if "oracle" in runs.arms else "")
        for told in (False, True):
            names = runs.judges(told=told)
            row.append(f"{runs.best(names).name} {_times(runs.saving(runs.best(names)))}" if names else "")
        rows.append(row)
    words = (
        "Episodes of the best outcome-only arm over those of the oracle, of the best judge taught by outcomes, and of the best that is "
        f"told more ({', '.join(EXPERTS)}), to a success of {plan.TARGET}. Above 1: process rewards pay. `>`: the outcome-only arm did not "
        "always get there; the best are chosen by the seeds that are reported."
    )
    head = ["world", "steps", "outcome", "noise", "group", "forgiven", "seeds", "best outcome-only", "episodes"]
    return f"{words}\n\n{_table([*head, 'oracle', 'best judge from outcomes', 'best judge told more'], rows)}"


def _factors(cells: Sequence[CellRuns]) -> list[str]:
    """Mean savings at each level of a factor, over all the others, as far as these are there for every level."""
    usual = [runs for runs in cells if runs.cell.kind == "trail" and runs.cell.forgiven]
    whole = len(plan.OUTCOMES) * len(plan.NOISES)
    horizons = [h for h in plan.HORIZONS if sum((runs.cell.horizon, runs.cell.size) == (h, 8) for runs in usual) == whole]
    plane = [runs for runs in usual if runs.cell.size == 8 and runs.cell.horizon in horizons]
    short = [h for h in horizons if sum(runs.cell.horizon == h for runs in usual) == whole * len(plan.SIZES)]
    sizes = [runs for runs in usual if runs.cell.horizon in short]
    rows = [_level("steps", str(h), [runs for runs in plane if runs.cell.horizon == h]) for h in horizons]
    rows += [_level("outcome", o, [runs for runs in plane if runs.cell.outcome == o]) for o in plan.OUTCOMES if plane]
    rows += [_level("noise", f"{n:g}", [runs for runs in plane if runs.cell.noise == n]) for n in plan.NOISES if plane]
    rows += [_level("group", str(size), [runs for runs in sizes if runs.cell.size == size]) for size in sorted(plan.SIZES) if sizes]
    groups = f" For the size of groups: {_listed(short)} steps." if sizes else ""
    words = (
        f"Geometric means of the savings over a level: {_listed(horizons)} steps, all outcomes and noises, groups of 8.{groups} "
        "`>`: a bound is among them."
    )
    head = ["factor", "level", "cells", "oracle", "best judge from outcomes", "best judge told more"]
    return [f"{words}\n\n{_table(head, rows)}"] if rows else []


def _level(factor: str, level: str, cells: Sequence[CellRuns]) -> list[str]:
    savings = [[runs.saving(runs.arms["oracle"]) for runs in cells]]
    savings += [[runs.saving(runs.best(runs.judges(told=told))) for runs in cells] for told in (False, True)]
    means = [
        f"{'>' if any(s.is_bound for s in some) else ''}{math.exp(float(np.mean([math.log(s.value) for s in some]))):.2f}"
        for some in savings
    ]
    return [factor, level, str(len(cells)), *means]


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _place(cell: Cell) -> list[str]:
    forgiven = "" if cell.outcome == "graded" or cell.kind != "trail" else f"{cell.forgiven:g}"
    return [cell.kind, str(cell.horizon), cell.outcome, f"{cell.noise:g}", str(cell.size), forgiven]


def _order(cell: Cell) -> tuple[float, int, float, int, int]:
    """Tables go by outcome, noise, size and horizon; what forgives less comes last."""
    return -cell.forgiven, plan.OUTCOMES.index(cell.outcome), cell.noise, cell.size, cell.horizon


def _every_judge(cells: Sequence[CellRuns]) -> str:
    """Each judge's saving in each cell."""
    names = [name for name in cells[0].arms if name not in OUTCOME_ONLY]
    rows = []
    for runs in sorted(cells, key=lambda runs: _order(runs.cell)):
        savings = [f"{runs.saving(runs.arms[name]).value:.2f}" if name in runs.arms else "" for name in names]
        rows.append([runs.cell.name, *savings])
    return f"Each arm's saving (episodes of the best outcome-only arm over its own):\n\n{_table(['cell', *names], rows)}"
