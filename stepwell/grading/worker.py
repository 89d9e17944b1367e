"""The process that compares formulas: `python -m stepwell.grading.worker`. It reads requests and writes replies, a line of JSON each.

It imports everything, then forks the one that works. A worker that hangs is killed (the parent sends SIGUSR1 to this process), and the next
is there in milliseconds, without importing anything again. So is one that died by itself.

Request: {"gold": [written, tidied], "answer": [written, tidied], "limit": seconds}. Reply: {"outcome": text}, {"late": true} or
{"error": text}. A new worker begins with {"ready": true}.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import IO

from stepwell.grading.compare import Answer, compare, warm

_MEMORY = 4 << 30
"""Bytes of address space that a worker may take: a formula can ask for all of it."""


class _LateError(BaseException):
    """The limit is over. No `Exception`, so that nobody's `except Exception` keeps it."""


def _ring(number: int, frame: object) -> None:
    raise _LateError


def main() -> None:
    """Forks a worker, and again whenever it was killed; ends when a worker ended, because there are no more requests."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints is no reply
    warm()
    child = 0

    def kill_child(number: int, frame: object) -> None:
        os.kill(child, signal.SIGKILL)

    while True:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            with suppress(OSError):  # nobody reads our replies any more
                _serve(replies)
            os._exit(0)
        signal.signal(signal.SIGUSR1, kill_child)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            return


def _serve(replies: IO[str]) -> None:
    signal.signal(signal.SIGALRM, _ring)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.RLIM_INFINITY))
    _reply(replies, {"ready": True})
    requests = os.fdopen(0, "rb", buffering=0)
    while line := requests.readline():
        request = json.loads(line)
        # Should the parent die while a formula hangs, the kernel ends this process: nobody else would.
        used = resource.getrusage(resource.RUSAGE_SELF)
        budget = int(used.ru_utime + used.ru_stime + request["limit"]) + 3
        resource.setrlimit(resource.RLIMIT_CPU, (budget, resource.RLIM_INFINITY))
        _reply(replies, _answer(request))


def _answer(request: dict[str, list[str]]) -> dict[str, str | bool]:
    try:
        signal.setitimer(signal.ITIMER_REAL, float(str(request["limit"])))
        try:
            return {"outcome": compare(Answer(*request["gold"]), Answer(*request["answer"]))}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _LateError:
        return {"late": True}
    except (MemoryError, RecursionError) as error:
        return {"error": f"comparing needs too much memory ({type(error).__name__})"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:200]}"}


def _reply(replies: IO[str], reply: dict[str, str | bool]) -> None:
    replies.write(f"\n{json.dumps(reply)}\n")  # a killed predecessor may have left half a line


if __name__ == "__main__":
    sys.set_int_max_str_digits(0)
    main()
