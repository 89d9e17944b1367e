"""Demonstrations from a file: what is refused, and that a policy learns from the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepwell.build import build, build_domain
from stepwell.config import Config
from stepwell.configure import load
from stepwell.demonstrations import read_demonstrations
from stepwell.engine.codec import BRACKET
from stepwell.errors import DataError
from stepwell.protocols import Domain
from stepwell.types import JSON, Task

WEBSHOP = Path(__file__).parent / "data" / "webshop"
TINY = ("engine.threads=1", "engine.width=32", "engine.feedforward=32", "engine.layers=1", "engine.corpus_tasks=20")
CONFIGS = {
    "shop": (
        "smoke",
        *TINY,
        "domain.products=100",
        "rollout.turns=6",
        "cloning.steps=40",
        "cloning.batch=4",
        "cloning.optimizer.lr=0.02",
        "cloning.optimizer.warmup=2",
    ),
    "webshop": (
        "webshop",
        *TINY,
        f"data={WEBSHOP}",
        "cloning.steps=40",
        "cloning.batch=4",
        "cloning.optimizer.lr=0.02",
        "cloning.optimizer.warmup=2",
    ),
}


def config(name: str, *more: str) -> Config:
    source, *settings = CONFIGS[name]
    return load(source, [*settings, *more])


def shown(domain: Domain, task: Task) -> list[str]:
    """What the expert does, as text."""
    tools = domain.environment(task, 0).tools
    return [BRACKET.format(action, tools) for action in domain.expert(task) or ()]


def record(domain: Domain, path: Path) -> list[Task]:
    """Writes the expert's episodes: of listed training tasks by key, of generated ones by difficulty and seed."""
    listed = list(domain.tasks("train"))
    tasks = listed or [domain.task(0.1, seed, "train") for seed in range(8)]
    named: list[dict[str, JSON]] = [{"task": task.key} for task in listed] or [{"difficulty": 0.1, "seed": seed} for seed in range(8)]
    lines = [json.dumps({**name, "actions": shown(domain, task)}) for name, task in zip(named, tasks, strict=True) if shown(domain, task)]
    path.write_text("\n\n".join(lines) + "\n")
    return [task for task in tasks if shown(domain, task)]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_policy_learns_from_recorded_episodes(name: str, tmp_path: Path) -> None:
    path = tmp_path / "demonstrations.jsonl"
    domain = build_domain(config(name).domain)
    tasks = record(domain, path)
    assert [one.task for one in read_demonstrations(path, domain, BRACKET.parse)] == tasks
    made = build(config(name, f"cloning.demonstrations={path}"))
    run = made.trainer.run()
    steps = [next(run) for _ in range(made.trainer.clone_steps)]
    losses = [step.metrics["cloning/loss"] for step in steps]
    assert {step.phase for step in steps} == {"clone"}
    assert losses[-1] < 0.6 * losses[0], losses


BAD = {
    '{"difficulty": 0.1, "seed": 1': "line 2: not JSON (Expecting ',' delimiter",
    "[]": "line 2 has a list; a demonstration is",
    '{"difficulty": 0.1, "seed": 1}': "line 2 has the keys 'difficulty', 'seed'; a demonstration is",
    '{"task": "a", "actions": ["search[x]"], "seed": 1}': "line 2 has the keys 'task', 'actions', 'seed';",
    '{"task": "nobody", "actions": ["search[x]"]}': "line 2: task is 'nobody', which is no training task here: tasks are generated;",
    '{"difficulty": 2, "seed": 1, "actions": ["search[x]"]}': "line 2: The difficulty is 2.0; it lies in [0, 1].",
    '{"difficulty": 0.1, "seed": "1", "actions": ["search[x]"]}': "line 2: difficulty is 0.1 and seed '1';",
    '{"difficulty": 0.1, "seed": 1, "actions": "search[x]"}': "line 2: actions is 'search[x]'; it must be a list",
    '{"difficulty": 0.1, "seed": 1, "actions": []}': "line 2: actions is []; it must be a list of at least one text",
    '{"difficulty": 0.1, "seed": 1, "actions": ["search[x]", 3]}': "line 2, action 2: 3 is no action: it must be a text.",
    '{"difficulty": 0.1, "seed": 1, "actions": ["hello"]}': "line 2, action 1: 'hello' is no action: ",
    '{"difficulty": 0.1, "seed": 1, "actions": ["search[\\ud800]"]}': "line 2, action 1: 'search[\\ud800]' holds half a character",
}


@pytest.mark.parametrize("line", BAD)
def test_a_line_that_is_no_demonstration_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    good = '{"difficulty": 0.1, "seed": 0, "actions": ["search[x]"]}'
    path.write_text(f"{good}\n{line}\n")
    with pytest.raises(DataError) as error:
        read_demonstrations(path, build_domain(config("shop").domain), BRACKET.parse)
    assert str(error.value).startswith(f"{path}, {BAD[line]}")


def test_a_file_that_is_no_text_or_empty(tmp_path: Path) -> None:
    domain, path = build_domain(config("shop").domain), tmp_path / "mine.jsonl"
    path.write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"invalid start byte at byte 0 of a text in UTF-8\."):
        read_demonstrations(path, domain, BRACKET.parse)
    path.write_text(" \n")
    with pytest.raises(DataError, match="holds no demonstration"):
        read_demonstrations(path, domain, BRACKET.parse)
