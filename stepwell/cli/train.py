"""`stepwell train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepwell.cli.options import Json, Settings, Source
from stepwell.cli.output import kept_in, note, out, print_json, resumable, told

if TYPE_CHECKING:
    from stepwell.config import Config

__all__ = ["train"]


@told
def train(
    source: Source,
    settings: Settings = None,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="DIR", help="Run folder; by default runs/NAME-SEED.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder, to the same numbers.")] = False,
    json: Json = False,
) -> None:
    """Train an agent; ends with success before and after, and a report in the run folder.

    A killed run goes on with --resume. A finished run goes on with --resume and a larger steps=...

    \b
    stepwell train quick
    stepwell train webshop data=DIR seed=1 --run runs/mine
    torchrun --standalone --nproc_per_node 2 --no-python stepwell train quick engine.threads=1
    """
    from stepwell.configure import load

    config = load(source, settings or ())  # before torch is imported: a misspelt key costs no seconds
    folder = run or Path("runs") / f"{config.name}-{config.seed}"
    from stepwell import run as runs
    from stepwell.engine.ranks import rank

    if rank():  # A follower of a data-parallel run: the lead says all there is to say.
        for _ in runs.train(config, folder, resume=resume):
            pass
        return
    note(_opening(config, folder, resume=resume))
    again = ["stepwell", "train", source, *(settings or ()), "--run", str(folder), "--resume"]
    with resumable(again, lambda: kept_in(folder)):
        try:
            for _ in runs.train(config, folder, resume=resume, show=True):
                pass
        except runs.NothingLeftError as left:
            note(str(left))
    _tell(folder, json=json)


def _opening(config: Config, folder: Path, *, resume: bool) -> str:
    """What is about to happen, and where."""
    from stepwell.checkpoint import saved_steps

    warm = f"{config.cloning.steps} steps of imitating demonstrations (cloning), then " if config.cloning.steps else ""
    done = max(saved_steps(folder / "checkpoints"), default=0)
    begun = f"; going on from step {done}" if done and resume else ""
    return f"{config.name}, seed {config.seed}, in {folder}: {warm}{config.steps} of learning from rewards{begun}."


def _tell(folder: Path, *, json: bool) -> None:
    from stepwell.files import read_json
    from stepwell.report import read_facts, summary_table

    if json:
        print_json({"run": str(folder), "report": str(folder / "report.md"), **read_json(folder / "report.json")})
        return
    out().print(summary_table(read_facts(folder)))
    print(f"report: {folder / 'report.md'}")
