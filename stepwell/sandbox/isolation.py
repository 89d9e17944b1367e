"""The walls around a candidate's process, and which of them this machine has."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Protocol

from stepwell.errors import StepwellError
from stepwell.sandbox.limits import Limits

__all__ = ["HOW_TO_GET", "Isolation", "IsolationName", "SandboxError", "Started", "started"]

IsolationName = Literal["auto", "bwrap", "sandlock", "unsafe"]

HOW_TO_GET = (
    "Get bubblewrap (`apt install bubblewrap`, or your distribution's package) or, on Linux 6.12 and later, sandlock "
    "(`pip install 'stepwell[sandbox]'`)"
)


class SandboxError(StepwellError):
    """The sandbox itself failed, before it ran anything of a candidate's: not the candidate's doing."""


@dataclass(frozen=True, slots=True)
class Started:
    """A running interpreter.

    Attributes:
        requests: Descriptor to write to.
        answers: Descriptor to read from.
        complaints: Descriptor of what it says while it starts.
        pid: Of the process that the interpreter is, or is a child of.
        stop: Kills it and all that it started, waits for the end, closes the descriptors; may be called again.
    """

    requests: int
    answers: int
    complaints: int
    pid: int
    stop: Callable[[], None]


class Isolation(Protocol):
    """A way to start an interpreter behind walls."""

    @property
    def name(self) -> str:
        """As in `IsolationName`."""
        ...

    @property
    def walls(self) -> str:
        """What keeps the candidate in, in words."""
        ...

    @property
    def safe(self) -> bool:
        """Whether it may be used unasked."""
        ...

    def start(self, limits: Limits) -> Started:
        """A new interpreter. Raises `SandboxError` where that fails."""
        ...


def started(command: list[str], environment: Mapping[str, str]) -> Started:
    """A plain child process with three pipes, at the head of its own session and process group."""
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd="/",
            close_fds=True,
            start_new_session=True,
        )
    except OSError as fault:
        raise SandboxError(f"sandbox: {command[0]} could not be started: {fault}.") from fault
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    return Started(child.stdin.fileno(), child.stdout.fileno(), child.stderr.fileno(), child.pid, lambda: _stop(child))


def _stop(child: subprocess.Popen[bytes]) -> None:
    if child.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
