"""Tables and pictures from the results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from chains.claims import claims
from chains.measure import AGGREGATES
from chains.plan import ARMS, GRID, SEARCHED, SIZES
from chains.results import Arm, over, read_arms
from chains.tuning import choice, read_grid
from stepwell.evaluation.intervals import Interval
from stepwell.types import Floats

__all__ = ["write_report"]

_SHOWN = {
    "rloo": "black",
    "truth": "tab:purple",
    "repirl": "tab:blue",
    "rloo_cloned": "tab:green",
    "prime": "tab:brown",
    "prm_only": "tab:cyan",
    "prl": "tab:orange",
    "grpo_kl": "tab:gray",
    "certainty": "tab:red",
}


def write_report(here: Path) -> None:
    """Writes table.md and plots/."""
    arms = read_arms(here / "results")
    if not arms:
        return
    arms = {name: arms[name] for name in ARMS if name in arms}
    parts = [_claim_lines(arms), _arm_lines(arms), _judge_lines(arms), _search_lines(arms), _grid_lines(here / "results" / "tuning")]
    (here / "table.md").write_text("\n\n".join("\n".join(part) for part in parts if part) + "\n")
    (here / "plots").mkdir(exist_ok=True)
    _curves(arms, here / "plots" / "curves.png")
    _search_picture(arms, here / "plots" / "search.png")


def _claim_lines(arms: Mapping[str, Arm]) -> list[str]:
    rows = [f"| {one.said} | {one.found} | {one.seeds} | **{one.verdict}** |" for one in claims(arms)]
    return ["| claim | measured, 95 % interval | seeds | |", "|---|---|---|---|", *rows]


def _arm_lines(arms: Mapping[str, Arm]) -> list[str]:
    lines = [
        "| arm | seeds | pass@1 | greedy | pass@4 | pass@16 | right ways in 8 | entropy, first and last steps | step, times RLOO's |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, arm in arms.items():
        seeds = sorted(arm.runs)
        distinct = float(np.mean([arm.runs[seed]["test"]["distinct"] for seed in seeds]))
        successes = [_percent(over(arm.success(k, seeds))) for k in (1, 4, 16)]
        cells = [name, str(len(seeds)), successes[0], _percent(over(arm.greedy(seeds))), *successes[1:], f"{distinct:.2f}"]
        lines.append("| " + " | ".join([*cells, _entropy(arm, seeds), _times(arms, arm)]) + " |")
    return lines


def _entropy(arm: Arm, seeds: list[int]) -> str:
    curve = arm.curve("policy/entropy", seeds)
    return f"{np.nanmean(curve[:, :5]):.3f}, {np.nanmean(curve[:, -5:]):.3f}" if curve.size else ""


def _times(arms: Mapping[str, Arm], arm: Arm) -> str:
    base = arms.get("rloo_hard" if arm.name.endswith("_hard") else "rloo")
    seeds = sorted(set(arm.runs) & set(base.runs)) if base is not None else []
    if base is None or not seeds or not arm.curve("cpu_s", seeds).size:
        return ""
    return f"{arm.step_s(seeds).mean() / base.step_s(seeds).mean():.2f}"


def _judge_lines(arms: Mapping[str, Arm]) -> list[str]:
    """How well the judges tell successes from failures before they have learnt from them, and right steps from wrong ones at the end."""
    lines = [
        "| judge of | seeds | pairs right, first and last five steps | right steps above wrong ones (AUC), by seed |",
        "|---|---|---|---|",
    ]
    for name, arm in ((name, arm) for name, arm in arms.items() if name.removesuffix("_hard") in (*SEARCHED, "certainty")):
        seeds = [seed for seed in sorted(arm.runs) if arm.runs[seed]["test"].get("auc") is not None]
        if seeds:
            pairs = arm.curve("judge/fresh_pair_accuracy", seeds)
            told = f"{np.nanmean(pairs[:, :5]):.2f}, {np.nanmean(pairs[:, -5:]):.2f}" if np.isfinite(pairs).any() else ""
            areas = ", ".join(f"{arm.runs[seed]['test']['auc']:.2f}" for seed in seeds)
            lines.append(f"| {name} | {len(seeds)} | {told} | {areas} |")
    return lines if len(lines) > 2 else []


def _search_lines(arms: Mapping[str, Arm]) -> list[str]:
    lines = ["| judge of | rule | " + " | ".join(f"n = {n}" for n in SIZES) + " |", "|---|---|" + "---|" * len(SIZES)]
    for name in (name for name in SEARCHED if name in arms):
        arm, seeds = arms[name], sorted(arms[name].runs)
        rows = {rule: [arm.chosen(rule, n, seeds) for n in SIZES] for rule in ("best_of_n", "weighted", "group", "majority")}
        if arm.says_best_by:
            others = {how: f"best_of_n, {how}" for how in AGGREGATES if how != "mean"} | {"lot": "best_of_n by lot"}
            rows |= {said: [arm.best_by(how, n, seeds) for n in SIZES] for how, said in others.items()}
        rows["a perfect judge"] = [arm.success(n, seeds) for n in SIZES]
        lines += [f"| {name} | {rule} | {' | '.join(_percent(over(one)) for one in found)} |" for rule, found in rows.items()]
    return lines if len(lines) > 2 else []


def _grid_lines(folder: Path) -> list[str]:
    """What was tried on tuning seeds, and what was chosen."""
    lines = ["| arm | tried, on top of the arm's settings | pass@1 on validation tasks, by seed | mean | chosen |", "|---|---|---|---|---|"]
    for arm, tried in sorted(read_grid(folder).items(), key=lambda one: _place(one[0])):
        for one in tried:
            by_seed = ", ".join(
                f"{100 * np.mean(run['test']['wins']) / run['test']['attempts']:.1f}" for _, run in sorted(one.runs.items())
            )
            mark = "yes" if one.number == choice(tried).number else ""
            lines.append(f"| {arm} | `{' '.join(one.settings)}` | {by_seed} | {100 * one.success:.1f} | {mark} |")
    return lines if len(lines) > 2 else []


def _place(arm: str) -> int:
    return list(GRID).index(arm) if arm in GRID else len(GRID)


def _percent(interval: Interval) -> str:
    return f"{100 * interval.mean:.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def _curves(arms: Mapping[str, Arm], path: Path) -> None:
    shown, rare = [name for name in _SHOWN if name in arms], [name for name in arms if name.endswith("_hard")]
    panels = [("success of training episodes", "success", shown), ("entropy of the policy, nats a token", "policy/entropy", shown)]
    panels += [("success of training episodes, hard tasks", "success", rare)] if rare else []
    figure = Figure(figsize=(5 * len(panels), 4), layout="constrained")
    for axes, (title, metric, names) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        for name in names:
            _line(axes, arms[name], metric)
        axes.set(title=title, xlabel="step", ylabel="mean of 5 steps")
        if axes.lines:
            axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    FigureCanvasAgg(figure).print_png(str(path))


def _line(axes, arm: Arm, metric: str) -> None:  # type: ignore[no-untyped-def]
    """The mean over seeds with the range of seeds around it."""
    curve = arm.curve(metric, sorted(arm.runs))
    if not curve.size:
        return
    smooth = np.array([_running(row) for row in curve])
    steps = np.arange(smooth.shape[1])
    (drawn,) = axes.plot(steps, smooth.mean(0), label=arm.name, color=_SHOWN.get(arm.name.removesuffix("_hard")))
    axes.fill_between(steps, smooth.min(0), smooth.max(0), alpha=0.15, color=drawn.get_color())


def _running(row: Floats) -> Floats:
    """The mean of the last five."""
    return np.array([np.nanmean(row[max(0, at - 4) : at + 1]) for at in range(len(row))])


def _search_picture(arms: Mapping[str, Arm], path: Path) -> None:
    names = [name for name in SEARCHED if name in arms]
    if not names:
        return
    figure = Figure(figsize=(4 * len(names), 4), layout="constrained")
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names), sharey=True)), names, strict=True):
        arm, seeds = arms[name], sorted(arms[name].runs)
        for rule, style in (("best_of_n", "-"), ("weighted", "-."), ("majority", "--")):
            axes.plot(SIZES, [100 * arm.chosen(rule, n, seeds).mean() for n in SIZES], style, label=rule, marker="o")
        axes.plot(SIZES, [100 * arm.success(n, seeds).mean() for n in SIZES], ":", color="gray", label="a perfect judge")
        axes.set(title=name, xlabel="candidates", ylabel="success, %", xscale="log", xticks=SIZES, xticklabels=SIZES)
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    FigureCanvasAgg(figure).print_png(str(path))
