"""How much faster is a step on two processes of this machine? `python bench/data_parallel.py [--steps 8] [key=value ...]`.

Runs `quick` with one thread for each process, one size after the other, under `torchrun`, and compares the medians of what the log says
of each step: all of it, rollouts, and the update. Meaningful on a machine that has a quiet core for each process. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PARTS = {"step": "time/step_s", "rollouts": "time/rollout_s", "update": "time/update_s", "cloning": "time/clone_s"}


def seconds(size: int, steps: int, settings: list[str]) -> dict[str, float]:
    """Medians of a run on this many processes; the first step of learning makes the judge and is left out."""
    small = ["cloning.steps=60", f"steps={steps + 1}", "engine.threads=1", "evaluation.episodes=8", "evaluation.every=0"]
    with tempfile.TemporaryDirectory() as folder:
        command = ["torch.distributed.run", "--standalone", f"--nproc_per_node={size}", "--no-python", "--", sys.executable]
        code = "from stepwell.cli import main; main()"
        given = ["-c", code, "train", "quick", *small, *settings, "--run", f"{folder}/run"]
        subprocess.run([sys.executable, "-m", *command, *given], check=True, capture_output=True)
        lines = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    found = {name: [line[key] for line in lines if key in line] for name, key in PARTS.items()}
    return {name: statistics.median(values[1:]) for name, values in found.items()}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("settings", nargs="*", metavar="key=value")
    args = parser.parse_args()
    found = {size: seconds(size, args.steps, args.settings) for size in args.sizes}
    first = found[args.sizes[0]]
    times = {size: {name: round(first[name] / value, 2) for name, value in some.items()} for size, some in found.items()}
    shown = {size: {name: round(value, 3) for name, value in some.items()} for size, some in found.items()}
    print(json.dumps({"seconds": shown, f"times faster than {args.sizes[0]}": times}, indent=1))


if __name__ == "__main__":
    main()
