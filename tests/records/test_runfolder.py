from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepwell import checkpoint
from stepwell.errors import DataError, RunError
from stepwell.files import probe
from stepwell.runfolder import RunFolder, config_hash, differing_keys, read_config
from stepwell.seeding import generator
from stepwell.tracking import Tracker, episode_steps, read_metrics

Make = Callable[..., Any]
CONFIG: dict[str, Any] = {"seed": 0, "steps": 20, "credit": {"kind": "grpo", "alpha": 0.1, "none": None}, "sizes": (1, 2), "name": "ü: #1"}


def test_config_is_written_and_read_back(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", CONFIG) as run:
        assert read_config(run.path) == {**CONFIG, "sizes": [1, 2]}
        assert run.config_hash == config_hash(CONFIG)
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text(encoding="utf-8"))["credit"]["alpha"] == 0.1


def test_a_folder_that_holds_a_run_is_not_begun_again(tmp_path: Path, fake_model: Make) -> None:
    with RunFolder.create(tmp_path, CONFIG) as run, pytest.raises(RunError, match="is in use by process"):
        RunFolder.create(tmp_path, CONFIG)
    with pytest.raises(RunError, match=r"already holds a run; it has no checkpoint yet\. Resume it"):
        RunFolder.create(tmp_path, CONFIG)
    checkpoint.save(run.checkpoints, 12, models={"policy": fake_model()}, state={}, keep=1)
    with pytest.raises(RunError, match=r"already holds a run; its last checkpoint is of step 12\. Resume it"):
        RunFolder.create(tmp_path, CONFIG)


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunError, match=r"is not empty \(it holds thesis.tex\) and holds no run"):
        RunFolder.create(tmp_path, CONFIG)
    with pytest.raises(RunError, match=r"thesis\.tex"):
        RunFolder.resume(tmp_path, CONFIG)


def test_resume_begins_where_nothing_is_yet(tmp_path: Path) -> None:
    with RunFolder.resume(tmp_path / "new", CONFIG) as run:
        assert run.rewind() is None
    with RunFolder.resume(tmp_path / "new", CONFIG) as again:
        assert again.config_hash == run.config_hash


def test_another_config_is_refused_and_the_keys_named(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, CONFIG).close()
    other = CONFIG | {"seed": 1, "steps": 40, "credit": {"kind": "rloo", "alpha": 0.1}, "extra": 3}
    with pytest.raises(RunError) as caught:
        RunFolder.resume(tmp_path, other)
    said = str(caught.value)
    clauses = ["seed is 0 there and 1 here", "credit.kind is 'grpo' there and 'rloo' here", "credit.none is None there and not set here"]
    assert all(clause in said for clause in [*clauses, "extra is not set there and 3 here", "Only steps may differ"])
    assert "steps is" not in said
    assert read_config(tmp_path)["steps"] == 20
    RunFolder.resume(tmp_path, CONFIG).close()


def test_a_key_that_may_differ_is_written_down(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, CONFIG) as run:
        before = run.config_hash
    with RunFolder.resume(tmp_path, CONFIG | {"steps": 40}) as run:
        assert run.config_hash == before
        assert read_config(tmp_path)["steps"] == 40
    with RunFolder.resume(tmp_path, CONFIG | {"credit": {"kind": "rloo"}}, may_differ=("steps", "credit")):
        assert read_config(tmp_path)["credit"] == {"kind": "rloo"}


def test_equal_configs_do_not_differ() -> None:
    assert differing_keys(CONFIG, CONFIG | {"sizes": [1, 2], "steps": 20.0}) == {}
    assert config_hash(CONFIG) != config_hash(CONFIG | {"credit": {"kind": "rloo"}})
    assert list(differing_keys({"a": {"b": 1}}, {"a": {}})) == ["a.b", "a"]


def test_a_config_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds no run: there is no config\.yaml"):
        read_config(tmp_path)
    (tmp_path / "config.yaml").write_text("a: [")
    with pytest.raises(RunError, match=r"config\.yaml could not be read"):
        read_config(tmp_path)
    (tmp_path / "config.yaml").write_text("")
    with pytest.raises(RunError, match="holds no mapping"):
        RunFolder.resume(tmp_path, CONFIG)
    with pytest.raises(RunError, match="holds no mapping"):  # the lock was given back: this is not "in use"
        RunFolder.resume(tmp_path, CONFIG)


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunError, match=r"The run folder .* cannot be used: .*Choose another folder"):
            RunFolder.create(path, CONFIG)


def test_a_full_disk_is_found_before_anything_is_done(tmp_path: Path) -> None:
    """A real refusal of the operating system, with a limit on the size of files in place of a small disk."""
    code = (
        "import resource, sys; from pathlib import Path; from stepwell.runfolder import RunFolder\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))\n"
        "RunFolder.create(Path(sys.argv[1]), {})"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True, check=False)
    assert "RunError: The run folder" in done.stderr
    assert "cannot be used: the file grew beyond the size that is allowed. Raise the limit" in done.stderr
    assert not (tmp_path / "run" / "config.yaml").exists()
    probe(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# -- cutting back -------------------------------------------------------------------------------------------------------------


def log(run: RunFolder, steps: range, groups: Any) -> None:
    with Tracker(run.path) as tracker:
        for step in steps:
            tracker.log_episodes(step, groups)
            tracker.log(step, {"rollout/success": step / 100})


def test_logs_end_where_the_checkpoint_does(
    tmp_path: Path, fake_model: Make, make_credited: Make, make_episode: Make, one_group: Make
) -> None:
    groups = [one_group(make_credited(make_episode(), [0.5], [1.0]))]
    with RunFolder.create(tmp_path, CONFIG) as run:
        log(run, range(6), groups)
        checkpoint.save(run.checkpoints, 3, models={"policy": fake_model(3)}, state={"a": 1}, keep=1)
        before = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
        with (tmp_path / "metrics.jsonl").open("ab") as file:
            file.write(b'{"step": 6, "roll')
        (tmp_path / "episodes" / ".step-000006.jsonl.gz.writing").write_bytes(b"half")
    with RunFolder.resume(tmp_path, CONFIG) as run:
        found = run.rewind()
        assert found is not None
        assert found.step == 3
        assert (tmp_path / "metrics.jsonl").read_bytes() == b"".join(before[:4])
        assert episode_steps(tmp_path) == [0, 1, 2, 3]
        assert sorted(path.name for path in (tmp_path / "episodes").iterdir())[0] == "step-000000.jsonl.gz"
        log(run, range(4, 6), groups)
        assert (tmp_path / "metrics.jsonl").read_bytes() == b"".join(before)


def test_without_a_checkpoint_the_run_begins_anew(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, CONFIG) as run:
        log(run, range(3), [])
        assert run.rewind() is None
    assert read_metrics(tmp_path) == []
    assert episode_steps(tmp_path) == []


def test_a_damaged_line_after_the_checkpoint_goes_and_one_before_it_stops_the_run(tmp_path: Path, fake_model: Make) -> None:
    with RunFolder.create(tmp_path, CONFIG) as run:
        log(run, range(1, 5), [])
        checkpoint.save(run.checkpoints, 2, models={}, state={}, keep=1)
        lines = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
        (tmp_path / "metrics.jsonl").write_bytes(lines[0] + lines[1] + b"\x00\x00\n" + lines[3])
        run.rewind()
        assert (tmp_path / "metrics.jsonl").read_bytes() == lines[0] + lines[1]
        (tmp_path / "metrics.jsonl").write_bytes(b"garbage\n" + lines[1] + lines[2])
        with pytest.raises(DataError, match=r"metrics\.jsonl, line 1 is no metrics line"):
            run.rewind()
        assert (tmp_path / "metrics.jsonl").read_bytes() == b"garbage\n" + lines[1] + lines[2]


def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(tmp_path: Path, fake_model: Make) -> None:
    with RunFolder.create(tmp_path, CONFIG) as run:
        log(run, range(1, 9), [])
        for step in (4, 8):
            checkpoint.save(run.checkpoints, step, models={"policy": fake_model(step)}, state={}, keep=2)
        (run.checkpoints / "step-000008" / "state.json").write_text("{}}")
        with pytest.warns(checkpoint.DamagedCheckpointWarning, match="step-000008 is damaged"):
            found = run.rewind()
        assert found is not None
        assert found.step == 4
        assert [line.step for line in read_metrics(tmp_path)] == [1, 2, 3, 4]
        assert (run.checkpoints / "damaged-step-000008").is_dir()
        log(run, range(5, 7), [])
        checkpoint.save(run.checkpoints, 6, models={"policy": fake_model(6)}, state={}, keep=2)


# -- U71, U72: the resumed run is the uninterrupted run -------------------------------------------------------------------------


class Died(BaseException):
    """Stands for a kill between two statements; the kills of the whole process are in test_kills."""


class Pool:
    """A curriculum with a pool of tasks that shrinks, and a generator with a position: both must be in the checkpoint."""

    def __init__(self) -> None:
        self.left = list(range(20))
        self.draws = generator(0, "pool")

    def draw(self) -> int:
        return self.left.pop(int(self.draws.integers(len(self.left))))

    def state(self) -> dict[str, Any]:
        return {"left": list(self.left), "generator": dict(self.draws.bit_generator.state)}

    def restore(self, state: dict[str, Any]) -> None:
        self.left = list(state["left"])
        self.draws.bit_generator.state = state["generator"]


def loop(folder: Path, fake_model: Make, *, dies: tuple[int, str] = (0, "")) -> tuple[list[int], int, float]:
    """Trains on 20 items with a checkpoint every 3 steps; dies in a step at a place. Returns ids, weight and the next random number."""
    with RunFolder.resume(folder, {"steps": 20}) as run:
        pool, policy, judge = Pool(), fake_model(1), fake_model(2)
        found = run.rewind()
        start = 0
        if found is not None:
            start = found.step
            found.restore_models({"policy": policy, "judge": judge})
            pool.restore(found.state["pool"])
        with Tracker(folder) as tracker:
            for step in range(start + 1, 21):
                item = pool.draw()
                policy.weight = (policy.weight * 31 + item) % 1_000_003
                judge.weight = (judge.weight * 17 + policy.weight) % 1_000_003
                if dies == (step, "before log"):
                    raise Died
                tracker.log(step, {"curriculum/item": float(item), "policy/weight": float(policy.weight), "judge/w": float(judge.weight)})
                if dies == (step, "after log"):
                    raise Died
                if step % 3 == 0 or step == 20:
                    checkpoint.save(run.checkpoints, step, models={"policy": policy, "judge": judge}, state={"pool": pool.state()}, keep=2)
                if dies == (step, "after save"):
                    raise Died
        return [int(line.metrics["curriculum/item"]) for line in read_metrics(folder)], policy.weight, float(pool.draws.random())


def test_u71_u72_killed_twice_equals_uninterrupted(memory_folder: Path, fake_model: Make) -> None:
    ids, weight, random = loop(memory_folder / "whole", fake_model)
    assert sorted(ids) == list(range(20))
    metrics = (memory_folder / "whole" / "metrics.jsonl").read_bytes()
    deaths = [*product([1, 3, 7, 12, 20], ["before log", "after log", "after save"])]
    pairs = [((7, "after log"), (12, "before log")), *((death, deaths[(i * 7 + 3) % len(deaths)]) for i, death in enumerate(deaths))]
    for number, pair in enumerate(pairs):
        folder = memory_folder / str(number)
        for death in pair:
            try:
                loop(folder, fake_model, dies=death)
            except Died:
                continue
            assert death[0] <= 20
        assert loop(folder, fake_model) == (ids, weight, random), pair
        assert (folder / "metrics.jsonl").read_bytes() == metrics, pair
        final = checkpoint.latest(folder / "checkpoints")
        assert final is not None
        assert json.dumps(dict(final.state)) == json.dumps(dict(checkpoint.latest(memory_folder / "whole" / "checkpoints").state))  # type: ignore[union-attr]
