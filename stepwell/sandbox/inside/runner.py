"""The interpreter inside: takes requests from the grader one at a time, and answers each by one line of JSON.

| request | what happens | answer |
|---|---|---|
| `{"do": "run", "source"}` | the code runs in the one namespace of this interpreter | `{"done": true}` |
| `{"do": "value", "source"}` | the expression's value | `{"value": form}` |
| `{"do": "call", "function", "handle", "args", "kwargs"}` | the function is called | `{"value": form}` |
| `{"do": "program", "before", "source", "stdin", "output_bytes"}` | the code runs as a program | `{"ended": [output, exit code]}` |
| `{"do": "examine", "before", "source", "own", "others"}` | a benchmark's test runs; see `examine` | `{"passed": true}` |

What the code raises is answered by `{"raised": [type, message]}`. Forms are those of `values`.

Nothing here guards a secret: a candidate may take this process over and answer whatever it likes. It is never told what is expected.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import random
import select
import signal
import sys
from importlib.util import spec_from_file_location

from . import values, walls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, TypeAlias

    from .values import Form

    Answer: TypeAlias = dict[str, Any]

_MESSAGE = 300
line: Line
_NODES = {name: getattr(values, name) for name in ("ListNode", "TreeNode", "list_node", "tree_node")}


class Line:
    """The two ends of the pipe to the grader, on descriptors of their own; the usual ones are connected to nothing."""

    def __init__(self) -> None:
        self._requests = io.open(os.dup(0), "rb")  # noqa: SIM115, UP020 - `open` may be a candidate's later
        self._answers = os.dup(1)
        nothing = os.open("/dev/null", os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        os.close(nothing)

    def read(self) -> Answer:
        line = self._requests.readline()
        if not line:
            os._exit(0)
        request: Answer = json.loads(line)
        return request

    def write(self, answer: Answer, _dumps: Callable[..., str] = json.dumps) -> None:
        data = memoryview(_dumps(answer, allow_nan=False).encode() + b"\n")
        while data:
            data = data[os.write(self._answers, data) :]

    def close(self) -> None:
        self._requests.close()
        os.close(self._answers)


class Packages:
    """Finds the packages that candidates may import beside the standard library, and no others."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = paths

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        folder = self._paths.get(name)
        if folder is None:
            return None
        return spec_from_file_location(name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])  # noqa: PTH118


def fresh(name: str) -> dict[str, object]:
    """The namespace of a new module, which can be imported by its name: dataclasses look their own up."""
    module = sys.modules[name] = type(sys)(name)
    module.__dict__.update(_NODES)
    return module.__dict__


def raised(error: BaseException) -> Answer:
    """What is told of an exception."""
    try:
        message = str(error)
    except BaseException:  # a candidate's own exception may raise anything when it is asked
        message = ""
    return {"raised": [type(error).__name__, message[:_MESSAGE]]}


def program(before: str, source: str, stdin: str, output_bytes: int) -> Answer:
    """Runs the code as a program with this standard input, in a child that has no way to the grader but its standard output."""
    from_us, to_it = os.pipe()
    from_it, to_us = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(from_us, 0)
        os.dup2(to_us, 1)
        for descriptor in (from_us, to_it, from_it, to_us):
            os.close(descriptor)
        os._exit(_main(before, source))
    os.close(from_us)
    os.close(to_us)
    out = _converse(to_it, stdin.encode("utf-8", "surrogatepass"), from_it, output_bytes)
    if out is None:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"flood": True} if out is None else {"ended": [out.decode("utf-8", "replace"), code]}


def _main(before: str, source: str) -> int:
    """The child: closes the way to the grader, builds the wall, runs the code as `__main__`."""
    code = 1
    try:
        line.close()
        walls.filter_calls()
        sys.stdin, sys.stdout = io.open(0, encoding="utf-8"), io.open(1, "w", encoding="utf-8")  # noqa: UP020, SIM115
        space = fresh("__main__")
        exec(compile(before, "<before>", "exec"), space)
        exec(compile(source, "<candidate>", "exec"), space)
        code = 0
    except SystemExit as end:
        code = 0 if end.code is None else end.code if isinstance(end.code, int) else 1
    except BaseException:  # whatever it is, the program has failed
        code = 1
    try:
        sys.stdout.flush()
    except BaseException:  # closed by the program, or no longer a file
        code = code or 1
    return code & 255


def _converse(to_it: int, data: bytes, from_it: int, most: int) -> bytes | None:
    """Feeds the input and collects the output, until the output ends; None where it is longer than `most` bytes."""
    os.set_blocking(to_it, False)
    rest, parts, length = memoryview(data), [], 0
    writing = [to_it] if rest else []
    if not rest:
        os.close(to_it)
    while True:
        readable, writable, _ = select.select([from_it], writing, [])
        if writable:
            try:
                rest = rest[os.write(to_it, rest[:65536]) :]
            except BrokenPipeError:
                rest = rest[:0]
            if not rest:
                os.close(to_it)
                writing = []
        if readable:
            part = os.read(from_it, 65536)
            parts.append(part)
            length += len(part)
            if not part or length > most:
                break
    for descriptor in (from_it, *writing):
        os.close(descriptor)
    return None if length > most else b"".join(parts)


def examine(before: Sequence[str], source: str, own: Sequence[str], others: Sequence[str]) -> Answer:
    """Runs a benchmark's own test code, in an interpreter without the candidate.

    `own`, and those of `others` that nothing in `before` defines, are names of the candidate's. What stands for one crosses the wall as
    data when it is called: the candidate computes in its own sandbox, and its answer comes back as data.
    """
    space = fresh("examiner")
    try:
        for part in before:
            exec(compile(part, "<before>", "exec"), space)
        space.update({name: _Remote(name) for name in (*own, *(name for name in others if name not in space))})
        exec(compile(source, "<test>", "exec"), space)
    except _RefusedError as error:
        return {"failed": str(error)}
    except AssertionError as error:
        return {"failed": f"an assertion fails{': ' * bool(str(error))}{str(error)[:_MESSAGE]}"}
    except BaseException as error:  # of the candidate's answer or of the test, as any grader would see it
        return raised(error)
    return {"passed": True}


class _RefusedError(BaseException):
    """The candidate gave no value that the test could be given."""


class _Remote:
    """Stands for a name of the candidate: a function, or a class, whose instances stay inside and are named by a handle."""

    _made = 0

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: object, **kwargs: object) -> object:
        _Remote._made += 1
        handle = f"_kept_{_Remote._made}"
        line.write({"call": [self._name, handle, values.encode(list(args)), values.encode(kwargs)]})
        answer = line.read()
        if "value" in answer:
            value = answer["value"]
            return _Remote(handle) if value == {"instance": self._name} else values.decode(value)
        kind, message = answer["raised"]
        error = getattr(builtins, kind, None)
        if isinstance(error, type) and issubclass(error, Exception):
            raise error(message)
        raise _RefusedError(f"{kind}: {message}")

    def __getattr__(self, name: str) -> _Remote:
        return _Remote(f"{self._name}.{name}")


def call(space: dict[str, object], function: str, handle: str, args: Form, kwargs: Form) -> Answer:
    """Calls a function of the namespace. An instance of a class that is called stays here, under the handle."""
    target = eval(function, space)
    value = target(*values.decode(args), **values.decode(kwargs))
    if isinstance(target, type) and isinstance(value, target) and target.__module__ == space["__name__"]:
        space[handle] = value
        return {"value": {"instance": function}}
    return {"value": values.encode(value)}


def serve(line: Line, space: dict[str, object]) -> None:
    """Answers requests until there are no more."""
    while True:
        request = line.read()
        do = request.pop("do")
        if do == "program":
            line.write(program(**request))
            continue
        if do == "examine":
            line.write(examine(**request))
            continue
        try:
            line.write(_answer(do, request, space))
        except SystemExit:
            line.write({"raised": ["SystemExit", ""]})
        except BaseException as error:  # whatever a candidate raises is an answer
            line.write(raised(error))


def _answer(do: str, request: Answer, space: dict[str, object]) -> Answer:
    if do == "run":
        exec(compile(request["source"], "<candidate>", "exec"), space)
        return {"done": True}
    if do == "value":
        return {"value": values.encode(eval(compile(request["source"].strip(), "<call>", "eval"), space))}
    return call(space, **request)


def open_up(opening: Answer) -> Answer:
    """Builds the walls; answers with what has been built, or why it could not be."""
    sys.meta_path.append(Packages(opening["packages"]))
    filtered = True
    try:
        walls.check()
        walls.limit(opening["memory_bytes"], opening["cpu_s"], opening["open_files"])
        if opening["role"] != "programs":  # which are filtered each in its own process
            walls.filter_calls()
    except walls.FilterUnavailableError as error:
        if opening["need_filter"]:
            return {"failed": str(error)}
        filtered = False
    except (OSError, ValueError) as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    random.seed(0)
    return {"ready": sys.version.split()[0], "filtered": filtered}


def main() -> None:
    """The whole life of the interpreter."""
    global line
    line = Line()
    space = fresh("candidate")
    answer = open_up(line.read())
    line.write(answer)
    if "ready" in answer:
        serve(line, space)
