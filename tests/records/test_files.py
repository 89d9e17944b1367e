from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

from stepwell.errors import DataError, RunError
from stepwell.files import Lock, append_line, cut_torn_tail, disk_errors, read_json, sha256, to_json, write_atomic


def test_write_atomic_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a.json", "old")
    write_atomic(tmp_path / "a.json", "new ü")
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == "new ü"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    path = tmp_path / "a.json"
    write_atomic(path, "old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, full)
        with pytest.raises(OSError, match="No space"):
            write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_appended_line_of_a_full_disk_is_cut_off_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lines"
    append_line(path, "first")
    real, calls = os.write, []

    def fills_up(descriptor: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) == 1:
            return real(descriptor, data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", fills_up)
    with pytest.raises(OSError, match="No space"):
        append_line(path, "second")
    assert calls == [b"second\n", b"ond\n"]
    assert path.read_bytes() == b"first\n"


def test_append_line_goes_on_after_a_short_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:2]))
    append_line(tmp_path / "lines", "whole line")
    assert (tmp_path / "lines").read_bytes() == b"whole line\n"


@pytest.mark.parametrize(("content", "left"), [(b"a\nb\n", b"a\nb\n"), (b"a\nb", b"a\n"), (b"torn", b""), (b"", b"")])
def test_torn_tail(tmp_path: Path, content: bytes, left: bytes) -> None:
    (tmp_path / "lines").write_bytes(content)
    cut_torn_tail(tmp_path / "lines")
    assert (tmp_path / "lines").read_bytes() == left


def test_sha256_is_the_known_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": {1: 2}}, r"state\.a has the key 1"),
        ({"a": [0.0, float("nan")]}, r"state\.a\[1\] is nan"),
        ({"best": float("-inf")}, r"state\.best is -inf"),
        ({"a": np.int64(3)}, r"state\.a is .*int64"),
    ],
)
def test_json_that_would_come_back_changed_is_refused(value: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        to_json(value, "state")  # type: ignore[arg-type]


def test_json_keeps_every_bit(tmp_path: Path) -> None:
    import json

    value = {"x": 0.1 + 0.2, "tiny": 5e-324, "minus": -0.0, "big": 2**127 + 1, "text": "\ud800\x00ü", "none": None, "flag": True}
    back = json.loads(to_json(value, "state"))
    assert back == value
    assert np.signbit(back["minus"])


def test_read_json_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(DataError, match=r"a\.json could not be read as JSON"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(DataError, match=r"a\.json holds a JSON list; an object is expected"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "It failed: the disk is full. Free some space"),
        (OSError(errno.EROFS, "Read-only file system"), "It failed: the file system is read-only. Choose a folder"),
        (PermissionError(errno.EACCES, "Permission denied"), "It failed: permission is denied. Choose a folder"),
        (SafetensorError("Error: I/O error: No space left on device (os error 28)"), "It failed: the disk is full. Free some space"),
        (OSError(errno.EIO, "Input/output error"), "It failed: .*Input/output error. Look after the disk"),
    ],
)
def test_a_disk_s_trouble_is_told_in_a_sentence(fault: Exception, words: str) -> None:
    with pytest.raises(RunError, match=words), disk_errors("It failed"):
        raise fault


# -- lock ---------------------------------------------------------------------------------------------------------------------

HOLD = "import sys, time; from pathlib import Path; from stepwell.files import Lock; lock = Lock(Path(sys.argv[1])); {}"


def test_a_second_holder_is_told_who_holds(tmp_path: Path) -> None:
    first = Lock(tmp_path / ".lock")
    with pytest.raises(RunError, match=rf"is in use by process {os.getpid()} on "):
        Lock(tmp_path / ".lock")
    first.close()
    first.close()
    Lock(tmp_path / ".lock").close()


def test_a_killed_process_gives_its_lock_back(tmp_path: Path) -> None:
    code = HOLD.format("print('held', flush=True); time.sleep(60)")
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / ".lock")], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(RunError, match=f"process {holder.pid} on"):
        Lock(tmp_path / ".lock")
    holder.kill()
    holder.wait()
    holder.stdout.close()
    Lock(tmp_path / ".lock").close()


def test_a_forked_worker_that_outlives_its_parent_holds_no_lock(tmp_path: Path) -> None:
    """A sandbox's worker must not keep a dead run's folder locked."""
    code = HOLD.format("import os; os.write(1, b'%d\\n' % os.fork()); time.sleep(60)")
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / ".lock")], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    numbers = {int(holder.stdout.readline()) for _ in range(2)}
    child = next(number for number in numbers if number)
    try:
        with pytest.raises(RunError, match="is in use"):
            Lock(tmp_path / ".lock")
        holder.kill()
        holder.wait()
        Lock(tmp_path / ".lock").close()
    finally:
        os.kill(child, 9)
        holder.stdout.close()
