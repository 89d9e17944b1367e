"""Which isolation this machine offers: found out by starting it once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from stepwell.errors import ConfigError, nearest
from stepwell.sandbox.bare import Bare
from stepwell.sandbox.bwrap import Bubblewrap
from stepwell.sandbox.isolation import HOW_TO_GET, Isolation, IsolationName, SandboxError
from stepwell.sandbox.limits import Limits
from stepwell.sandbox.locked import Sandlock
from stepwell.sandbox.session import Session, StoppedError

__all__ = ["available", "choose"]

_SAFE: Mapping[str, type[Bubblewrap] | type[Sandlock]] = {"bwrap": Bubblewrap, "sandlock": Sandlock}
"""In the order of preference."""


def choose(wanted: IsolationName = "auto") -> Isolation:
    """The isolation of that name; `auto` is the first safe one that works here: bubblewrap, then sandlock.

    Raises:
        ConfigError: It does not work here, or no safe one does; the sentence says why and how to get one.
    """
    if wanted == "unsafe":
        return Bare()
    if wanted not in ("auto", *_SAFE):
        raise ConfigError(f"sandbox: isolation is {wanted!r}; {nearest(wanted, ('auto', *_SAFE, 'unsafe'))}.")
    if wanted != "auto":
        if why := available()[wanted]:
            raise ConfigError(f"sandbox: isolation is {wanted!r}, which does not work here: {why}. {HOW_TO_GET}.")
        return _SAFE[wanted]()
    for name, why in available().items():
        if not why:
            return _SAFE[name]()
    reasons = "; ".join(f"{name}: {why}" for name, why in available().items())
    raise ConfigError(
        f"sandbox: there is no isolation here in which to run the programs of others ({reasons}). {HOW_TO_GET}. "
        "For programs that you would run anyway, isolation 'unsafe' (--isolation unsafe) does without."
    )


@cache
def available() -> dict[str, str]:
    """Name -> why it does not work here, empty where it does. Each is tried once in the life of a process."""
    return {name: kind.missing() or _fails(kind()) for name, kind in _SAFE.items()}


def _fails(isolation: Isolation) -> str:
    """Why an interpreter in this isolation does not answer 1 + 1."""
    try:
        with Session(isolation, Limits()) as session:
            answer = session.ask({"do": "value", "source": "1 + 1"})
    except (SandboxError, StoppedError) as fault:
        return str(fault).removeprefix("sandbox: ").rstrip(".")
    return "" if answer == ("value", 2) else f"its interpreter says that 1 + 1 is {answer!r}"
