"""A domain in which half of all texts succeed, for no reason: even a policy that knows nothing has something to learn from."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.seeding import derive
from stepwell.types import Action, Episode, Invalid, Observation, Reply, Task, Tool, Verdict

WAYS = ("north", "south", "west", "exit")


class Hall:
    """Two rooms, whatever one does."""

    tools: Sequence[Tool] = (Tool("go", "Go there.", {"type": "object", "properties": {"way": {"type": "string"}}, "required": ["way"]}),)

    def __init__(self, task: Task) -> None:
        self._task, self._turns = task, 0

    def start(self) -> Observation:
        return Observation(self._task.prompt)

    def step(self, action: Action | Invalid) -> Reply:
        self._turns += 1
        return Reply(Observation("look and go to the exit"), done=self._turns == 2)


class Luck:
    """See above."""

    def task(self, difficulty: float, seed: int, split: str) -> Task:
        return Task(f"{split}/{seed}", f"go {WAYS[derive(seed) % len(WAYS)]}", difficulty, split)

    def tasks(self, split: str) -> Sequence[Task]:
        return [] if split == "train" else [self.task(0.5, seed, split) for seed in range(4)]

    def environment(self, task: Task, member: int) -> Hall:
        return Hall(task)

    def grade(self, episode: Episode) -> Verdict:
        return Verdict.of(float(derive(*(turn.text for turn in episode.turns)) % 2))

    def expert(self, task: Task) -> Sequence[Action]:
        return [Action("go", {"way": task.prompt.removeprefix("go ")})] * 2
