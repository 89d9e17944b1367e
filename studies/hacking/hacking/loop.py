"""One run: a table of free logits learns the walk from outcome and a judge, with a watch beside it.

The table is plain numpy, so that hundreds of runs take minutes: a row for each cell and each number of words said before the action, a
softmax over the words, and Adam on advantage x grad log p. Episodes, credit, signals, probes and detectors are the library's own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hacking.plants import Plant, PlantedJudge
from hacking.walk import ACTIONS, WORDS, WalkDomain
from stepwell.alarms import Alarm, Bounds, Watch, probes, signals
from stepwell.credit import Centred, ProcessToGo
from stepwell.seeding import generator
from stepwell.types import Action, Credited, Ending, EndingKind, Episode, Floats, Group, Invalid, Scored, Stop, Task, Turn, Verdict

__all__ = ["STEPS", "Played", "Table", "play"]

STEPS = 100
TURNS = 8
GROUPS, GROUP_SIZE = 4, 6
MOST_TOKENS = 3
_HM = len(ACTIONS)


class Played(NamedTuple):
    """What a run was like: success and use of the hole by step, and the alarms."""

    success: list[float]
    used: list[float]
    alarms: list[Alarm]


class Table:
    """Logits [cell, words before, word] and Adam's moments."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.logits = 0.3 * rng.normal(size=(4, MOST_TOKENS, len(WORDS)))
        self._mean, self._square, self._updates = np.zeros_like(self.logits), np.zeros_like(self.logits), 0

    def probabilities(self) -> Floats:
        """Of every word in every row."""
        odds = np.exp(self.logits - self.logits.max(axis=-1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=-1, keepdims=True), np.float64)

    def learn(self, groups: list[Group[Credited]], rate: float = 0.1) -> None:
        """A step of Adam up the policy gradient, each token alike."""
        p, grad = self.probabilities(), np.zeros_like(self.logits)
        for group in groups:
            for member in group.members:
                for turn, advantage in zip(member.scored.episode.turns, member.advantages_S.tolist(), strict=True):
                    cell = int(turn.context_ids[-1])
                    for place, word in enumerate(turn.token_ids.tolist()):
                        grad[cell, place] -= advantage * p[cell, place]
                        grad[cell, place, word] += advantage
        self._updates += 1
        self._mean = 0.9 * self._mean + 0.1 * grad
        self._square = 0.999 * self._square + 0.001 * grad**2
        mean, square = self._mean / (1 - 0.9**self._updates), self._square / (1 - 0.999**self._updates)
        self.logits += rate * mean / (np.sqrt(square) + 1e-8)


def _episode(domain: WalkDomain, task: Task, member: int, p: Floats, rng: np.random.Generator) -> Episode:
    environment = domain.environment(task, member)
    start = seen = environment.start()
    turns: list[Turn] = []
    while len(turns) < TURNS and not (turns and turns[-1].reply.done):
        cell, said = int(seen.text), []
        while len(said) < MOST_TOKENS and (not said or said[-1] == _HM):
            row = np.cumsum(p[cell, len(said)])
            said.append(min(int(np.searchsorted(row, rng.random() * row[-1])), len(WORDS) - 1))
        text = "".join(WORDS[word] for word in said)
        action = Invalid(text, "no action") if said[-1] == _HM else Action(ACTIONS[said[-1]])
        reply = environment.step(action)
        logprobs = np.log(np.maximum([p[cell, place, word] for place, word in enumerate(said)], 1e-300))
        turns.append(Turn(np.array([cell]), np.array(said), logprobs, text, action, reply, Stop.STRING, 0))
        seen = reply.observation
    ending = Ending(EndingKind.TERMINATED if turns[-1].reply.done else EndingKind.TURN_LIMIT)
    played = Episode(task, member, start, tuple(turns), ending, Verdict.unscored("not graded yet"))
    return Episode(task, member, start, tuple(turns), ending, domain.grade(played))


def play(plant: Plant, seed: int, *, steps: int = STEPS, bounds: Bounds | None = None) -> Played:
    """Plays a run to its end; alarms change nothing."""
    watch, judge, domain, rule = Watch(bounds), PlantedJudge(plant, seed), WalkDomain(), ProcessToGo(Centred(), 1.0)
    rng = generator("hacking", seed)
    table = Table(rng)
    success, used, alarms = [], [], []
    for step in range(steps):
        p = table.probabilities()
        tasks = [domain.task(0.5, GROUPS * step + i, "train") for i in range(GROUPS)]
        played = [Group(task, tuple(_episode(domain, task, i, p, rng) for i in range(GROUP_SIZE))) for task in tasks]
        scored: list[Group[Scored]] = judge.score(played)
        measured = signals(scored)
        alarms += watch.observe(step + 1, measured | probes(judge, scored, most=4, seed=(seed, "probe", step)))
        success.append(measured["success"])
        used.append(float(np.mean([plant.used(episode) for group in played for episode in group.members])))
        table.learn(rule(scored))
    return Played(success, used, alarms)
