"""What a server computes, asked one question at a time: losses, optimiser, states.

Probes of losses and of the optimiser take small steps of plain descent, so that the movement of a log-prob is linear in the gradient:
movements are shares of the first one, known in advance from the formula of the loss. Adapters are few, since a server may compile for
each one that learns; probes share nothing, so that they can run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from stepwell.engine.carrier import Datum, Dialect, scales
from stepwell.engine.reduction import PLAIN, PULL, Call, Watched, measure_reduction, pull, said_at, sentence
from stepwell.engine.service import Service, Trainee
from stepwell.errors import ServerError
from stepwell.protocols import OptimizerSpec
from stepwell.types import Floats

__all__ = ["LEARNING", "Bench", "Finding", "Probe", "asked"]

_ADAM = OptimizerSpec(betas=(0.9, 0.99), eps=1e-3, max_grad_norm=1e9)
_FAR = 3.0
"""A ratio beyond all clips and caps that are usual."""


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        check: Its name.
        passed: None where it was not looked at.
        measured, wanted: In numbers and words.
        means: What it is good for, or what goes wrong where it fails.
    """

    check: str
    passed: bool | None
    measured: str
    wanted: str
    means: str


class Probe(NamedTuple):
    """A question, under the name that a refusal is reported by. Every adapter that it needs it makes."""

    name: str
    ask: Callable[[Bench], Iterator[Finding]]


@dataclass
class Bench:
    """Where probes work.

    Attributes:
        service: The server.
        ids: Nine token ids of the base's vocabulary.
        tolerance: Nats that two computations of one log-prob may differ, root of the mean square.
        share: By how much a movement may miss what is expected, as a share of the first one.
        rank: Of the adapters that are made.
        together: Probes that run at the same time.
        eta: Size of a small step of plain descent; measured once.
    """

    service: Service
    ids: tuple[int, ...] = (5, 9, 13, 7, 17, 11, 23, 19, 29)
    tolerance: float = 0.05
    share: float = 0.1
    rank: int = 4
    together: int = 1
    eta: float = 0.0

    @contextmanager
    def fresh(self, seed: int = 1) -> Iterator[Trainee]:
        """An adapter that changes nothing, with the same weights for the same seed; given back afterwards."""
        made = self.service.create(self.rank, seed)
        try:
            yield made
        finally:
            made.close()

    @property
    def short(self) -> Datum:
        """One target."""
        return sentence(self.ids[:2])

    @property
    def long(self) -> Datum:
        """Four targets, the first of them that of `short`."""
        return sentence(self.ids[:5])

    @property
    def other(self) -> Datum:
        """Four targets, the first of them that of `short`, the others not those of `long`."""
        return sentence((*self.ids[:2], *self.ids[6:9]))

    def near(self, value: float, wanted: float) -> bool:
        """Whether a share is what it should be."""
        return bool(abs(value - wanted) <= self.share * max(abs(wanted), 1.0))


class Lane:
    """One adapter that takes small steps of plain descent, one after the other: without memory, none knows of the one before.

    The first measures what one pull of size 1 moves. Pulls up and down follow each other, so that the adapter stays near the base, where
    movements are linear.
    """

    def __init__(self, bench: Bench, trainee: Trainee) -> None:
        self.bench = bench
        self.watched = Watched(trainee, [bench.short, bench.long, bench.other])
        self.unit = self.watched.move([Call(self.pulls(1.0))], bench.eta)

    @property
    def dialect(self) -> Dialect:
        """Of the server."""
        return self.bench.service.kind.dialect

    def pulls(self, advantage: float) -> list[Datum]:
        """`short` at ratio 1."""
        return self.watched.pulls([np.array([advantage]), None, None])

    def share(self, calls: list[Call], factor: float = 1.0, optimizer: OptimizerSpec = PLAIN) -> float:
        """How far a step of `factor` times the usual size on these calls moves the target of `short`, as a share of the first movement."""
        moved = self.watched.move(calls, factor * self.bench.eta, optimizer)
        return moved / self.unit if self.unit else float("nan")

    def pulled(self, advantage: float, factor: float = 1.0, optimizer: OptimizerSpec = PLAIN) -> float:
        """`share` of one pull."""
        return self.share([Call(self.pulls(advantage))], factor, optimizer)


# -- what a loss is -----------------------------------------------------------------------------------------------------------


def reduction(bench: Bench) -> Iterator[Finding]:
    """The null-gradient probe and its two companions."""
    with bench.fresh() as trainee:
        found = measure_reduction(trainee, bench.ids, bench.eta)
    wanted = bench.service.kind.dialect.reduction
    measured = f"{found.reduction or 'none known'} (beside {found.beside:.3f}, longer {found.longer:.3f}, cancelled {found.cancelled:.3f})"
    yield Finding("reduction", found.reduction == wanted, measured, wanted, "what advantages are multiplied by before they are sent")


def _direction(lane: Lane) -> Iterator[Finding]:
    """Up is up."""
    down = lane.pulled(-1.0)
    passed = lane.unit > 0 and lane.bench.near(down, -1.0)
    measured = f"advantage +1 moves {lane.unit:+.3g} nats, -1 {down * lane.unit:+.3g}"
    yield Finding("sign", passed, measured, "up, and as far down", "a wrong sign learns what is to be unlearnt")


_BOUNDS = {"clip_low_threshold": 0.7, "clip_high_threshold": 1.5}
_LOSSES = (
    ("importance_sampling", _FAR, 1.0, _FAR),
    ("ppo", _FAR, 1.0, 0.0),
    ("ppo", _FAR, -1.0, -_FAR),
    ("ppo", 1.2, 1.0, 1.2),
    ("cispo", _FAR, 1.0, 1.5),
)
"""Losses, each at a ratio that is mostly beyond every clip, an advantage, and what is due: 3 where nothing clips, 0 where PPO does, the
threshold for CISPO."""


def _losses(lane: Lane) -> Iterator[Finding]:
    """Each loss is what its name says."""
    if "importance_sampling" in lane.dialect.native:
        lane.pulled(-_FAR / 2)  # what follows goes from here to as far on the other side of the base, and back
    for name, ratio, advantage, wanted in _LOSSES:
        label = f"{name}, ratio {ratio:g}, advantage {advantage:+g}"
        if name not in lane.dialect.native:
            yield Finding(label, None, "not used", f"share {wanted:g}", "this kind of server is not trusted with it: it is carried")
            continue
        config = {} if name == "importance_sampling" else _BOUNDS
        old = lane.watched.said[0] - np.log(ratio)
        got = lane.share([Call([pull(lane.bench.short, old, np.array([advantage * PULL]))], name, config)])
        passed = lane.bench.near(got, wanted)
        means = "what is sent as this loss is this loss" if passed else _is_instead(name, got, wanted)
        yield Finding(label, passed, f"share {got:.3f}", f"share {wanted:g}", means)


def _is_instead(name: str, got: float, wanted: float) -> str:
    """What a loss that misses its share looks like."""
    if name == "importance_sampling" and abs(got) < 0.1:
        return "importance sampling is clipped: beyond the clip nothing is learnt"
    if name == "importance_sampling" and got < wanted:
        return "importance sampling is capped"
    if name in ("ppo", "cispo") and abs(abs(got) - 1.0) < 0.1 and abs(wanted) != 1.0:
        return f"the loss is replaced: {name} is computed as cross-entropy, or without ratios"
    return "what is sent as this loss is another"


def _mask(lane: Lane) -> Iterator[Finding]:
    """Targets without advantage do not pull, whatever they are."""
    factor = scales([lane.bench.long], lane.dialect.reduction)[0]
    first = np.array([1.0, 0.0, 0.0, 0.0]) * factor
    one = lane.share([Call(lane.watched.pulls([None, -first, None]))])
    two = lane.share([Call(lane.watched.pulls([None, None, first]))])
    passed = lane.bench.near(one, -1.0) and lane.bench.near(two, 1.0)
    yield Finding("mask", passed, f"shares {one:.3f} and {two:.3f}", "share -1 and 1", "tokens of the environment do not train")


def _cross_entropy(lane: Lane) -> Iterator[Finding]:
    """Weights of 1 pull as advantages of 1 do."""
    if "cross_entropy" in lane.dialect.native:
        short = lane.bench.short
        got = lane.share([Call([Datum(short.tokens, short.target_tokens, {"weights": np.ones(1)})], "cross_entropy")], factor=PULL)
        yield Finding(
            "cross_entropy", lane.bench.near(got, 1.0), f"share {got:.3f}", "share 1", "cloning is sent as this where the server sums"
        )


# -- the optimiser ------------------------------------------------------------------------------------------------------------


def _step_size(lane: Lane) -> Iterator[Finding]:
    """The rate is the rate."""
    half, none = lane.pulled(-1.0, 0.5), lane.pulled(1.0, 0.0)
    passed = lane.bench.near(half, -0.5) and abs(none) < lane.bench.share
    yield Finding("step size", passed, f"shares {half:.3f} and {none:.3f}", "-0.5 at half the rate, 0 at none", "lr and eps arrive")


def _accumulation(lane: Lane) -> Iterator[Finding]:
    """Calls add up."""
    size = 1.0 if lane.dialect.reduction == "sequence_mean" else 0.5
    got = lane.share([Call(lane.pulls(-size)), Call(lane.pulls(-size))])
    yield Finding(
        "accumulation", lane.bench.near(got, -1.0), f"share {got:.3f}", "share -1 of two halves", "several calls before one step add up"
    )


def _clearing(lane: Lane) -> Iterator[Finding]:
    """A step clears the gradient."""
    lane.pulled(-1.0)
    left = lane.pulled(0.0)
    yield Finding("cleared", abs(left) < lane.bench.share, f"share {left:.3f}", "share 0", "a step forgets the gradient that it applied")


def _clipping(lane: Lane) -> Iterator[Finding]:
    """A norm that is asked for binds; one that is not asked for does not."""
    clips = lane.bench.service.kind.clips
    if clips == "asked":
        got = lane.pulled(1.0, 1.0, replace(PLAIN, max_grad_norm=1e-7))
        yield Finding("clip", abs(got) < 0.1, f"share {got:.3f}", "share 0 at a norm of 1e-7", "max_grad_norm arrives")
    big = lane.pulled(1000.0, 1 / 1000)
    own = "" if lane.bench.near(big, 1.0) else " (it clips by itself)"
    words = "a gradient 1000 times as large, unclipped" if clips != "own" else "this kind of server clips at a norm of its own"
    passed = clips == "own" or lane.bench.near(big, 1.0)
    yield Finding("unclipped", passed, f"share {big:.3f}{own}", "share 1" if clips != "own" else "any", words)


_LANE: tuple[Callable[[Lane], Iterator[Finding]], ...] = (
    *(_direction, _losses, _mask, _accumulation, _cross_entropy, _step_size, _clearing, _clipping),
)


def losses(bench: Bench) -> Iterator[Finding]:
    """All that small steps say, on one adapter. A step that the server refuses is a failed finding."""
    with bench.fresh() as trainee:
        lane = Lane(bench, trainee)
        for ask in _LANE:
            yield from asked(ask.__name__.strip("_").replace("_", " "), lambda: ask(lane))  # noqa: B023 - used at once


def asked(name: str, ask: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """What is found, and a failed finding of this name where the server refuses."""
    try:
        yield from ask()
    except (ServerError, ValueError) as error:
        yield Finding(name, False, str(error), "an answer", "the server refuses or fails")


# -- states -------------------------------------------------------------------------------------------------------------------


def states(bench: Bench) -> Iterator[Finding]:
    """What is saved comes back, with the optimiser's memory; adapters do not touch each other, nor what comes after them."""
    watched = bench.long
    with bench.fresh(2) as other, bench.fresh() as trainee:
        still = said_at(other, [watched])[0]
        lr, saved = _learnt(trainee, watched, still)
        path = trainee.save("stepwell-check")
        gone_on = _adam(trainee, watched, saved, -0.5, lr)
        touched = _worst(said_at(other, [watched])[0] - still)
    with _restored(bench, path, optimizer=True) as same:
        back = said_at(same, [watched])[0]
        again = _adam(same, watched, back, -0.5, lr)
    with _restored(bench, path, optimizer=False) as forgetful:
        forgot = _adam(forgetful, watched, saved, -0.5, lr)
    with bench.fresh(2) as late:
        unlike = _worst(said_at(late, [watched])[0] - still)
    drift, trained = _worst(back - saved), _worst(saved - still)
    passed = drift <= 1e-3 and trained > 10 * drift
    yield Finding("save and load", passed, f"{drift:.2g} nats apart of {trained:.2g} learnt", "the same", "a run can be resumed")
    apart, fresh = _worst(again - gone_on), _worst(forgot - gone_on)
    passed = apart <= 1e-3 and fresh > 3 * apart
    words = f"next step {apart:.2g} nats apart; {fresh:.2g} without the optimiser"
    yield Finding("optimiser restored", passed, words, "the same, and another without", "a resumed run goes on to the same numbers")
    yield Finding("adapters apart", touched <= 1e-3, f"{touched:.2g} nats", "0", "training the policy does not move the judge")
    words = f"{unlike:.2g} nats from the first, after others learnt"
    yield Finding("fresh", unlike <= bench.tolerance, words, "0", "a new judge says exactly nothing")


@contextmanager
def _restored(bench: Bench, path: str, *, optimizer: bool) -> Iterator[Trainee]:
    made = bench.service.restore(path, bench.rank, optimizer=optimizer)
    try:
        yield made
    finally:
        made.close()


def _adam(trainee: Trainee, datum: Datum, said: Floats, advantage: float, lr: float) -> Floats:
    """One step of Adam at ratio 1, where `said` are the log-probs before it; those after it."""
    trainee.forward_backward([pull(datum, said, np.full(len(said), advantage))], "importance_sampling", {})
    trainee.optim_step(_ADAM, lr)
    return said_at(trainee, [datum])[0]


def _learnt(trainee: Trainee, datum: Datum, said: Floats) -> tuple[float, Floats]:
    """Steps of Adam at growing rates until one moves the row by some tenths of a nat: its rate, and the log-probs then."""
    lr = 1e-5
    for _ in range(5):
        before, said = said, _adam(trainee, datum, said, 1.0, lr)
        if _worst(said - before) > 0.05:
            break
        lr *= 10.0
    return lr, said


def _worst(values: Floats) -> float:
    return float(np.max(np.abs(values)))


LEARNING = (Probe("losses", losses), Probe("reduction", reduction), Probe("states", states))
