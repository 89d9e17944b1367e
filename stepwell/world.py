"""What judges are made from, beside their settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stepwell.engine.speaking import SpeakingEngine
from stepwell.protocols import Domain, Model
from stepwell.rollout import Player, Prefix, continued
from stepwell.types import Episode

__all__ = ["World"]


class World(NamedTuple):
    """The parts of a run that a judge may need.

    Attributes:
        tokenizer: Of the engine's base.
        seed: Of the run.
    """

    engine: SpeakingEngine
    policy: Model
    domain: Domain
    player: Player
    tokenizer: Any
    seed: int

    def moved(self, domain: Domain) -> World:
        """The same in another domain."""
        return self._replace(domain=domain)

    def go_on(self, prefixes: Sequence[Prefix]) -> list[Episode]:
        """Continues episodes with the policy as it is now."""
        decode = self.engine.text.decode
        return continued(self.domain, prefixes, self.policy.snapshot(), self.player, decode=decode, seed=(self.seed, "continuation"))
