"""A tokenizer of a few words: an action is one token, and decoding undoes encoding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.engine.chat import Chat
from stepwell.engine.spoken import SpokenTokenizer
from stepwell.errors import ConfigError
from stepwell.types import Stop

WORDS = ("left[]", "left", "stop[]")


@given(st.lists(st.sampled_from([*WORDS, "<|end|>", "<|user|>", "a", "[]", "\n", "\U0001f600", "\ud800"])).map("".join))
def test_decoding_undoes_encoding(text: str) -> None:
    tokenizer = SpokenTokenizer(WORDS)
    for plain in (True, False):
        assert tokenizer.decode(tokenizer(text, split_special_tokens=plain)["input_ids"]) == text


def test_words_are_one_token_the_longest_first() -> None:
    tokenizer = SpokenTokenizer(WORDS)
    assert tokenizer("left[]stop[]left")["input_ids"] == [0, 2, 1]
    assert tokenizer("a<|end|>")["input_ids"] == [7 + ord("a"), 3]
    assert tokenizer("<|end|>", split_special_tokens=True)["input_ids"] == [7 + ord(letter) for letter in "<|end|>"]


@pytest.mark.parametrize("template", ["own", "plain"])
def test_a_chat_grows_by_exactly_what_was_said(template: str) -> None:
    """Both templates are append-only; a turn that did not end itself is ended for it."""
    tokenizer = SpokenTokenizer(WORDS)
    chat = Chat.of(tokenizer, template=template)  # type: ignore[arg-type]
    assert chat.append_only and chat.notice == "" and chat.eos_ids == {3}
    talk = chat.converse("go")
    first = talk.context().copy()
    talk.acted(np.array([0]), "left[]", Stop.LENGTH)
    talk.observed("a <|end|> wall")
    then = talk.context()
    assert then[: len(first) + 1].tolist() == [*first.tolist(), 0]
    shown = tokenizer.decode(then.tolist())
    middle = "left[]<|end|><|user|>a <|end|> wall<|end|>" if template == "own" else "left[]<|end|>\nUser: a <|end|> wall\nAssistant:"
    assert middle in shown
    assert then.tolist().count(3) == {"own": 3, "plain": 1}[template], "a special token spelled out by the environment became one"


def test_words_that_cannot_be_told_apart_are_refused() -> None:
    for words in ((), ("a", "a"), ("", "a"), ("a", "<|end|>")):
        with pytest.raises(ConfigError, match="no two alike"):
            SpokenTokenizer(words)
