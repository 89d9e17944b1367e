"""`stepwell ablate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepwell.cli.options import Json, Settings, Source
from stepwell.cli.output import out, print_json, resumable, told

__all__ = ["ablate"]


@told
def ablate(
    source: Source,
    settings: Settings = None,
    seeds: Annotated[str, typer.Option(metavar="N|A,B,C", help="How many seeds, from the config's on; or which.")] = "5",
    variants: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=key=value,...", help="A change of the full system under a name; may be given again.", show_default=False
        ),
    ] = None,
    only: Annotated[str, typer.Option(metavar="A,B", help="These variants alone; by default the six and those of --variants.")] = "",
    against: Annotated[str | None, typer.Option(metavar="NAME", help="The baseline; by default vanilla_grpo.", show_default=False)] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Success that episodes are counted to; by default what the baseline reaches in the end.", show_default=False),
    ] = None,
    judge_steps: Annotated[
        int | None, typer.Option(help="Batches that the static judge learns from; by default a quarter of steps.", show_default=False)
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="By default ablations/NAME.", show_default=False)] = None,
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Runs at a time; by default one for each core.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Measure what each idea is worth: train with it and without, on the same tasks, seeds and budget, and compare with intervals.

    Variants: full, no_curriculum, no_step_rewards, no_interruptions, static_judge, vanilla_grpo. The same command goes on where it
    was killed, and adds variants or seeds.

    \b
    stepwell ablate shop --seeds 5
    stepwell ablate smoke --seeds 2 --only full,vanilla_grpo --json
    stepwell ablate quick --variants rloo=credit.baseline=rloo --only full,rloo --against full
    """
    from stepwell.ablation.plan import changes_of, make_plan, seeds_of
    from stepwell.ablation.report import main_table, write_report
    from stepwell.ablation.results import check_baseline
    from stepwell.ablation.running import run_all
    from stepwell.configure import load

    base = load(source, settings or ())
    chosen = [name.strip() for name in only.split(",") if name.strip()]
    where = folder or Path("ablations") / base.name
    named = changes_of(variants or ())
    plan = make_plan(base, seeds_of(seeds, base.seed), where, named=named, only=chosen, judge_steps=judge_steps)
    check_baseline([variant.name for variant in plan.variants], against, target)
    again = ["stepwell", "ablate", source, *(settings or ()), "--seeds", seeds, "--out", str(where)]
    again += [part for one in variants or () for part in ("--variants", one)] + (["--only", only] if only else [])
    for option, value in {"--against": against, "--target": target, "--judge-steps": judge_steps, "--jobs": jobs}.items():
        again += [] if value is None else [option, str(value)]
    with resumable(again, lambda: f"runs that are through and all checkpoints are kept in {where}"):
        run_all(plan, jobs=jobs, show=True)
    found = write_report(plan, baseline=against, target=target)
    if json:
        print_json({"folder": str(where), "report": str(where / "report.md"), **found})
        return
    out().print(main_table(found))
    for claim in found["claims"] if isinstance(found["claims"], list) else ():
        print(claim["sentence"] if isinstance(claim, dict) else claim)
    print(f"report: {where / 'report.md'}")
