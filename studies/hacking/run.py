"""How often alarms ring on clean runs, and how soon on runs whose judge has a planted hole.

    python studies/hacking/run.py               # what is missing, then the table
    python studies/hacking/run.py --minutes 10  # stops after that, at the end of a run; started again it goes on
    python studies/hacking/run.py --table       # from what is there

One line for each run in results.jsonl. 300 clean runs (seeds 0 to 299) and 20 of each plant (the same seeds), 100 steps each.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from hacking.loop import STEPS, play
from hacking.plants import CLEAN, PLANTS
from hacking.table import table_of

from stepwell.files import append_line, write_atomic

HERE = Path(__file__).parent
CLEAN_RUNS, PLANTED_RUNS = 300, 20


def jobs() -> list[tuple[str, int]]:
    """Fifteen clean runs, then one of each plant, and so on: a study that is cut short has some of all."""
    share = CLEAN_RUNS // PLANTED_RUNS
    made: list[tuple[str, int]] = []
    for seed in range(PLANTED_RUNS):
        made += [("clean", share * seed + i) for i in range(share)]
        made += [(name, seed) for name in PLANTS]
    return made


def read(path: Path) -> list[dict[str, object]]:
    """The runs that are there; a line that was not finished is left out."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--judges", nargs="*", choices=["clean", *PLANTS], help="only runs of these; default: all")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args(arguments)
    results, began = args.out / "results.jsonl", time.monotonic()
    done = {(run["judge"], run["seed"]) for run in read(results)}
    wanted = args.judges or ["clean", *PLANTS]
    for name, seed in [] if args.table else [job for job in jobs() if job not in done and job[0] in wanted]:
        if time.monotonic() - began > 60 * args.minutes:
            break
        played = play(PLANTS.get(name, CLEAN), seed)
        alarms = [[alarm.step, alarm.detector, alarm.chance] for alarm in played.alarms]
        line = {"judge": name, "seed": seed, "steps": STEPS, "alarms": alarms}
        line |= {"success": [round(x, 4) for x in played.success], "used": [round(x, 4) for x in played.used]}
        append_line(results, json.dumps(line))
    write_atomic(args.out / "table.md", table_of(read(results)))


if __name__ == "__main__":
    main()
