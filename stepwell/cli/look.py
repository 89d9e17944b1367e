"""`stepwell show` and `stepwell export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from stepwell.cli.options import Json, Which
from stepwell.cli.output import note, out, told

__all__ = ["export", "show"]

_SHOWN = 4


@told
def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    step: Annotated[int | None, typer.Option(metavar="N", help="Of training; by default the last.", show_default=False)] = None,
    task: Annotated[str | None, typer.Option(metavar="KEY", help="Only episodes of this task.", show_default=False)] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only episodes without success.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help=f"At most so many (0: all); by default {_SHOWN}, or all with --json.", show_default=False),
    ] = None,
    lines: Annotated[int, typer.Option(min=0, metavar="N", help="Lines of an observation, 0 for all.")] = 12,
    json: Json = False,
) -> None:
    """Show single episodes, with each step's reward and advantage beside its text.

    \b
    stepwell show runs/quick-0 --failed --limit 1
    """
    from stepwell.show import Query, as_json, find, print_episodes

    found = find(run, Query(step, task, failed))
    most = limit if limit is not None else 0 if json else _SHOWN
    shown = found[:most] if most else found
    if json:
        print(as_json(shown))
        return
    print_episodes(shown, out(), lines=lines)
    if len(shown) < len(found):
        note(f"{len(shown)} of {len(found)} episodes; --limit 0 shows all.")


@told
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    target: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    model: Annotated[Literal["policy", "judge"], typer.Option(help="The policy, or the judge where it is a language model.")] = "policy",
    checkpoint: Which = "last",
) -> None:
    """Write a trained model as a folder that `from_pretrained` of transformers loads.

    Weights are float32; adapters are merged into their base. The folder is there in full or not at all.
    """
    from stepwell.trained import export as write

    print(write(run, target, model=model, checkpoint=checkpoint))
