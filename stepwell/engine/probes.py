"""What a server computes, asked one question at a time: losses, optimiser, states.

Every probe of learning starts from a fresh adapter and takes one small step of plain descent, so that the movement of a log-prob is
linear in the gradient: movements are shares of the first one, known in advance from the formula of the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from stepwell.engine.carrier import Datum, scales
from stepwell.engine.reduction import PLAIN, PULL, Call, measure_reduction, moved_by, pull, pulls, rate, said_at, sentence, step_size
from stepwell.engine.service import Service, Trainee
from stepwell.protocols import OptimizerSpec
from stepwell.types import Floats

__all__ = ["LEARNING", "Bench", "Finding"]

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


@dataclass
class Bench:
    """Where probes work.

    Attributes:
        service: The server.
        ids: Nine token ids of the base's vocabulary.
        tolerance: Nats that two computations of one log-prob may differ, root of the mean square.
        share: By how much a movement may miss what is expected, as a share of the first one.
        rank: Of the adapters that are made.
        eta: Size of a small step of plain descent; measured once.
    """

    service: Service
    ids: tuple[int, ...] = (5, 9, 13, 7, 17, 11, 23, 19, 29)
    tolerance: float = 0.05
    share: float = 0.1
    rank: int = 4
    eta: float = 0.0
    unit: float = 0.0
    _open: list[Trainee] = field(default_factory=list)

    @contextmanager
    def fresh(self, seed: int = 1) -> Iterator[Trainee]:
        """An adapter that changes nothing, with the same weights for the same seed; given back afterwards."""
        made = self.service.create(self.rank, seed)
        try:
            yield made
        finally:
            made.close()

    def prepare(self) -> None:
        """Measures the step, and what one pull of size 1 moves."""
        with self.fresh() as trainee:
            self.eta = step_size(trainee, self.ids)
        short = self.short
        with self.fresh() as trainee:
            self.unit = float(moved_by(trainee, [Call(pulls(trainee, [short], [np.ones(1)]))], short, rate(self.eta))[0])

    @property
    def short(self) -> Datum:
        """One target."""
        return sentence(self.ids[:2])

    @property
    def long(self) -> Datum:
        """Four targets, the first of them that of `short`."""
        return sentence(self.ids[:5])

    def of_unit(self, ask: Callable[[Trainee], float]) -> float:
        """A movement on a fresh adapter, as a share of the first."""
        with self.fresh() as trainee:
            return ask(trainee) / self.unit if self.unit else float("nan")

    def near(self, value: float, wanted: float) -> bool:
        """Whether a share is what it should be."""
        return bool(abs(value - wanted) <= self.share * max(abs(wanted), 1.0))


# -- what a loss is -----------------------------------------------------------------------------------------------------------


def direction(bench: Bench) -> Iterator[Finding]:
    """Up is up."""
    down = bench.of_unit(lambda trainee: _pulled(bench, trainee, -1.0))
    passed = bench.unit > 0 and bench.near(down, -1.0)
    measured = f"advantage +1 moves {bench.unit:+.3g} nats, -1 {down * bench.unit:+.3g}"
    yield Finding("sign", passed, measured, "up, and as far down", "a wrong sign learns what is to be unlearnt")


def reduction(bench: Bench) -> Iterator[Finding]:
    """The null-gradient probe and its two companions."""
    with bench.fresh() as trainee:
        found = measure_reduction(trainee, bench.ids, bench.eta)
    wanted = bench.service.kind.dialect.reduction
    measured = f"{found.reduction or 'none known'} (beside {found.beside:.3f}, longer {found.longer:.3f}, cancelled {found.cancelled:.3f})"
    yield Finding("reduction", found.reduction == wanted, measured, wanted, "what advantages are multiplied by before they are sent")


def losses(bench: Bench) -> Iterator[Finding]:
    """Each loss at a ratio beyond every clip: 3 where nothing clips, 0 where PPO does, the threshold for CISPO, 1 for cross-entropy."""
    native = bench.service.kind.dialect.native
    bounds = {"clip_low_threshold": 0.7, "clip_high_threshold": 1.5}
    asked: list[tuple[str, dict[str, float], float, float, float]] = [
        ("importance_sampling", {}, _FAR, 1.0, _FAR),
        ("ppo", bounds, _FAR, 1.0, 0.0),
        ("ppo", bounds, 1.2, 1.0, 1.2),
        ("ppo", bounds, _FAR, -1.0, -_FAR),
        ("cispo", bounds, _FAR, 1.0, 1.5),
    ]
    for name, config, ratio, advantage, wanted in asked:
        label = f"{name}, ratio {ratio:g}, advantage {advantage:+g}"
        if name not in native:
            yield Finding(label, None, "not used", f"share {wanted:g}", "this kind of server is not trusted with it: it is carried")
            continue
        got = bench.of_unit(lambda trainee: _at_ratio(bench, trainee, name, config, ratio, advantage))  # noqa: B023 - used at once
        passed = bench.near(got, wanted)
        means = "what is sent as this loss is this loss" if passed else _is_instead(name, got, wanted)
        yield Finding(label, passed, f"share {got:.3f}", f"share {wanted:g}", means)
    if "cross_entropy" in native:
        got = bench.of_unit(lambda trainee: _cross_entropy(bench, trainee))
        yield Finding("cross_entropy", bench.near(got, 1.0), f"share {got:.3f}", "share 1", "cloning is sent as this where the server sums")


def _is_instead(name: str, got: float, wanted: float) -> str:
    """What a loss that misses its share looks like."""
    if name == "importance_sampling" and abs(got) < 0.1:
        return "importance sampling is clipped: beyond the clip nothing is learnt"
    if name == "importance_sampling" and got < wanted:
        return "importance sampling is capped"
    if name in ("ppo", "cispo") and abs(abs(got) - 1.0) < 0.1 and abs(wanted) != 1.0:
        return f"the loss is replaced: {name} is computed as cross-entropy, or without ratios"
    return "what is sent as this loss is another"


def _pulled(bench: Bench, trainee: Trainee, advantage: float) -> float:
    call = Call(pulls(trainee, [bench.short], [np.array([advantage])]))
    return float(moved_by(trainee, [call], bench.short, rate(bench.eta))[0])


def _at_ratio(bench: Bench, trainee: Trainee, name: str, config: dict[str, float], ratio: float, advantage: float) -> float:
    said = said_at(trainee, [bench.short])[0]
    call = Call([pull(bench.short, said - np.log(ratio), np.array([advantage * PULL]))], name, config)
    return float(moved_by(trainee, [call], bench.short, rate(bench.eta))[0])


def _cross_entropy(bench: Bench, trainee: Trainee) -> float:
    call = Call([Datum(bench.short.tokens, bench.short.target_tokens, {"weights": np.ones(1)})], "cross_entropy")
    return float(moved_by(trainee, [call], bench.short, rate(bench.eta) * PULL)[0])


def mask(bench: Bench) -> Iterator[Finding]:
    """Targets without advantage do not pull, whatever they are."""
    first = np.array([1.0, 0.0, 0.0, 0.0])
    factor = scales([bench.long], bench.service.kind.dialect.reduction)[0]

    def moved(ids: tuple[int, ...]) -> float:
        datum = sentence(ids)
        with bench.fresh() as trainee:
            call = Call(pulls(trainee, [datum], [first * factor]))
            return float(moved_by(trainee, [call], bench.short, rate(bench.eta))[0]) / bench.unit

    one, two = moved(bench.ids[:5]), moved((*bench.ids[:2], *bench.ids[6:9]))
    passed = bench.near(one, 1.0) and bench.near(two, 1.0)
    yield Finding("mask", passed, f"shares {one:.3f} and {two:.3f}", "share 1 twice", "tokens of the environment do not train")


# -- the optimiser ------------------------------------------------------------------------------------------------------------


def steps(bench: Bench) -> Iterator[Finding]:
    """The rate is the rate; a step clears the gradient; calls add up."""

    def at(factor: float) -> float:
        return bench.of_unit(
            lambda trainee: float(
                moved_by(trainee, [Call(pulls(trainee, [bench.short], [np.ones(1)]))], bench.short, factor * rate(bench.eta))[0]
            )
        )

    half, none = at(0.5), at(0.0)
    passed = bench.near(half, 0.5) and abs(none) < bench.share
    yield Finding("step size", passed, f"shares {half:.3f} and {none:.3f}", "0.5 at half the rate, 0 at none", "lr and eps arrive")

    def twice(trainee: Trainee) -> float:
        reduction = bench.service.kind.dialect.reduction
        factors = [2.0, 2.0] if reduction == "sequence_mean" else [1.0, 1.0]
        calls = [Call(pulls(trainee, [bench.short], [np.full(1, factor / 2)])) for factor in factors]
        return float(moved_by(trainee, calls, bench.short, rate(bench.eta))[0])

    got = bench.of_unit(twice)
    yield Finding("accumulation", bench.near(got, 1.0), f"share {got:.3f}", "share 1 of two halves", "several calls before one step add up")

    def again(trainee: Trainee) -> float:
        moved_by(trainee, [Call(pulls(trainee, [bench.short], [np.ones(1)]))], bench.short, rate(bench.eta))
        return float(moved_by(trainee, [Call(pulls(trainee, [bench.short], [np.zeros(1)]))], bench.short, rate(bench.eta))[0])

    left = bench.of_unit(again)
    yield Finding("cleared", abs(left) < bench.share, f"share {left:.3f}", "share 0", "a step forgets the gradient that it applied")


def clipping(bench: Bench) -> Iterator[Finding]:
    """A norm that is asked for binds; one that is not asked for does not."""
    kind = bench.service.kind

    def at(norm: float, size: float) -> float:
        def ask(trainee: Trainee) -> float:
            spec = replace(PLAIN, max_grad_norm=norm)
            call = Call(pulls(trainee, [bench.short], [np.full(1, size)]))
            return float(moved_by(trainee, [call], bench.short, rate(bench.eta) / size, spec)[0])

        return bench.of_unit(ask)

    if kind.clips == "asked":
        got = at(1e-7, 1.0)
        yield Finding("clip", abs(got) < 0.1, f"share {got:.3f}", "share 0 at a norm of 1e-7", "max_grad_norm arrives")
    big = at(1e9, 1000.0)
    wanted = "share 1" if kind.clips != "own" else "any"
    own = "" if bench.near(big, 1.0) else " (it clips by itself)"
    words = "a gradient 1000 times as large, unclipped" if kind.clips != "own" else "this kind of server clips at a norm of its own"
    yield Finding("unclipped", kind.clips == "own" or bench.near(big, 1.0), f"share {big:.3f}{own}", wanted, words)


# -- states -------------------------------------------------------------------------------------------------------------------


def states(bench: Bench) -> Iterator[Finding]:
    """What is saved comes back, with the optimiser's memory; adapters do not touch each other."""
    watched = bench.long
    lr = _lively(bench)
    with bench.fresh() as trainee, bench.fresh(2) as other:
        still = said_at(other, [watched])[0]
        for _ in range(2):
            _adam(trainee, watched, 1.0, lr)
        path = trainee.save("stepwell-check")
        saved = said_at(trainee, [watched])[0]
        _adam(trainee, watched, -0.5, lr)
        gone_on = said_at(trainee, [watched])[0]
        with_it = bench.service.restore(path, bench.rank, optimizer=True)
        back = said_at(with_it, [watched])[0]
        _adam(with_it, watched, -0.5, lr)
        again = said_at(with_it, [watched])[0]
        with_it.close()
        without = bench.service.restore(path, bench.rank, optimizer=False)
        _adam(without, watched, -0.5, lr)
        forgot = said_at(without, [watched])[0]
        without.close()
        touched = _worst(said_at(other, [watched])[0] - still)
    drift, trained = _worst(back - saved), _worst(saved - still)
    passed = drift <= 1e-3 and trained > 10 * drift
    yield Finding("save and load", passed, f"{drift:.2g} nats apart of {trained:.2g} learnt", "the same", "a run can be resumed")
    apart, fresh = _worst(again - gone_on), _worst(forgot - gone_on)
    passed = apart <= 1e-3 and fresh > 3 * apart
    words = f"next step {apart:.2g} nats apart; {fresh:.2g} without the optimiser"
    yield Finding("optimiser restored", passed, words, "the same, and another without", "a resumed run goes on to the same numbers")
    yield Finding("adapters apart", touched <= 1e-3, f"{touched:.2g} nats", "0", "training the policy does not move the judge")


def _adam(trainee: Trainee, datum: Datum, advantage: float, lr: float) -> None:
    said = said_at(trainee, [datum])[0]
    trainee.forward_backward([pull(datum, said, np.full(len(said), advantage))], "importance_sampling", {})
    trainee.optim_step(_ADAM, lr)


def _lively(bench: Bench) -> float:
    """A rate by which Adam's first step moves the row by some tenths of a nat."""
    lr = 1e-5
    for _ in range(5):
        with bench.fresh() as trainee:
            before = said_at(trainee, [bench.long])[0]
            _adam(trainee, bench.long, 1.0, lr)
            if _worst(said_at(trainee, [bench.long])[0] - before) > 0.05:
                return lr
        lr *= 10.0
    return lr


def _worst(values: Floats) -> float:
    return float(np.max(np.abs(values)))


LEARNING: tuple[Callable[[Bench], Iterator[Finding]], ...] = (direction, reduction, losses, mask, steps, clipping, states)
