"""Questions of a benchmark, one answer each: a single turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from stepwell.datasets.problem import GradedBy, Problem
from stepwell.errors import ConfigError, EnvironmentFault
from stepwell.grading.expression import Expression, evaluate
from stepwell.grading.extract import extract
from stepwell.grading.graded import Grade, Grader
from stepwell.grading.kinds import Reads
from stepwell.grading.maths import Maths
from stepwell.grading.numeric import Numeric
from stepwell.seeding import derive
from stepwell.types import JSON, Action, Episode, Invalid, Observation, Reply, Task, Tool, Verdict

__all__ = ["Questions", "QuestionsDomain"]

_TOOL = Tool("answer", "Answer the question.", {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})
_ASKS: Mapping[GradedBy, str] = {
    "maths": "Reason step by step, and put your final answer within \\boxed{}.",
    "numeric": "Reason step by step, and put your final answer, a number, within \\boxed{}.",
    "numbers": "Reason step by step, and put your final expression within \\boxed{}.",
    "code": "Write the program in Python, in one code block.",
}
_NEAR = 0.125


@dataclass(frozen=True, slots=True)
class Questions:
    """Problems, and by what an answer to them is judged."""

    problems: tuple[Problem, ...]
    graded_by: GradedBy


class QuestionsDomain:
    """Problems as tasks: the prompt is the problem, the message is the answer, and the verdict is the grader's.

    Args:
        measured: What is asked in the splits `test` and `validation`.
        trained: What training draws from; None where this is for measuring alone. Then training stops at its first answer, with an error.
        reads: Where the answer stands: in the box alone, or by any sign of an answer.
        limit_s: Seconds that grading an answer may take.
    """

    def __init__(self, measured: Questions, trained: Questions | None = None, *, reads: Reads = "boxed", limit_s: float = 5.0) -> None:
        self._measured, self._trained = measured, trained
        self._reads, self._limit_s = reads, limit_s
        self._graders: dict[GradedBy, Grader] = {}

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        """A problem drawn from those of about this difficulty; from all, where the set has no difficulties."""
        asked = self._trained if split == "train" else self._measured
        if asked is None:
            return Task("no training set", _ASKS[self._measured.graded_by], difficulty, split, {})
        known = [(abs(one.difficulty - difficulty), at) for at, one in enumerate(asked.problems) if one.difficulty is not None]
        nearest = max(_NEAR, min(known)[0]) if known else 0.0
        pool = [at for away, at in known if away <= nearest] or range(len(asked.problems))
        return self._task(asked, pool[derive(seed, "question") % len(pool)], split)

    def tasks(self, split: str) -> Sequence[Task]:
        """All problems of a split, in order."""
        if split == "train":
            return () if self._trained is None else [self._task(self._trained, at, split) for at in range(len(self._trained.problems))]
        return [self._task(self._measured, at, split) for at in range(len(self._measured.problems))]

    def _task(self, asked: Questions, at: int, split: str) -> Task:
        problem = asked.problems[at]
        prompt = f"{problem.text}\n\n{_ASKS[asked.graded_by]}"
        right = problem.tests if problem.tests else problem.gold
        payload = {"right": right, "graded_by": asked.graded_by, "tolerance": problem.tolerance, "solution": problem.solution}
        return Task(problem.key, prompt, 0.5 if problem.difficulty is None else problem.difficulty, split, payload)

    def environment(self, task: Task, member: int) -> _Question:
        """The question, to be answered once."""
        return _Question(task)

    def grade(self, episode: Episode) -> Verdict:
        """What the grader says of the last message."""
        if not episode.turns:
            return Verdict.unscored("there is no answer to grade")
        payload = episode.task.payload
        return self._judges(payload).grade(payload["right"], _message(episode)).verdict()

    def answer(self, episode: Episode) -> str | None:
        """What the episode gives as its answer: what stands in the box, or by another sign of an answer; of a program, all of it. None
        where there is none."""
        if not episode.turns:
            return None
        if episode.task.payload["graded_by"] == "code":
            return _message(episode).strip() or None
        return extract(_message(episode), self._reads)

    def same(self, task: Task, one: str, other: str) -> bool:
        """Whether two answers mean the same, by the grader of the problem: one taken for the right answer, the other is right. Programs are
        the same if they are the same text."""
        payload = task.payload
        if one == other or payload["graded_by"] == "code":
            return one == other
        if payload["graded_by"] == "numbers":
            return _value(one) is not None and _value(one) == _value(other)
        return self._judges(payload).grade(one, f"\\boxed{{{other}}}").grade is Grade.RIGHT

    def _judges(self, payload: Mapping[str, JSON]) -> Grader:
        tolerance = payload["tolerance"]
        if isinstance(tolerance, float) and tolerance > 0:
            return Numeric(self._reads, absolute=tolerance)
        return self._grader(payload["graded_by"])

    def _grader(self, by: object) -> Grader:
        for name in _ASKS:
            if by == name:
                if name not in self._graders:
                    self._graders[name] = self._open(name)
                return self._graders[name]
        raise ConfigError(f"A task is judged by {by!r}; known are {', '.join(_ASKS)}.")

    def _open(self, by: GradedBy) -> Grader:
        if by == "numbers":
            return Expression(self._reads)
        if by == "numeric":
            return Numeric(self._reads)
        if by == "code":
            from stepwell.grading.code import Code

            return Code()
        return Maths(self._reads, limit_s=self._limit_s)

    def expert(self, task: Task) -> Sequence[Action] | None:
        """The set's own solution, where it has one: in a box where the reader asks for a box and the solution has none."""
        solution, right = task.payload.get("solution"), task.payload.get("right")
        if not isinstance(solution, str) or not solution:
            return None
        boxed = f"{solution}\n\\boxed{{{right}}}" if isinstance(right, str) and "\\boxed" not in solution else solution
        return (Action("answer", {"text": boxed}),)


def _message(episode: Episode) -> str:
    """What is graded: the last message, without its reasoning where it is no action."""
    action = episode.turns[-1].action
    return _answer(action.text) if isinstance(action, Invalid) else action.arguments.get("text", "")


def _value(expression: str) -> tuple[Fraction, Counter[int]] | None:
    """The value of an expression and the numbers that it uses; None where it is none."""
    try:
        return evaluate(expression.partition("=")[0])
    except ValueError:
        return None


def _answer(text: str) -> str:
    """A message that is no action, without its reasoning; nothing where the reasoning does not end."""
    said = text.rpartition("</think>")[2]
    return "" if "<think>" in said else said


class _Question:
    """One question. Any message answers it; one that is no action is graded all the same, and counted as invalid."""

    def __init__(self, task: Task) -> None:
        self._task, self._answered = task, False

    @property
    def tools(self) -> Sequence[Tool]:
        return (_TOOL,)

    def start(self) -> Observation:
        return Observation(self._task.prompt)

    def step(self, action: Action | Invalid) -> Reply:
        if "right" not in self._task.payload:
            raise EnvironmentFault("there is no training set; name one with domain.train=NAME (see `stepwell problems`)")
        if self._answered:
            raise EnvironmentFault("the question is answered; an environment is for one episode")
        self._answered = True
        return Reply(
            Observation(""), done=True, valid=isinstance(action, Action) and set(action.arguments) == {"text"} and action.name == _TOOL.name
        )
