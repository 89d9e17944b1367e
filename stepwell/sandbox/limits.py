"""How much a candidate may use."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stepwell.errors import ConfigError

__all__ = ["PATIENCE", "Limits"]

PATIENCE = 4.0
"""Seconds by the clock for each second of the processor: for one who sleeps, or whose machine is busy."""

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a candidate may use. No file can be written, no process started, no connection made, whatever the limits.

    Time is counted on the processor, so that a busy machine fails nobody; by the clock, a candidate may take `PATIENCE` times as long.

    Attributes:
        seconds: For one request: running the code once, one call, one program.
        total_s: For all requests to one candidate together.
        memory_mib: Address space of its process, in MiB. The interpreter itself takes about 50.
        answer_mib: Length of one answer, or of one program's output, in MiB.
        open_files: File descriptors.
    """

    seconds: float = 10.0
    total_s: float = 60.0
    memory_mib: int = 1024
    answer_mib: float = 4.0
    open_files: int = 64

    def __post_init__(self) -> None:
        for name, least in (("seconds", 0.0), ("total_s", 0.0), ("memory_mib", 63.0), ("answer_mib", 0.0), ("open_files", 15.0)):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > least):
                raise ConfigError(f"sandbox: {name} is {value}; give a finite number above {least:g}.")

    @property
    def memory_bytes(self) -> int:
        """Address space, in bytes."""
        return self.memory_mib * _MIB

    @property
    def answer_bytes(self) -> int:
        """Length of an answer, in bytes."""
        return int(self.answer_mib * _MIB)
