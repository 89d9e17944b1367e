"""`stepwell score`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stepwell.cli.options import Json, Which
from stepwell.cli.output import note, print_json, told
from stepwell.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepwell.scoring import StepScores

__all__ = ["score"]


@told
def score(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="Solutions, step by step; .gz is unpacked.")],
    judge: Annotated[Path, typer.Option(metavar="RUN", help="A run's folder; its judge reads.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where the scores go; packed if it ends with .gz. By default standard output.", show_default=False
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="key=value ...", help="Of the engine and rollout.context, such as engine.device=cpu.", show_default=False),
    ] = None,
    layout: Annotated[
        Literal["auto", "lines", "processbench"],
        typer.Option("--format", help="Of the file: a line each with id, prompt or messages, and steps; or ProcessBench's own."),
    ] = "auto",
    separator: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="What ends a step; by default what the judge was taught with, or a blank line.", show_default=False
        ),
    ] = None,
    checkpoint: Which = "last",
    json: Json = False,
) -> None:
    """Give every step of anyone's solutions a number, by the judge of a run.

    Reads lines of {"id", "prompt" or "messages", "steps"}, or ProcessBench's files, and writes lines of {"id", "scores"} in the same
    order, a number or null for each step. A null is a step of which nothing can be said; the command counts them and says why. The file is
    there in full or not at all.

    \b
    stepwell score solutions.jsonl --judge runs/prm --out scores.jsonl
    stepwell score processbench_gsm8k.json.gz --judge runs/prm > scores.jsonl
    """
    if out is None and json:
        raise ConfigError("--json prints counts on standard output, where the scores would go; say where they go with --out FILE.")
    if out is not None:
        _check_out(out, file)
    from stepwell.scoring import open_judge
    from stepwell.solutions import read_solutions

    solutions = read_solutions(file, layout)
    opened = open_judge(judge, settings or (), checkpoint="best" if checkpoint == "best" else "last", separator=separator)
    note(f"Scoring {len(solutions)} solutions of {file} by {opened.origin}")
    made = opened.score(solutions)
    content = _lines([(one.id, scores) for one, scores in zip(solutions, made, strict=True)])
    if out is None:
        print(content, end="")
    else:
        _write(out, content)
    counts = _counts(made)
    for name, why in _WHY.items():
        if counts[name]:
            note(f"{counts[name]} of {counts['steps']} steps have no score (null): {why}")
    if json:
        print_json({"out": str(out), "origin": opened.origin, "solutions": len(solutions), **counts})
        return
    if out is not None:
        print(out)


_WHY = {
    "empty": "they have no text.",
    "cut": "they do not fit into the context of the judge. A model that can read more does so with rollout.context=N.",
    "unsaid": "the judge says no number there.",
}


def _check_out(out: Path, file: Path) -> None:
    """Said before anything is computed."""
    if out.is_dir():
        raise ConfigError(f"--out is {out}, which is a folder; name a file.")
    if not out.parent.is_dir():
        raise ConfigError(f"--out is {out}, and there is no folder {out.parent}; make it, or name another file.")
    if out.exists() and file.exists() and out.samefile(file):
        raise ConfigError(f"--out is {out}, the file that is read; the scores would take its place. Name another file.")


def _lines(scored: Sequence[tuple[str | int, StepScores]]) -> str:
    from stepwell.files import to_json

    lines = [to_json({"id": name, "scores": list(made.scores)}, f"the scores of {name!r}") for name, made in scored]
    return "".join(f"{line}\n" for line in lines)


def _write(out: Path, lines: str) -> None:
    import gzip

    from stepwell.files import disk_errors, write_atomic

    content = lines.encode()
    with disk_errors(f"The scores could not be written to {out}"):
        write_atomic(out, gzip.compress(content, mtime=0) if out.suffix == ".gz" else content)


def _counts(made: Sequence[StepScores]) -> dict[str, int]:
    steps = sum(len(one.scores) for one in made)
    without = {"empty": sum(m.empty for m in made), "cut": sum(m.cut for m in made), "unsaid": sum(m.unsaid for m in made)}
    return {"steps": steps, "scored": steps - sum(without.values()), **without}
