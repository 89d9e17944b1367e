"""What grading mathematics costs: clean answers, real ones, and one that hangs.

    python bench/grading.py [FOLDER]

With a folder that holds math500.jsonl.gz and grader_parity_math500.jsonl.gz, their 500 problems are graded: the reference solutions, and
outputs of a real model. Without it, answers that are made here: half of them need math-verify.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from stepwell.entries import read_entries
from stepwell.grading.maths import Maths
from stepwell.types import JSON

LIMIT_S = 2.0
HANGING = r"\boxed{\sum_{k=1}^{10000000} \sin(k!)}"
Items = Sequence[tuple[JSON, str]]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", nargs="?", type=Path)
    options.add_argument("--workers", type=int, default=2)
    asked = options.parse_args()
    clean, real = (_made(), None) if asked.folder is None else (_references(asked.folder), _outputs(asked.folder))
    _, first = _timed([("x/2", r"\boxed{\frac{x}{2}}")], asked.workers, warm=False)
    print(f"start of a worker              {first:8.2f} s, once each")
    verdicts, alone = _timed(clean, asked.workers)
    print(f"clean answers, each            {1000 * alone / len(clean):8.2f} ms  ({len(clean)} answers, {verdicts})")
    if real is not None:
        verdicts, took = _timed(real, asked.workers)
        print(f"outputs of a model, each       {1000 * took / len(real):8.2f} ms  ({len(real)} answers, {verdicts})")
    middle = len(clean) // 2
    verdicts, hung = _timed([*clean[:middle], ("1", HANGING), *clean[middle:]], asked.workers)
    print(f"the clean ones and one hanging {hung:8.2f} s, {hung - alone:+.2f} s, with a limit of {LIMIT_S:g} s  ({verdicts})")


def _timed(items: Items, workers: int, *, warm: bool = True) -> tuple[str, float]:
    with Maths("any", limit_s=LIMIT_S, workers=workers) as maths:
        if warm:
            maths.grade_all([(f"x/{n}", rf"\boxed{{\frac{{x}}{{{n}}}}}") for n in range(2, 2 + 4 * workers)])
        start = time.perf_counter()
        graded = maths.grade_all(items)
        took = time.perf_counter() - start
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(Counter(one.grade.value for one in graded).items())), took


def _references(folder: Path) -> Items:
    rows = read_entries(folder / "math500.jsonl.gz", "Problems", "a line is an object")
    return [(row["answer"], row["solution"]) for _, row in rows if isinstance(row, dict)]


def _outputs(folder: Path) -> Items:
    rows = read_entries(folder / "grader_parity_math500.jsonl.gz", "Outputs", "a line is an object")
    return [(row["answer"], row["code"][0]) for _, row in rows if isinstance(row, dict)]


def _made() -> Items:
    numbers = [(str(n), rf"The answer is \boxed{{{n}}}.") for n in range(250)]
    formulas = [(rf"\frac{{x+{n}}}{{2}}", rf"So it is \boxed{{x/2+{n}/2}}.") for n in range(250)]
    return [item for pair in zip(numbers, formulas, strict=True) for item in pair]


if __name__ == "__main__":
    main()
