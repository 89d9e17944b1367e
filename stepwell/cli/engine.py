"""`stepwell engine`: what an engine computes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from stepwell.cli.options import Json
from stepwell.cli.output import note, out, print_json, told
from stepwell.types import JSON

if TYPE_CHECKING:
    from stepwell.config import Config
    from stepwell.engine.check import Finding
    from stepwell.engine.service import Service

__all__ = ["app"]

FAILED = 1
"""Exit code where something did not pass."""
app = typer.Typer(no_args_is_help=True, help="Engines: the programs that hold the weights, here or on servers.")


@app.callback()
def _engines() -> None:
    """Keeps `check` a command of its own."""


@app.command()
@told
def check(
    engine: Annotated[str, typer.Argument(metavar="URL|RUN|tiny", help="A server, the engine of a run's folder, or a preset's name.")],
    server: Annotated[str, typer.Option(help="Kind of server; auto finds out, or takes the API's documentation for what is due.")] = "auto",
    model: Annotated[str, typer.Option(help="Base model, as the server calls it; by default the only one that it serves.")] = "",
    rank: Annotated[int, typer.Option(min=1, help="Of the adapters that are made.")] = 4,
    tolerance: Annotated[float, typer.Option(min=0, help="Nats that sampler and trainer may differ, root of the mean square.")] = 0.05,
    together: Annotated[
        int, typer.Option(min=1, help="Lots of questions asked at once, of which a server has to hold up to five adapters; 1 needs two.")
    ] = 4,
    key_name: Annotated[str, typer.Option(help="Environment variable that holds the key.")] = "TINKER_API_KEY",
    plain_http: Annotated[Literal["refused", "allowed"], typer.Option(help="Plain http to another machine.")] = "refused",
    json: Json = False,
) -> None:
    """Say whether an engine computes what the losses here mean: about forty numbers in a table; exit code 1 where one is wrong."""
    from stepwell.engine.check import Bench, failed
    from stepwell.engine.check import check as ask

    findings: list[Finding] = []
    with closing(_service(engine, server, model, key_name, plain_http)) as service:
        far = service.url.startswith("http") and service.kind.models is None
        for finding in ask(Bench(service, rank=rank, tolerance=tolerance, together=together if far else 1)):
            findings.append(finding)
            if not json:
                note(f"{_mark(finding)} {finding.check}")
    wrong = failed(findings)
    if json:
        rows: list[JSON] = [dict(finding._asdict()) for finding in findings]
        print_json({"engine": service.url, "kind": service.kind.name, "base": service.base, "failed": list(wrong), "findings": rows})
    else:
        _show(service, findings)
    if wrong:
        note(f"{len(wrong)} of {len(findings)} did not pass: {', '.join(wrong)}.")
        raise typer.Exit(FAILED)


def _service(engine: str, server: str, model: str, key_name: str, plain_http: str) -> Service:
    from stepwell.config import RemoteEngineConfig
    from stepwell.configure import load, read_run
    from stepwell.connect import checked_service

    if engine.startswith(("http://", "https://")):
        return checked_service(engine, server, model, key_name, plain_http)
    config = read_run(Path(engine)) if Path(engine).is_dir() else load("smoke" if engine == "tiny" else engine)
    if isinstance(config.engine, RemoteEngineConfig):
        of = config.engine
        return checked_service(of.url, server if server != "auto" else of.server, model or of.model, of.key_name, of.plain_http)
    return _local(config)


def _local(config: Config) -> Service:
    from stepwell.engine.checked import served_base
    from stepwell.engine.local import Text
    from stepwell.protocols import ModelSpec
    from stepwell.speaking import load_base, make_chat

    module, tokenizer = load_base(config)
    text = Text(tokenizer.decode, make_chat(tokenizer, config.chat).eos_ids)
    return served_base(module, text, ModelSpec(kind=config.engine.policy))


def _mark(finding: Finding) -> str:
    return {True: "passed ", False: "FAILED ", None: "skipped"}[finding.passed]


def _show(service: Service, findings: list[Finding]) -> None:
    table = Table("", "check", "measured", "wanted", "means", title=f"{service.base} at {service.url} ({service.kind.name})")
    for finding in findings:
        style = {True: "", False: "red", None: "dim"}[finding.passed]
        table.add_row(_mark(finding), finding.check, finding.measured, finding.wanted, finding.means, style=style)
    out().print(table)
