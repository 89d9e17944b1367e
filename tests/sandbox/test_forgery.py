"""A candidate that does not know the answer is never right, whatever it does with the interpreter that it runs in.

The expected value is a number that can be neither computed nor guessed. Each attack is a whole program; those that fool a grader of the
usual kind (candidate and assertions in one process, whose last words or exit code count) are shown to fool it.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from stepwell.sandbox import Isolation, Limits
from stepwell.sandbox.suites import CallSuite, FunctionSuite, ProgramSuite, Suite
from stepwell.sandbox.trial import Outcome, try_out

SECRET = 918273645546372819
LIMITS = Limits(seconds=20, answer_mib=1)
EXACT = CallSuite(f"def check(candidate):\n    assert candidate(2) == {SECRET}", entry_point="f")
NEAR = CallSuite(
    f"""def check(candidate):
    for x in range(2):
        assert abs(candidate(x) - {SECRET}.5) < 1e-6
    assert len(candidate(3)) == 7
""",
    entry_point="f",
)
"""Cannot be cut in two: an examiner runs it."""
OUTPUT = ProgramSuite(("2\n",), (f"{SECRET}\n",), before="")
VALUE = FunctionSuite("f", ((2,),), (SECRET,), before="")

SEARCH = """
import gc, sys
def f(x):
    seen, found = set(), []
    def look(value):
        if id(value) in seen or len(seen) > 300_000:
            return
        seen.add(id(value))
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 9e17 and value < 9.2e17:
            found.append(value)
        elif isinstance(value, str | bytes) and len(value) < 100_000:
            text = value if isinstance(value, str) else value.decode("latin-1")
            at = text.find("91827")
            if at >= 0 and text[at + 5 : at + 10] == "36455":
                found.append(int(text[at : at + 18]))
        elif isinstance(value, dict):
            for item in list(value.items()):
                look(item[0]); look(item[1])
        elif isinstance(value, list | tuple | set | frozenset):
            for item in list(value):
                look(item)
    frame = sys._getframe()
    while frame:
        look(dict(frame.f_locals)); look(dict(frame.f_globals))
        frame = frame.f_back
    for value in gc.get_objects():
        look(value)
    for name, module in list(sys.modules.items()):
        look(dict(vars(module)))
    return found[0] if found else 0
"""

EVERY_CHANNEL = """
import json, os
FORGED = [{"passed": True}, {"done": True}, {"value": True}, {"value": {"opaque": "int"}}, {"ended": ["", 0]}, "passed", "OK", True, 0]
def shout():
    for descriptor in range(64):
        for forged in FORGED:
            try:
                os.write(descriptor, (json.dumps(forged) + "\\n").encode())
            except OSError:
                pass
    print("passed")
shout()
def f(x):
    shout()
    return True
"""

EQUAL_TO_ALL = """
class All(int):
    __hash__ = int.__hash__
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __sub__(self, other): return self
    def __rsub__(self, other): return self
    def __abs__(self): return self
    def __bool__(self): return True
    def __len__(self): return 7
    def __instancecheck__(self, other): return True
def f(x): return All(0)
"""

DISGUISED = """
class Number:
    __class__ = int
    def __eq__(self, other): return True
    def __index__(self): return 0
    def __int__(self): return 0
    def __float__(self): return 0.0
    def __len__(self): return 7
    def __sub__(self, other): return 0
    def __rsub__(self, other): return 0
    def __reduce__(self): return (print, ("pwned",))
def f(x): return Number()
"""

MONKEY = """
import builtins, json, sys
class All:
    def __eq__(self, other): return True
builtins.AssertionError = type("Quiet", (BaseException,), {})
builtins.isinstance = lambda *a: True
builtins.len = lambda *a: 7
builtins.abs = lambda *a: 0
builtins.all = builtins.any = lambda *a: True
builtins.eval = builtins.exec = builtins.compile = lambda *a, **k: True
json.dumps = lambda *a, **k: '{"passed": true}'
json.loads = lambda *a, **k: {"do": "run", "source": ""}
sys.stdout = sys.stderr = None
sys.exit = lambda *a: None
for name, module in list(sys.modules.items()):
    for key in ("encode", "decode", "raised", "examine", "serve"):
        if key in vars(module):
            setattr(module, key, lambda *a, **k: True)
def f(x): return True
"""

AT_EXIT = """
import atexit, os, sys
def last_words():
    for descriptor in (1, 2, 3, 4, 5):
        try:
            os.write(descriptor, b'{"passed": true}\\n{"value": true}\\n{"done": true}\\n')
        except OSError:
            pass
    os._exit(0)
atexit.register(last_words)
sys.excepthook = lambda *a: last_words()
def f(x): sys.exit(0)
"""

RESULT_LIST = """
import sys
def f(x):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if isinstance(value, list):
                value.append("passed")
        frame = frame.f_back
    return 0
import atexit
"""

THREAD = """
import os, threading
def hammer():
    while True:
        for descriptor in range(3, 10):
            try:
                os.write(descriptor, b'{"passed": true}\\n')
            except OSError:
                pass
threading.Thread(target=hammer, daemon=True).start()
def f(x): return True
"""

INSTANCE = """
import os
def f(x):
    for descriptor in range(3, 10):
        try:
            os.write(descriptor, b'{"value": {"instance": "candidate"}}\\n' * 20)
        except OSError:
            pass
    return 0
"""

ATTACKS = {
    "search": SEARCH,
    "every channel": EVERY_CHANNEL,
    "equal to all": EQUAL_TO_ALL,
    "disguised": DISGUISED,
    "monkey": MONKEY,
    "at exit": AT_EXIT,
    "result list": RESULT_LIST,
    "thread": THREAD,
    "instance": INSTANCE,
    "exit 0 at once": "import os; os._exit(0)",
    "exit 0 in the call": "import os\ndef f(x): os._exit(0)",
    "SystemExit": "raise SystemExit(0)",
    "KeyboardInterrupt": "def f(x): raise KeyboardInterrupt",
    "nan": "def f(x): return float('nan')",
    "infinite": "def f(x): return float('inf')",
    "True": "def f(x): return True",
    "opaque": "def f(x): return object()",
    "an exception that lies": "class E(BaseException):\n    def __str__(self): return 'passed'\ndef f(x): raise E",
    "a generator": "def f(x):\n    while True: yield 1",
}  # fmt: skip


SUITES = {"exact": EXACT, "near": NEAR, "value": VALUE, "output": OUTPUT}
EVERYWHERE = ("search", "every channel", "monkey", "at exit", "exit 0 at once")
EXAMINED = ("equal to all", "disguised", "thread", "instance", "nan", "True", "an exception that lies")
PAIRS = [
    *((name, "exact") for name in ATTACKS),
    *((name, suite) for name in EVERYWHERE for suite in ("near", "value", "output")),
    *((name, "near") for name in EXAMINED),
]


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_no_attack_is_right(name: str, kind: str, any_isolation: Isolation) -> None:
    code = ATTACKS[name] + ("\nprint(f(2))\n" if kind == "output" else "")
    trial = try_out(code, SUITES[kind], isolation=any_isolation, limits=LIMITS)
    assert trial.outcome in (Outcome.FAILED, Outcome.TIMEOUT), trial
    assert trial.passed == 0


@pytest.mark.parametrize(
    "suite",
    [
        CallSuite("def check(candidate):\n    assert candidate(2) == 918273645546372819", entry_point="f"),
        CallSuite(
            "def check(candidate):\n    for x in range(2):\n        assert abs(candidate(x) - 918273645546372819) < 1e-6", entry_point="f"
        ),
        ProgramSuite(("2\n",), (f"{SECRET}\n",), before=""),
        FunctionSuite("f", ((2,),), (SECRET,), before=""),
    ],
    ids=["exact", "near", "output", "value"],
)
def test_the_one_who_knows_is_right(suite: Suite, any_isolation: Isolation) -> None:
    """The same suites can be passed: the attacks fail for what they lack, not for how they are run."""
    code = f"def f(x): return {SECRET}\nif __name__ == '__main__': print(f(2))"
    assert try_out(code, suite, isolation=any_isolation, limits=LIMITS).outcome is Outcome.PASSED


# -- the usual grader ---------------------------------------------------------------------------------------------------------

USUAL = """
import sys
def run(code, test):
    result = []
    try:
        space = {}
        exec(code, space)
        exec(test, space)
        space["check"](space["f"])
        result.append("passed")
    except BaseException as error:
        result.append(f"failed: {error}")
    return result
result = run(sys.argv[1], sys.argv[2])
print(result[0])
sys.exit(result[0] != "passed")
"""


def _usual(code: str) -> tuple[str, int]:
    """First line of output and exit code of a grader that runs the candidate and the assertions in one process."""
    done = subprocess.run([sys.executable, "-c", USUAL, code, EXACT.tests], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.partition("\n")[0], done.returncode


def test_the_usual_grader_tells_right_from_wrong() -> None:
    assert _usual(f"def f(x): return {SECRET}") == ("passed", 0)
    assert _usual("def f(x): return 0") == ("failed: ", 1)


@pytest.mark.parametrize("name", ["search", "equal to all", "result list"])
def test_the_usual_grader_is_fooled_by_its_memory(name: str) -> None:
    assert _usual(ATTACKS[name])[0] == "passed"


@pytest.mark.parametrize("name", ["exit 0 at once", "exit 0 in the call"])
def test_the_usual_grader_is_fooled_by_its_exit_code(name: str) -> None:
    assert _usual(ATTACKS[name])[1] == 0


def test_the_usual_grader_is_fooled_by_what_is_printed() -> None:
    assert _usual("print('passed')\nimport os; os._exit(0)")[0] == "passed"


# -- the channel itself -------------------------------------------------------------------------------------------------------

RAW = """
import os
def f(x):
    line = {line}
    for descriptor in range(3, 10):
        try:
            os.set_blocking(descriptor, True)
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(descriptor, rest):]
        except OSError:
            pass
    while True: pass
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("b'[' * 500_000 + b'\\n'", "cannot be read"),
        ("b'{\"tuple\":' * 100_000 + b'\\n'", "cannot be read"),
        ("b'{\"value\": ' + b'9' * 500_000 + b'}\\n'", "cannot be read"),
        ("b'{\"value\": NaN}\\n'", "cannot be read"),
        ("b'{\"value\": 1, \"value\": 2}\\n'", "cannot be read"),
        ("b'\\xff\\xfe\\n'", "cannot be read"),
        ("b'\\n'", "cannot be read"),
        ("b'x' * 3_000_000", "above 1 MiB"),
        ("b'{\"value\": {\"int\": \"' + b'f' * 900_000 + b'\"}}\\n'", "another value"),
        ("b'{\"value\": {\"float\": \"1e400\"}}\\n'", "another value"),
        ("b'{\"raised\": 7}\\n'", "out of order"),
        ("b'{\"passed\": true}\\n'", "out of order"),
    ],
)  # fmt: skip
def test_a_forged_line_is_no_answer(line: str, said: str, any_isolation: Isolation) -> None:
    code = RAW.replace("{line}", line)
    trial = try_out(code, EXACT, isolation=any_isolation, limits=LIMITS)
    assert trial.outcome is Outcome.FAILED
    assert said in trial.reason


@pytest.mark.parametrize("suite", [NEAR, CallSuite("assert f(2) == {1}"), CallSuite("assert f(2) == [1]")], ids=["near", "set", "list"])
@pytest.mark.parametrize("kind", ["tuple", "frozenset"])
def test_an_answer_that_can_just_be_read(suite: Suite, kind: str, any_isolation: Isolation) -> None:
    """Nested as deeply as the reader of JSON allows; what walks through it afterwards needs more depth than that."""
    line = "b'{\"value\": {\"set\": [' + b'{\"KIND\": [' * 450 + b']}' * 450 + b']}}\\n'".replace("KIND", kind)
    trial = try_out(RAW.replace("{line}", line), suite, isolation=any_isolation, limits=LIMITS)
    assert (trial.outcome, trial.passed) == (Outcome.FAILED, 0)


def test_keys_of_equal_hash_cost_no_time(any_isolation: Isolation) -> None:
    """30,000 numbers of one hash: a set of them takes a minute to build; the grader builds none."""
    code = textwrap.dedent("""
        import os
        def f(x):
            step = 2**61 - 1
            body = ", ".join('{"int": "%x"}' % (i * step) for i in range(30_000))
            line = ('{"value": {"set": [%s]}}\\n' % body).encode()
            for descriptor in range(3, 10):
                try:
                    os.write(descriptor, line)
                except OSError:
                    pass
            while True: pass
    """)
    suite = CallSuite(f"def check(candidate):\n    assert candidate(2) == {set(range(30_000))!r}", entry_point="f")
    trial = try_out(code, suite, isolation=any_isolation, limits=Limits(seconds=20, answer_mib=4))
    assert (trial.outcome, trial.reason) == (Outcome.FAILED, "test 1 of 1: another value")
