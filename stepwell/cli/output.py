"""How commands speak: results on standard output, all else on standard error, errors in one sentence."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer
from rich.console import Console

from stepwell.errors import ConfigError, StepwellError
from stepwell.files import to_json
from stepwell.types import JSON

__all__ = ["INTERRUPTED", "REFUSED", "note", "out", "print_json", "told"]

REFUSED = 2
"""Exit code of an error that Stepwell raises on purpose."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""

P = ParamSpec("P")


def told(command: Callable[P, None]) -> Callable[P, None]:
    """A command whose errors are sentences on standard error; errors that nobody foresaw keep their traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            _check_alone(command.__name__)
            command(*args, **kwargs)
        except StepwellError as error:
            for line in str(error).splitlines():
                print(f"error: {line}", file=sys.stderr)
            raise typer.Exit(REFUSED) from None
        except KeyboardInterrupt:
            note("Interrupted.")
            raise typer.Exit(INTERRUPTED) from None

    return run


def _check_alone(command: str) -> None:
    """Several processes that play, or write a file, would each do all of it."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size != "1" and command != "train":
        raise ConfigError(
            f"torchrun starts {size} processes of `stepwell {command}`, and only `stepwell train` computes on several; start it "
            "without torchrun."
        )


def out() -> Console:
    """Standard output for tables and colours."""
    return Console(highlight=False)


def note(text: str) -> None:
    """A sentence beside the result."""
    print(text, file=sys.stderr)


def print_json(value: JSON) -> None:
    """The one thing on standard output where `--json` is given."""
    print(to_json(value, "the output"))
