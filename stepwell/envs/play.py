"""A person (or a list of lines) in any environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from stepwell.protocols import Domain, Environment
from stepwell.types import Action, Invalid, Observation, Reply, Task, Tool

__all__ = ["Form", "play"]

_HELP, _QUIT = "?", "q"


class Form(Protocol):
    """How an action is written, such as a codec of `stepwell.engine.codec`."""

    def parse(self, text: str, tools: Sequence[Tool]) -> Action | Invalid:
        """The action that a line says, or why there is none."""
        ...

    def format(self, action: Action, tools: Sequence[Tool] = ()) -> str:
        """The line that says an action."""
        ...

    def describe(self, tools: Sequence[Tool]) -> str:
        """What can be said, and how."""
        ...


def play(domain: Domain, task: Task, read: Callable[[str], str], write: Callable[[str], None], form: Form) -> list[Reply]:
    """Plays one task until it is over, the player types `q`, or the input ends.

    A line is one action in this form; `?` explains the tools and lists what is possible here.

    Args:
        domain: Where the task is from.
        task: What to play.
        read: Shows a prompt and returns a line, as `input` does; `EOFError` ends the game.
        write: Shows a text, as `print` does.
        form: Of actions, e.g. `codec("bracket")`.

    Returns:
        The environment's replies, in order.
    """
    environment = domain.environment(task, 0)
    observation = environment.start()
    write(observation.text)
    write(f"(type an action, such as {_example(environment.tools, form)}; {_HELP} explains, {_QUIT} leaves)")
    replies: list[Reply] = []
    while not (replies and replies[-1].done):
        line = _line(read)
        if line == _QUIT:
            write("You left.")
            return replies
        if line == _HELP:
            write(_explain(environment, observation, form))
            continue
        if not line:
            continue
        reply = _step(environment, line, write, form)
        replies.append(reply)
        observation = reply.observation
    num_invalid = sum(not reply.valid for reply in replies)
    write(f"Over after {len(replies)} actions, {num_invalid} of them invalid. Reward {sum(reply.reward for reply in replies):.3f}")
    return replies


def _line(read: Callable[[str], str]) -> str:
    try:
        return read("> ").strip()
    except EOFError:
        return _QUIT


def _step(environment: Environment, line: str, write: Callable[[str], None], form: Form) -> Reply:
    action = form.parse(line, environment.tools)
    reply = environment.step(action)
    if isinstance(action, Invalid):
        write(f"({action.reason})")
    elif not reply.valid:
        write("(without meaning here)")
    if reply.event is not None:
        write(f"(event: {reply.event})")
    write(reply.observation.text)
    if reply.reward:
        write(f"(reward {reply.reward:.3f})")
    return reply


def _example(tools: Sequence[Tool], form: Form) -> str:
    return form.format(Action(tools[0].name, dict.fromkeys(tools[0].arguments, "...")), tools) if tools else "your answer"


def _explain(environment: Environment, observation: Observation, form: Form) -> str:
    lines = [form.describe(environment.tools)]
    if observation.admissible is not None:
        lines.append("Possible here: " + (", ".join(observation.admissible) or "nothing that could be listed"))
    return "\n".join(lines)
