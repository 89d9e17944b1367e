"""What is shown while a run goes: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from stepwell.types import Metrics

__all__ = ["HEADLINE", "Progress", "progress"]

HEADLINE: dict[str, str] = {
    "success": "rollout/success",
    "validation": "eval/success",
    "entropy": "policy/entropy",
    "kl": "policy/kl_ref",
    "judge pairs": "judge/fresh_pair_accuracy",
    "cloning loss": "cloning/loss",
}
"""Label -> the metric shown under it, where the run has it."""


class Progress(Protocol):
    """Told after every step; shows it."""

    def advance(self, step: int, metrics: Metrics) -> None: ...
    def close(self) -> None: ...


def progress(total: int, *, start: int = 0, warm: int = 0, console: Console | None = None) -> Progress:
    """A bar where the console (default: standard error, so that standard output stays for results) is a terminal, else plain lines.

    Args:
        total: The run's number of steps.
        start: Steps done before (a resumed run).
        warm: How many of the steps are the warm start, which come first.
    """
    console = console or Console(stderr=True)
    left = Left(total, start, warm)
    return Bar(total, start, console, left) if console.is_terminal else Lines(total, console, left)


class _Headline:
    """The last value seen of each headline metric: an evaluation's number stays until the next one."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def text(self, metrics: Metrics) -> str:
        for label, name in HEADLINE.items():
            value = metrics.get(name, math.nan)
            if not math.isnan(value):
                self._last[label] = value
        return "  ".join(f"{label} {self._last[label]:.3g}" for label in HEADLINE if label in self._last)


class Left:
    """The time left, in words. A step of the warm start takes another time than one of reinforcement learning, so each phase is reckoned
    by itself; while the former lasts nothing is known about the latter.
    """

    def __init__(self, total: int, start: int, warm: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._warm, self._clock = total, min(warm, total), clock
        self._began_at, self._began = start, clock()

    def after(self, step: int) -> str:
        """Told after every step."""
        now = self._clock()
        if self._began_at < self._warm <= step:
            self._began_at, self._began = step, now
        end = self._warm if step < self._warm else self._total
        done = step - self._began_at
        left = 0.0 if step >= end else (now - self._began) / done * (end - step) if done > 0 else math.nan
        return f"left {_duration(left)}{' of the warm start' if end < self._total else ''}"


class Bar:
    """A rich progress bar; redrawn twice a second, so that it costs nothing."""

    def __init__(self, total: int, start: int, console: Console, left: Left) -> None:
        self._headline, self._left = _Headline(), left
        self._rich = RichProgress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[told]}", markup=False),
            console=console,
            refresh_per_second=2,
        )
        self._bar = self._rich.add_task("step", total=total, completed=start, told="")
        self._rich.start()

    def advance(self, step: int, metrics: Metrics) -> None:
        self._rich.update(self._bar, completed=step, told=f"{self._left.after(step)}  {self._headline.text(metrics)}")

    def close(self) -> None:
        self._rich.stop()


class Lines:
    """Plain lines for logs: the first step, the last, and in between at most one in `every_s` seconds."""

    def __init__(
        self, total: int, console: Console, left: Left, *, every_s: float = 5.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._total, self._console, self._every_s, self._clock = total, console, every_s, clock
        self._headline, self._left = _Headline(), left
        self._printed = -math.inf

    def advance(self, step: int, metrics: Metrics) -> None:
        headline, left = self._headline.text(metrics), self._left.after(step)
        now = self._clock()
        if step < self._total and now - self._printed < self._every_s:
            return
        self._printed = now
        self._console.print(f"step {step}/{self._total}  {headline}  {left}", markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Nothing to put away."""


def _duration(seconds: float) -> str:
    """`1:02:03`, `2:03`, or `-` where unknown."""
    if math.isnan(seconds):
        return "-"
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
