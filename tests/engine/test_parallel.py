"""Several processes do what one does: the contract of engines, a whole run to the same numbers, and its resumption."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from stepwell.configure import load
from stepwell.engine.parallel import shares_of
from stepwell.engine.ranks import num_ranks, rank
from stepwell.run import train
from stepwell.types import Row

TESTS = Path(__file__).parents[1]
SMALL = (
    *(f"engine.{name}" for name in ("threads=1", "width=16", "feedforward=32", "layers=1", "corpus_tasks=40", "max_length=256")),
    *("engine.micro_tokens=400", "domain.products=200", "domain.test_tasks=8", "rollout.groups=2", "rollout.group_size=3"),
    *("rollout.turns=4", "rollout.max_tokens=8", "cloning.steps=4", "evaluation.episodes=6", "evaluation.during=4", "checkpoint.every=1"),
)


def together(arguments: Sequence[str], cwd: Path) -> list[subprocess.CompletedProcess[str]]:
    """Two processes, as a launcher starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **shared, "PYTHONPATH": str(TESTS)}
    started = [
        subprocess.Popen(
            [sys.executable, *arguments],
            env={**environment, "RANK": str(number), "LOCAL_RANK": str(number)},
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        said = [process.communicate(timeout=300) for process in started]
    finally:
        for process in started:
            process.kill()
    return [subprocess.CompletedProcess(arguments, process.returncode, *texts) for process, texts in zip(started, said, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "lora"])
def test_the_contract_of_engines_holds_for_two_processes(kind: str, tmp_path: Path) -> None:
    lead, follower = together([str(Path(__file__).with_name("in_parallel.py")), kind], tmp_path)
    assert lead.returncode == 0, lead.stderr[-2000:]
    assert follower.returncode == 0, follower.stderr[-2000:]
    assert "all that the contract demands holds" in lead.stdout


def alone(where: Path, *settings: str) -> Path:
    list(train(load("smoke", [*SMALL, *settings]), where / "run"))
    return where / "run"


def trained(where: Path, *settings: str, resume: bool = False) -> Path:
    command = ["-c", "from stepwell.cli import main; main()", "train", "smoke", *SMALL, *settings, "--run", "run"]
    where.mkdir(exist_ok=True)
    for process in together([*command, "--resume"] if resume else command, where):
        assert process.returncode == 0, process.stderr[-2000:]
    return where / "run"


def numbers(run: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in line.items() if not name.startswith("time/") and isinstance(value, int | float)} for line in lines
    ]


def words(run: Path) -> list[object]:
    found = []
    for path in sorted((run / "episodes").iterdir()):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            found += [[turn["text"] for turn in json.loads(line)["turns"]] for line in file]
    return found


def same(one: Path, two: Path) -> None:
    """Equal words; numbers to what the order of sums changes. How far sampler and trainer differ is nothing but such noise."""
    assert words(one) == words(two) and words(one)
    assert len(numbers(one)) == len(numbers(two))
    for a, b in zip(numbers(one), numbers(two), strict=True):
        assert a.keys() <= b.keys(), "a run that was to end earlier has measured its end, too"
        for name in a.keys() - {"sampler/mismatch_rms"}:
            assert a[name] == pytest.approx(b[name], rel=2e-4, abs=1e-6, nan_ok=True), name


@pytest.mark.slow
def test_a_run_on_two_processes_is_the_run_on_one_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    trained(tmp_path / "two", "steps=1")
    same(alone(tmp_path / "one"), trained(tmp_path / "two", resume=True))


@pytest.mark.slow
def test_adapters_a_reference_and_a_loss_over_episodes_are_shared_out_too(tmp_path: Path) -> None:
    settings = (
        *("engine.policy=lora", "reward.model=lora", "reward.reference=frozen", "loss.kl=k2", "loss.kl_coef=0.01", "loss.ratio=episode"),
        *("loss.old_logprobs=trainer", "loss.epochs=2", "steps=1"),
    )
    same(alone(tmp_path / "one", *settings), trained(tmp_path / "two", *settings))


def test_shares_are_even_and_leave_nothing_out() -> None:
    import numpy as np

    rows = [Row.of(np.arange(2 + n % 7), np.array([1])) for n in range(11)]
    shares = shares_of(rows, 3)
    assert sorted(i for share in shares for i in share) == list(range(11))
    sums = [sum(len(rows[i].ids) for i in share) for share in shares]
    assert max(sums) - min(sums) <= 8


def test_one_process_is_alone() -> None:
    assert (rank(), num_ranks()) == (0, 1)


def test_other_commands_are_not_for_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    from cli.commands import stepwell

    monkeypatch.setenv("WORLD_SIZE", "2")
    said = stepwell("presets")
    assert said.code == 2
    assert "torchrun starts 2 processes of `stepwell presets`, and only `stepwell train` computes on several" in said.err
