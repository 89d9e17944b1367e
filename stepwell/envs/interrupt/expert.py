"""The expert who knows what has happened."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.envs.interrupt.episode import InterruptedEnvironment
from stepwell.envs.interrupt.what import EPS, World
from stepwell.types import Action

__all__ = ["carried_through"]

_MOST_STEPS = 200


def carried_through(environment: InterruptedEnvironment, plan: list[Action]) -> list[Action] | None:
    """Plays the plan, repeats what is lost, and plans anew where what has happened asks for it; None where no end is found."""
    done: list[Action] = []
    doubtful = True
    while len(done) < _MOST_STEPS:
        if doubtful and isinstance(environment.world, World) and not _reaches_best(environment, plan):
            anew = environment.changing.plan()
            good = anew is not None and _reaches_best(environment, list(anew))
            plan = list(anew or ()) if good else [environment.changing.wait()]
            doubtful = not good
        else:
            doubtful = False
        if not plan:
            return done
        action = plan.pop(0)
        reply = environment.step(action)
        done.append(action)
        if reply.done:
            return done
        if environment.lost:
            plan.insert(0, action)
        doubtful = doubtful or environment.changed
    return None


def _reaches_best(environment: InterruptedEnvironment, plan: Sequence[Action]) -> bool:
    """Whether the plan, carried out from here with nothing more happening, earns the best that is left."""
    twin = environment.twin()
    best = twin.changing.best()
    left = list(plan)
    for _ in range(_MOST_STEPS):
        if not left:
            return False
        reply = twin.step(left[0])
        if reply.done:
            return twin.reward >= best - EPS
        if not twin.lost:
            left.pop(0)
    return False
