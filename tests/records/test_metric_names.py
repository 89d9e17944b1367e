"""Every metric has a line in docs/metrics.md, and every line is a metric."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell.plots import PANELS
from stepwell.tracking import episode_metrics, read_metrics, reward_metrics
from stepwell.tracking.progress import HEADLINE
from stepwell.types import Group

ROOT = Path(__file__).parents[2]
AREAS = "rollout|curriculum|reward|credit|policy|sampler|judge|critic|cloning|eval|test|time"


@pytest.fixture(scope="module")
def table() -> list[str]:
    """Names in the first column of the tables; `<component>` stands for any word."""
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE)


def undocumented(names: list[str], table: list[str]) -> list[str]:
    known = [re.compile(re.escape(name).replace("<component>", "[a-z_]+")) for name in table]
    return sorted({name for name in names if not any(pattern.fullmatch(name) for pattern in known)})


def test_no_name_is_listed_twice(table: list[str]) -> None:
    assert len(table) == len(set(table)) > 50


def test_names_made_here_are_documented(table: list[str], make_episode: Callable[..., Any], make_credited: Callable[..., Any]) -> None:
    scored = make_credited(make_episode(), [0.5], [1.0]).scored
    names = [*episode_metrics([]), *reward_metrics([Group(scored.episode.task, (scored,))])]
    assert "reward/judge_step" in names
    assert undocumented(names, table) == []


def test_names_shown_are_documented(table: list[str]) -> None:
    assert undocumented([*HEADLINE.values(), *(series.name for panel in PANELS for series in panel.series)], table) == []


def test_names_written_in_the_sources_are_documented(table: list[str]) -> None:
    """Literals `"area/name"` in the package; `sampler/mismatch_ms` is made into `..._rms` before it is logged."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "stepwell").rglob("*.py"))
    literals = re.findall(rf'"((?:{AREAS})/[a-z][a-z0-9_]*)"', sources)
    assert len(literals) > 40
    assert undocumented([name for name in literals if name != "sampler/mismatch_ms"], table) == []


def test_names_of_a_run_are_documented(table: list[str], finished_run: Path) -> None:
    lines = read_metrics(finished_run)
    assert lines
    assert undocumented([name for line in lines for name in line.metrics], table) == []
