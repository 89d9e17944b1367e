"""A file of entries: a JSON line each, one JSON list, or the rows of a Parquet file."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stepwell.errors import DataError, MissingExtraError
from stepwell.files import read_text
from stepwell.types import JSON

__all__ = ["read_entries"]

_LIST_OF_OBJECTS = re.compile(r"\s*\[\s*[{\]]")


def read_entries(path: Path, what: str, form: str) -> Iterator[tuple[str, JSON]]:
    """Each entry of a file with the place that it has there, such as `labels.jsonl, line 3`; in order.

    `.parquet` is read with pyarrow. Anything else is text (packed, where the name ends with .gz): one JSON list of objects, or a JSON line
    each, of which empty ones are passed over.

    Args:
        path: The file.
        what: Begins the error of a file that cannot be read, `"Step labels"`.
        form: Ends the errors: how an entry looks.

    Raises:
        DataError: It cannot be read, is not JSON, or holds half a character; or is no Parquet file.
        MissingExtraError: A Parquet file, and pyarrow is not installed.
    """
    if path.suffix == ".parquet":
        yield from _rows(path, what)
        return
    text = read_text(path, what)
    if _LIST_OF_OBJECTS.match(text):
        listed = _json(text, str(path), form)
        assert isinstance(listed, list)
        yield from ((f"{path}, entry {number}", entry) for number, entry in enumerate(listed, 1))
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{path}, line {number}", _json(line, f"{path}, line {number}", form)


def _json(text: str, place: str, form: str) -> JSON:
    try:
        value: JSON = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not JSON ({error}); {form}.") from None
    if "\\u" in text:
        _check_whole(value, place)
    return value


def _check_whole(value: JSON, place: str) -> None:
    """An escape can write half a character, which is no text."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DataError(f"{place} holds half a character (a lone surrogate), which cannot be encoded.") from None


def _rows(path: Path, what: str) -> Iterator[tuple[str, JSON]]:
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet") from None
    try:
        rows = parquet.read_table(path).to_pylist()
    except (OSError, arrow.ArrowException) as error:
        raise DataError(f"{what} cannot be read from {path}: {str(error).splitlines()[0]}.") from None
    yield from ((f"{path}, row {number}", row) for number, row in enumerate(rows, 1))
