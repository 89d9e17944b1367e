"""Python's syntax, read by one thread at a time."""

from __future__ import annotations

import ast
import threading

__all__ = ["parse"]

_LOCK = threading.Lock()


def parse(source: str, mode: str = "exec") -> ast.AST:
    """`ast.parse`, which in CPython 3.11 may raise `SystemError` (a recursion depth mismatch) where several threads are in it at once."""
    with _LOCK:
        return ast.parse(source, mode=mode)
