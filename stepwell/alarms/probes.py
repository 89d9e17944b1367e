"""What a judge says of episodes that were spoilt on purpose: turns shuffled, or the last one cut off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stepwell.protocols import ProcessReward
from stepwell.seeding import generator
from stepwell.types import Ending, EndingKind, Episode, Group, Metrics, Scored, Turn, Verdict

__all__ = ["probes", "shuffled", "truncated"]


def probes(judge: ProcessReward, groups: Sequence[Group[Scored]], *, most: int, seed: tuple[int | str, ...]) -> Metrics:
    """How often the judge's total is higher for a successful episode than for itself spoilt; a tie is a half.

    Args:
        judge: Is asked once, for all of them.
        groups: Of the step.
        most: Episodes that are probed; the first of two turns or more that succeeded.
        seed: Of the shuffles.

    Returns:
        `shuffled_n`, `shuffled_preferred`, `truncated_n`, `truncated_preferred`: how many were asked, and preferred.
    """
    every = [m.episode for group in groups for m in group.members if not m.episode.failed and m.episode.verdict.success]
    picked = [episode for episode in every if len(episode.turns) > 1][:most]
    if not picked:
        return {}
    asked = []
    for number, episode in enumerate(picked):
        versions = (replace(episode, verdict=_PROBE), shuffled(episode, (*seed, number)), truncated(episode))
        asked.append(Group(episode.task, tuple(replace(version, member=member) for member, version in enumerate(versions))))
    totals = np.array([[float(member.process_S.sum()) for member in group.members] for group in judge.score(asked)])
    made: Metrics = {}
    for place, name in ((1, "shuffled"), (2, "truncated")):
        ties = np.isclose(totals[:, 0], totals[:, place])
        made[f"{name}_n"] = float(len(picked))
        made[f"{name}_preferred"] = float(np.where(ties, 0.5, totals[:, 0] > totals[:, place]).sum())
    return made


_PROBE = Verdict.unscored("the episode is a probe of the judge")


def truncated(episode: Episode) -> Episode:
    """Without its last turn."""
    return replace(episode, turns=episode.turns[:-1], ending=Ending(EndingKind.TRUNCATED, "a probe of the judge"), verdict=_PROBE)


def shuffled(episode: Episode, seed: tuple[int | str, ...]) -> Episode:
    """With its turns in another order, each with the reply that it got. The last turn does not stay last.

    Where contexts extend each other they are laid anew, so that a judge that reads tokens reads them in this order. No text follows what
    was the last turn: the model never saw the reply to it.
    """
    turns = episode.turns
    rng = generator(*seed, "shuffled")
    order = rng.permutation(len(turns))
    if order[-1] == len(turns) - 1:
        order = np.roll(order, 1)
    return replace(episode, turns=_laid([turns[i] for i in order], turns), verdict=_PROBE)


def _laid(turns: Sequence[Turn], before: Sequence[Turn]) -> tuple[Turn, ...]:
    spans = [np.concatenate([turn.context_ids, turn.token_ids]) for turn in before]
    extends = all(np.array_equal(after.context_ids[: len(span)], span) for span, after in zip(spans, before[1:], strict=False))
    if not extends:
        return tuple(turns)
    nothing = np.zeros(0, np.int64)
    follows = {id(turn): after.context_ids[len(span) :] for turn, span, after in zip(before, spans, before[1:], strict=False)}
    context, made = before[0].context_ids, []
    for turn in turns:
        made.append(replace(turn, context_ids=context))
        context = np.concatenate([context, turn.token_ids, follows.get(id(turn), nothing)])
    return tuple(made)
