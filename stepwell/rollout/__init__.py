"""A policy in environments: groups of episodes, in lock-step.

All episodes of a call take their turns together, so that sampling is one batched call a turn and the engine reuses the keys and values of
what it has seen. Tokens are kept exactly as sampled. An environment that raises fails its episode, not the step.
"""

from stepwell.rollout.continuing import Prefix, continued
from stepwell.rollout.play import GOES_ON, advanced, begun, demonstrate, rollout
from stepwell.rollout.seat import Limits, Player, answered, began

__all__ = ["GOES_ON", "Limits", "Player", "Prefix", "advanced", "answered", "began", "begun", "continued", "demonstrate", "rollout"]
