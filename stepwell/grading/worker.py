"""The process that compares formulas: `python -m stepwell.grading.worker`. It reads requests and writes replies, a line of JSON each.

It imports everything, then forks the one that works. When that dies, the next is there in milliseconds, without importing anything again.

The limit is of processor time, so that a busy machine changes no verdict. It is kept twice: a signal that Python sees (between two of its
instructions) ends a comparison with a reply; half a second later the kernel ends the process, whatever it does and whoever still lives. The
parent, who looks at the clock, has the last word: SIGUSR1 to this process kills the one that works.

Request: {"gold": [written, tidied], "answer": [written, tidied], "limit": seconds}. Reply: {"outcome": text}, {"late": true} or
{"error": text}. A new worker begins with {"ready": true}, and {"late": true} where its predecessor died of its limit.
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
_GRACE_S = 0.5


class _LateError(BaseException):
    """The limit is over. No `Exception`, so that nobody's `except Exception` keeps it."""


def _ring(number: int, frame: object) -> None:
    raise _LateError


def main() -> None:
    """Forks a worker, and again whenever it was killed; ends when a worker ended, because there are no more requests."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints is no reply
    warm()
    child, status = 0, 0

    def kill_child(number: int, frame: object) -> None:
        os.kill(child, signal.SIGKILL)

    while True:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            with suppress(OSError):  # nobody reads our replies any more
                _serve(replies, late=os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF)
            os._exit(0)
        signal.signal(signal.SIGUSR1, kill_child)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            return


def _serve(replies: IO[str], *, late: bool) -> None:
    signal.signal(signal.SIGVTALRM, _ring)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.RLIM_INFINITY))
    _reply(replies, {"ready": True, "late": late})
    requests = os.fdopen(0, "rb", buffering=0)
    while line := requests.readline():
        request = json.loads(line)
        _alarms(request["limit"])
        reply = _answer(request)
        _alarms(None)
        _reply(replies, reply)


def _alarms(limit_s: float | None) -> None:
    """Sets both limits, or takes them away. SIGPROF has no handler: it ends the process."""
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s or 0)
    signal.setitimer(signal.ITIMER_PROF, limit_s + _GRACE_S if limit_s else 0)


def _answer(request: dict[str, list[str]]) -> dict[str, str | bool]:
    try:
        return {"outcome": compare(Answer(*request["gold"]), Answer(*request["answer"]))}
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
