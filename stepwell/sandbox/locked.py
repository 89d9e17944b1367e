"""Sandlock: Landlock and seccomp from a Python package, for machines without bubblewrap or name spaces for users."""

from __future__ import annotations

import importlib.util
from contextlib import suppress
from typing import TYPE_CHECKING

from stepwell.sandbox.interpreter import ENVIRONMENT, command, readable
from stepwell.sandbox.isolation import SandboxError, Started
from stepwell.sandbox.limits import Limits

if TYPE_CHECKING:
    import sandlock

__all__ = ["Sandlock"]


class Sandlock:
    """Sandlock (the extra `sandbox`): files by Landlock, all else by a supervisor of system calls."""

    name = "sandlock"
    walls = (
        "sandlock: the interpreter's files alone, read-only, no network, no signals to others (Landlock, seccomp); "
        "and a filter of system calls"
    )
    safe = True

    def start(self, limits: Limits) -> Started:
        import sandlock

        piped = sandlock.StdioMode.PIPED
        try:
            policy = sandlock.Sandbox(
                fs_readable=list(readable()),
                fs_writable=["/dev/null"],
                clean_env=True,
                env=dict(ENVIRONMENT),
                max_processes=4,
                no_coredump=True,
                cwd="/",
            )
            child = policy.popen(command(), stdin=piped, stdout=piped, stderr=piped)
        except (OSError, RuntimeError, ValueError, sandlock.SandlockError) as fault:
            raise SandboxError(f"sandbox: sandlock could not start an interpreter: {fault}.") from fault
        return Started(child.stdin.fileno(), child.stdout.fileno(), child.stderr.fileno(), child.pid, lambda: _stop(child, policy))

    @staticmethod
    def missing() -> str:
        """Why it cannot be used here at all; empty where the package is there and the kernel is new enough for it."""
        if importlib.util.find_spec("sandlock") is None:
            return "the package sandlock is not installed"
        import sandlock

        has, needs = sandlock.landlock_abi_version(), sandlock.min_landlock_abi()
        return "" if has >= needs else f"sandlock needs Landlock ABI {needs}, and the kernel offers {max(has, 0)}"


def _stop(child: sandlock.Process, policy: sandlock.Sandbox) -> None:
    if child.pid is not None:
        with suppress(OSError, RuntimeError):
            child.kill()
        with suppress(OSError, RuntimeError):
            child.wait(timeout=5)
    for pipe in (child.stdin, child.stdout, child.stderr):
        with suppress(OSError):
            pipe.close()
