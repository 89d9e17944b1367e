"""Replaying recorded action strings in any domain: what `stepwell play shop --replay FILE.jsonl` answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from stepwell.errors import DataError, StepwellError, nearest
from stepwell.protocols import Domain, Environment
from stepwell.types import JSON, Action, Invalid, Reply, Task, Tool

__all__ = ["replay"]

_TASK_KEYS = ("difficulty", "seed", "split")
_CLICK = re.compile(r"click\[(.*)\]", re.DOTALL)


def replay(
    domain: Domain,
    lines: Iterable[str],
    parse: Callable[[str, Sequence[Tool]], Action | Invalid],
    *,
    split: str = "test",
    source: str = "replay",
) -> Iterator[dict[str, JSON]]:
    """Plays each line's actions from the start of its task, and says what happened.

    A line is `{"task": index in the split, "actions": [text, ...]}`, or with `{"difficulty", "seed", "split"}` as the task where tasks are
    generated. The answer is `{"task": ..., "steps": [{"observation", "reward", "done", "has_search_bar", "clickables", "admissible",
    "valid", "state_key"}, ...]}`, the first step being the start. Empty lines are passed over.

    Args:
        parse: Text to action, e.g. `codec("bracket").parse`.
        split: Of tasks that are given by index.
        source: Names the file in errors.

    Raises:
        DataError: With the line's number, where a line is not as described, or goes on after the end of its episode.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            place = f"{source}, line {number}"
            record = _record(line, place)
            actions = _actions(record, place)
            environment = domain.environment(_task(domain, record, split, place), 0)
            steps = [_step(environment, Reply(environment.start()))]
            for at, text in enumerate(actions, start=1):
                try:
                    reply = environment.step(parse(text, environment.tools))
                except StepwellError as error:
                    raise DataError(f"{place}: action {at}, {text!r}: {error}") from error
                steps.append(_step(environment, reply))
            yield {"task": record["task"], "steps": steps}


def _step(environment: Environment, reply: Reply) -> dict[str, JSON]:
    seen = reply.observation
    clicks = [match[1] for text in seen.admissible or () if (match := _CLICK.fullmatch(text))]
    return {
        "observation": seen.text,
        "reward": reply.reward,
        "done": reply.done,
        "has_search_bar": not reply.done and any(tool.name == "search" for tool in environment.tools),
        "clickables": clicks,
        "admissible": None if seen.admissible is None else list(seen.admissible),
        "valid": reply.valid,
        "state_key": seen.state_key,
    }


def _record(line: str, place: str) -> Mapping[str, JSON]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place}: not JSON ({error.msg} at column {error.colno}).") from None
    if not isinstance(record, Mapping):
        raise DataError(f"{place}: expected a JSON object with task and actions, got {type(record).__name__}.")
    _check_keys(record, ("actions", "task"), place)
    return record


def _check_keys(record: Mapping[str, JSON], keys: Sequence[str], place: str) -> None:
    unknown = [key for key in record if key not in keys]
    if unknown:
        raise DataError(f"{place}: unknown key {unknown[0]!r}; {nearest(unknown[0], keys)}.")
    missing = [key for key in keys if key not in record]
    if missing:
        raise DataError(f"{place}: {missing[0]} is missing; a line has {', '.join(keys)}.")


def _actions(record: Mapping[str, JSON], place: str) -> list[str]:
    actions = record["actions"]
    if not isinstance(actions, list) or not all(isinstance(action, str) for action in actions):
        raise DataError(f"{place}: actions is {actions!r}; it must be a list of texts such as 'search[red shoes]'.")
    return [str(action) for action in actions]


def _task(domain: Domain, record: Mapping[str, JSON], split: str, place: str) -> Task:
    wanted = record["task"]
    if isinstance(wanted, Mapping):
        _check_keys(wanted, _TASK_KEYS, f"{place}, task")
        difficulty, seed, where = (wanted[key] for key in _TASK_KEYS)
        if not isinstance(difficulty, int | float) or not 0 <= difficulty <= 1:
            raise DataError(f"{place}: difficulty is {difficulty!r}; allowed is 0 to 1.")
        if not isinstance(seed, int) or not isinstance(where, str):
            raise DataError(f"{place}: seed is {seed!r} and split {where!r}; they must be a whole number and a name.")
        return domain.task(float(difficulty), seed, where)
    tasks = domain.tasks(split)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 0 <= wanted < len(tasks):
        raise DataError(f"{place}: task is {wanted!r}; split {split!r} has tasks 0 to {len(tasks) - 1}.")
    return tasks[wanted]
