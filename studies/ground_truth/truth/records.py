"""One JSON for each seed of each cell: what is there is not computed again, and a run that is killed leaves nothing half written."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stepwell.files import write_atomic
from stepwell.types import JSON

__all__ = ["Job", "finish", "read_all"]

Job = tuple[Path, Callable[[], JSON]]
"""Where a result belongs, and what makes it."""


def finish(jobs: Sequence[Job], *, say: Callable[[str], None] = print) -> None:
    """Makes what is missing, in order, and says how long the rest will take. What another living process is at is left to it."""
    left = [job for job in jobs if not job[0].exists()]
    say(f"{len(jobs) - len(left)} of {len(jobs)} results are there")
    start, number = time.monotonic(), 0
    while left:
        here = next((job for job in left if _claim(job[0])), None)
        if here is None:  # All that is left is being made by others.
            time.sleep(1.0)
        else:
            path, make = here
            try:
                write_atomic(path, json.dumps(make(), separators=(",", ":"), sort_keys=True) + "\n")
            finally:
                _claim_of(path).unlink(missing_ok=True)
            number += 1
            left = [job for job in left if not job[0].exists()]
            spent = time.monotonic() - start
            to_go = spent / number * len(left)
            say(f"{path.parent.name}/{path.stem}: {number} made in {spent:.0f} s, {len(left)} left, {to_go:.0f} s to go")
        left = [job for job in left if not job[0].exists()]


def _claim_of(path: Path) -> Path:
    return path.with_suffix(".claim")


def _claim(path: Path) -> bool:
    """Whether this process may make it: nobody else is at it who is still alive."""
    claim = _claim_of(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with claim.open("x", encoding="utf-8") as file:
            file.write(str(os.getpid()))
        return True
    except FileExistsError:
        if not _is_alive(claim):
            claim.unlink(missing_ok=True)
        return False


def _is_alive(claim: Path) -> bool:
    try:
        owner = int(claim.read_text(encoding="utf-8") or 0)
        os.kill(owner, 0)
    except (ProcessLookupError, ValueError, FileNotFoundError):
        return False
    return True


def read_all(folder: Path) -> dict[str, JSON]:
    """All results of a part, by their names."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
