"""Which settings an arm is run with: as many are tried for each, on seeds that are not reported and on validation tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chains.plan import GRID, TUNED_ON, Scale
from chains.train import one
from stepwell.files import write_atomic

__all__ = ["Tried", "choice", "finish_grid", "read_grid"]

_FEW = 25
"""Validation tasks of twelve moves; there are hardly more than 30."""


@dataclass(frozen=True)
class Tried:
    """A setting of an arm and the runs with it, each the object that is in its file.

    Attributes:
        number: Of the setting in `GRID`.
        settings: On top of the arm's.
        runs: By seed.
    """

    arm: str
    number: int
    settings: Sequence[str]
    runs: Mapping[int, Mapping[str, Any]]

    @property
    def success(self) -> float:
        """Mean pass@1 over validation tasks and seeds, in [0, 1]."""
        return float(np.mean([np.mean(run["test"]["wins"]) / run["test"]["attempts"] for run in self.runs.values()]))


def finish_grid(arms: Sequence[str], scale: Scale, runs: Path, out: Path) -> None:
    """Runs what is missing of the grid, one JSON a run under `results/tuning/`; all arms of a seed and setting before the next."""
    folder = out / "results" / "tuning"
    folder.mkdir(parents=True, exist_ok=True)
    for seed in TUNED_ON:
        for number in range(max(len(GRID[arm]) for arm in arms)):
            for arm in (arm for arm in arms if number < len(GRID[arm])):
                file = folder / f"{arm}-{number}-{seed}.json"
                if not file.exists():
                    print(f"{arm} {seed} {' '.join(GRID[arm][number])}", flush=True)
                    few = arm.endswith("_hard")
                    settings, size = ([*GRID[arm][number], f"domain.test_tasks={_FEW}"], _FEW) if few else (GRID[arm][number], scale.tasks)
                    found = one(arm, seed, scale._replace(tasks=min(size, scale.tasks)), runs, settings, split="validation")
                    write_atomic(file, json.dumps({**found, "number": number, "tried": list(GRID[arm][number])}) + "\n")


def read_grid(folder: Path) -> dict[str, list[Tried]]:
    """What was tried, by arm, in the order of the grid."""
    found: dict[tuple[str, int], dict[int, Mapping[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        run = json.loads(path.read_text())
        found.setdefault((run["arm"], run["number"]), {})[run["seed"]] = run
    tried: dict[str, list[Tried]] = {}
    for (arm, number), runs in sorted(found.items()):
        tried.setdefault(arm, []).append(Tried(arm, number, next(iter(runs.values()))["tried"], runs))
    return tried


def choice(tried: Sequence[Tried]) -> Tried:
    """The rule: the highest mean pass@1 on validation tasks over the tuning seeds; of equal ones the first."""
    return max(tried, key=lambda one: one.success)
