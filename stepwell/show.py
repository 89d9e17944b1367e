"""A look at single episodes: each step's text with its rewards and advantage beside it.

Text of models and environments is hostile: it is shown as text, never read as markup, and control characters are shown by their codes.
"""

from __future__ import annotations

import io
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stepwell.errors import RunError, nearest
from stepwell.tracking import EpisodeRecord, StepRecord, TurnRecord, episode_steps, read_episodes
from stepwell.tracking.episodes import Purpose

__all__ = ["Query", "as_json", "episode_svg", "find", "neutral", "print_episodes", "render"]

_SHOWN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_LINES = 12
_BAR = 8


@dataclass(frozen=True, slots=True)
class Query:
    """Which episodes.

    Attributes:
        step: None is the last one that was recorded.
        task: A task's key; None is every task.
        failed: Only those without success (not solved, unscored, or ended by a failure of the infrastructure).
        purpose: Episodes of training, or of an evaluation.
        limit: At most so many; None is all.
    """

    step: int | None = None
    task: str | None = None
    failed: bool = False
    purpose: Purpose = "train"
    limit: int | None = None


def find(run: Path, query: Query) -> list[EpisodeRecord]:
    """The episodes that a query asks for, group by group; groups with better and worse episodes first, since only they say something.

    Raises:
        RunError: The run has no episodes, none of that step, or none of that task; what there is is named.
    """
    if not run.is_dir():
        raise RunError(f"There is no folder {run}. Give the folder of a run, by default runs/NAME-SEED.")
    steps = episode_steps(run, query.purpose)
    if not steps:
        of = {"train": "training", "eval": "an evaluation"}[query.purpose]
        raise RunError(f"{run} holds no episodes of {of}. Give the folder of a run that has made a step after its warm start.")
    step = steps[-1] if query.step is None else query.step
    if step not in steps:
        raise RunError(f"{run} holds no episodes of step {step}; it holds {len(steps)} steps, from {steps[0]} to {steps[-1]}.")
    episodes = read_episodes(run, step, query.purpose)
    if query.task is not None:
        keys = {episode.key for episode in episodes}
        if query.task not in keys:
            raise RunError(f"Step {step} of {run} holds no task {query.task!r}; {nearest(query.task, keys)}.")
        episodes = [episode for episode in episodes if episode.key == query.task]
    outcomes: dict[str, set[tuple[float | None, bool | None]]] = {}
    for episode in episodes:
        outcomes.setdefault(episode.key, set()).add((episode.score, episode.success))
    episodes = sorted(episodes, key=lambda episode: len(outcomes[episode.key]) == 1)
    if query.failed:
        episodes = [episode for episode in episodes if episode.success is not True]
    return episodes[: query.limit]


def as_json(episodes: Sequence[EpisodeRecord]) -> str:
    """The episodes as a JSON list, as they are in the run's files."""
    return json.dumps([asdict(episode) for episode in episodes], indent=2)


def print_episodes(episodes: Sequence[EpisodeRecord], console: Console, *, lines: int = _LINES) -> None:
    """Prints each episode; of a long observation the first `lines` lines (0: all)."""
    if not episodes:
        console.print("No such episodes.", markup=False)
    for episode in episodes:
        console.print(render(episode, lines=lines))


def episode_svg(episode: EpisodeRecord, *, title: str = "stepwell show", width: int = 110, lines: int = _LINES) -> str:
    """One episode as an SVG picture of a terminal."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor", legacy_windows=False)
    console.print(render(episode, lines=lines))
    return console.export_svg(title=neutral(title))


def neutral(text: str) -> str:
    r"""Text that cannot steer a terminal: control, format and surrogate characters become their codes; line ends and tabs stay.

    >>> neutral("a\x1b[31mb\u202ec")
    'a\\x1b[31mb\\u202ec'
    """
    return "".join(_coded(character) for character in text.replace("\r\n", "\n").expandtabs(4))


def _coded(character: str) -> str:
    if character == "\n" or unicodedata.category(character) not in _SHOWN_CATEGORIES:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# -- one episode --------------------------------------------------------------------------------------------------------------


def render(episode: EpisodeRecord, *, lines: int = _LINES) -> RenderableType:
    """A panel: what was asked, then turn by turn the text of each step beside its rewards and advantage, and the reply.

    Positive numbers are green, negative ones red, and both carry their sign; the bar's length is the advantage's share of the
    episode's largest.
    """
    parts: list[RenderableType] = [Text(neutral(episode.prompt), style="bold")]
    if episode.start != episode.prompt:
        parts.append(_observation(episode.start, lines))
    largest = max((abs(step.advantage) for step in episode.steps if step.advantage is not None), default=0.0)
    for index, turn in enumerate(episode.turns):
        steps = [step for step in episode.steps if step.turn == index]
        parts.append(_turn(index, turn, steps, largest))
        parts.append(_observation(turn.observation, lines))
    success = {True: "green", False: "red", None: "yellow"}[episode.success]
    return Panel(
        Group(*parts), title=_title(episode), subtitle=_end(episode), title_align="left", subtitle_align="left", border_style=success
    )


def _title(episode: EpisodeRecord) -> Text:
    return Text(neutral(f"step {episode.step}  member {episode.member}  difficulty {episode.difficulty:.2f}  {episode.key}"))


def _end(episode: EpisodeRecord) -> Text:
    verdict = (
        f"unscored: {episode.unscored}"
        if episode.score is None
        else f"score {episode.score:.2f}, {'success' if episode.success else 'no success'}"
    )
    reason = f" ({episode.ending_reason})" if episode.ending_reason else ""
    text = f"{verdict}  ended: {episode.ending}{reason}  turns: {len(episode.turns)}  tokens: {episode.tokens}"
    return Text(neutral(text).replace("\n", " "))


def _turn(index: int, turn: TurnRecord, steps: Sequence[StepRecord], largest: float) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=3, justify="right", style="dim")
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(width=_BAR, no_wrap=True)
    whole = len(steps) == 1 or not steps
    for number, step in enumerate(steps):
        text = turn.text if whole else step.text if step.text is not None else f"({step.tokens} tokens)"
        table.add_row(
            str(index + 1) if number == 0 else "", Text(neutral(text), style="cyan"), _numbers(step), _bar(step.advantage, largest)
        )
    if not steps:
        table.add_row(str(index + 1), Text(neutral(turn.text), style="cyan"), "", "")
    for remark in _remarks(turn):
        table.add_row("", Text(neutral(remark), style="yellow"), "", "")
    return table


def _remarks(turn: TurnRecord) -> list[str]:
    """What went wrong or happened in a turn, in words."""
    remarks = []
    if turn.invalid:
        remarks.append(turn.invalid)
    elif not turn.valid:
        remarks.append("this action has no meaning here")
    if turn.stop == "length":
        remarks.append(f"cut at the token limit ({turn.tokens} tokens)")
    if turn.event is not None:
        remarks.append(f"event: {turn.event}")
    return remarks


def _numbers(step: StepRecord) -> Text:
    """Rewards, value and advantage in one line; below one another where there are more than three, to leave room for the text."""
    text = Text(justify="right")
    numbers = {**step.rewards, **({} if step.value is None else {"value": step.value})}
    for name, value in numbers.items():
        text.append(f"{neutral(name)} ", style="dim")
        text.append_text(_signed(value))
        text.append("  " if len(numbers) <= 2 else "\n")
    text.append("advantage ", style="dim")
    return text.append_text(_signed(step.advantage))


def _signed(value: float | None) -> Text:
    """`+0.50` in green, `-0.50` in red; a word where there is none."""
    if value is None:
        return Text("unscored", style="yellow")
    shown = f"{value:+.3f}"
    colour = "green" if value > 0 else "red" if value < 0 else "dim"
    return Text(f"{shown:>7}", style=colour)


def _bar(advantage: float | None, largest: float) -> Text:
    if not advantage or not largest:
        return Text("")
    return Text("█" * max(1, round(_BAR * abs(advantage) / largest)), style="green" if advantage > 0 else "red")


def _observation(text: str, lines: int) -> Text:
    """The reply, indented and dim; long ones are cut, and the cut is said."""
    every = neutral(text).split("\n")
    shown = every if lines <= 0 or len(every) <= lines else [*every[:lines], f"... {len(every) - lines} more lines"]
    return Text("\n".join(f"    {line}" for line in shown), style="dim")
