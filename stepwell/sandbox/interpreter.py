"""The interpreter that candidates run in, and what of this machine it needs to read."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

__all__ = ["ENVIRONMENT", "PACKAGES", "command", "packages", "readable"]

PACKAGES = ("sortedcontainers", "numpy")
"""What candidates may import beside the standard library, where it is installed here: what judges of programming contests offer."""

ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/nowhere",
    "HOME": "/nowhere",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
"""All that a candidate's environment holds. `-I` would ignore PYTHONHASHSEED; see `command`."""

_INSIDE = Path(__file__).parent / "inside"
_LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/nix/store")
_START = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("inside", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]])
sys.modules["inside"] = module_from_spec(spec)
sys.argv[:] = [""]
from inside.runner import main
main()
"""


def command() -> list[str]:
    """What starts the interpreter: without site-packages (`-S`), the user's or this folder's modules (`-s -P`), or the assertions' removal.

    Not `-I`, which would ignore PYTHONHASHSEED; of the other variables that Python reads, none is set.
    """
    return [_executable(), "-s", "-S", "-P", "-B", "-c", _START, str(_INSIDE.resolve())]


@cache
def _executable() -> str:
    """The real interpreter, not a virtual environment's link to it: what a virtual environment has installed is not for candidates."""
    return str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())


@cache
def packages() -> dict[str, str]:
    """Name -> folder of the packages that candidates may import."""
    found = {name: importlib.util.find_spec(name) for name in PACKAGES}
    folders = {name: list(spec.submodule_search_locations or ()) for name, spec in found.items() if spec is not None}
    return {name: str(Path(places[0]).resolve()) for name, places in folders.items() if places}


@cache
def readable() -> Sequence[str]:
    """The files and folders that the interpreter needs, existing ones alone."""
    base = Path(sys.base_prefix).resolve()
    libraries = [f"{folder}.libs" for folder in packages().values()]  # where wheels keep shared libraries of their own
    wanted = [*_LIBRARIES, str(base / "lib"), _executable(), str(_INSIDE.resolve()), *packages().values(), *libraries]
    return tuple(path for path in dict.fromkeys(wanted) if os.path.exists(path))  # noqa: PTH110 - links are followed
