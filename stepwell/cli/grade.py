"""`stepwell grade`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepwell.cli.options import Json
from stepwell.cli.output import note, out, print_json, told
from stepwell.errors import ConfigError, DataError, nearest
from stepwell.sandbox.isolation import IsolationName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stepwell.grading.graded import Graded
    from stepwell.grading.kinds import Kind
    from stepwell.types import JSON

__all__ = ["grade"]

_SHOWN = 10
"""Reasons that are told one by one; the others are counted."""


@told
def grade(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help='Lines of {"gold" or "tests", "answer"}; .gz is unpacked.')],
    grader: Annotated[str, typer.Option("--with", metavar="GRADER", help="maths, exact, numeric, choice, or code.")],
    boxed: Annotated[bool, typer.Option("--boxed", help="The answer must stand in \\boxed{}; nothing else is read.")] = False,
    limit: Annotated[
        float | None,
        typer.Option("--limit", metavar="SECONDS", help="That an answer may take; by default the grader's own.", show_default=False),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Worker processes; by default the number of cores.", show_default=False)
    ] = None,
    isolation: Annotated[
        IsolationName | None,
        typer.Option(help="What programs run in, for code: by default the best that this machine offers.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Grade anyone's answers.

    Each line is an object of "answer" and of what is right: "gold" (a text or a number), or for code "tests". With --json each is answered
    by a line of {"verdict", "extracted", "seconds"}, in order; a verdict is right, wrong, unparsed, timeout or error. Other keys are passed
    over.

    \b
    stepwell grade answers.jsonl --with maths --json > graded.jsonl
    stepwell grade answers.jsonl --with exact --boxed
    stepwell grade programs.jsonl --with code --limit 10
    """
    from stepwell.grading.kinds import KINDS, Options

    if grader not in KINDS:
        raise ConfigError(f"--with is {grader!r}; {nearest(grader, KINDS)}.")
    if limit is not None and not 0 < limit < 86400:
        raise ConfigError(f"--limit is {limit}; give seconds above 0, such as 5.")
    kind = KINDS[grader]
    if not kind.limited and (limit is not None or workers is not None):
        raise ConfigError(f"--limit and --workers are for graders that work in processes; {grader} compares at once. Leave them out.")
    if isolation is not None and grader != "code":
        raise ConfigError(f"--isolation is for programs; {grader} runs none. Leave it out.")
    items = list(_items(file, kind))
    with kind.open(Options("boxed" if boxed else "any", limit, workers, isolation)) as opened:
        graded = opened.grade_all([(gold, answer) for _, gold, answer in items])
    _explain([place for place, _, _ in items], graded)
    if json:
        for one in graded:
            print_json(one.to_json())
    else:
        _table(graded)


def _items(file: Path, kind: Kind) -> Iterator[tuple[str, JSON, str]]:
    """Place in the file, what is right, and the answer."""
    from stepwell.entries import read_entries

    form = f'a line is {{"{kind.key}": {kind.form}, "answer": text}}'
    empty = True
    for place, entry in read_entries(file, "Answers", form):
        empty = False
        if not isinstance(entry, Mapping) or not {kind.key, "answer"} <= set(entry):
            got = f"the keys {', '.join(map(repr, entry)) or '(none)'}" if isinstance(entry, Mapping) else f"a {type(entry).__name__}"
            raise DataError(f"{place} has {got}; {form}.")
        right, answer = entry[kind.key], entry["answer"]
        if not kind.fits(right):
            raise DataError(f"{place}: {kind.key} is {str(right)[:80]!r}; it must be {kind.form}.")
        if not isinstance(answer, str):
            raise DataError(f"{place}: answer is {str(answer)[:80]!r}; it must be a text.")
        yield place, right, answer
    if empty:
        raise DataError(f"{file} holds no answer; {form}.")


def _explain(places: Sequence[str], graded: Sequence[Graded]) -> None:
    reasons = [(place, one) for place, one in zip(places, graded, strict=True) if one.reason]
    for place, one in reasons[:_SHOWN]:
        note(f"{place}: {one.grade}: {one.reason}")
    if len(reasons) > _SHOWN:
        note(f"{len(reasons) - _SHOWN} more lines have a reason.")


def _table(graded: Sequence[Graded]) -> None:
    from rich.table import Table

    from stepwell.grading.graded import Grade

    table = Table(box=None, pad_edge=False)
    for name in ("verdict", "answers", "share"):
        table.add_column(name, justify="left" if name == "verdict" else "right")
    for verdict in Grade:
        count = sum(one.grade is verdict for one in graded)
        table.add_row(verdict.value, str(count), f"{100 * count / len(graded):.1f} %")
    out().print(table)
