"""The two tools of WebShop."""

from __future__ import annotations

from stepwell.types import Action, Tool

__all__ = ["TOOLS", "argument_of"]


def _tool(name: str, what: str, argument: str, meaning: str) -> Tool:
    properties = {argument: {"type": "string", "description": meaning}}
    return Tool(name, what, {"type": "object", "properties": properties, "required": [argument], "additionalProperties": False})


TOOLS = (
    _tool("search", "Search the shop's products.", "query", "Words to look for."),
    _tool("click", "Click a button, a product or an option that is in view.", "element", "The text of what to click."),
)


def argument_of(action: Action) -> str | None:
    """The argument of a call of one of the tools; None where the call does not fit its schema.

    >>> argument_of(Action("search", {"query": "tea"})), argument_of(Action("search", {"words": "tea"}))
    ('tea', None)
    """
    for tool in TOOLS:
        if tool.name == action.name and tuple(action.arguments) == tool.arguments:
            return action.arguments[tool.arguments[0]]
    return None
