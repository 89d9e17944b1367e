"""What a program must do to be right, in the three forms that benchmarks have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stepwell.errors import DataError
from stepwell.types import JSON

__all__ = ["IMPORTS", "CallSuite", "FunctionSuite", "ProgramSuite", "Suite"]

IMPORTS = """
import bisect, collections, copy, datetime, functools, heapq, itertools, json, math, operator, random, re, string, sys
from bisect import *
from collections import *
from copy import *
from functools import *
from heapq import *
from itertools import *
from math import *
from typing import *
from builtins import *
inf = float("inf")
"""
"""What contest solutions take for granted. The last star gives `pow` and its like their usual meaning again."""


@dataclass(frozen=True, slots=True)
class CallSuite:
    """Assertions about a function or a class: LeetCode, HumanEval, MBPP.

    Attributes:
        tests: Python: assertions, or a function `check(candidate)` that makes them.
        before: Runs ahead of the candidate's code, in its interpreter, and ahead of the tests: imports, a signature with its helpers.
        after: Runs behind the candidate's code, in its interpreter: inputs made of its classes.
        entry_point: What `check` is called with, an expression such as `Solution().twoSum`; empty where the assertions name it.
    """

    tests: str
    before: str = ""
    after: str = ""
    entry_point: str = ""


@dataclass(frozen=True, slots=True)
class ProgramSuite:
    """Standard input and the output that must come of it: LiveCodeBench, APPS, Codeforces."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    before: str = IMPORTS

    def __post_init__(self) -> None:
        _check_lengths(self.inputs, self.outputs)


@dataclass(frozen=True, slots=True)
class FunctionSuite:
    """Arguments of a function, and the value that must come of them: LiveCodeBench's calls.

    Attributes:
        function: Its name; a method of `class Solution` where the candidate has that class.
        arguments: For each case, the arguments by position.
        values: For each case, what the function must return. A tuple may stand for a list.
    """

    function: str
    arguments: tuple[tuple[JSON, ...], ...]
    values: tuple[JSON, ...]
    before: str = IMPORTS

    def __post_init__(self) -> None:
        _check_lengths(self.arguments, self.values)
        if not self.function.isidentifier():
            raise DataError(f"tests: the function's name is {self.function!r}; it must be a name of Python.")


Suite: TypeAlias = CallSuite | FunctionSuite | ProgramSuite


def _check_lengths(inputs: Sequence[object], outputs: Sequence[object]) -> None:
    if not inputs or len(inputs) != len(outputs):
        raise DataError(f"tests: there are {len(inputs)} inputs and {len(outputs)} outputs; give as many of each, at least one.")
