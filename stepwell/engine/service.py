"""What lies on the other side of a wire: a server that holds models, each of which learns and speaks.

`engine.tinker_api` offers this over the Tinker API; tests offer it in memory. All calls wait for their answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from stepwell.engine.carrier import Remote
from stepwell.engine.servers import ServerKind
from stepwell.errors import ServerError
from stepwell.types import Floats, Ids

__all__ = ["Asked", "Said", "Service", "Speaker", "Trainee", "check_count"]


class Asked(NamedTuple):
    """Completions of one prompt that are wanted.

    Attributes:
        context: Token ids. [L]
        stop: All that may end one, as texts, or as token ids: a server takes one or the other.
        seed: In [0, 2**31 - samples].
        samples: How many. Where the kind of server says so (`ServerKind.samples_follow`), the samples are those of single requests of the
            seeds `seed`, `seed` + 1, ...; elsewhere they are different draws, which the seed decides.
    """

    context: Ids
    max_tokens: int
    temperature: float
    stop: tuple[str, ...] | tuple[int, ...]
    seed: int
    samples: int = 1


class Said(NamedTuple):
    """What a server sampled. `stopped`: it says that the completion was ended by a stop, not by its limit. [T] each."""

    token_ids: Ids
    logprobs: Floats
    stopped: bool


def check_count(got: int, wanted: int) -> None:
    """Raises `ServerError` where a server gave another number of samples than it was asked for."""
    if got != wanted:
        raise ServerError(
            f"The server gave {got} samples where {wanted} were asked for; a request for several gives as many, in order. "
            "Run stepwell engine check on it, and name its kind (engine.server)."
        )


class Speaker(Protocol):
    """Weights that sample, as they were when it was made."""

    def sample(self, asked: Sequence[Asked]) -> list[Said]:
        """All at once, the samples of a request in a row; each request depends on its own seed. Safe to repeat, and repeated where an
        answer was lost on the way.

        Raises:
            ServerError: The server gave more or fewer samples of a request; see `check_count`.
        """
        ...


class Trainee(Remote, Protocol):
    """An adapter on the server. What is lost on the way of `forward_backward` and `optim_step` is an error, never a second gradient."""

    def speaker(self) -> Speaker:
        """Its present weights."""
        ...

    def save(self, name: str) -> str:
        """Writes weights and optimiser on the server's side; returns the path to restore them by."""
        ...

    def close(self) -> None:
        """Gives its place on the server back."""
        ...


class Service(Protocol):
    """A server."""

    @property
    def kind(self) -> ServerKind: ...
    @property
    def url(self) -> str: ...
    @property
    def base(self) -> str:
        """Name of the base model."""
        ...

    @property
    def max_length(self) -> int | None:
        """Tokens of the longest sequence, where the server says it."""
        ...

    @property
    def notice(self) -> str:
        """What a user should know about this server, or ""."""
        ...

    def create(self, rank: int, seed: int) -> Trainee:
        """A fresh adapter, which changes nothing at first."""
        ...

    def restore(self, path: str, rank: int, *, optimizer: bool) -> Trainee:
        """A new adapter from what `save` wrote, with or without the state of its optimiser."""
        ...

    def close(self) -> None:
        """Ends the session."""
        ...
