"""All commands together."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from stepwell import __version__
from stepwell.cli.ablate import ablate
from stepwell.cli.doctor import doctor
from stepwell.cli.engine import app as engine_app
from stepwell.cli.eval_judge import eval_judge
from stepwell.cli.evaluate import evaluate
from stepwell.cli.grade import grade
from stepwell.cli.lists import config, domains, methods, presets
from stepwell.cli.look import export, show
from stepwell.cli.play import play
from stepwell.cli.problems import overlap, problems
from stepwell.cli.score import score
from stepwell.cli.search import search
from stepwell.cli.step_labels import step_labels
from stepwell.cli.train import train
from stepwell.cli.train_judge import train_judge

__all__ = ["app", "main"]

app = typer.Typer(
    help="Train LLM agents and reasoners with process rewards: a reward for every step, learned together with the policy.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(train)
app.command("train-judge")(train_judge)
app.command("step-labels")(step_labels)
app.command("eval")(evaluate)
app.command("eval-judge")(eval_judge)
app.command()(play)
app.command()(ablate)
app.command()(search)
app.command()(score)
app.command()(grade)
app.command()(problems)
app.command()(overlap)
app.command()(show)
app.command()(export)
app.command()(config)
app.command()(presets)
app.command()(domains)
app.command()(methods)
app.command()(doctor)
app.add_typer(engine_app, name="engine")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")] = False,
) -> None:
    """Options of the command itself."""


def _in_a_line(message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
    """A warning of ours is a sentence; one of another's keeps its place."""
    if Path(filename).is_relative_to(Path(__file__).parents[1]):
        return f"note: {message}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def main() -> None:
    """Entry point of the command `stepwell`."""
    warnings.formatwarning = _in_a_line
    sys.path.append("")  # a `package.module:Name` may lie in the present folder; behind all else, so that it hides nothing
    app(prog_name="stepwell")
