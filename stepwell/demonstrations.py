"""Recorded demonstrations: what `cloning.demonstrations=FILE.jsonl` holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stepwell.errors import ConfigError, DataError
from stepwell.protocols import Domain
from stepwell.types import JSON, Action, Invalid, Task, Tool

__all__ = ["Demonstration", "read_demonstrations"]

_FORM = (
    'a demonstration is {"task": key of a training task, "actions": [text, ...]}, '
    'or with "difficulty" and "seed" in place of "task" where tasks are generated'
)
_KEYS = ({"task", "actions"}, {"difficulty", "seed", "actions"})


class Demonstration(NamedTuple):
    """A task and the actions that somebody took in it."""

    task: Task
    actions: Sequence[Action]


def read_demonstrations(path: Path, domain: Domain, parse: Callable[[str, Sequence[Tool]], Action | Invalid]) -> list[Demonstration]:
    """All demonstrations of a JSONL file; empty lines are passed over.

    Args:
        path: The file.
        domain: Where they were taken.
        parse: Text to action.

    Raises:
        DataError: With the line's number, where a line is not as described or a text is no action; or the file holds none.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise DataError(f"Demonstrations cannot be read from {path}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"Demonstrations cannot be read from {path}: {error.reason} at byte {error.start} of a text in UTF-8.") from None
    known = {task.key: task for task in domain.tasks("train")}
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            place = f"{path}, line {number}"
            entry = _entry(line, place)
            task = _task(entry, domain, known, place)
            found.append(Demonstration(task, _actions(entry, domain.environment(task, 0).tools, parse, place)))
    if not found:
        raise DataError(f"{path} holds no demonstration.")
    return found


def _entry(line: str, place: str) -> Mapping[str, JSON]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise DataError(f"{place}: not JSON ({error}); {_FORM}.") from None
    if not isinstance(entry, Mapping) or set(entry) not in _KEYS:
        got = f"the keys {', '.join(map(repr, entry)) or '(none)'}" if isinstance(entry, Mapping) else f"a {type(entry).__name__}"
        raise DataError(f"{place} has {got}; {_FORM}.")
    return entry


def _task(entry: Mapping[str, JSON], domain: Domain, known: Mapping[str, Task], place: str) -> Task:
    if "task" in entry:
        key = entry["task"]
        if not isinstance(key, str) or key not in known:
            example = f", such as {next(iter(known))!r}" if known else " here: tasks are generated"
            raise DataError(f"{place}: task is {key!r}, which is no training task{example}; {_FORM}.")
        return known[key]
    difficulty, seed = entry["difficulty"], entry["seed"]
    if not isinstance(difficulty, int | float) or not isinstance(seed, int) or isinstance(difficulty, bool) or isinstance(seed, bool):
        raise DataError(f"{place}: difficulty is {difficulty!r} and seed {seed!r}; they must be a number in [0, 1] and a whole number.")
    try:
        return domain.task(float(difficulty), seed, "train")
    except ConfigError as error:
        raise DataError(f"{place}: {error}") from None


def _actions(
    entry: Mapping[str, JSON], tools: Sequence[Tool], parse: Callable[[str, Sequence[Tool]], Action | Invalid], place: str
) -> list[Action]:
    texts = entry["actions"]
    if not isinstance(texts, list) or not texts:
        raise DataError(f"{place}: actions is {texts!r}; it must be a list of at least one text, such as 'search[red shoes]'.")
    actions = []
    for at, text in enumerate(texts, 1):
        action = parse(text, tools) if isinstance(text, str) else Invalid("", "it must be a text")
        if isinstance(action, Invalid):
            raise DataError(f"{place}, action {at}: {text!r} is no action: {action.reason.rstrip('.')}.")
        if any("\ud800" <= letter <= "\udfff" for letter in str(text)):
            raise DataError(f"{place}, action {at}: {text!r} holds half a character (a lone surrogate), which cannot be encoded.")
        actions.append(action)
    return actions
