"""Reasoning tasks as a domain: a line is a step, a message holds one line or more, and a line `answer: ...` ends the episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepwell.envs.layouts import check_settings, different_tasks, drawn_for
from stepwell.envs.reasoning.family import Axes, Family, Payload, Stumbling, at_difficulty
from stepwell.envs.reasoning.truth import StepTruth, Truth, first_wrong, right, unknown, wrong
from stepwell.envs.splits import FiniteSplits
from stepwell.errors import ConfigError, EnvironmentFault
from stepwell.seeding import generator
from stepwell.types import JSON, Action, Episode, Invalid, Observation, Reply, Task, Tool, Verdict

__all__ = ["ReasoningDomain", "ReasoningEnvironment", "lines_of"]

_TOOL = Tool(
    "write",
    "Write the next step, or the answer as `answer: ...`.",
    {"type": "object", "properties": {"line": {"type": "string", "description": "one step of the solution"}}, "required": ["line"]},
)
_ANSWER = "answer:"
_LONGEST, _MOST_LINES = 20_000, 200


class ReasoningEnvironment:
    """One solution, written line by line. The right answer pays 1; all else pays 0.

    What is written is never judged before the end: the reply says how many lines there are, so that a policy cannot learn its steps' truth
    from the environment.
    """

    def __init__(self, task: Task, family: Family) -> None:
        self._task, self._family = task, family
        self._lines: list[str] = []
        self._done = False

    @property
    def tools(self) -> Sequence[Tool]:
        """`write[line]`; with `chat.codec=text` the whole message is what is written."""
        return (_TOOL,)

    def start(self) -> Observation:
        """What is asked."""
        return self._observe(f"{self._task.prompt}\nwrite one step a line. end with {_ANSWER} and the answer")

    def step(self, action: Action | Invalid) -> Reply:
        """Takes the lines of a message as steps, up to the answer. What is no text of a bearable length changes nothing."""
        if self._done:
            raise EnvironmentFault("The answer has been given; an environment is for one episode.")
        written = _written(action)
        if written is None:
            return Reply(self._observe("nothing was written"), valid=False)
        for line in written:
            self._lines.append(line)
            if (answer := _answer(line)) is not None:
                self._done = True
                solved = self._family.answers(self._task.payload, answer)
                return Reply(self._observe("the end"), reward=1.0 if solved else 0.0, done=True)
        return Reply(self._observe(f"{len(self._lines)} written"))

    def _observe(self, text: str) -> Observation:
        possible = () if self._done else self._family.possible(self._task.payload, self._lines)
        admissible = None if possible is None else tuple(f"write[{line}]" for line in possible)
        return Observation(text, "|".join([self._task.key, *(" ".join(line.split()) for line in self._lines)]), admissible)


class ReasoningDomain:
    """Generated tasks of one family, each step of which is checked exactly.

    Args:
        family: The kind of task.
        seed: Of all tasks.
        difficulty: Range from which the finite splits take difficulties, within [0, 1].
        num_test_tasks: Length of `tasks("test")` and of `tasks("validation")`.
        axes: Axes of the family that are fixed; the others follow the difficulty.
        expert_slips: Probability with which the expert gets a line before the answer wrong, once in a solution at most; where the
            family has a `stumble`, as often as that comes.

    Success is the right answer, however it was found; `truth` says of each line whether it is right. No two splits share a task.
    """

    def __init__(
        self,
        family: Family,
        *,
        seed: int = 0,
        difficulty: tuple[float, float] = (0.0, 0.5),
        num_test_tasks: int = 200,
        axes: Axes | None = None,
        expert_slips: float = 0.0,
    ) -> None:
        check_settings(difficulty, num_test_tasks)
        self.expert_slips = expert_slips
        self.family, self.seed, self.difficulty = family, seed, difficulty
        self.axes: Mapping[str, int] = dict(axes or {})
        at_difficulty(family, 0.0, self.axes)
        self._splits = FiniteSplits("Reasoning tasks have", lambda split: different_tasks(split, num_test_tasks, difficulty, self.task))

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        """The task of this difficulty, seed and split."""
        axes = at_difficulty(self.family, difficulty, self.axes)

        def draw(attempt: int) -> dict[str, JSON]:
            return self.family.draw(axes, generator(self.family.name, self.seed, split, seed, str(difficulty), attempt))

        payload = drawn_for(split, draw, self.family.ask)
        return Task(f"{self.family.name}/{self.seed}/{split}/{difficulty}/{seed}", self.family.ask(payload), difficulty, split, payload)

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of `test` or `validation`, no two alike; none of `train`, whose tasks are generated without end."""
        return self._splits(split)

    def environment(self, task: Task, member: int = 0) -> ReasoningEnvironment:
        """A solution to be written; all members of a group have the same task."""
        return ReasoningEnvironment(task, self.family)

    def grade(self, episode: Episode) -> Verdict:
        """1 for the right answer, else 0."""
        if episode.failed:
            return Verdict.unscored(episode.ending.reason or "the episode failed")
        return Verdict.of(sum(turn.reply.reward for turn in episode.turns))

    def answer(self, episode: Episode) -> str | None:
        """What the episode gives as its answer; None where it gives none."""
        said = (_answer(line) for turn in episode.turns for line in lines_of(turn.action))
        return next((one for one in said if one is not None), None)

    def same(self, task: Task, one: str, other: str) -> bool:
        """Whether two answers mean the same, so that both are right or both wrong (reasoning-gym's tasks: whether the text is the same)."""
        return self.family.meaning(task.payload, one) == self.family.meaning(task.payload, other)

    def expert(self, task: Task) -> Sequence[Action] | None:
        """A line a message; None where the family has no expert."""
        lines = self._slipping(task, self.solution(task))
        return None if lines is None else [Action(_TOOL.name, {_TOOL.arguments[0]: line}) for line in lines]

    def _slipping(self, task: Task, lines: list[str] | None) -> list[str] | None:
        """The expert's solution as it is shown: with the first line wrong that is drawn to be, or all; of a task always the same."""
        if lines is None or not self.expert_slips:
            return lines
        slips = generator("expert slips", task.key).random(len(lines) - 1) < self.expert_slips
        if not slips.any():
            return lines
        if isinstance(self.family, Stumbling):
            at = [int(one) for one in slips.nonzero()[0]]
            return _with_answer(self.family.stumble(task.payload, at, generator("stumble", task.key)))
        return self.wrong_solution(task, int(slips.argmax()), 0)

    def solution(self, task: Task) -> list[str] | None:
        """The expert's lines, the answer's among them."""
        lines = self.family.solve(task.payload)
        return None if lines is None else _with_answer(lines)

    def wrong_solution(self, task: Task, at: int, seed: int) -> list[str]:
        """The expert's solution with the `at`-th line wrong, gone on from there as if it were right; of the same seed always the same.

        Raises:
            ConfigError: There is no such line before the answer, or no expert.
        """
        lines = self.family.solve(task.payload)
        if lines is None:
            raise ConfigError(f"Task {task.key!r} has no expert's solution that could be got wrong.")
        if not 0 <= at < len(lines) - 1:
            raise ConfigError(f"Line {at} cannot be wrong; the solution of {task.key!r} has lines 0 to {len(lines) - 2} before its answer.")
        return _with_answer(self.family.slip(task.payload, at, generator("slip", task.key, at, seed)))

    def truth(self, task: Task, lines: Sequence[str]) -> list[StepTruth]:
        """What is known of each line: right, wrong or unknown. Behind the first wrong line, and behind the answer, all is unknown."""
        end = next((at for at, line in enumerate(lines) if _answer(line) is not None), len(lines))
        found = self.family.judge(task.payload, lines[:end])
        if end < len(lines):
            found = [*found, self._answer_truth(task.payload, lines[end], found)]
        return [*found, *(unknown("it stands behind the answer") for _ in lines[end + 1 :])]

    def _answer_truth(self, payload: Payload, line: str, before: Sequence[StepTruth]) -> StepTruth:
        if first_wrong(before) >= 0:
            return unknown("it stands behind a wrong step")
        return right() if self.family.answers(payload, _answer(line) or "") else wrong("it is not the answer")

    def episode_truth(self, episode: Episode) -> list[StepTruth]:
        """What is known of each turn: wrong if it holds a wrong line, else unknown if one is unknown (or it has none), else right.

        Turns are the library's steps by default (`stepwell.credit.by_turn`); where a turn is several steps, `truth` says it line by line.
        """
        written = [lines_of(turn.action) for turn in episode.turns]
        rest = iter(self.truth(episode.task, [line for lines in written for line in lines]))
        return [_joined([next(rest) for _ in lines]) for lines in written]


def lines_of(action: Action | Invalid) -> list[str]:
    """The steps that a message holds, up to the answer; none where it is no action."""
    written = _written(action) or []
    end = next((at for at, line in enumerate(written) if _answer(line) is not None), len(written))
    return written[: end + 1]


def _joined(truths: Sequence[StepTruth]) -> StepTruth:
    if not truths:
        return unknown("nothing was written")
    for kind in (Truth.WRONG, Truth.UNKNOWN):
        if found := [one for one in truths if one.truth is kind]:
            return found[0]
    return right(min(one.confidence for one in truths))


def _with_answer(lines: Sequence[str]) -> list[str]:
    return [*lines[:-1], f"{_ANSWER} {lines[-1]}"]


def _written(action: Action | Invalid) -> list[str] | None:
    if isinstance(action, Invalid) or action.name != _TOOL.name or set(action.arguments) != set(_TOOL.arguments):
        return None
    text = action.arguments[_TOOL.arguments[0]]
    if len(text) > _LONGEST:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines if 0 < len(lines) <= _MOST_LINES else None


def _answer(line: str) -> str | None:
    """What a line gives as the answer; None where it gives none. Spaces before the colon say nothing."""
    head, colon, tail = line.partition(":")
    return tail.strip() if colon and head.strip().lower() == _ANSWER[:-1] else None
