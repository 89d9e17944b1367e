"""The folder of one run: one config, one process at a time, and logs that end where the last checkpoint does.

```
runs/x/
    config.yaml      what was asked; a run of another config is refused here
    metrics.jsonl    one line for each step
    episodes/        every episode, with its step rewards
    checkpoints/     see stepwell.checkpoint
    .lock            held by the process that runs
```
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal

import yaml

from stepwell import checkpoint
from stepwell.checkpoint import Checkpoint
from stepwell.errors import RunError
from stepwell.files import Lock, disk_errors, probe, write_atomic
from stepwell.tracking import cut_episodes, cut_metrics
from stepwell.types import JSON

__all__ = ["RunFolder", "Which", "config_hash", "differing_keys", "find_checkpoint", "read_config"]

Which = Literal["last", "best"]

_SHOWN = 8


class RunFolder:
    """A run's folder, held by this process until it is closed. Made by `create` or `resume`.

    Attributes:
        path: The folder.
        config_hash: Of the config without the keys that may differ.
    """

    def __init__(self, path: Path, lock: Lock, config_hash: str) -> None:
        self.path = path
        self.config_hash = config_hash
        self._lock = lock

    @classmethod
    def create(cls, path: Path, config: Mapping[str, JSON], *, may_differ: Collection[str] = ("steps",)) -> RunFolder:
        """Makes the folder for a new run.

        Args:
            path: New, empty, or left by a run that died before it began.
            config: Written to config.yaml.
            may_differ: Dotted keys that a later `resume` may change; they do not count in `config_hash`.

        Raises:
            RunError: The folder holds a run or other files, is held by another process, or cannot be written.
        """
        lock = _enter(path)
        try:
            if (path / "config.yaml").exists():
                steps = checkpoint.saved_steps(path / "checkpoints")
                where = f"its last checkpoint is of step {steps[-1]}" if steps else "it has no checkpoint yet"
                raise RunError(f"{path} already holds a run; {where}. Resume it (--resume), or choose another folder.")
            others = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
            if others:
                raise RunError(f"{path} is not empty (it holds {', '.join(others[:3])}) and holds no run. Choose a new or empty folder.")
            return cls._begin(path, lock, config, may_differ)
        except BaseException:
            lock.close()
            raise

    @classmethod
    def resume(cls, path: Path, config: Mapping[str, JSON], *, may_differ: Collection[str] = ("steps",)) -> RunFolder:
        """Takes up the run in the folder, or begins one where none is yet (so one command can be repeated until the run is done).

        A change of a key in `may_differ` (dotted; a key stands for all below it) is written to config.yaml.

        Raises:
            RunError: The folder's run has another config (the differing keys are named), is held by another process, or cannot be written.
        """
        if not (path / "config.yaml").exists():
            return cls.create(path, config, may_differ=may_differ)
        lock = _enter(path)
        try:
            known = read_config(path)
            different = differing_keys(known, config)
            refused = [line for key, line in different.items() if not _covered(key, may_differ)]
            if refused:
                more = f"; and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
                raise RunError(
                    f"{path} holds a run of another config: {'; '.join(refused[:_SHOWN])}{more}. "
                    f"Only {', '.join(may_differ) or 'nothing'} may differ. Resume with the same config, or choose another folder."
                )
            if different:
                return cls._begin(path, lock, config, may_differ)
            return cls(path, lock, config_hash(config, may_differ))
        except BaseException:
            lock.close()
            raise

    @classmethod
    def _begin(cls, path: Path, lock: Lock, config: Mapping[str, JSON], may_differ: Collection[str]) -> RunFolder:
        with disk_errors(f"The run's config could not be written to {path}"):
            write_atomic(path / "config.yaml", yaml.safe_dump(_plain(config), sort_keys=False, allow_unicode=True))
        return cls(path, lock, config_hash(config, may_differ))

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def rewind(self) -> Checkpoint | None:
        """The last whole checkpoint, with everything logged after it cut off; None (and all logs cut) where there is none.

        metrics.jsonl keeps the lines of steps up to the checkpoint's, in an atomic rewrite; later files of episodes are removed; later
        checkpoints, which can only be damaged ones, are renamed to `damaged-step-...`. A metrics line of step n belongs to update n,
        counted from 1; step 0 is what is measured before the first.
        """
        found = checkpoint.latest(self.checkpoints)
        step = found.step if found else None
        with disk_errors(f"The logs of {self.path} could not be cut back"):
            cut_metrics(self.path, step)
            cut_episodes(self.path, step)
        checkpoint.set_aside(self.checkpoints, step)
        return found

    def close(self) -> None:
        """Lets other processes have the folder."""
        self._lock.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _enter(path: Path) -> Lock:
    with disk_errors(f"The run folder {path} cannot be used"):
        path.mkdir(parents=True, exist_ok=True)
        lock = Lock(path / ".lock")
    try:
        with disk_errors(f"The run folder {path} cannot be used"):
            probe(path)
    except BaseException:
        lock.close()
        raise
    return lock


def find_checkpoint(run: Path, which: Which) -> Checkpoint:
    """The last or the best checkpoint of a run; raises `RunError` where there is none."""
    folder = run / "checkpoints"
    found = checkpoint.best(folder) if which == "best" else checkpoint.latest(folder)
    if found is None and which == "best" and checkpoint.saved_steps(folder):
        raise RunError(f"{run} has no best checkpoint: none was evaluated during training (evaluation.every). Take the last one.")
    if found is None:
        raise RunError(f"{run} has no checkpoint yet; go on with its training (stepwell train ... --resume).")
    return found


# -- configs ------------------------------------------------------------------------------------------------------------------


def read_config(path: Path) -> dict[str, JSON]:
    """The config of the run in the folder; needs no lock."""
    file = path / "config.yaml"
    if not file.exists():
        raise RunError(f"{path} holds no run: there is no config.yaml in it. Give the folder that a training run has written.")
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as fault:
        raise RunError(f"{file} could not be read: {' '.join(str(fault).split())}. Restore it from a copy.") from fault
    if not isinstance(config, dict):
        raise RunError(f"{file} holds no mapping of keys to values. Restore it from a copy.")
    return config


def config_hash(config: Mapping[str, JSON], may_differ: Collection[str] = ("steps",)) -> str:
    """Sixteen hexadecimal digits that agree if and only if two configs agree in all but the keys that may differ.

    >>> config_hash({"seed": 0, "steps": 5}) == config_hash({"steps": 9, "seed": 0}), config_hash({"seed": 0}) == config_hash({"seed": 1})
    (True, False)
    """
    counted = {key: value for key, value in _flat(_plain(config)).items() if not _covered(key, may_differ)}
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()[:16]


def differing_keys(known: Mapping[str, JSON], given: Mapping[str, JSON]) -> dict[str, str]:
    """Dotted key -> a clause that says how the two configs differ there, in the order of the first.

    >>> differing_keys({"credit": {"kind": "grpo"}, "seed": 0}, {"credit": {"kind": "rloo"}, "seed": 0})
    {'credit.kind': "credit.kind is 'grpo' there and 'rloo' here"}
    """
    there, here = _flat(_plain(known)), _flat(_plain(given))
    keys = [*there, *(key for key in here if key not in there)]
    different = (key for key in keys if key not in there or key not in here or there[key] != here[key])
    return {key: f"{key} is {_shown(there, key)} there and {_shown(here, key)} here" for key in different}


def _shown(flat: Mapping[str, JSON], key: str) -> str:
    return repr(flat[key]) if key in flat else "not set"


def _covered(key: str, may_differ: Collection[str]) -> bool:
    return any(key == allowed or key.startswith(f"{allowed}.") for allowed in may_differ)


def _plain(config: Mapping[str, JSON]) -> dict[str, JSON]:
    """The config as YAML will give it back: tuples as lists."""
    plain: dict[str, JSON] = json.loads(json.dumps(config))
    return plain


def _flat(config: Mapping[str, JSON], prefix: str = "") -> dict[str, JSON]:
    flat: dict[str, JSON] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
