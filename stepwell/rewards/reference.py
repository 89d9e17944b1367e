"""What a log-ratio is measured against: the policy that sampled, or a copy of weights."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.errors import StaleWeightsError
from stepwell.protocols import KeptPolicy, Model, Policy, Saveable
from stepwell.types import Episode

__all__ = ["Reference", "present_policy"]


def present_policy(policy: Model, episodes: Sequence[Episode], remedy: str) -> Policy:
    """The policy as it is, which must have sampled all of these episodes.

    Args:
        policy: The model.
        episodes: That it is asked about.
        remedy: What can be done where it has moved on; the end of the error.

    Raises:
        StaleWeightsError: It has not.
    """
    present = policy.snapshot()
    versions = sorted({turn.version for episode in episodes for turn in episode.turns})
    if versions not in ([], [present.version]):
        raise StaleWeightsError(
            f"The episodes hold turns of policy version {', '.join(map(str, versions))}, and the policy is now version "
            f"{present.version}; {remedy}"
        )
    return present


class Reference:
    """The denominator of a log-ratio.

    Args:
        policy: Who samples: the moving reference.
        frozen: A model whose present weights are kept as the reference instead; None is the moving one.
    """

    def __init__(self, policy: Model, frozen: Model | None) -> None:
        self._policy = policy
        self._kept: KeptPolicy | None = None if frozen is None else frozen.keep()

    @property
    def is_frozen(self) -> bool:
        """Whether it is a copy that stays."""
        return self._kept is not None

    def of(self, episodes: Sequence[Episode]) -> Policy:
        """The reference of episodes that the policy sampled.

        Raises:
            StaleWeightsError: It is the policy, which has moved on since, or they are from several versions of it.
        """
        if self._kept is not None:
            return self._kept
        remedy = "with reference=moving all must be the same: score before the policy is updated, or use reference=frozen."
        return present_policy(self._policy, episodes, remedy)

    def models(self) -> dict[str, Saveable]:
        """For the checkpoint: the copy, where there is one."""
        return {} if self._kept is None else {"judge_reference": self._kept}
