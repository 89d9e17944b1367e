"""What a candidate may use up, and that nothing of it outlives its trial."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from stepwell.errors import ConfigError
from stepwell.sandbox import Isolation, Limits, Session, Stopped, StoppedError, interpreter
from stepwell.sandbox.suites import CallSuite, ProgramSuite
from stepwell.sandbox.trial import Outcome, try_out

SUITE = CallSuite("def check(candidate):\n    assert candidate(2) == 4", entry_point="f")
SQUARES = "def f(x): return x * x"


def _ours() -> set[str]:
    """The interpreters on this machine that this process started, by their pids."""
    inside = interpreter.command()[-1].encode()
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if inside in (folder / "cmdline").read_bytes() and _descends(folder.name):
                found.add(folder.name)
        except OSError:
            continue
    return found


def _descends(pid: str) -> bool:
    while pid not in ("0", "1", str(os.getpid())):
        pid = re.search(r"^PPid:\s*(\d+)", Path("/proc", pid, "status").read_text(), re.MULTILINE)[1]  # type: ignore[index]
    return pid == str(os.getpid())


HANGS = {
    "a loop": "def f(x):\n    while True: pass",
    "while it is loaded": "while True: pass",
    "asleep": "import time\ndef f(x): time.sleep(1000)",
    "in C": "def f(x): return 9 ** 9 ** 9 ** 9",
    "in a regular expression": "import re\ndef f(x): return re.match('(a+)+$', 'a' * 40 + 'b')",
    "deaf to signals": "import signal\nfor n in range(1, 64):\n    try: signal.signal(n, signal.SIG_IGN)\n"
    "    except (OSError, ValueError): ...\n"
    "def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
    "waiting for input": "def f(x):\n    import os, select\n    select.select([], [], [])",
    "locked": "import threading\ndef f(x):\n    lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "a thread that stays": "import threading\ndef spin():\n    while True: pass\nfor _ in range(4): threading.Thread(target=spin).start()\n"
    "def f(x):\n    while True: pass",
}  # fmt: skip


@pytest.mark.parametrize("name", HANGS)
def test_a_hang_costs_its_limit_and_leaves_nothing(name: str, any_isolation: Isolation) -> None:
    start = time.monotonic()
    trial = try_out(HANGS[name], SUITE, isolation=any_isolation, limits=Limits(seconds=0.5))
    assert trial.outcome is Outcome.TIMEOUT, trial
    assert time.monotonic() - start < 5
    assert _ours() == set()


def test_all_calls_together_have_a_limit(any_isolation: Isolation) -> None:
    suite = CallSuite("def check(candidate):\n" + "    assert candidate(2) == 4\n" * 50, entry_point="f")
    code = "import time\ndef f(x):\n    start = time.process_time()\n    while time.process_time() < start + 0.1: pass\n    return 4"
    trial = try_out(code, suite, isolation=any_isolation, limits=Limits(seconds=10, total_s=1))
    assert trial.outcome is Outcome.TIMEOUT
    assert 1 <= trial.passed <= 10


def test_time_is_the_processors(any_isolation: Isolation) -> None:
    """Who waits for longer than the limit has computed nothing, and may; who computes for as long may not."""
    asleep, awake = (
        f"import time\ndef f(x):\n    {work}\n    return 4" for work in ("time.sleep(0.5)", "while time.process_time() < 5: pass")
    )
    outcomes = [try_out(code, SUITE, isolation=any_isolation, limits=Limits(seconds=0.3)).outcome for code in (asleep, awake)]
    assert outcomes == [Outcome.PASSED, Outcome.TIMEOUT]


DEATHS = {
    "memory at once": "def f(x): return bytearray(2**31)",
    "memory bit by bit": "def f(x):\n    kept = []\n    while True: kept.append('x' * 10**6)",
    "memory that no exception ends": "def f(x):\n    kept = []\n    while True:\n        try:\n            kept.append(bytearray(10**7))\n"
    "        except MemoryError: return 0",
    "threads without end": "import threading, time\ndef f(x):\n    while True: threading.Thread(target=time.sleep, args=(1000,)).start()",
    "a fork bomb": "import os\ndef f(x):\n    while True: os.fork()",
    "files without end": "def f(x):\n    kept = [open('/dev/null') for _ in range(1000)]\n    return 4",
    "a crash": "import ctypes\ndef f(x): return ctypes.string_at(0)",
    "abort": "import os\ndef f(x): os.abort()",
    "recursion": "def f(x): return f(x)",
    "a source too deep": "def f(x): return eval('-' * 10**6 + '4')",
    "a deep answer": "def f(x):\n    a = []\n    for _ in range(10**5): a = [a]\n    return a",
    "an answer in a circle": "def f(x):\n    a = []\n    a.append(a)\n    return a",
    "a long answer": "def f(x): return 'x' * 10**7",
    "kills itself": "import os, signal\ndef f(x): signal.raise_signal(signal.SIGKILL); return 4",
    "kills everything": "import os\ndef f(x): os.kill(-1, 9); return 4",
    "closes everything": "import os\ndef f(x):\n    os.closerange(0, 64)\n    return 4",
}  # fmt: skip


@pytest.mark.parametrize("name", DEATHS)
def test_who_takes_too_much_is_wrong_and_leaves_nothing(name: str, any_isolation: Isolation) -> None:
    trial = try_out(DEATHS[name], SUITE, isolation=any_isolation, limits=Limits(seconds=20, memory_mib=256, answer_mib=1))
    assert trial.outcome is Outcome.FAILED, trial
    assert _ours() == set()


def test_the_memory_limit_is_what_ends_it(any_isolation: Isolation) -> None:
    """The same program is right where it may have the memory."""
    code = "def f(x): return len(bytearray(300 * 2**20)) * 0 + 4"
    outcomes = [try_out(code, SUITE, isolation=any_isolation, limits=Limits(memory_mib=mib)).outcome for mib in (256, 1024)]
    assert outcomes == [Outcome.FAILED, Outcome.PASSED]


def test_a_stop_signal_to_itself_is_a_timeout(any_isolation: Isolation) -> None:
    code = "import signal\ndef f(x):\n    signal.raise_signal(signal.SIGSTOP)\n    return 4"
    assert try_out(code, SUITE, isolation=any_isolation, limits=Limits(seconds=0.5)).outcome is Outcome.TIMEOUT
    assert _ours() == set()


def test_output_to_nowhere_costs_nothing(any_isolation: Isolation) -> None:
    code = "import sys\nfor _ in range(100):\n    print('x' * 10**5); print('x' * 10**5, file=sys.stderr)\ndef f(x): return x * x"
    assert try_out(code, SUITE, isolation=any_isolation, limits=Limits()).outcome is Outcome.PASSED


def test_output_of_a_program_has_a_limit(any_isolation: Isolation) -> None:
    suite = ProgramSuite(("",), ("x",))
    trial = try_out("while True: print('x' * 1000)", suite, isolation=any_isolation, limits=Limits(seconds=30))
    assert (trial.outcome, trial.reason) == (Outcome.FAILED, "test 1 of 1: more output than 0.5 MiB")
    assert _ours() == set()


@pytest.mark.parametrize(
    "code", ["while True: pass", "import time; time.sleep(100)", "import sys; sys.stdout.close(); import time; time.sleep(100)"]
)
def test_a_program_that_hangs(code: str, any_isolation: Isolation) -> None:
    trial = try_out(code, ProgramSuite(("1\n",), ("1",), before=""), isolation=any_isolation, limits=Limits(seconds=0.5))
    assert trial.outcome is Outcome.TIMEOUT
    assert _ours() == set()


def test_one_that_never_reads_does_not_block_us(any_isolation: Isolation) -> None:
    """It answers ahead of time and reads no more; a request of 3 MB does not fit into the pipe."""
    code = """
import os
for descriptor in range(3, 10):
    try:
        os.write(descriptor, b'{"done": true}\\n{"done": true}\\n')
    except OSError:
        pass
while True: pass
"""
    with Session(any_isolation, Limits(seconds=0.5)) as session:
        assert session.ask({"do": "run", "source": code}) == ("done", True)
        with pytest.raises(StoppedError) as stopped:
            session.ask({"do": "run", "source": "x" * 3_000_000})
    assert stopped.value.how is Stopped.TIMEOUT


def test_a_killed_sandbox_is_an_end_not_an_error(any_isolation: Isolation) -> None:
    with Session(any_isolation, Limits()) as session:
        assert session.ask({"do": "value", "source": "1"}) == ("value", 1)
        (pid, *_) = sorted(_ours(), key=int, reverse=True)
        os.kill(int(pid), signal.SIGKILL)
        with pytest.raises(StoppedError) as stopped:
            session.ask({"do": "value", "source": "1"})
    assert stopped.value.how is Stopped.DIED
    assert _ours() == set()


def test_closing_twice_is_fine(any_isolation: Isolation) -> None:
    session = Session(any_isolation, Limits())
    session.close()
    session.close()
    assert _ours() == set()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"seconds": 0}, "sandbox: seconds is 0; give a finite number above 0."),
        ({"total_s": float("inf")}, "sandbox: total_s is inf; give a finite number above 0."),
        ({"memory_mib": 32}, "sandbox: memory_mib is 32; give a finite number above 63."),
    ],
)
def test_limits_that_cannot_work(settings: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}$"):
        Limits(**settings)  # type: ignore[arg-type]
