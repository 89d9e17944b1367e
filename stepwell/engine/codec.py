"""Text of the policy -> an action, and back. Pure text: no tokens, no model.

A codec never guesses. A text that is not exactly one well-formed call of a known tool is `Invalid` with a reason; it is counted and the
environment answers it, but it is never replaced by some legal default. What stands inside `<think>...</think>` is reasoning and no call.

Two forms:

- `bracket`: the last line of the message is `name[argument]`; `name[key=value; key=value]` for a tool of two or more arguments;
  `name[]` for none. Short, so small models learn it in seconds.
- `tool_call`: one `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` block, as Hermes and Qwen chat templates teach it.

And for questions, which know one action: `text`, where the whole message is the argument of the only tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from stepwell.errors import ConfigError, nearest
from stepwell.types import JSON, Action, Invalid, Tool

__all__ = ["BRACKET", "TEXT", "TOOL_CALL", "Codec", "codec"]

_THINK, _UNTHINK = "<think>", "</think>"
_CALL, _UNCALL = "<tool_call>", "</tool_call>"
_PREFIX = re.compile(r"action\s*:", re.IGNORECASE)
# A bracket or semicolon with the run of backslashes before it; possessive and anchored at the run's start, so that it stays linear.
_BRACKETS = re.compile(r"(?<!\\)(\\*+)([\[\]])")
_SEMICOLONS = re.compile(r"(?<!\\)(\\*+);")
_RUN = re.compile(r"(?<!\\)(\\++)([\[\]]|\Z)")
_RUN_LISTED = re.compile(r"(?<!\\)(\\++)([\[\];]|\Z)")


class Codec(Protocol):
    """How a message of the policy says which tool it calls."""

    @property
    def name(self) -> str: ...
    @property
    def stop(self) -> tuple[str, ...]:
        """Stop strings that go with the form."""
        ...

    def parse(self, text: str, tools: Sequence[Tool]) -> Action | Invalid:
        """The one call in a message, or why there is none. Never raises."""
        ...

    def format(self, action: Action, tools: Sequence[Tool] = ()) -> str:
        """The message that `parse` reads as `action`. Where tools have optional arguments, `tools` is needed to tell the form."""
        ...

    def describe(self, tools: Sequence[Tool]) -> str:
        """The system message that explains tools and form."""
        ...


def codec(name: str) -> Codec:
    """The codec of that name.

    >>> codec("bracket").format(Action("search", {"query": "red shirt"}))
    'search[red shirt]'
    """
    known: dict[str, Codec] = {"bracket": BRACKET, "text": TEXT, "tool_call": TOOL_CALL}
    if name not in known:
        raise ConfigError(f"There is no codec {name!r}; {nearest(name, known)}.")
    return known[name]


# -- what both forms share ----------------------------------------------------------------------------------------------------


def _answer(text: str) -> str | None:
    """What follows the reasoning; None where the reasoning does not end.

    The prompt may have opened the think block, so a closing tag without an opening one also ends reasoning.
    """
    answer = text.rpartition(_UNTHINK)[2]
    return None if _THINK in answer else answer


def _clip(text: str, width: int = 60) -> str:
    return repr(text if len(text) <= width else text[:width] + "...")


def _required(tool: Tool) -> tuple[str, ...]:
    """Names of the arguments that a call must give."""
    required = tool.schema.get("required", ())
    if isinstance(required, str) or not isinstance(required, Sequence):
        return ()
    return tuple(name for name in required if isinstance(name, str))


def _unknown(name: str, tools: Sequence[Tool]) -> str:
    hint = nearest(name, [tool.name for tool in tools]) if len(name) <= 64 else f"known: {', '.join(tool.name for tool in tools)}"
    return f"There is no tool {_clip(name)}; {hint}."


def _checked(tool: Tool, arguments: dict[str, str]) -> Action | str:
    """The action, or why these arguments do not fit the tool."""
    for name in _required(tool):
        if not arguments.get(name, "").strip():
            return f"{tool.name} needs the argument {name!r}, which is {'empty' if name in arguments else 'missing'}."
    for name in arguments:
        if name not in tool.arguments:
            allowed = ", ".join(tool.arguments) or "none"
            return f"{tool.name} has no argument {_clip(name)}; allowed: {allowed}."
    return Action(tool.name, arguments)


def _property(tool: Tool, argument: str) -> Mapping[str, JSON]:
    properties = tool.schema.get("properties", {})
    found = properties.get(argument, {}) if isinstance(properties, Mapping) else {}
    return found if isinstance(found, Mapping) else {}


# -- name[argument] -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Bracket:
    """`name[argument]` as the last line.

    White space in an argument is collapsed and stripped. Brackets inside an argument may be nested as long as they match; one without a
    partner is written with a backslash before it (`click[size \\[xl]`), and so is a semicolon in a tool of several arguments.
    A backslash anywhere else is a backslash.
    """

    name: str = "bracket"
    stop: tuple[str, ...] = ()

    def parse(self, text: str, tools: Sequence[Tool]) -> Action | Invalid:
        answer = _answer(text)
        if answer is None:
            return Invalid(text, "The reasoning is not closed: </think> is missing, so no action was taken.")
        lines = [line for line in (raw.strip() for raw in answer.splitlines()) if line]
        if not lines:
            return Invalid(text, "The message holds no action; its last line must be one call, name[argument].")
        known = {tool.name: tool for tool in tools}
        read = _read(lines[-1], known)
        if isinstance(read, str):
            return Invalid(text, read)
        # A call mentioned within a sentence is talk; a line that is nothing but a call is a second action.
        if any("[" in line and isinstance(_read(line, known), Action) for line in lines[:-1]):
            return Invalid(text, "The message holds several calls; exactly one is allowed, as the last line.")
        return read

    def format(self, action: Action, tools: Sequence[Tool] = ()) -> str:
        tool = next((tool for tool in tools if tool.name == action.name), None)
        arity = len(action.arguments) if tool is None else len(tool.arguments)
        values = {name: " ".join(value.split()) for name, value in action.arguments.items()}
        for name, value in values.items():
            if _THINK in value or _UNTHINK in value:
                raise ValueError(f"{action.name}: argument {name!r} holds a think tag; the bracket form cannot carry it, tool_call can.")
        if arity >= 2:
            inner = "; ".join(f"{name}={_escape(value, listed=True)}" for name, value in values.items())
        else:
            inner = "".join(_escape(value, listed=False) for value in values.values())
        return f"{action.name}[{inner}]"

    def describe(self, tools: Sequence[Tool]) -> str:
        lines = ["End every message with exactly one action on its last line, written as name[argument].", "", "Actions:"]
        for tool in tools:
            if len(tool.arguments) >= 2:
                form = "; ".join(f"{name}=..." for name in tool.arguments)
            else:
                form = "".join(tool.arguments)
            lines.append(f"- {tool.name}[{form}]: {tool.description}")
            for name in tool.arguments:
                about = _property(tool, name).get("description")
                optional = "" if name in _required(tool) else " (optional)"
                if isinstance(about, str) or optional:
                    lines.append(f"  {name}{optional}" + (f": {about}" if isinstance(about, str) else ""))
        return "\n".join(lines)


def _read(line: str, known: Mapping[str, Tool]) -> Action | str:
    """The call that a line is, or why it is none."""
    prefix = _PREFIX.match(line)
    if prefix:
        line = line[prefix.end() :].strip()
    head, bracket, rest = line.partition("[")
    name = head.strip()
    if name not in known and not (bracket and name.isidentifier()):
        return f"The last line is no action: {_clip(line)}; it must be one call, name[argument], and nothing else."
    if name not in known:
        return _unknown(name, list(known.values()))
    tool = known[name]
    if not bracket:
        return Action(name, {}) if not tool.arguments else f"{name} needs its argument in brackets: {name}[...]."
    end = _closing(rest)
    if end is None:
        return f"The bracket that {name}[ opens is never closed."
    if rest[end + 1 :].strip():
        return f"After {name}[...] stands {_clip(rest[end + 1 :].strip())}; exactly one call and nothing else is allowed on the last line."
    return _arguments(tool, rest[:end])


def _closing(rest: str) -> int | None:
    """Where the bracket that was opened just before `rest` is closed."""
    depth = 1
    for match in _BRACKETS.finditer(rest):
        if len(match[1]) % 2 == 0:
            depth += 1 if match[2] == "[" else -1
            if depth == 0:
                return match.end() - 1
    return None


def _arguments(tool: Tool, inner: str) -> Action | str:
    names = tool.arguments
    if len(names) <= 1:
        value = " ".join(_unescape(inner, listed=False).split())
        if value and not names:
            return f"{tool.name} takes no argument, but got {_clip(value)}; write {tool.name}[]."
        return _checked(tool, dict.fromkeys(names, value) if value else {})
    arguments: dict[str, str] = {}
    for piece in _pieces(inner):
        if not piece.strip():
            continue
        key, equals, value = piece.partition("=")
        key = key.strip()
        if not equals:
            return f"{tool.name} takes several arguments, so each is written key=value; got {_clip(piece.strip())}."
        if key in arguments:
            return f"{tool.name} got the argument {_clip(key)} twice."
        arguments[key] = " ".join(_unescape(value, listed=True).split())
    return _checked(tool, arguments)


def _pieces(inner: str) -> Iterator[str]:
    """`inner` cut at semicolons that no backslash escapes."""
    start = 0
    for match in _SEMICOLONS.finditer(inner):
        if len(match[1]) % 2 == 0:
            yield inner[start : match.end() - 1]
            start = match.end()
    yield inner[start:]


def _escape(value: str, *, listed: bool) -> str:
    """Backslashes before brackets without a partner; a run of backslashes before any bracket, or at the end, is doubled."""
    unmatched: set[int] = set()
    opened: list[int] = []
    for at, char in enumerate(value):
        if char == "[":
            opened.append(at)
        elif char == "]" and opened:
            opened.pop()
        elif char == "]":
            unmatched.add(at)
    unmatched.update(opened)

    def double(match: re.Match[str]) -> str:
        literal = match[2] == ";" or (match[2] != "" and match.start(2) in unmatched)
        return match[1] * 2 + ("\\" if literal else "") + match[2]

    special = r"[\[\];]" if listed else r"[\[\]]"
    return re.sub(rf"(?<!\\)(\\*+)({special}|\Z)", double, value)


def _unescape(value: str, *, listed: bool) -> str:
    pattern = _RUN_LISTED if listed else _RUN
    return pattern.sub(lambda match: match[1][: len(match[1]) // 2] + match[2], value)


# -- <tool_call>{json}</tool_call> --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ToolCall:
    """One `<tool_call>` block with a JSON object of `name` and `arguments`, after any text. Scalar arguments become strings."""

    name: str = "tool_call"
    stop: tuple[str, ...] = ()

    def parse(self, text: str, tools: Sequence[Tool]) -> Action | Invalid:
        answer = _answer(text)
        if answer is None:
            return Invalid(text, "The reasoning is not closed: </think> is missing, so no action was taken.")
        opened, closed = answer.count(_CALL), answer.count(_UNCALL)
        if opened == 0:
            return Invalid(text, "The message holds no <tool_call> block; exactly one is needed.")
        if opened > 1 or closed > 1:
            return Invalid(text, f"The message holds {max(opened, closed)} <tool_call> tags; exactly one call is allowed.")
        body, uncall, after = answer.partition(_CALL)[2].partition(_UNCALL)
        if not uncall:
            return Invalid(text, "The <tool_call> block is never closed by </tool_call>.")
        if after.strip():
            return Invalid(text, f"After </tool_call> stands {_clip(after.strip())}; the call must end the message.")
        read = _call(body, tools)
        return Invalid(text, read) if isinstance(read, str) else read

    def format(self, action: Action, tools: Sequence[Tool] = ()) -> str:
        body = json.dumps({"name": action.name, "arguments": dict(action.arguments)}, ensure_ascii=False)
        for tag in (_THINK, _UNTHINK, _CALL, _UNCALL):
            body = body.replace(tag, "\\u003c" + tag[1:])
        return f"{_CALL}\n{body}\n{_UNCALL}"

    def describe(self, tools: Sequence[Tool]) -> str:
        signatures = [{"name": tool.name, "description": tool.description, "parameters": tool.schema} for tool in tools]
        return "\n".join(
            [
                "# Tools",
                "",
                "Every message of yours must end with exactly one call of one of these functions:",
                "<tools>",
                *(json.dumps({"type": "function", "function": signature}, ensure_ascii=False) for signature in signatures),
                "</tools>",
                "",
                "Write the call as a JSON object with name and arguments between tags:",
                _CALL,
                '{"name": <function-name>, "arguments": <args-json-object>}',
                _UNCALL,
            ]
        )


def _call(body: str, tools: Sequence[Tool]) -> Action | str:
    """The action in the JSON between the tags, or why there is none."""
    try:
        # Numbers keep the spelling that was sampled: every scalar becomes a string anyway.
        value = json.loads(body, parse_int=str, parse_float=str, parse_constant=_refuse, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        return f"The <tool_call> block is no JSON object ({_clip(str(error))}): {_clip(body.strip())}."
    if not isinstance(value, dict) or set(value) != {"name", "arguments"}:
        return f"The JSON in <tool_call> must be an object with exactly name and arguments; got {_clip(body.strip())}."
    name, arguments = value["name"], value["arguments"]
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        return _unknown(name, tools) if isinstance(name, str) else f"The name of the function must be a string; got {_kind(name)}."
    if not isinstance(arguments, dict):
        return f"The arguments of {tool.name} must be a JSON object; got {_kind(arguments)}."
    texts: dict[str, str] = {}
    for key, argument in arguments.items():
        if not isinstance(argument, str | bool):
            return f"The argument {_clip(key)} of {tool.name} must be a string, number or boolean; got {_kind(argument)}."
        texts[key] = argument if isinstance(argument, str) else json.dumps(argument)
        if not _encodable(texts[key]):
            return f"The argument {_clip(key)} of {tool.name} holds half of a surrogate pair, which is no text."
    return _checked(tool, texts)


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, dict):
        return "an object"
    return "an array" if isinstance(value, list) else "a string or number"


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key is given twice")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- the whole message --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Text:
    """The message, without its reasoning, is the one argument of the only tool."""

    name: str = "text"
    stop: tuple[str, ...] = ()

    def parse(self, text: str, tools: Sequence[Tool]) -> Action | Invalid:
        if len(tools) != 1 or len(tools[0].arguments) != 1:
            return Invalid(text, "A message is an action as a whole only where there is one tool with one argument; use another codec.")
        answer = _answer(text)
        if answer is None:
            return Invalid(text, "The reasoning is not closed: </think> is missing, so nothing was answered.")
        checked = _checked(tools[0], {tools[0].arguments[0]: answer})
        return Invalid(text, checked) if isinstance(checked, str) else checked

    def format(self, action: Action, tools: Sequence[Tool] = ()) -> str:
        return "".join(action.arguments.values())

    def describe(self, tools: Sequence[Tool]) -> str:
        return ""


BRACKET: Codec = _Bracket()
TEXT: Codec = _Text()
TOOL_CALL: Codec = _ToolCall()
