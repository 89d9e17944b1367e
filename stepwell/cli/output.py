"""How commands speak: results on standard output, all else on standard error, errors in one sentence."""

from __future__ import annotations

import functools
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import ParamSpec

import typer
from rich.console import Console

from stepwell.checkpoint import saved_steps
from stepwell.errors import ConfigError, StepwellError
from stepwell.files import to_json
from stepwell.types import JSON

__all__ = ["INTERRUPTED", "REFUSED", "TERMINATED", "kept_in", "note", "out", "print_json", "resumable", "told"]

REFUSED = 2
"""Exit code of an error that Stepwell raises on purpose."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""
TERMINATED = 143
"""Exit code after SIGTERM, with which schedulers and `kill` end a process."""

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


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which is to end a command as Ctrl-C does."""


@contextmanager
def resumable(again: Sequence[str], kept: Callable[[], str]) -> Iterator[None]:
    """Where Ctrl-C or SIGTERM ends it, one line says what is kept, and with which command it goes on.

    Args:
        again: The command, in words.
        kept: What is kept, asked at the end.
    """
    mine = threading.current_thread() is threading.main_thread()  # elsewhere Python takes no signals
    before = signal.signal(signal.SIGTERM, _terminate) if mine else None
    try:
        yield
    except KeyboardInterrupt as error:
        how, code = ("Terminated", TERMINATED) if isinstance(error, _Terminated) else ("Interrupted", INTERRUPTED)
        note(f"{how}; {kept()}. Go on with: {shlex.join(again)}")
        raise typer.Exit(code) from None
    finally:
        if mine:
            signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated


def kept_in(run: Path) -> str:
    """What a run's folder keeps, as a clause."""
    steps = saved_steps(run / "checkpoints")
    return f"{run} keeps everything up to step {steps[-1]}" if steps else f"{run} has no checkpoint yet, so the run would begin again"


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
