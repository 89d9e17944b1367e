"""Questions of a benchmark as a domain: one message, judged by the grader of the set; never trained on what is measured."""

from __future__ import annotations

import numpy as np
import pytest
from builders import make_task

from stepwell.config.domains import QuestionsConfig
from stepwell.datasets.problem import Problem
from stepwell.engine.codec import TEXT, codec
from stepwell.envs.questions import Questions, QuestionsDomain
from stepwell.errors import DataError, EnvironmentFault
from stepwell.grading.expression import Expression, evaluate
from stepwell.grading.graded import Grade
from stepwell.testing import check_environment
from stepwell.types import Action, Ending, EndingKind, Episode, Invalid, Observation, Reply, Stop, Task, Tool, Turn, Verdict

MEASURED = Questions((Problem("a", "1+1?", "2", difficulty=0.0), Problem("b", "2+2?", "4", difficulty=1.0)), "numeric")
TRAINED = Questions(tuple(Problem(f"t{n}", f"{n}?", str(n), solution=f"it is {n}", difficulty=n / 4) for n in range(5)), "numeric")
COUNTDOWN = {"numbers": [3, 5, 7], "target": 15, "every": False}


def _episode(domain: QuestionsDomain, task: Task, action: Action | Invalid) -> Episode:
    environment = domain.environment(task, 0)
    shown = environment.start()
    reply = environment.step(action)
    assert reply.done and task.prompt == shown.text
    ids = np.array([1, 2], np.int64)
    turn = Turn(np.array([0], np.int64), ids, np.array([-1.0, -1.0]), "text", action, reply, Stop.EOS, 0)
    return Episode(task, 0, shown, (turn,), Ending(EndingKind.TERMINATED), Verdict.unscored("not graded"))


def test_a_message_is_judged_by_the_grader_of_its_set() -> None:
    """U61: by default, and by default of the settings, an answer stands in a box."""
    assert QuestionsConfig(problems="math500").reads == "boxed"
    domain = QuestionsDomain(MEASURED)
    first, second = domain.tasks("test")
    assert [task.key for task in (first, second)] == ["a", "b"] and "\\boxed{}" in first.prompt
    assert domain.grade(_episode(domain, first, Action("answer", {"text": r"so \boxed{2}"}))).score == 1.0
    assert domain.grade(_episode(domain, first, Action("answer", {"text": r"so \boxed{4}"}))).score == 0.0
    assert domain.grade(_episode(domain, first, Action("answer", {"text": "it is 2"}))).score == 0.0
    assert QuestionsDomain(MEASURED, reads="any").grade(_episode(domain, first, Invalid("it is 2", "no call"))).score == 1.0


def test_the_contract_of_environments() -> None:
    domain = QuestionsDomain(MEASURED, TRAINED)
    check_environment(domain, domain.task(0.5, 1, "train"))
    check_environment(domain, domain.tasks("test")[1])


def test_reasoning_that_does_not_end_is_no_answer() -> None:
    domain = QuestionsDomain(MEASURED)
    task = domain.tasks("test")[0]
    assert domain.grade(_episode(domain, task, Invalid(r"<think>\boxed{2}", "not closed"))).score == 0.0
    assert domain.grade(_episode(domain, task, Invalid(r"<think>\boxed{3}</think>\boxed{2}", "no call"))).score == 1.0


def test_each_set_has_its_grader() -> None:
    countdown = QuestionsDomain(Questions((Problem("c", "reach 15", tests=COUNTDOWN),), "numbers"))
    (task,) = countdown.tasks("test")
    assert countdown.grade(_episode(countdown, task, Action("answer", {"text": r"\boxed{3 \times 5}"}))).score == 1.0
    loose = QuestionsDomain(Questions((Problem("d", "measure", "2.5", tolerance=0.1),), "maths"))
    (task,) = loose.tasks("test")
    assert loose.grade(_episode(loose, task, Action("answer", {"text": r"\boxed{2.6}"}))).score == 1.0
    broken = QuestionsDomain(Questions((Problem("e", "?", "x"),), "numeric"))
    (task,) = broken.tasks("test")
    verdict = broken.grade(_episode(broken, task, Action("answer", {"text": r"\boxed{1}"})))
    assert verdict.score is None and "the gold answer 'x' is no number" in verdict.reason


def test_training_draws_from_its_own_set_by_difficulty() -> None:
    domain = QuestionsDomain(MEASURED, TRAINED)
    drawn = [domain.task(0.5, seed, "train") for seed in range(20)]
    assert {task.key for task in drawn} == {"t2"}
    assert {domain.task(0.375, seed, "train").key for seed in range(40)} == {"t1", "t2"}
    assert domain.task(0.5, 3, "train") == domain.task(0.5, 3, "train")
    assert {task.key for task in domain.tasks("train")} == {f"t{n}" for n in range(5)}
    expert = domain.expert(drawn[0])
    assert expert is not None and expert[0].arguments["text"] == "it is 2\n\\boxed{2}"
    assert domain.grade(_episode(domain, drawn[0], expert[0])).score == 1.0
    assert domain.expert(domain.tasks("test")[0]) is None


def test_without_a_training_set_nothing_can_be_trained_on() -> None:
    domain = QuestionsDomain(MEASURED)
    task = domain.task(0.5, 0, "train")
    assert domain.tasks("train") == () and task.key not in {"a", "b"}
    environment = domain.environment(task, 0)
    environment.start()
    with pytest.raises(EnvironmentFault, match=r"there is no training set; name one with domain.train=NAME"):
        environment.step(Action("answer", {"text": "2"}))


def test_a_question_is_answered_once() -> None:
    domain = QuestionsDomain(MEASURED)
    environment = domain.environment(domain.tasks("test")[0], 0)
    environment.start()
    assert environment.step(Invalid("x", "y")) == Reply(Observation(""), done=True, valid=False)
    with pytest.raises(EnvironmentFault, match="is answered"):
        environment.step(Invalid("x", "y"))
    assert QuestionsDomain(MEASURED).grade(_unanswered()).score is None


def _unanswered() -> Episode:
    return Episode(make_task(), 0, Observation("?"), (), Ending(EndingKind.TRUNCATED, "context"), Verdict.unscored("not graded"))


TOOL = Tool("answer", "", {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})


def test_the_whole_message_is_the_argument() -> None:
    assert codec("text") is TEXT
    assert TEXT.parse("a [b]\nc", [TOOL]) == Action("answer", {"text": "a [b]\nc"})
    assert TEXT.parse("<think>x</think>c", [TOOL]) == Action("answer", {"text": "c"})
    assert TEXT.format(Action("answer", {"text": "a\nb"}), [TOOL]) == "a\nb"
    assert TEXT.describe([TOOL]) == ""
    for text, tools in (("<think>x", [TOOL]), ("  ", [TOOL]), ("x", [TOOL, TOOL]), ("x", [])):
        assert isinstance(TEXT.parse(text, tools), Invalid)


@pytest.mark.parametrize(
    ("answer", "every", "verdict"),
    [
        ("3*5", False, "right"),
        ("3*5 = 15", False, "right"),
        (r"3 \times 5", False, "right"),
        ("7+5+3", False, "right"),
        ("7+5+3", True, "right"),
        ("3*5", True, "wrong"),
        ("10+5", False, "wrong"),  # U69: numbers that were not given
        ("15", False, "wrong"),
        ("3*5+7-7", False, "wrong"),
        ("3+5", False, "wrong"),
        ("9**9**9**9", False, "unparsed"),
        ("__import__('os')", False, "unparsed"),
        ("3/0", False, "unparsed"),
        ("3*5.0", False, "unparsed"),
        ("(" * 5000, False, "unparsed"),
    ],
)
def test_expressions_use_the_numbers_that_are_given(answer: str, every: bool, verdict: str) -> None:
    assert Expression().grade({**COUNTDOWN, "every": every}, rf"\boxed{{{answer}}}").grade == verdict


def test_expressions_are_exact_and_their_problems_whole() -> None:
    assert str(evaluate("1/3+1/3+1/3")[0]) == "1"
    assert Expression().grade(COUNTDOWN, "3*5").grade is Grade.UNPARSED
    for gold in ("15", {"numbers": [1.5], "target": 1}, {"numbers": [1]}, {"numbers": [True], "target": 1}):
        with pytest.raises(DataError, match="The numbers of a problem are"):
            Expression().grade(gold, "x")
