"""Does a curriculum hold success over drawn tasks in [0.4, 0.6] through training? Single products, outcome-only, three curricula.

    python studies/shop_ablation/target.py             # every run that is not there yet, then table and picture
    python studies/shop_ablation/target.py --table     # from what is there
    python studies/shop_ablation/target.py --start weak --seeds 53,54

There are three starts: a clone for whom even the easiest tasks are hard (`weak`), one who succeeds in half of uniform tasks (`strong`), and
one whose six turns are enough for easy tasks and too few for hard ones, so that most of uniform tasks fail (`short`).
All runs of a seed begin with the same warm start and differ by the curriculum alone. One JSON a run under results/target/, with the
success of every group that was played; a run that was killed is resumed. Legend: T steps, G groups of a step, W windows.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stepwell.ablation.comparing import over_seeds
from stepwell.ablation.measure import curve_of
from stepwell.ablation.plan import seeds_of
from stepwell.ablation.warm import warm_start
from stepwell.config import Config
from stepwell.configure import dump, load
from stepwell.evaluation.intervals import Interval
from stepwell.files import write_atomic
from stepwell.run import NothingLeftError, train
from stepwell.tracking import episode_steps, read_episodes, read_metrics

HERE = Path(__file__).parent
KEPT = HERE / "results" / "target"
PICTURE = HERE.parents[1] / "docs" / "assets" / "shop-target.png"
ZONE = (0.4, 0.6)
WINDOW = 5
CURRICULA = {
    "uniform": ["curriculum.kind=uniform"],
    "entropy": ["curriculum.kind=entropy", "curriculum.bins=5", "curriculum.visits=4"],
    "zone": ["curriculum.kind=zone", "curriculum.bins=5"],
}
SETTINGS = [
    "steps=36",
    "domain.products=5000",
    "engine.threads=1",
    "engine.heads=1",
    "engine.width=64",
    "engine.feedforward=128",
    "cloning.optimizer.lr=1e-2",
    "rollout.groups=16",
    "rollout.group_size=4",
    "rollout.max_tokens=12",
    "reward={kind: outcome, pay: success}",
    "credit={kind: grpo}",
    "evaluation.every=12",
    "evaluation.episodes=1",
    "evaluation.how=sampled",
    "evaluation.during=64",
    "tracking.episodes_every=1",
]


class Start(NamedTuple):
    """A warm start and what follows from it.

    Attributes:
        kept: Where its results lie, under `KEPT`.
        difficulty: The range that is drawn from.
        haste: Of the demonstrator, for every option.
    """

    kept: str
    seeds: str
    difficulty: tuple[float, float]
    haste: float
    cloning: int
    rate: float
    turns: int = 9

    @property
    def settings(self) -> list[str]:
        """On top of `SETTINGS`."""
        haste = ", ".join(f"{option}: {self.haste}" for option in ("color", "scent", "flavor", "size", "pack", "power"))
        return [
            *(f"domain.difficulty={list(self.difficulty)}", f"domain.expert_haste={{{haste}}}"),
            *(f"cloning.steps={self.cloning}", f"optimizer.lr={self.rate}", f"rollout.turns={self.turns}"),
        ]


STARTS = {
    "weak": Start(".", "50,51,52", (0.0, 0.5), 0.25, 450, 1e-3),
    "strong": Start("strong", "55,56,57", (0.0, 0.8), 0.15, 1200, 5e-4),
    "short": Start("short", "58,59,60,61,62", (0.0, 1.0), 0.15, 1200, 5e-4, turns=6),
}
WEAK = STARTS["weak"]
_COLOURS = {"uniform": "#9D755D", "entropy": "#4C78A8", "zone": "#F58518"}


class Run(NamedTuple):
    """What is kept of a run, step by step.

    Attributes:
        success: Of each group of each step: the share of its episodes that succeeded. [T][G]
        difficulty: Of each group's task. [T][G]
        validation: (episodes, success) on held-out tasks of the whole range.
    """

    success: Sequence[Sequence[float]]
    difficulty: Sequence[Sequence[float]]
    validation: tuple[Sequence[float], Sequence[float]]


def config_of(curriculum: str, seed: int, start: Start = WEAK) -> Config:
    """The settings of a run; the difficulty of its tasks is that of the domain."""
    return load("quick", [f"name={curriculum}", f"seed={seed}", *SETTINGS, *start.settings, *CURRICULA[curriculum]])


def play(curriculum: str, seed: int, runs: Path, start: Start) -> None:
    """Trains, or goes on where a former process was killed, and keeps the result."""
    config, folder = config_of(curriculum, seed, start), runs / start.kept / f"{curriculum}-{seed}"
    try:
        for _ in train(config, folder, resume=True, show=True, warm=warm_start(config, runs)):
            pass
    except NothingLeftError:
        pass
    steps = [_groups(folder, step) for step in episode_steps(folder) if step > config.cloning.steps]
    told = {
        "curriculum": curriculum,
        "seed": seed,
        "config": dump(config),
        "success": [[share for share, _ in groups] for groups in steps],
        "difficulty": [[difficulty for _, difficulty in groups] for groups in steps],
        "validation": curve_of(read_metrics(folder), config.rollout.group_size),
    }
    (KEPT / start.kept).mkdir(parents=True, exist_ok=True)
    write_atomic(KEPT / start.kept / f"{curriculum}-{seed}.json", json.dumps(told) + "\n")


def _groups(folder: Path, step: int) -> list[tuple[float, float]]:
    """(share of successes, difficulty) of each group of a step; episodes without a grade count for nothing."""
    found: dict[str, list[float]] = {}
    difficulty: dict[str, float] = {}
    for record in read_episodes(folder, step):
        if record.success is not None:
            found.setdefault(record.key, []).append(float(record.success))
            difficulty[record.key] = record.difficulty
    return [(float(np.mean(wins)), difficulty[key]) for key, wins in found.items()]


def read(curriculum: str, start: Start = WEAK) -> dict[int, Run]:
    """Seed -> what is kept."""
    there = {}
    for path in sorted((KEPT / start.kept).glob(f"{curriculum}-*.json")):
        told = json.loads(path.read_text())
        there[told["seed"]] = Run(told["success"], told["difficulty"], (told["validation"]["episodes"], told["validation"]["success"]))
    return there


# -- numbers ------------------------------------------------------------------------------------------------------------------


def by_step(values: Sequence[Sequence[float]]) -> list[float]:
    """The mean over the groups of each step."""
    return [float(np.mean(groups)) for groups in values]


def in_zone(run: Run) -> tuple[float, float]:
    """Share of the windows of five steps whose mean success is in [0.4, 0.6]; and what that share would be at a success of 0.5 always.

    The second is what noise alone leaves: a window's mean is taken as normal about 0.5, with the standard error of its groups' means,
    since episodes of one task are alike.
    """
    inside, expected = [], []
    for start in range(len(run.success) - WINDOW + 1):
        window = np.concatenate([np.asarray(groups) for groups in run.success[start : start + WINDOW]])
        error = max(float(window.std(ddof=1)) / math.sqrt(len(window)), 1e-9)
        inside.append(float(ZONE[0] <= window.mean() <= ZONE[1]))
        expected.append(NormalDist(0.5, error).cdf(ZONE[1]) - NormalDist(0.5, error).cdf(ZONE[0]))
    return float(np.mean(inside)), float(np.mean(expected))


def easiest(run: Run, difficulty: tuple[float, float] = WEAK.difficulty) -> float:
    """Success in the easiest fifth of the range in the last third of the run: what a curriculum could draw at best."""
    low, high = difficulty
    last = range(len(run.success) - len(run.success) // 3, len(run.success))
    asked = [(p, d) for step in last for p, d in zip(run.success[step], run.difficulty[step], strict=True)]
    found = [p for p, d in asked if d < low + (high - low) / 5]
    return float(np.mean(found)) if found else math.nan


def thirds(values: Sequence[float]) -> list[float]:
    """Means of the first, the middle and the last third.

    >>> thirds([1.0, 1.0, 2.0, 2.0, 3.0, 3.0])
    [1.0, 2.0, 3.0]
    """
    return [float(np.mean(part)) for part in np.array_split(np.asarray(values), 3)]


def verdict(intervals: Sequence[Interval]) -> str:
    """Held where every third's interval lies in the zone, not held where one lies outside of it, else undecided."""
    if any(math.isnan(found.low) for found in intervals):
        return "one seed"
    if all(ZONE[0] <= found.low and found.high <= ZONE[1] for found in intervals):
        return "held"
    return "not held" if any(found.high < ZONE[0] or found.low > ZONE[1] for found in intervals) else "undecided"


# -- telling ------------------------------------------------------------------------------------------------------------------


def table(start: Start = WEAK) -> str:
    """A row for each curriculum; means over seeds with 95 % intervals (bootstrap over seeds)."""
    columns = [
        "curriculum",
        "seeds",
        "success drawn: first third",
        "middle",
        "last",
        "in [0.4, 0.6]",
        "at most, by noise",
        "of single steps",
    ]
    columns += ["easiest fifth, last third", "difficulty: first third", "middle", "last", "last less first"]
    columns += ["validation, before", "after", "after, against uniform", "held?"]
    rows = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    plain = read("uniform", start)
    for name in CURRICULA:
        seeds = read(name, start)
        runs = list(seeds.values())
        if not runs:
            continue
        success = [over_seeds(part) for part in zip(*(thirds(by_step(run.success)) for run in runs), strict=True)]
        difficulty = [over_seeds(part) for part in zip(*(thirds(by_step(run.difficulty)) for run in runs), strict=True)]
        shares = [in_zone(run) for run in runs]
        single = over_seeds([float(np.mean([ZONE[0] <= p <= ZONE[1] for p in by_step(run.success)])) for run in runs])
        before, after = (over_seeds([run.validation[1][at] for run in runs]) for at in (0, -1))
        climbs = over_seeds([last - first for first, _, last in (thirds(by_step(run.difficulty)) for run in runs)])
        both = [] if name == "uniform" else sorted(seeds.keys() & plain.keys())
        gains = [seeds[seed].validation[1][-1] - plain[seed].validation[1][-1] for seed in both]
        cells = [f"`{name}`", str(len(runs)), *(_told(found) for found in success), _told(over_seeds([share for share, _ in shares]))]
        cells += [
            f"{np.mean([most for _, most in shares]):.2f}",
            _told(single),
            _told(over_seeds([easiest(run, start.difficulty) for run in runs])),
        ]
        cells += [*(_told(found) for found in difficulty), _told(climbs, "+"), _told(before), _told(after)]
        rows += ["| " + " | ".join([*cells, _told(over_seeds(gains), "+") if gains else "", verdict(success)]) + " |"]
    return "\n".join(rows) + "\n"


def _told(found: Interval, sign: str = "") -> str:
    return f"{found.mean:{sign}.2f}" + ("" if math.isnan(found.low) else f" ({found.low:{sign}.2f} to {found.high:{sign}.2f})")


def draw() -> None:
    """Success over drawn tasks (moving mean of five steps) and their difficulty: each seed thin, the mean over seeds thick."""
    there = {name: start for name, start in STARTS.items() if any(read(curriculum, start) for curriculum in CURRICULA)}
    figure = Figure(figsize=(9.0, 3.4 * max(len(there), 1)), layout="constrained")
    FigureCanvasAgg(figure)
    for (name, start), axes in zip(there.items(), figure.subplots(max(len(there), 1), 2, squeeze=False), strict=False):
        _draw_start(name, start, axes[0], axes[1])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    write_atomic(PICTURE, buffer.getvalue())


def _draw_start(start_name: str, start: Start, left: Axes, right: Axes) -> None:
    left.axhspan(*ZONE, color="0.9")
    for name, colour in _COLOURS.items():
        runs = list(read(name, start).values())
        for axes, curves in ((left, [_smooth(by_step(r.success)) for r in runs]), (right, [_smooth(by_step(r.difficulty)) for r in runs])):
            if not curves:
                continue
            steps = np.arange(WINDOW, WINDOW + len(curves[0]))
            for curve in curves:
                axes.plot(steps, curve, color=colour, alpha=0.3, lw=0.7)
            axes.plot(steps, np.mean(curves, axis=0), color=colour, lw=2.0, label=name)
    left.set(xlabel="step", ylabel="success over drawn tasks", ylim=(0.0, 1.0), title=f"{start_name} start: success, mean of five steps")
    right.set(xlabel="step", ylabel="difficulty of drawn tasks", title=f"{start_name} start: difficulty, mean of five steps")
    left.legend(frameon=False, fontsize=8)


def _smooth(values: Sequence[float]) -> list[float]:
    return [float(np.mean(values[start : start + WINDOW])) for start in range(len(values) - WINDOW + 1)]


def main() -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="table and picture of what is there, run nothing")
    parser.add_argument("--start", choices=tuple(STARTS), action="append", help="by default all")
    parser.add_argument("--seeds", help="by default those that are reported")
    parser.add_argument(
        "--runs", type=Path, default=Path(tempfile.gettempdir()) / "stepwell-study-shop-target", help="where run folders go"
    )
    args = parser.parse_args()
    for start in () if args.table else (STARTS[name] for name in args.start or STARTS):
        for seed in seeds_of(args.seeds or start.seeds, 0):
            for name in CURRICULA:
                if not (KEPT / start.kept / f"{name}-{seed}.json").exists():
                    play(name, seed, args.runs, start)
    draw()
    text = "\n".join(f"## {name} start\n\n{table(start)}" for name, start in STARTS.items())
    (HERE / "target.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
