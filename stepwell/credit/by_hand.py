"""Groups of episodes made by hand, to try a credit rule on.

Legend: S step of an episode.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.credit.segment import by_turn
from stepwell.types import Action, Ending, EndingKind, Episode, Floats, Group, Observation, Reply, Scored, Stop, Task, Turn, Verdict

__all__ = ["group_by_hand"]


def group_by_hand(
    outcomes: Sequence[float | None],
    rewards: Sequence[Sequence[float | None]],
    *,
    states: Sequence[Sequence[str]] | None = None,
    log_ratios: Sequence[Sequence[float]] | None = None,
    confidence: float | None = None,
) -> Group[Scored]:
    """A group whose episodes have one turn, step and token for each reward.

    Args:
        outcomes: Of each episode; None is unscored.
        rewards: Process reward of each step of each episode; None is unscored.
        states: `state_key` of the state that each step begins in.
        log_ratios: `log pi_old - log pi_ref` of each token.
        confidence: Of the judge.

    >>> group = group_by_hand([1.0, 0.0], [[0.3, 0.1], [-0.4]])
    >>> [member.process_S.tolist() for member in group.members]
    [[0.3, 0.1], [-0.4]]
    """
    task = Task("by hand", "try it", 0.5, "train")
    members = []
    for n, (outcome, paid) in enumerate(zip(outcomes, rewards, strict=True)):
        keys = [*(states[n] if states else ["" for _ in paid]), ""]
        turns = tuple(_turn(keys[s + 1], done=s == len(paid) - 1) for s in range(len(paid)))
        verdict = Verdict.unscored("by hand") if outcome is None else Verdict.of(outcome)
        episode = Episode(task, n, Observation("start", keys[0]), turns, Ending(EndingKind.TERMINATED), verdict)
        judged: Floats = np.array([reward if reward is not None else 0.0 for reward in paid], np.float64)
        scored_S = np.array([reward is not None for reward in paid], np.bool_)
        ref = None if log_ratios is None else episode.logprobs_T - np.array(log_ratios[n], np.float64)
        scored = Scored(episode, by_turn(episode), outcome, {"judge": judged}, scored_S, ref_logprobs_T=ref, confidence=confidence)
        members.append(scored)
    return Group(task, tuple(members))


def _turn(next_state: str, *, done: bool) -> Turn:
    reply = Reply(Observation("seen", next_state), done=done)
    return Turn(np.array([1]), np.array([2]), np.array([-1.0]), "go[]", Action("go"), reply, Stop.EOS, 0)
