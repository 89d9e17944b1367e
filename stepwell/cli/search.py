"""`stepwell search`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stepwell.cli.evaluate import open_target
from stepwell.cli.options import Json, Settings
from stepwell.cli.output import note, out, print_json, told
from stepwell.errors import ConfigError, nearest

if TYPE_CHECKING:
    from rich.table import Table

    from stepwell.evaluation.intervals import Interval
    from stepwell.searching.found import Found
    from stepwell.searching.settings import Method

__all__ = ["search"]

_DEFAULT = "best_of_n"


@told
def search(
    target: Annotated[
        str, typer.Argument(metavar="RUN|MODEL", help="A run's folder; or a model's folder, hub id, .gguf file, or smollm2-135m-instruct.")
    ],
    settings: Settings = None,
    domain: Annotated[
        str | None,
        typer.Option(help="Where to play, as in `stepwell eval`; by default where the run was trained.", show_default=False),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(metavar="RUN|oracle", help="A run with a judge; or `oracle`, the checker of a reasoning domain.", show_default=False),
    ] = None,
    n: Annotated[int, typer.Option(help="Candidates that are sampled to each problem.")] = 16,
    method: Annotated[
        str,
        typer.Option(help="One or more, separated by commas: best_of_n, majority, weighted, group, beam, dvts, lookahead."),
    ] = _DEFAULT,
    aggregate: Annotated[
        Literal["last", "min", "product", "mean", "sum", "log_odds"] | None,
        typer.Option(help="How the scores of steps become one; by default what fits the judge.", show_default=False),
    ] = None,
    ns: Annotated[
        str,
        typer.Option("--ns", metavar="1,2,4,8,16", help="For which numbers of candidates; by default powers of two.", show_default=False),
    ] = "",
    problems: Annotated[
        int | None, typer.Option(metavar="N", help="Problems; by default the run's evaluation.episodes.", show_default=False)
    ] = None,
    split: Annotated[str, typer.Option(help="Problems of this split, from its first on.")] = "test",
    temperature: Annotated[float, typer.Option(help="Of sampling.")] = 1.0,
    beam: Annotated[
        int | None, typer.Option(metavar="N", help="How many go on after each step of a tree; by default n / 4.", show_default=False)
    ] = None,
    ahead: Annotated[
        int | None, typer.Option(metavar="N", help="Steps that lookahead looks ahead, greedily; by default two.", show_default=False)
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option(help="What ends a step where a message is the whole solution; by default a blank line.", show_default=False),
    ] = None,
    checkpoint: Annotated[
        Literal["last", "best"], typer.Option("--checkpoint", help="Of the run that answers: the last, or the best by evaluation.")
    ] = "last",
    judge_checkpoint: Annotated[
        Literal["last", "best"] | None,
        typer.Option("--judge-checkpoint", help="The same of the judge's run; by default the last.", show_default=False),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of sampling; by default the run's.", show_default=False)] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write search.json, choices.jsonl and pictures there.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Sample several answers to each problem and let a judge or a vote choose: success by the number of candidates and by what they cost.

    The ceiling (one of them is right) and the floor (majority of equivalent answers) are always shown; 95 % intervals over problems.

    \b
    stepwell search runs/mine --judge runs/mine --n 16
    stepwell search runs/mine --judge oracle --method best_of_n,weighted,beam --n 16 --problems 100 --out search/
    stepwell search MODEL --domain math500 --judge runs/prm --method weighted --n 8 rollout.max_tokens=1024
    """
    from stepwell.searching.search import search as find
    from stepwell.searching.settings import SearchSettings

    asked = SearchSettings(
        n=n,
        methods=_methods(method),
        ns=_numbers(ns),
        aggregate=aggregate,
        problems=problems,
        split=split,
        temperature=temperature,
        seed=seed,
        beam=beam,
        ahead=ahead,
        separator=None if separator is None else separator.replace("\\n", "\n"),
        judge_checkpoint=judge_checkpoint,
    )
    if folder is not None:
        _check_folder(folder)
    opened = open_target(target, domain, settings or (), checkpoint)
    note(f"Searching: {opened.origin}")
    found = find(opened, judge, asked)
    if folder is not None:
        from stepwell.searching.pictures import write

        note(f"Wrote {', '.join(str(path) for path in write(found, folder))}")
    if json:
        print_json(found.to_json())
        return
    _tell(found)


def _check_folder(folder: Path) -> None:
    """Before anything is sampled."""
    from stepwell.files import disk_errors, probe

    with disk_errors(f"The search could not be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        probe(folder)


def _methods(text: str) -> tuple[Method, ...]:
    from stepwell.searching.settings import METHODS

    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name not in METHODS:
            raise ConfigError(f"There is no method {name!r}; {nearest(name, METHODS)}.")
    return tuple(method for name in names for method in METHODS if method == name)


def _numbers(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--ns is {text!r}; give whole numbers separated by commas, such as 1,2,4,8,16.") from None


def _tell(found: Found) -> None:
    console = out()
    console.print(f"{found.problems} problems of {found.domain} ({found.split}), {found.n} candidates each; {found.model}", markup=False)
    if found.judge:
        console.print(f"judge: {found.judge}; steps are put together by {found.aggregate}", markup=False)
    for count, what in (
        (found.unfinished, "candidates are unfinished or give no answer, and are not eligible"),
        (found.left_out, "candidates have no verdict, and enter nothing"),
        (found.unscored, "finished candidates have no score"),
    ):
        if count:
            console.print(f"{count} of {found.problems * found.n} {what}", markup=False)
    tied = {name: count for name, count in found.ties.items() if count}
    if tied:
        told_ties = ", ".join(f"{name} {count}" for name, count in tied.items())
        console.print(f"ties: {told_ties}; of answers to a problem, or `on the way` between branches of a step", markup=False)
        console.print("(the first sampled is taken; curves share)", markup=False)
    console.print(_table(found))


def _table(found: Found) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        caption="tokens: sampled + read by the judge; passes: forward ones of a token; both for a problem",
    )
    table.add_column("", no_wrap=True)
    for column in ("n", "success, %", "over majority, %", "tokens", "passes"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, curve in found.curves.items():
        for point in curve:
            over = "" if point.over_majority is None else _percent(point.over_majority, sign="+")
            tokens = f"{point.cost.policy_tokens:.0f} + {point.cost.judge_tokens:.0f}"
            shown = name if point is curve[0] else ""
            table.add_row(
                shown, str(point.n), _percent(point.success), over, tokens, f"{point.cost.forwards:.0f}", end_section=point is curve[-1]
            )
    return table


def _percent(interval: Interval, *, sign: str = "") -> str:
    mean, low, high = (100 * value for value in interval)
    return f"{mean:{sign}.1f} [{low:{sign}.1f}, {high:{sign}.1f}]"
