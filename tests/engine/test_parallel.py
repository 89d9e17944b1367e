"""Several processes do what one does: the contract of engines, a whole run to the same numbers, and its resumption."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
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


RESTLESS = (
    *("engine.policy=lora", "reward.model=lora", "reward.reference=frozen", "loss.kl=k2", "loss.kl_coef=0.01", "loss.ratio=episode"),
    *("loss.old_logprobs=trainer", "loss.epochs=2", "steps=1"),
)
ROUNDS = {
    "contract-full": ["contract", "full"],
    "contract-lora": ["contract", "lora"],
    "begun": ["train", "smoke", *SMALL, "steps=1", "--run", "two"],
    "resumed": ["train", "smoke", *SMALL, "--run", "two", "--resume"],
    "restless": ["train", "smoke", *SMALL, *RESTLESS, "--run", "restless"],
}


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two processes have done all rounds, one after the other, and have left what they said."""
    folder = tmp_path_factory.mktemp("rounds")
    asked = [{"name": name, "cwd": str(folder), "arguments": arguments} for name, arguments in ROUNDS.items()]
    (folder / "rounds.json").write_text(json.dumps(asked))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}
    driver = [sys.executable, str(Path(__file__).with_name("parallel_driver.py")), str(folder / "rounds.json")]
    ran = subprocess.run(driver, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return folder


def told(rounds: Path, name: str) -> str:
    """What the lead said, where both processes ended well."""
    lead, follower = ((rounds / f"{name}-{number}.txt").read_text() for number in range(2))
    assert lead.splitlines()[-1] == "0", lead[-2000:]
    assert follower.splitlines()[-1] == "0", follower[-2000:]
    return lead


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "lora"])
def test_the_contract_of_engines_holds_for_two_processes(kind: str, rounds: Path) -> None:
    assert "all that the contract demands holds" in told(rounds, f"contract-{kind}")


def alone(where: Path, *settings: str) -> Path:
    list(train(load("smoke", [*SMALL, *settings]), where / "run"))
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
def test_a_run_on_two_processes_is_the_run_on_one_and_goes_on_after_a_stop(rounds: Path, tmp_path: Path) -> None:
    told(rounds, "begun")
    told(rounds, "resumed")
    same(alone(tmp_path), rounds / "two")


@pytest.mark.slow
def test_adapters_a_reference_and_a_loss_over_episodes_are_shared_out_too(rounds: Path, tmp_path: Path) -> None:
    told(rounds, "restless")
    same(alone(tmp_path, *RESTLESS), rounds / "restless")


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
