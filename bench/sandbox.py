"""How long programs take in the sandbox, and whether canonical solutions pass: `python bench/sandbox.py`, seconds.

Grades 200 answers with 20 assertions each (a fresh interpreter for every answer), `--workers` at once. With `--canonical FILE`, grades the
solutions of a benchmark's file instead (LeetCodeDataset, HumanEval, MBPP) and names those that are not right. Prints a table, or one JSON
object with `--json`; exits with 1 where an answer is not graded as it should be.

python bench/sandbox.py --canonical ../shared/data/bench/leetcode_v0.3.1_test.jsonl.gz --seconds 60 --total 600
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from stepwell.files import read_text
from stepwell.grading.code import Code
from stepwell.grading.graded import Grade, Graded
from stepwell.sandbox import Limits, available
from stepwell.types import JSON

SOLUTIONS = ("completion", "canonical_solution", "code")
"""Where a benchmark keeps the solution, by preference."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=200)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--canonical", type=Path, metavar="FILE")
    parser.add_argument("--seconds", type=float, default=10.0, help="limit of one request")
    parser.add_argument("--total", type=float, default=60.0, help="limit of one answer")
    parser.add_argument("--isolation", nargs="*", default=None, help="by default each that works here")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = given.isolation or [name for name, why in available().items() if not why]
    limits = Limits(seconds=given.seconds, total_s=given.total)
    items = _canonical(given.canonical) if given.canonical else _generated(given.answers)
    results = [_measure(name, limits, given.workers, items) for name in (names[:1] if given.canonical else names)]
    if given.json:
        print(json.dumps(results))
    else:
        for result in results:
            print("\n".join(f"{key:20} {value}" for key, value in result.items()), end="\n\n")
    sys.exit(any(result["not as expected"] for result in results))


def _generated(count: int) -> list[tuple[str, JSON, str, Grade]]:
    """Every second answer is wrong in its last test."""
    made: list[tuple[str, JSON, str, Grade]] = []
    for number in range(count):
        last = number % 2
        tests: JSON = [f"assert f({x}) == {x * x + number + (last if x == 19 else 0)}" for x in range(20)]
        answer = f"```python\nfrom typing import List\n\ndef f(x: int) -> int:\n    return x * x + {number}\n```"
        made.append((str(number), tests, answer, Grade.WRONG if last else Grade.RIGHT))
    return made


def _canonical(path: Path) -> list[tuple[str, JSON, str, Grade]]:
    rows = [json.loads(line) for line in read_text(path, "Problems").split("\n") if line.strip()]
    return [(str(row["task_id"]), row, row[next(key for key in SOLUTIONS if key in row)], Grade.RIGHT) for row in rows]


def _measure(name: str, limits: Limits, workers: int, items: list[tuple[str, JSON, str, Grade]]) -> dict[str, JSON]:
    with Code(name, limits=limits, workers=workers) as grader:  # type: ignore[arg-type]
        start = time.perf_counter()
        graded = grader.grade_all([(tests, answer) for _, tests, answer, _ in items])
        seconds = time.perf_counter() - start
    odd = [_told(key, one) for (key, _, _, expected), one in zip(items, graded, strict=True) if one.grade is not expected]
    slowest = max(zip(items, graded, strict=True), key=lambda pair: pair[1].seconds)
    return {
        "isolation": name,
        "workers": workers,
        "answers": len(items),
        "as expected": len(items) - len(odd),
        "seconds": round(seconds, 2),
        "ms each": round(1000 * seconds / len(items), 1),
        "slowest": f"{slowest[0][0]}, {slowest[1].seconds:.1f} s",
        "not as expected": list(odd),
    }


def _told(key: str, one: Graded) -> str:
    return f"{key}: {one.grade}: {one.reason}"


if __name__ == "__main__":
    main()
