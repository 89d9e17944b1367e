"""A judge alone, taught by labelled solutions in a file: a run without a world."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from stepwell import checkpoint
from stepwell.config import Config, LabelledConfig
from stepwell.configure import dump
from stepwell.errors import ConfigError, RunError
from stepwell.files import disk_errors, to_json, write_atomic
from stepwell.reading import reading_world
from stepwell.rewards.labelled import LabelledReward
from stepwell.run import NothingLeftError, check_sinks, peak_memory_bytes, sinks_of
from stepwell.runfolder import RunFolder
from stepwell.step_judges import labelled_data, labelled_judge
from stepwell.tracking import Tracker, progress
from stepwell.types import JSON, Metrics

__all__ = ["READ", "teach"]

MAY_DIFFER = ("reward.warm", "name", "checkpoint", "tracking")
"""Settings that a resumed run may change."""
READ = ("name", "seed", "engine", "chat", "reward", "credit", "domain", "rollout.context", "checkpoint", "tracking")
"""Settings that play a part: `credit` must fit the judge, and a tiny engine has the words of `domain`."""


def teach(config: Config, run: Path, *, resume: bool = False, show: bool = False) -> Iterator[tuple[int, Metrics]]:
    """Fits the labelled judge of these settings by `reward.warm` updates; yields (updates done, metrics) after each.

    The judge starts from the engine's base. The run's folder holds what that of any run holds, but for the policy, so that
    `stepwell score` and `stepwell eval-judge` open it, and a killed run goes on with `resume` to the same weights. When the iterator ends,
    `report.json` is in the folder.

    Args:
        config: Of which `READ` plays a part.
        run: The run's folder.
        resume: Go on with the run in the folder.
        show: Print a progress bar to standard error.

    Raises:
        ConfigError: A judge of another kind, or a setting that cannot work.
        DataError: The labels' file cannot be read.
        RunError: The folder cannot be used; `NothingLeftError` where the run is finished.
    """
    reward = config.reward
    if not isinstance(reward, LabelledConfig):
        raise ConfigError(
            f"reward.kind is {reward.kind!r}, which learns from episodes and not from a file alone; set reward.kind=labelled and "
            "reward.data=FILE, or train it beside a policy (stepwell train)."
        )
    if not reward.warm:
        raise ConfigError("reward.warm is 0: the judge would learn nothing; give it updates to learn by, such as reward.warm=200.")
    check_sinks(config)
    world = reading_world(config)
    judge = labelled_judge(config, reward, world, labelled_data(reward, world))()
    assert isinstance(judge, LabelledReward)
    folder = (RunFolder.resume if resume else RunFolder.create)(run, dump(config), may_differ=MAY_DIFFER)
    with folder:
        yield from _taught(config, judge, reward.warm, folder, show=show)


def _taught(config: Config, judge: LabelledReward, updates: int, folder: RunFolder, *, show: bool) -> Iterator[tuple[int, Metrics]]:
    found = folder.rewind()
    measured = judge.measured() if found is None else {}
    before, seconds = (_there(measured), 0.0) if found is None else _restored(judge, found)
    if judge.done > updates:
        raise RunError(f"{folder.path} has done {judge.done} updates and was asked for reward.warm={updates}; give as many, or more.")
    if judge.done == updates:
        _report(folder, judge, before, seconds)
        raise NothingLeftError(
            f"{folder.path} is finished: all {updates} updates are done; a larger reward.warm goes on. "
            f"Its report is {folder.path / 'report.json'}."
        )
    bar = progress(updates, start=judge.done) if show else None
    with Tracker(folder.path, sinks=sinks_of(config, folder.path, judge.done), progress=bar) as tracker:
        if judge.done == 0:
            tracker.log(0, measured)
        while judge.done < updates:
            start = time.perf_counter()
            metrics = judge.teach(1)
            metrics["time/step_s"] = time.perf_counter() - start
            seconds += metrics["time/step_s"]
            metrics["time/train_s"] = seconds
            due = judge.done == updates or judge.done % config.checkpoint.every == 0
            if due:
                metrics |= judge.measured()
            tracker.log(judge.done, metrics)
            if due:
                _save(config, folder, judge, before, seconds, metrics)
            yield judge.done, metrics
    _report(folder, judge, before, seconds)


def _save(config: Config, folder: RunFolder, judge: LabelledReward, before: dict[str, JSON], seconds: float, metrics: Metrics) -> None:
    """In the form in which a training run saves its judge; the best is the one with the least error on what is held out."""
    state: dict[str, JSON] = {"trainer": {"reward": judge.state()}, "before": before, "seconds": seconds}
    error = metrics.get("judge/fresh_error")
    value = None if error is None else -error
    checkpoint.save(folder.checkpoints, judge.done, models=judge.models(), state=state, keep=config.checkpoint.keep, value=value)


def _restored(judge: LabelledReward, found: checkpoint.Checkpoint) -> tuple[dict[str, JSON], float]:
    trainer, before, seconds = (found.state[name] for name in ("trainer", "before", "seconds"))
    assert isinstance(trainer, Mapping) and isinstance(before, dict) and isinstance(seconds, int | float)
    found.restore_models(judge.models())
    state = trainer["reward"]
    assert isinstance(state, dict)
    judge.restore(state)
    return dict(before), float(seconds)


def _report(folder: RunFolder, judge: LabelledReward, before: dict[str, JSON], seconds: float) -> None:
    """What it says on held-out labels, before and after."""
    told: dict[str, JSON] = {
        "updates": judge.done,
        "before": before,
        "after": _there(judge.measured()),
        "train_seconds": seconds,
        "peak_memory_bytes": peak_memory_bytes(),
        "config_hash": folder.config_hash,
    }
    with disk_errors(f"The report could not be written to {folder.path}"):
        write_atomic(folder.path / "report.json", to_json(told, "the report"))


def _there(metrics: Metrics) -> dict[str, JSON]:
    """Of the file's measures, None where there is none (all held-out labels alike have no AUC)."""
    return {name.removeprefix("judge/"): None if value != value else value for name, value in metrics.items()}
