"""How often Stepwell's maths grader agrees with recorded gradings of another, and every answer on which it does not.

    python bench/grading_parity.py FOLDER

The folder holds grader_parity_math500.jsonl.gz and grader_parity_minerva.jsonl.gz: outputs of a model with the score that Qwen2.5-Math's
grader gave them. Each is read twice: the whole output (our extraction and comparison), and the answer as the other grader took it out
(comparison alone).
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from stepwell.entries import read_entries
from stepwell.grading.graded import Grade, Graded
from stepwell.grading.maths import Maths

SETS = {"math500": "answer", "minerva": "gt"}
"""Name -> where the gold answer stands, as the data set writes it."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    folder = options.parse_args().folder
    with Maths("any", workers=2) as maths:
        for name, gold in SETS.items():
            read = read_entries(folder / f"grader_parity_{name}.jsonl.gz", "Gradings", "a line is an object")
            rows = [row for _, row in read if isinstance(row, dict)]
            whole = maths.grade_all([(row[gold], row["code"][0]) for row in rows])
            taken = maths.same_all([(row[gold], row["pred"][0]) for row in rows])
            scores = [bool(row["score"][0]) for row in rows]
            for what, graded in (("whole output", whole), ("its extraction", taken)):
                _tell(f"{name}, {what}", [row[gold] for row in rows], graded, scores)


def _tell(title: str, golds: list[str], graded: list[Graded], scores: list[bool]) -> None:
    agree = sum((one.grade is Grade.RIGHT) is score for one, score in zip(graded, scores, strict=True))
    counts = Counter(one.grade.value for one in graded)
    print(f"{title}: agrees on {agree} of {len(scores)}; {', '.join(f'{n} {verdict}' for verdict, n in counts.most_common())}")
    for gold, one, score in zip(golds, graded, scores, strict=True):
        if (one.grade is Grade.RIGHT) is not score:
            print(f"  it said {'right' if score else 'wrong'}, ours {one.grade}:  gold {gold}  answer {one.extracted}")


if __name__ == "__main__":
    main()
