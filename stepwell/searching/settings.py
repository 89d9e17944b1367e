"""What a search is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from stepwell.errors import ConfigError, nearest
from stepwell.evaluation.aggregate import Aggregate
from stepwell.runfolder import Which

__all__ = ["METHODS", "SAMPLED", "TREES", "Method", "SearchSettings"]

Method = Literal["best_of_n", "majority", "weighted", "group", "beam", "dvts", "lookahead"]
METHODS: tuple[Method, ...] = get_args(Method)
TREES: frozenset[Method] = frozenset({"beam", "dvts", "lookahead"})
"""The judge steers what is sampled."""
SAMPLED: tuple[Method, ...] = tuple(method for method in METHODS if method not in TREES)
"""Chosen from whole answers that were sampled independently of each other."""
_BRANCHES = 4
_AHEAD = 2


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How to search.

    Attributes:
        n: Answers that are sampled to each problem: candidates.
        methods: How one of them is chosen. `best_of_n`: the judge's best. `majority`: the most frequent answer. `weighted`: the answer with
            the largest sum of scores (sigmoids of them, where they are no probabilities). `group`: the answer with the largest sum of
            exp(score), and of those who give it the judge's best (rePIRL). `beam`: after each step only the best go on. `dvts`: the same
            in independent subtrees (diverse verifier tree search). `lookahead`: a beam whose judge sees `ahead` more steps, greedily.
        ns: For which numbers of candidates; by default the powers of two up to n, and n.
        aggregate: How the scores of steps become one; by default what fits the judge.
        problems: The first so many of the split; by default what the run's evaluations take.
        split: Of the tasks.
        temperature: Of sampling.
        seed: Of sampling; by default the run's.
        beam: How many go on after each step of a tree; of `dvts`, the number of subtrees. By default a quarter of the candidates, so that
            each that goes on is continued four times.
        ahead: Steps that `lookahead` looks ahead; by default two.
        separator: What ends a step within a message, where a message is the whole solution (rollout.turns=1); by default what the judge
            was taught with, or a blank line. Elsewhere a turn is a step.
        judge_checkpoint: Of the judge's run; by default the last one.

    Raises (when built):
        ConfigError: Numbers that cannot be, or an unknown method.
    """

    n: int = 16
    methods: tuple[Method, ...] = ("best_of_n",)
    ns: tuple[int, ...] = ()
    aggregate: Aggregate | None = None
    problems: int | None = None
    split: str = "test"
    temperature: float = 1.0
    seed: int | None = None
    beam: int | None = None
    ahead: int | None = None
    separator: str | None = None
    judge_checkpoint: Which | None = None

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ConfigError(f"n is {self.n}: nothing would be sampled, so that nothing could be chosen; give 1 or more.")
        for method in self.methods:
            if method not in METHODS:
                raise ConfigError(f"There is no method {method!r}; {nearest(method, METHODS)}.")
        if not self.methods:
            raise ConfigError(f"No method of choosing is named; give one or more of {', '.join(METHODS)}.")
        if self.aggregate is not None and self.aggregate not in get_args(Aggregate):
            raise ConfigError(f"There is no aggregate {self.aggregate!r}; {nearest(self.aggregate, get_args(Aggregate))}.")
        for n in self.ns:
            if not 1 <= n <= self.n:
                raise ConfigError(
                    f"ns names {n} candidates, and {self.n} are sampled; it may name 1 to {self.n}. Raise n, or leave it out."
                )
        for name, value in {"problems": self.problems, "beam": self.beam, "ahead": self.ahead}.items():
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it needs at least 1.")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ConfigError(f"The temperature is {self.temperature}; all candidates would be one: give a number above 0.")
        if self.beam is not None:
            self._check_beam(self.beam)
        if self.ahead is not None and "lookahead" not in self.methods:
            raise ConfigError(
                f"ahead is {self.ahead}, and lookahead is not among the methods ({', '.join(self.methods)}); leave it out, or add it."
            )
        if self.separator == "":
            raise ConfigError("The separator of steps is empty; give the text that ends a step, such as a line break.")

    def _check_beam(self, beam: int) -> None:
        least = min(self.ns or (self.n,))
        if not TREES.intersection(self.methods):
            raise ConfigError(f"beam is {beam}, and no method is a tree ({', '.join(self.methods)}); leave it out, or add beam or dvts.")
        if beam > least:
            raise ConfigError(
                f"The beam is {beam} wide with {least} candidates: no more can go on than there are. Give a beam of at most {least}, or a "
                "larger n (or ns)."
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of candidates, ascending; none below the beam."""
        if self.ns:
            return tuple(sorted(set(self.ns)))
        powers = (2**i for i in range(self.n.bit_length()) if (self.beam or 1) <= 2**i <= self.n)
        return tuple(sorted({*powers, self.n}))

    def width(self, n: int) -> int:
        """How many go on in a tree of n candidates."""
        return self.beam or max(1, n // _BRANCHES)

    @property
    def looks_ahead(self) -> int:
        """Steps that `lookahead` looks ahead."""
        return self.ahead or _AHEAD
