"""Reasoning tasks: the contract, the checker's laws, difficulty, and what a turn of several lines is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from stepwell.config import ReasoningConfig
from stepwell.configure import load_domain
from stepwell.domains import build_domain
from stepwell.envs.reasoning import (
    Arithmetic,
    Countdown,
    Equations,
    Family,
    Machine,
    ReasoningDomain,
    Recurrence,
    Strings,
    Truth,
    Words,
    first_wrong,
    labelled_solutions,
    lines_of,
)
from stepwell.errors import ConfigError, DataError, EnvironmentFault
from stepwell.step_labels import read_step_labels
from stepwell.testing import check_environment
from stepwell.types import Action, Ending, EndingKind, Episode, Invalid, Stop, Turn, Verdict

FAMILIES: tuple[Family, ...] = (Arithmetic(), Equations(), Countdown(), Words(), Strings(), Machine(), Recurrence())
MOVES = {"table": "ac ba cb", "begin": "a", "moves": 3}
TIMES = {"start": 7, "factor": 3, "modulus": 11, "moves": 2}
LEVELS = (0.0, 0.5, 1.0)


def named(family: Family) -> str:
    return family.name


def number_of_tasks(family: Family) -> int:
    return 5 if family.name == "countdown" else 10


@pytest.mark.parametrize("family", FAMILIES, ids=named)
def test_the_contract_is_kept(family: Family) -> None:
    domain = ReasoningDomain(family)
    for difficulty in (0.0, 0.6):
        check_environment(domain, domain.task(difficulty, 1, "train"), turns=4)


@pytest.mark.parametrize("family", FAMILIES, ids=named)
def test_every_step_of_the_expert_is_right_and_every_slip_is_the_first_wrong_step(family: Family) -> None:
    domain = ReasoningDomain(family)
    for difficulty in LEVELS:
        for seed in range(number_of_tasks(family)):
            task = domain.task(difficulty, seed, "train")
            lines = domain.solution(task)
            assert lines is not None
            assert [one.truth for one in domain.truth(task, lines)] == [Truth.RIGHT] * len(lines), (task.prompt, lines)
            for at in range(len(lines) - 1):
                slipped = domain.wrong_solution(task, at, seed)
                truths = domain.truth(task, slipped)
                assert slipped[:at] == lines[:at] and slipped[at] != lines[at]
                assert first_wrong(truths) == at, (task.prompt, slipped, truths)
                assert all(one.truth is Truth.RIGHT for one in truths[:at])
                assert all(one.truth is Truth.UNKNOWN and one.confidence == 0 for one in truths[at + 1 :])
                assert slipped == domain.wrong_solution(task, at, seed)


@pytest.mark.parametrize("family", FAMILIES, ids=named)
def test_rule_players_fall_along_difficulty(family: Family) -> None:
    """A player of short cuts, by its answers; a careless player that gets a step right 9 times in 10, in closed form."""
    domain = ReasoningDomain(family)
    hasty, careless = [], []
    for difficulty in LEVELS:
        tasks = [domain.task(difficulty, seed, "train") for seed in range(12 if family.name == "countdown" else 30)]
        answers = [family.shortcut(task.payload) for task in tasks]
        hasty.append(np.mean([said is not None and family.answers(t.payload, said) for t, said in zip(tasks, answers, strict=True)]))
        careless.append(np.mean([0.9 ** len(domain.solution(task) or ()) for task in tasks]))
    assert hasty[0] >= hasty[1] >= hasty[2] and hasty[0] > hasty[2] + 0.2, hasty
    assert careless[0] > careless[1] > careless[2], careless


@pytest.mark.parametrize("family", FAMILIES, ids=named)
def test_splits_share_no_task(family: Family) -> None:
    domain = ReasoningDomain(family, num_test_tasks=20, difficulty=(0.2, 0.6))
    asked = {split: {task.prompt for task in domain.tasks(split)} for split in ("validation", "test")}
    trained = {domain.task(0.3, seed, "train").prompt for seed in range(20)}
    assert len(asked["test"]) == 20 and not asked["test"] & asked["validation"] and not trained & (asked["test"] | asked["validation"])
    assert domain.tasks("train") == ()
    with pytest.raises(ConfigError, match="no split 'dev'"):
        domain.tasks("dev")


SUM = {"expression": "(3 + 4) * 5 - 6"}


@pytest.mark.parametrize(
    ("family", "payload", "lines", "truths"),
    [
        (Arithmetic(), SUM, ["3 + 4 = 7", "7 * 5 = 35", "35 - 6 = 29", "answer: 29"], "rrrr"),
        (Arithmetic(), SUM, ["first, 4 + 3 = 7.", "then we multiply", "5*7=35", "so 35 - 6 = 29", "Answer: 29"], "rurrr"),
        (Arithmetic(), SUM, ["(3 + 4) * 5 = 35", "answer: 29"], "rr"),
        (Arithmetic(), SUM, ["4 * 5 = 20", "answer: 29"], "wu"),
        (Arithmetic(), SUM, ["3 + 4 = 8", "8 * 5 = 40", "answer: 34"], "wuu"),
        (Arithmetic(), SUM, ["3 + 4 = 7", "3 + 4 = 7"], "rw"),
        (Arithmetic(), SUM, ["3 + 4 = 7", "100 + 1 = 101"], "rw"),
        (Arithmetic(), SUM, ["answer: 29", "answer: 30"], "ru"),
        (Arithmetic(), SUM, ["answer: 28"], "w"),
        (Arithmetic(), {"expression": "5 + 12 - 6"}, ["12 - 6 = 6", "5 + 6 = 11"], "rr"),
        (Arithmetic(), {"expression": "5 - 12 - 6"}, ["12 + 6 = 18", "5 - 18 = -13"], "rr"),
        (Arithmetic(), {"expression": "5 - 12 - 6"}, ["12 - 6 = 6"], "w"),
        (Arithmetic(), {"expression": "(1 + 2) * 3 - (1 + 2)"}, ["1 + 2 = 3", "3 * 3 = 9", "9 - 3 = 6"], "rrr"),
        (Arithmetic(), SUM, ["3 + 4 = 9**9**9**9", "__import__('os') = 3"], "wu"),
        (Equations(), {"equation": "3 * (x + 2) = 12"}, ["x + 2 = 4", "x = 2", "answer: x = 2"], "rrr"),
        (Equations(), {"equation": "3 * (x + 2) = 12"}, ["3 * x + 2 = 12", "answer: 10/3"], "wu"),
        (Equations(), {"equation": "3 * (x + 2) = 12"}, ["3x + 6 = 12", "we take 6 away", "3x = 6", "0 * x = 0"], "rurw"),
        (Equations(), {"equation": "2 * x = 3"}, ["answer: 1.5"], "r"),
        (Countdown(), {"numbers": [3, 5, 7], "target": 15, "every": 0}, ["3 * 5 = 15", "answer: 3*5"], "rr"),
        (Countdown(), {"numbers": [3, 5, 7], "target": 15, "every": 1}, ["3 * 5 = 15", "answer: 3*5"], "wu"),
        (Countdown(), {"numbers": [3, 5, 7], "target": 15, "every": 1}, ["3 + 5 = 8 (left: 7 8)", "7 + 8 = 15", "answer: 3+5+7"], "rrr"),
        (Countdown(), {"numbers": [3, 5, 7], "target": 15, "every": 1}, ["3 + 5 = 8 (left: 7 9)"], "w"),
        (Countdown(), {"numbers": [3, 5, 7], "target": 15, "every": 0}, ["10 + 5 = 15"], "w"),
        (Countdown(), {"numbers": [3, 3, 8, 8], "target": 24, "every": 1}, ["8 / 3 = (8/3)", "3 - 8/3 = 1/3", "8 / (1/3) = 24"], "rrr"),
        (Countdown(), {"numbers": [3, 3, 8, 8], "target": 24, "every": 1}, ["3 * 8 = 24"], "w"),
        (Machine(), MOVES, ["a to c", "c to b", "b to a", "answer: a"], "rrrr"),
        (Machine(), MOVES, ["a to b", "b to a"], "wu"),
        (Machine(), MOVES, ["a to c", "b to a"], "rw"),
        (Machine(), MOVES, ["so a to c", "a to c", "c to b", "b to a", "a to c"], "urrrw"),
        (Machine(), MOVES, ["a to c", "c to b", "b to a", "answer: b"], "rrrw"),
        (Recurrence(), TIMES, ["3 * 7 = 10", "3 * 10 = 8", "answer: x = 8."], "rrr"),
        (Recurrence(), TIMES, ["3 * 7 = 21", "answer: 8"], "wu"),
        (Recurrence(), TIMES, ["3 * 7 = 10", "2 * 10 = 9", "answer: 8"], "rwu"),
        (Recurrence(), TIMES, ["3 * 7 = 10", "3 * 8 = 2"], "rw"),
        (Recurrence(), TIMES, ["so 3 * 7 = 10", "3 * 7 = 10", "3 * 10 = 8", "3 * 8 = 2"], "urrw"),
        (Recurrence(), TIMES, ["3 * 7 = 10", "3 * 10 = 8", "answer: 10"], "rrw"),
        (Strings(), {"letters": "cab", "rules": ["reverse", "sort"]}, ["reverse: b a c", "abc", "answer: a b c"], "rrr"),
        (Strings(), {"letters": "cab", "rules": ["reverse", "sort"]}, ["a b c", "a b c"], "wu"),
        (
            Words(),
            {"story": "s", "thing": "nuts", "formula": "2 + 3 * 4"},
            ["3 * 4 = <<3*4=12>> 12 nuts", "2+12=14", "answer: 14 nuts"],
            "rrr",
        ),
        (Words(), {"story": "s", "thing": "nuts", "formula": "2 + 3 * 4"}, ["3 * 4 = <<3*4=12>> 13 nuts", "answer: 14"], "wu"),
        (Words(), {"story": "s", "thing": "nuts", "formula": "2 + 3 * 4"}, ["3 * 5 = <<3*4=12>> 12 nuts", "answer: 14"], "wu"),
        (Words(), {"story": "s", "thing": "nuts", "formula": "2 + 3 * 4"}, ["he has < < 2 + 3 = 5 > > 5", "answer: 14"], "wu"),
    ],
)
def test_truth_by_hand(family: Family, payload: dict[str, object], lines: Sequence[str], truths: str) -> None:
    domain = ReasoningDomain(family)
    task = domain.task(0.0, 0, "train")
    mine = type(task)("mine", "by hand", 0.0, "train", payload)  # type: ignore[arg-type]
    found = domain.truth(mine, lines)
    assert "".join(one.truth.value[0] for one in found) == truths, found


def test_a_message_may_hold_several_lines_and_ends_with_the_answer() -> None:
    domain = ReasoningDomain(Arithmetic())
    task = domain.task(0.5, 0, "train")
    lines = domain.solution(task)
    assert lines is not None
    environment = domain.environment(task)
    assert environment.start().text.splitlines()[0] == task.prompt
    action = Action("write", {"line": "\n\n".join(lines[:2]) + "\n"})
    assert environment.step(action).observation.text == "2 written"
    nonsense = environment.step(Invalid("hm", "no action"))
    assert (nonsense.valid, nonsense.done) == (False, False)
    end = environment.step(Action("write", {"line": "\n".join([*lines[2:], "and that is all"])}))
    assert (end.reward, end.done) == (1.0, True)
    with pytest.raises(EnvironmentFault, match="for one episode"):
        environment.step(action)
    assert lines_of(Action("write", {"line": "1 + 1 = 2\nanswer: 2\nmore"})) == ["1 + 1 = 2", "answer: 2"]


def test_the_truth_of_an_episode_is_one_for_each_turn() -> None:
    domain = ReasoningDomain(Arithmetic())
    task = type(domain.task(0.0, 0, "train"))("mine", "calculate", 0.0, "train", SUM)
    actions = [
        Action("write", {"line": "3 + 4 = 7\n7 * 5 = 35"}),
        Invalid("hm", "no action"),
        Action("write", {"line": "let me see"}),
        Action("write", {"line": "35 - 6 = 28"}),
        Action("write", {"line": "answer: 28"}),
    ]
    environment, ids = domain.environment(task), np.zeros(1, np.int64)
    start = environment.start()
    turns = tuple(Turn(ids, ids, np.zeros(1), "", one, environment.step(one), Stop.EOS, version=0) for one in actions)
    episode = Episode(task, 0, start, turns, Ending(EndingKind.TERMINATED), Verdict.unscored("not graded"))
    assert [one.truth.value for one in domain.episode_truth(episode)] == ["right", "unknown", "unknown", "wrong", "unknown"]
    assert domain.grade(episode) == Verdict.of(0.0)


def test_labelled_solutions_are_read_as_step_labels(tmp_path_factory: pytest.TempPathFactory) -> None:
    import json

    file = tmp_path_factory.mktemp("labels") / "labels.jsonl"
    made = list(labelled_solutions(ReasoningDomain(Words()), 60, wrong=0.5, seed=3))
    file.write_text("".join(json.dumps(one) + "\n" for one in made))
    read = read_step_labels(file)
    assert [one.steps for one in read] == [tuple(one["steps"]) for one in made]  # type: ignore[arg-type]
    wrong = [one for one in read if 0.0 in one.labels]
    assert 15 < len(wrong) < 45
    for one, entry in zip(read, made, strict=True):
        first = entry["first_wrong"]
        assert isinstance(first, int)
        assert one.labels == ((1.0,) * first + (0.0,) + (None,) * (len(one.steps) - first - 1) if first >= 0 else (1.0,) * len(one.steps))
    assert len({one.prompt for one in read}) == 60
    assert list(labelled_solutions(ReasoningDomain(Words()), 60, wrong=0.5, seed=3)) == made


def test_bad_input_is_a_sentence() -> None:
    domain = ReasoningDomain(Arithmetic(), num_test_tasks=5)
    with pytest.raises(ConfigError, match="size is no axis of arithmetic tasks; Known: largest, operations"):
        ReasoningDomain(Arithmetic(), axes={"size": 3})
    with pytest.raises(ConfigError, match=r"axes.operations is 50; arithmetic tasks have 2 to 8"):
        ReasoningDomain(Arithmetic(), axes={"operations": 50})
    with pytest.raises(ConfigError, match="Line 7 cannot be wrong"):
        domain.wrong_solution(domain.task(0.0, 0, "train"), 7, 0)
    with pytest.raises(ConfigError, match="5 tasks and 6 solutions are wanted"):
        list(labelled_solutions(domain, 6, split="test"))
    with pytest.raises(ConfigError, match="share in"):
        list(labelled_solutions(domain, 6, wrong=1.5))
    with pytest.raises(ConfigError, match="task=gym needs the name of a data set"):
        load_domain("reasoning", ["task=gym"])
    with pytest.raises(ConfigError, match="other tasks have none"):
        load_domain("reasoning", ["task=words", "dataset=chain_sum"])
    with pytest.raises(DataError, match="it must be a text"):
        Arithmetic().ask({"expression": 3})


def test_a_fallible_expert_slips_as_often_as_it_is_said_and_always_in_the_same_place() -> None:
    domain = ReasoningDomain(Machine(), axes={"moves": 4}, expert_slips=0.25)
    steady = ReasoningDomain(Machine(), axes={"moves": 4})
    firsts = []
    for seed in range(400):
        task = domain.task(0.5, seed, "train")
        lines = [action.arguments["line"] for action in domain.expert(task) or ()]
        assert lines == [action.arguments["line"] for action in domain.expert(task) or ()]
        assert steady.solution(task) == domain.solution(task), "the solution itself is right"
        firsts.append(first_wrong(domain.truth(task, lines)))
    share = [firsts.count(at) / 400 for at in (-1, 0, 1)]
    assert share == pytest.approx([0.75**4, 0.25, 0.25 * 0.75], abs=0.06)
    assert max(firsts) <= 3, "the answer is what the lines before it say"


def test_the_expert_of_a_recurrence_may_slip_in_every_line_and_goes_on_from_what_it_found() -> None:
    domain = ReasoningDomain(Recurrence(), axes={"moves": 4, "modulus": 97}, expert_slips=0.25)
    slipped, solved = [], []
    for seed in range(300):
        task = domain.task(0.5, seed, "train")
        lines = [action.arguments["line"] for action in domain.expert(task) or ()]
        factor, modulus = int(task.payload["factor"]), int(task.payload["modulus"])  # type: ignore[arg-type]
        equations = [tuple(int(word) for word in line.split()[::2]) for line in lines[:-1]]
        assert [said for _, _, said in equations] == [now for _, now, _ in equations[1:]] + [int(lines[-1].split()[-1])]
        slipped.append([said != factor * now % modulus for _, now, said in equations])
        solved.append(domain.family.answers(task.payload, lines[-1].removeprefix("answer: ")))
        assert solved[-1] or any(slipped[-1])
    assert np.mean(slipped, 0) == pytest.approx([0.25] * 4, abs=0.08), "each line anew, also behind a wrong one"
    assert np.mean([sum(one) > 1 for one in slipped]) == pytest.approx(1 - 0.75**4 - 4 * 0.25 * 0.75**3, abs=0.08)
    assert np.mean(solved) == pytest.approx(0.75**4, abs=0.08), "one mistake is never undone by right lines, two hardly ever"


def test_a_wrong_path_of_a_recurrence_never_meets_the_right_one() -> None:
    """Brute force: a product by the factor maps no two residues to one, for every task of a small domain."""
    domain = ReasoningDomain(Recurrence(), axes={"moves": 3})
    for seed in range(40):
        task = domain.task(seed / 39, seed, "train")
        factor, modulus = int(task.payload["factor"]), int(task.payload["modulus"])  # type: ignore[arg-type]
        assert len({factor * x % modulus for x in range(modulus)}) == modulus
        right = domain.solution(task)
        assert right is not None and factor * int(task.payload["start"]) % modulus != task.payload["start"]  # type: ignore[arg-type]
        for at in range(3):
            assert domain.wrong_solution(task, at, seed)[-1] != right[-1]
    with pytest.raises(DataError, match="start 7, factor 22, modulus 11 and 2 moves"):
        Recurrence().ask({**TIMES, "factor": 22})


def test_settings_make_the_domain() -> None:
    for name in ("arithmetic", "equations", "countdown", "words", "strings", "machine", "recurrence"):
        made = build_domain(ReasoningConfig(task=name, axes={}))
        assert isinstance(made, ReasoningDomain) and made.family.name == name
    game = build_domain(load_domain("reasoning", ["task=countdown", "axes={numbers: 4, every: 1}"]))
    payload = game.task(0.0, 0, "train").payload
    assert payload["every"] == 1 and len(payload["numbers"]) == 4  # type: ignore[arg-type]
