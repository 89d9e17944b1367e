"""What an episode answers, where its domain can tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from stepwell.envs.interrupt import Interrupted
from stepwell.protocols import Domain
from stepwell.types import Episode, Task

__all__ = ["Answering", "answering"]


@runtime_checkable
class Answering(Protocol):
    """A domain whose episodes end with an answer, so that answers can be counted."""

    def answer(self, episode: Episode) -> str | None:
        """What the episode gives as its answer; None where it gives none."""
        ...

    def same(self, task: Task, one: str, other: str) -> bool:
        """Whether two answers mean the same."""
        ...


@dataclass(frozen=True, slots=True)
class _Around:
    """The answers of a domain in which things happen: those of the domain inside, to what reached it."""

    domain: Interrupted
    inner: Answering

    def answer(self, episode: Episode) -> str | None:
        return self.inner.answer(self.domain.carried_out(episode))

    def same(self, task: Task, one: str, other: str) -> bool:
        return self.inner.same(task, one, other)


def answering(domain: Domain) -> Answering | None:
    """Who tells the answers of a domain's episodes; None where there are none that could be counted."""
    if isinstance(domain, Answering):
        return domain
    if isinstance(domain, Interrupted) and isinstance(domain.inner, Answering):
        return _Around(domain, domain.inner)
    return None
