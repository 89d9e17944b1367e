"""Pools of candidates made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from builders import make_episode, make_task

from stepwell.searching.pool import Candidate, Pool

__all__ = ["pool"]


def pool(answers: Sequence[int | None], right: Sequence[int], scores: Sequence[float | None], key: str = "test/0") -> Pool:
    """Candidates with these classes of answers, of which the classes in `right` are right."""
    made = tuple(
        Candidate(make_episode([2], member=at), answer, answer in right and answer is not None, score)
        for at, (answer, score) in enumerate(zip(answers, scores, strict=True))
    )
    return Pool(make_task(key), made, 0)
