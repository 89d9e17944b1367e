"""One candidate in one interpreter: requests go in, answers come out, within limits."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Mapping
from enum import StrEnum
from types import TracebackType
from typing import Literal, Self

from stepwell.sandbox.answers import Tagged, UnreadableError, read
from stepwell.sandbox.interpreter import packages
from stepwell.sandbox.isolation import Isolation, SandboxError, Started
from stepwell.sandbox.limits import PATIENCE, Limits
from stepwell.sandbox.processor import processor_s
from stepwell.types import JSON

__all__ = ["Session", "Stopped", "StoppedError"]

Role = Literal["calls", "programs", "examiner"]
_START_S = 30.0
_CHUNK = 65536
_AT_ONCE_S = 0.1
_GLANCE_S = 0.02
"""The shortest time between two looks at the processor's clock."""


class Stopped(StrEnum):
    """How a candidate ended its interpreter.

    TIMEOUT: It took longer than its limit.
    DIED: Its process ended: it exited, was killed for its memory or processor time, or crashed.
    FLOOD: It said more than it may.
    UNREADABLE: What it said is no answer.
    """

    TIMEOUT = "timeout"
    DIED = "died"
    FLOOD = "flood"
    UNREADABLE = "unreadable"


class StoppedError(Exception):
    """The candidate's interpreter has ended, through the candidate's doing; no more can be asked of it."""

    def __init__(self, how: Stopped, why: str) -> None:
        super().__init__(why)
        self.how = how


class _Clock:
    """What the requests to one process take. Of those that are over at once the processor's clock is not read, which would take longer."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._read, self._unread_s = processor_s(pid), 0.0
        self.start()

    def start(self) -> None:
        """A request begins."""
        self.began = time.monotonic()

    def left_s(self, limit_s: float) -> float:
        """Of the limit of this request; raises `StoppedError` where nothing is left."""
        if (left := limit_s - self._used_s(processor_s(self._pid))) <= 0:
            raise StoppedError(Stopped.TIMEOUT, f"no answer within {limit_s:.3g} s")
        return max(left, _GLANCE_S)

    def stop(self) -> float:
        """A request is over; the seconds that it took."""
        passed = time.monotonic() - self.began
        if passed < _AT_ONCE_S:
            self._unread_s += passed
            return passed
        now = processor_s(self._pid)
        used = self._used_s(now)
        self._read, self._unread_s = now, 0.0
        return used

    def _used_s(self, now: float | None) -> float:
        """Seconds of the processor; by the clock where the processor's cannot be known, and a share of that at least."""
        passed = time.monotonic() - self.began
        if now is None or self._read is None:
            return passed
        return max(now - self._read - self._unread_s, passed / PATIENCE)


class Session:
    """An interpreter behind walls, for one candidate; a context manager, which ends with the death of everything inside.

    To be used from one thread: the one that made it (bubblewrap ends a process with the thread that started it).

    Raises:
        SandboxError: The interpreter could not be started, or not with the walls that it should have.
    """

    def __init__(self, isolation: Isolation, limits: Limits, role: Role = "calls") -> None:
        self._limits, self._isolation = limits, isolation
        self._buffer = bytearray()
        self._process: Started = isolation.start(limits)
        self._clock = _Clock(self._process.pid)
        for descriptor in (self._process.requests, self._process.answers, self._process.complaints):
            os.set_blocking(descriptor, False)
        try:
            self._open(role)
        except BaseException:
            self.close()
            raise
        self._left_s = limits.total_s

    def _open(self, role: Role) -> None:
        opening: dict[str, JSON] = {
            "role": role,
            "packages": dict(packages()),
            "memory_bytes": self._limits.memory_bytes,
            "cpu_s": int(self._limits.total_s) + 2,
            "open_files": self._limits.open_files,
            "need_filter": self._isolation.safe,
        }
        try:
            line = self._exchange(opening, _START_S)
        except StoppedError as stopped:
            said = self._complaints() or str(stopped)
            raise SandboxError(f"sandbox: no interpreter could be started in {self._isolation.name}: {said}.") from None
        answer = json.loads(line)  # of our own code: nothing of the candidate's has been sent yet
        if "ready" not in answer:
            raise SandboxError(f"sandbox: the walls in {self._isolation.name} could not be built: {answer.get('failed')}.")

    def ask(self, request: Mapping[str, JSON]) -> Tagged:
        """What the candidate answers.

        Raises:
            StoppedError: It did not, within the limits.
        """
        self._clock.start()
        try:
            return read(self._exchange(request, min(self._limits.seconds, self._left_s)))
        except UnreadableError as error:
            raise StoppedError(Stopped.UNREADABLE, str(error)) from None
        finally:
            self._left_s = max(0.0, self._left_s - self._clock.stop())

    def _exchange(self, request: Mapping[str, JSON], limit_s: float) -> bytes:
        """Sends a line and waits for one. Neither can block for longer than the limit, whatever the other side does."""
        deadline = self._clock.began + limit_s
        rest = memoryview(json.dumps(request).encode() + b"\n")
        poll = select.poll()
        poll.register(self._process.answers, select.POLLIN)
        poll.register(self._process.requests, select.POLLOUT)
        searched = 0
        while True:
            end = self._buffer.find(b"\n", searched)
            if not rest and end >= 0:
                break
            searched = len(self._buffer) if end < 0 else end
            if len(self._buffer) > self._limits.answer_bytes + _CHUNK:
                raise StoppedError(Stopped.FLOOD, f"an answer above {self._limits.answer_mib:g} MiB")
            if (wait := deadline - time.monotonic()) <= 0:
                wait = self._clock.left_s(limit_s)
                deadline = time.monotonic() + wait
            for descriptor, _ in poll.poll(max(1.0, wait * 1000)):
                if descriptor == self._process.answers:
                    self._receive()
                    continue
                rest = self._send(rest)
                if not rest:
                    poll.unregister(self._process.requests)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _send(self, rest: memoryview) -> memoryview:
        try:
            return rest[os.write(self._process.requests, rest[:_CHUNK]) :]
        except BlockingIOError:
            return rest
        except BrokenPipeError:
            raise StoppedError(Stopped.DIED, "its process ended") from None

    def _receive(self) -> None:
        try:
            data = os.read(self._process.answers, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            raise StoppedError(Stopped.DIED, "its process ended")
        self._buffer += data

    def _complaints(self) -> str:
        """The last line that the starting interpreter said."""
        try:
            said = os.read(self._process.complaints, _CHUNK).decode("utf-8", "replace").strip()
        except OSError:
            return ""
        return said.splitlines()[-1].rstrip(".") if said else ""

    def close(self) -> None:
        """Ends everything inside."""
        self._process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
