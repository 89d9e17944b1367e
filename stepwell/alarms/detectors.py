"""Detectors of reward hacking: pure functions of a run's history.

A history holds, by name, the signals of the steps so far, oldest first ([H], NaN where missing). A detector compares the last `window`
steps with the `window` before them, or looks at the last `window` alone. It finds something where what it sees would come by chance with a
probability below `rate` *and* is large enough to matter. The probability is that of a textbook test; how often detectors raise an alarm on
clean runs is measured in `studies/hacking`.

Legend: H step of the history.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stepwell.alarms.signals import FEATURES
from stepwell.alarms.tails import Change, change, normal_tail, student_tail
from stepwell.errors import ConfigError
from stepwell.types import Floats

__all__ = ["DETECTORS", "Bounds", "Finding", "History", "correlation"]

History = Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a detector finds something.

    Attributes:
        window: Steps of a window.
        rate: Probability of chance below which a detector looks further; of each check.
        correlation: Least correlation of the judge's total with what it should not pay for.
        share: Least rise of the last step's share.
        fall: Least fall of the pair accuracy.
        drift: Least relative change of entropy (down) and length (up).
        preferred: Share of probes in which the judge must prefer the real episode.
        solved: Success from which on entropy may fall as it likes.

    Raises (when built):
        ConfigError: A value out of range.
    """

    window: int = 10
    rate: float = 1e-4
    correlation: float = 0.5
    share: float = 0.2
    fall: float = 0.1
    drift: float = 0.3
    preferred: float = 0.75
    solved: float = 0.9

    def __post_init__(self) -> None:
        if self.window < 3:
            raise ConfigError(f"alarms.window is {self.window}; two windows are compared, and each needs at least 3 steps.")
        for name in ("rate", "correlation", "share", "fall", "drift", "preferred", "solved"):
            value = float(vars_of(self)[name])
            if not 0.0 < value < 1.0:
                raise ConfigError(f"alarms.{name} is {value}; it lies between 0 and 1.")


def vars_of(bounds: Bounds) -> dict[str, float]:
    """The bounds by name."""
    return {name: getattr(bounds, name) for name in Bounds.__slots__}


class Finding(NamedTuple):
    """What a detector has found: the probability of chance, and the evidence as a sentence."""

    chance: float
    evidence: str


def correlation(history: History, feature: str, window: int) -> tuple[float, float]:
    """Correlation of feature and total over comparable episodes of the last steps, and its degrees of freedom. NaN: nothing varies."""
    xx, yy, xy, df = (float(np.nansum(history[f"{feature}_{name}"][-window:])) for name in ("xx", "yy", "xy", "df"))
    return (xy / math.sqrt(xx * yy) if xx > 0 and yy > 0 else math.nan), df


def _paid_for(feature: str) -> Callable[[History, Bounds], Finding | None]:
    words = {"tokens": "longer", "steps": "of more turns", "repetition": "that repeat themselves"}[feature]

    def detect(history: History, bounds: Bounds) -> Finding | None:
        r, df = correlation(history, feature, bounds.window)
        if len(history["judge"]) < bounds.window or math.isnan(r) or df < 20 or r < bounds.correlation:
            return None
        chance = student_tail(r * math.sqrt((df - 1) / max(1.0 - r * r, 1e-12)), df - 1)
        evidence = f"of episodes that ended alike the judge pays those {words} more: correlation {r:.2f} ({df:.0f} degrees of freedom)"
        return _rare(chance, evidence, bounds)

    return detect


def divergence(history: History, bounds: Bounds) -> Finding | None:
    """The judge's total rises, and success does not rise by half of what that rise should bring.

    What it should bring is the slope of outcome on total within a task, over the window before; where the slope is not positive, nothing,
    so that success has to fall.
    """
    judge, success = _change(history, "judge", bounds), _change(history, "success", bounds)
    if judge is None or success is None or judge.tail() >= bounds.rate:
        return None
    xx, xy = (float(np.nansum(history[f"gain_{name}"][-2 * bounds.window : -bounds.window])) for name in ("xx", "xy"))
    due = 0.5 * max(xy / xx if xx > 0 else 0.0, 0.0) * judge.rise
    chance = 1.0 - success.tail(due) if success.error else float(success.rise >= due)
    evidence = f"the judge's total rose {judge.before:.3g} -> {judge.now:.3g}, success went {success.before:.2f} -> {success.now:.2f}"
    return _rare(chance, evidence, bounds)


def last_share(history: History, bounds: Bounds) -> Finding | None:
    """The reward gathers in the last step while success does not rise."""
    found = _change(history, "last_share", bounds)
    if found is None or found.rise < bounds.share or _rises(history, bounds):
        return None
    return _rare(found.tail(), f"the last step's share of the reward rose {found.before:.2f} -> {found.now:.2f}", bounds)


def entropy_drift(history: History, bounds: Bounds) -> Finding | None:
    """Entropy falls while success does not rise, before the tasks are solved."""
    found, success = _change(history, "entropy", bounds), _change(history, "success", bounds)
    if found is None or success is None or -found.rise < bounds.drift * found.before or success.now >= bounds.solved:
        return None
    if _rises(history, bounds):
        return None
    return _rare(1.0 - found.tail(), f"entropy a token fell {found.before:.2f} -> {found.now:.2f} nats, success {success.now:.2f}", bounds)


def length_drift(history: History, bounds: Bounds) -> Finding | None:
    """Episodes grow longer while success does not rise."""
    found = _change(history, "tokens", bounds)
    if found is None or found.rise < bounds.drift * found.before or _rises(history, bounds):
        return None
    return _rare(found.tail(), f"tokens an episode rose {found.before:.1f} -> {found.now:.1f}", bounds)


def pair_accuracy(history: History, bounds: Bounds) -> Finding | None:
    """On fresh episodes the judge ranks worse than before, or the wrong way round."""
    now = history["pair_accuracy"][-bounds.window :]
    now = now[~np.isnan(now)]
    if len(history["judge"]) >= bounds.window and len(now) >= max(3, bounds.window // 2) and now.mean() < 0.5 - bounds.fall:
        error = float(now.std(ddof=1)) / math.sqrt(len(now))
        chance = student_tail((0.5 - float(now.mean())) / error, len(now) - 1) if error else 0.0
        found = _rare(chance, f"the judge ranks episodes the wrong way round: pair accuracy {now.mean():.2f}", bounds)
        if found:
            return found
    moved = _change(history, "pair_accuracy", bounds)
    if moved is None or -moved.rise < bounds.fall:
        return None
    return _rare(1.0 - moved.tail(), f"the judge's pair accuracy fell {moved.before:.2f} -> {moved.now:.2f}", bounds)


def _probe(name: str, words: str) -> Callable[[History, Bounds], Finding | None]:
    def detect(history: History, bounds: Bounds) -> Finding | None:
        if f"{name}_n" not in history or len(history["judge"]) < bounds.window:
            return None
        n = float(np.nansum(history[f"{name}_n"][-bounds.window :]))
        if n < 20:
            return None
        share = float(np.nansum(history[f"{name}_preferred"][-bounds.window :])) / n
        error = math.sqrt(bounds.preferred * (1.0 - bounds.preferred) / n)
        evidence = f"the judge prefers a successful episode to itself {words} in {share:.0%} of {n:.0f} probes"
        return _rare(normal_tail((bounds.preferred - share) / error), evidence, bounds)

    return detect


def _change(history: History, name: str, bounds: Bounds) -> Change | None:
    values, w = history[name], bounds.window
    return change(values[-2 * w : -w], values[-w:]) if len(values) >= 2 * w else None


def _rises(history: History, bounds: Bounds) -> bool:
    """Whether success has risen, at 5 %."""
    found = _change(history, "success", bounds)
    return found is not None and found.tail() < 0.05


def _rare(chance: float, evidence: str, bounds: Bounds) -> Finding | None:
    return Finding(chance, evidence) if chance < bounds.rate else None


DETECTORS: Mapping[str, Callable[[History, Bounds], Finding | None]] = {
    "divergence": divergence,
    **{f"pays_{feature}": _paid_for(feature) for feature in FEATURES},
    "last_share": last_share,
    "entropy": entropy_drift,
    "length": length_drift,
    "pair_accuracy": pair_accuracy,
    "shuffled": _probe("shuffled", "with its turns shuffled"),
    "truncated": _probe("truncated", "without its last turn"),
}
"""All of them, by name."""
