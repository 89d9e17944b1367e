"""Trains in children that are killed, and resumes until done: one import for many processes.

Run as a program: `kill_driver.py TRIALS.json`, a list of `{"folder", "overrides", "deaths"}`. Each death is one child with SIGKILL at
`["step", n]` its n-th step, `["update", n]` in the middle of its n-th update, `["save", n, k]` the k-th touch of the disk of its n-th save,
`["time", x]` after x times what the first trial took, or None for a child that lives. Prints, for each trial, whether each child died.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import numpy as np

from stepwell import checkpoint
from stepwell.configure import load
from stepwell.engine.optimizer import Optimizer
from stepwell.run import NothingLeftError, train
from stepwell.seeding import derive, generator
from stepwell.types import JSON, Action, Episode, Group, Invalid, Metrics, Observation, Reply, Task, Tool, Verdict

TOUCHES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.scandir", "os.listdir"}
SAY = Tool("say", "Say a word.", {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]})
WORDS = ("red", "blue", "green", "black", "white", "grey")


class Room:
    """Two turns; what is said is answered."""

    tools: Sequence[Tool] = (SAY,)

    def __init__(self, task: Task) -> None:
        self.task, self.turns = task, 0

    def start(self) -> Observation:
        return Observation(self.task.prompt)

    def step(self, action: Action | Invalid) -> Reply:
        self.turns += 1
        return Reply(Observation("go on"), done=self.turns == 2, valid=isinstance(action, Action))


class Luck:
    """A domain in which half of all texts succeed, for no reason: even a policy that knows nothing has groups to learn from."""

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        word = WORDS[derive(seed) % len(WORDS)]
        return Task(f"{split}/{seed}", f"say {word}", difficulty, split, {"word": word})

    def tasks(self, split: str) -> Sequence[Task]:
        return [] if split == "train" else [self.task(0.5, seed, split) for seed in range(6)]

    def environment(self, task: Task, member: int) -> Room:
        return Room(task)

    def grade(self, episode: Episode) -> Verdict:
        return Verdict.of(float(derive(*(turn.text for turn in episode.turns)) % 2))

    def expert(self, task: Task) -> Sequence[Action]:
        return [Action("say", {"word": str(task.payload["word"])})] * 2


class Moody:
    """A curriculum with all kinds of state: a position, a pool, and a random generator."""

    def __init__(self, domain: Luck, seed: int) -> None:
        self.domain, self.rng, self.drawn, self.pool = domain, generator(seed, "moody"), 0, [0.5]

    def draw(self, n: int, step: int) -> list[Task]:
        self.drawn += n
        picks = self.rng.integers(len(self.pool), size=n)
        return [self.domain.task(self.pool[i], self.drawn - j, "train") for j, i in enumerate(picks)]

    def admit(self, group: Group[Episode]) -> bool:
        return True

    def observe(self, groups: Sequence[Group[Episode]]) -> Metrics:
        wins = [bool(episode.verdict.success) for group in groups for episode in group.members]
        self.pool.append(float(np.mean(wins)))
        return {"curriculum/difficulty": self.pool[-1], "curriculum/draw": float(self.rng.random())}

    def state(self) -> dict[str, JSON]:
        return {"drawn": self.drawn, "pool": list(self.pool), "rng": json.dumps(self.rng.bit_generator.state)}

    def restore(self, state: dict[str, JSON]) -> None:
        drawn, pool, rng = state["drawn"], state["pool"], state["rng"]
        assert isinstance(drawn, int) and isinstance(pool, list) and isinstance(rng, str)
        self.drawn, self.pool, self.rng.bit_generator.state = drawn, [float(str(x)) for x in pool], json.loads(rng)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_save(number: int, touch: int) -> None:
    real_save, real_fsync, saves, inside = checkpoint.save, os.fsync, count(1), [False]
    touches = count(1)

    def touched() -> None:
        if inside[0] and next(touches) == touch:
            die()

    def save(*args: object, **kwargs: object) -> Path:
        inside[0] = next(saves) == number
        try:
            return real_save(*args, **kwargs)  # type: ignore[arg-type]
        finally:
            if inside[0]:
                die()  # at the latest when all is done

    def fsync(descriptor: int) -> None:
        touched()
        real_fsync(descriptor)

    checkpoint.save, os.fsync = save, fsync  # type: ignore[assignment]
    sys.addaudithook(lambda event, _: touched() if event in TOUCHES else None)


def die_in_update(number: int) -> None:
    """Dies when the weights have changed, and nobody else knows."""
    real, updates = Optimizer.step, count(1)

    def step(self: Optimizer, lr: float) -> Metrics:
        metrics = real(self, lr)
        if next(updates) == number:
            die()
        return metrics

    Optimizer.step = step  # type: ignore[method-assign]


def child(folder: Path, overrides: list[str], death: list[str | int | float] | None, whole: float) -> bool:
    """Trains in a forked child; True if it died by our hand. A whole run takes `whole` seconds here and now."""
    pid = os.fork()
    if pid == 0:
        try:
            last = None
            if death and death[0] == "save":
                die_in_save(int(death[1]), int(death[2]))
            elif death and death[0] == "update":
                die_in_update(int(death[1]))
            elif death and death[0] == "step":
                last = int(death[1])
            for number, _ in enumerate(train(load("smoke", overrides), folder, resume=True), 1):
                if number == last:
                    die()
            os._exit(0)
        except NothingLeftError as left:
            print(f"nothing left: {left}", file=sys.stderr)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(1)
    if death and death[0] == "time":
        time.sleep(float(death[1]) * whole)
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0, "the child failed by itself"
    return os.WIFSIGNALED(status)


def main(path: Path) -> None:
    whole = 0.0
    for trial in json.loads(path.read_text()):
        begun = time.monotonic()
        died = [child(Path(trial["folder"]), trial["overrides"], death, whole) for death in trial["deaths"]]
        whole = whole or time.monotonic() - begun
        print(json.dumps({"folder": trial["folder"], "died": died}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
