from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepwell.errors import DataError
from stepwell.tracking import Tracker, cut_episodes, episode_steps, read_episodes, record
from stepwell.types import Credited, EndingKind, Group, Scored, Steps, Stop

Make = Callable[..., Any]


@pytest.fixture
def credited(make_episode: Make, make_turn: Make, make_credited: Make) -> Credited:
    turns = (
        make_turn("search[red shirt]", tokens=4, observation="p1 red shirt", reward=0.25),
        make_turn("hm", tokens=1, invalid="no tool", stop=Stop.LENGTH),
    )
    result: Credited = make_credited(make_episode(*turns, score=0.5, member=3), [0.75, None], [1.5, -0.5])
    return result


def test_every_field_of_an_episode(tmp_path: Path, credited: Credited) -> None:
    with Tracker(tmp_path) as tracker:
        tracker.log_episodes(12, [Group(credited.scored.episode.task, (credited,))])
    line = json.loads(gzip.decompress((tmp_path / "episodes" / "step-000012.jsonl.gz").read_bytes()))
    assert line == {
        "step": 12,
        "key": "shop/train/7",
        "prompt": "buy a red shirt",
        "difficulty": 0.25,
        "split": "train",
        "member": 3,
        "ending": "terminated",
        "ending_reason": "",
        "score": 0.5,
        "success": False,
        "unscored": "",
        "outcome": 0.5,
        "tokens": 5,
        "start": "The shop's front page.",
        "turns": [
            {
                "text": "search[red shirt]",
                "action": "buy",
                "arguments": {"item": "red shirt"},
                "invalid": "",
                "valid": True,
                "reward": 0.25,
                "done": False,
                "event": None,
                "stop": "eos",
                "tokens": 4,
                "version": 7,
                "observation": "p1 red shirt",
            },
            {
                "text": "hm",
                "action": None,
                "arguments": {},
                "invalid": "no tool",
                "valid": False,
                "reward": 0.0,
                "done": False,
                "event": None,
                "stop": "length",
                "tokens": 1,
                "version": 7,
                "observation": "Thank you.",
            },
        ],
        "steps": [
            {
                "turn": 0,
                "text": "search[red shirt]",
                "tokens": 4,
                "rewards": {"judge": 0.75, "format": 0.125},
                "scored": True,
                "advantage": 1.5,
                "value": None,
            },
            {
                "turn": 1,
                "text": "hm",
                "tokens": 1,
                "rewards": {"judge": None, "format": None},
                "scored": False,
                "advantage": -0.5,
                "value": None,
            },
        ],
    }
    (back,) = read_episodes(tmp_path, 12)
    assert back == record(12, credited)


def test_u34_raw_rewards_and_advantages_are_apart(credited: Credited) -> None:
    first = record(0, credited).steps[0]
    assert (first.rewards["judge"], first.advantage) == (0.75, 1.5)


def test_every_stage_and_a_failed_episode_can_be_recorded(tmp_path: Path, credited: Credited, make_episode: Make) -> None:
    scored, episode = credited.scored, credited.scored.episode
    assert [step.advantage for step in record(0, scored).steps] == [None, None]
    assert record(0, scored).outcome == 0.5
    assert record(0, episode).steps == ()
    failed = make_episode(score=None, kind=EndingKind.FAILED, reason="server down")
    with Tracker(tmp_path) as tracker:
        tracker.log_episodes(1, [Group(failed.task, (failed,))], "eval")
    (back,) = read_episodes(tmp_path, 1, "eval")
    assert (back.ending, back.ending_reason, back.score, back.success, back.unscored) == (
        "failed",
        "server down",
        None,
        None,
        "server down",
    )
    assert (episode_steps(tmp_path), episode_steps(tmp_path, "eval")) == ([], [1])


def test_the_text_of_a_part_of_a_turn(credited: Credited) -> None:
    episode = credited.scored.episode
    steps = Steps(np.array([0, 0, 1]), np.array([0, 1, 4]), np.array([1, 4, 5]))
    scored = Scored(episode, steps, 0.5, {}, np.zeros(3, np.bool_), values_S=np.array([0.5, 0.25, 0.0]))
    assert [step.text for step in record(0, scored).steps] == [None, None, "hm"]
    decoded = record(0, scored, decode=lambda ids: "-".join(map(str, ids))).steps
    assert [step.text for step in decoded] == ["0", "1-2-3", "hm"]
    assert [step.value for step in decoded] == [0.5, 0.25, 0.0]


def test_the_same_episodes_are_the_same_bytes(tmp_path: Path, credited: Credited) -> None:
    for run in ("a", "b"):
        with Tracker(tmp_path / run) as tracker:
            tracker.log_episodes(1, [Group(credited.scored.episode.task, (credited,) * 3)])
    one, two = ((tmp_path / run / "episodes" / "step-000001.jsonl.gz").read_bytes() for run in ("a", "b"))
    assert one == two
    assert len(read_episodes(tmp_path / "a", 1)) == 3


def test_hostile_text_survives(tmp_path: Path, make_episode: Make, make_turn: Make) -> None:
    text = "a\x00\x1b[31m\ud800\u2028\u0085\r\nb[bold]"
    episode = make_episode(make_turn(text, observation=text), prompt=text)
    with Tracker(tmp_path) as tracker:
        tracker.log_episodes(1, [Group(episode.task, (episode, episode))])
    for back in read_episodes(tmp_path, 1):
        assert (back.prompt, back.turns[0].text, back.turns[0].observation) == (text, text, text)


def test_cutting_back_leaves_older_ones(tmp_path: Path, credited: Credited) -> None:
    with Tracker(tmp_path) as tracker:
        for step in (1, 2, 3):
            tracker.log_episodes(step, [])
            tracker.log_episodes(step, [], "eval")
    cut_episodes(tmp_path, 2)
    assert (episode_steps(tmp_path), episode_steps(tmp_path, "eval")) == ([1, 2], [1, 2])
    cut_episodes(tmp_path / "absent", 0)


def test_a_damaged_file_is_named(tmp_path: Path, credited: Credited) -> None:
    with Tracker(tmp_path) as tracker:
        tracker.log_episodes(1, [Group(credited.scored.episode.task, (credited,))])
    path = tmp_path / "episodes" / "step-000001.jsonl.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(DataError, match=r"step-000001\.jsonl\.gz could not be read"):
        read_episodes(tmp_path, 1)
    path.write_bytes(gzip.compress(b'{"turns": [], "steps": [], "colour": 1}\n'))
    with pytest.raises(DataError, match=r"line 1 is no episode of this version of Stepwell: .*colour"):
        read_episodes(tmp_path, 1)
