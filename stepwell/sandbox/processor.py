"""How long a process and its descendants have computed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["processor_s"]

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_s(pid: int) -> float | None:
    """Seconds of processor time of a process, its descendants, and those that they have waited for; None where it cannot be known."""
    total, known = 0, False
    for folder in _tree(Path("/proc", str(pid))):
        try:
            # Behind the name in brackets, which may hold anything: user, system, and both of the children that are gone.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
            known = True
        except (OSError, ValueError, IndexError):
            continue
    return total / _TICKS if known else None


def _tree(root: Path) -> Iterator[Path]:
    waiting = [root]
    for folder in waiting:
        yield folder
        try:
            children = [child for thread in (folder / "task").iterdir() for child in (thread / "children").read_text().split()]
        except OSError:
            continue
        waiting += [Path("/proc", child) for child in children]
