"""Python values as JSON and back: what may cross the wall.

Plain JSON is itself; what JSON has no form for is an object of one key, its type:

| value | form |
|---|---|
| an int beyond 2^53 | `{"int": "-0x1f..."}` |
| nan, inf, -inf | `{"float": "nan"}` |
| tuple, set, frozenset, dict | `{"tuple": [...]}`, `{"set": [...]}`, `{"frozenset": [...]}`, `{"dict": [[key, value], ...]}` |
| bytes, complex | `{"bytes": "00ff"}`, `{"complex": [real, imaginary]}` |
| a linked list, a binary tree | `{"ListNode": [values]}`, `{"TreeNode": [values level by level, null where a child is missing]}` |
| anything else | `{"opaque": "name of its type"}`, equal to nothing |

`decode` is for the inside alone. The grader outside never turns a candidate's answer into objects: see `stepwell.sandbox.answers`.
"""

from __future__ import annotations

import math

TYPE_CHECKING = False  # typing would cost an interpreter 5 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, TypeAlias

    Form: TypeAlias = "bool | int | float | str | list[Form] | dict[str, Form] | None"

__all__ = ["ListNode", "TreeNode", "decode", "encode", "list_node", "tree_node"]

_MOST_NODES = 1_000_000
_SAFE_INT = 2**53


class ListNode:
    """A node of LeetCode's linked lists."""

    def __init__(self, val: object = 0, next: ListNode | None = None) -> None:
        self.val = val
        self.next = next


class TreeNode:
    """A node of LeetCode's binary trees."""

    def __init__(self, val: object = 0, left: TreeNode | None = None, right: TreeNode | None = None) -> None:
        self.val = val
        self.left = left
        self.right = right


def list_node(values: Sequence[object]) -> ListNode | None:
    """The linked list of these values; None where there are none."""
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head


def tree_node(values: Sequence[object]) -> TreeNode | None:
    """The binary tree of these values, level by level, None where a child is missing; None where there are no values."""
    if not values or values[0] is None:
        return None
    root = TreeNode(values[0])
    waiting, at = [root], 1
    for node in waiting:
        for side in ("left", "right"):
            if at < len(values) and values[at] is not None:
                child = TreeNode(values[at])
                setattr(node, side, child)
                waiting.append(child)
            at += 1
    return root


def encode(value: object) -> Form:
    """The form of a value; `RecursionError` where it is nested too deeply or holds itself."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        number = int(value)
        return number if -_SAFE_INT <= number <= _SAFE_INT else {"int": hex(number)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    for kind in (tuple, set, frozenset):
        if isinstance(value, kind):
            return {kind.__name__: [encode(item) for item in value]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, complex):
        return {"complex": [encode(value.real), encode(value.imag)]}
    return _nodes(value)


def _nodes(value: Any) -> Form:
    kind = type(value)
    if kind.__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return encode(value.item())
    if kind.__name__ == "ListNode" and hasattr(value, "val") and hasattr(value, "next"):
        return {"ListNode": [encode(item) for item in _list_values(value)]}
    if kind.__name__ == "TreeNode" and all(hasattr(value, name) for name in ("val", "left", "right")):
        return {"TreeNode": [encode(item) for item in _tree_values(value)]}
    return {"opaque": kind.__name__}


def _list_values(node: Any) -> list[object]:
    values: list[object] = []
    while node is not None:
        values.append(node.val)
        node = node.next
        if len(values) > _MOST_NODES:
            raise RecursionError("the linked list is too long or runs in a circle")
    return values


def _tree_values(root: Any) -> list[object]:
    waiting: list[Any] = [root]
    values: list[object] = []
    for node in waiting:
        values.append(None if node is None else node.val)
        if node is not None:
            waiting += [node.left, node.right]
        if len(waiting) > _MOST_NODES:
            raise RecursionError("the tree is too large or runs in a circle")
    while values and values[-1] is None:
        values.pop()
    return values


def decode(form: Form) -> Any:
    """The value of a form."""
    if isinstance(form, list):
        return [decode(item) for item in form]
    if not isinstance(form, dict):
        return form
    ((kind, inner),) = form.items()
    return _DECODERS[kind](inner)


def _opaque(name: str) -> object:
    return type(name, (), {})()


_DECODERS: Mapping[str, Callable[[Any], object]] = {
    "int": lambda text: int(text, 16),
    "float": float,
    "tuple": lambda items: tuple(map(decode, items)),
    "set": lambda items: set(map(decode, items)),
    "frozenset": lambda items: frozenset(map(decode, items)),
    "dict": lambda pairs: {decode(key): decode(item) for key, item in pairs},
    "bytes": bytes.fromhex,
    "complex": lambda parts: complex(*map(decode, parts)),
    "ListNode": lambda items: list_node(decode(items)),
    "TreeNode": lambda items: tree_node(decode(items)),
    "opaque": _opaque,
}
