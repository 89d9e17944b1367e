"""Solutions whose first wrong step is known, in the form that `stepwell train-judge` and `stepwell eval-judge` read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stepwell.envs.reasoning.domain import ReasoningDomain
from stepwell.envs.reasoning.truth import labels
from stepwell.errors import ConfigError
from stepwell.seeding import derive, generator
from stepwell.types import JSON, Task

__all__ = ["labelled_solutions"]


def labelled_solutions(
    domain: ReasoningDomain, number: int, *, split: str = "train", wrong: float = 0.5, seed: int = 0
) -> Iterator[dict[str, JSON]]:
    """So many different tasks, each with a solution: the expert's, or one with a wrong step at a place drawn at random.

    A line is `{"id", "prompt", "steps", "labels", "first_wrong"}`: labels are 1 for a right step, 0 for the first wrong one, null behind
    it, as in ProcessBench; `first_wrong` counts from 0 and is -1 for none. Labels are what the domain's checker says, not what was
    intended.

    Args:
        domain: Whose tasks.
        number: How many solutions.
        split: Of the tasks; train a judge on `train`, measure it on `test`.
        wrong: The share of solutions with a wrong step.
        seed: Of the draws.

    Raises:
        ConfigError: Numbers that cannot be, tasks without an expert, or a split with fewer tasks.
    """
    if number < 1 or not 0.0 <= wrong <= 1.0:
        raise ConfigError(f"{number} solutions with a share of {wrong} wrong ones cannot be made; give at least 1, and a share in [0, 1].")
    for at, task in enumerate(_tasks(domain, number, split, seed)):
        lines = domain.solution(task)
        if lines is None:
            raise ConfigError(f"{domain.family.name} has no expert for {task.key!r}, so there is no solution to label; take another task.")
        draw = generator("labelled", seed, split, at)
        if draw.random() < wrong and len(lines) > 1:
            lines = domain.wrong_solution(task, int(draw.integers(len(lines) - 1)), seed)
        said = labels(domain.truth(task, lines))
        steps: list[JSON] = list(lines)
        numbers: list[JSON] = list(said)
        first = said.index(0.0) if 0.0 in said else -1
        yield {"id": task.key, "prompt": task.prompt, "steps": steps, "labels": numbers, "first_wrong": first}


def _tasks(domain: ReasoningDomain, number: int, split: str, seed: int) -> Sequence[Task]:
    """The first tasks of a finite split; of training as many different ones as are wanted."""
    if split != "train":
        tasks = domain.tasks(split)
        if len(tasks) < number:
            raise ConfigError(f"Split {split!r} has {len(tasks)} tasks and {number} solutions are wanted; ask for more with test_tasks=N.")
        return tasks[:number]
    found: dict[str, Task] = {}
    for attempt in range(20 * number + 100):
        difficulty = round(float(generator("labelled difficulty", seed, attempt).uniform(*domain.difficulty)), 4)
        task = domain.task(difficulty, derive(seed, "labelled", attempt), split)
        found.setdefault(task.prompt, task)
        if len(found) == number:
            return list(found.values())
    raise ConfigError(f"Only {len(found)} different tasks were found, and {number} are wanted; ask for fewer, or for a greater difficulty.")
