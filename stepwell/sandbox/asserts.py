"""Assertions cut in two: the call, which the candidate makes, and the expected value, which stays with the grader.

`assert candidate(x = [1, 2]) == 3` is the call `candidate(x = [1, 2])` and the literal 3. A test of which every assertion has such a form
is never run as code. Any other test is run by an examiner: see `stepwell.sandbox.trial`.
"""

from __future__ import annotations

import ast
import builtins
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stepwell.errors import DataError
from stepwell.sandbox.answers import Expected, nodes
from stepwell.syntax import parse

__all__ = ["Case", "Unsplit", "check_demand", "free_names", "split"]

_BUILT_IN = frozenset(dir(builtins))
_SAME = {"is_same_list": ("list_node", "ListNode"), "is_same_tree": ("tree_node", "TreeNode")}
_CONSTANTS = {"inf": math.inf, "nan": math.nan}


@dataclass(frozen=True, slots=True)
class Case:
    """One assertion.

    Attributes:
        inputs: Statements that must have run before the call; they assign inputs.
        call: The expression that the candidate's interpreter computes.
        expected: What it must be equal to.
        identical: Compared by `is`: True is not 1.
    """

    inputs: tuple[str, ...]
    call: str
    expected: Expected
    identical: bool = False


class Unsplit(Exception):  # noqa: N818 - no error: such a test is run by an examiner
    """An assertion has another form."""


def split(tests: str) -> list[Case]:
    """The assertions of a test: of its function `check`, or of its top level.

    Raises:
        Unsplit: It holds anything but assertions of the form above, assignments of literals, and `x = Solution()`.
        DataError: It is no Python.
    """
    module = _parse(tests)
    made: list[Case] = []
    inputs: list[ast.Assign] = []
    instances: set[str] = set()
    for statement in _statements(module):
        match statement:
            case ast.Assert(test=ast.Constant(value=True)) | ast.Pass() | ast.Expr(value=ast.Constant()):
                continue
            case ast.Assert():
                made.append(_case(statement.test, inputs, instances))
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=made_of), args=[], keywords=[])):
                if made_of in _BUILT_IN:
                    raise Unsplit
                instances.add(name)
                inputs.append(statement)
            case ast.Assign(targets=[ast.Name(id=name)]) if _is_literal(statement.value):
                inputs[:] = [other for other in inputs if _target(other) != name]
                inputs.append(statement)
            case _:
                raise Unsplit
    return made


def check_demand(tests: str) -> None:
    """A test without any assertion is passed by every program, so it is no test.

    Raises:
        DataError: It holds none (`assert True` is none), or is no Python.
    """
    for node in ast.walk(_parse(tests)):
        match node:
            case ast.Assert(test=ast.Constant(value=True)):
                continue
            case ast.Assert() | ast.Raise():
                return
    raise DataError(f"tests: nothing is asserted in {tests[:80]!r}, so every program would pass; give at least one `assert`.")


def _parse(tests: str) -> ast.Module:
    try:
        module = parse(tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"a test is no Python ({error}): {tests[:80]!r}.") from None
    assert isinstance(module, ast.Module)
    return module


def _statements(module: ast.Module) -> Sequence[ast.stmt]:
    checks = [each for each in module.body if isinstance(each, ast.FunctionDef) and each.name == "check" and len(each.args.args) == 1]
    if not checks:
        return module.body
    if len(checks) > 1 or any(each not in checks and not _is_metadata(each) for each in module.body):
        raise Unsplit
    return checks[0].body


def _is_metadata(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and _target(statement) == "METADATA"


def _target(statement: ast.Assign) -> str:
    (target,) = statement.targets
    return target.id if isinstance(target, ast.Name) else ""


def _case(test: ast.expr, inputs: Sequence[ast.Assign], instances: set[str]) -> Case:
    match test:
        case ast.Compare(left=ast.Call() as call, ops=[ast.Eq() | ast.Is() as how], comparators=[right]):
            expected, identical = _literal(right), isinstance(how, ast.Is)
            if identical and not isinstance(expected, bool | None):
                raise Unsplit
        case ast.Call(func=ast.Name(id=same), args=[ast.Call() as call, right], keywords=[]) if same in _SAME:
            expected, identical = _nodes(right, *_SAME[same]), False
        case _:
            raise Unsplit
    _check_function(call, instances)
    names = set(_names(call))
    used = [each for each in inputs if _target(each) in names]
    return Case(tuple(ast.unparse(each) for each in used), ast.unparse(call), expected, identical)


def _check_function(call: ast.Call, instances: set[str]) -> None:
    """The candidate's own function, or a method of its instance. What is around a call, as `len(f(2))`, is for the examiner."""
    match call.func:
        case ast.Name(id=name) if name not in _BUILT_IN and name not in _SAME:
            return
        case ast.Name() if not any(isinstance(node, ast.Call) for each in (*call.args, *call.keywords) for node in ast.walk(each)):
            return  # a candidate may be called `sum`
        case ast.Attribute(value=ast.Name(id=name)) if name in instances:
            return
    raise Unsplit


def _is_literal(node: ast.expr) -> bool:
    try:
        _literal(node)
    except Unsplit:
        return False
    return True


def _literal(node: ast.expr) -> object:
    match node:
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return -math.inf
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise Unsplit from None


def _nodes(node: ast.expr, maker: str, kind: str) -> Expected:
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name == maker:
            values = _literal(inner)
            if isinstance(values, list):
                return nodes(kind, values)
    raise Unsplit


def _names(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def free_names(tests: str) -> tuple[list[str], list[str]]:
    """Names that a test uses and does not define: those of the candidate, and modules of the standard library (`sys` in `sys.maxsize`)."""
    module = _parse(tests)
    bound, loaded, bases = set(_BUILT_IN), set(), set()
    for node in ast.walk(module):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                loaded.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.Import() | ast.ImportFrom():
                bound.update((each.asname or each.name).partition(".")[0] for each in node.names)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            bases.add(node.value.id)
    modules = {name for name in loaded & bases - bound if name in sys.stdlib_module_names}
    return sorted(loaded - bound - modules), sorted(modules)
