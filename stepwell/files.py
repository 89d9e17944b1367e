"""Files that survive a crash: atomic writes, appended lines, checksums, a lock, and a sentence for whatever a disk does wrong.

A reader of a file written here sees the old content or the new one, never a mixture, whatever moment the writer died at: content
goes to a temporary sibling, is forced to the disk (fsync), and is renamed; then the folder is forced to the disk too.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import json
import math
import os
import re
import socket
import weakref
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from stepwell.errors import DataError, RunError
from stepwell.types import JSON

__all__ = [
    "Lock",
    "append_line",
    "cut_torn_tail",
    "disk_errors",
    "probe",
    "read_json",
    "read_text",
    "sha256",
    "sync_path",
    "sync_tree",
    "to_json",
    "write_atomic",
]

_REASONS = {
    errno.ENOSPC: ("the disk is full", "Free some space there and run again; whatever was complete is still there."),
    errno.EDQUOT: ("the disk quota is used up", "Free some space there and run again; whatever was complete is still there."),
    errno.EFBIG: (
        "the file grew beyond the size that is allowed",
        "Raise the limit (ulimit -f) and run again.",
    ),
    errno.EROFS: ("the file system is read-only", "Choose a folder that you may write to."),
    errno.EACCES: ("permission is denied", "Choose a folder that you may write to."),
    errno.EPERM: ("permission is denied", "Choose a folder that you may write to."),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "Choose another folder."),
    errno.EEXIST: ("a file of that name is in the way", "Choose another folder."),
}


@contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Tells an `OSError` of the block as a `RunError`; `doing` is the sentence's beginning, `"The report could not be written to runs/x"`.

    The errors of safetensors, which carry the operating system's number in their text, are told the same way.
    """
    try:
        yield
    except (OSError, SafetensorError) as fault:
        number = fault.errno if isinstance(fault, OSError) else _os_error_in(str(fault))
        why, remedy = _REASONS.get(number or 0, (str(fault), "Look after the disk and run again; whatever was complete is still there."))
        raise RunError(f"{doing}: {why}. {remedy}") from fault


def _os_error_in(text: str) -> int | None:
    found = re.search(r"os error (\d+)", text)
    return int(found[1]) if found else None


# -- whole files --------------------------------------------------------------------------------------------------------------


def write_atomic(path: Path, content: bytes | str) -> None:
    """Replaces the file at once, durably; on any failure the old file stays as it was."""
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.writing")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105 - Path.replace hides the call that tests interrupt
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_path(path.parent)


def read_text(path: Path, what: str) -> str:
    """The text of a file in UTF-8, unpacked where its name ends with .gz; `what` begins the error, `"Solutions"`.

    Raises:
        DataError: It cannot be read, unpacked or decoded.
    """
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(f"{what} cannot be read from {path}: {reason}.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{what} cannot be read from {path}: {error.reason} at byte {error.start} of a text in UTF-8.") from None


def probe(folder: Path, num_bytes: int = 1 << 20) -> None:
    """Writes and removes a file of `num_bytes`, so that a full or read-only disk is found before any work is done; raises `OSError`."""
    path = folder / ".probe"
    try:
        with path.open("wb") as file:
            file.write(bytes(num_bytes))
            file.flush()
            os.fsync(file.fileno())
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def sync_tree(folder: Path) -> None:
    """Forces every file and folder below `folder`, and itself, to the disk."""
    for path in folder.rglob("*"):
        sync_path(path)
    sync_path(folder)


def sync_path(path: Path) -> None:
    """Forces a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- JSON ---------------------------------------------------------------------------------------------------------------------


def to_json(value: JSON, what: str) -> str:
    """JSON text that reads back as exactly `value` (tuples as lists); `what` names the value in errors.

    Raises:
        ValueError: For NaN, infinity, keys that are not strings, and anything JSON has no form for: it would come back changed.

    >>> to_json({"step": 3, "order": [2, 0, 1]}, "state")
    '{"step": 3, "order": [2, 0, 1]}'
    """
    _check_json(value, what)
    return json.dumps(value)


def _check_json(value: JSON, where: str) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{where} has the key {key!r}; JSON keys are strings, and another one would come back changed.")
            _check_json(inner, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _check_json(inner, f"{where}[{index}]")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value}; JSON has no form for it. Use null (None) where there is no value.")
    elif not isinstance(value, str | int | None):
        raise ValueError(f"{where} is {value!r} of type {type(value).__name__}; allowed are None, bool, int, float, str, list, dict.")


def read_json(path: Path) -> dict[str, JSON]:
    """The JSON object in a file; `DataError` names the file where it holds no such thing."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as fault:
        raise DataError(f"{path} could not be read as JSON: {fault}.") from fault
    if not isinstance(value, dict):
        raise DataError(f"{path} holds a JSON {type(value).__name__}; an object is expected.")
    return value


# -- lines --------------------------------------------------------------------------------------------------------------------


def append_line(path: Path, line: str) -> None:
    """Appends one line, durably. If the disk refuses, the file is cut back to what it was and the `OSError` is raised."""
    data = line.encode() + b"\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        try:
            while data:
                data = data[os.write(descriptor, data) :]
            os.fsync(descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def cut_torn_tail(path: Path) -> None:
    """Cuts off what stands after the last line end: a line whose writer died in the middle of it."""
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)


# -- one process at a time ----------------------------------------------------------------------------------------------------

_held: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """A lock file that one process holds until it closes it or dies, by whatever death; raises `RunError` where another holds it.

    The file stays (removing it would let two processes hold two files of one name). A forked child does not keep the lock alive.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(self._descriptor, 200).decode(errors="replace").strip() or "another process"
            self.close()
            raise RunError(
                f"{path.parent} is in use by {owner}; a run folder belongs to one process at a time. "
                "Wait for it, stop it, or choose another folder."
            ) from None
        except OSError:
            self.close()
            raise
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        _held.add(self)

    def close(self) -> None:
        """Gives the lock back; closing twice is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _close_in_child() -> None:
    for lock in list(_held):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)
