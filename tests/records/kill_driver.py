"""Saves checkpoints in children that are killed at their k-th touch of the disk, for every k; checks what is left after each.

Run as a program: `kill_driver.py FOLDER next|same clean|wreck`. Prints one JSON line for each child.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from itertools import count
from pathlib import Path

from stepwell import checkpoint

TOUCHES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.scandir", "os.listdir"}


class Number:
    """A model whose weights are a number, in two files."""

    def __init__(self, weight: int = -1) -> None:
        self.weight = weight

    def save(self, path: Path) -> None:
        for name in ("a", "b"):
            (path / name).write_text(str(self.weight) * 1000)

    def load(self, path: Path) -> None:
        texts = {(path / name).read_text() for name in ("a", "b")}
        (text,) = texts
        self.weight = int(text[: len(text) // 1000])


def kill_at(k: int) -> None:
    """This process dies at its k-th touch of the disk (opening, renaming, removing, making, listing, fsync)."""
    touched = count(1)

    def touch() -> None:
        if next(touched) == k:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(lambda event, _: touch() if event in TOUCHES else None)
    real = os.fsync

    def fsync(descriptor: int) -> None:
        touch()
        real(descriptor)

    os.fsync = fsync


def child(folder: Path, step: int, weight: int, k: int) -> bool:
    """Saves in a forked child that dies at its k-th touch; True if it lived to the end."""
    pid = os.fork()
    if pid == 0:
        try:
            kill_at(k)
            models = {"policy": Number(weight), "judge": Number(weight + 1)}
            checkpoint.save(folder, step, models=models, state={"weight": weight}, keep=2, value=float(weight % 3))
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0, f"the child failed by itself: {status}"
    return os.WIFEXITED(status)


def main(folder: Path, mode: str, start: str) -> None:
    warnings.simplefilter("error")
    assert child(folder, 1, 0, k=10**9)
    for k in count(1):
        before = checkpoint.latest(folder)
        assert before is not None
        step = before.step + (mode == "next")
        lived = child(folder, step, k, k)
        after = checkpoint.latest(folder)
        assert after is not None
        policy, judge = Number(), Number()
        after.restore_models({"policy": policy, "judge": judge})
        parts = ("manifest.json", "state.json", "models/policy/a", "models/policy/b", "models/judge/a", "models/judge/b")
        complete = all((path / part).exists() for path in folder.glob("step-*") for part in parts)
        whole = complete and after.state["weight"] == policy.weight == judge.weight - 1
        new = policy.weight == k
        kept = not new and (after.step, after.state) == (before.step, before.state)
        best = checkpoint.best(folder)
        print(json.dumps({"k": k, "whole": whole, "new": new, "kept": kept, "lived": lived, "best": best is not None}), flush=True)
        if lived:
            break
        if new or start == "clean":  # `wreck`: the next child starts from what this one left, until a checkpoint was made
            assert child(folder, after.step + (mode == "next"), 0, k=10**9)
    print(json.dumps(sorted(path.name for path in folder.iterdir())))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
