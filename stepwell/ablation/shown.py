"""What is shown while an ablation runs: a bar with the time left on a terminal, a line for each run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["Bar", "Lines", "Shown", "shown", "time_left"]


class Shown(Protocol):
    """Told how far the runs are."""

    def advance(self, through: int, going: float) -> None: ...
    def ended(self, name: str, *, failed: bool) -> None: ...
    def close(self) -> None: ...


def shown(total: int, before: int, console: Console | None = None) -> Shown:
    """For `total` runs of which `before` were there already; on standard error unless a console is given."""
    console = console or Console(stderr=True)
    return Bar(total, before, console) if console.is_terminal else Lines(total, before, console)


def time_left(spent_s: float, done: float, left: float) -> str:
    """`12:30`, from the runs done since the start (parts of runs count) and those left; `-` where nothing is done.

    >>> time_left(60.0, 2.0, 5.0), time_left(10.0, 0.0, 5.0)
    ('2:30', '-')
    """
    if done <= 0:
        return "-"
    minutes, seconds = divmod(round(spent_s / done * left), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class Bar:
    """On a terminal."""

    def __init__(self, total: int, before: int, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._before, self._clock, self._began = total, before, clock, clock()
        self._rich = Progress(
            TextColumn("{task.fields[told]}", markup=False),
            BarColumn(bar_width=32),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=2,
        )
        self._bar = self._rich.add_task("", total=float(total), completed=before, told=f"runs {before}/{total}")
        self._rich.start()

    def advance(self, through: int, going: float) -> None:
        done = through + going
        left = time_left(self._clock() - self._began, done, self._total - self._before - done)
        told = f"runs {self._before + through}/{self._total}, left {left}"
        self._rich.update(self._bar, completed=self._before + done, told=told)

    def ended(self, name: str, *, failed: bool) -> None:
        if failed:
            self._rich.console.print(f"{name} failed", markup=False, highlight=False)

    def close(self) -> None:
        self._rich.stop()


class Lines:
    """Elsewhere."""

    def __init__(self, total: int, before: int, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._before, self._console, self._clock, self._began = total, before, console, clock, clock()
        self._ended = 0
        if before:
            self._print(f"{before} of {total} runs are there already")

    def advance(self, through: int, going: float) -> None:
        """Nothing: a line is printed where a run ends."""

    def ended(self, name: str, *, failed: bool) -> None:
        self._ended += 1
        at = self._before + self._ended
        left = time_left(self._clock() - self._began, self._ended, self._total - at)
        self._print(f"{name} {'failed' if failed else 'is through'}: {at} of {self._total} runs, left {left}")

    def close(self) -> None:
        """Nothing to put away."""

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
