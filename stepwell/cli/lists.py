"""`stepwell presets`, `domains`, `methods` and `config`: what there is to choose from."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from stepwell.cli.options import Json, Settings, Source
from stepwell.cli.output import out, print_json, told

__all__ = ["config", "domains", "methods", "presets"]


@told
def presets(json: Json = False) -> None:
    """List ready configurations, for `stepwell train` and `stepwell config`."""
    from stepwell.presets import PRESETS

    rows = [(name, _first_sentence(made.__doc__)) for name, made in PRESETS.items()]
    if json:
        print_json([{"preset": name, "summary": summary} for name, summary in rows])
    else:
        _print_table(("preset", "what it trains"), rows)


@told
def domains(json: Json = False) -> None:
    """List the domains, and with --json their settings."""
    from stepwell.config import (
        BasketConfig,
        CaveConfig,
        CustomConfig,
        MazeConfig,
        QuestionsConfig,
        ReasoningConfig,
        ShopConfig,
        WebShopConfig,
    )

    made: dict[str, type[BaseModel]] = {
        "shop": ShopConfig,
        "basket": BasketConfig,
        "webshop": WebShopConfig,
        "maze": MazeConfig,
        "questions": QuestionsConfig,
        "reasoning": ReasoningConfig,
        "cave": CaveConfig,
        "package.module:Name": CustomConfig,
    }
    if json:
        print_json(
            [
                {
                    "domain": name,
                    "summary": _first_sentence(model.__doc__),
                    "settings": {key: field.description or "" for key, field in model.model_fields.items() if key != "kind"},
                }
                for name, model in made.items()
            ]
        )
        return
    rows = [(name, _first_sentence(model.__doc__), ", ".join(k for k in model.model_fields if k != "kind")) for name, model in made.items()]
    _print_table(("domain", "what it is", "settings"), rows)


@told
def methods(json: Json = False) -> None:
    """List rewards, credit rules and losses: what each is, where it is from, and the setting that chooses it."""
    from stepwell.cli.methods import METHODS

    if json:
        print_json([method._asdict() for method in METHODS])
    else:
        _print_table(("setting", "what it is", "source"), [method[1:] for method in METHODS])


@told
def config(
    source: Source,
    settings: Settings = None,
) -> None:
    """Print the whole config as YAML, every default written out; `stepwell train` reads it back.

    \b
    stepwell config quick reward.kind=outcome credit.kind=grpo > mine.yaml
    """
    import yaml

    from stepwell.configure import dump, load

    print(yaml.safe_dump(dump(load(source, settings or ())), sort_keys=False, allow_unicode=True), end="")


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split()).rstrip(".")


def _print_table(names: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(names):
        first = number == 0  # Names are there to be copied: one to a line, never broken.
        table.add_column(name, style="cyan" if first else "", overflow="fold", no_wrap=first)
    for name, *words in rows:
        table.add_row(Text(name.replace(" ", "\n")), *map(Text, words))
    out().print(table)
