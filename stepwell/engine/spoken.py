"""A tokenizer for models that can say a handful of words, and read any text: an action is one token.

Ids 0, 1, ... are the words, then come the special tokens, and every other character is an id of its own. Decoding undoes encoding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment

from stepwell.errors import ConfigError

__all__ = ["SpokenTokenizer"]

_SPECIAL = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@dataclass(frozen=True, slots=True)
class _Special:
    """A special token, as `Template` asks for it."""

    content: str
    special: bool = True


class SpokenTokenizer:
    """Words that are one token each; all else letter by letter. It is what `engine.chat.Chat` needs of a tokenizer.

    The end of a turn is the id after the words. A `TableEngine` of `len(words)` tokens cannot say it, so that its turns end at their limit
    (with a limit of 1, a turn is a word); one of `len(words) + 1` ends its turns itself.

    Args:
        words: What can be said, e.g. `("left[]", "right[]", "stop[]")`.

    Raises:
        ConfigError: No words, an empty one, or two alike.

    >>> SpokenTokenizer(("yes", "no"))("yes!")["input_ids"], SpokenTokenizer(("yes", "no")).decode([1, 39])
    ([0, 39], 'no!')
    """

    name_or_path = "spoken words"
    chat_template: str | Mapping[str, str] | None = _TEMPLATE
    unk_token_id: int | None = None

    def __init__(self, words: Sequence[str]) -> None:
        if not words or not all(words) or len({*words, *_SPECIAL}) < len(words) + len(_SPECIAL):
            raise ConfigError(f"The words are {list(words)}; at least one is needed, none of them empty or special, and no two alike.")
        self.words = tuple(words)
        self._names = (*self.words, *_SPECIAL)
        self._ids = {name: index for index, name in enumerate(self._names)}
        self.eos_token: str | None = _SPECIAL[0]
        self.eos_token_id: int | None = self._ids[_SPECIAL[0]]
        self.added_tokens_decoder = {self._ids[name]: _Special(name) for name in _SPECIAL}
        self._plain, self._whole = (_pieces(names) for names in (self.words, self._names))

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, chat_template: str | None, add_generation_prompt: bool, tokenize: bool
    ) -> str:
        """The text of a conversation, as `Template` asks for it (never tokenised)."""
        template = Environment(autoescape=False).from_string(chat_template or _TEMPLATE)
        return template.render(messages=conversation, add_generation_prompt=add_generation_prompt, eos_token=self.eos_token)

    def __call__(self, text: str, *, add_special_tokens: bool = False, split_special_tokens: bool = False) -> Mapping[str, list[int]]:
        """Ids of a text; with `split_special_tokens` a special token spelled out in it is ordinary text."""
        pieces = (self._plain if split_special_tokens else self._whole).findall(text)
        return {"input_ids": [self._ids[piece] if piece in self._ids else len(self._names) + ord(piece) for piece in pieces]}

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        known = len(self._names)
        return "".join(self._names[i] if i < known else chr(i - known) for i in ids)


def _pieces(names: Sequence[str]) -> re.Pattern[str]:
    """Matches the longest name, or one character."""
    return re.compile("|".join([*map(re.escape, sorted(names, key=len, reverse=True)), "."]), re.DOTALL)
