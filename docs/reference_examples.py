"""Lets the reference show the examples of docstrings as code; `mkdocs.yml` names this file."""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["ReferenceExamples"]

_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class ReferenceExamples(griffe.Extension):
    """Puts a fence around every example: without one, Markdown reads `>>>` as a quotation within a quotation."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every documented object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with its examples fenced.

    An example goes from `>>>` to the next empty line.
    """
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
