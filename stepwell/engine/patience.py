"""How long a call to a server may take, what is tried again, and when the server is taken for gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from stepwell.errors import ServerError

__all__ = ["Patience", "Watch"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, and how often to ask.

    Attributes:
        timeout_s: Seconds that one answer may take.
        gone_s: Seconds after which a server that cannot be reached is taken for gone.
        tries: How often what changes nothing (sampling, log-probs) is asked before a passing fault is taken for a lasting one.
        pause_s: Seconds before the second try; each further pause is twice as long.
        look_s: Seconds between looks at whether a server that is still to answer is there.
    """

    timeout_s: float = 1800.0
    gone_s: float = 120.0
    tries: int = 4
    pause_s: float = 1.0
    look_s: float = 5.0


class Watch:
    """Waits for answers.

    Args:
        patience: How long.
        alive: Whether the server can be reached.
        passing: Whether an error is one that passes: a lost connection, a time-out, a server that is busy.
        where: The server, for errors.
    """

    def __init__(self, patience: Patience, alive: Callable[[], bool], passing: Callable[[BaseException], bool], where: str) -> None:
        self.patience, self._alive, self._passing, self._where = patience, alive, passing, where

    def once(self, what: str, ask: Callable[[], T], *, after: str) -> T:
        """The answer to a call that changes something. It is not sent again from here: `after` says what a failure means.

        Raises:
            ServerError: No answer, or a refusal.
        """
        try:
            return self._answer(what, ask)
        except ServerError as error:
            raise ServerError(f"{error} {after}") from error.__cause__
        except Exception as error:
            raise ServerError(f"{self._where} failed to {what}: {_line(error)} {after}") from error

    def safely(self, what: str, ask: Callable[[], T]) -> T:
        """The answer to a call that changes nothing; asked again after a fault that passes.

        Raises:
            ServerError: No answer, or a refusal.
        """
        for attempt in range(self.patience.tries):
            try:
                return self._answer(what, ask)
            except ServerError:
                raise
            except Exception as error:
                if not self._passing(error) or attempt == self.patience.tries - 1:
                    raise ServerError(f"{self._where} failed to {what}: {_line(error)} {_RESUME}") from error
                time.sleep(self.patience.pause_s * 2**attempt)
        raise AssertionError("the last try returns or raises")

    def _answer(self, what: str, ask: Callable[[], T]) -> T:
        future: Future[T] = Future()
        threading.Thread(target=_settle, args=(future, ask), daemon=True).start()
        start = time.monotonic()
        lost: float | None = None
        while True:
            left = self.patience.timeout_s - (time.monotonic() - start)
            try:
                return future.result(timeout=max(min(self.patience.look_s, left), 0.0))
            except TimeoutError:
                if future.done():
                    return future.result()  # its own TimeoutError, or an answer of this moment
            now = time.monotonic()
            if now - start >= self.patience.timeout_s:
                raise ServerError(f"{self._where} did not {what} within {self.patience.timeout_s:g} s (engine.timeout_s). {_RESUME}")
            lost = None if self._alive() else lost or now
            if lost is not None and now - lost >= self.patience.gone_s:
                raise ServerError(
                    f"{self._where} is gone: it was to {what} and cannot be reached for {self.patience.gone_s:g} s "
                    f"(engine.gone_s). {_RESUME}"
                )


_RESUME = "Start the server again and go on from the last checkpoint with --resume."


def _settle(future: Future[T], ask: Callable[[], T]) -> None:
    try:
        future.set_result(ask())
    except BaseException as error:
        future.set_exception(error)


def _line(error: BaseException) -> str:
    """The first line of what was said."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line if line.endswith(".") else f"{line}."
