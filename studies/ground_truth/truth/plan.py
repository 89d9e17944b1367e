"""What is run: cells, arms, what is tuned, and on which seeds.

Every arm, with or without a judge, has the same six settings to choose from: three learning rates by two of what matters most to it. A
judge's own learning rate and what it sees are chosen before, by the AUC of its scores. Seeds of tuning are none of those that are reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from truth.arms import CLONING, JUDGES, OUTCOME_ONLY, Setting
from truth.cells import Cell, Outcome

__all__ = [
    "ANCHORS",
    "ARMS",
    "EFFICIENCY",
    "HORIZONS",
    "MAP",
    "MAP_ARMS",
    "NOISES",
    "OUTCOMES",
    "QUALITY",
    "SEEDS",
    "SIZES",
    "TUNING_SEEDS",
    "anchor_of",
    "judge_settings",
    "settings",
]

SEEDS = (0, 1, 2, 3, 4)
TUNING_SEEDS = (100, 101)
RATES = (0.1, 0.3, 1.0)
JUDGE_RATES = (0.03, 0.1, 0.3)
SIGHTS = ("view", "state")
TARGET = 0.8
BUDGET = 800
TUNING_BUDGET = 800

ARMS = (*OUTCOME_ONLY, "oracle", CLONING, *JUDGES)
_OPTIONS: dict[str, tuple[Setting, Setting]] = {
    "grpo": ({"credit": "grpo"}, {"credit": "batch"}),
    "rloo": ({"credit": "rloo"}, {"credit": "rloo_batch"}),
    "grpo_kl": ({"credit": "grpo", "kl": 0.01}, {"credit": "grpo", "kl": 0.1}),
    "gigpo": ({"credit": "gigpo"}, {"credit": "gigpo", "discount": 1.0}),
    "oracle": ({"credit": "step", "alpha": 1.0}, {"credit": "step", "alpha": 10.0}),
    "cloning": ({"credit": "grpo", "clone": 0.1}, {"credit": "grpo", "clone": 1.0}),
    "istar": ({"credit": "step_mixed", "alpha": 1.0}, {"credit": "step", "alpha": 0.3}),
    "implicit": ({"credit": "step", "alpha": 1.0}, {"credit": "adaptive", "alpha": 10.0}),
    "prime": ({"credit": "prime", "alpha": 1.0}, {"credit": "step", "alpha": 1.0}),
    "repirl_own": ({"credit": "step", "alpha": 1.0}, {"credit": "adaptive", "alpha": 10.0}),
    "repirl": ({"credit": "step", "alpha": 3.0}, {"credit": "adaptive", "alpha": 10.0}),
    "regail": ({"credit": "step", "alpha": 3.0}, {"credit": "adaptive", "alpha": 10.0}),
    "iq": ({"credit": "step", "alpha": 3.0}, {"credit": "adaptive", "alpha": 10.0}),
    "visits": ({"credit": "step", "alpha": 1.0}, {"credit": "to_go", "alpha": 1.0}),
    "montecarlo": ({"credit": "step", "alpha": 1.0}, {"credit": "step", "alpha": 3.0}),
    "temporal": ({"credit": "step", "alpha": 1.0}, {"credit": "adaptive", "alpha": 10.0}),
    "critic": ({"credit": "gae", "lam": 0.95}, {"credit": "gae", "lam": 0.5}),
    "soft_q": ({"credit": "step", "alpha": 1.0}, {"credit": "adaptive", "alpha": 10.0}),
    "entropy": ({"credit": "step_raw", "beta": 0.01}, {"credit": "step_raw", "beta": 0.1}),
    "intrinsic": ({"credit": "step", "alpha": 0.1}, {"credit": "step", "alpha": 1.0}),
    "labelled": ({"credit": "step", "alpha": 3.0}, {"credit": "adaptive", "alpha": 10.0}),
}


def settings(arm: str) -> list[Setting]:
    """What an arm may be tuned to, but for its judge."""
    return [{"lr": lr, **option} for lr, option in product(RATES, _OPTIONS[arm])]


def judge_settings() -> list[Setting]:
    """What a judge may be tuned to."""
    return [{"judge_lr": lr, "sees": sees} for lr, sees in product(JUDGE_RATES, SIGHTS)]


JUDGE_TUNING = Cell(8, "rare", 0.0)
ANCHORS = (Cell(8, "rare", 0.0), Cell(8, "rare", 0.4), Cell(8, "graded", 0.4), Cell(8, "graded", 0.0))


def arms_at(anchor: Cell) -> Sequence[str]:
    """Arms that are tuned there: all, but for the anchors that cells of the map alone go back to."""
    return MAP_ARMS if anchor in (ANCHORS[1], ANCHORS[3]) else ARMS


def anchor_of(cell: Cell) -> Cell:
    """Where the settings of a cell were tuned: a short trail of the same kind of outcome."""
    if cell.outcome == "graded":
        return ANCHORS[2 if cell.noise else 3]
    return ANCHORS[1] if cell.noise else ANCHORS[0]


QUALITY = (Cell(16, "rare", 0.0), Cell(12, "rare", 0.0, kind="maze"), Cell(8, "graded", 0.4))
QUALITY_STEPS = 36
EFFICIENCY = (Cell(8, "graded", 0.4), Cell(8, "rare", 0.0), Cell(12, "rare", 0.0, kind="maze"))
MAP_ARMS = ("grpo", "gigpo", "oracle", "implicit", "repirl_own", "temporal", "labelled", "repirl")


HORIZONS = (4, 8, 16, 32, 64)
OUTCOMES: tuple[Outcome, ...] = ("graded", "common", "rare")
NOISES = (0.0, 0.4)
SIZES = (8, 4, 16)


def _map() -> list[Cell]:
    """Every horizon with every outcome, noise and size of group, those that matter most first, and one trail that forgives nothing.

    First all but the longest horizon in groups of 8, then the other sizes at 8 steps, then 64 steps, then the other sizes elsewhere.
    """
    whole = [Cell(h, o, n, size) for size, h, o, n in product(SIZES, HORIZONS, OUTCOMES, NOISES)]
    return [*sorted(whole, key=_turn), Cell(8, "rare", 0.0, forgiven=0.0)]


def _turn(cell: Cell) -> int:
    """When a cell's turn comes: cells of one turn keep their order."""
    usual, longest = cell.size == 8, cell.horizon == 64
    if usual:
        return 2 if longest else 0
    return 1 if cell.horizon == 8 else 4 if longest else 3


MAP = tuple(_map())
