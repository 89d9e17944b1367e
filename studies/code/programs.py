"""Small programs and small sums, made without end: what a tiny model can be taught in minutes, graded as real ones are.

A program is asked for as MBPP asks, with three assertions, and is run in the sandbox. It changes a list step by step and puts it together
to one number; it is one line, because a tiny model's tokenizer keeps neither line ends nor indentation. A sum asks for the same kind of
care about numbers, and its working is one line too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from stepwell.datasets.problem import Problem
from stepwell.envs.questions import Questions, QuestionsDomain
from stepwell.seeding import generator
from stepwell.types import Action, Episode, Task, Verdict

__all__ = ["Programs"]

What = Literal["code", "maths", "both"]
_CHANGES = {
    "add {n} to each": "xs = [x + {n} for x in xs]",
    "take {n} from each": "xs = [x - {n} for x in xs]",
    "multiply each by {n}": "xs = [x * {n} for x in xs]",
    "keep those above {n}": "xs = [x for x in xs if x > {n}]",
    "keep those below {n}": "xs = [x for x in xs if x < {n}]",
    "add {n} at the end": "xs = xs + [{n}]",
    "drop the first": "xs = xs[1:]",
    "sort them": "xs = sorted(xs)",
    "turn them round": "xs = xs[::-1]",
}
_ENDS = {
    "return their sum": "return sum(xs)",
    "return the largest": "return max(xs)",
    "return the smallest": "return min(xs)",
    "return how many there are": "return len(xs)",
    "return the first": "return xs[0]",
}
_BUILTINS = {"__builtins__": {"sum": sum, "max": max, "min": min, "len": len, "sorted": sorted}}
_NUMBERS = (2, 12)
_STARTS, _ADDED = (10, 30), (2, 6)


class Programs:
    """`domain.kind=programs:Programs`: problems of code, of maths, or of both in turn.

    Args:
        what: Which problems.
        steps: Fewest and most changes that a problem asks for.
        slips: Probability with which a step of the expert's solution is another than what was asked for.
        tests: Length of `tasks("test")` and of `tasks("validation")`; no two splits share a text.
        train: Number of training problems.
        seed: Of all of them.
    """

    def __init__(
        self, what: What = "code", steps: tuple[int, int] = (2, 4), slips: float = 0.0, tests: int = 100, train: int = 4000, seed: int = 0
    ) -> None:
        self._slips = slips
        kinds: tuple[Literal["code", "maths"], ...] = ("code", "maths") if what == "both" else (what,)
        self._sets: dict[str, list[QuestionsDomain]] = {}
        seen: set[str] = set()
        for split, number in (("test", tests), ("validation", tests), ("train", train)):
            self._sets[split] = []
            for kind in kinds:
                problems = _different(kind, split, number, steps, seed, seen)
                asked = Questions(problems, "code" if kind == "code" else "numeric")
                self._sets[split].append(QuestionsDomain(asked, asked, reads="any"))

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        """One of a split's problems."""
        there = self._sets[split]
        return there[seed % len(there)].task(difficulty, seed // len(there), split)

    def tasks(self, split: str) -> Sequence[Task]:
        """All of `test` or `validation`."""
        return [task for one in self._sets[split] for task in one.tasks(split)] if split != "train" else ()

    def environment(self, task: Task, member: int) -> object:
        """The question, to be answered once."""
        return self._of(task).environment(task, member)

    def grade(self, episode: Episode) -> Verdict:
        """By tests in the sandbox, or by the number behind "the answer is"."""
        return self._of(episode.task).grade(episode)

    def answer(self, episode: Episode) -> str | None:
        """See `QuestionsDomain.answer`."""
        return self._of(episode.task).answer(episode)

    def same(self, task: Task, one: str, other: str) -> bool:
        """See `QuestionsDomain.same`."""
        return self._of(task).same(task, one, other)

    def expert(self, task: Task) -> Sequence[Action] | None:
        """The solution, with its slips."""
        made = _made(task.key)
        return (Action("answer", {"text": made.shown(self._slips, generator("slips", task.key))}),)

    def _of(self, task: Task) -> QuestionsDomain:
        kinds = [one.tasks("test")[0].payload["graded_by"] for one in self._sets["test"]]
        return self._sets["test"][kinds.index(task.payload["graded_by"])]


class Program(NamedTuple):
    """Words, the statements that do what they say, and the lists that these are tried on."""

    words: list[str]
    statements: list[str]
    tried: list[list[int]]

    def problem(self, key: str) -> Problem:
        """As MBPP has it."""
        tests = [f"assert f({xs}) == {_result(self.statements, xs)}" for xs in self.tried]
        text = "\n".join([f"f takes a list. {', '.join(self.words)}.", *tests])
        return Problem(key, text, tests={"test_list": list(tests)}, solution=self.shown(0.0, np.random.default_rng(0)))

    def shown(self, slips: float, rng: np.random.Generator) -> str:
        """The program, with slips."""
        slipped = rng.random(len(self.statements)) < slips
        ends = list(_ENDS.values())
        said = []
        for at, statement in enumerate(self.statements):
            if not slipped[at]:
                said.append(statement)
            elif at < len(self.statements) - 1:
                said.append(_program(rng, 1).statements[0])
            else:
                said.append(ends[(ends.index(statement) + int(rng.integers(1, len(ends)))) % len(ends)])
        return _line(said)


class Sum(NamedTuple):
    """A start and changes of it."""

    start: int
    changes: list[tuple[str, int]]

    def problem(self, key: str) -> Problem:
        """A question with a number for an answer."""
        words = ", ".join(f"add {n}" if sign == "+" else f"take {n}" for sign, n in self.changes)
        text = f"x is {self.start}. {words}. how much is x?"
        gold = self.start + sum(n if sign == "+" else -n for sign, n in self.changes)
        return Problem(key, text, gold=str(gold), solution=self.shown(0.0, np.random.default_rng(0)))

    def shown(self, slips: float, rng: np.random.Generator) -> str:
        """The working, with slips, each of which is gone on from."""
        now, said = self.start, []
        for sign, n in self.changes:
            found = now + n if sign == "+" else now - n
            if rng.random() < slips:
                found += int(rng.choice([-2, -1, 1, 2]))
            said.append(f"{now} {sign} {n} = {found}")
            now = found
        return f"{'; '.join(said)}; the answer is {now}"


def _different(kind: str, split: str, number: int, steps: tuple[int, int], seed: int, seen: set[str]) -> tuple[Problem, ...]:
    problems: list[Problem] = []
    at = 0
    while len(problems) < number:
        key = f"{kind}/{split}/{seed}/{at}/{steps[0]}-{steps[1]}"
        problem = _made(key).problem(key)
        said = problem.text.splitlines()[0]
        if said not in seen:
            seen.add(said)
            problems.append(problem)
        at += 1
    return tuple(problems)


def _made(key: str) -> Program | Sum:
    """The problem of a key."""
    low, high = (int(one) for one in key.rpartition("/")[2].split("-"))
    rng = generator("programs", key)
    many = int(rng.integers(low, high + 1))
    if key.startswith("code"):
        return _program(rng, many)
    changes = [("+-"[int(rng.integers(2))], int(rng.integers(*_ADDED))) for _ in range(many)]
    return Sum(int(rng.integers(*_STARTS)), changes)


def _program(rng: np.random.Generator, many: int) -> Program:
    """Drawn until it works on its three lists, and does not say the same of all."""
    while True:
        drawn = rng.choice(len(_CHANGES), many, replace=False)
        chosen = [(list(_CHANGES)[int(at)], int(rng.integers(_NUMBERS[0], _NUMBERS[1] + 1))) for at in drawn]
        end = list(_ENDS)[int(rng.integers(len(_ENDS)))]
        statements = [*(_CHANGES[said].format(n=n) for said, n in chosen), _ENDS[end]]
        tried = [[int(x) for x in rng.integers(1, 2 * _NUMBERS[1], 5)] for _ in range(3)]
        found = [_result(statements, xs) for xs in tried]
        if None not in found and len(set(found)) > 1:
            return Program([*(said.format(n=n) for said, n in chosen), end], statements, tried)


def _line(statements: Sequence[str]) -> str:
    return f"def f(xs): {'; '.join(statements)}"


def _result(statements: Sequence[str], xs: Sequence[int]) -> int | None:
    """What our own statements give; None where they fail on this list."""
    names: dict[str, object] = {}
    exec(_line(statements), dict(_BUILTINS), names)  # only ever our own words
    try:
        return int(names["f"](list(xs)))  # type: ignore[operator]
    except (ValueError, IndexError):
        return None
