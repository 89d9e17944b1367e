"""What crosses the wall, and how it is compared."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.sandbox.answers import Nodes, UnreadableError, equal, nodes, read
from stepwell.sandbox.inside.values import ListNode, TreeNode, decode, encode, list_node, tree_node

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.complex_numbers(allow_nan=False)
)
KEYS = st.recursive(SCALARS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4)
VALUES = st.recursive(
    SCALARS | st.frozensets(KEYS, max_size=4),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner, max_size=4) | st.sets(KEYS, max_size=4),
    max_leaves=12,
)


def crossed(value: object) -> object:
    """As it arrives."""
    answer = read(json.dumps({"value": encode(value)}, allow_nan=False).encode())
    assert answer.kind == "value"
    return answer.inner


@settings(max_examples=30)
@given(VALUES)
def test_a_value_is_equal_to_itself_on_the_other_side(value: object) -> None:
    assert equal(value, crossed(value))
    assert decode(json.loads(json.dumps(encode(value)))) == value


@settings(max_examples=30)
@given(VALUES, VALUES)
def test_equal_is_pythons_equal(expected: object, value: object) -> None:
    assert equal(expected, crossed(value)) == (expected == value)


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        (3, 3.0),
        (1, True),
        (0.0, -0.0),
        (2**100, 2**100),
        (-(2**70), -(2**70)),
        (math.inf, math.inf),
        ({1, 2}, frozenset({1, 2})),
        ({1: [2]}, {1.0: [2]}),
        ({(1, (2, 3))}, {(1, (2, 3))}),
        ([[], ()], [[], ()]),
        ("\ud800", "\ud800"),
        (None, None),
        ({}, {}),
        (0.1 + 0.2, 0.30000000000000004),
        (10**300, 10**300),
    ],
)
def test_equal(expected: object, value: object) -> None:
    assert equal(expected, crossed(value))


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        ([1], (1,)),
        ((1,), [1]),
        (math.nan, math.nan),
        ("1", 1),
        (1, "1"),
        ([], None),
        (0, None),
        ({1}, [1]),
        ({1: 2}, {1: 3}),
        ({1: 2}, {2: 2}),
        ([1, 2], [1]),
        ("a", b"a"),
        (1, Fraction(1)),
        ([1], range(1, 2)),
        ({}, set()),
        (2**100, 2**100 + 1),
        (1, object()),
        ({1, 2}, {1}),
    ],
)
def test_not_equal(expected: object, value: object) -> None:
    assert not equal(expected, crossed(value))


def test_a_tuple_stands_for_a_list_where_that_is_the_rule() -> None:
    assert equal([[1, 2], [3]], crossed(((1, 2), [3])), loose=True)
    assert not equal([[1, 2]], crossed([(1, 2)]))
    assert not equal([[1, 2]], crossed([(1, 3)]), loose=True)


@pytest.mark.parametrize(
    "form",
    [
        '{"set": [1, 1]}',
        '{"set": [1, 3]}',
        '{"set": [1, 2, 1]}',
        '{"set": [1]}',
        '{"set": [[1], 2]}',
        '{"set": 1}',
        '{"set": [{"set": [1]}, 2]}',
        '{"dict": [[1, null], [2, null]]}',
        "[1, 2]",
        '{"frozenset": [1, {"opaque": "int"}]}',
    ],
)
def test_a_forged_set_is_not_the_set(form: str) -> None:
    answer = read(f'{{"value": {form}}}'.encode())
    assert not equal({1, 2}, answer.inner)


@pytest.mark.parametrize(
    "form",
    ['{"dict": [[1, 2], [1, 2]]}', '{"dict": [[1, 2]]}', '{"dict": [1, 3]}', '{"dict": [[1, 2], [3, 5]]}', '{"dict": [[1, 2, 3], [3, 4]]}'],
)
def test_a_forged_dict_is_not_the_dict(form: str) -> None:
    assert not equal({1: 2, 3: 4}, read(f'{{"value": {form}}}'.encode()).inner)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"1",
        b"null",
        b'{"a": 1, "b": 2}',
        b'{"value": {}}',
        b'{"value": NaN}',
        b'{"value": Infinity}',
        b"\xff",
        b"{",
        b"[" * 10**5,
        b"9" * 5000,
    ],
)
def test_what_is_no_answer(line: bytes) -> None:
    with pytest.raises(UnreadableError, match=r"^an answer that cannot be read \("):
        read(line)


@given(st.lists(st.integers(), max_size=30))
def test_linked_lists(values: list[int]) -> None:
    made = list_node(values)
    form = encode(made)
    assert form == ({"ListNode": [encode(value) for value in values]} if values else None)
    assert encode(decode(form)) == form
    assert equal(nodes("ListNode", values), crossed(made))


def test_trees() -> None:
    made = tree_node([5, 4, 8, None, 11, 13])
    assert isinstance(made, TreeNode)
    assert made.left is not None
    assert made.right is not None
    assert made.left.left is None
    assert [made.val, made.left.val, made.right.val, made.left.right.val, made.right.left.val] == [5, 4, 8, 11, 13]  # type: ignore[union-attr]
    assert encode(made) == {"TreeNode": [5, 4, 8, None, 11, 13]}
    assert nodes("TreeNode", [1, None, 2, None, None]) == Nodes("TreeNode", [1, None, 2])
    assert nodes("TreeNode", []) is None
    assert equal(nodes("TreeNode", [1, None, 2, None]), crossed(TreeNode(1, None, TreeNode(2))))
    assert not equal(nodes("TreeNode", [1, 2]), crossed(TreeNode(1, None, TreeNode(2))))
    assert not equal(nodes("TreeNode", [1, 2]), crossed(list_node([1, 2])))
    assert not equal(nodes("ListNode", [1, 2]), crossed([1, 2]))


def test_a_circle_is_refused() -> None:
    node = ListNode(1)
    node.next = node
    with pytest.raises(RecursionError, match="circle"):
        encode(node)


def test_numbers_of_numpy_are_numbers() -> None:
    import numpy as np

    assert encode([np.int64(3), np.float32(0.5), np.bool_(True)]) == [3, 0.5, True]
    assert encode(np.arange(2)) == {"opaque": "ndarray"}
