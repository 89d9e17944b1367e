"""One JSON for each seed of each cell: what is there is not computed again, and a run that is killed leaves nothing half written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stepwell.files import write_atomic
from stepwell.types import JSON

__all__ = ["Job", "finish", "read_all"]

Job = tuple[Path, Callable[[], JSON]]
"""Where a result belongs, and what makes it."""


def finish(jobs: Sequence[Job], *, say: Callable[[str], None] = print) -> None:
    """Makes what is missing, in order, and says how long the rest will take."""
    left = [job for job in jobs if not job[0].exists()]
    say(f"{len(jobs) - len(left)} of {len(jobs)} results are there")
    start = time.monotonic()
    for number, (path, make) in enumerate(left, 1):
        if path.exists():  # Another process of the study was here meanwhile.
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        made = make()
        write_atomic(path, json.dumps(made, separators=(",", ":"), sort_keys=True) + "\n")
        spent = time.monotonic() - start
        say(f"{number}/{len(left)} {path.parent.name}/{path.stem}: {spent:.0f} s, {spent / number * (len(left) - number):.0f} s to go")


def read_all(folder: Path) -> dict[str, JSON]:
    """All results of a part, by their names."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
