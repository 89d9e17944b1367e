"""The errors of Stepwell, as a tree.

```
StepwellError
├── ConfigError (ValueError)      a setting that cannot work; raised before any token is sampled
│   ├── CapabilityError           an engine cannot carry what was asked of it
│   └── MissingExtraError         an optional dependency is not installed; names the pip line
├── DataError (ValueError)        a file that cannot be read as what it should be; names file and line
├── RecordError (ValueError)      numbers that make no record: lengths that do not line up, values that are not finite
├── CreditError (ValueError)      step rewards that a credit rule cannot turn into advantages
├── StaleWeightsError             a policy was used after its model had moved on
├── EnvironmentFault              infrastructure failed inside an episode: the episode is `failed`, the run goes on
├── RunError                      a run folder that cannot be used: locked, of another config, damaged, disk full
│   └── ServerError               a server that trains for us refused, or is gone; the run can be resumed
└── ContractViolation (AssertionError)  a part breaks a promise that others build on
```

Every message is a sentence that says what was wrong, what was got, what is allowed and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "CapabilityError",
    "ConfigError",
    "ContractViolation",
    "CreditError",
    "DataError",
    "EnvironmentFault",
    "MissingExtraError",
    "RecordError",
    "RunError",
    "ServerError",
    "StaleWeightsError",
    "StepwellError",
    "nearest",
    "sentence",
]


class StepwellError(Exception):
    """Root of all errors that Stepwell raises on purpose."""


class ConfigError(StepwellError, ValueError):
    """A setting that cannot work."""


class CapabilityError(ConfigError):
    """An engine cannot carry what was asked of it."""


class MissingExtraError(ConfigError):
    """An optional dependency is missing.

    Args:
        package: What could not be imported.
        extra: The extra of Stepwell that brings it.
        command: What to type where the extra would bring more than is good.
    """

    def __init__(self, package: str, extra: str, *, command: str = "") -> None:
        install = command or f"pip install 'stepwell[{extra}]'"
        super().__init__(f"{package} is not installed; install it with: {install}")


class DataError(StepwellError, ValueError):
    """A file that cannot be read as what it should be."""


class RecordError(StepwellError, ValueError):
    """Numbers that make no task, turn, episode, score or row."""


class CreditError(StepwellError, ValueError):
    """Step rewards that a credit rule cannot turn into advantages."""


class StaleWeightsError(StepwellError):
    """A policy was used after its model had moved on."""


class EnvironmentFault(StepwellError):  # noqa: N818 - a fault of the world, not of a call
    """Infrastructure failed inside an episode (not the policy's doing)."""


class RunError(StepwellError):
    """A run folder that cannot be used."""


class ServerError(RunError):
    """A server that trains for us refused, or is gone. The run can be resumed from its last checkpoint."""


class ContractViolation(StepwellError, AssertionError):  # noqa: N818
    """A part breaks a promise that others build on. An `AssertionError` too, so that test runners show it as a failure."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The clause of an error that lists what is allowed, with the nearest name first.

    >>> nearest("grop", ["grpo", "rloo"])
    "did you mean 'grpo'? Known: grpo, rloo"
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known: {', '.join(names)}"


def sentence(text: str) -> str:
    """The text with a capital letter at its beginning, where who is spoken of begins it.

    >>> sentence("the judge of runs/a says nothing.")
    'The judge of runs/a says nothing.'
    """
    return text[:1].upper() + text[1:]
