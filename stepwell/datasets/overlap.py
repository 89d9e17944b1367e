"""Decontamination: which problems of a test set are in a training set, letter for letter or nearly.

Three signs, each for a pair of problems:

- `exact`: the same letters and digits, whatever stands between them and however large they are.
- `title`: the same title, where both have one (LeetCode rewrites its statements, and keeps their names).
- `ngram`: of the different runs of n words of the problem with fewer of them, a share of at least `share` stands in the other too. Runs
  that stand in more than `common` of the training problems are the form of the data set ("return the answer modulo 10^9 + 7"), and
  say nothing. It also finds variants, the same question with other numbers: look at them before you drop them.

Problems of fewer than n words can only be found by the other two.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from stepwell.errors import ConfigError

__all__ = ["Match", "Overlap", "Text", "find_overlap"]

_WORD = re.compile(r"[^\W_]+")


class Match(NamedTuple):
    """A test problem that is in the training set.

    Attributes:
        test, train: Positions in the two sets; of several training problems the one with the largest share, the first of equal ones.
        how: Which sign it is found by: `exact` before `title` before `ngram`.
        share: Share of the runs that both have; 1 for the other signs.
    """

    test: int
    train: int
    how: Literal["exact", "title", "ngram"]
    share: float


@dataclass(frozen=True, slots=True)
class Overlap:
    """What two sets of problems have in common.

    Attributes:
        matches: In order of the test problems, one for each that was found.
        num_test, num_train: Problems, with repetitions.
        distinct_test: Different ones by their letters.
        distinct_exact: Different test problems that are in the training set letter for letter.
        short: Test problems of fewer than n words.
    """

    matches: tuple[Match, ...]
    num_test: int
    num_train: int
    distinct_test: int
    distinct_exact: int
    short: int

    def count(self, how: Literal["exact", "title", "ngram"]) -> int:
        """Test problems found by a sign."""
        return sum(match.how == how for match in self.matches)


class Text(NamedTuple):
    """A problem's text, and its title where it has one that means something in another set too."""

    text: str
    title: str = ""


def find_overlap(train: Sequence[Text], test: Sequence[Text], *, n: int = 10, share: float = 0.5, common: float = 0.01) -> Overlap:
    """Finds the test problems that are in the training set.

    Args:
        train: The training problems.
        test: The test problems.
        n: Words of a run.
        share: Of the runs of the shorter problem, that both must have; above 0.
        common: Share of the training problems above which a run says nothing (and at least 5 of them).

    Raises:
        ConfigError: One of the sets is empty, or a number makes no sense.

    >>> found = find_overlap([Text("What is 1+1?"), Text("Find x.")], [Text("what is $1 + 1$"), Text("Find y.")])
    >>> found.matches
    (Match(test=0, train=0, how='exact', share=1.0),)
    """
    if not train or not test:
        raise ConfigError(f"Got {len(train)} training and {len(test)} test problems; both sets need at least one.")
    if n < 1 or not 0 < share <= 1 or not 0 < common <= 1:
        raise ConfigError(f"n is {n}, share {share} and common {common}; allowed are 1 or more, and twice a share above 0 up to 1.")
    firsts: dict[str, int] = {}
    titles: dict[str, int] = {}
    for at, one in enumerate(train):
        firsts.setdefault(_letters(one.text), at)
        if one.title:
            titles.setdefault(one.title, at)
    plain = [_letters(one.text) for one in test]
    near, short = _near([one.text for one in train], [one.text for one in test], n, share, common)
    matches = []
    for at, (one, letters) in enumerate(zip(test, plain, strict=True)):
        if letters in firsts:
            matches.append(Match(at, firsts[letters], "exact", 1.0))
        elif one.title in titles:
            matches.append(Match(at, titles[one.title], "title", 1.0))
        elif at in near:
            matches.append(near[at])
    distinct = set(plain)
    return Overlap(tuple(matches), len(test), len(train), len(distinct), len(distinct & firsts.keys()), short)


def _near(train: Sequence[str], test: Sequence[str], n: int, share: float, common: float) -> tuple[dict[int, Match], int]:
    wanted, given = [_runs(text, n) for text in test], [_runs(text, n) for text in train]
    frequent = Counter(run for runs in given for run in runs)
    most = max(5, common * len(train))
    formal = {run for run, times in frequent.items() if times > most}
    telling = set().union(*wanted) - formal
    holders: dict[tuple[str, ...], list[int]] = {}
    for at, runs in enumerate(given):
        for run in runs & telling:
            holders.setdefault(run, []).append(at)
    sizes = [len(runs - formal) for runs in given]
    found = {}
    for at, runs in enumerate(wanted):
        own = runs - formal
        counts = Counter(holder for run in own for holder in holders.get(run, ()))
        shares = {holder: hits / min(len(own), sizes[holder]) for holder, hits in counts.items()}
        if shares:
            holder = min(shares, key=lambda one: (-shares[one], one))
            if shares[holder] >= share:
                found[at] = Match(at, holder, "ngram", shares[holder])
    return found, sum(not runs for runs in wanted)


def _letters(text: str) -> str:
    return "".join(_WORD.findall(text.casefold()))


def _runs(text: str, n: int) -> set[tuple[str, ...]]:
    words = _WORD.findall(text.casefold())
    return {tuple(words[at : at + n]) for at in range(len(words) - n + 1)}
