"""Nothing of the host is in a candidate's reach; and each attempt succeeds where there are no walls."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import attempts
import pytest

from stepwell.sandbox import Isolation, Limits, Session, available, bwrap, choose, interpreter
from stepwell.sandbox.answers import Tagged
from stepwell.sandbox.trial import plain

SOURCE = Path(attempts.__file__).read_text()
Host = dict[str, str | int]
Tried = Mapping[str, tuple[str, str]]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A secret, two servers, and a process to attack: this one."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "secret").write_text("the answer is 8675309")
    servers = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)]
    servers[1].bind(str(folder / "socket"))
    servers[1].listen()
    for server in servers:
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
    yield {
        "folder": str(folder),
        "secret": str(folder / "secret"),
        "socket": str(folder / "socket"),
        "port": servers[0].getsockname()[1],
        "pid": os.getpid(),
        "group": os.getpgid(0),
        "repository": str(Path(__file__).resolve()),
        "packages": sysconfig.get_paths()["purelib"],
    }
    for server in servers:
        server.close()


def _serve(server: socket.socket) -> None:
    while True:
        try:
            line, _ = server.accept()
        except OSError:
            return
        line.sendall(b"hello")
        line.close()


@pytest.fixture(scope="module")
def inside(isolation: Isolation, host: Host) -> Tried:
    os.environ["STEPWELL_SECRET"] = "8675309"
    try:
        return _tried(isolation, host)
    finally:
        del os.environ["STEPWELL_SECRET"]


def _tried(isolation: Isolation, host: Host) -> Tried:
    given = {"dict": [[key, value] for key, value in host.items()]}
    with Session(isolation, Limits(seconds=30)) as session:
        assert session.ask({"do": "run", "source": SOURCE}) == ("done", True)
        return _told(session.ask({"do": "call", "function": "try_all", "handle": "", "args": [given], "kwargs": {"dict": []}}))


def _told(answer: Tagged) -> Tried:
    assert answer.kind == "value", answer
    form = plain(answer.inner)
    assert isinstance(form, dict)
    return {name: tuple(outcome["tuple"]) for name, outcome in form["dict"]}


@pytest.fixture(scope="module")
def outside(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Tried:
    """The same attempts in a plain interpreter, of this user."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "attempts.py").write_text(SOURCE)
    code = "import json, sys, attempts; print(json.dumps(attempts.try_all(json.loads(sys.argv[1]))))"
    environment = {**os.environ, "STEPWELL_SECRET": "8675309", "PYTHONPATH": str(folder)}
    said = subprocess.run(
        [sys.executable, "-c", code, json.dumps(host)], env=environment, capture_output=True, text=True, check=True
    ).stdout
    return {name: tuple(outcome) for name, outcome in json.loads(said).items()}


@pytest.mark.parametrize("name", attempts.ATTEMPTS)
def test_an_attempt_fails_behind_the_walls(name: str, inside: Tried) -> None:
    assert inside[name][0] == "refused", inside[name]


@pytest.mark.parametrize("name", [name for name in attempts.ATTEMPTS if not name.startswith("maybe_")])
def test_the_attempt_succeeds_without_walls(name: str, outside: Tried) -> None:
    assert outside[name][0] == "got", outside[name]


BY_NAME_SPACES = {
    "read_a_file", "list_a_folder", "read_the_password_file", "read_the_environment", "read_the_environment_of_the_parent", "connect",
    "connect_to_a_unix_socket", "write_a_file", "write_to_the_temporary_folder", "write_to_shared_memory", "signal_the_parent",
    "maybe_read_the_memory_of_the_parent", "maybe_mount",
}  # fmt: skip
BY_THE_FILTER = {
    "connect", "connect_to_a_unix_socket", "send_a_datagram", "listen", "fork", "leave_a_daemon", "spawn", "run_a_program", "run_a_shell",
    "signal_the_parent", "signal_a_group", "follow_a_process", "ask_to_be_traced", "write_a_file", "write_to_memory_without_limit",
    "take_memory_that_no_limit_counts", "lift_a_limit", "maybe_make_a_name_space", "maybe_mount", "maybe_keep_a_key", "maybe_use_io_uring",
    "maybe_read_the_memory_of_the_parent_by_a_call",
}  # fmt: skip


def test_name_spaces_hold_without_the_filter(host: Host) -> None:
    """Two walls, each of which stands alone: here bubblewrap's, around an interpreter that builds none of its own."""
    if why := available()["bwrap"]:
        pytest.skip(f"bwrap does not work here: {why}")
    code = f"{SOURCE}\nimport json\nprint(json.dumps(try_all(json.loads(sys.argv[1]))))"
    command = [*bwrap.wrapper(), interpreter.command()[0], "-S", "-c", code, json.dumps(host)]
    said = subprocess.run(command, env=dict(interpreter.ENVIRONMENT), capture_output=True, text=True, check=True).stdout
    tried = json.loads(said)
    assert {name for name in BY_NAME_SPACES if tried[name][0] == "got"} == set()
    assert tried["fork"][0] == "got"


def test_the_filter_holds_without_name_spaces(host: Host) -> None:
    tried = _tried(choose("unsafe"), host)
    assert {name for name in BY_THE_FILTER if tried[name][0] == "got"} == set()
    assert tried["read_a_file"][0] == "got"


def test_nothing_was_left_behind(inside: Tried, host: Host) -> None:
    marks = ("written", "daemon")
    for mark in marks:
        Path(str(host["folder"]), mark).unlink(missing_ok=True)  # those of the plain interpreter
    time.sleep(0.5)
    assert inside["leave_a_daemon"][0] == "refused"
    assert [mark for mark in marks if Path(str(host["folder"]), mark).exists()] == []


def test_the_environment_holds_nothing_of_the_host(isolation: Isolation) -> None:
    with Session(isolation, Limits()) as session:
        answer = session.ask({"do": "value", "source": "sorted(__import__('os').environ)"})
    assert set(plain(answer.inner)) <= {
        "HOME",
        "LANG",
        "LC_CTYPE",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "PATH",
        "PYTHONHASHSEED",
        "TZ",
        "USER",
        "TERM",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
    }  # type: ignore[arg-type]


def test_no_descriptor_of_ours_is_open_inside(isolation: Isolation, host: Host) -> None:
    with open(str(host["secret"])) as file:  # noqa: PTH123 - a descriptor that a child could inherit
        os.set_inheritable(file.fileno(), True)
        probe = """
import os
def readable():
    found = []
    for descriptor in range(3, 64):
        try:
            found.append(os.pread(descriptor, 64, 0))
        except OSError:
            pass
    return found
"""
        with Session(isolation, Limits()) as session:
            session.ask({"do": "run", "source": probe})
            answer = session.ask({"do": "value", "source": "readable()"})
    assert b"8675309".hex() not in json.dumps(plain(answer.inner))


def test_what_solutions_need_works(isolation: Isolation) -> None:
    """Threads, deep recursion, the random numbers of a seed, the packages of contests."""
    source = """
import random, sys, threading
from sortedcontainers import SortedList
import numpy
sys.setrecursionlimit(20_000)
def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
found = []
thread = threading.Thread(target=lambda: found.append(deep(10_000)))
thread.start(); thread.join()
"""
    with Session(isolation, Limits()) as session:
        assert session.ask({"do": "run", "source": source}) == ("done", True)
        answer = session.ask(
            {"do": "value", "source": "[found, list(SortedList([3, 1, 2])), int(numpy.arange(5).sum()), hash('a'), random.random()]"}
        )
    with Session(isolation, Limits()) as session:
        session.ask({"do": "run", "source": "import random"})
        again = session.ask({"do": "value", "source": "[hash('a'), random.random()]"})
    got, same = plain(answer.inner), plain(again.inner)
    assert isinstance(got, list)
    assert got[:3] == [[10_000], [1, 2, 3], 10]
    assert got[3:] == same, "hashes and random numbers are the same in each run"
