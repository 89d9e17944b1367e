"""`stepwell eval-judge`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stepwell.cli.options import Json, Which
from stepwell.cli.output import note, out, print_json, told
from stepwell.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from stepwell.evaluation.intervals import Interval
    from stepwell.evaluation.judged import Result
    from stepwell.judge_evaluation import JudgeEvaluation

__all__ = ["eval_judge"]


@told
def eval_judge(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder; its judge is measured.")],
    on: Annotated[
        Literal["processbench", "prmbench", "prm800k", "steps"],
        typer.Option("--on", help="The benchmark; `steps` is any file of labelled steps."),
    ],
    data: Annotated[Path, typer.Option(metavar="FILE", help="The benchmark's file; .gz and .parquet are read.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="key=value ...", help="Of the engine and rollout.context, such as engine.device=cpu.", show_default=False),
    ] = None,
    tune: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Another file of the benchmark, to choose the threshold on.", show_default=False),
    ] = None,
    threshold: Annotated[float | None, typer.Option(metavar="X", help="Below which score a step is wrong.", show_default=False)] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="So many solutions at most, drawn at random.", show_default=False)
    ] = None,
    checkpoint: Which = "last",
    json: Json = False,
) -> None:
    """Measure the judge of a run on steps that somebody has labelled, beside baselines that read nothing; 95 % intervals over problems.

    processbench: accuracy on solutions with an error, on those without, and their harmonic mean F1. prmbench: F1 of right and of wrong
    steps and PRMScore. Both, and prm800k and steps: how often a right step has a higher score than a wrong one (AUC), calibration, and how
    often the least score is that of the last step. No threshold is chosen on what is measured: it is given, chosen on another file
    (--tune), or chosen for each half of the problems on the other half; it is printed.

    \b
    stepwell eval-judge runs/prm --on processbench --data processbench_gsm8k.json.gz
    stepwell eval-judge runs/prm --on prm800k --data prm800k_phase1_test.parquet --limit 500
    """
    if threshold is not None and not math.isfinite(threshold):
        raise ConfigError(f"--threshold is {threshold}; give a finite number.")
    from stepwell.judge_evaluation import evaluate_judge
    from stepwell.scoring import open_judge

    opened = open_judge(run, settings or (), checkpoint="best" if checkpoint == "best" else "last")
    note(f"Measuring {opened.origin} on {data}")
    found = evaluate_judge(opened, on, data, threshold=threshold, tune=tune, limit=limit)
    if json:
        print_json(found.to_json())
        return
    _tell(found)


def _tell(found: JudgeEvaluation) -> None:
    console = out()
    console.print(
        f"{found.solutions} solutions of {found.drawn_from}, {found.problems} problems; 95 % intervals over problems", markup=False
    )
    for count, what in (
        (found.unlabelled, "solutions have no label that can be right, and are left out"),
        (found.truncated, "solutions do not fit into the judge's context as a whole"),
        (found.unscored, "steps have no score"),
    ):
        if count:
            console.print(f"{count} {what}", markup=False)
    if found.threshold:
        console.print(f"threshold: {found.threshold}", markup=False)
    last, chance = found.shape["minimum_last"], found.shape["minimum_last_by_chance"]
    if not math.isnan(last):
        console.print(f"least score at the last step: {100 * last:.0f} % of solutions (by chance {100 * chance:.0f} %)", markup=False)
    for names, rows in _tables(found.results):
        console.print(_table(names, rows))


def _tables(results: Sequence[Result]) -> list[tuple[tuple[str, ...], list[Result]]]:
    """Results with the same first number belong into one table."""
    tables: dict[str, tuple[tuple[str, ...], list[Result]]] = {}
    for one in results:
        _, rows = tables.setdefault(next(iter(one.numbers)), (tuple(one.numbers), []))
        rows.append(one)
    return list(tables.values())


def _table(names: Sequence[str], rows: Sequence[Result]) -> Table:
    from rich.table import Table

    table = Table()
    table.add_column("", no_wrap=True)
    table.add_column("on", no_wrap=True)
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for one in rows:
        table.add_row(one.who, one.subset, *(_shown(one.numbers[name]) if name in one.numbers else "" for name in names))
    return table


def _shown(interval: Interval) -> str:
    if math.isnan(interval.mean):
        return "-"
    if math.isnan(interval.low):
        return f"{interval.mean:.3f}"
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
