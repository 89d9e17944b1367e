"""Bubblewrap: a process in name spaces of its own, as a user without rights."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

from stepwell.sandbox.interpreter import ENVIRONMENT, command, readable
from stepwell.sandbox.isolation import Started, started
from stepwell.sandbox.limits import Limits

__all__ = ["Bubblewrap", "wrapper"]


class Bubblewrap:
    """Its own user, process, network, mount, IPC and host-name spaces: `bwrap`.

    The candidate sees the interpreter's files, all read-only, and four device files; no process but its own, no network device, no /proc.
    """

    name = "bwrap"
    walls = (
        "bubblewrap: name spaces of its own (user, processes, network, mounts, IPC), with the interpreter's files alone, read-only; "
        "and a filter of system calls"
    )
    safe = True

    def start(self, limits: Limits) -> Started:
        return started([*wrapper(), *command()], ENVIRONMENT)

    @staticmethod
    def missing() -> str:
        """Why it cannot be used here at all; empty where the program is there."""
        return "" if shutil.which("bwrap") else "there is no program bwrap"


@cache
def wrapper() -> tuple[str, ...]:
    """What stands in front of a command to run it behind the walls."""
    program = shutil.which("bwrap") or "bwrap"
    lines = [program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    lines += ["--uid", "65534", "--gid", "65534", "--hostname", "sandbox"]
    for path in readable():
        # A link such as /lib -> usr/lib is mounted as the folder that it leads to.
        lines += ["--ro-bind", str(Path(path).resolve()), path]
    lines += ["--dev", "/dev", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--"]
    return tuple(lines)
