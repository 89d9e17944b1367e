"""`stepwell play`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepwell.cli.options import Json, Settings
from stepwell.cli.output import out, print_json, told
from stepwell.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stepwell.config import DomainConfig
    from stepwell.protocols import Domain
    from stepwell.types import JSON, Task

__all__ = ["play"]


@told
def play(
    domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="See `stepwell domains`; or package.module:Name of your own.")],
    settings: Settings = None,
    task: Annotated[int | None, typer.Option(min=0, metavar="N", help="Which of the split; by default 0.", show_default=False)] = None,
    split: Annotated[str, typer.Option(help="Where the task is from.")] = "test",
    replay: Annotated[
        Path | None,
        typer.Option(metavar="FILE.jsonl", help="Play recorded actions; see above for its lines.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Play in an environment yourself, or replay recorded actions in it.

    A line of a replay file is a JSON object. It holds "task", an index in the split, or an object of "difficulty", "seed" and "split" where
    tasks are generated; and "actions", a list of texts. For webshop it holds "goal", "actions", and where wanted "mode" (text, text_rich),
    "show_attrs", "num_prev_obs", "num_prev_actions". With --json each line is answered by an object of "task" or "goal", and "steps", of
    which the first is the start.

    \b
    stepwell play shop
    stepwell play webshop data=DIR variant=compat seed=0 --replay FILE.jsonl --json
    """
    from stepwell.build import build_domain
    from stepwell.configure import load_domain

    if json and replay is None:
        raise ConfigError("--json goes with --replay FILE.jsonl; a person plays without it.")
    if task is not None and replay is not None:
        raise ConfigError("--task goes without --replay, whose lines name their own tasks.")
    lines = None if replay is None else _lines(replay)
    config = load_domain(domain, settings or ())
    world = build_domain(config)
    if lines is not None and replay is not None:
        _replay(_answers(config, world, lines, split, str(replay)), json=json)
    else:
        _in_person(world, _task(world, split, task or 0))


def _in_person(world: Domain, task: Task) -> None:
    from stepwell.engine.codec import codec
    from stepwell.envs.play import play as play_in
    from stepwell.show import neutral

    play_in(world, task, input, lambda text: print(neutral(text)), codec("bracket"))


def _task(world: Domain, split: str, number: int) -> Task:
    tasks = world.tasks(split)
    if not tasks:
        raise ConfigError(f"Split {split!r} has no list of tasks here (they are generated); take --split test.")
    if number >= len(tasks):
        raise ConfigError(f"--task is {number}; split {split!r} has tasks 0 to {len(tasks) - 1}.")
    return tasks[number]


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"The replay file {path} cannot be read: {error}.") from None
    if not any(line.strip() for line in lines):
        raise DataError(f"The replay file {path} is empty; each line is an object of what to play, see `stepwell play --help`.")
    return lines


def _answers(config: DomainConfig, world: Domain, lines: Sequence[str], split: str, source: str) -> Iterator[Mapping[str, JSON]]:
    from stepwell.engine.codec import codec
    from stepwell.envs.replay import replay
    from stepwell.envs.shop.webshop import WebShopDomain
    from stepwell.envs.shop.webshop.replay import replay as replay_goals

    if isinstance(world, WebShopDomain):
        return replay_goals(world, lines, source)
    return replay(world, lines, codec("bracket").parse, split=split, source=source)


def _replay(answers: Iterator[Mapping[str, JSON]], *, json: bool) -> None:
    from stepwell.show import neutral

    console = out()
    for answer in answers:
        if json:
            print_json(answer)
            continue
        name = next(key for key in ("task", "goal") if key in answer)
        console.rule(f"{name} {answer[name]}", align="left")
        steps = answer["steps"]
        assert isinstance(steps, list)
        for number, step in enumerate(steps):
            facts = f"reward {step['reward']:.3f}{', done' if step['done'] else ''}{'' if step['valid'] else ', without meaning'}"
            console.print(f"{number}: {facts}", style="bold", markup=False)
            console.print(neutral(step["observation"]), markup=False)
