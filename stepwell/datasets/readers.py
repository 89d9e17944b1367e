"""From a row of a published file to a problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepwell.datasets.problem import Problem, Reader, Row, text_of
from stepwell.errors import DataError
from stepwell.grading.extract import boxed
from stepwell.grading.numbers import written
from stepwell.types import JSON

__all__ = ["countdown", "game24", "gsm8k", "humaneval", "leetcode", "livecodebench", "maths", "mbpp", "olympiad", "rl_data"]

_TEXTS = ("problem", "question", "prompt")
_DIFFICULTY = {"easy": 0.0, "medium": 0.5, "hard": 1.0}


def maths(*, names: Sequence[str] = ("unique_id", "id", "idx"), levels: int = 0) -> Reader:
    r"""Problem and answer; an answer that the row does not have stands in the last box of its solution."""

    def read(row: Row, place: str) -> Problem:
        text, solution = text_of(row, _TEXTS, place), _solution(row)
        gold = _answer(row, place) or boxed(solution) or ""
        return Problem(_key(row, names, place), text, gold, solution=solution, difficulty=_level(row.get("level"), levels))

    return read


def olympiad(row: Row, place: str) -> Problem:
    """OlympiadBench: one final answer in a list, a unit that it is without, and how far a number may be off."""
    answers, solutions = row.get("final_answer"), row.get("solution")
    if not isinstance(answers, list) or len(answers) != 1 or not isinstance(answers[0], str):
        raise DataError(f"{place}: final_answer is {str(answers)[:60]!r}; it must be a list of one text.")
    context = text_of(row, ("context",), place)
    text = "\n\n".join(part for part in (context, text_of(row, ("question",), place)) if part)
    solution = "\n\n".join(str(one) for one in solutions) if isinstance(solutions, list) else ""
    tolerance = row.get("error")
    return Problem(
        _key(row, ("id",), place), text, answers[0], solution=solution, tolerance=_tolerance(tolerance, place) if tolerance else 0.0
    )


def gsm8k(row: Row, place: str) -> Problem:
    """GSM8K: the solution, with its calculations marked <<a*b=c>>, and after #### the answer."""
    solution, mark, gold = text_of(row, ("answer",), place).rpartition("####")
    return Problem(_key(row, ("id",), place), text_of(row, ("question",), place), gold.strip() if mark else "", solution=solution.strip())


def leetcode(row: Row, place: str) -> Problem:
    """LeetCodeDataset (with the canonical solution) and PRIME's LeetCode: assertions about a class Solution."""
    keys = ("test", "entry_point", "prompt") if "entry_point" in row else ("test",)
    meta = row.get("meta")
    level = row.get("difficulty", meta.get("difficulty") if isinstance(meta, Mapping) else None)
    title = text_of(row, ("title", "task_id"), place)
    return Problem(
        title,
        text_of(row, ("prompt_sft", "query", "problem_description", "prompt"), place),
        tests={key: row[key] for key in keys if key in row},
        solution=text_of(row, ("completion",), place),
        difficulty=_DIFFICULTY.get(level.lower()) if isinstance(level, str) else None,
        title=title,
    )


def livecodebench(row: Row, place: str) -> Problem:
    """LiveCodeBench: public and private test cases (the private ones packed), for standard input and output or a function."""
    text, starter = text_of(row, ("question_content",), place), row.get("starter_code")
    level = row.get("difficulty")
    asked = f"{text}\n\nComplete this:\n\n```python\n{starter}\n```" if isinstance(starter, str) and starter.strip() else text
    tests = {key: row[key] for key in ("public_test_cases", "private_test_cases", "metadata") if key in row}
    return Problem(
        _key(row, ("question_id", "question_title"), place),
        asked,
        tests=tests,
        difficulty=_DIFFICULTY.get(level.lower()) if isinstance(level, str) else None,
    )


def humaneval(row: Row, place: str) -> Problem:
    """HumanEval: the beginning of a function, its tests, and the rest of it."""
    tests = {key: row[key] for key in ("test", "entry_point", "prompt")}
    return Problem(
        _key(row, ("task_id",), place), text_of(row, ("prompt",), place), tests=tests, solution=text_of(row, ("canonical_solution",), place)
    )


def mbpp(row: Row, place: str) -> Problem:
    """MBPP: a task and three assertions, which are part of what is asked: they name the function."""
    listed = row.get("test_list")
    if not isinstance(listed, list) or not listed:
        raise DataError(f"{place}: test_list is {str(listed)[:60]!r}; it must be a list of at least one assertion.")
    examples = "\n".join(str(one) for one in listed)
    keys = ("test_list", "test_setup_code", "test_imports", "challenge_test_list")
    return Problem(
        _key(row, ("task_id",), place),
        f"{text_of(row, ('text', 'prompt'), place)}\n\nIt must pass these tests:\n\n{examples}",
        tests={key: row[key] for key in keys if key in row},
        solution=text_of(row, ("code",), place),
    )


def countdown(row: Row, place: str) -> Problem:
    """Countdown: reach the target with the numbers, each used at most once."""
    numbers, target = _whole(row.get("nums"), "nums", place), row.get("target")
    if not isinstance(target, int) or isinstance(target, bool):
        raise DataError(f"{place}: target is {target!r}; it must be a whole number.")
    return _numbers(numbers, target, f"{'-'.join(map(str, numbers))}={target}", every=False)


def game24(row: Row, place: str) -> Problem:
    """Game of 24: reach 24 with all four numbers; the first right solution, step by step."""
    written_numbers = text_of(row, ("question",), place).split()
    if not all(number.isdigit() for number in written_numbers):
        raise DataError(f"{place}: question is {row.get('question')!r}; it must be numbers with spaces between.")
    listed = row.get("answer")
    right = [one for one in listed if isinstance(one, Mapping) and one.get("correct")] if isinstance(listed, list) else []
    solution = str(right[0].get("text", "")) if right else ""
    return _numbers([int(number) for number in written_numbers], 24, "-".join(written_numbers), every=True, solution=solution)


def rl_data(row: Row, place: str) -> Problem:
    """Eurus-2-RL-Data and its like: a conversation that ends with the question, and reward_model.ground_truth."""
    prompt, reward = row.get("prompt"), row.get("reward_model")
    last = prompt[-1] if isinstance(prompt, list) and prompt else None
    text = last.get("content") if isinstance(last, Mapping) else None
    gold = reward.get("ground_truth") if isinstance(reward, Mapping) else None
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{place}: prompt is {str(prompt)[:60]!r}; it must be a list of messages with content.")
    if row.get("ability") == "code":
        return Problem(_key(row, ("id",), place), text, tests=gold)
    return Problem(_key(row, ("id",), place), text, gold if isinstance(gold, str) else "")


def _numbers(numbers: Sequence[int], target: int, key: str, *, every: bool, solution: str = "") -> Problem:
    how = "all of the numbers, each once" if every else "the numbers, each at most once"
    text = f"Use {how}, with + - * / and brackets, to reach {target}. Numbers: {', '.join(map(str, numbers))}."
    return Problem(key, text, tests={"numbers": list(numbers), "target": target, "every": every}, solution=solution)


def _key(row: Row, names: Sequence[str], place: str) -> str:
    """The row's own name, or its place."""
    for name in names:
        value = row.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool):
            return str(value)
    return place.rpartition(", ")[2]


def _answer(row: Row, place: str) -> str:
    value = row.get("answer")
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return written(value)
    raise DataError(f"{place}: answer is {str(value)[:60]!r}; it must be a text or a number.")


def _solution(row: Row) -> str:
    value = row.get("solution")
    return value if isinstance(value, str) else ""


def _level(value: JSON, levels: int) -> float | None:
    """`Level 3` or 3 of 5 as 0.5."""
    digits = value.removeprefix("Level ") if isinstance(value, str) else str(value)
    return (int(digits) - 1) / (levels - 1) if levels > 1 and digits.isdigit() and 1 <= int(digits) <= levels else None


def _tolerance(value: JSON, place: str) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise DataError(f"{place}: error is {value!r}; it must be a number.") from None


def _whole(value: JSON, name: str, place: str) -> list[int]:
    if not isinstance(value, list) or not value or not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        raise DataError(f"{place}: {name} is {str(value)[:60]!r}; it must be a list of whole numbers.")
    return [int(str(one)) for one in value]
