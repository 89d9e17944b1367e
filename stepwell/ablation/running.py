"""All runs of an ablation, several at a time, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stepwell.ablation.plan import Job, Plan
from stepwell.ablation.shown import Shown, shown
from stepwell.errors import ConfigError, RunError
from stepwell.files import Lock, disk_errors
from stepwell.tracking import last_step

__all__ = ["cores", "run_all"]

_POLL_S = 0.5


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(plan: Plan, *, jobs: int | None = None, show: bool = False) -> None:
    """Runs what has no result yet; may be killed at any moment and called again.

    Where a run fails the others go on, and the error at the end names those that failed.

    Args:
        plan: What to run.
        jobs: Processes at a time, each on one core; None is one for each core.
        show: Print a bar, or lines, with the time left to standard error.

    Raises:
        ConfigError: `jobs` is below 1.
        RunError: The folder is of another config or in use, or a run failed.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs is {jobs}; give 1 or more processes at a time.")
    with disk_errors(f"The ablation's folder {plan.out} cannot be used"):
        plan.out.mkdir(parents=True, exist_ok=True)
        lock = Lock(plan.out / ".lock")
    try:
        plan.enter()
        left = [job for job in plan.jobs if not job.result.exists()]
        bar = shown(len(plan.jobs), len(plan.jobs) - len(left)) if show else None
        try:
            failed = _Pool(plan, left, jobs or cores(), bar).run()
        finally:
            if bar is not None:
                bar.close()
    finally:
        lock.close()
    if failed:
        job = failed[0]
        more = f" ({len(failed)} runs failed: {', '.join(one.name for one in failed)})" if len(failed) > 1 else ""
        raise RunError(f"The run {job.name} failed{more}: {_last_words(job.log)} All of it is in {job.log}; what is through is kept.")


class _Pool:
    """Processes at work, and what is left."""

    def __init__(self, plan: Plan, left: Sequence[Job], most: int, bar: Shown | None) -> None:
        self._plan, self._left, self._most, self._bar = plan, list(left), most, bar
        self._working: dict[Job, subprocess.Popen[bytes]] = {}
        self._updates = {
            variant.name: sum(one.cloning.steps + one.steps for one in (variant.config, variant.judge) if one is not None)
            for variant in plan.variants
        }
        self._failed: list[Job] = []
        self._through = 0

    def run(self) -> list[Job]:
        """Until nothing is left; the jobs that failed."""
        try:
            while self._left or self._working:
                while self._left and len(self._working) < self._most:
                    job = self._left.pop(0)
                    self._working[job] = _start(job)
                time.sleep(_POLL_S)
                self._collect()
                self._tell()
        finally:
            for process in self._working.values():
                process.kill()
                process.wait()
                _close(process)
        return self._failed

    def _collect(self) -> None:
        for job, process in list(self._working.items()):
            if process.poll() is None:
                continue
            _close(process)
            del self._working[job]
            if process.returncode == 0 and job.result.exists():
                self._through += 1
            else:
                self._failed.append(job)
            if self._bar is not None:
                self._bar.ended(job.name, failed=job in self._failed)

    def _tell(self) -> None:
        if self._bar is not None:
            parts = [self._done(job) for job in self._working]
            self._bar.advance(self._through + len(self._failed), sum(parts))

    def _done(self, job: Job) -> float:
        """Share of the run that is done, by updates."""
        done = 0
        for folder in (job.run, job.teaching):
            with suppress(OSError):
                done += last_step(folder) or 0
        return min(1.0, done / max(1, self._updates[job.variant]))


def _start(job: Job) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "stepwell.ablation.worker", str(job.out), job.variant, str(job.seed)]
    one_core = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    with job.log.open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env={**os.environ, **one_core})


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "it said nothing."
