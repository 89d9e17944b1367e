"""How solutions with labelled steps are written down: a layout for each of the files that people publish.

A layout is known by its keys; further keys are passed over.

- plain (TRL's too): `prompt`, `steps` or `completions`, `labels`: true, false, a number in [0, 1], or a rating of -1, 0, 1; null where
  nobody has said.
- Math-Shepherd: `input`, `label`: `+` or `-` in the label where the input has the mark.
- marked: `question`, `process`, `labels`: a label for each mark of the process.
- PRM800K: `question`, `label`: ratings of several completions of each step.
- PRM800K by rows: `instruction`, `responses`, `next_response`, `rating`: an entry for each rated completion.
- ProcessBench: `problem`, `steps`, `label`: the first wrong step, counted from 0, or -1. Nobody has said anything about the steps after it.
- PRMBench: `modified_process`, `error_steps`: the wrong steps, counted from 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from stepwell.errors import DataError
from stepwell.types import JSON

__all__ = ["FORM", "LAYOUTS", "LabelledSolution", "Labels", "Layout", "layout_of", "prm800k_rows"]

FORM = 'a line is {"prompt": text, "steps": [text, ...], "labels": [true | false | number | null, ...]}'


class LabelledSolution(NamedTuple):
    """A problem, the steps of a solution, and how good each is said to be.

    Attributes:
        labels: In [0, 1]; None where nobody has said, or where what is said cannot be right (an error beyond the last step).
        name: The solution's own, where it has one.
        subset: Of the file, where it has some.
    """

    prompt: str
    steps: tuple[str, ...]
    labels: tuple[float | None, ...]
    name: str = ""
    subset: str = ""


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


Entry = Mapping[str, JSON]
Read = Callable[[Entry, str, Labels], Iterator[LabelledSolution]]


class Layout(NamedTuple):
    """A layout: its name, the keys that it is known by, and how an entry is read (None: only all of them together, see `prm800k_rows`)."""

    name: str
    keys: tuple[str, ...]
    read: Read | None


def layout_of(entry: JSON, place: str, only: tuple[str, ...] = ()) -> tuple[Layout, Entry]:
    """The layout that an entry has, of all or of those that are named.

    Raises:
        DataError: None of them; what was expected and what was found are listed.
    """
    if not isinstance(entry, Mapping):
        raise DataError(f"{place} is a {type(entry).__name__}; {FORM}.")
    allowed = [layout for layout in LAYOUTS if not only or layout.name in only]
    for layout in allowed:
        if set(layout.keys) <= set(entry):
            return layout, entry
    known = "; ".join(f"{layout.name}: {', '.join(layout.keys)}" for layout in allowed)
    found = f"{place} has the keys {', '.join(map(repr, entry)) or '(none)'}"
    if only:
        raise DataError(f"{found}; expected are those of {known}.")
    raise DataError(f"{found}; {FORM}, or has the keys of a known file ({known}).")


def _plain(entry: Entry, place: str, how: Labels) -> Iterator[LabelledSolution]:
    named = "steps" if "steps" in entry else "completions"
    prompt = _text(entry["prompt"], "prompt", place)
    texts, labels = _texts(entry[named], named, place), entry["labels"]
    if not isinstance(labels, list):
        raise DataError(f"{place}: labels is {labels!r}; it must be a list. {FORM[0].upper()}{FORM[1:]}.")
    if len(texts) != len(labels):
        raise DataError(f"{place}: {len(texts)} steps and {len(labels)} labels; every step needs one (null where nobody has said).")
    worths = tuple(_worth(label, f"{place}, label {at}", how) for at, label in enumerate(labels, 1))
    yield LabelledSolution(prompt, texts, worths, _name(entry, "id"))


def _shepherd(entry: Entry, place: str, how: Labels) -> Iterator[LabelledSolution]:
    text, labelled = (_text(entry[name], name, place) for name in ("input", "label"))
    pieces = _marked(text, "input", place, how)
    signs, rest = [], labelled
    for at, piece in enumerate(pieces, 1):
        if not rest.startswith(piece) or rest[len(piece) : len(piece) + 1] not in ("+", "-"):
            raise DataError(
                f"{place}: the label does not say + or - after step {at} of {len(pieces)}; "
                f"it is the input with + or - for each {how.mark!r}."
            )
        signs.append(rest[len(piece)])
        rest = rest[len(piece) + 1 :]
    steps = [piece.strip() for piece in pieces]
    first = re.search(r"\s*Step 1:", steps[0])
    prompt, steps[0] = (steps[0][: first.start()], steps[0][first.start() :].strip()) if first else ("", steps[0])
    if not prompt.strip():
        raise DataError(f"{place}: the input has no problem before 'Step 1:'.")
    yield LabelledSolution(prompt.strip(), tuple(steps), tuple(1.0 if sign == "+" else 0.0 for sign in signs))


def _process(entry: Entry, place: str, how: Labels) -> Iterator[LabelledSolution]:
    pieces = _marked(_text(entry["process"], "process", place), "process", place, how)
    steps: JSON = [piece.strip() for piece in pieces]
    yield from _plain({"prompt": entry["question"], "steps": steps, "labels": entry["labels"]}, place, how)


def _marked(text: str, name: str, place: str, how: Labels) -> list[str]:
    """The pieces of a text that end with a mark."""
    *pieces, tail = text.split(how.mark)
    if not pieces:
        raise DataError(f"{place}: the mark {how.mark!r} is nowhere in the {name}; it stands after each step (reward.mark).")
    if tail.strip():
        raise DataError(f"{place}: {tail.strip()[:40]!r} follows the last mark {how.mark!r}; every step ends with one.")
    return pieces


def _prm800k(entry: Entry, place: str, how: Labels) -> Iterator[LabelledSolution]:
    """The chosen path is one solution; every other completion is another, of which only the last step is labelled."""
    question, label = entry["question"], entry["label"]
    if not isinstance(question, Mapping) or not isinstance(label, Mapping) or not isinstance(label.get("steps"), list):
        raise DataError(f"{place} has question and label, but no label.steps as PRM800K has; {FORM}.")
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


def prm800k_rows(rows: Sequence[tuple[str, Entry]], how: Labels) -> Iterator[LabelledSolution]:
    """PRM800K with a row for each completion: the steps before it are `responses`, and `is_preferred_response` says that the solution went
    on from it. Made to solutions as PRM800K's own lines are; every rating becomes exactly one label.

    A problem with several ways to go on from the same steps gives a solution for each, whose common steps are labelled in the first.
    """
    rated = Labels("rating", how.neutral)
    read = [_row(entry, place, rated) for place, entry in rows]
    paths: dict[tuple[str, tuple[str, ...]], float | None] = {}
    others: list[LabelledSolution] = []
    for prompt, steps, worth, preferred in read:
        if preferred and (prompt, steps) not in paths:
            paths[prompt, steps] = worth
        elif worth is not None:
            others.append(LabelledSolution(prompt, steps, (*(None for _ in steps[1:]), worth)))
    went_on = {(prompt, steps[:-1]) for prompt, steps in paths}
    told: set[tuple[str, tuple[str, ...]]] = set()
    for prompt, steps in paths:
        if (prompt, steps) in went_on:
            continue
        before = [(prompt, steps[:end]) for end in range(1, len(steps) + 1)]
        yield LabelledSolution(prompt, steps, tuple(None if one in told else paths.get(one) for one in before))
        told.update(before)
    yield from others


def _row(entry: Entry, place: str, rated: Labels) -> tuple[str, tuple[str, ...], float | None, bool]:
    rating = entry["rating"]
    unrated = rating is None or (isinstance(rating, float) and rating != rating)
    steps = (*_texts(entry["responses"], "responses", place), _text(entry["next_response"], "next_response", place))
    worth = None if unrated else _worth(rating, f"{place}, rating", rated)
    return _text(entry["instruction"], "instruction", place), steps, worth, bool(entry.get("is_preferred_response"))


def _processbench(entry: Entry, place: str, how: Labels) -> Iterator[LabelledSolution]:
    steps, label = _texts(entry["steps"], "steps", place), entry["label"]
    if isinstance(label, bool) or not isinstance(label, int) or not -1 <= label < len(steps):
        raise DataError(f"{place}: label is {label!r} with {len(steps)} steps; it is the first wrong step, from 0 on, or -1 for none.")
    good = len(steps) if label == -1 else label
    labels = (1.0,) * good + ((0.0,) if label >= 0 else ()) + (None,) * (len(steps) - good - 1)
    name = _name(entry, "id")
    yield LabelledSolution(_text(entry["problem"], "problem", place), steps, labels, name, name.rpartition("-")[0])


def _prmbench(entry: Entry, place: str, how: Labels) -> Iterator[LabelledSolution]:
    """A row whose error steps lie beyond its last step is numbered by another text: nothing can be said about any of its steps."""
    asked = next((key for key in ("modified_question", "question", "original_question") if isinstance(entry.get(key), str)), "question")
    steps, wrong = _texts(entry["modified_process"], "modified_process", place), entry["error_steps"]
    if not isinstance(wrong, list) or any(isinstance(at, bool) or not isinstance(at, int) for at in wrong):
        raise DataError(f"{place}: error_steps is {wrong!r}; it must be a list of numbers of steps, from 1 on.")
    inside = all(1 <= at <= len(steps) for at in wrong)
    labels = tuple((0.0 if at in wrong else 1.0) if inside else None for at in range(1, len(steps) + 1))
    prompt = _text(entry.get(asked), asked, place)
    yield LabelledSolution(prompt, steps, labels, _name(entry, "idx"), _name(entry, "classification"))


LAYOUTS = (
    Layout("plain", ("prompt", "steps", "labels"), _plain),
    Layout("TRL", ("prompt", "completions", "labels"), _plain),
    Layout("Math-Shepherd", ("input", "label"), _shepherd),
    Layout("marked", ("question", "process", "labels"), _process),
    Layout("PRM800K", ("question", "label"), _prm800k),
    Layout("PRM800K by rows", ("instruction", "responses", "next_response", "rating"), None),
    Layout("ProcessBench", ("problem", "steps", "label"), _processbench),
    Layout("PRMBench", ("modified_process", "error_steps"), _prmbench),
)


def _name(entry: Entry, key: str) -> str:
    return "" if entry.get(key) is None else str(entry[key])


def _texts(value: JSON, name: str, place: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise DataError(f"{place}: {name} is {value!r}; it must be a list of texts. {FORM[0].upper()}{FORM[1:]}.")
    return tuple(_text(step, f"step {at}", place) for at, step in enumerate(value, 1))


def _text(value: JSON, name: str, place: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{place}: {name} is {value!r}; it must be a text. {FORM[0].upper()}{FORM[1:]}.")
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
