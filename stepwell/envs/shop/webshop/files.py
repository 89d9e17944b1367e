"""Reading the files of a data folder: plain or gzipped JSON, streamed record by record, every fault named with file and line."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from stepwell.errors import DataError
from stepwell.types import JSON

__all__ = ["find", "folder_of", "need", "read_json", "stream_array", "stream_object"]

_CHUNK = 1 << 18
_LONGEST = 1 << 26
"""A single value longer than this many characters is taken for a damaged file, so that a fault cannot eat the memory."""
_NUMBER_GOES_ON = re.compile(r"[-+.eE0-9]*")
"""What stands between a value and the end of the text read so far, where the value may be the beginning of a longer number."""
_BLANK = re.compile(r"[ \t\r\n]*")


def folder_of(data: str | Path) -> Path:
    """The data folder, if it is one."""
    folder = Path(data).expanduser()
    if not str(data):
        raise DataError("No data folder was given; WebShop needs data=DIR, a folder with items_shuffle_1000.json or items_shuffle.json.")
    if not folder.exists():
        raise DataError(f"The data folder {folder} does not exist; give a folder with items_shuffle_1000.json or items_shuffle.json.")
    if not folder.is_dir():
        raise DataError(f"{folder} is a file; the data folder of WebShop holds items_shuffle_1000.json or items_shuffle.json.")
    return folder


def find(folder: Path, *names: str) -> Path | None:
    """The first of the files `names` that is in the folder, as it is or with `.gz`."""
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    return None


def need(folder: Path, what: str, *names: str) -> Path:
    """As `find`; DataError where none is there."""
    path = find(folder, *names)
    if path is None:
        allowed = " or ".join(f"{name}[.gz]" for name in names)
        raise DataError(f"{folder} has no file with {what}; expected {allowed}.")
    return path


def read_json(path: Path) -> JSON:
    """The whole file as one JSON value."""
    with _Reader(path) as reader:
        value = reader.value("a JSON value")
        reader.end()
        return value


def stream_array(path: Path) -> Iterator[JSON]:
    """The elements of the JSON array that the file holds, one at a time, in memory for one."""
    with _Reader(path) as reader:
        reader.mark("[")
        if not reader.skip_mark("]"):
            yield reader.value("an element")
            while reader.skip_mark(","):
                yield reader.value("an element")
            reader.mark("]")
        reader.end()


def stream_object(path: Path) -> Iterator[tuple[str, JSON]]:
    """The keys and values of the JSON object that the file holds, one at a time."""
    with _Reader(path) as reader:
        reader.mark("{")
        if not reader.skip_mark("}"):
            yield reader.pair()
            while reader.skip_mark(","):
                yield reader.pair()
            reader.mark("}")
        reader.end()


class _Reader:
    """Decodes one JSON value after the other from a file, keeping only the text not yet used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decode = json.JSONDecoder().raw_decode
        self._file: IO[str] = _open(path)
        self._text = ""
        self._at = 0
        self._lines = 0  # line ends before self._text
        self._ended = False

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def value(self, what: str) -> JSON:
        self._skip_blanks()
        if self._at == len(self._text):
            raise self._fault(self._at, f"the file ends where {what} should stand")
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended:
                    truncated = f"; the file ends inside {what}, it may be truncated" if _is_open(error, self._text) else ""
                    raise self._fault(error.pos, f"{error.msg}{truncated}") from None
                if len(self._text) - self._at > _LONGEST:
                    raise self._fault(error.pos, f"{error.msg} (nothing fits in {_LONGEST} characters)") from None
                self._more()
                continue
            if not self._ended and _NUMBER_GOES_ON.fullmatch(self._text, end):
                self._more()
                continue
            self._at = end
            return cast(JSON, value)

    def pair(self) -> tuple[str, JSON]:
        key = self.value("a key")
        if not isinstance(key, str):
            raise self._fault(self._at, f"a key is {key!r}; keys are strings")
        self.mark(":")
        return key, self.value(f"the value of {key!r}")

    def mark(self, mark: str) -> None:
        if not self.skip_mark(mark):
            got = repr(self._text[self._at]) if self._at < len(self._text) else "the end of the file"
            raise self._fault(self._at, f"expected {mark!r}, got {got}")

    def skip_mark(self, mark: str) -> bool:
        self._skip_blanks()
        found = self._text.startswith(mark, self._at)
        self._at += found
        return found

    def end(self) -> None:
        self._skip_blanks()
        if self._at < len(self._text):
            raise self._fault(self._at, f"the JSON ended, but {self._text[self._at]!r} follows")

    def _skip_blanks(self) -> None:
        while True:
            match = _BLANK.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text) or self._ended:
                return
            self._more()

    def _more(self) -> None:
        self._lines += self._text.count("\n", 0, self._at)
        rest = self._text[self._at :]
        try:
            chunk = self._file.read(max(_CHUNK, len(rest)))
        except UnicodeDecodeError as error:
            raise self._fault(self._at, f"the text is not UTF-8 ({error.reason})") from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._fault(self._at, f"the gzip stream is damaged or truncated ({error})") from None
        self._ended = not chunk
        self._text, self._at = rest + chunk, 0

    def _fault(self, at: int, what: str) -> DataError:
        if not self._text and not self._lines and self._ended:
            return DataError(f"{self._path} is empty; it should hold JSON. Fetch the file again.")
        line = self._lines + self._text.count("\n", 0, at) + 1
        return DataError(f"{self._path}, line {line}: {what}. Fetch the file again, or mend it there.")


def _is_open(error: json.JSONDecodeError, text: str) -> bool:
    """True where the text stops inside a value."""
    return error.msg.startswith("Unterminated string") or not text[error.pos :].strip()


def _open(path: Path) -> IO[str]:
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rt", encoding="utf-8")
        return path.open(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path} cannot be opened ({error.strerror or error}).") from None
