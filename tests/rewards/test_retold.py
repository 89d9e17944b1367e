"""A judge with another tokenizer: steps become text at the characters of their tokens, and scores come back step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from builders import make_task
from hypothesis import given, settings
from hypothesis import strategies as st
from speakers import chatml_tokenizer, merging_tokenizer
from transformers import PreTrainedTokenizerFast

from stepwell.credit import by_token, by_turn
from stepwell.credit.segment import Segment, by_window
from stepwell.engine.chat import Chat
from stepwell.errors import RecordError, RunError
from stepwell.rewards.retold import Retelling, RetoldReward, step_texts
from stepwell.testing import check_reward
from stepwell.types import Action, Ending, EndingKind, Episode, Group, Observation, Reply, Scored, Stop, Turn, Verdict

POLICY = chatml_tokenizer(["3 × 4 = 12, así que 漢字 🙂", "12 and 34\n\nso 5"], 300)
JUDGE = chatml_tokenizer(["the answer is 1234\n\n", "Step one. Step two."], 330)
TEXTS = ["3 × 4 = 12, así", "que 漢字 🙂 so\n\n5 and 34", ""]


def ids_of(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def episode(texts: Sequence[str], *, eos: bool = True, member: int = 0, failed: bool = False) -> Episode:
    """What the policy said in these turns, in its own tokens."""
    turns, context = [], np.array(ids_of(POLICY, "<|im_start|>user\ngo<|im_end|>\n"))
    for text in texts:
        ids = np.array([*ids_of(POLICY, text), *([POLICY.eos_token_id] if eos else [])], np.int64)
        reply = Reply(Observation(f"seen {len(turns)}"))
        turns.append(Turn(context, ids, np.zeros(len(ids)), text, Action("say"), reply, Stop.EOS if eos else Stop.LENGTH, 0))
        context = np.concatenate([context, ids, ids_of(POLICY, "\n")])
    ending = Ending(EndingKind.FAILED, "gone") if failed else Ending(EndingKind.TERMINATED)
    verdict = Verdict.unscored("gone") if failed else Verdict.of(1.0)
    return Episode(make_task(), member, Observation("go"), tuple(turns), ending, verdict)


class Lengths:
    """Pays each step its number of the judge's tokens, and keeps what it was told."""

    told: tuple[Episode, ...] = ()

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        self.told = tuple(one for group in groups for one in group.members)
        return [Group(group.task, tuple(self.one(episode) for episode in group.members)) for group in groups]

    def one(self, episode: Episode) -> Scored:
        steps = by_turn(episode)
        scored_S = np.full(len(steps), True)
        return Scored(episode, steps, None, {"judge": steps.lengths_S.astype(np.float64)}, scored_S)


def retold(segment: Segment = by_turn, *, separator: str | None = None, context: int = 1000) -> tuple[RetoldReward, Lengths]:
    judge = Lengths()
    retelling = Retelling(Chat.of(JUDGE), separator, context, 7)
    return RetoldReward(judge, retelling, POLICY.decode, segment=segment, origin="x, step 1"), judge


def score(reward: RetoldReward, *episodes: Episode) -> list[Scored]:
    return list(reward.score([Group(make_task(), episodes)])[0].members)


# -- text of steps -----------------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from("ab 1×é漢🙂\n"), max_size=12), st.integers(1, 5), st.booleans())
def test_texts_of_steps_join_to_the_turns_text(text: str, size: int, eos: bool) -> None:
    """Whatever is cut where, through characters of several tokens too; and each step's text is what its tokens complete."""
    one = episode([text, "x"], eos=eos)
    steps = by_window(size)(one)
    texts = step_texts(one, steps, POLICY.decode)
    assert len(texts) == len(steps)
    for number, turn in enumerate(one.turns):
        assert "".join(t for t, at in zip(texts, steps.turn_S, strict=True) if at == number) == turn.text
    ids = ids_of(POLICY, text)
    for s in np.flatnonzero(steps.turn_S == 0).tolist():
        whole = POLICY.decode(ids[: int(steps.stop_S[s])])
        assert whole.startswith("".join(texts[: s + 1])) or "\ufffd" in whole


def test_a_character_of_several_tokens_belongs_to_the_step_that_completes_it() -> None:
    one = episode(["a🙂b"])
    ids = ids_of(POLICY, "a🙂b")
    assert len(ids) >= 4, "the emoji is several tokens, else the test shows nothing"
    texts = step_texts(one, by_token(one), POLICY.decode)
    assert [text for text in texts if text] == ["a", "🙂", "b"] and len(texts) == len(ids) + 1
    assert texts.index("🙂") == len(ids) - 2, "at its last token"


def test_a_turn_with_tokens_and_no_text_is_refused() -> None:
    one = episode(["abc", "def"])
    mute = replace(one, turns=(one.turns[0], replace(one.turns[1], text="")))
    with pytest.raises(
        RecordError, match=r"Turn 2 of task 'test/0', member 0, has \d+ tokens and no text.*give Turn\.text, or a judge with"
    ):
        score(retold()[0], mute)


# -- the judge's episodes ----------------------------------------------------------------------------------------------------------


def test_the_judge_reads_the_same_text_in_its_own_tokens() -> None:
    """Contexts of its own template; a turn's end is its own end of turn; each step is one of its turns."""
    reward, judge = retold()
    (scored,) = score(reward, episode(TEXTS))
    (told,) = judge.told
    chat = Chat.of(JUDGE)
    conversation = chat.converse("go")
    for turn, text in zip(told.turns, TEXTS, strict=True):
        assert turn.context_ids.tolist() == conversation.context().tolist()
        assert turn.token_ids.tolist() == chat.reply(text).tolist()
        conversation.acted(turn.token_ids, text, Stop.EOS)
        conversation.observed(f"seen {told.turns.index(turn)}")
    assert [len(t.token_ids) for t in told.turns] == scored.rewards["judge"].tolist()
    assert set(ids_of(JUDGE, TEXTS[0])) != set(ids_of(POLICY, TEXTS[0])), "two different tokenizers"


def test_no_token_of_the_judge_reaches_over_the_end_of_a_step() -> None:
    """The judge would merge 1234; cut inside it, each part is encoded by itself, and what follows changes nothing before."""
    text = "is 1234"
    assert len(ids_of(JUDGE, text)) < sum(len(ids_of(JUDGE, part)) for part in ("is 12", "34")), "else the test shows nothing"
    at = next(k for k in range(1, 9) if POLICY.decode(ids_of(POLICY, text)[:k]) == "is 12")
    reward, judge = retold(by_window(at))
    score(reward, episode([text], eos=False))
    parts = [JUDGE.decode(turn.token_ids) for turn in judge.told[0].turns]
    assert parts[0] == "is 12" and "".join(parts) == text
    first = judge.told[0].turns[0].token_ids.tolist()
    score(reward, episode(["is 12 and 34"], eos=False))
    assert judge.told[0].turns[0].token_ids.tolist() == first


def test_a_judge_that_was_taught_with_a_separator_gets_it_once() -> None:
    reward, judge = retold(separator="\n\n")
    score(reward, episode(["one", "two\n\n"]))
    assert [JUDGE.decode(turn.token_ids) for turn in judge.told[0].turns] == ["one\n\n", "two\n\n"]


def test_an_empty_response_and_what_does_not_fit_are_unscored() -> None:
    reward, judge = retold(context=1000)
    empty = replace(episode(["a"]).turns[0], token_ids=np.zeros(0, np.int64), logprobs=np.zeros(0), text="", stop=Stop.LENGTH)
    (scored,) = score(reward, replace(episode(["a"]), turns=(empty, *episode(["b"]).turns)))
    assert scored.scored_S.tolist() == [False, True] and scored.rewards["judge"][0] == 0.0
    room = len(judge.told[0].turns[0].context_ids) + 3
    reward, judge = retold(context=room)
    (alone,) = score(reward, episode(["b " * 50]))
    assert alone.scored_S.tolist() == [False], "its context fits, and it does not"
    (scored,) = score(reward, episode(["a", "b " * 50, "c"]))
    assert scored.scored_S.tolist() == [True, False, False] and judge.told[0].ending.kind is EndingKind.TRUNCATED
    assert scored.episode.ending.kind is EndingKind.TERMINATED, "the policy's own episode is as it was"


def test_contract_and_failed_episodes() -> None:
    reward, judge = retold()
    alive, dead = score(reward, episode(["a"]), episode(["b"], member=1, failed=True))
    assert alive.scored_S.all() and not dead.scored_S.any() and len(judge.told) == 1
    check_reward(reward, [Group(make_task(), (episode(TEXTS), episode(["x"], member=1)))])


def test_the_same_tokenizer_gives_the_same_tokens() -> None:
    judge = Lengths()
    same = RetoldReward(judge, Retelling(Chat.of(POLICY), None, 1000, 0), POLICY.decode)
    one = episode(TEXTS)
    score(same, one)
    assert [t.token_ids.tolist() for t in judge.told[0].turns] == [t.token_ids.tolist() for t in one.turns]


def test_a_tokenizer_of_letters_and_merges() -> None:
    """Of a b c ab bc: steps of one policy token each, cut where the judge would merge."""
    judge, tokenizer = Lengths(), merging_tokenizer()
    reward = RetoldReward(judge, Retelling(Chat.of(tokenizer), None, 1000, 0), POLICY.decode, segment=by_token)
    score(reward, episode(["abc"], eos=False))
    assert "".join(tokenizer.decode(turn.token_ids) for turn in judge.told[0].turns) == "abc"


def test_a_resumed_run_has_the_same_judge() -> None:
    reward, _ = retold()
    reward.restore(reward.state())
    with pytest.raises(RunError, match=r"was judged by y, step 2, and would be by x, step 1: the judge's run has gone on"):
        reward.restore({"origin": "y, step 2", "confidence": None})
