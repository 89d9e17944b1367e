"""Solutions whose steps somebody has labelled: what `reward.kind=labelled reward.data=FILE.jsonl` reads.

Three layouts are known, told apart by their keys:

- `{"prompt": text, "steps": [text, ...], "labels": [label, ...]}`, also with `completions` in place of `steps`. A label is true or false, a
  number in [0, 1], one of -1, 0, 1 where the scale is `rating`, or null: nobody has said.
- Math-Shepherd's: `{"input": text, "label": text}`, where a mark stands after each step of the input, and `+` or `-` in its place in the
  label.
- PRM800K's: `{"question": {"problem": ...}, "label": {"steps": [...]}}`, with several completions for a step, rated -1, 0 or 1. The
  chosen path is one solution; every other completion is another, of which only its last step is labelled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from stepwell.errors import DataError
from stepwell.files import read_text
from stepwell.types import JSON

__all__ = ["LabelledSolution", "Labels", "read_step_labels"]

_FORM = 'a line is {"prompt": text, "steps": [text, ...], "labels": [true | false | number | null, ...]}'


class LabelledSolution(NamedTuple):
    """A problem, the steps of a solution, and how good each is said to be, in [0, 1]; None where nobody has said."""

    prompt: str
    steps: tuple[str, ...]
    labels: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Labels:
    """How labels are read.

    Attributes:
        scale: `share`: truth or a number in [0, 1]. `rating`: -1 (bad), 0 (neutral) or 1 (good).
        neutral: What a rating of 0 is worth, in [0, 1].
        mark: What stands after each step of a text in Math-Shepherd's layout.
    """

    scale: Literal["share", "rating"] = "share"
    neutral: float = 0.5
    mark: str = "ки"


def read_step_labels(path: Path, how: Labels = Labels()) -> list[LabelledSolution]:
    """All labelled solutions of a JSONL file (or one that ends with .gz); empty lines are passed over.

    Raises:
        DataError: With the line's number, where a line is not as described, or labels and steps are of different number; or no step in the
            file is labelled.
    """
    found = [
        solution
        for number, line in enumerate(read_text(path, "Step labels").split("\n"), 1)
        if line.strip()
        for solution in _solutions(line, f"{path}, line {number}", how)
    ]
    if not any(label is not None for solution in found for label in solution.labels):
        raise DataError(f"{path} holds no labelled step; {_FORM}.")
    return found


def _solutions(line: str, place: str, how: Labels) -> Iterator[LabelledSolution]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise DataError(f"{place}: not JSON ({error}); {_FORM}.") from None
    if not isinstance(entry, Mapping):
        raise DataError(f"{place} is a {type(entry).__name__}; {_FORM}.")
    if {"input", "label"} <= set(entry):
        yield _shepherd(entry, place, how)
    elif {"question", "label"} <= set(entry):
        yield from _prm800k(entry, place, how)
    else:
        yield _plain(entry, place, how)


def _plain(entry: Mapping[str, JSON], place: str, how: Labels) -> LabelledSolution:
    steps, labels = entry.get("steps", entry.get("completions")), entry.get("labels")
    prompt = _text(entry.get("prompt"), "prompt", place)
    if not isinstance(steps, list) or not isinstance(labels, list):
        raise DataError(f"{place} has the keys {', '.join(map(repr, entry))}; {_FORM}.")
    if len(steps) != len(labels):
        raise DataError(f"{place}: {len(steps)} steps and {len(labels)} labels; every step needs one (null where nobody has said).")
    texts = tuple(_text(step, f"step {at}", place) for at, step in enumerate(steps, 1))
    return LabelledSolution(prompt, texts, tuple(_worth(label, f"{place}, label {at}", how) for at, label in enumerate(labels, 1)))


def _shepherd(entry: Mapping[str, JSON], place: str, how: Labels) -> LabelledSolution:
    text, labelled = (_text(entry[name], name, place) for name in ("input", "label"))
    pieces = text.split(how.mark)
    if len(pieces) < 2:
        raise DataError(f"{place}: the mark {how.mark!r} is nowhere in the input; it stands after each step (reward.mark).")
    steps = [piece.strip() for piece in pieces[:-1]]
    if pieces[-1].strip():
        raise DataError(f"{place}: {pieces[-1].strip()[:40]!r} follows the last mark {how.mark!r}; every step ends with one.")
    signs, rest = [], labelled
    for at, piece in enumerate(pieces[:-1], 1):
        if not rest.startswith(piece) or rest[len(piece) : len(piece) + 1] not in ("+", "-"):
            raise DataError(
                f"{place}: the label does not say + or - after step {at} of {len(steps)}; "
                f"it is the input with + or - for each {how.mark!r}."
            )
        signs.append(rest[len(piece)])
        rest = rest[len(piece) + 1 :]
    first = re.search(r"\s*Step 1:", steps[0])
    prompt, steps[0] = (steps[0][: first.start()], steps[0][first.start() :].strip()) if first else ("", steps[0])
    if not prompt.strip():
        raise DataError(f"{place}: the input has no problem before 'Step 1:'.")
    return LabelledSolution(prompt.strip(), tuple(steps), tuple(1.0 if sign == "+" else 0.0 for sign in signs))


def _prm800k(entry: Mapping[str, JSON], place: str, how: Labels) -> Iterator[LabelledSolution]:
    question, label = entry["question"], entry["label"]
    if not isinstance(question, Mapping) or not isinstance(label, Mapping) or not isinstance(label.get("steps"), list):
        raise DataError(f"{place} has question and label, but no label.steps as PRM800K has; {_FORM}.")
    prompt = _text(question.get("problem"), "question.problem", place)
    rated = Labels("rating", how.neutral)
    path: list[tuple[str, float | None]] = []
    steps = label["steps"]
    assert isinstance(steps, list)
    for at, step in enumerate(steps, 1):
        where = f"{place}, step {at}"
        said, chosen = _completions(step, where, rated)
        for number, (text, worth) in enumerate(said):
            if number != chosen and worth is not None:
                yield LabelledSolution(prompt, (*(t for t, _ in path), text), (*(None for _ in path), worth))
        if chosen is None:
            break
        path.append(said[chosen])
    if path:
        yield LabelledSolution(prompt, tuple(t for t, _ in path), tuple(w for _, w in path))


def _completions(step: JSON, where: str, rated: Labels) -> tuple[list[tuple[str, float | None]], int | None]:
    """Texts and worths of a step's completions, a human's last; and which of them the solution went on from."""
    if not isinstance(step, Mapping) or not isinstance(step.get("completions") or [], list):
        raise DataError(f"{where} has no list of completions.")
    human, listed = step.get("human_completion"), step.get("completions") or []
    assert isinstance(listed, list)
    said = []
    for one in [*listed, *([human] if isinstance(human, Mapping) else [])]:
        if not isinstance(one, Mapping):
            raise DataError(f"{where}: a completion is {one!r}; it must be an object with text and rating.")
        said.append((_text(one.get("text"), "text", where), _worth(one.get("rating"), f"{where}, rating", rated)))
    chosen = step.get("chosen_completion")
    if isinstance(human, Mapping) and chosen is None:
        return said, len(said) - 1
    if chosen is not None and (not isinstance(chosen, int) or not 0 <= chosen < len(listed)):
        raise DataError(f"{where}: chosen_completion is {chosen!r} of {len(listed)}.")
    return said, chosen


def _text(value: JSON, name: str, place: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{place}: {name} is {value!r}; it must be a text. {_FORM[0].upper()}{_FORM[1:]}.")
    return value


def _worth(label: JSON, place: str, how: Labels) -> float | None:
    if label is None:
        return None
    if isinstance(label, bool):
        return float(label)
    if isinstance(label, int | float):
        if how.scale == "rating" and label in (-1, 0, 1):
            return {-1: 0.0, 0: how.neutral, 1: 1.0}[int(label)]
        if how.scale == "share" and 0 <= label <= 1:
            return float(label)
    allowed = "true, false, a number in [0, 1], or null" if how.scale == "share" else "-1, 0, 1, or null"
    hint = " (for ratings of -1, 0 and 1 set reward.scale=rating)" if how.scale == "share" else ""
    raise DataError(f"{place} is {label!r}; allowed is {allowed}{hint}.")
