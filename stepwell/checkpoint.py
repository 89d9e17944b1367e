"""Checkpoints: a folder for each, complete or not there at all, and never the loss of the one before.

```
runs/x/checkpoints/
    step-000012/            the state after 12 updates
        models/policy/...   what the model's `save` wrote (safetensors and JSON)
        state.json          all else that the run needs to go on as if it had never stopped
        manifest.json       written last: sha256 of every file above, and of itself
    best.json               names the checkpoint with the highest evaluation
```

A checkpoint is written into a hidden sibling folder, forced to the disk and renamed. At any moment in between, a death leaves the one
before it in place. A damaged checkpoint (a bit flipped, a file cut) is found by its checksums; `latest` then warns and falls back.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stepwell.errors import DataError, RunError, nearest
from stepwell.files import disk_errors, read_json, sha256, sync_path, sync_tree, to_json, write_atomic
from stepwell.protocols import Saveable
from stepwell.types import JSON

__all__ = ["Checkpoint", "DamagedCheckpointWarning", "best", "latest", "save", "saved_steps", "set_aside"]

_FORMAT = 1
_FOLDER = re.compile(r"step-(\d{6,})(\.old)?")
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class DamagedCheckpointWarning(UserWarning):
    """A checkpoint cannot be used; an earlier one is."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint whose checksums were right when it was read.

    Attributes:
        step: Number of updates that it is the state after.
        state: What was given to `save`, exactly.
        value: The evaluation's value at this step (higher is better), None where there was none.
        models: Names of the models in it.
    """

    path: Path
    step: int
    state: Mapping[str, JSON]
    value: float | None
    models: tuple[str, ...]

    def restore_models(self, models: Mapping[str, Saveable]) -> None:
        """Loads every model; `RunError` where the names are not the ones in the checkpoint (a run would go on with half its state)."""
        if set(models) != set(self.models):
            raise RunError(
                f"{self.path} holds the models {', '.join(self.models) or 'none'}; the run has {', '.join(sorted(models)) or 'none'}. "
                "Resume with the config that the checkpoint was made with."
            )
        for name, model in models.items():
            model.load(self.folder_of(name))

    def restore_model(self, name: str, model: Saveable) -> None:
        """Loads one model, for uses that need no other."""
        model.load(self.folder_of(name))

    def folder_of(self, name: str) -> Path:
        """The folder that the model's `save` wrote."""
        if name not in self.models:
            raise RunError(f"{self.path} holds no model {name!r}; {nearest(name, self.models)}.")
        return self.path / "models" / name


@dataclass(frozen=True, slots=True)
class _Manifest:
    step: int
    value: float | None
    models: tuple[str, ...]
    files: Mapping[str, str]


# -- writing ------------------------------------------------------------------------------------------------------------------


def save(
    folder: Path, step: int, *, models: Mapping[str, Saveable], state: Mapping[str, JSON], keep: int, value: float | None = None
) -> Path:
    """Writes the checkpoint of `step` and removes old ones, except the last `keep` and the best.

    Args:
        folder: The run's folder of checkpoints.
        step: Number of updates done. A checkpoint of the same step is replaced.
        models: Each one's `save` is given an empty folder of its own.
        state: JSON-able; comes back exactly.
        keep: How many of the last checkpoints stay, at least 1.
        value: The evaluation's value at this step, higher is better; None where there was no evaluation.

    Raises:
        RunError: The disk is full, the folder is read-only, or the folder holds a later step. The checkpoint before is untouched.
    """
    _check(folder, step, models, keep)
    if value is not None and not math.isfinite(value):
        raise ValueError(
            f"The value of the checkpoint of step {step} is {value}; allowed is a finite number, or None where there was no evaluation."
        )
    text = to_json(dict(state), "state")
    final = folder / f"step-{step:06d}"
    writing = folder / f".writing-{final.name}"
    with disk_errors(f"The checkpoint of step {step} could not be written to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        try:
            _write(writing, step, models, text, value)
            _publish(writing, final)
        finally:
            shutil.rmtree(writing, ignore_errors=True)
    with disk_errors(f"The checkpoint of step {step} is complete, but {folder} could not be tidied"):
        _name_best(folder)
        _prune(folder, keep)
    return final


def set_aside(folder: Path, after: int | None) -> list[Path]:
    """Renames the checkpoints of steps later than `after` (None: all) to `damaged-step-...`, out of the way of the run that goes on."""
    moved = []
    with disk_errors(f"Checkpoints in {folder} could not be set aside"):
        for step, path in _candidates(folder):
            if after is None or step > after:
                target = folder / f"damaged-{path.name}"
                shutil.rmtree(target, ignore_errors=True)
                os.replace(path, target)  # noqa: PTH105 - see stepwell.files
                moved.append(target)
        if moved:
            _name_best(folder)
    return moved


def _check(folder: Path, step: int, models: Mapping[str, Saveable], keep: int) -> None:
    if keep < 1:
        raise ValueError(f"checkpoint.keep is {keep}; at least 1 must stay, or there is nothing to resume from.")
    if step < 0:
        raise ValueError(f"A checkpoint's step is {step}; allowed is 0 or more.")
    for name in models:
        if not _MODEL_NAME.fullmatch(name):
            raise ValueError(f"A model is named {name!r}; it names a folder, so allowed are letters, digits, - and _.")
    later = [found for found, _ in _candidates(folder) if found > step]
    if later:
        raise RunError(
            f"{folder} holds a checkpoint of step {max(later)}, later than the step {step} to be saved; resuming would take the wrong one. "
            "Continue the run from its latest checkpoint, or choose another folder."
        )


def _write(writing: Path, step: int, models: Mapping[str, Saveable], state: str, value: float | None) -> None:
    """Fills the hidden folder; the manifest comes last."""
    for name, model in models.items():
        target = writing / "models" / name
        target.mkdir(parents=True)
        model.save(target)
    writing.mkdir(exist_ok=True)
    write_atomic(writing / "state.json", state)
    _readable_alike(writing)
    sync_tree(writing)
    files: dict[str, JSON] = {path.relative_to(writing).as_posix(): sha256(path) for path in sorted(writing.rglob("*")) if path.is_file()}
    manifest: dict[str, JSON] = {"format": _FORMAT, "step": step, "value": value, "models": sorted(models), "files": files}
    write_atomic(writing / "manifest.json", to_json({**manifest, "sha256": _digest(manifest)}, "manifest"))


def _readable_alike(writing: Path) -> None:
    """Gives every file the rights that files get here by default: safetensors leaves them to their owner alone."""
    for path in writing.rglob("*"):
        if path.is_file():
            shutil.copymode(writing / "state.json", path)


def _digest(manifest: Mapping[str, JSON]) -> str:
    """The manifest's checksum of itself."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _publish(writing: Path, final: Path) -> None:
    """Renames the complete folder into place. A checkpoint of the same step steps aside under a name that `latest` knows too."""
    old = final.with_name(f"{final.name}.old")
    if final.exists():
        _remove(old)
        os.replace(final, old)  # noqa: PTH105 - see stepwell.files
    os.replace(writing, final)  # noqa: PTH105
    sync_path(final.parent)
    _remove(old)


def _remove(path: Path) -> None:
    """Removes a checkpoint; renamed first, so that a death in the middle leaves no half checkpoint under a valid name."""
    if path.exists():
        hidden = path.with_name(f".removing-{path.name}")
        os.replace(path, hidden)  # noqa: PTH105
        shutil.rmtree(hidden)


def _sweep(folder: Path) -> None:
    """Removes what a death in the middle of writing or removing has left."""
    for path in folder.iterdir():
        if path.name.startswith((".writing-", ".removing-")):
            shutil.rmtree(path)
        elif path.name.endswith(".writing"):
            path.unlink()
        elif path.name.endswith(".old") and path.with_suffix("").exists():
            _remove(path)


def _prune(folder: Path, keep: int) -> None:
    candidates = _candidates(folder)
    stay = {step for step, _ in candidates[:keep]} | {step for step, _ in _by_value(folder)[:1]}
    for step, path in candidates:
        if step not in stay:
            _remove(path)


def _name_best(folder: Path) -> None:
    """Lets best.json name the checkpoint with the highest value (for people and other programs: the manifests are what counts here)."""
    path = folder / "best.json"
    ranked = _by_value(folder)
    if not ranked:
        path.unlink(missing_ok=True)
        return
    step, (value, _) = ranked[0]
    text = json.dumps({"step": step, "value": value})
    if not path.exists() or path.read_bytes() != text.encode():
        write_atomic(path, text)


# -- reading ------------------------------------------------------------------------------------------------------------------


def latest(folder: Path) -> Checkpoint | None:
    """The last checkpoint that is whole, or None where there is none at all.

    Warns (`DamagedCheckpointWarning`) for every damaged one that is passed over.

    Raises:
        RunError: There are checkpoints, but not one can be used: going on would start from nothing.
    """
    return _first_whole(folder, [path for _, path in _candidates(folder)])


def saved_steps(folder: Path) -> list[int]:
    """Steps of the checkpoints in the folder, ascending; nothing is verified."""
    return sorted({step for step, _ in _candidates(folder)})


def best(folder: Path) -> Checkpoint | None:
    """The checkpoint with the highest evaluation (the earliest of equals), or None where none was evaluated."""
    return _first_whole(folder, [path for _, (_, path) in _by_value(folder)])


def _first_whole(folder: Path, paths: list[Path]) -> Checkpoint | None:
    for path in paths:
        try:
            return _read(path)
        except DataError as fault:
            warnings.warn(
                f"{fault} It is passed over; an earlier checkpoint is used if there is one.", DamagedCheckpointWarning, stacklevel=3
            )
    if paths:
        raise RunError(
            f"None of the {len(paths)} checkpoints in {folder} can be used. Restore one from a copy, or start a new run in another folder."
        )
    return None


def _candidates(folder: Path) -> list[tuple[int, Path]]:
    """(step, path) of everything named as a checkpoint, the latest first; of one step, the newer before the `.old`."""
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _FOLDER.fullmatch(path.name))]
    return sorted(found, key=lambda entry: (-entry[0], entry[1].name))


def _by_value(folder: Path) -> list[tuple[int, tuple[float, Path]]]:
    """(step, (value, path)) of the evaluated checkpoints, the best first."""
    found = []
    for step, path in _candidates(folder):
        try:
            value = _manifest_of(path).value
        except DataError:
            continue
        if value is not None:
            found.append((step, (value, path)))
    return sorted(found, key=lambda entry: (-entry[1][0], entry[0]))


def _read(path: Path) -> Checkpoint:
    """Reads and verifies one checkpoint; `DataError` says what is wrong with it."""
    manifest = _manifest_of(path)
    for name, expected in manifest.files.items():
        file = path / name
        if not file.is_file():
            raise DataError(f"The checkpoint {path} is damaged: {name} is missing.")
        try:
            got = sha256(file)
        except OSError as fault:
            raise DataError(f"The checkpoint {path} is damaged: {name} cannot be read ({fault.strerror}).") from fault
        if got != expected:
            raise DataError(f"The checkpoint {path} is damaged: {name} has sha256 {got[:12]}..., its manifest says {expected[:12]}...")
    return Checkpoint(path, manifest.step, read_json(path / "state.json"), manifest.value, manifest.models)


def _manifest_of(path: Path) -> _Manifest:
    try:
        raw = read_json(path / "manifest.json")
    except DataError as fault:
        raise DataError(f"The checkpoint {path} is damaged: {fault}") from fault
    if raw.pop("sha256", None) != _digest(raw):
        raise DataError(f"The checkpoint {path} is damaged: manifest.json has another checksum than it says.")
    if raw.get("format") != _FORMAT:
        raise RunError(
            f"{path} has checkpoint format {raw.get('format')!r}; this version of Stepwell reads format {_FORMAT}. "
            "Use the version that wrote it."
        )
    step, value, models, files = raw["step"], raw["value"], raw["models"], raw["files"]
    assert isinstance(step, int) and isinstance(value, float | int | None) and isinstance(models, list) and isinstance(files, dict)
    return _Manifest(step, value, tuple(str(name) for name in models), {str(name): str(digest) for name, digest in files.items()})
