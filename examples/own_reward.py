"""A reward of your own: a turn that shows a new page is paid, one that repeats a page is charged. `python examples/own_reward.py`"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import stepwell
from stepwell.build import build
from stepwell.credit import by_turn
from stepwell.rewards.outcome import paid
from stepwell.rollout import rollout
from stepwell.testing import check_reward
from stepwell.types import Episode, Group, Scored


class NewPages:  # judges episodes; knows nothing of models, tokens or trainers
    def __init__(self, pay: float = 0.1) -> None:
        self.pay = pay

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        return [Group(group.task, tuple(self.judge(episode) for episode in group.members)) for group in groups]

    def judge(self, episode: Episode) -> Scored:
        steps = by_turn(episode)  # one step a turn
        outcome = paid(episode, "success")  # None where the verdict is missing
        if episode.failed:  # unscored, which is neither 0 nor NaN
            return Scored(episode, steps, outcome, {"new": np.zeros(len(steps))}, np.zeros(len(steps), np.bool_))
        seen, rewards = {episode.start.text}, []
        for turn in episode.turns:
            page = turn.reply.observation.text
            rewards.append(self.pay if turn.reply.valid and page not in seen else -self.pay)
            seen.add(page)
        return Scored(episode, steps, outcome, {"new": np.array(rewards)}, np.ones(len(steps), np.bool_))


if __name__ == "__main__":
    settings = "reward.kind=own_reward:NewPages reward.options.pay=0.05 credit.kind=process_to_go credit.baseline=rloo steps=4 "
    settings += "cloning.steps=60 cloning.optimizer.lr=0.01 cloning.optimizer.warmup=5 "
    settings += "optimizer.lr=2e-4 rollout.groups=8 rollout.group_size=8 evaluation.every=0 "
    settings += "engine.width=96 engine.feedforward=192 engine.threads=1 domain.products=100"
    config = stepwell.load("smoke", settings.split())

    built = build(config)
    tasks = [built.domain.task(0.2, seed, "train") for seed in range(2)]
    check_reward(NewPages(), rollout(built.domain, tasks, built.policy.snapshot(), built.speaker.player, group_size=2, seed=("check",)))

    with TemporaryDirectory() as folder:
        for step, metrics in stepwell.train(config, Path(folder) / "run"):
            print(step, {name: round(metrics[name], 3) for name in ("cloning/loss", "reward/new", "rollout/score") if name in metrics})
