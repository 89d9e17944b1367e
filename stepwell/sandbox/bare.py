"""No isolation: for code that is trusted anyway, by an explicit wish alone."""

from __future__ import annotations

from stepwell.sandbox.interpreter import ENVIRONMENT, command
from stepwell.sandbox.isolation import Started, started
from stepwell.sandbox.limits import Limits

__all__ = ["Bare"]


class Bare:
    """A plain child process with limits and, where the kernel has it, the filter of system calls. It can read all of your files."""

    name = "unsafe"
    walls = "none but limits and a filter of system calls: the candidate reads what you can read, this process's memory among it"
    safe = False

    def start(self, limits: Limits) -> Started:
        return started(command(), ENVIRONMENT)
