"""`stepwell eval`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from stepwell.cli.options import Json, Settings, Which
from stepwell.cli.output import note, out, print_json, told
from stepwell.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from stepwell.evaluation.evaluate import Evaluation
    from stepwell.evaluation.intervals import Interval
    from stepwell.protocols import Domain
    from stepwell.trained import Trained
    from stepwell.types import JSON, Task

__all__ = ["evaluate", "open_target"]


@told
def evaluate(
    target: Annotated[
        str, typer.Argument(metavar="RUN|MODEL", help="A run's folder; or a model's folder, hub id, .gguf file, or smollm2-135m-instruct.")
    ],
    settings: Settings = None,
    domain: Annotated[
        str | None,
        typer.Option(
            help="Where to play (see `stepwell domains`), or a benchmark (`stepwell problems`); by default where the run was trained.",
            show_default=False,
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Tasks of this split, from its first on.")] = "test",
    episodes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of tasks; by default the run's evaluation.episodes.", show_default=False)
    ] = None,
    k: Annotated[str, typer.Option("--k", metavar="1,8", help="Also pass@k (one succeeds) and pass^k (all do).", show_default=False)] = "",
    samples: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Episodes of each task; by default the largest k, or 1.", show_default=False)
    ] = None,
    temperature: Annotated[float | None, typer.Option(min=0, help="Of sampling; by default 1.", show_default=False)] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always the most likely token: temperature 0.")] = False,
    checkpoint: Which = "last",
    seed: Annotated[int | None, typer.Option(help="Of sampling; by default the run's.", show_default=False)] = None,
    perturbed: Annotated[
        bool, typer.Option("--perturbed", help="Also the same tasks with an interruption in every episode, and the paired difference.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure a trained policy, or any model, on held-out tasks, with 95 % intervals.

    Failed episodes (infrastructure) and unscored ones are counted apart and enter nothing else.

    \b
    stepwell eval runs/quick-0 --greedy
    stepwell eval runs/quick-0 difficulty=[0.5,1.0] --k 1,8
    stepwell eval runs/quick-0 interruptions.kinds=[stock_out,tool_error] --perturbed
    stepwell eval smollm2-135m-instruct --domain webshop data=DIR --episodes 50
    stepwell eval MODEL --domain math500 --k 1,8,16 rollout.max_tokens=2048
    """
    from stepwell.build import first_tasks
    from stepwell.evaluation.evaluate import evaluate as measure

    if greedy and temperature is not None:
        raise ConfigError(f"--greedy is temperature 0, and --temperature is {temperature}; give one of the two.")
    heat = 0.0 if greedy else 1.0 if temperature is None else temperature
    if not math.isfinite(heat):
        raise ConfigError(f"--temperature is {heat}; give a number of 0 or more, where 0 is --greedy.")
    wanted = _ks(k)
    each = samples or max(wanted, default=1)
    if wanted and max(wanted) > each:
        raise ConfigError(f"--k asks for pass@{max(wanted)} with {each} episodes of each task; give --samples {max(wanted)} or more.")
    if heat == 0 and each > 1:
        raise ConfigError(f"{each} greedy episodes of a task are all the same; --k and --samples need a temperature above 0.")
    opened = open_target(target, domain, settings or (), checkpoint)
    tasks = first_tasks(opened.domain, split, episodes or opened.config.evaluation.episodes)
    _check_enough(tasks, split, episodes)
    note(f"Playing {len(tasks)} tasks of split {split}: {opened.origin}")
    start = opened.config.seed if seed is None else seed
    seeds = (start, split, f"temperature {heat}")
    worlds = _twins(opened, split) if perturbed else (opened.domain,)
    found, *rough = [measure(world, tasks, opened.policy, opened.player.at(heat), seed=seeds, samples=each) for world in worlds]
    about: dict[str, JSON] = {"split": split, "tasks": len(tasks), "samples": each, "temperature": heat, "seed": start}
    _tell(found, rough[0] if rough else None, opened, wanted, about=about, json=json)


def open_target(target: str, domain: str | None, settings: Sequence[str], checkpoint: str) -> Trained:
    """The policy of a run, or a model as it is.

    Raises:
        ConfigError: It is neither; or a model, and nothing says where it plays.
    """
    from stepwell.trained import open_model, open_run

    path = Path(target)
    domain, settings = _benchmark(domain, settings)
    if (path / "config.yaml").exists():
        moved = [] if domain is None else [f"domain.kind={domain}"]
        return open_run(path, [*moved, *settings], checkpoint="best" if checkpoint == "best" else "last")
    if path.is_dir() and not (path / "config.json").exists():
        raise ConfigError(f"{path} is neither a run's folder (it has no config.yaml) nor a model's (it has no config.json).")
    if checkpoint == "best":
        raise ConfigError(f"--checkpoint best is for runs; {target} is a model.")
    if domain is None:
        raise ConfigError(f"{target} is no run's folder, so it is taken for a model; say where it is to play with --domain NAME.")
    return open_model(target, domain, settings)


def _benchmark(domain: str | None, settings: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """A benchmark in the place of a domain is the domain of its questions."""
    from stepwell.datasets.benchmarks import BENCHMARKS

    if domain not in BENCHMARKS:
        return domain, settings
    return "questions", [f"domain.problems={domain}", "chat.codec=text", "rollout.turns=1", *settings]


def _twins(opened: Trained, split: str) -> tuple[Domain, Domain]:
    """The run's domain where nothing happens, and where something happens in every episode."""
    from stepwell.domains import build_domain, disturbed, undisturbed

    return build_domain(undisturbed(opened.config.domain)), build_domain(disturbed(opened.config.domain, split))


def _ks(text: str) -> list[int]:
    try:
        found = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        found = [0]
    if found and found[0] < 1:
        raise ConfigError(f"--k is {text!r}; give whole numbers from 1 on, separated by commas, such as 1,8.")
    return found


def _check_enough(tasks: Sequence[Task], split: str, episodes: int | None) -> None:
    if episodes is not None and len(tasks) < episodes:
        raise ConfigError(
            f"Split {split!r} has {len(tasks)} tasks and --episodes asks for {episodes}; ask for fewer, or for a domain with more of them."
        )


def _tell(
    found: Evaluation, rough: Evaluation | None, opened: Trained, ks: Sequence[int], *, about: Mapping[str, JSON], json: bool
) -> None:
    from stepwell.evaluation.evaluate import pass_at, pass_hat
    from stepwell.evaluation.recovery import compared

    passes = {f"pass{sign}{k}": of(found.groups, k) for sign, of in {"@": pass_at, "^": pass_hat}.items() for k in ks}
    twins = None if rough is None else compared(found.groups, rough.groups)
    if json:
        kinds = {"pass_at": "pass@", "pass_hat": "pass^"} if ks else {}
        pass_json = {key: {str(k): _number(passes[f"{name}{k}"].mean) for k in ks} for key, name in kinds.items()}
        rough_json = {} if rough is None or twins is None else {"perturbed": {**rough.to_json(), **twins}}
        origin = {"origin": opened.origin, "step": opened.step, "domain": opened.config.domain.kind}
        print_json({**found.to_json(), **rough_json, **pass_json, **about, **origin, "checkpoint": opened.checkpoint})
        return
    out().print(_table(found, opened, passes))
    if rough is not None and twins is not None:
        out().print(_twins_table(rough, twins))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _table(found: Evaluation, opened: Trained, passes: Mapping[str, Interval]) -> Table:
    from rich.table import Table

    table = Table(title=opened.origin, caption=f"{found.episodes} episodes in {opened.config.domain.kind}; 95 % intervals")
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("interval", justify="right")
    table.add_row("success", *_percent(found.success))
    for difficulty, interval in found.by_difficulty.items():
        table.add_row(f"  difficulty {difficulty}", *_percent(interval))
    for name, interval in passes.items():
        table.add_row(name, *_percent(interval))
    score = found.score
    table.add_row("mean score", f"{score.mean:.3f}", f"{score.low:.3f} to {score.high:.3f}")
    table.add_row("turns", f"{found.turns:.1f}", "")
    table.add_row("invalid actions", f"{100 * found.invalid:.1f} %", "")
    for name, count in {"truncated": found.truncated, "unscored": found.unscored, "failed": found.failed}.items():
        if count:
            table.add_row(name, f"{count} episodes", "")
    return table


def _twins_table(rough: Evaluation, twins: Mapping[str, JSON]) -> Table:
    """The same tasks with an interruption in every episode, beside the table of the undisturbed ones."""
    from rich.table import Table

    def share(name: str) -> str:
        value = twins[name]
        return "-" if value is None else f"{100 * cast(float, value):.1f} %"

    low, mean, high = (cast("dict[str, float | None]", twins["difference"])[end] for end in ("low", "mean", "high"))
    table = Table(title="the same tasks, interrupted", caption=f"something happened in {twins['interrupted']} of {rough.episodes} episodes")
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("interval", justify="right")
    table.add_row("success", *_percent(rough.success))
    if mean is not None and low is not None and high is not None:
        table.add_row("less undisturbed, paired", f"{100 * mean:+.1f} points", f"{100 * low:+.1f} to {100 * high:+.1f}")
    table.add_row("of those interrupted", share("recovery"), "")
    table.add_row("where the undisturbed twin succeeds", share("recovery_given_clean"), "")
    turns = twins["recovery_turns"]
    table.add_row("turns from event to success", "-" if turns is None else f"{turns:.1f}", "")
    for kind, rate in cast("dict[str, float]", twins["recovery_by_kind"]).items():
        table.add_row(f"  {kind}", f"{100 * rate:.1f} %", "")
    return table


def _percent(interval: Interval) -> tuple[str, str]:
    return f"{100 * interval.mean:.1f} %", f"{100 * interval.low:.1f} to {100 * interval.high:.1f} %"
