"""What the checker of written steps says of solutions by others: `python bench/step_checker.py --data DIR`.

DIR holds the files named below. Counts by verdict on reference solutions, which are right but for slips of their writers; and on labelled
steps (ProcessBench up to the first wrong one, PRM800K's test set) how often a step whose equations hold is labelled right (PRM800K: good,
not merely neutral), and one with a false equation wrong. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter
from pathlib import Path

from stepwell.envs.reasoning import judge_text, steps_of
from stepwell.envs.reasoning.truth import Truth
from stepwell.step_labels import read_step_labels

REFERENCES = {"gsm8k_test.jsonl.gz": "answer", "math_4500_with_solutions.jsonl.gz": "solution"}
LABELLED = {
    "ProcessBench, GSM8K and MATH": ("processbench_gsm8k.json.gz", "processbench_math.json.gz"),
    "PRM800K, test": ("prm800k_phase1_test.parquet",),
}


def references(path: Path, key: str) -> dict[str, float]:
    """Steps, and shares of verdicts."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        counts = Counter(one.truth.value for row in map(json.loads, file) for one in judge_text(steps_of(row[key])))
    return {"steps": counts.total()} | {truth.value: round(counts[truth.value] / counts.total(), 5) for truth in Truth}


def labelled(paths: list[Path]) -> dict[str, int]:
    """Of the steps whose equations hold, how many are labelled right; of those with a false one, how many wrong."""
    counts: Counter[tuple[Truth, bool]] = Counter()
    for path in paths:
        for solution in read_step_labels(path):
            for said, label in zip(judge_text(solution.steps), solution.labels, strict=True):
                if label is not None:
                    counts[said.truth, label > 0.5] += 1
    return {
        "equations hold": counts[Truth.RIGHT, True] + counts[Truth.RIGHT, False],
        "of those labelled right": counts[Truth.RIGHT, True],
        "a false equation": counts[Truth.WRONG, True] + counts[Truth.WRONG, False],
        "of those labelled wrong": counts[Truth.WRONG, False],
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    folder = parser.parse_args().data
    found = {name: references(folder / name, key) for name, key in REFERENCES.items()}
    print(json.dumps(found | {name: labelled([folder / file for file in files]) for name, files in LABELLED.items()}, indent=1))


if __name__ == "__main__":
    main()
