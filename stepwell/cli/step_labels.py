"""`stepwell step-labels`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepwell.cli.options import Json, Settings
from stepwell.cli.output import out, print_json, told

if TYPE_CHECKING:
    from stepwell.types import JSON

__all__ = ["step_labels"]


@told
def step_labels(
    task: Annotated[str, typer.Argument(metavar="TASK", help="arithmetic, equations, countdown, words, strings, machine or recurrence.")],
    settings: Settings = None,
    file: Annotated[Path, typer.Option("--out", metavar="FILE.jsonl", help="Where to write.")] = Path("step-labels.jsonl"),
    solutions: Annotated[int, typer.Option(min=1, help="How many, each of another task.")] = 1000,
    split: Annotated[str, typer.Option(help="Of the tasks: train a judge on train, measure it on test.")] = "train",
    wrong: Annotated[float, typer.Option(min=0, max=1, help="Share of solutions with a wrong step.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    json: Json = False,
) -> None:
    """Write solutions of reasoning tasks whose first wrong step is known exactly, for train-judge and eval-judge.

    \b
    stepwell step-labels words difficulty=[0,1] --solutions 2000 --out train.jsonl
    stepwell step-labels words difficulty=[0,1] test_tasks=300 --split test --solutions 300 --out test.jsonl
    stepwell train-judge judge reward.data=train.jsonl --run runs/judge
    stepwell eval-judge runs/judge --on steps --data test.jsonl
    """
    import json as to_json

    from stepwell.config import ReasoningConfig
    from stepwell.configure import load_domain
    from stepwell.domains import reasoning_domain
    from stepwell.envs.reasoning import labelled_solutions
    from stepwell.files import disk_errors, write_atomic

    config = load_domain("reasoning", [f"task={task}", *(settings or ())])
    assert isinstance(config, ReasoningConfig)
    made = list(labelled_solutions(reasoning_domain(config), solutions, split=split, wrong=wrong, seed=seed))
    with disk_errors(f"The solutions could not be written to {file}"):
        write_atomic(file, "".join(f"{to_json.dumps(one, ensure_ascii=False)}\n" for one in made))
    about: dict[str, JSON] = {"file": str(file), "solutions": len(made), "wrong": sum(one["first_wrong"] != -1 for one in made)}
    if json:
        print_json(about)
    else:
        out().print(f"{about['solutions']} solutions, {about['wrong']} of them with a wrong step: {file}", markup=False)
