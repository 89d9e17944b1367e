"""Solutions of anyone's, step by step: what `stepwell score FILE` reads.

Two layouts are known:

- `lines`: `{"id": ..., "prompt": text, "steps": [text, ...]}` a line; or with `messages`, `[{"role": ..., "content": text}, ...]`, in place
  of the prompt: the conversation that the steps answer. Other keys are passed over.
- `processbench`: ProcessBench's, `{"id": ..., "problem": text, "steps": [text, ...]}`.

Both may be JSON lines, one JSON list, or Parquet. `auto` tells them apart by their keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from stepwell.engine.chat import Message
from stepwell.entries import read_entries
from stepwell.errors import DataError
from stepwell.types import JSON

__all__ = ["Layout", "Solution", "read_solutions"]

Layout = Literal["auto", "lines", "processbench"]

_LINES = 'a line is {"id": text, "prompt": text, "steps": [text, ...]}, or has "messages" in place of "prompt"'
_FORMS: Mapping[Layout, str] = {
    "auto": f'{_LINES}; or "problem", as in ProcessBench',
    "lines": _LINES,
    "processbench": 'an entry of ProcessBench is {"id": text, "problem": text, "steps": [text, ...]}',
}
_ROLES = ("system", "user", "assistant")


class Solution(NamedTuple):
    """A conversation that ends with what is asked, and the steps of an answer."""

    id: str | int
    messages: tuple[Message, ...]
    steps: tuple[str, ...]


def read_solutions(path: Path, layout: Layout = "auto") -> list[Solution]:
    """All solutions of a file (packed, where its name ends with .gz), in order; empty lines are passed over.

    Raises:
        DataError: The file cannot be read or holds no solution; or an entry is not as described, has no steps, or holds half a character.
    """
    found = [_solution(entry, place, layout) for place, entry in read_entries(path, "Solutions", _FORMS[layout])]
    if not found:
        raise DataError(f"{path} holds no solution; {_FORMS[layout]}.")
    return found


def _solution(entry: JSON, place: str, layout: Layout) -> Solution:
    if not isinstance(entry, Mapping):
        raise DataError(f"{place} is a {type(entry).__name__}; {_FORMS[layout]}.")
    by_problem = layout == "processbench" or (layout == "auto" and "problem" in entry and not {"prompt", "messages"} & set(entry))
    asked = {"problem"} if by_problem else {"prompt", "messages"}
    if not {"id", "steps"} <= set(entry) or len(asked & set(entry)) != 1:
        raise DataError(f"{place} has the keys {', '.join(map(repr, entry)) or '(none)'}; {_FORMS[layout]}.")
    name, steps = entry["id"], entry["steps"]
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise DataError(f"{place}: id is {name!r}; it must be a text or a whole number.")
    if not isinstance(steps, list) or not steps:
        raise DataError(f"{place}: steps is {steps!r}; it must be a list of at least one text.")
    texts = tuple(_text(step, f"{place}, step {at}") for at, step in enumerate(steps, 1))
    (key,) = asked & set(entry)
    messages = _messages(entry[key], place) if key == "messages" else (Message("user", _spoken(entry[key], f"{place}, {key}")),)
    return Solution(name, messages, texts)


def _messages(value: JSON, place: str) -> tuple[Message, ...]:
    form = '{"role": "system" | "user" | "assistant", "content": text}'
    if not isinstance(value, list) or not value:
        raise DataError(f"{place}: messages is {value!r}; it must be a list of at least one {form}.")
    made: list[Message] = []
    for at, message in enumerate(value, 1):
        where = f"{place}, message {at}"
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise DataError(f"{where} is {message!r}; it must be {form}.")
        role = message["role"]
        if not isinstance(role, str) or role not in _ROLES:
            raise DataError(f"{where}: role is {role!r}; allowed is one of {', '.join(_ROLES)}.")
        if role == "system" and at > 1:
            raise DataError(f"{where}: role is 'system'; only the first message may be.")
        made.append(Message(role, _spoken(message["content"], f"{where}, content")))
    if made[-1].role != "user":
        raise DataError(f"{place}: the last message is of role {made[-1].role!r}; it must be of 'user': the steps are what answers it.")
    return tuple(made)


def _spoken(value: JSON, what: str) -> str:
    text = _text(value, what)
    if not text.strip():
        raise DataError(f"{what} is empty; it must say what the steps answer.")
    return text


def _text(value: JSON, what: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{what} is {value!r}; it must be a text.")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise DataError(f"{what} holds half a character (a lone surrogate), which cannot be encoded.")
    return value
