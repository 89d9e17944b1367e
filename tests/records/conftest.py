"""Episodes at every stage, made by hand, and a model that is a number."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from stepwell.types import (
    Action,
    Credited,
    Ending,
    EndingKind,
    Episode,
    Group,
    Invalid,
    Observation,
    Reply,
    Scored,
    Steps,
    Stop,
    Task,
    Turn,
    Verdict,
)


class FakeModel:
    """A model whose weights are one number; it writes two files, as a real one does."""

    def __init__(self, weight: int = 0, size: int = 100) -> None:
        self.weight, self.size = weight, size

    def save(self, path: Path) -> None:
        (path / "model.safetensors").write_bytes(str(self.weight).encode().rjust(self.size))
        (path / "optimizer.json").write_text(json.dumps({"moment": self.weight * 2}))

    def load(self, path: Path) -> None:
        self.weight = int((path / "model.safetensors").read_bytes())
        assert json.loads((path / "optimizer.json").read_text()) == {"moment": self.weight * 2}


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a kill leaves the same there, and fsync takes no time."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def fake_model() -> type[FakeModel]:
    return FakeModel


def turn(
    text: str = "buy[red shirt]",
    *,
    tokens: int = 3,
    valid: bool = True,
    invalid: str = "",
    observation: str = "Thank you.",
    reward: float = 0.0,
    stop: Stop = Stop.EOS,
) -> Turn:
    action = Invalid(text, invalid) if invalid else Action("buy", {"item": "red shirt"})
    reply = Reply(Observation(observation), reward=reward, valid=valid and not invalid)
    return Turn(np.array([1, 2]), np.arange(tokens), np.full(tokens, -0.5), text, action, reply, stop, version=7)


@pytest.fixture
def make_turn() -> Callable[..., Turn]:
    return turn


@pytest.fixture
def make_episode() -> Callable[..., Episode]:
    def make(
        *turns: Turn,
        score: float | None = 1.0,
        kind: EndingKind = EndingKind.TERMINATED,
        reason: str = "",
        key: str = "shop/train/7",
        member: int = 0,
        prompt: str = "buy a red shirt",
    ) -> Episode:
        verdict = Verdict.unscored(reason or "no grade") if score is None else Verdict.of(score)
        task = Task(key, prompt, 0.25, "train")
        return Episode(task, member, Observation("The shop's front page."), turns or (turn(),), Ending(kind, reason), verdict)

    return make


@pytest.fixture
def make_credited() -> Callable[..., Credited]:
    def make(episode: Episode, judge: Sequence[float | None], advantages: Sequence[float]) -> Credited:
        lengths = [len(t.token_ids) for t in episode.turns]
        stop = np.cumsum(lengths)
        steps = Steps(np.arange(len(lengths)), stop - lengths, stop)
        rewards = {"judge": np.array([0.0 if v is None else v for v in judge]), "format": np.full(len(lengths), 0.125)}
        scored = Scored(episode, steps, episode.verdict.score, rewards, np.array([v is not None for v in judge]))
        return Credited(scored, np.array(advantages, np.float64))

    return make


@pytest.fixture
def one_group() -> Callable[..., Group[Credited]]:
    def make(*members: Credited) -> Group[Credited]:
        return Group(members[0].scored.episode.task, members)

    return make


@pytest.fixture
def finished_run(request: pytest.FixtureRequest) -> Path:
    """The folder of a finished run: the suite's session fixture `smoke_run` where there is one."""
    try:
        folder: Path = request.getfixturevalue("smoke_run")
    except pytest.FixtureLookupError:
        pytest.skip("no finished run is at hand: the suite has no fixture smoke_run")
    return folder
