"""One run: from the common start by an arm's settings, measured at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import stepwell
from chains.measure import measured
from chains.plan import PROBLEMS, Scale, arm_settings, base_settings
from stepwell.build import build
from stepwell.domains import reasoning_domain
from stepwell.envs.reasoning import ReasoningDomain
from stepwell.files import write_atomic
from stepwell.searching.pool import is_finished
from stepwell.trained import export
from stepwell.types import JSON, Task

__all__ = ["base", "labelled_task", "labels", "one"]

_KEPT = (
    *("policy/entropy", "policy/kl_ref", "judge/fresh_pair_accuracy", "judge/ess", "rollout/drawn_groups"),
    "credit/return",
)


def base(runs: Path, scale: Scale) -> Path:
    """The folder of the policy that every run begins as; trained by imitation where it is not there yet."""
    model = runs / "base-model"
    if not model.exists():
        config = stepwell.load("reasoning", base_settings(scale))
        try:
            for _ in stepwell.train(config, runs / "base", resume=True, show=True):
                pass
        except stepwell.NothingLeftError:
            pass
        export(runs / "base", model)
    return model


def labels(runs: Path, scale: Scale) -> Path:
    """A file of labelled solutions, half of them with a first wrong step, written down as an episode of the task is.

    A step is a turn with all that stands around it, so that the judge reads in labels what it will read in episodes.
    """
    file = runs / "labels.jsonl"
    if not file.exists():
        domain = _domain(stepwell.load("reasoning", PROBLEMS))
        lines = [json.dumps(_labelled(domain, number)) for number in range(scale.labels)]
        write_atomic(file, "\n".join(lines) + "\n")
    return file


def _domain(config: stepwell.Config) -> ReasoningDomain:
    assert config.domain.kind == "reasoning"
    return reasoning_domain(config.domain)


def labelled_task(domain: ReasoningDomain, number: int) -> Task:
    """Whose solution is labelled: a training task, of difficulties all over the range."""
    low, high = domain.difficulty
    return domain.task(round(low + (high - low) * (number % 50) / 49, 4), 1_000_000 + number, "train")


def _labelled(domain: ReasoningDomain, number: int) -> dict[str, JSON]:
    task = labelled_task(domain, number)
    lines = domain.solution(task) or []
    wrong_at = number // 2 % (len(lines) - 1) if number % 2 else -1
    if wrong_at >= 0:
        lines = domain.wrong_solution(task, wrong_at, number)[: wrong_at + 1]
    truths: list[JSON] = [at != wrong_at for at in range(len(lines))]
    steps: list[JSON] = []
    for at, line in enumerate(lines):
        before = f"<|user|>{at} written<|end|><|assistant|>" if at else ""
        steps.append(f"{before}write[{line}]")
    return {"prompt": domain.environment(task).start().text, "steps": steps, "labels": truths}


def one(arm: str, seed: int, scale: Scale, runs: Path, extra: Sequence[str] = (), split: str = "test") -> dict[str, JSON]:
    """Trains and measures; `extra` are settings on top of the arm's: those that were chosen, or are tried on validation tasks."""
    model, file = base(runs, scale), labels(runs, scale)
    settings = [*arm_settings(arm, seed, scale, model=str(model), labels=str(file)), *extra]
    built = build(stepwell.load("reasoning", settings))
    curve: dict[str, list[JSON]] = {name: [] for name in ("success", "turns", "unfinished", *_KEPT, "cpu_s")}
    cloned_s, began = 0.0, time.process_time()
    for result in built.trainer.run():
        ended = time.process_time()
        if not result.groups:
            cloned_s, began = cloned_s + ended - began, ended
            continue
        episodes = [member.scored.episode for group in result.groups for member in group.members]
        curve["success"].append(_share([bool(one.verdict.success) for one in episodes]))
        curve["turns"].append(_share([len(one.turns) for one in episodes]))
        curve["unfinished"].append(_share([not is_finished(one) for one in episodes]))
        for name in _KEPT:
            value = result.metrics.get(name)
            curve[name].append(None if value is None or value != value else round(value, 5))
        curve["cpu_s"].append(round(ended - began, 4))
        began = time.process_time()
    told: list[JSON] = [one for one in settings if "/" not in one]
    return {
        "arm": arm,
        "seed": seed,
        "settings": told,
        "curve": dict(curve),
        "cloned_cpu_s": round(cloned_s, 3),
        "test": measured(built, split, scale.tasks),
    }


def _share(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4)
