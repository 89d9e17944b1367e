"""Programs of others, run where they can do no harm and learn nothing: see `docs/concepts/sandbox.md`."""

from stepwell.sandbox.choice import available, choose
from stepwell.sandbox.isolation import Isolation, IsolationName, SandboxError
from stepwell.sandbox.limits import Limits
from stepwell.sandbox.session import Session, Stopped, StoppedError

__all__ = ["Isolation", "IsolationName", "Limits", "SandboxError", "Session", "Stopped", "StoppedError", "available", "choose"]
