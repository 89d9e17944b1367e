from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

from stepwell import checkpoint
from stepwell.checkpoint import DamagedCheckpointWarning, best, latest, save, saved_steps, set_aside
from stepwell.errors import RunError

Make = Callable[..., Any]


@pytest.fixture
def write(tmp_path: Path, fake_model: Make) -> Callable[..., Path]:
    """Saves a checkpoint whose policy, judge and state hold numbers that follow from the step."""

    def at(step: int, *, value: float | None = None, keep: int = 3) -> Path:
        models = {"policy": fake_model(step), "judge": fake_model(100 + step)}
        return save(tmp_path, step, models=models, state={"drawn": step * 8, "order": [step, 0]}, keep=keep, value=value)

    return at


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_comes_back(tmp_path: Path, write: Make, fake_model: Make) -> None:
    path = write(12, value=0.5)
    assert path == tmp_path / "step-000012"
    found = latest(tmp_path)
    assert found is not None
    assert (found.step, found.value, found.models) == (12, 0.5, ("judge", "policy"))
    assert found.state == {"drawn": 96, "order": [12, 0]}
    policy, judge = fake_model(), fake_model()
    found.restore_models({"policy": policy, "judge": judge})
    assert (policy.weight, judge.weight) == (12, 112)
    only = fake_model()
    found.restore_model("judge", only)
    assert only.weight == 112


def test_only_json_and_the_models_files(tmp_path: Path, write: Make) -> None:
    path = write(1)
    files = sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())
    models = [f"models/{name}/{file}" for name in ("judge", "policy") for file in ("model.safetensors", "optimizer.json")]
    assert files == ["manifest.json", *models, "state.json"]
    assert json.loads((path / "manifest.json").read_text())["files"].keys() == set(files) - {"manifest.json"}


def test_whoever_may_read_the_state_may_read_the_weights(tmp_path: Path) -> None:
    """safetensors leaves its files to their owner alone; a run folder may be shared."""

    class Secretive:
        def save(self, path: Path) -> None:
            (path / "model.safetensors").touch(mode=0o600)

        def load(self, path: Path) -> None:
            pass

    path = save(tmp_path, 1, models={"policy": Secretive()}, state={}, keep=1)
    modes = {file.stat().st_mode for file in path.rglob("*") if file.is_file()}
    assert len(modes) == 1


def test_nothing_saved_is_none(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    assert best(tmp_path) is None
    assert latest(tmp_path / "absent") is None
    assert saved_steps(tmp_path / "absent") == []


def test_a_best_json_of_garbage_is_written_anew(tmp_path: Path, write: Make) -> None:
    write(1, value=0.25, keep=2)
    (tmp_path / "best.json").write_bytes(bytes(range(256)))
    write(2, value=0.75, keep=2)
    assert json.loads((tmp_path / "best.json").read_text()) == {"step": 2, "value": 0.75}


def test_the_last_and_the_best_stay(tmp_path: Path, write: Make) -> None:
    for step, value in [(1, 0.25), (2, 0.75), (3, None), (4, 0.5), (5, 0.75), (10, 0.0)]:
        write(step, value=value, keep=2)
    assert names(tmp_path) == ["best.json", "step-000002", "step-000005", "step-000010"]
    assert json.loads((tmp_path / "best.json").read_text()) == {"step": 2, "value": 0.75}
    found = best(tmp_path)
    assert found is not None
    assert found.step == 2
    assert saved_steps(tmp_path) == [2, 5, 10]


def test_steps_sort_as_numbers(tmp_path: Path, write: Make) -> None:
    for step in (999_999, 1_000_000):
        write(step)
    found = latest(tmp_path)
    assert found is not None
    assert found.step == 1_000_000


def test_the_same_step_again_replaces_it(tmp_path: Path, fake_model: Make) -> None:
    for weight in (1, 2):
        save(tmp_path, 4, models={"policy": fake_model(weight)}, state={"weight": weight}, keep=1)
    found = latest(tmp_path)
    assert found is not None
    assert found.state == {"weight": 2}
    assert names(tmp_path) == ["step-000004"]


def test_the_names_of_models_must_agree(tmp_path: Path, write: Make, fake_model: Make) -> None:
    write(1)
    found = latest(tmp_path)
    assert found is not None
    with pytest.raises(RunError, match=r"holds the models judge, policy; the run has policy"):
        found.restore_models({"policy": fake_model()})
    with pytest.raises(RunError, match="holds no model 'juge'; did you mean 'judge'"):
        found.restore_model("juge", fake_model())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"keep": 0}, "keep is 0; at least 1"),
        ({"step": -1}, "step is -1"),
        ({"value": float("nan")}, "is nan; allowed is a finite number"),
        ({"state": {"best": float("-inf")}}, r"state\.best is -inf"),
        ({"models": {"../policy": None}}, r"named '\.\./policy'"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
    given = {"step": 1, "models": {}, "state": {}, "keep": 1, "value": None} | arguments
    with pytest.raises(ValueError, match=words):
        save(tmp_path, given.pop("step"), **given)
    assert names(tmp_path) == []


def test_a_later_step_is_never_overtaken_silently(tmp_path: Path, write: Make) -> None:
    write(8)
    with pytest.raises(RunError, match=r"holds a checkpoint of step 8, later than the step 5"):
        write(5)


# -- damage -------------------------------------------------------------------------------------------------------------------


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [flip_a_bit, Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
@pytest.mark.parametrize("file", ["models/policy/model.safetensors", "models/judge/optimizer.json", "state.json", "manifest.json"])
def test_damage_is_found_and_the_one_before_is_used(tmp_path: Path, write: Make, damage: Callable[[Path], None], file: str) -> None:
    write(4)
    write(8)
    damage(tmp_path / "step-000008" / file)
    with pytest.warns(DamagedCheckpointWarning, match=r"step-000008 is damaged: .*It is passed over") as caught:
        found = latest(tmp_path)
    assert found is not None
    assert (found.step, found.state["drawn"]) == (4, 32)
    assert len(caught) == 1
    assert file.split("/")[-1] in str(caught[0].message)


def test_nothing_whole_is_an_error_not_a_fresh_start(tmp_path: Path, write: Make) -> None:
    flip_a_bit(write(4) / "state.json")
    with pytest.warns(DamagedCheckpointWarning), pytest.raises(RunError, match=r"None of the 1 checkpoints in .* can be used"):
        latest(tmp_path)


def test_a_damaged_checkpoint_is_set_aside_and_its_step_saved_again(tmp_path: Path, write: Make) -> None:
    for step in (4, 8):
        write(step, value=step / 10)
    flip_a_bit(tmp_path / "step-000008" / "state.json")
    assert set_aside(tmp_path, 4) == [tmp_path / "damaged-step-000008"]
    assert names(tmp_path) == ["best.json", "damaged-step-000008", "step-000004"]
    assert json.loads((tmp_path / "best.json").read_text()) == {"step": 4, "value": 0.4}
    write(6)
    write(8, keep=1)
    assert saved_steps(tmp_path) == [4, 8]


def test_another_format_is_no_damage(tmp_path: Path, write: Make) -> None:
    manifest = write(4) / "manifest.json"
    other = json.loads(manifest.read_text()) | {"format": 99}
    del other["sha256"]
    digest = hashlib.sha256(json.dumps(other, sort_keys=True).encode()).hexdigest()
    manifest.write_text(json.dumps(other | {"sha256": digest}))
    with pytest.raises(RunError, match=r"format 99; this version of Stepwell reads format 1"):
        latest(tmp_path)


# -- a disk that refuses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["fsync", "replace", "mkdir"])
def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, write: Make, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """Refusing from the n-th call on, for every n that the save makes."""
    write(4, value=0.5)
    real = getattr(os, broken)
    for n in range(1, 100):
        calls: list[None] = []

        def refuse(*arguments: Any, calls: list[None] = calls, n: int = n, **named: Any) -> Any:
            calls.append(None)
            if len(calls) >= n:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments, **named)

        told = ""
        with monkeypatch.context() as patch:
            patch.setattr(os, broken, refuse)
            try:
                write(8)
            except RunError as error:
                told = str(error)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = latest(tmp_path)
        assert found is not None
        assert found.state["drawn"] == found.step * 8
        if not told:
            assert found.step == 8
            assert n > 2
            return
        assert "step 8" in told
        assert "the disk is full" in told
        assert found.step == (8 if "is complete" in told else 4) or broken == "fsync"
    pytest.fail("never ran through")


def test_the_models_own_error_of_a_full_disk(tmp_path: Path, write: Make) -> None:
    class Full:
        def save(self, path: Path) -> None:
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

        def load(self, path: Path) -> None: ...

    write(4)
    with pytest.raises(RunError, match=r"The checkpoint of step 8 could not be written to .*: the disk is full\. Free some space"):
        save(tmp_path, 8, models={"policy": Full()}, state={}, keep=1)
    assert names(tmp_path) == ["step-000004"]


def test_an_interrupt_while_saving_leaves_nothing_half(tmp_path: Path, write: Make) -> None:
    class Interrupted:
        def save(self, path: Path) -> None:
            (path / "half").write_text("")
            raise KeyboardInterrupt

        def load(self, path: Path) -> None: ...

    write(4)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 8, models={"policy": Interrupted()}, state={}, keep=1)
    assert names(tmp_path) == ["step-000004"]


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """Root may write anywhere: step down for the test where we are root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def readonly_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    import tempfile

    folder = Path(tempfile.mkdtemp())
    models = {"policy": _Nothing()}
    save(folder / "checkpoints", 4, models=models, state={"a": 1}, keep=1)
    folder.chmod(0o755)
    (folder / "checkpoints").chmod(0o555)
    yield folder / "checkpoints"
    (folder / "checkpoints").chmod(0o755)
    shutil.rmtree(folder)


class _Nothing:
    def save(self, path: Path) -> None: ...
    def load(self, path: Path) -> None: ...


def test_a_read_only_folder(readonly_folder: Path, unprivileged: None) -> None:
    with pytest.raises(RunError, match=r"step 8 could not be written to .*checkpoints: permission is denied\. Choose a folder"):
        save(readonly_folder, 8, models={}, state={}, keep=1)
    found = latest(readonly_folder)
    assert found is not None
    assert found.state == {"a": 1}


def test_the_module_needs_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, stepwell.checkpoint, stepwell.runfolder; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert "pickle" not in Path(checkpoint.__file__).read_text()
