"""Results of runs as an ablation keeps them, made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stepwell.ablation.plan import Plan, make_plan
from stepwell.configure import load

MINI = [
    "steps=2",
    "cloning.steps=2",
    "domain.products=100",
    "domain.test_tasks=4",
    "engine.corpus_tasks=20",
    "engine.threads=1",
    "rollout.turns=4",
    "evaluation.episodes=4",
    "evaluation.during=2",
]
"""Everything once, in a second or two."""


def mini_plan(out: Path, only: Sequence[str], seeds: Sequence[int] = (0,), named: Mapping[str, Sequence[str]] | None = None) -> Plan:
    return make_plan(load("smoke", MINI), seeds, out, named=named or {}, only=only)


def result(
    variant: str,
    seed: int,
    clean: str,
    perturbed: str = "",
    *,
    curve: tuple[Sequence[float], Sequence[float]] = ((0, 100), (0.0, 1.0)),
    **more: Any,
) -> dict[str, Any]:
    """`clean` and `perturbed` say each task's success: `1`, `0`, or `-` for no grade; difficulties grow from 0.1 in steps of 0.2."""

    def played(text: str) -> dict[str, Any]:
        return {"tasks": [[f"t{at}", round(0.1 + 0.2 * at, 1), None if mark == "-" else mark == "1"] for at, mark in enumerate(text)]}

    found: dict[str, Any] = {
        "variant": variant,
        "seed": seed,
        "clean": played(clean),
        "perturbed": {**played(perturbed), "recovery": 0.5, "recovery_turns": 3.0, "recovery_given_clean": 0.25} if perturbed else None,
        "episodes_before": 0,
        "curve": {"episodes": list(curve[0]), "success": list(curve[1])},
        "judge": {"auc": 0.8, "brier": 0.2, "ece": 0.1, "episodes": 64},
        "curriculum": {"difficulty_first": 0.2, "difficulty_last": 0.4, "success_asked": 0.5, "in_zone": 1.0},
        "divergences": 0.25,
        "alarms": None,
        "train_seconds": 10.0,
    }
    return found | more


def record(plan: Plan, *results: Mapping[str, Any]) -> None:
    """Puts results where the plan's runs would."""
    plan.enter()
    for found in results:
        path = plan.out / "results" / f"{found['variant']}-{found['seed']}.json"
        path.write_text(json.dumps(found))
