"""What rollouts and judges need of an engine beside its models: how it decodes, and how long a sequence may be."""

from __future__ import annotations

from typing import Protocol

from stepwell.engine.local import Text
from stepwell.protocols import Capabilities, Model, ModelSpec, Policy

__all__ = ["SpeakingEngine"]


class SpeakingEngine(Protocol):
    """`protocols.Engine` whose models speak in words: `LocalEngine` and `RemoteEngine`."""

    @property
    def text(self) -> Text: ...
    @property
    def max_length(self) -> int: ...
    @property
    def notice(self) -> str:
        """What a user should know about it, or ""."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...
    def model(self, name: str, spec: ModelSpec) -> Model: ...
    def as_it_is(self) -> Policy:
        """The base as it is, for uses that train nothing."""
        ...
