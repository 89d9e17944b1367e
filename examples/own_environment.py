"""An environment of your own, checked and trained in: a number from 1 to 15, four guesses. `python examples/own_environment.py`"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import stepwell
from stepwell.testing import check_environment
from stepwell.types import Action, Episode, Invalid, Observation, Reply, Task, Tool, Verdict


class Hints:  # one episode's world: text in, text out
    tools = (Tool("guess", "Guess.", {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]}),)

    def __init__(self, number: int) -> None:
        self.number, self.found = number, False

    def start(self) -> Observation:
        return Observation("guess a number from 1 to 15")

    def step(self, action: Action | Invalid) -> Reply:
        text = action.arguments.get("number", "") if isinstance(action, Action) else ""
        if self.found or not text.isdecimal() or len(text) > 4:
            return Reply(Observation("say guess[number]"), done=self.found, valid=False)
        self.found = int(text) == self.number
        hint = "right" if self.found else "higher" if int(text) < self.number else "lower"
        return Reply(Observation(hint), reward=float(self.found), done=self.found)


class Numbers:  # tasks, worlds, verdicts and the expert belong together
    def task(self, difficulty: float, seed: int, split: str) -> Task:
        return Task(f"{split}/{seed}", "guess the number", difficulty, split, {"number": seed % 15 + 1})

    def tasks(self, split: str) -> Sequence[Task]:
        return [self.task(0.5, seed, split) for seed in range(90)]

    def environment(self, task: Task, member: int) -> Hints:
        return Hints(int(str(task.payload["number"])))

    def grade(self, episode: Episode) -> Verdict:
        return Verdict.of(sum(turn.reply.reward for turn in episode.turns))

    def expert(self, task: Task) -> Sequence[Action]:
        number, guesses = int(str(task.payload["number"])), [8]
        while guesses[-1] != number:  # halves what is left: 8, then 4 or 12, then ...
            guesses.append(guesses[-1] + (8 >> len(guesses)) * (1 if number > guesses[-1] else -1))
        return [Action("guess", {"number": str(guess)}) for guess in guesses]


if __name__ == "__main__":
    check_environment(Numbers(), Numbers().task(0.5, seed=0, split="train"))
    settings = "domain.kind=own_environment:Numbers engine.width=64 engine.threads=1 evaluation.every=0 evaluation.episodes=90 "
    settings += "cloning.steps=60 cloning.optimizer.lr=0.02 cloning.optimizer.warmup=5 "
    settings += "cloning.optimizer.decay=constant steps=12 optimizer.lr=1e-3 rollout.groups=16 rollout.group_size=8 rollout.turns=4"
    with TemporaryDirectory() as folder:
        for step, metrics in stepwell.train(stepwell.load("smoke", settings.split()), Path(folder) / "run"):
            print(step, {name: round(metrics[name], 3) for name in ("cloning/loss", "rollout/success", "test/success") if name in metrics})
