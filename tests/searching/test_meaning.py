"""What two answers mean: by the grader, not by their letters."""

from __future__ import annotations

import numpy as np
import pytest

from stepwell.datasets.problem import Problem
from stepwell.envs.questions import Questions, QuestionsDomain
from stepwell.envs.reasoning import Arithmetic, Countdown, Equations, Family, ReasoningDomain, Strings, Words
from stepwell.types import Action, Ending, EndingKind, Episode, Observation, Reply, Stop, Turn, Verdict

ALIKE: tuple[tuple[Family, str, str, bool], ...] = (
    (Arithmetic(), "12", "3 * 4.", True),
    (Arithmetic(), "12", "13", False),
    (Arithmetic(), "twelve  or so", "twelve or so", True),
    (Arithmetic(), "twelve", "12", False),
    (Equations(), "x = 1/2", "2/4", True),
    (Equations(), "x = 2", "x = -2", False),
    (Strings(), "A b c.", "abc", True),
    (Strings(), "a b", "b a", False),
)


@pytest.mark.parametrize(("family", "one", "other", "alike"), ALIKE)
def test_answers_mean_the_same_where_the_checker_treats_them_alike(family: Family, one: str, other: str, alike: bool) -> None:
    domain = ReasoningDomain(family)
    assert domain.same(domain.task(0.3, 1, "test"), one, other) is alike


@pytest.mark.parametrize("family", (Arithmetic(), Equations(), Countdown(), Words(), Strings()), ids=lambda family: family.name)
def test_of_answers_that_mean_the_same_all_are_right_or_none(family: Family) -> None:
    domain = ReasoningDomain(family)
    tasks = [domain.task(0.3, seed, "test") for seed in range(6)]
    said = [(domain.solution(task) or [""])[-1].removeprefix("answer:").strip() for task in tasks]
    for task, own in zip(tasks, said, strict=True):
        for one in [*said, f"{own}.", f" {own} ", "none of these"]:
            if domain.same(task, own, one):
                assert family.answers(task.payload, one), (task.prompt, own, one)
            else:
                assert not family.answers(task.payload, one), (task.prompt, own, one)


def test_words_pass_over_the_thing_that_is_counted() -> None:
    domain = ReasoningDomain(Words())
    task = domain.task(0.0, 3, "test")
    assert domain.same(task, "7", f"7 {task.payload['thing']}") and not domain.same(task, "7", f"8 {task.payload['thing']}")


def test_expressions_mean_their_value_and_whether_their_numbers_are_given() -> None:
    domain = ReasoningDomain(Countdown())
    task = domain.task(0.0, 3, "test")
    numbers = task.payload["numbers"]
    assert isinstance(numbers, list)
    a, b = numbers[:2]
    assert domain.same(task, f"{a} + {b}", f"{b} + {a} = {a + b}")
    assert not domain.same(task, f"{a} + {b}", f"{a + b + 1000} - 1000")


def _said(domain: QuestionsDomain, text: str, at: int = 0) -> Episode:
    task = domain.tasks("test")[at]
    turn = Turn(np.array([0]), np.array([1]), np.array([-1.0]), text, Action("answer", {"text": text}), Reply(Observation("")), Stop.EOS, 0)
    return Episode(task, 0, Observation(task.prompt), (turn,), Ending(EndingKind.TERMINATED), Verdict.unscored("not graded"))


def test_the_answer_of_a_question_stands_in_the_box_and_its_grader_compares() -> None:
    domain = QuestionsDomain(Questions((Problem("a", "1/2?", "1/2"),), "maths"))
    (task,) = domain.tasks("test")
    assert domain.answer(_said(domain, r"maybe \boxed{0.5}")) == "0.5" and domain.answer(_said(domain, "0.5")) is None
    assert domain.same(task, "0.5", r"\frac{1}{2}") and not domain.same(task, "0.5", "2")


def test_numbers_within_the_tolerance_and_programs_of_the_same_text() -> None:
    near = QuestionsDomain(Questions((Problem("a", "pi?", "3.14", tolerance=0.01),), "numeric"))
    assert near.same(near.tasks("test")[0], "3.141", "3.145") and not near.same(near.tasks("test")[0], "3.141", "3.2")
    code = QuestionsDomain(Questions((Problem("a", "f?", "", tests="assert f(1) == 1"),), "code"))
    (task,) = code.tasks("test")
    assert code.answer(_said(code, "def f(x):\n    return x\n")) == "def f(x):\n    return x" and code.answer(_said(code, " ")) is None
    assert code.same(task, "a = 1", "a = 1") and not code.same(task, "a = 1", "a = 1 ")
