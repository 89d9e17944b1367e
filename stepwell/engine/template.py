"""A tokenizer's chat template: messages -> text -> ids, with untrusted special tokens hidden, and probes of how it goes on.

A special token that is spelled out in a message (`<|im_end|>` in a product title) must not become one. So it is replaced by a mark
before the template is rendered, which keeps it apart from the template's own, and is encoded as the ordinary text that it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from jinja2 import TemplateError

from stepwell.errors import ConfigError

__all__ = ["PLAIN", "EndOfTurn", "Glue", "Message", "Template", "Tokenizer"]

PLAIN = (
    "{{ bos_token if bos_token }}"
    "{% for message in messages %}"
    "{% if message.role == 'system' %}{{ message.content }}\n\n"
    "{% elif message.role == 'user' %}User: {{ message.content }}\n"
    "{% else %}Assistant: {{ message.content }}{{ eos_token }}\n{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""The template of `chat.template=plain`, for base models: `User: ...` and `Assistant: ...`, a turn ended by the tokenizer's eos token."""

_MARK = "\ue000"
_HIDDEN = re.compile(f"{_MARK}(\\d+){_MARK}")
_OPEN_THINK = re.compile(r"<think>\s*\Z")


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its role (`system`, `user`, `assistant`) and text."""

    role: str
    text: str


class AddedToken(Protocol):
    """What a tokenizer tells about a token beside its vocabulary."""

    @property
    def content(self) -> str: ...
    @property
    def special(self) -> bool: ...


class Tokenizer(Protocol):
    """What is used of a tokenizer of transformers."""

    @property
    def name_or_path(self) -> str: ...
    @property
    def chat_template(self) -> str | Mapping[str, str] | None: ...
    @property
    def added_tokens_decoder(self) -> Mapping[int, AddedToken]: ...
    @property
    def eos_token(self) -> str | None: ...
    @property
    def eos_token_id(self) -> int | None: ...
    @property
    def unk_token_id(self) -> int | None: ...
    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, chat_template: str | None, add_generation_prompt: bool, tokenize: bool
    ) -> str: ...
    def __call__(self, text: str, *, add_special_tokens: bool, split_special_tokens: bool) -> Mapping[str, list[int]]: ...


class EndOfTurn(NamedTuple):
    """The special token that ends a turn."""

    id: int
    before: int
    """Number of characters that the template puts between the message and its end of turn."""


@dataclass(frozen=True, slots=True)
class Glue:
    """How an append-only template goes on: `stub` is a conversation of one exchange, `skip` the length of its rendered text."""

    stub: tuple[Message, ...]
    skip: int

    def after(self, template: Template, observation: str) -> str:
        return template.render((*self.stub, Message("user", observation)))[self.skip :]


class Template:
    """Renders messages to text in which untrusted special tokens are hidden, and encodes such text."""

    def __init__(self, tokenizer: Tokenizer, source: str | None, system: str) -> None:
        self._tokenizer = tokenizer
        self._source = source
        self.system = system
        self.name = tokenizer.name_or_path or type(tokenizer).__name__
        self.eos_id = tokenizer.eos_token_id
        added = {token.content: index for index, token in tokenizer.added_tokens_decoder.items() if token.special and token.content}
        if tokenizer.eos_token and self.eos_id is not None:
            added[tokenizer.eos_token] = self.eos_id
        self.specials = added
        self._ids = frozenset(index for index in added.values() if index != tokenizer.unk_token_id)
        spellings = sorted([*added, _MARK], key=len, reverse=True)
        self._spellings = spellings
        self._hide = re.compile("|".join(map(re.escape, spellings)))
        self._split = re.compile("|".join(f"(?:{re.escape(s)})" for s in spellings if s != _MARK) or r"(?!)")
        self._folds = False
        self._folds = bool(system) and not self._renders()
        opened = self.render((Message("user", "a"),))
        if system.strip() not in opened:
            raise ConfigError(f"The chat template of {self.name} drops the system text; use another model or chat.template=plain.")
        if opened == self.render((Message("user", "one two"),)):
            raise ConfigError(f"The chat template of {self.name} drops what the user says; use another model or chat.template=plain.")
        self._opened = opened
        think = _OPEN_THINK.search(opened)
        self.prefill = think[0] if think else ""

    def notices(self) -> list[str]:
        """What a run must say about this template."""
        notices = []
        if self._folds:
            notices.append(f"The chat template of {self.name} has no system role; the system text opens the first user message.")
        if "strftime_now" in (self._source or str(self._tokenizer.chat_template)):
            notices.append(f"The chat template of {self.name} can write today's date, so a run on another day may see other tokens.")
        return notices

    # -- text -----------------------------------------------------------------------------------------------------------------

    def render(self, messages: Sequence[Message], *, prompt: bool = True) -> str:
        """The text of system and messages, with the generation prompt; special tokens in messages are hidden behind marks."""
        turns = [{"role": message.role, "content": self._hidden(message.text)} for message in messages]
        if self.system and self._folds:
            turns[0] = {"role": turns[0]["role"], "content": f"{self.system}\n\n{turns[0]['content']}"}
        elif self.system:
            turns.insert(0, {"role": "system", "content": self.system})
        try:
            return self._tokenizer.apply_chat_template(turns, chat_template=self._source, add_generation_prompt=prompt, tokenize=False)
        except (TemplateError, ValueError, TypeError) as error:
            raise ConfigError(
                f"The chat template of {self.name} cannot render a conversation of {', '.join(turn['role'] for turn in turns)}: {error}. "
                "Use another model or chat.template=plain."
            ) from error

    def _renders(self) -> bool:
        try:
            text = self.render((Message("user", "a"),))
        except ConfigError:
            return False
        return self.system.strip() in text

    def _hidden(self, text: str) -> str:
        return self._hide.sub(lambda match: f"{_MARK}{self._spellings.index(match[0])}{_MARK}", text)

    def _shown(self, text: str) -> str:
        return _HIDDEN.sub(lambda match: self._spellings[int(match[1])], text)

    # -- ids ------------------------------------------------------------------------------------------------------------------

    def encode(self, text: str) -> list[int]:
        """Ids of rendered text: the template's special tokens are special, hidden ones are ordinary text."""
        if _MARK not in text:
            ids = self._tokens(text, plain=False)
            if sum(index in self._ids for index in ids) == len(self._split.findall(text)):
                return ids
        ids = []
        start = 0
        for match in self._split.finditer(text):
            ids += [*self._ordinary(text[start : match.start()]), self.specials[match[0]]]
            start = match.end()
        return ids + self._ordinary(text[start:])

    def _ordinary(self, text: str) -> list[int]:
        """Ids of text none of which is special."""
        text = self._shown(text)
        ids = self._tokens(text, plain=True)
        if self._ids.isdisjoint(ids):
            return ids
        # A vocabulary of whole words may list the special token as a word: a space breaks it up.
        ids = self._tokens(self._split.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text), plain=True)
        return [index for index in ids if index not in self._ids]

    def _tokens(self, text: str, *, plain: bool) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False, split_special_tokens=plain)["input_ids"] if text else []

    def alone(self, text: str) -> list[int]:
        """Ids of untrusted text by itself: a special token that is spelled out in it is ordinary text."""
        return self.encode(self._hidden(text))

    def reply(self, text: str) -> list[int]:
        """Ids of a policy's message, as they follow a generation prompt."""
        hidden = self._hidden(self.lead() + text)
        before, whole = self.encode(self._opened), self.encode(self._opened + hidden)
        return whole[len(before) :] if whole[: len(before)] == before else self._ordinary(hidden)

    # -- probes ---------------------------------------------------------------------------------------------------------------

    def lead(self) -> str:
        """White space that the template puts between generation prompt and message, which the model samples itself ("" or a space)."""
        if self.prefill:
            return ""
        whole = self.render((Message("user", "a"), Message("assistant", "alpha beta")), prompt=False)
        lead = whole[len(self._opened) :].partition("alpha beta")[0] if whole.startswith(self._opened) else ""
        return lead if not lead.strip() else ""

    def glue(self) -> Glue | None:
        """How the template goes on after a turn; None if it is not append-only.

        Tried with two exchanges of different texts, with and without reasoning: each render must start with the one before it and
        the message verbatim, and what follows may depend on the new user message alone.
        """
        lead = self.lead()
        reasoned = "hm, so\n</think>\n\nalpha beta" if self.prefill else "<think>\nhm, so\n</think>\n\nalpha beta"
        glue: Glue | None = None
        for first, reply in (("one two", "alpha beta"), ("three", reasoned), ("one two", reasoned)):
            messages: tuple[Message, ...] = (Message("user", first),)
            text = self.render(messages)
            for observation in ("four, five\nsix", "seven"):
                messages = (*messages, Message("assistant", self.prefill + reply))
                text += lead + reply
                glue = glue or Glue(messages, len(text))
                longer = self.render((*messages, Message("user", observation)))
                if not longer.startswith(text) or longer[len(text) :] != glue.after(self, observation):
                    return None
                messages, text = (*messages, Message("user", observation)), longer
        return glue

    def end_of_turn(self) -> EndOfTurn | None:
        """The first special token after a message of the policy, up to the next user message."""
        reply, observation = "alpha beta", "seven"
        text = self.render((Message("user", "one"), Message("assistant", self.prefill + reply), Message("user", observation)))
        start = text.rfind(reply) + len(reply)
        match = self._split.search(text, start, max(start, text.rfind(observation)))
        return EndOfTurn(self.specials[match[0]], match.start() - start) if match and reply in text else None
