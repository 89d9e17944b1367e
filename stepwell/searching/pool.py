"""Candidates: the answers that were sampled to one problem, and what is known of each.

Legend: N candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stepwell.errors import ConfigError
from stepwell.evaluation.votes import classes
from stepwell.protocols import Domain
from stepwell.searching.answers import answering
from stepwell.types import EndingKind, Episode, Stop, Task

__all__ = ["Candidate", "Pool", "is_finished", "pool_of"]


class Candidate(NamedTuple):
    """One of the answers to a problem.

    Attributes:
        answer: The class of its answer: equal numbers mean the same. None where it is not eligible: it is unfinished, or gives no answer.
            In a domain without answers each finished candidate is a class of its own.
        right: Whether it is eligible and its verdict is success.
        score: The judge's; None where it says none.
    """

    episode: Episode
    answer: int | None
    right: bool
    score: float | None


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates of a problem whose verdict is known.

    Attributes:
        left_out: How many have no verdict (their infrastructure failed, or the grader said nothing): they enter nothing.
        unfinished: How many of the others are not eligible.
    """

    task: Task
    candidates: tuple[Candidate, ...]
    left_out: int

    @property
    def unfinished(self) -> int:
        return sum(one.answer is None for one in self.candidates)


def is_finished(episode: Episode) -> bool:
    """Whether the environment said that it is over, and the last message was not cut at its limit of tokens."""
    return episode.ending.kind is EndingKind.TERMINATED and bool(episode.turns) and episode.turns[-1].stop is not Stop.LENGTH


def pool_of(domain: Domain, task: Task, episodes: Sequence[Episode], scores_N: Sequence[float | None], *, votes: bool) -> Pool:
    """The candidates of a problem.

    Args:
        domain: Where they were played.
        task: The problem.
        episodes: In the order in which they were sampled.
        scores_N: The judge's.
        votes: Whether answers are counted.

    Raises:
        ConfigError: They are, and the domain has none.
    """
    answers_of = answering(domain)
    if votes and answers_of is None:
        raise ConfigError(
            f"{type(domain).__name__} has no answers that could be counted; choose --method best_of_n or a tree, or a domain of questions."
        )
    known = [(one, score) for one, score in zip(episodes, scores_N, strict=True) if not one.failed and one.verdict.success is not None]
    if answers_of is not None:
        said = [answers_of.answer(one) if is_finished(one) else None for one, _ in known]
        answers = classes(said, lambda one, other: answers_of.same(task, one, other))
    else:
        answers = [at if is_finished(one) else None for at, (one, _) in enumerate(known)]
    candidates = tuple(
        Candidate(one, answer, answer is not None and bool(one.verdict.success), score)
        for (one, score), answer in zip(known, answers, strict=True)
    )
    return Pool(task, candidates, len(episodes) - len(known))
