"""Mathematical answers: the same number, the same formula, the same set, however they are written."""

from __future__ import annotations

import importlib.util
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from types import TracebackType
from typing import Self

from stepwell.errors import ConfigError, MissingExtraError
from stepwell.grading.exact import gold_text
from stepwell.grading.extract import boxed, extract
from stepwell.grading.graded import Grade, Graded
from stepwell.grading.kinds import Reads
from stepwell.grading.numbers import read_number
from stepwell.grading.tidy import split_base, tidy, without_unit, word
from stepwell.grading.workers import Workers
from stepwell.types import JSON

__all__ = ["Maths", "quick_verdict"]

LIMIT_S = 5.0
"""Seconds of processor time that comparing two formulas may take."""
LONGEST = 1500
"""Letters of an answer that is compared as a formula; a longer one is not read."""
_CACHED = 20_000
_WORKER = "stepwell.grading.worker"


class Maths:
    r"""Right is what means the same as the gold answer.

    Text, numbers and words are compared here, in microseconds; formulas by math-verify in worker processes, each with a hard limit. It may
    be used from several threads at once. Use it as a context manager, or `close` it.

    Args:
        reads: `boxed` (for training): the answer is what stands in the last box, and nothing else. `any`: see `stepwell.grading.extract`.
        limit_s: Seconds of processor time for one comparison; more is a TIMEOUT. (Not of the clock: a busy machine changes no verdict.)
        workers: Worker processes at most; by default one for each core. They start when a formula first needs one.

    Raises:
        ConfigError: A limit or a number of workers that is not above 0.
        MissingExtraError: math-verify is not installed.
    """

    def __init__(self, reads: Reads = "boxed", *, limit_s: float = LIMIT_S, workers: int | None = None) -> None:
        if not 0 < limit_s < 86400:
            raise ConfigError(f"The limit of a comparison is {limit_s}; give seconds above 0, such as {LIMIT_S:g}.")
        count = os.cpu_count() or 1 if workers is None else workers
        if count < 1:
            raise ConfigError(f"workers is {count}; give 1 or more.")
        if importlib.util.find_spec("math_verify") is None:
            raise MissingExtraError("math-verify", "maths")
        self._reads, self._limit_s, self._count = reads, limit_s, count
        self._workers = Workers(_WORKER, count)
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], Graded] = OrderedDict()

    def grade(self, gold: JSON, answer: str) -> Graded:
        """Grades one answer."""
        start = time.perf_counter()
        wanted = gold_text(gold)
        found = extract(answer, self._reads)
        if found is None:
            nothing = "there is no closed box in the answer" if self._reads == "boxed" else "no answer was found in the text"
            return Graded(Grade.UNPARSED, None, time.perf_counter() - start, nothing)
        return self._compared(wanted, found, start)

    def same(self, gold: JSON, answer: str) -> Graded:
        """Compares an answer that was taken out of its text already."""
        return self._compared(gold_text(gold), answer, time.perf_counter())

    def grade_all(self, items: Sequence[tuple[JSON, str]]) -> list[Graded]:
        """Grades many answers, in order: as many at once as there are workers."""
        return self._over(self.grade, items)

    def same_all(self, items: Sequence[tuple[JSON, str]]) -> list[Graded]:
        """Compares many answers that were taken out of their texts already."""
        return self._over(self.same, items)

    def _over(self, one: Callable[[JSON, str], Graded], items: Sequence[tuple[JSON, str]]) -> list[Graded]:
        with ThreadPoolExecutor(max(1, min(self._count, len(items))), thread_name_prefix="stepwell-grading") as threads:
            return list(threads.map(one, *zip(*items, strict=True))) if items else []

    def _compared(self, wanted: str, found: str, start: float) -> Graded:
        wanted = boxed(wanted) or wanted
        quick = quick_verdict(wanted, found)
        if quick is not None:
            return Graded(quick[0], found, time.perf_counter() - start, quick[1])
        with self._lock:
            known = self._known.get((wanted, found))
        if known is None:
            known = self._asked(wanted, found)
            if known.grade is not Grade.ERROR:
                self._remember((wanted, found), known)
        return known

    def _remember(self, key: tuple[str, str], graded: Graded) -> None:
        with self._lock:
            self._known[key] = graded
            while len(self._known) > _CACHED:
                self._known.popitem(last=False)

    def _asked(self, wanted: str, found: str) -> Graded:
        request: Mapping[str, JSON] = {
            "gold": [wanted, tidy(without_unit(wanted))],
            "answer": [found, tidy(without_unit(found))],
            "limit": self._limit_s,
        }
        reply, seconds = self._workers.ask(request, self._limit_s)
        if reply == "timeout":
            return Graded(Grade.TIMEOUT, found, seconds, "comparing did not get its processor time: the machine is too busy")
        if not isinstance(reply, str) and "late" in reply:
            cut = f"comparing was cut after {self._limit_s:g} s"
            return Graded(Grade.TIMEOUT, found, seconds, cut, own_doing=self._reads_alone(request["gold"]))
        if isinstance(reply, str):
            return Graded(Grade.ERROR, found, seconds, "the worker died while it compared")
        outcome = reply.get("outcome")
        if outcome == "answer unread":
            return Graded(Grade.UNPARSED, found, seconds, f"{found[:60]!r} is no formula that can be read")
        if outcome == "gold unread":
            return Graded(Grade.ERROR, found, seconds, f"the gold answer {wanted[:60]!r} is no formula that can be read")
        if outcome is None:
            return Graded(Grade.ERROR, found, seconds, str(reply.get("error")))
        return Graded(Grade.RIGHT if outcome == "same" else Grade.WRONG, found, seconds)

    def _reads_alone(self, gold: JSON) -> bool:
        """Whether the gold answer compares with a plain number in time: then it was the other one that did not."""
        reply, _ = self._workers.ask({"gold": gold, "answer": ["1", "1"], "limit": self._limit_s}, self._limit_s)
        return not isinstance(reply, str) and "outcome" in reply

    def close(self) -> None:
        """Ends the workers; closing twice is fine."""
        self._workers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        self.close()


def quick_verdict(wanted: str, found: str) -> tuple[Grade, str] | None:
    r"""What can be said without reading formulas, and why; None where they must be read.

    The same text is right. Two plain numbers are right if equal, where a unit, a degree or a percent sign that only one of the two has says
    nothing (`50\%` is 50 and 0.5). Numbers with their base are right if digits and base are the same; a base that only one of the two
    names says nothing. Words are right if the same in small letters.

    >>> quick_verdict("16", "016")[0], quick_verdict("0.5", "50\\%")[0], quick_verdict("x", "y") is None
    (<Grade.RIGHT: 'right'>, <Grade.RIGHT: 'right'>, True)
    """
    if not wanted.strip():
        return Grade.ERROR, "the gold answer is empty"
    if max(len(wanted), len(found)) > LONGEST and " ".join(wanted.split()) != " ".join(found.split()):
        if len(wanted) > LONGEST:
            return Grade.ERROR, f"the gold answer has {len(wanted)} letters; formulas of at most {LONGEST} are compared"
        return Grade.UNPARSED, f"the answer has {len(found)} letters; formulas of at most {LONGEST} are compared"
    gold, answer = tidy(wanted), tidy(found)
    if not answer:
        return Grade.UNPARSED, "the answer is empty"
    if gold == answer:
        return Grade.RIGHT, ""
    for verdict in (_numbers(wanted, found), _bases(gold, answer), _words(gold, answer)):
        if verdict is not None:
            return (Grade.RIGHT if verdict else Grade.WRONG), ""
    return None


def _numbers(wanted: str, found: str) -> bool | None:
    gold, answer = (read_number(tidy(without_unit(text))) for text in (wanted, found))
    if gold is None or answer is None:
        return None
    golds, answers = {gold}, {answer}
    percent = ["%" in text for text in (wanted, found)]
    if percent == [True, False]:
        golds.add(gold * Fraction(1, 100))
    if percent == [False, True]:
        answers.add(answer * Fraction(1, 100))
    return bool(golds & answers)


def _bases(gold: str, answer: str) -> bool | None:
    parts = split_base(gold), split_base(answer)
    if parts[0] is not None and parts[1] is not None:
        return parts[0] == parts[1]
    based = parts[0] or parts[1]
    plain = answer if parts[0] is not None else gold
    return None if based is None or not plain.lstrip("-").isalnum() else based[0] == plain.upper()


def _words(gold: str, answer: str) -> bool | None:
    words = word(gold), word(answer)
    return None if words[0] is None or words[1] is None else words[0] == words[1]
