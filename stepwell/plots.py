"""The plots of a run's report, drawn from its metrics without any global state of matplotlib."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stepwell.files import write_atomic
from stepwell.tracking import MetricsLine
from stepwell.types import Floats

__all__ = ["PANELS", "Panel", "Plot", "Series", "draw"]

_DPI = 130
_FEW = 10


@dataclass(frozen=True, slots=True)
class Series:
    """A metric in a panel: `line` (noisy, drawn thin with its running mean), or `points` with `name_low` and `name_high` as error bars."""

    name: str
    label: str
    style: str = "line"


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture: a title, its file, the metrics drawn in it, and a sentence that says what is seen."""

    title: str
    file: str
    series: tuple[Series, ...]
    axis: str
    caption: str
    limits: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture that was drawn; `file` is relative to the run's folder."""

    title: str
    file: str
    caption: str


PANELS: tuple[Panel, ...] = (
    Panel(
        "Success",
        "success.png",
        (
            Series("rollout/success", "training episodes"),
            Series("eval/success", "validation, temperature 1", "points"),
            Series("eval/success_greedy", "validation, greedy", "points"),
        ),
        "share of episodes",
        "Share of successful episodes; bars at the evaluations are 95 % intervals.",
        (-0.02, 1.02),
    ),
    Panel(
        "Reward", "reward.png", (Series("credit/outcome", "outcome"),), "mean of an episode", "What an episode was paid at its end, raw."
    ),
    Panel("Entropy", "entropy.png", (Series("policy/entropy", "policy"),), "nats a token", "Of the policy at the sampled tokens."),
    Panel(
        "KL",
        "kl.png",
        (Series("policy/kl_ref", "policy to reference"), Series("sampler/kl", "sampler to trainer")),
        "nats a token",
        "How far the policy is from its reference, and how far the sampler's probabilities are from the trainer's.",
    ),
    Panel(
        "Judge",
        "judge.png",
        (Series("judge/fresh_pair_accuracy", "pair accuracy"),),
        "share of pairs",
        "Pairs of episodes of one task that the judge ranks as the verdict does, before it learns from them; 0.5 is chance.",
        (-0.02, 1.02),
    ),
)
"""Every panel; one without data is left out, and the report says so."""

_COLOURS = ("#4C78A8", "#E45756", "#54A24B")


def draw(lines: Sequence[MetricsLine], folder: Path) -> tuple[list[Plot], list[str]]:
    """Draws every panel that has data as a PNG in `folder`.

    Returns:
        The plots, and the titles of the panels that have no data.
    """
    plots, missing = [], []
    for panel in PANELS:
        present = [(series, *_points(lines, series.name)) for series in panel.series]
        if not any(len(steps) for _, steps, _ in present):
            missing.append(panel.title)
            continue
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / panel.file, _png(panel, lines))
        plots.append(Plot(panel.title, f"{folder.name}/{panel.file}", panel.caption))
    return plots, missing


def running_mean(values_N: Floats, width: int) -> Floats:
    """Centred mean over `width` values, over fewer at the ends.

    >>> running_mean(np.array([0.0, 3.0, 6.0]), 3)
    array([1.5, 3. , 4.5])
    """
    half = width // 2
    sums = np.concatenate([[0.0], np.cumsum(values_N)])
    start = np.maximum(np.arange(len(values_N)) - half, 0)
    stop = np.minimum(np.arange(len(values_N)) + half + 1, len(values_N))
    means: Floats = (sums[stop] - sums[start]) / (stop - start)
    return means


def _points(lines: Sequence[MetricsLine], name: str) -> tuple[Floats, Floats]:
    """Steps and finite values of a metric."""
    found = [(line.step, line.metrics[name]) for line in lines if math.isfinite(line.metrics.get(name, math.nan))]
    steps, values = zip(*found, strict=True) if found else ((), ())
    return np.array(steps, np.float64), np.array(values, np.float64)


def _png(panel: Panel, lines: Sequence[MetricsLine]) -> bytes:
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for series, colour in zip(panel.series, _COLOURS, strict=False):
        steps, values = _points(lines, series.name)
        if not len(steps):
            continue
        if series.style == "points":
            below, above = _errors(lines, series.name, steps, values)
            axes.errorbar(steps, values, yerr=(below, above), label=series.label, color=colour, marker="o", markersize=4, capsize=3, lw=1.2)
            continue
        width = max(1, len(values) // 15)
        if width > 1:
            axes.plot(steps, values, color=colour, alpha=0.3, lw=0.8)
        marker = "o" if len(values) <= _FEW else ""  # one point alone has no line
        axes.plot(steps, running_mean(values, width), color=colour, lw=1.8, marker=marker, markersize=4, label=series.label)
    axes.set(title=panel.title, xlabel="step", ylabel=panel.axis)
    if panel.limits is not None:
        axes.set_ylim(*panel.limits)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
    return buffer.getvalue()


def _errors(lines: Sequence[MetricsLine], name: str, steps: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Distances from the value down to `name_low` and up to `name_high`; 0 where the interval was not logged."""
    low, high = (dict(zip(*_points(lines, f"{name}_{side}"), strict=True)) for side in ("low", "high"))
    below = [max(0.0, value - low.get(step, value)) for step, value in zip(steps, values, strict=True)]
    above = [max(0.0, high.get(step, value) - value) for step, value in zip(steps, values, strict=True)]
    return np.array(below), np.array(above)
