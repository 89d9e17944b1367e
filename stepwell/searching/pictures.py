"""The files of a search: its numbers, its choices, and its curves as pictures."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stepwell.files import disk_errors, to_json, write_atomic
from stepwell.searching.found import CEILING, FLOOR, Found, Point

__all__ = ["write"]

_COLOURS = ("#4C78A8", "#E45756", "#54A24B", "#F58518", "#B279A2", "#72B7B2")
_PLAIN = {CEILING: "0.55", FLOOR: "0.25"}


def write(found: Found, folder: Path) -> list[Path]:
    """`search.json`, `choices.jsonl` (a line for each problem and rule), `by_n.png` and `by_cost.png`; returns their paths."""
    with disk_errors(f"The search could not be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        files: dict[str, bytes | str] = {
            "search.json": to_json(found.to_json(), "the search"),
            "choices.jsonl": "".join(f"{to_json(line, 'a choice')}\n" for line in found.choices_json()),
            "by_n.png": _picture(found, lambda point: point.n, "candidates"),
            "by_cost.png": _picture(found, lambda point: point.cost.forwards, "forward passes of a token, for a problem"),
        }
        for name, content in files.items():
            write_atomic(folder / name, content)
    return [folder / name for name in files]


def _picture(found: Found, x: Callable[[Point], float], label: str) -> bytes:
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    colours = iter(_COLOURS)
    for name, curve in found.curves.items():
        _draw(axes, name, [x(point) for point in curve], curve, _PLAIN.get(name) or next(colours))
    axes.set(xlabel=label, ylabel="problems answered rightly", title=f"{found.problems} problems of {found.domain}")
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()


def _draw(axes: Axes, name: str, x: list[float], curve: tuple[Point, ...], colour: str) -> None:
    axes.plot(x, [point.success.mean for point in curve], color=colour, marker="o", markersize=3.5, lw=1.6, label=name)
    axes.fill_between(x, [p.success.low for p in curve], [p.success.high for p in curve], color=colour, alpha=0.10, lw=0)
