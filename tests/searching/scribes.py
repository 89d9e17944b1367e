"""A model that solves arithmetic as the expert does, and goes wrong by chance; and judges that know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from stepwell.configure import parse
from stepwell.credit import by_turn
from stepwell.domains import build_domain
from stepwell.envs.reasoning import ReasoningDomain
from stepwell.searching.judge import Judge
from stepwell.speaking import Speaker, build_speaker
from stepwell.trained import Trained
from stepwell.types import Completion, Episode, Floats, Group, Ids, Row, Sampling, Scored, Stop

__all__ = ["Scribe", "Told", "judge", "real", "scribe", "told"]

SETTINGS = {
    "domain": {"kind": "reasoning", "task": "arithmetic", "difficulty": (0.0, 0.2), "test_tasks": 12},
    "engine": {
        "kind": "tiny",
        "width": 32,
        "feedforward": 48,
        "layers": 2,
        "heads": 2,
        "max_length": 256,
        "corpus_tasks": 60,
        "threads": 1,
    },
    "chat": {"tools": False},
    "rollout": {"turns": 6, "max_tokens": 20},
    "evaluation": {"episodes": 12},
}


@lru_cache
def _speaker() -> tuple[Speaker, ReasoningDomain]:
    config = parse(SETTINGS)
    domain = build_domain(config.domain)
    assert isinstance(domain, ReasoningDomain)
    return build_speaker(config, domain), domain


@dataclass
class Scribe:
    """Writes the expert's next line. With probability `slips` it answers 1 to 3 in its place; with probability `strays` it writes
    1 = 2, after which its answer is wrong; with probability `breaks` its message is cut at the limit of tokens. What it does is a function
    of context and seed alone.

    Attributes:
        calls: Contexts of each call.
    """

    domain: ReasoningDomain
    slips: float = 0.3
    breaks: float = 0.0
    strays: float = 0.0
    version: int = 0
    calls: list[int] = field(default_factory=list)

    def sample(self, contexts: Sequence[Ids], sampling: Sequence[Sampling], seeds: Sequence[int]) -> list[Completion]:
        self.calls.append(len(contexts))
        return [self._say(context, seed) for context, seed in zip(contexts, seeds, strict=True)]

    def logprobs(self, rows: Sequence[Row]) -> list[Floats]:
        raise NotImplementedError

    def _say(self, context: Ids, seed: int) -> Completion:
        speaker, _ = _speaker()
        chat = speaker.player.chat
        starts = {task.key: chat.converse(self.domain.environment(task).start().text).context() for task in self.domain.tasks("test")}
        task = next(t for t in self.domain.tasks("test") if np.array_equal(context[: len(starts[t.key])], starts[t.key]))
        before = speaker.tokenizer.decode(context[len(starts[task.key]) :].tolist())
        solution = self.domain.solution(task) or []
        draw = np.random.default_rng(seed)
        line = solution[min(before.count("write"), len(solution) - 1)]
        if draw.random() < self.slips:
            line = f"answer: {draw.integers(1, 4)}"
        elif line.startswith("answer") and "1 = 2" in before:
            line = "answer: 1 2"
        elif not line.startswith("answer") and draw.random() < self.strays:
            line = "1 = 2"
        ids = chat.reply(f"write[{line}]")
        cut = draw.random() < self.breaks
        ids = ids[:-1] if cut else ids
        text = speaker.tokenizer.decode((ids if cut else ids[:-1]).tolist())
        return Completion(ids, np.full(len(ids), -0.5), text, Stop.LENGTH if cut else Stop.EOS)


def scribe(slips: float = 0.3, breaks: float = 0.0, strays: float = 0.0) -> Trained:
    speaker, domain = _speaker()
    policy = Scribe(domain, slips, breaks, strays)
    return Trained(parse(SETTINGS), domain, speaker.player, policy, "a scribe", None, None, speaker.tokenizer)


def real() -> Trained:
    """A tiny model with fresh weights: it says anything."""
    config = parse(SETTINGS)
    domain = build_domain(config.domain)
    speaker = build_speaker(config, domain)
    return Trained(config, domain, speaker.player, speaker.engine.as_it_is(), "fresh weights", None, None, speaker.tokenizer)


@dataclass
class Told:
    """A judge that says of every step what `says` says of the episode, the same for all steps; None is nothing."""

    says: object

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        return [Group(group.task, tuple(self._scored(one) for one in group.members)) for group in groups]

    def _scored(self, episode: Episode) -> Scored:
        assert callable(self.says)
        said, steps = self.says(episode), by_turn(episode)
        values = np.full(len(steps), 0.0 if said is None else float(said))
        return Scored(episode, steps, None, {"judge": values}, np.full(len(steps), said is not None))


def told(says: object) -> Judge:
    return Judge(Told(says), "reward", False, "a judge that is told")


def judge(says: object) -> Judge:
    """The same, with probabilities."""
    return Judge(Told(says), "right", True, "a judge that is told")
