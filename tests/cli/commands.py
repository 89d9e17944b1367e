"""The command as tests call it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from typer.testing import CliRunner

from stepwell.cli import app

SMALL = (
    *("domain.products=100", "domain.test_tasks=8"),
    *("engine.threads=1", "engine.width=16", "engine.feedforward=16", "engine.layers=1", "engine.corpus_tasks=20"),
    *("cloning.steps=3", "cloning.batch=2", "steps=2"),
    *("rollout.groups=2", "rollout.group_size=2", "rollout.turns=3", "rollout.max_tokens=6"),
    *("evaluation.episodes=6", "evaluation.during=4"),
)
"""Settings for the preset `smoke` that make it smaller still."""


def small(*settings: str) -> list[str]:
    """Those of them that hold whatever kind a section gets by the settings."""
    anew = {one.partition(".kind=")[0] for one in settings if ".kind=" in one}
    return [one for one in SMALL if one.split(".")[0] not in anew]


class Said(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Stepwell = Callable[..., Said]


def stepwell(*arguments: object, typed: str | None = None) -> Said:
    """`stepwell ...`, in this process; an error that nobody foresaw fails the test."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=typed, catch_exceptions=False)
    return Said(result.exit_code, result.stdout, result.stderr)
