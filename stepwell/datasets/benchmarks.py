"""Published sets of problems by name: where they are, how a row of theirs is read, and by what an answer is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from stepwell.datasets import readers
from stepwell.datasets.hub import HubSet, fetch
from stepwell.datasets.overlap import Text
from stepwell.datasets.problem import GradedBy, Problem, Reader, Row, text_of
from stepwell.entries import read_entries
from stepwell.errors import ConfigError, DataError, nearest

__all__ = ["BENCHMARKS", "Benchmark", "read_problems", "read_texts"]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A published set.

    Attributes:
        summary: What it is, in a line.
        graded_by: By what an answer is judged.
        needs: The fields that a row must have; one of several, where they are joined by |.
        read: A row to a problem.
        hub: Where it is on the Hugging Face hub; None where it is not there.
        trains: Whether it is a training set, with solutions of experts.
        part: First and last `task_id` of the set, where files hold other parts beside it, which are left out.
    """

    summary: str
    graded_by: GradedBy
    needs: tuple[str, ...]
    read: Reader
    hub: HubSet | None = None
    trains: bool = False
    part: tuple[int, int] | None = None


_ASKED = "problem|question"
BENCHMARKS: Mapping[str, Benchmark] = {
    "aime24": Benchmark("AIME 2024, 30 problems", "maths", (_ASKED, "answer"), readers.maths(), HubSet("HuggingFaceH4/aime_2024", "train")),
    "aime22-24": Benchmark(
        "AIME 2022 to 2024, 90", "maths", (_ASKED, "answer"), readers.maths(), HubSet("AI-MO/aimo-validation-aime", "train")
    ),
    "amc23": Benchmark("AMC 2023, 40", "maths", (_ASKED, "answer"), readers.maths(), HubSet("math-ai/amc23", "test")),
    "amc22-23": Benchmark(
        "AMC 2022 and 2023, 83; holds amc23", "maths", (_ASKED, "answer"), readers.maths(), HubSet("AI-MO/aimo-validation-amc", "train")
    ),
    "math500": Benchmark("MATH-500", "maths", ("problem", "answer"), readers.maths(levels=5), HubSet("HuggingFaceH4/MATH-500", "test")),
    "minerva": Benchmark(
        "MinervaMath, 272 of science", "maths", (_ASKED, "solution|answer"), readers.maths(), HubSet("math-ai/minervamath", "test")
    ),
    "olympiadbench": Benchmark(
        "OlympiadBench, mathematics in English with open answers",
        "maths",
        ("question", "final_answer"),
        readers.olympiad,
        HubSet("Hothan/OlympiadBench", "train", "OE_TO_maths_en_COMP"),
    ),
    "gsm8k": Benchmark(
        "GSM8K, 1,319 word problems", "numeric", ("question", "answer"), readers.gsm8k, HubSet("openai/gsm8k", "test", "main")
    ),
    "leetcode": Benchmark("LeetCode, the 180 of PRIME; on no hub", "code", ("prompt", "test"), readers.leetcode),
    "leetcode-dataset": Benchmark(
        "LeetCodeDataset, test", "code", ("prompt", "test", "entry_point"), readers.leetcode, HubSet("newfacade/LeetCodeDataset", "test")
    ),
    "livecodebench": Benchmark(
        "LiveCodeBench",
        "code",
        ("question_content", "public_test_cases"),
        readers.livecodebench,
        HubSet("lighteval/code_generation_lite", "test", "release_v6"),
    ),
    "humaneval": Benchmark(
        "HumanEval, 164",
        "code",
        ("prompt", "test", "entry_point"),
        readers.humaneval,
        HubSet("openai/openai_humaneval", "test", "openai_humaneval"),
    ),
    "mbpp": Benchmark(
        "MBPP, test, 500",
        "code",
        ("text|prompt", "test_list"),
        readers.mbpp,
        HubSet("google-research-datasets/mbpp", "test", "full"),
        part=(11, 510),
    ),
    "countdown": Benchmark(
        "Countdown: a target from three or four numbers",
        "numbers",
        ("nums", "target"),
        readers.countdown,
        HubSet("Jiayi-Pan/Countdown-Tasks-3to4", "train"),
    ),
    "game24": Benchmark("Game of 24, with solutions; on no hub", "numbers", ("question", "answer"), readers.game24, trains=True),
    "gsm8k-train": Benchmark(
        "GSM8K, training, with solutions",
        "numeric",
        ("question", "answer"),
        readers.gsm8k,
        HubSet("openai/gsm8k", "train", "main"),
        trains=True,
    ),
    "math-train": Benchmark(
        "MATH, training: 4,500 with solutions or 7,500 with answers",
        "maths",
        ("problem", "solution|answer"),
        readers.maths(levels=5),
        trains=True,
    ),
    "aime-train": Benchmark("AIME 1983 to 2023, with solutions", "maths", ("problem", "answer"), readers.maths(), trains=True),
    "numina": Benchmark(
        "NuminaMath-CoT, with solutions",
        "maths",
        ("problem", "solution"),
        readers.maths(),
        HubSet("AI-MO/NuminaMath-CoT", "train"),
        trains=True,
    ),
    "mbpp-train": Benchmark(
        "MBPP, training, 374 with solutions",
        "code",
        ("text|prompt", "test_list"),
        readers.mbpp,
        HubSet("google-research-datasets/mbpp", "train", "full"),
        trains=True,
        part=(601, 974),
    ),
    "leetcode-train": Benchmark(
        "LeetCodeDataset, training, with solutions; holds 54 of leetcode",
        "code",
        ("prompt", "test", "entry_point"),
        readers.leetcode,
        HubSet("newfacade/LeetCodeDataset", "train"),
        trains=True,
    ),
    "eurus": Benchmark(
        "Eurus-2-RL-Data, mathematics and code, answers only",
        "maths",
        ("prompt", "reward_model"),
        readers.rl_data,
        HubSet("PRIME-RL/Eurus-2-RL-Data", "train"),
        trains=True,
    ),
}
"""Name -> set."""


def read_problems(name: str, file: Path | None = None, *, unanswered: Literal["refuse", "drop", "keep"] = "refuse") -> list[Problem]:
    """The problems of a set, in order, from a file of yours or from the hub.

    Args:
        name: One of `BENCHMARKS`.
        file: JSON lines, a JSON list, or Parquet; .gz is unpacked. None fetches the set from the hub.
        unanswered: What becomes of problems without an answer, which would count as problems that nobody solves.

    Raises:
        ConfigError: The name is not known; or the set is on no hub and no file is given.
        DataError: The file or the hub cannot be read, a row has other fields, or problems have no answer.
        MissingExtraError: A Parquet file, and pyarrow is not installed.
    """
    if name not in BENCHMARKS:
        raise ConfigError(f"There is no set of problems {name!r}; {nearest(name, BENCHMARKS)}.")
    benchmark = BENCHMARKS[name]
    if file is None and benchmark.hub is None:
        raise ConfigError(f"{name} is on no hub; give its file. A row has {_in_words(benchmark.needs)}.")
    files = [file] if file is not None else fetch(benchmark.hub) if benchmark.hub is not None else []
    problems = [benchmark.read(row, place) for path in files for place, row in _rows(path, benchmark)]
    if not problems:
        of = "" if benchmark.part is None else f" of {name}, which are those of task_id {benchmark.part[0]} to {benchmark.part[1]}"
        raise DataError(f"{files[0]} holds no problem{of}; a row has {_in_words(benchmark.needs)}.")
    if unanswered != "keep":
        problems = _answered(problems, files[0], unanswered)
    return _named_apart(problems)


def read_texts(file: Path) -> tuple[list[str], list[Text]]:
    """Places and texts of any file whose rows have a problem, a question or a prompt.

    Raises:
        DataError: It cannot be read, is empty, or a row has none of these.
    """
    keys, texts = [], []
    for place, row in read_entries(file, "Problems", "a row has problem, question or prompt"):
        text = text_of(row, ("problem", "question", "prompt"), place) if isinstance(row, Mapping) else ""
        if not text:
            got = ", ".join(map(repr, row)) if isinstance(row, Mapping) else type(row).__name__
            raise DataError(f"{place} has the fields {got or '(none)'}; expected problem, question or prompt.")
        keys.append(place.rpartition(", ")[2])
        texts.append(Text(text))
    if not texts:
        raise DataError(f"{file} holds no problem; a row has problem, question or prompt.")
    return keys, texts


def _rows(path: Path, benchmark: Benchmark) -> Iterator[tuple[str, Row]]:
    form = f"a row has {_in_words(benchmark.needs)}"
    for place, row in read_entries(path, "Problems", form):
        if not isinstance(row, Mapping):
            raise DataError(f"{place} is a {type(row).__name__}; {form}.")
        missing = [need for need in benchmark.needs if not any(name in row for name in need.split("|"))]
        if missing:
            raise DataError(
                f"{place} has the fields {', '.join(map(repr, row)) or '(none)'}; expected {_in_words(benchmark.needs)}, "
                f"so {_in_words(missing)} is missing. Is it the file of another set?"
            )
        if _belongs(row, benchmark):
            yield place, row


def _belongs(row: Row, benchmark: Benchmark) -> bool:
    """Whether a row is of the part that is asked for; one without a number is."""
    number = row.get("task_id")
    return benchmark.part is None or not isinstance(number, int) or benchmark.part[0] <= number <= benchmark.part[1]


def _answered(problems: list[Problem], path: Path, unanswered: Literal["refuse", "drop"]) -> list[Problem]:
    without = [problem.key for problem in problems if not problem.gold.strip() and not problem.tests]
    if unanswered == "refuse" and without:
        shown = ", ".join(without[:5]) + (", ..." if len(without) > 5 else "")
        raise DataError(f"{path}: {len(without)} of {len(problems)} problems have no answer ({shown}); give them one, or take them out.")
    if len(without) == len(problems):
        raise DataError(f"{path}: none of the {len(problems)} problems has an answer.")
    return [problem for problem in problems if problem.gold.strip() or problem.tests]


def _named_apart(problems: Sequence[Problem]) -> list[Problem]:
    """Some sets use a name twice; the later ones are numbered, because a name is what episodes of a problem are grouped by."""
    met: Counter[str] = Counter()
    found = []
    for problem in problems:
        met[problem.key] += 1
        found.append(replace(problem, key=f"{problem.key} #{met[problem.key]}") if met[problem.key] > 1 else problem)
    return found


def _in_words(needs: Sequence[str]) -> str:
    return ", ".join(need.replace("|", " or ") for need in needs)
