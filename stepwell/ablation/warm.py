"""A warm start that several runs share: cloning depends on few settings, and runs that agree in them clone to the same bits."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from stepwell import checkpoint
from stepwell.config import Config
from stepwell.configure import dump, parse
from stepwell.errors import RunError
from stepwell.experts import difficulty_of
from stepwell.files import Lock
from stepwell.run import train
from stepwell.runfolder import config_hash

__all__ = ["warm_config", "warm_start"]

_MATTERS = ("seed", "domain", "engine", "chat", "rollout", "cloning", "evaluation")
"""What cloning depends on, and what is measured at its end; of the curriculum it is the range of difficulty alone."""
_POLL_S = 0.5


def warm_config(config: Config) -> Config:
    """The run that does nothing but this config's warm start; two configs that begin alike have equal ones.

    The policy's own optimizer is left out, since it starts afresh when reinforcement learning begins.
    """
    tree = {name: value for name, value in dump(config).items() if name in _MATTERS}
    return parse(
        {
            **tree,
            "name": "warm",
            "rollout": {**tree["rollout"], "ahead": False},
            "steps": 1,  # None is taken; with none planned, held-out tasks would be measured once more at the end.
            "reward": {"kind": "outcome"},
            "credit": {"kind": "reinforce_pp_baseline"} if config.rollout.group_size < 2 else {"kind": "grpo"},
            "curriculum": {"kind": "uniform", "difficulty": list(difficulty_of(config))},
            "tracking": {"episodes_every": 0},
        }
    )


def warm_start(config: Config, folder: Path) -> Path | None:
    """The folder of a run that has done the warm start of `config`, made where it is not there yet; None where there is none to do.

    Of several processes that want the same one, the first trains it and the others wait.

    Args:
        config: Of a run that is to begin there, by `train(config, run, warm=...)`.
        folder: Where warm starts lie, one folder for each.
    """
    if not config.cloning.steps:
        return None
    mine = warm_config(config)
    run = folder / f"warm-{config_hash(dump(mine), ())}"
    run.mkdir(parents=True, exist_ok=True)
    lock = _waited_for(run.with_name(f"{run.name}.lock"))
    try:
        if max(checkpoint.saved_steps(run / "checkpoints"), default=0) < mine.cloning.steps:
            with closing(train(mine, run, resume=True)) as steps:  # type: ignore[type-var]  # a generator
                next(done for done, _ in steps if done == mine.cloning.steps)
    finally:
        lock.close()
    return run


def _waited_for(path: Path) -> Lock:
    while True:
        try:
            return Lock(path)
        except RunError:
            time.sleep(_POLL_S)
