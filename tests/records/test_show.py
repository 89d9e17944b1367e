from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from stepwell.errors import RunError
from stepwell.show import Query, as_json, episode_svg, find, neutral, print_episodes
from stepwell.tracking import EpisodeRecord, Tracker, record
from stepwell.types import EndingKind, Group, Stop

Make = Callable[..., Any]
HOSTILE = "[bold]loud[/bold] \x1b[31mred\x1b]0;title\x07 \r\u202eevil\u200b [/nothing] :smile: \ud800"


@pytest.fixture
def run(tmp_path: Path, make_episode: Make, make_turn: Make, make_credited: Make) -> Path:
    """Steps 1 and 2: a solved and an unsolved episode of one task, an unscored one of another; an evaluation at step 2."""
    turns = (make_turn("search[red shirt]", observation="p1 red shirt\np2 blue shirt"), make_turn("buy[p1]"))
    good = make_credited(make_episode(*turns, member=0), [0.5, None], [1.5, -0.75])
    bad = make_credited(make_episode(make_turn("buy[p2]", valid=False), score=0.25, member=1), [-0.125], [-1.5])
    lost = make_credited(make_episode(score=None, reason="grader timed out", key="shop/train/8"), [0.0], [0.0])
    task = good.scored.episode.task
    with Tracker(tmp_path) as tracker:
        tracker.log_episodes(1, [Group(task, (good,))])
        tracker.log_episodes(2, [Group(task, (good, bad)), Group(lost.scored.episode.task, (lost,))])
        tracker.log_episodes(2, [Group(task, (bad.scored.episode,))], "eval")
    return tmp_path


def shown(episodes: list[EpisodeRecord], *, colour: bool = False, width: int = 100, lines: int = 12) -> str:
    file = io.StringIO()
    print_episodes(
        episodes, Console(file=file, width=width, force_terminal=colour, color_system="standard" if colour else None), lines=lines
    )
    return file.getvalue()


def picked(run: Path, query: Query) -> list[tuple[int, str, int]]:
    return [(episode.step, episode.key, episode.member) for episode in find(run, query)]


def test_what_a_query_picks(run: Path) -> None:
    good, bad, lost = (2, "shop/train/7", 0), (2, "shop/train/7", 1), (2, "shop/train/8", 0)
    assert picked(run, Query()) == [good, bad, lost]
    assert picked(run, Query(step=1)) == [(1, "shop/train/7", 0)]
    assert picked(run, Query(task="shop/train/7")) == [good, bad]
    assert picked(run, Query(failed=True)) == [bad, lost]
    assert picked(run, Query(failed=True, task="shop/train/7")) == [bad]
    assert picked(run, Query(limit=1)) == [good]
    assert picked(run, Query(purpose="eval")) == [bad]


def test_what_is_not_there_is_named(run: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(RunError, match=r"no episodes of step 3; it holds 2 steps, from 1 to 2"):
        find(run, Query(step=3))
    with pytest.raises(RunError, match=r"holds no task 'shop/train/9'; did you mean 'shop/train/[78]'"):
        find(run, Query(task="shop/train/9"))
    with pytest.raises(RunError, match=r"holds no episodes of training\. Give the folder of a run"):
        find(tmp_path_factory.mktemp("empty"), Query())


def test_json_is_the_whole_record(run: Path) -> None:
    episodes = find(run, Query())
    entries = json.loads(as_json(episodes))
    assert entries[0]["steps"][0] == {
        "turn": 0,
        "text": "search[red shirt]",
        "tokens": 3,
        "rewards": {"judge": 0.5, "format": 0.125},
        "scored": True,
        "advantage": 1.5,
        "value": None,
    }
    assert [entry["unscored"] for entry in entries] == ["", "", "grader timed out"]


def test_numbers_stand_beside_the_text(run: Path) -> None:
    lines = shown(find(run, Query(step=1))).splitlines()
    (search,) = [line for line in lines if "search[red shirt]" in line]
    assert re.search(r"  1 search\[red shirt\] +judge  \+0\.500  format  \+0\.125  advantage  \+1\.500 ████████ ", search)
    (buy,) = [line for line in lines if "buy[p1]" in line]
    assert re.search(r"  2 buy\[p1\] +judge unscored  format unscored  advantage  -0\.750 ████ ", buy)
    assert "step 1  member 0  difficulty 0.25  shop/train/7" in lines[0]
    assert "score 1.00, success  ended: terminated  turns: 2  tokens: 6" in lines[-1]


def test_a_critics_value_stands_before_the_advantage(make_episode: Make, make_credited: Make) -> None:
    member = make_credited(make_episode(), [0.5], [0.75])
    scored = replace(member.scored, rewards={"judge": np.array([0.5])}, values_S=np.array([0.25]))
    text = shown([record(1, replace(member, scored=scored))])
    assert re.search(r"judge  \+0\.500  value  \+0\.250  advantage  \+0\.750", text)


def test_positive_is_green_and_negative_red(run: Path) -> None:
    text = shown(find(run, Query(task="shop/train/7")), colour=True)
    green, red = "\x1b[32m", "\x1b[31m"
    assert f"{green} +1.500\x1b[0m" in text
    assert f"{red} -0.750\x1b[0m" in text
    assert f"{red} -0.125\x1b[0m" in text
    assert f"{green}████████" in text
    assert f"{red}████    \x1b" in text
    assert "\x1b[2m +0.000" in shown(find(run, Query(task="shop/train/8")), colour=True)


def test_what_went_wrong_is_said_in_words(make_episode: Make, make_turn: Make, run: Path) -> None:
    turns = (
        make_turn("hm", invalid="no bracket"),
        make_turn("click[nothing]", valid=False),
        make_turn("thinking", tokens=64, stop=Stop.LENGTH),
    )
    text = shown([record(0, make_episode(*turns, score=None, kind=EndingKind.FAILED, reason="server\ndown"))])
    for words in ("no bracket", "this action has no meaning here", "cut at the token limit (64 tokens)"):
        assert words in text
    assert "unscored: server down  ended: failed (server down)  turns: 3" in text
    assert "No such episodes." in shown([])


def test_a_long_observation_is_cut_and_the_cut_is_said(make_episode: Make, make_turn: Make) -> None:
    episode = record(0, make_episode(make_turn(observation="\n".join(f"row {i}" for i in range(30)))))
    text = shown([episode], lines=5)
    assert "row 4 " in text
    assert "row 5 " not in text
    assert "... 25 more lines" in text
    assert "row 29 " in shown([episode], lines=0)


# -- hostile text -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("[bold]", "[bold]"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\rb\r\nc\n", "a\\x0db\nc\n"),
        ("\u202e\u200b\x9b\ud800\U000e0041", "\\u202e\\u200b\\x9b\\ud800\\U000e0041"),
        ("tab\tü 漢 🙂", "tab ü 漢 🙂"),
    ],
)
def test_neutral(text: str, seen: str) -> None:
    assert neutral(text) == seen


@pytest.fixture
def hostile(make_episode: Make, make_turn: Make, make_credited: Make) -> EpisodeRecord:
    """Hostile text in every place that text can come from."""
    first = make_turn(HOSTILE, invalid=HOSTILE, observation=HOSTILE)
    episode = make_episode(first, make_turn(HOSTILE), key=HOSTILE, prompt=HOSTILE, reason=HOSTILE)
    return record(0, make_credited(episode, [0.5, None], [1.0, -1.0]))


def test_hostile_text_is_shown_as_text(hostile: EpisodeRecord) -> None:
    plain = shown([hostile], width=300)
    assert plain.count("[bold]loud[/bold] \\x1b[31mred\\x1b]0;title\\x07 \\x0d\\u202eevil\\u200b [/nothing] :smile: \\ud800") == 7
    allowed = {"\n"}
    assert not {character for character in plain if ord(character) < 32 or 127 <= ord(character) < 160} - allowed
    coloured = shown([hostile], width=300, colour=True)
    assert set(re.findall(r"\x1b(.)", coloured)) == {"["}
    assert "\x1b[1mloud" not in coloured
    assert set(re.findall(r"\x1b\[([0-9;]*)m", coloured)) <= {"0", "1", "2", "31", "32", "33", "36"}


def test_the_picture_holds_the_episode(hostile: EpisodeRecord, run: Path) -> None:
    picture = episode_svg(find(run, Query(step=1))[0], title="a run")
    root = ElementTree.fromstring(picture)
    assert root.tag.endswith("svg")
    words = "".join(root.itertext()).replace("\xa0", " ")
    for part in ("search[red shirt]", "+1.500", "-0.750", "p1 red shirt", "a run"):
        assert part in words
    assert picture == episode_svg(find(run, Query(step=1))[0], title="a run")
    ElementTree.fromstring(episode_svg(hostile, title=HOSTILE))
