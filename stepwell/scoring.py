"""A judge of a run and solutions of anyone's: a number for each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stepwell.engine.chat import Chat
from stepwell.judging import reward_of
from stepwell.opening import opened
from stepwell.protocols import ProcessReward
from stepwell.runfolder import Which
from stepwell.solutions import Solution
from stepwell.types import Ending, EndingKind, Episode, Group, Ids, Invalid, Observation, Reply, Scored, Stop, Task, Turn, Verdict

__all__ = ["Display", "OpenedJudge", "Shown", "StepScores", "open_judge"]

_TOGETHER = 256
"""Solutions that are shown to the judge in one call."""
_SEPARATOR = "\n\n"
_NOTHING: Ids = np.zeros(0, np.int64)


class StepScores(NamedTuple):
    """What was said about a solution.

    Attributes:
        scores: Of each step; None where there is no number.
        empty: How many steps have no text.
        cut: How many lie beyond what the judge can read.
        unsaid: Of how many others the judge says no number.
    """

    scores: tuple[float | None, ...]
    empty: int
    cut: int
    unsaid: int


class Shown(NamedTuple):
    """A solution as the judge sees it: each step is a turn, and one that is empty or cut has no tokens. Counts as in `StepScores`."""

    episode: Episode
    empty: int
    cut: int


@dataclass(frozen=True, slots=True)
class Display:
    """How a solution is shown to a judge: as the answer to its conversation.

    First the conversation in the run's chat template, then each step with the separator. Every one of them is encoded by itself, so that no
    token reaches over the end of a step; a special token that is spelled out in a text is ordinary text.

    Attributes:
        chat: Of the run, with its system text.
        with_system: A chat with another system text, for conversations that begin with one of their own.
        separator: What ends a step. [L]
        context: Tokens that the judge reads at most.
        version: Of the policy's weights, which the steps are taken to be said by.
    """

    chat: Chat
    with_system: Callable[[str], Chat]
    separator: Ids
    context: int
    version: int

    def show(self, solution: Solution) -> Shown:
        """Steps up to the first that does not fit."""
        first, *rest = solution.messages
        chat, messages = (self.with_system(first.text), rest) if first.role == "system" else (self.chat, [first, *rest])
        head = chat.prompt(messages)
        pieces: list[Ids] = []
        room, cut = self.context - len(head), 0
        for step in solution.steps:
            piece = np.concatenate([chat.text(step), self.separator]) if step.strip() else _NOTHING
            if len(piece) and (cut or len(piece) > room):
                piece, cut = _NOTHING, cut + 1
            pieces.append(piece)
            room -= len(piece)
        ids = np.concatenate([head, *pieces])
        ends = np.cumsum([len(head), *map(len, pieces)])
        turns = tuple(
            self._turn(step, ids[:start], ids[start:end]) for step, (start, end) in zip(solution.steps, pairwise(ends), strict=True)
        )
        ending = Ending(EndingKind.TRUNCATED, "not all steps fit into the context") if cut else Ending(EndingKind.TERMINATED)
        asked = messages[-1].text
        task = Task(str(solution.id), asked, 0.0, "file")
        episode = Episode(task, 0, Observation(asked), turns, ending, Verdict.unscored("nobody has graded it"))
        return Shown(episode, sum(not step.strip() for step in solution.steps), cut)

    def _turn(self, step: str, context: Ids, ids: Ids) -> Turn:
        action = Invalid(step, "a step of a solution is not acted on")
        return Turn(context, ids, np.zeros(len(ids)), step, action, Reply(Observation("")), Stop.STRING, self.version)


class OpenedJudge(NamedTuple):
    """A trained judge, ready to read.

    Attributes:
        origin: In words, such as `the judge of runs/prm (reward.kind=labelled), step 200`.
    """

    reward: ProcessReward
    display: Display
    origin: str

    def score(self, solutions: Sequence[Solution]) -> list[StepScores]:
        """A number for each step of each solution: the judge's reward, on its own scale (of a mixture, the weighted sum).

        A step is taken for what a turn is in an episode of the run. None, and counted, are steps without text; those that do not fit into
        the context, and all after them (where the conversation does not fit, all of them); and those of which the judge says nothing.

        Raises:
            RunError: The judge's weights hold NaN or infinity.
        """
        made: list[StepScores] = []
        for at in range(0, len(solutions), _TOGETHER):
            shown = [self.display.show(solution) for solution in solutions[at : at + _TOGETHER]]
            groups = [Group(one.episode.task, (one.episode,)) for one in shown if one.episode.num_tokens]
            scored = iter(self.reward.score(groups) if groups else ())
            made += [_scores(one, next(scored).members[0] if one.episode.num_tokens else None) for one in shown]
        return made


def _scores(shown: Shown, scored: Scored | None) -> StepScores:
    if scored is None:
        return StepScores((None,) * len(shown.episode.turns), shown.empty, shown.cut, 0)
    said_S = scored.scored_S & (scored.steps.lengths_S > 0)
    scores = tuple(float(reward) if said else None for reward, said in zip(scored.process_S, said_S, strict=True))
    return StepScores(scores, shown.empty, shown.cut, int((~said_S).sum()) - shown.empty - shown.cut)


def open_judge(run: Path | str, overrides: Sequence[str] = (), *, checkpoint: Which = "last", separator: str | None = None) -> OpenedJudge:
    """The judge of a run, with the weights that it has learnt; what it learnt from need not be at hand.

    Args:
        run: The run's folder; a run that is going on can be opened too.
        overrides: `key=value` arguments for where the engine computes, and `rollout.context`, the tokens that are read at most.
        checkpoint: The last one, or the one with the best evaluation during training.
        separator: What ends a step; None is the labelled judge's `reward.separator`, and a blank line for others.

    Raises:
        RunError: The folder holds no run, no such checkpoint, or no judge; or one that reads no text.
        ConfigError: A setting that cannot be changed here.
    """
    found = opened(Path(run), reward_of, overrides, checkpoint=checkpoint)
    world, config = found.world, found.config
    if separator is None:
        separator = found.separator or _SEPARATOR
    ends = np.array(world.tokenizer.encode(separator, add_special_tokens=False), np.int64)

    @lru_cache(64)
    def with_system(text: str) -> Chat:
        return Chat.of(world.tokenizer, system=text, template=config.chat.template)

    display = Display(world.player.chat, with_system, ends, world.player.limits.context, world.policy.version)
    return OpenedJudge(found.reward, display, found.origin)
