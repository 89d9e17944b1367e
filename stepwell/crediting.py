"""From the settings of credit to a rule."""

from __future__ import annotations

from dataclasses import replace

from stepwell.credit import Replay
from stepwell.protocols import Domain
from stepwell.rewards.outcome import Pay, paid
from stepwell.rollout import answered, began
from stepwell.types import Ending, EndingKind, Episode, Turn

__all__ = ["replayer"]


def replayer(domain: Domain, pay: Pay) -> Replay:
    """Plays an episode's actions in a fresh environment, but for one turn, and says what the end is paid; see `Counterfactual`.

    What follows the end of the shortened episode is not played; one that does not end is graded as one whose turns ran out. None where the
    environment fails, or the grader has no verdict.
    """

    def outcome(episode: Episode, left_out: int) -> float | None:
        try:
            return paid(_without(domain, episode, left_out), pay)
        except Exception:  # As in a rollout: what a world raises is no fault of the run. The rule counts turns of which nothing is known.
            return None

    return outcome


def _without(domain: Domain, episode: Episode, left_out: int) -> Episode:
    environment = domain.environment(episode.task, episode.member)
    start = began(environment)
    turns: list[Turn] = []
    for number, turn in enumerate(episode.turns):
        if number != left_out and not (turns and turns[-1].reply.done):
            turns.append(replace(turn, reply=answered(environment, turn.action)))
    done = bool(turns) and turns[-1].reply.done
    ending = Ending(EndingKind.TERMINATED) if done else Ending(EndingKind.TURN_LIMIT, "a turn was left out")
    short = replace(episode, start=start, turns=tuple(turns), ending=ending)
    return replace(short, verdict=domain.grade(short))
