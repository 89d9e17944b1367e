"""Rounds of two processes each, as a launcher starts them: one import for all of them.

Run as a program: `parallel_driver.py ROUNDS.json`, a list of `{"name", "cwd", "arguments"}`; the arguments are those of the command
`stepwell`, or `contract KIND` for the contract of engines, at the lead, while the follower does what it is told. What process n of a round
prints lies in `NAME-n.txt` beside the rounds, and its exit code in the last line.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from pathlib import Path

import transformers  # noqa: F401 - imported once, for all
from speakers import SMALL, loud

import stepwell.run
from stepwell.cli import main as stepwell_command
from stepwell.engine.local import Budget, LocalEngine, Text
from stepwell.engine.parallel import LeadEngine, follow
from stepwell.engine.ranks import Ranks
from stepwell.engine.tiny import tiny_model
from stepwell.testing import Probe, check_engine

BUDGET = Budget(tokens=24, rows=3)
TEXT = Text(lambda tokens: " ".join(map(str, tokens)), frozenset({0}))


def contract(kind: str) -> None:
    """Follows, or checks the contract."""
    ranks = Ranks.join()
    module = loud(tiny_model(300, SMALL, seed=1))
    if ranks.number:
        follow(LocalEngine(module, TEXT, BUDGET), ranks)
        return
    check_engine(LeadEngine(module, TEXT, BUDGET, ranks=ranks), Probe(kind="lora", lr=0.1) if kind == "lora" else Probe())
    print("all that the contract demands holds")
    ranks.dismiss()


def code_of(arguments: list[str]) -> int:
    """Runs one; its exit code."""
    try:
        if arguments[0] == "contract":
            contract(arguments[1])
        else:
            sys.argv = ["stepwell", *arguments]
            stepwell_command()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def both(folder: Path, name: str, cwd: str, arguments: list[str]) -> None:
    """Forks two, and waits for them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for number in range(2):
        if not (child := os.fork()):
            os.environ |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(number)}
            os.environ["LOCAL_RANK"] = str(number)
            os.chdir(cwd)
            output = os.open(folder / f"{name}-{number}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            code = code_of(arguments)
            print(code, flush=True)
            sys.stderr.flush()
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def main(path: Path) -> None:
    assert stepwell.run.train
    for one in json.loads(path.read_text()):
        both(path.parent, one["name"], one["cwd"], one["arguments"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
