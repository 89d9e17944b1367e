"""Learning curves and success of all variants, drawn without any global state of matplotlib."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stepwell.ablation.comparing import crossed
from stepwell.ablation.results import Study
from stepwell.files import write_atomic

__all__ = ["draw"]

_COLOURS = ("#4C78A8", "#F58518", "#54A24B", "#B279A2", "#9D755D", "#E45756", "#72B7B2", "#EECA3B", "#111111", "#FF9DA6")


def draw(study: Study, folder: Path) -> list[Path]:
    """`curves.png`: validation success against episodes, the mean over seeds and each seed; `success.png`: held-out success."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, fill in {"curves.png": _curves, "success.png": _success}.items():
        figure = Figure(figsize=(7.2, 4.0), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        fill(axes, study)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
        write_atomic(folder / name, buffer.getvalue())
        made.append(folder / name)
    return made


def _curves(axes: Axes, study: Study) -> None:
    for at, (name, arm) in enumerate(study.arms.items()):
        colour = _COLOURS[at % len(_COLOURS)]
        curves = [arm.curve(seed) for seed in study.seeds(name)]
        for episodes, success in curves:
            axes.plot(episodes, success, color=colour, alpha=0.25, lw=0.7)
        begin, end = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
        grid = np.linspace(begin, end, 60)
        mean = np.mean([np.interp(grid, x, y) for x, y in curves], axis=0)
        axes.plot(grid, mean, color=colour, lw=2.0, label=name)
    axes.axhline(study.target, color="0.5", lw=0.8, ls=":")
    axes.set(xlabel="episodes", ylabel="validation success", title="Learning curves")
    axes.legend(frameon=False, fontsize=8)


def _success(axes: Axes, study: Study) -> None:
    names = list(study.arms)
    for shift, world, colour in ((-0.15, "clean", _COLOURS[0]), (0.15, "perturbed", _COLOURS[5])):
        for at, name in enumerate(names):
            values = study.arms[name].success(world, study.seeds(name))
            if not values.size or not np.isfinite(values).any():
                continue
            found = crossed(values)
            label = {"clean": "undisturbed", "perturbed": "interrupted"}[world] if at == 0 else None
            bars = ((max(0.0, found.mean - found.low),), (max(0.0, found.high - found.mean),))
            axes.errorbar(at + shift, found.mean, yerr=bars, marker="o", color=colour, capsize=3, lw=1.2, label=label)
    axes.set_xticks(range(len(names)), names, rotation=15, fontsize=8)
    axes.set(ylabel="success", title="Held-out tasks, with 95 % intervals")
    axes.legend(frameon=False, fontsize=8)
