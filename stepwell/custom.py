"""Classes of the user's own: `kind: package.module:Name`, called with `options`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from stepwell.config import CustomConfig
from stepwell.errors import ConfigError

__all__ = ["custom"]


def custom(config: CustomConfig, section: str, verbs: Sequence[str]) -> object:
    """The user's part, which must have the methods `verbs`. What its own code raises keeps its traceback."""
    module, _, name = config.kind.partition(":")
    try:
        maker = vars(importlib.import_module(module))[name]
    except ImportError as error:
        raise ConfigError(f"{section}.kind is {config.kind!r}; the module {module} cannot be imported: {error}.") from error
    except KeyError:
        raise ConfigError(f"{section}.kind is {config.kind!r}; the module {module} has no {name}.") from None
    try:
        made = maker(**config.options)
    except TypeError as error:
        raise ConfigError(f"{section}.options do not fit {config.kind}: {error}.") from error
    missing = [verb for verb in verbs if not callable(getattr(made, verb, None))]
    if missing:
        without = f"a {type(made).__name__} without {', '.join(missing)}"
        raise ConfigError(f"{section}.kind is {config.kind!r}, {without}; see stepwell.protocols.")
    return made
