"""A judge with a tokenizer of its own: episodes are told to it as text, and what it says is carried back step by step.

A step is a span of the policy's tokens. Its text is cut out of its turn's at the characters that these tokens stand for, and encoded by
itself with the judge's tokenizer: no token of the judge's reaches over the end of a step, so that what it says about a step cannot depend
on what comes after it, whatever either tokenizer merges. A character that the tokens of two steps share (its bytes are several tokens)
belongs to the step that completes it.

Legend: S step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from stepwell.credit.segment import Segment, by_turn
from stepwell.engine.chat import Chat
from stepwell.errors import RecordError, RunError
from stepwell.protocols import ProcessReward, Saveable
from stepwell.rewards.confidence import Confidence, pair_accuracy, ranked_by_reward
from stepwell.rewards.outcome import Pay, paid
from stepwell.types import JSON, Ending, EndingKind, Episode, Group, Ids, Metrics, Scored, Steps, Stop, Turn

__all__ = ["Retelling", "RetoldReward", "step_texts"]

Decode = Callable[[Sequence[int]], str]
_NOTHING: Ids = np.zeros(0, np.int64)


def step_texts(episode: Episode, steps: Steps, decode: Decode) -> list[str]:
    """The text of each step; those of a turn, joined, are the turn's text. [S]

    Args:
        episode: With the text of each turn.
        steps: Of the policy's tokens.
        decode: The policy's: token ids to text.

    Raises:
        RecordError: A turn has tokens and no text.
    """
    made: list[str] = []
    first = 0
    for number, turn in enumerate(episode.turns):
        ids = turn.token_ids[:-1] if turn.stop is Stop.EOS else turn.token_ids
        if len(ids) and not turn.text and decode(ids.tolist()):
            raise RecordError(
                f"Turn {number + 1} of task {episode.task.key!r}, member {episode.member}, has {len(ids)} tokens and no text. A judge with "
                "another tokenizer than the policy's reads text: give Turn.text, or a judge with the policy's tokenizer."
            )
        (chosen,) = np.nonzero(steps.turn_S == number)
        stops = (steps.stop_S[chosen] - first).tolist()
        ends = [_characters(ids[:stop].tolist(), turn.text, decode) if stop < len(ids) else len(turn.text) for stop in stops]
        made += [turn.text[start:end] for start, end in pairwise([0, *np.maximum.accumulate(ends).tolist()])]
        first += len(turn.token_ids)
    return made


def _characters(ids: Sequence[int], text: str, decode: Decode) -> int:
    """How many characters of the text these first tokens of it complete: as far as they decode to the same."""
    told = decode(ids)
    return next((at for at, (a, b) in enumerate(zip(told, text, strict=False)) if a != b), min(len(told), len(text)))


@dataclass(frozen=True, slots=True)
class Retelling:
    """How an episode of the policy's is told to a judge: in the judge's own chat, each step a turn of its own.

    Attributes:
        chat: The judge's.
        separator: What ends a step for a judge that was taught so, as text; None ends turns as they ended.
        context: Tokens that the judge reads at most; a step beyond it, and all after it, have no tokens and so no score.
        version: Of the weights that the steps are taken to be said by.
    """

    chat: Chat
    separator: str | None
    context: int
    version: int

    def tell(self, episode: Episode, steps: Steps, texts: Sequence[str]) -> Episode:
        """An episode with as many turns as the other has steps."""
        conversation = self.chat.converse(episode.start.text)
        turns: list[Turn] = []
        full = False
        for number, turn in enumerate(episode.turns):
            (chosen,) = np.nonzero(steps.turn_S == number)
            context = conversation.context()
            said: list[Ids] = []
            for s in chosen.tolist():
                last = s == chosen[-1] and self.separator is None and turn.stop is Stop.EOS
                piece = self._piece(texts[s], ends=last) if steps.lengths_S[s] else _NOTHING
                full = full or len(context) + len(piece) > self.context
                piece = _NOTHING if full else piece
                reply = turn.reply if s == chosen[-1] else replace(turn.reply, reward=0.0)
                turns.append(
                    Turn(context, piece, np.zeros(len(piece)), texts[s], turn.action, reply, Stop.STRING, self.version),
                )
                context = np.concatenate([context, piece])
                said.append(piece)
            conversation.acted(np.concatenate([_NOTHING, *said]), turn.text, Stop.STRING)
            if number + 1 < len(episode.turns):
                conversation.observed(turn.reply.observation.text)
        ending = Ending(EndingKind.TRUNCATED, "not all steps fit into the judge's context") if full else episode.ending
        return replace(episode, turns=tuple(turns), ending=ending)

    def _piece(self, text: str, *, ends: bool) -> Ids:
        if self.separator is not None:
            return np.concatenate([self.chat.text(text.removesuffix(self.separator)), self.chat.text(self.separator)])
        return np.concatenate([self.chat.text(text), self.chat.reply("")[-1:]]) if ends else self.chat.text(text)


class RetoldReward:
    """A trained judge that reads the policy's episodes as text, and learns no more.

    The component `judge` of a step is the judge's own. A step is unscored where it has no text, where it does not fit into the judge's
    context, and where the judge says no number.

    Args:
        judge: Scores episodes of its own tokens; steps are turns to it.
        retelling: How they are told to it.
        decode: The policy's: token ids to text.
        pay: What the end of an episode is paid.
        segment: Where steps of the policy's episodes begin and end.
        origin: Which judge it is, with its step: a run that is resumed must have the same.
    """

    def __init__(
        self,
        judge: ProcessReward,
        retelling: Retelling,
        decode: Decode,
        *,
        pay: Pay = "success",
        segment: Segment = by_turn,
        origin: str = "",
    ) -> None:
        self._judge, self._retelling, self._decode, self._pay, self._segment = judge, retelling, decode, pay, segment
        self._origin = origin
        self._confidence = Confidence(0.9)
        self._ranked: list[list[tuple[float, float]]] = []

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        """Attaches the component `judge`."""
        steps = [[self._segment(episode) for episode in group.members] for group in groups]
        told = [
            Group(
                group.task,
                tuple(
                    self._retelling.tell(episode, cut, step_texts(episode, cut, self._decode))
                    for episode, cut in zip(group.members, cuts, strict=True)
                    if not episode.failed
                ),
            )
            for group, cuts in zip(groups, steps, strict=True)
        ]
        said = (iter(group.members) for group in self._judge.score(told))
        made = [
            Group(
                group.task,
                tuple(self._carried(e, cut, None if e.failed else next(own)) for e, cut in zip(group.members, cuts, strict=True)),
            )
            for group, cuts, own in zip(groups, steps, said, strict=True)
        ]
        self._ranked = ranked_by_reward(made)
        return made

    def learn(self, groups: Sequence[Group[Scored]]) -> Metrics:
        """Learns nothing; says how far it can be trusted here."""
        return self._confidence.remember(pair_accuracy(self._ranked))

    def models(self) -> dict[str, Saveable]:
        """None: its weights lie in its own run."""
        return {}

    def state(self) -> dict[str, JSON]:
        """Which judge it is, and the confidence."""
        return {"origin": self._origin, "confidence": self._confidence.state()}

    def restore(self, state: dict[str, JSON]) -> None:
        """Goes on where it was.

        Raises:
            RunError: The judge is another one by now.
        """
        if state["origin"] != self._origin:
            raise RunError(
                f"This run was judged by {state['origin']}, and would be by {self._origin}: the judge's run has gone on meanwhile. "
                "Resume with the judge as it was."
            )
        self._confidence.restore(state["confidence"])

    def _carried(self, episode: Episode, steps: Steps, said: Scored | None) -> Scored:
        if said is None:
            reward_S, scored_S = np.zeros(len(steps)), np.zeros(len(steps), np.bool_)
        else:
            scored_S = said.scored_S & (said.steps.lengths_S > 0)
            reward_S = np.where(scored_S, said.process_S, 0.0)
        return Scored(episode, steps, paid(episode, self._pay), {"judge": reward_S}, scored_S, confidence=self._confidence.value)
