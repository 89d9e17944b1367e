"""`stepwell problems` and `stepwell overlap`: the benchmarks, and which of their problems stand in a training set."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepwell.cli.options import Json
from stepwell.cli.output import note, out, print_json, told
from stepwell.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepwell.datasets.overlap import Overlap, Text
    from stepwell.datasets.problem import Problem
    from stepwell.types import JSON

__all__ = ["overlap", "problems"]

_SHOWN = 10


@told
def problems(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One of the list; without it, the list.", show_default=False)] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON lines, a JSON list or Parquet; by default from the hub.", show_default=False)
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Read every gold answer by the grader, and say which cannot be read.")] = False,
    json: Json = False,
) -> None:
    """List the benchmarks and training sets, or read one of them.

    \b
    stepwell problems
    stepwell problems math500 --file math500.jsonl.gz --check
    """
    if name is None:
        if file is not None or check:
            raise ConfigError("--file and --check are for one set; name it, such as `stepwell problems math500 --file FILE`.")
        _list(json=json)
        return
    from stepwell.datasets.benchmarks import BENCHMARKS, read_problems

    read = read_problems(name, file)
    unread = _unread(read) if check and BENCHMARKS[name].graded_by == "maths" else {}
    about: dict[str, JSON] = {
        "name": name,
        "problems": len(read),
        "with_solution": sum(bool(problem.solution) for problem in read),
        "graded_by": BENCHMARKS[name].graded_by,
        **({"unread": unread} if check else {}),
    }
    if json:
        print_json(about)
        return
    for key, value in about.items():
        out().print(f"{key:14}", str(len(unread) if key == "unread" else value), markup=False)
    for key, gold in list(unread.items())[:_SHOWN]:
        note(f"{key}: the gold answer {gold!r} cannot be read as a formula; an answer to it is right only letter for letter.")
    print(f"\nThe first, {read[0].key}:\n\n{read[0].text[:1000]}")


def _unread(read: Sequence[Problem]) -> dict[str, str]:
    from stepwell.grading.graded import Grade
    from stepwell.grading.maths import Maths

    with Maths("any", workers=1 if len(read) < 100 else None) as maths:
        graded = maths.same_all([(problem.gold, "x_{17}+3") for problem in read])
    return {problem.key: problem.gold for problem, one in zip(read, graded, strict=True) if one.grade is Grade.ERROR}


def _list(*, json: bool) -> None:
    from rich.table import Table

    from stepwell.datasets.benchmarks import BENCHMARKS

    if json:
        print_json(
            [
                {
                    "name": name,
                    "summary": one.summary,
                    "graded_by": one.graded_by,
                    "hub": one.hub.id if one.hub else None,
                    "fields": one.needs,
                }
                for name, one in BENCHMARKS.items()
            ]
        )
        return
    table = Table(box=None, pad_edge=False)
    for column in ("set", "what it is", "graded by", "on the hub"):
        table.add_column(column, style="cyan" if column == "set" else "", no_wrap=column == "set")
    for name, one in BENCHMARKS.items():
        table.add_row(name, one.summary, one.graded_by, one.hub.id if one.hub else "")
    out().print(table)


@told
def overlap(
    train: Annotated[str, typer.Argument(metavar="TRAIN", help="A training set: NAME=FILE, NAME (from the hub), or a FILE of texts.")],
    test: Annotated[list[str], typer.Argument(metavar="TEST...", help="Test sets, in the same way.")],
    words: Annotated[int, typer.Option("--words", metavar="N", help="Words of a run.")] = 10,
    share: Annotated[float, typer.Option("--share", help="Of the shorter problem's runs that both must have.")] = 0.5,
    drop: Annotated[
        Path | None,
        typer.Option(
            "--drop", metavar="FILE", help="Write the keys of the training problems that were found, a line each.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Find the problems of test sets that stand in a training set: the same letters, the same title, or runs of words in common.

    A FILE of texts has "problem", "question" or "prompt" in each row.

    \b
    stepwell overlap math-train=math_4500.jsonl.gz math500=math500.jsonl.gz processbench_math.json.gz
    stepwell overlap leetcode-train leetcode=leetcode_prime_test.jsonl.gz --drop found.txt
    """
    from stepwell.datasets.overlap import find_overlap
    from stepwell.files import disk_errors, write_atomic

    keys, given = _texts(train)
    found_keys: dict[str, None] = {}
    told_sets: list[dict[str, JSON]] = []
    for name in test:
        test_keys, asked = _texts(name)
        found = find_overlap(given, asked, n=words, share=share)
        found_keys.update(dict.fromkeys(keys[match.train] for match in found.matches))
        pairs: list[JSON] = [{"test": test_keys[m.test], "train": keys[m.train], "how": m.how, "share": m.share} for m in found.matches]
        told_sets.append({"test": name, **_facts(found), "pairs": pairs})
        if not json:
            _say(name, found)
    if drop is not None:
        with disk_errors(f"The keys could not be written to {drop}"):
            write_atomic(drop, "".join(f"{key}\n" for key in found_keys))
    if json:
        print_json({"train": train, "sets": told_sets})


def _texts(source: str) -> tuple[list[str], list[Text]]:
    """Keys and texts of a set."""
    from stepwell.datasets.benchmarks import BENCHMARKS, read_problems, read_texts
    from stepwell.datasets.overlap import Text

    name, equals, file = source.partition("=")
    if equals or name in BENCHMARKS:
        read = read_problems(name, Path(file) if file else None, unanswered="keep")
        return [problem.key for problem in read], [Text(problem.text, problem.title) for problem in read]
    return read_texts(Path(source))


def _facts(found: Overlap) -> dict[str, JSON]:
    by = Counter(match.how for match in found.matches)
    return {
        "problems": found.num_test,
        "distinct": found.distinct_test,
        "exact": by["exact"],
        "distinct_exact": found.distinct_exact,
        "title": by["title"],
        "ngram": by["ngram"],
        "short": found.short,
    }


def _say(name: str, found: Overlap) -> None:
    facts = _facts(found)
    print(
        f"{name}: {len(found.matches)} of {found.num_test} problems: {facts['exact']} letter for letter "
        f"({found.distinct_exact} of {found.distinct_test} different ones), {facts['title']} by title, {facts['ngram']} nearly"
    )
