"""Kinds of servers of the Tinker API: what each one makes of the same words, and what it cannot do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepwell.engine.carrier import Dialect
from stepwell.errors import CapabilityError, nearest

__all__ = ["SERVERS", "UNCLIPPED", "ServerKind", "check_clips", "server_kind"]

UNCLIPPED = 1e6
"""A `max_grad_norm` from here on asks for no clipping."""
_ALL = frozenset({"cross_entropy", "importance_sampling", "ppo", "cispo"})


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A row of the table.

    Attributes:
        dialect: Its reduction, and the losses that it computes as the API's documentation says.
        clips: Whether it clips the gradient's norm as asked with each step, at a setting of its own, or never.
        alpha: The only scale of adapters that it has.
        models: How many models one server holds at once; None is many.
        recognises_repeats: Whether a training call that is sent again (its answer was lost) is known by its sequence number and not
            applied twice. Where it is not, no training call is ever sent again.
        needs_key: Whether it looks at the key.
        restores: `new`: a state is loaded into a model that is made from it. `first`: into a fresh model, as its first request.
        most_samples: Of one prompt in one request, at most; None is any number, 1 makes every row a request of its own.
        samples_follow: Whether the samples of a request of seed s are those of single requests of the seeds s, s + 1, and so on. Where
            not, they are different draws, and what a row gets hangs on its place among the rows of its prompt in the call.
        source: Where this was read.
    """

    name: str
    dialect: Dialect
    clips: Literal["asked", "own", "never"]
    source: str
    alpha: float = 32.0
    models: int | None = None
    recognises_repeats: bool = False
    needs_key: bool = False
    restores: Literal["new", "first"] = "new"
    most_samples: int | None = None
    samples_follow: bool = True


_SKYRL = "SkyRL 0.4"
SERVERS: dict[str, ServerKind] = {
    kind.name: kind
    for kind in (
        ServerKind(  # how the seeds of a request's samples are made is not documented
            *("tinker", Dialect("sum", _ALL), "asked", "the API's documentation"),
            recognises_repeats=True,
            needs_key=True,
            samples_follow=False,
        ),
        ServerKind(  # the thresholds of cispo do not reach its loss
            "skyrl-fsdp", Dialect("sum", _ALL - {"cispo"}), "own", _SKYRL, models=1, recognises_repeats=True, restores="first"
        ),
        ServerKind("skyrl-megatron", Dialect("sum", _ALL - {"cispo"}), "own", _SKYRL, recognises_repeats=True, restores="first"),
        ServerKind("skyrl-jax", Dialect("sequence_mean", _ALL), "never", _SKYRL, recognises_repeats=True, restores="first"),
        ServerKind("verl", Dialect("sum", frozenset({"cross_entropy"})), "own", "verl 0.9"),  # importance_sampling is capped at 2
        # one generator draws all samples of a request, so that each hangs on their number
        ServerKind("hatchery", Dialect("token_mean", frozenset({"cross_entropy"})), "own", "hatchery 0.3", most_samples=1),
        # importance_sampling is clipped; ppo and cispo silently become cross-entropy; the seed of a request is dropped
        ServerKind("twinkle", Dialect("sequence_mean", frozenset()), "own", "Twinkle 0.5", most_samples=1),
    )
}
"""As their source says."""


def server_kind(name: str) -> ServerKind:
    """The row of this name.

    Raises:
        CapabilityError: An unknown kind: to guess would mean gradients of an unknown scale.
    """
    if name not in SERVERS:
        raise CapabilityError(f"No server of kind {name!r} is known; {nearest(name, SERVERS)}")
    return SERVERS[name]


def check_clips(kind: ServerKind, max_grad_norm: float, setting: str) -> None:
    """Refuses what would be ignored.

    Raises:
        CapabilityError: The gradient is to be clipped, and this kind of server never does it.
    """
    if kind.clips == "never" and max_grad_norm < UNCLIPPED:
        raise CapabilityError(
            f"{setting} is {max_grad_norm:g}, and a server of kind {kind.name!r} ({kind.source}) does not clip gradients; "
            f"set {setting}={UNCLIPPED:g}, which asks for no clipping, or use another server."
        )
