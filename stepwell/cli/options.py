"""Arguments that several commands share."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

__all__ = ["Json", "Settings", "Source", "Which"]

Source = Annotated[str, typer.Argument(metavar="PRESET|FILE.yaml", help="See `stepwell presets`; or a YAML file of settings.")]
Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="key=value ...",
        help="Settings, such as rollout.groups=8; those of the domain may stand alone: data=DIR.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on standard output.")]
Which = Annotated[
    Literal["last", "best"], typer.Option("--checkpoint", help="The last checkpoint, or the best by evaluation during training.")
]
