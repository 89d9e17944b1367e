"""Interruptions: what changes in the middle of an episode, in any domain.

`Interrupted` wraps a domain. Tools that fail for a while and pages that lag behind can happen anywhere; what else can happen is told by
the domain's `Events` (for the generated shop: `stepwell.envs.shop.events`). An event is drawn from the task's key (the members of a group
share it) or from the key and the member. It happens after a number of steps, at a fraction of the expert's path, or when something is first
done; it is announced or not, and lasts or passes.

What can still be reached after an event is computed exactly where the domain's events can tell it. Success is then to get that, and an
event after which it would be less than `solvable` does not happen: nobody is asked for what cannot be done.
"""

from stepwell.envs.interrupt.domain import Interrupted
from stepwell.envs.interrupt.episode import InterruptedEnvironment
from stepwell.envs.interrupt.what import ANYWHERE, Change, Event, Events, Outcome, Plan, World

__all__ = ["ANYWHERE", "Change", "Event", "Events", "Interrupted", "InterruptedEnvironment", "Outcome", "Plan", "World"]
