"""A candidate's answers, read and compared without making anything of theirs.

An answer is a line of JSON in the forms of `stepwell.sandbox.inside.values`. It is compared with the expected value as it stands: no
object of the candidate's is built, no method of theirs is called (`__eq__`), and no set or dict is filled with keys that it chose (numbers
of equal hash make that quadratic). What is expected is built by the grader alone.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeAlias

from stepwell.sandbox.inside import values

__all__ = ["Expected", "Form", "Nodes", "Tagged", "UnreadableError", "equal", "nodes", "read"]

_MOST_DIGITS = 20_000
"""Hexadecimal digits of an int."""


class UnreadableError(ValueError):
    """A line that is no answer."""


class Tagged(NamedTuple):
    """A form with a type of its own: `{"tuple": [...]}`."""

    kind: str
    inner: Form


Form: TypeAlias = "bool | int | float | str | list[Form] | Tagged | None"


class Nodes(NamedTuple):
    """An expected linked list or tree, by its values."""

    kind: str
    items: list[Expected]


Expected: TypeAlias = "object"
"""A value of Python's own types, or `Nodes`."""


def read(line: bytes) -> Tagged:
    """The answer on a line: an object of one key.

    Raises:
        UnreadableError: It is no JSON, has another form, numbers too long, or brackets nested too deeply.
    """
    try:
        form = json.loads(line, object_pairs_hook=_tagged, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"an answer that cannot be read ({str(error)[:100]})") from None
    if not isinstance(form, Tagged):
        raise UnreadableError("an answer that cannot be read (no object)")
    return form


def _tagged(pairs: list[tuple[str, Form]]) -> Tagged:
    if len(pairs) != 1:
        raise ValueError(f"an object of {len(pairs)} keys")
    return Tagged(*pairs[0])


def _no_constant(name: str) -> None:
    raise ValueError(f"the constant {name}")


def nodes(kind: str, items: list[object]) -> Expected:
    """What `ListNode` or `TreeNode` of these values is, in the form that an answer of it has; None where there is none.

    >>> nodes("TreeNode", [1, None, 2, None])
    Nodes(kind='TreeNode', items=[1, None, 2])
    """
    made = values.list_node(items) if kind == "ListNode" else values.tree_node(items)
    if made is None:
        return None
    form = values.encode(made)
    assert isinstance(form, dict)
    return Nodes(kind, values.decode(form[kind]))


def equal(expected: Expected, got: Form, *, loose: bool = False) -> bool:
    """Whether the answer is what Python's `==` would call equal to the expected value.

    Args:
        expected: None, a bool, number, text, bytes, list, tuple, set, dict of such, or `Nodes`.
        got: The answer's form.
        loose: A tuple also equals a list (LiveCodeBench's rule, whose expected values are JSON).
    """
    if isinstance(expected, Nodes):
        return isinstance(got, Tagged) and got.kind == expected.kind and equal(expected.items, got.inner)
    if isinstance(expected, list | tuple):
        items = _items(got, "list" if isinstance(expected, list) else "tuple", loose)
        return items is not None and len(items) == len(expected) and all(map(lambda e, g: equal(e, g, loose=loose), expected, items))
    if isinstance(expected, set | frozenset):
        inner = got.inner if isinstance(got, Tagged) and got.kind in ("set", "frozenset") else None
        return isinstance(inner, list) and _same_members(dict.fromkeys(expected), [[item, None] for item in inner], loose)
    if isinstance(expected, Mapping):
        inner = got.inner if isinstance(got, Tagged) and got.kind == "dict" else None
        return isinstance(inner, list) and _same_members(expected, inner, loose)
    scalar = _scalar(got)
    return type(scalar) is not _Nothing and bool(scalar == expected)


def _items(got: Form, kind: str, loose: bool) -> list[Form] | None:
    if isinstance(got, list):
        return got if kind == "list" or loose else None
    if isinstance(got, Tagged) and got.kind == "tuple" and isinstance(got.inner, list):
        return got.inner if kind == "tuple" or loose else None
    return None


def _same_members(expected: Mapping[object, object], pairs: list[Form], loose: bool) -> bool:
    """Whether these pairs of key and value are the mapping. The candidate's keys are looked up, never stored."""
    if len(pairs) != len(expected):
        return False
    positions = {key: at for at, key in enumerate(expected)}
    found: set[int] = set()
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            return False
        key = _key(pair[0])
        if type(key) is _Nothing or key not in positions or not equal(expected[key], pair[1], loose=loose):
            return False
        found.add(positions[key])
    return len(found) == len(expected)


def _key(form: Form) -> Hashable:
    if isinstance(form, Tagged) and form.kind == "tuple" and isinstance(form.inner, list):
        parts = tuple(_key(item) for item in form.inner)
        return _NOTHING if any(type(part) is _Nothing for part in parts) else parts
    if isinstance(form, Tagged) and form.kind == "frozenset" and isinstance(form.inner, list) and len(form.inner) <= 1000:
        return frozenset(_key(item) for item in form.inner)
    return _scalar(form)


class _Nothing:
    """Of no value that can be compared."""


_NOTHING = _Nothing()


def _scalar(form: Form) -> Hashable:
    if isinstance(form, list):
        return _NOTHING
    if not isinstance(form, Tagged):
        return form
    kind, inner = form
    try:
        if kind == "int" and isinstance(inner, str) and len(inner) <= _MOST_DIGITS:
            return int(inner, 16)
        if kind == "float" and inner in ("nan", "inf", "-inf"):
            return float(str(inner))
        if kind == "bytes" and isinstance(inner, str):
            return bytes.fromhex(inner)
        if kind == "complex" and isinstance(inner, list) and len(inner) == 2:
            real, imaginary = (_scalar(part) for part in inner)
            if isinstance(real, int | float) and isinstance(imaginary, int | float):
                return complex(real, imaginary)
    except (ValueError, OverflowError):
        pass
    return _NOTHING
