"""`stepwell train-judge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepwell.cli.options import Json, Settings, Source
from stepwell.cli.output import kept_in, note, out, print_json, resumable, told

__all__ = ["train_judge"]


@told
def train_judge(
    source: Source,
    settings: Settings = None,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="DIR", help="Run folder; by default runs/NAME-SEED.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder, to the same numbers.")] = False,
    json: Json = False,
) -> None:
    """Teach a judge by steps that somebody has labelled, and nothing else: no policy, no environment.

    Reads PRM800K, Math-Shepherd, ProcessBench, PRMBench, or lines of {"prompt", "steps", "labels"}. The folder is then a judge for
    `stepwell score` and `stepwell eval-judge`, and for training with reward.kind=trained.

    \b
    stepwell train-judge judge reward.data=prm800k_phase1_train.parquet --run runs/prm
    stepwell score processbench_gsm8k.json.gz --judge runs/prm
    """
    from stepwell.configure import check_overrides, load
    from stepwell.run import NothingLeftError
    from stepwell.teaching import READ, teach

    check_overrides(settings or (), READ, "nothing reads it where a file alone teaches, and reward.warm says by how many updates")
    config = load(source, settings or ())
    folder = run or Path("runs") / f"{config.name}-{config.seed}"
    again = ["stepwell", "train-judge", source, *(settings or ()), "--run", str(folder), "--resume"]
    with resumable(again, lambda: kept_in(folder)):
        try:
            for _ in teach(config, folder, resume=resume, show=True):
                pass
        except NothingLeftError as left:
            note(str(left))
    _tell(folder, json=json)


def _tell(folder: Path, *, json: bool) -> None:
    from rich.table import Table

    from stepwell.files import read_json

    report = read_json(folder / "report.json")
    if json:
        print_json({"run": str(folder), **report})
        return
    before, after = report["before"], report["after"]
    assert isinstance(before, dict) and isinstance(after, dict)
    table = Table(title=f"{folder}, {report['updates']} updates", caption="on the problems that were held out")
    for column in ("", "before", "after"):
        table.add_column(column, justify="left" if not column else "right")
    for name in ("label_auc", "label_accuracy", "fresh_error"):
        if after.get(name) is not None:
            table.add_row(name, f"{before[name]:.3f}" if before.get(name) is not None else "-", f"{after[name]:.3f}")
    out().print(table)
    print(f"judge: {folder}")
