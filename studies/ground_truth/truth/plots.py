"""The plots of the study."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stepwell.files import write_atomic
from truth import plan
from truth.arms import EXPERTS, OUTCOME_ONLY
from truth.cells import Cell
from truth.parts import Scale
from truth.results import Arm, CellRuns, quality_of, runs_of, weights_of

__all__ = ["write_all"]

_DPI = 100
_LEAST, _MOST = 0.25, 16.0


def write_all(results: Path, folder: Path, scale: Scale) -> None:
    """Draws what there are results for."""
    folder.mkdir(parents=True, exist_ok=True)
    options = {"target": plan.TARGET, "budget": float(scale.budget)}
    _know_and_place(results / "quality", scale.quality, folder / "quality.png")
    _weights(results / "weights", folder / "weights.png")
    _curves(runs_of(results / "efficiency", scale.efficiency, **options), scale.budget, folder / "efficiency.png")
    _map(runs_of(results / "map", scale.cells, **options), folder / "map.png")


def _save(figure: Figure, path: Path) -> None:
    FigureCanvasAgg(figure)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=_DPI)
    write_atomic(path, content.getvalue())


def _know_and_place(folder: Path, cells: Sequence[Cell], path: Path) -> None:
    """Each judge: how well it ranks episodes, and how well it ranks the steps of one."""
    drawn = [(cell, found) for cell in cells if (found := quality_of(folder, cell))]
    if not drawn:
        return
    figure = Figure(figsize=(4.2 * len(drawn), 4.2), layout="constrained")
    for axis, (cell, found) in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True):
        for judge, phases in found.items():
            late = phases["late"]
            if judge.endswith(" value") or "episode_auc" not in late or math.isnan(late["within_now"].mean):
                continue
            x, y = late["episode_auc"], late["within_now"]
            color = "black" if judge == "oracle" else "tab:orange" if judge in EXPERTS else "tab:blue"
            axis.errorbar(
                x.mean, y.mean, [[y.mean - y.low], [y.high - y.mean]], [[x.mean - x.low], [x.high - x.mean]], "o", color=color, ms=4, lw=0.7
            )
            axis.annotate(judge, (x.mean, y.mean), fontsize=7, xytext=(3, 3), textcoords="offset points")
        axis.axhline(0.0, color="grey", lw=0.5)
        axis.axvline(0.5, color="grey", lw=0.5)
        axis.set(title=cell.name, xlabel="ranks episodes (AUC)", ylabel="ranks the steps of one (Spearman)")
    _save(figure, path)


def _weights(folder: Path, path: Path) -> None:
    """Error and effective sample size of each weighting over the horizon."""
    found = weights_of(folder)
    if not found:
        return
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    batch = max(int(key.split("-")[1]) for kinds in found.values() for key in kinds)
    for scheme in ("raw", "tempered", "length", "uniform"):
        for axis, measure in ((left, "error"), (right, "ess")):
            values = [kinds[f"{scheme}-{batch}"][measure] for kinds in found.values()]
            axis.plot(list(found), [v.mean for v in values], "o-", ms=3, label=scheme)
            axis.fill_between(list(found), [v.low for v in values], [v.high for v in values], alpha=0.2)
    left.set(
        title=f"error of the gradient of log Z, batch of {batch}", xlabel="steps of an episode", ylabel="share of its length", xscale="log"
    )
    right.set(title="effective sample size", xlabel="steps of an episode", ylabel="episodes", xscale="log", yscale="log")
    for axis in (left, right):
        axis.set_xticks(list(found), [str(h) for h in found])
        axis.minorticks_off()
    left.legend(frameon=False)
    _save(figure, path)


def _curves(cells: Sequence[CellRuns], budget: int, path: Path) -> None:
    """Success over episodes: the best outcome-only arm, the oracle, and the best judges."""
    if not cells:
        return
    figure = Figure(figsize=(5.0 * len(cells), 3.8), layout="constrained")
    for axis, runs in zip(figure.subplots(1, len(cells), squeeze=False)[0], cells, strict=True):
        free, told = runs.judges(told=False), runs.judges(told=True)
        free.sort(key=lambda name: runs.arms[name].episodes)
        shown = [runs.baseline.name, "oracle", *free[:3], *([runs.best(told).name] if told else [])]
        at = np.linspace(0, budget, 201)
        for name in shown:
            lines = np.array([np.interp(at, episodes, success) for episodes, success in runs.curves[name]])
            style = "--" if name in OUTCOME_ONLY else ":" if name == "oracle" else "-"
            axis.plot(at, lines.mean(axis=0), style, label=name)
            axis.fill_between(at, lines.min(axis=0), lines.max(axis=0), alpha=0.1)
        axis.axhline(plan.TARGET, color="grey", lw=0.5)
        axis.set(title=runs.cell.name, xlabel="episodes, with continuations and demonstrations", ylabel="success (exact)")
        axis.legend(frameon=False, fontsize=8)
    _save(figure, path)


def _map(cells: Sequence[CellRuns], path: Path) -> None:
    """Heat maps of savings: outcome, noise and group size down, horizon across; grey was not run."""
    rows = list(dict.fromkeys(_down(r.cell) for r in cells if r.cell.kind == "trail"))
    if not rows:
        return
    rows.sort(key=lambda row: (-row[3], ("graded", "common", "rare").index(row[0]), row[1], row[2]))
    columns = sorted({runs.cell.horizon for runs in cells})
    panels: list[tuple[str, Callable[[CellRuns], Arm | None]]] = [
        ("oracle", lambda runs: runs.arms.get("oracle")),
        ("best judge from outcomes", lambda runs: _best(runs, told=False)),
        ("best judge told more", lambda runs: _best(runs, told=True)),
    ]
    figure = Figure(figsize=(13, 1.6 + 0.36 * len(rows)), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (title, pick) in zip(axes, panels, strict=True):
        grid = np.full((len(rows), len(columns)), np.nan)
        for runs in cells:
            arm = pick(runs)
            if arm is None:
                continue
            at = (rows.index(_down(runs.cell)), columns.index(runs.cell.horizon))
            saving = runs.saving(arm)
            grid[at] = saving.value
            name = "" if title == "oracle" else f"\n{arm.name}"
            text = f"{'>' if saving.is_bound else ''}{saving.value:.1f}{name}"
            axis.text(at[1], at[0], text, ha="center", va="center", fontsize=6.5, color=_ink(saving.value))
        image = axis.imshow(np.log2(np.clip(grid, _LEAST, _MOST)), cmap="RdBu", vmin=-4, vmax=4, aspect="auto")
        axis.set_facecolor("0.88")
        for edge, (one, other) in enumerate(pairwise(rows)):
            if one[:2] != other[:2]:  # Another outcome or noise begins.
                axis.axhline(edge + 0.5, color="black", lw=1.0 if one[0] != other[0] or one[3] != other[3] else 0.4)
        axis.set(title=title, xlabel="steps of an episode")
        axis.set_xticks(range(len(columns)), [str(c) for c in columns])
    axes[0].set_yticks(range(len(rows)), [_row_name(*row) for row in rows], fontsize=8)
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_ticks([-2, -1, 0, 1, 2, 3, 4], labels=["1/4", "1/2", "1", "2", "4", "8", "16"])
    bar.set_label("times the episodes, outcome only")
    _save(figure, path)


def _down(cell: Cell) -> tuple[str, float, int, float]:
    """What a row of the map is."""
    return cell.outcome, cell.noise, cell.size, cell.forgiven


def _ink(value: float) -> str:
    return "white" if abs(math.log2(value)) > 3 else "black"


def _best(runs: CellRuns, *, told: bool) -> Arm | None:
    names = runs.judges(told=told)
    return runs.best(names) if names else None


def _row_name(outcome: str, noise: float, size: int, forgiven: float) -> str:
    strict = "" if forgiven else ", nothing wrong forgiven"
    return f"{outcome}{strict}, noise {noise:g}, group {size}"
