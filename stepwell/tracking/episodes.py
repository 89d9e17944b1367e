"""Every episode of a run, one JSON line each, in `episodes/step-000012.jsonl.gz` (evaluations: `eval-000012.jsonl.gz`).

A record is what a person or another program wants to read: text, actions, raw reward components and the advantage of every step.
Token ids stay out.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from stepwell.errors import DataError
from stepwell.files import write_atomic
from stepwell.tracking.metrics import is_invalid
from stepwell.types import Credited, Episode, Group, Ids, Invalid, Scored, Turn

__all__ = [
    "EpisodeRecord",
    "Purpose",
    "StepRecord",
    "TurnRecord",
    "cut_episodes",
    "episode_steps",
    "read_episodes",
    "record",
    "write_episodes",
]

Purpose = Literal["train", "eval"]
Decode = Callable[[Ids], str]
_PREFIX: dict[Purpose, str] = {"train": "step", "eval": "eval"}
_FILE = re.compile(r"(step|eval)-(\d{6,})\.jsonl\.gz")


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One message of the policy and the reply.

    Attributes:
        action: The tool's name, None where the text was no action; `invalid` then says why.
        valid: False where the text was no action, or the action had no meaning there.
        reward: The environment's own, for this turn.
        stop: Why sampling stopped: `eos`, `stop_string` or `length`.
    """

    text: str
    action: str | None
    arguments: Mapping[str, str]
    invalid: str
    valid: bool
    reward: float
    done: bool
    event: str | None
    stop: str
    tokens: int
    version: int
    observation: str


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step.

    Attributes:
        turn: Index of the turn that it lies in.
        text: None where it is a part of a turn and no decoder was given.
        rewards: Raw components by name; None where the step is unscored.
        advantage: None where no credit was assigned.
        value: A critic's value before the step, None where there is no critic.
    """

    turn: int
    text: str | None
    tokens: int
    rewards: Mapping[str, float | None]
    scored: bool
    advantage: float | None
    value: float | None


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One episode; `score` and `success` are None where it is unscored, and `unscored` says why. `start` is the first observation."""

    step: int
    key: str
    prompt: str
    difficulty: float
    split: str
    member: int
    ending: str
    ending_reason: str
    score: float | None
    success: bool | None
    unscored: str
    outcome: float | None
    tokens: int
    start: str
    turns: tuple[TurnRecord, ...]
    steps: tuple[StepRecord, ...]


# -- making -------------------------------------------------------------------------------------------------------------------


def record(step: int, member: Episode | Scored | Credited, decode: Decode | None = None) -> EpisodeRecord:
    """The record of an episode at any stage: what later stages add is None or empty before them.

    Args:
        step: The run's step.
        member: An episode, with step rewards, with advantages.
        decode: Token ids -> text, for steps that are a part of a turn.
    """
    scored = member.scored if isinstance(member, Credited) else member if isinstance(member, Scored) else None
    episode = scored.episode if scored is not None else member
    assert isinstance(episode, Episode)
    advantages = [float(a) for a in member.advantages_S] if isinstance(member, Credited) else None
    return EpisodeRecord(
        step=step,
        key=episode.task.key,
        prompt=episode.task.prompt,
        difficulty=episode.task.difficulty,
        split=episode.task.split,
        member=episode.member,
        ending=episode.ending.kind.value,
        ending_reason=episode.ending.reason,
        score=episode.verdict.score,
        success=episode.verdict.success,
        unscored=episode.verdict.reason if episode.verdict.score is None else "",
        outcome=scored.outcome if scored is not None else None,
        tokens=episode.num_tokens,
        start=episode.start.text,
        turns=tuple(_turn(turn) for turn in episode.turns),
        steps=tuple(_step(scored, s, advantages, decode) for s in range(len(scored.steps))) if scored is not None else (),
    )


def _turn(turn: Turn) -> TurnRecord:
    action, reply = turn.action, turn.reply
    return TurnRecord(
        text=turn.text,
        action=None if isinstance(action, Invalid) else action.name,
        arguments={} if isinstance(action, Invalid) else dict(action.arguments),
        invalid=action.reason if isinstance(action, Invalid) else "",
        valid=not is_invalid(turn),
        reward=float(reply.reward),
        done=reply.done,
        event=reply.event,
        stop=turn.stop.value,
        tokens=len(turn.token_ids),
        version=turn.version,
        observation=reply.observation.text,
    )


def _step(scored: Scored, s: int, advantages: list[float] | None, decode: Decode | None) -> StepRecord:
    is_scored = bool(scored.scored_S[s])
    return StepRecord(
        turn=int(scored.steps.turn_S[s]),
        text=_text(scored, s, decode),
        tokens=int(scored.steps.lengths_S[s]),
        rewards={name: float(values[s]) if is_scored else None for name, values in scored.rewards.items()},
        scored=is_scored,
        advantage=advantages[s] if advantages is not None else None,
        value=float(scored.values_S[s]) if scored.values_S is not None else None,
    )


def _text(scored: Scored, s: int, decode: Decode | None) -> str | None:
    """The text of step s: the turn's where it is the whole turn, else its own tokens decoded."""
    steps, turns = scored.steps, scored.episode.turns
    index = int(steps.turn_S[s])
    turn = turns[index]
    before = sum(len(earlier.token_ids) for earlier in turns[:index])
    start, stop = int(steps.start_S[s]) - before, int(steps.stop_S[s]) - before
    if (start, stop) == (0, len(turn.token_ids)):
        return turn.text
    return None if decode is None else decode(np.asarray(turn.token_ids[start:stop], np.int64))


# -- files --------------------------------------------------------------------------------------------------------------------


def write_episodes(
    run: Path,
    step: int,
    groups: Sequence[Group[Episode] | Group[Scored] | Group[Credited]],
    *,
    purpose: Purpose = "train",
    decode: Decode | None = None,
) -> Path:
    """Writes every episode of a step, atomically; the same episodes give the same bytes."""
    path = _path(run, step, purpose)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(asdict(record(step, member, decode))) for group in groups for member in group.members]
    write_atomic(path, gzip.compress("".join(f"{line}\n" for line in lines).encode(), compresslevel=6, mtime=0))
    return path


def read_episodes(run: Path, step: int, purpose: Purpose = "train") -> list[EpisodeRecord]:
    """The episodes of one step; `DataError` names the file and line that cannot be read."""
    path = _path(run, step, purpose)
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    except (OSError, EOFError, ValueError) as fault:
        raise DataError(f"{path} could not be read: {fault}.") from fault
    return [_parsed(path, number, line) for number, line in enumerate(lines, 1)]


def episode_steps(run: Path, purpose: Purpose = "train") -> list[int]:
    """The steps whose episodes are there, ascending."""
    return sorted(step for _, step, prefix in _files(run) if prefix == _PREFIX[purpose])


def cut_episodes(run: Path, step: int | None) -> None:
    """Removes the files of steps later than `step` (None: all), and half-written ones."""
    for path, found, _ in _files(run):
        if step is None or found > step:
            path.unlink()
    for path in (run / "episodes").glob(".*.writing"):
        path.unlink()


def _path(run: Path, step: int, purpose: Purpose) -> Path:
    return run / "episodes" / f"{_PREFIX[purpose]}-{step:06d}.jsonl.gz"


def _files(run: Path) -> list[tuple[Path, int, str]]:
    folder = run / "episodes"
    if not folder.is_dir():
        return []
    return [(path, int(match[2]), match[1]) for path in folder.iterdir() if (match := _FILE.fullmatch(path.name))]


def _parsed(path: Path, number: int, line: str) -> EpisodeRecord:
    try:
        entry = json.loads(line)
        turns = tuple(TurnRecord(**turn) for turn in entry.pop("turns"))
        steps = tuple(StepRecord(**step) for step in entry.pop("steps"))
        return EpisodeRecord(**entry, turns=turns, steps=steps)
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        raise DataError(f"{path}, line {number} is no episode of this version of Stepwell: {fault}.") from fault
