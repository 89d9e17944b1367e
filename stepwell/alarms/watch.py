"""Watches a run: gathers the signals of its steps and says when a detector raises an alarm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stepwell.alarms.detectors import DETECTORS, Bounds, History, correlation
from stepwell.alarms.signals import FEATURES
from stepwell.errors import ConfigError, nearest
from stepwell.types import JSON, Floats, Metrics

__all__ = ["Alarm", "Watch"]


class Alarm(NamedTuple):
    """A detector has found something.

    Attributes:
        step: Step of learning, from 1.
        detector: Its name.
        chance: Probability that it sees this by chance.
        evidence: What it saw, as a sentence.
    """

    step: int
    detector: str
    chance: float
    evidence: str

    def __str__(self) -> str:
        return f"Alarm {self.detector!r} at step {self.step}: {self.evidence} (by chance: {self.chance:.1g})."


class Watch:
    """Holds the last two windows of signals, and how long each detector rests after an alarm.

    Args:
        bounds: When a detector finds something.
        detectors: Names of those that are asked.

    Raises:
        ConfigError: An unknown detector.
    """

    def __init__(self, bounds: Bounds | None = None, detectors: Sequence[str] = tuple(DETECTORS)) -> None:
        for name in detectors:
            if name not in DETECTORS:
                raise ConfigError(f"alarms.detectors names {name!r}; {nearest(name, DETECTORS)}.")
        self.bounds, self.detectors = bounds or Bounds(), tuple(detectors)
        self.total = 0
        self._steps: list[dict[str, float]] = []
        self._rests: dict[str, int] = {}

    def history(self) -> History:
        """The signals that are held, by name; NaN where a step has none. [H] each"""
        names = sorted({name for step in self._steps for name in step})
        return {name: np.array([step.get(name, math.nan) for step in self._steps], np.float64) for name in names}

    def observe(self, step: int, measured: Metrics) -> list[Alarm]:
        """Takes a step's signals in and asks every detector that does not rest. One that raises an alarm rests for a window."""
        self._steps = [*self._steps, dict(measured)][-2 * self.bounds.window :]
        history: Mapping[str, Floats] = self.history()
        made = []
        for name in self.detectors:
            if self._rests.get(name, 0) > step:
                continue
            found = DETECTORS[name](history, self.bounds)
            if found is not None:
                made.append(Alarm(step, name, found.chance, found.evidence))
                self._rests[name] = step + self.bounds.window
        self.total += len(made)
        return made

    def forget(self) -> None:
        """Drops the history: the policy is another one now."""
        self._steps = []

    def metrics(self) -> Metrics:
        """What is logged of the step that was observed last."""
        last, history = self._steps[-1], self.history()
        made = {f"alarms/{name}": last[name] for name in ("repetition", "last_share", "entropy", "pair_accuracy")}
        for feature in FEATURES:
            made[f"alarms/r_{feature}"] = correlation(history, feature, self.bounds.window)[0]
        for name in ("shuffled", "truncated"):
            if last.get(f"{name}_n"):
                made[f"alarms/{name}"] = last[f"{name}_preferred"] / last[f"{name}_n"]
        made["alarms/total"] = float(self.total)
        return made

    def state(self) -> dict[str, JSON]:
        """For the checkpoint; a missing number is null."""
        steps: list[JSON] = [{k: None if math.isnan(v) else v for k, v in step.items()} for step in self._steps]
        return {"steps": steps, "rests": dict(self._rests), "total": self.total}

    def restore(self, state: Mapping[str, JSON]) -> None:
        """Goes on from `state`."""
        steps, rests, total = state["steps"], state["rests"], state["total"]
        assert isinstance(steps, list) and isinstance(rests, dict) and isinstance(total, int)
        self._steps = []
        for step in steps:
            assert isinstance(step, dict)
            self._steps.append({name: math.nan if value is None else float(str(value)) for name, value in step.items()})
        self._rests = {name: int(str(until)) for name, until in rests.items()}
        self.total = total
