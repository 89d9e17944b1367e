"""Worker processes that can be killed: a request that hangs costs its own limit, and nothing else.

A worker is a program that reads a line of JSON and writes one (`stepwell.grading.worker`). It is a fresh interpreter, not a fork or a spawn
of ours: it never runs the user's `__main__` again, so a script needs no `if __name__ == "__main__"`, and threads, signal handlers and a GPU
of ours are not in it. Workers start when they are first needed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from stepwell.errors import StepwellError
from stepwell.types import JSON

__all__ = ["Lost", "Workers"]

_START_S = 120.0
_PATIENCE = 10
"""A worker stops by itself at its limit of processor time. By the clock it may take this many times as long, on a busy machine."""

Lost = Literal["timeout", "died"]
"""Why there is no reply."""


class Workers:
    """A number of workers of one kind, for any number of threads.

    Args:
        module: What a worker runs, as `python -m` names it.
        count: How many at most.
    """

    def __init__(self, module: str, count: int) -> None:
        self._module, self._count = module, count
        self._idle: list[_Worker] = []
        self._reset()
        _living.add(self)
        weakref.finalize(self, _end, self._idle)

    def _reset(self) -> None:
        self._free = threading.Semaphore(self._count)
        self._lock = threading.Lock()
        self._closed = False

    def ask(self, request: Mapping[str, JSON], limit_s: float) -> tuple[Mapping[str, JSON] | Lost, float]:
        """The reply to a request, or why there is none; and the seconds that it took, without waiting for a worker.

        `limit_s` is what the request says itself: seconds of processor time after which the worker gives up.

        Raises:
            StepwellError: A worker could not start; or the workers are closed.
        """
        with self._borrowed() as worker:
            start = time.perf_counter()
            reply = worker.ask(request, _PATIENCE * limit_s + 1)
            return reply, time.perf_counter() - start

    @contextmanager
    def _borrowed(self) -> Iterator[_Worker]:
        with self._free:
            with self._lock:
                if self._closed:
                    raise StepwellError("The grader is closed; open another one.")
                worker = self._idle.pop() if self._idle else None
            if worker is None:
                worker = _Worker(self._module)
            try:
                yield worker
            except BaseException:  # in the middle of an exchange: what it says next belongs to nobody
                worker.close()
                raise
            with self._lock:
                if worker.alive and not self._closed:
                    self._idle.append(worker)
                    return
            worker.close()

    def close(self) -> None:
        """Ends all workers; closing twice is fine."""
        with self._lock:
            self._closed = True
            idle = self._idle[:]
            self._idle.clear()
        _end(idle)

    def start_anew(self) -> None:
        """In a forked child: forgets the workers, which are the parent's. Two processes that write to one pipe get each other's replies."""
        for worker in self._idle:
            worker.hang_up()
        _foreign.extend(self._idle)
        self._idle.clear()
        self._reset()


class _Worker:
    """One process."""

    def __init__(self, module: str) -> None:
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for us
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout
        self._pending, self._ended = b"", False
        self.alive = True
        if not self._await_ready(_START_S):
            why = self._last_words()
            self.close()
            raise StepwellError(f"A worker of {module} did not start: {why}")

    def ask(self, request: Mapping[str, JSON], within_s: float) -> Mapping[str, JSON] | Lost:
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
        except OSError:
            self.close()
            return "died"
        reply = self._line(time.monotonic() + within_s)
        if reply is None:
            if not self._ended and self._process.poll() is None:
                self._process.send_signal(signal.SIGUSR1)
                if not self._await_ready(_START_S):
                    self.close()
                return "timeout"
            self.close()
            return "died"
        if reply.get("ready") and reply.get("late"):  # killed at its limit of processor time
            return {"late": True}
        if "ready" in reply:  # the process that had the request is gone, and who reads it now is not known
            self.close()
            return "died"
        return reply

    def _await_ready(self, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while (reply := self._line(deadline)) is not None:
            if "ready" in reply:
                return True
        return False

    def _line(self, deadline: float) -> Mapping[str, JSON] | None:
        """The next reply; None at the deadline, or when there will be none."""
        while True:
            line, end, rest = self._pending.partition(b"\n")
            if end:
                self._pending = rest
                with suppress(ValueError):
                    reply = json.loads(line)
                    if isinstance(reply, dict):
                        return reply
                continue
            ready, _, _ = select.select([self._replies], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            data = os.read(self._replies.fileno(), 1 << 16)
            if not data:
                self._ended = True
                return None
            self._pending += data

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()[-300:] or f"exit code {self._process.poll()}"

    def close(self) -> None:
        self.alive = False
        self.hang_up()
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def hang_up(self) -> None:
        for stream in (self._requests, self._replies, self._errors):
            with suppress(OSError):
                stream.close()


def _end(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.close()


_living: weakref.WeakSet[Workers] = weakref.WeakSet()
_foreign: list[_Worker] = []
"""Workers of the process that we were forked from, kept so that nothing waits for them."""


def _start_anew() -> None:
    for workers in list(_living):
        workers.start_anew()


os.register_at_fork(after_in_child=_start_anew)
