"""Conversations as token ids: chat templates become append-only token deltas, checked when the chat is built.

What the policy sampled is never decoded and encoded again: a turn's ids stay verbatim in all later contexts, and only the text between two
turns (end of turn, the environment's reply, the next generation prompt) is tokenised, by itself. That is exact where the template is
*append-only*: rendering a longer conversation only adds text. `Chat.of` probes that. Where it does not hold (Qwen3 removes earlier
thinking) every turn's context is rendered afresh from the messages, the turns become separate rows, and `Chat.notice` says so.

Text from environments is untrusted: a special token spelled out in it (`<|im_end|>` in a product title) is encoded as ordinary text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from stepwell.engine.template import PLAIN, Message, Template, Tokenizer
from stepwell.errors import ConfigError, nearest
from stepwell.types import Ids, Stop

__all__ = ["Chat", "Context", "Conversation", "Message", "check_fits"]

Context = Literal["chat", "window", "observation"]
"""What a turn sees: all; system, first message and the last k exchanges; system, first message and the latest observation."""

_CACHED = 8192

_REWRITES = (
    "The chat template of {name} is not append-only (it rewrites earlier turns), so every turn's context is rendered afresh "
    "and every turn is a training row of its own."
)


def check_fits(prompt: Ids, *, limit: int, reply: int, what: str) -> None:
    """Refuses, before any token is sampled, a prompt that leaves no room for a reply.

    Args:
        prompt: The ids of the first context. [L]
        limit: Positions that the model has.
        reply: Tokens that one turn may sample.
        what: Whose prompt it is, for the message (a task's key).
    """
    if len(prompt) + reply > limit:
        raise ConfigError(
            f"The prompt of {what} has {len(prompt)} tokens and a turn may sample {reply} more, but the context holds {limit}; "
            "allow a longer context, shorten the prompt, or lower the turn's token limit."
        )


class Chat:
    """How a tokenizer's chat template turns a conversation into ids. Built once per tokenizer and system text, by `Chat.of`.

    Attributes:
        append_only: True where a turn's context is the one before it, the sampled ids, and a delta.
        notice: Sentences that the run must say aloud; "" if there are none.
        eos_ids: Ids that end a turn: the template's end of turn and the tokenizer's eos.
        prefill: Text that the generation prompt opens the model's message with (`<think>` and a newline, or ""). A codec reads
            `prefill + text`, so that reasoning which the prompt opened and the model never closed is no action.
        context, window, system: As given.
    """

    def __init__(self, template: Template, context: Context, window: int) -> None:
        """Use `Chat.of`, which checks its arguments."""
        self.context = context
        self.window = window
        self.system = template.system
        self.prefill = template.prefill
        self._template = template
        glue = template.glue()
        self.append_only = glue is not None
        self._glue = glue
        self._eot = template.end_of_turn()
        self.eos_ids = frozenset(i for i in (self._eot and self._eot.id, template.eos_id) if i is not None)
        if not self.eos_ids:
            raise ConfigError(f"The tokenizer {template.name} has no eos token, and its chat template ends a turn with no special token.")
        self.notice = " ".join([*template.notices(), *([] if self.append_only else [_REWRITES.format(name=template.name)])])
        self._prompt_of = lru_cache(_CACHED)(self._render_prompt)
        self._reply_of = lru_cache(_CACHED)(self._render_reply)
        self._delta_of = lru_cache(_CACHED)(self._render_delta)

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        context: Context = "chat",
        *,
        window: int = 0,
        system: str = "",
        template: Literal["own", "plain"] = "own",
    ) -> Chat:
        """A chat over the tokenizer's own template, or over `PLAIN`.

        Args:
            context: What a turn sees.
            window: For `context="window"`: how many of the last exchanges (a turn and the reply to it).
            system: The system message; "" for none (the template may then put its own).
            template: `own` is the tokenizer's.

        Raises:
            ConfigError: No chat template, no token that ends a turn, a template that cannot be rendered, or a value that is not allowed.
        """
        if context not in get_args(Context):
            raise ConfigError(f"chat.context is {context!r}; {nearest(context, get_args(Context))}.")
        if template not in ("own", "plain"):
            raise ConfigError(f"chat.template is {template!r}; {nearest(template, ('own', 'plain'))}.")
        if (context == "window") != (window > 0):
            raise ConfigError(f"chat.window is {window} with chat.context={context}; it must be >= 1 for context=window, else 0.")
        if template == "own" and not tokenizer.chat_template:
            raise ConfigError(
                f"The tokenizer in {tokenizer.name_or_path or 'memory'} has no chat template; use a model with one (an instruct model), "
                "or set chat.template=plain for a base model."
            )
        if template == "plain" and tokenizer.eos_token_id is None:
            raise ConfigError(
                f"The tokenizer in {tokenizer.name_or_path or 'memory'} has no eos token, which chat.template=plain ends a turn with."
            )
        return cls(Template(tokenizer, PLAIN if template == "plain" else None, system), context, window)

    def converse(self, first_user_text: str) -> Conversation:
        """A new conversation that opens with this user message."""
        return Conversation(self, first_user_text)

    def message(self, answer: str) -> str:
        """The message of somebody who answers without reasoning: where the prompt opened a think block, it is closed first."""
        return f"\n</think>\n\n{answer}" if self.prefill else answer

    def reply(self, text: str) -> Ids:
        """The ids of a message that somebody else wrote for the policy (a demonstration), with its end of turn."""
        return self._reply_of(text)

    def text(self, text: str) -> Ids:
        """The ids of a text by itself; a special token that is spelled out in it is ordinary text."""
        return np.array(self._template.alone(text), dtype=np.int64)

    # -- for Conversation -----------------------------------------------------------------------------------------------------

    def prompt(self, messages: Sequence[Message]) -> Ids:
        """The ids of these messages (the system message is put before them) and the generation prompt."""
        return self._prompt_of(tuple(messages))

    def delta(self, token_ids: Ids, observation: str) -> Ids:
        """What stands between a sampled turn and the next one, tokenised by itself; the end of turn only if it was not sampled."""
        before, rest = self._delta_of(observation)
        if self._eot is None:
            return rest
        if len(token_ids) and token_ids[-1] == self._eot.id:
            return rest[1:]
        return np.concatenate([before, rest])

    def _render_reply(self, text: str) -> Ids:
        ending = self._eot.id if self._eot else self._template.eos_id
        assert ending is not None, "eos_ids is not empty"
        return np.array([*self._template.reply(text), ending], dtype=np.int64)

    def _render_prompt(self, messages: tuple[Message, ...]) -> Ids:
        return self._ids(self._template.render(messages))

    def _render_delta(self, observation: str) -> tuple[Ids, Ids]:
        """Ids of what the template puts before the end of turn, and ids from the end of turn on."""
        assert self._glue is not None, "deltas exist only where the template is append-only"
        text = self._glue.after(self._template, observation)
        cut = self._eot.before if self._eot else 0
        return self._ids(text[:cut]), self._ids(text[cut:])

    def _ids(self, text: str) -> Ids:
        return np.array(self._template.encode(text), dtype=np.int64)


class Conversation:
    """One episode's messages as ids. Call `context`, `acted`, `observed` in turn."""

    def __init__(self, chat: Chat, first_user_text: str) -> None:
        self._chat = chat
        self._first = Message("user", first_user_text)
        self._turns: list[tuple[Ids, str]] = []
        self._observations: list[str] = []
        self._head = chat.prompt([self._first])
        self._deltas: list[Ids] = []
        self._history = _Growing(self._head) if chat.append_only and chat.context == "chat" else None

    def context(self) -> Ids:
        """What the model sees now, ending with the generation prompt. [L]

        With `context=chat` and an append-only template this is a view into one array, of which later contexts are extensions.
        """
        self._expect(acted=False)
        chat = self._chat
        if not self._observations:
            return self._head
        if chat.context == "observation":
            return chat.prompt([Message("user", f"{self._first.text}\n\n{self._observations[-1]}")])
        if self._history is not None:
            return self._history.view()
        first = max(0, len(self._turns) - chat.window) if chat.context == "window" else 0
        if chat.append_only:
            exchanges = zip(self._turns[first:], self._deltas[first:], strict=True)
            return np.concatenate([self._head, *(ids for (sampled, _), delta in exchanges for ids in (sampled, delta))])
        messages = [self._first]
        for (_, text), observation in zip(self._turns[first:], self._observations[first:], strict=True):
            messages += [Message("assistant", chat.prefill + text), Message("user", observation)]
        return chat.prompt(messages)

    def acted(self, token_ids: Ids, text: str, stop: Stop) -> None:
        """The policy's turn: exactly the sampled ids (kept verbatim), the same decoded, and why sampling stopped."""
        self._expect(acted=False)
        if stop is Stop.EOS and not (len(token_ids) and int(token_ids[-1]) in self._chat.eos_ids):
            raise ValueError(
                f"The turn is said to have stopped at an end-of-turn token, but its last id is {token_ids[-1:].tolist()}; "
                f"allowed are {sorted(self._chat.eos_ids)} (Chat.eos_ids): the engine must sample with the same."
            )
        self._turns.append((token_ids, text))

    def observed(self, text: str) -> None:
        """The environment's reply, which opens the next turn."""
        self._expect(acted=True)
        self._observations.append(text)
        if self._chat.append_only and self._chat.context != "observation":
            sampled = self._turns[-1][0]
            self._deltas.append(self._chat.delta(sampled, text))
            if self._history is not None:
                self._history.extend(sampled)
                self._history.extend(self._deltas[-1])

    def _expect(self, *, acted: bool) -> None:
        if (len(self._turns) > len(self._observations)) is not acted:
            raise ValueError(
                "A conversation alternates: context, the policy's turn (acted), the environment's reply (observed), context, ..."
            )


class _Growing:
    """An array of ids that grows; views of it stay valid."""

    def __init__(self, ids: Ids) -> None:
        self._room = np.empty(max(256, 2 * len(ids)), dtype=np.int64)
        self._length = 0
        self.extend(ids)

    def extend(self, ids: Ids) -> None:
        stop = self._length + len(ids)
        if stop > len(self._room):
            room = np.empty(2 * stop, dtype=np.int64)
            room[: self._length] = self._room[: self._length]
            self._room = room
        self._room[self._length : stop] = ids
        self._length = stop

    def view(self) -> Ids:
        return self._room[: self._length]
