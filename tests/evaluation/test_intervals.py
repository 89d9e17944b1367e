from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.evaluation.intervals import Interval, bootstrap, difference, wilson
from stepwell.seeding import generator


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (5, 10, 0.236593, 0.763407),
        (0, 10, 0.0, 0.277533),
        (10, 10, 0.722467, 1.0),
        (1, 2, 0.094531, 0.905469),
        (81, 263, 0.2553, 0.3662),  # these three: the examples of Newcombe 1998 (single proportion), to the digits printed there
        (15, 148, 0.0624, 0.1605),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_by_hand(successes: int, n: int, low: float, high: float) -> None:
    assert wilson(successes, n) == pytest.approx((successes / n, low, high), abs=5e-5)


def test_wilson_solves_its_equation() -> None:
    """Each limit is the share at which the data lie z standard deviations away."""
    mean, low, high = wilson(7, 31, confidence=0.9)
    for limit in (low, high):
        assert abs(mean - limit) / math.sqrt(limit * (1 - limit) / 31) == pytest.approx(1.6448536, abs=1e-6)


def test_nothing_measured_is_nothing_known() -> None:
    mean, low, high = wilson(0, 0)
    assert math.isnan(mean)
    assert (low, high) == (0.0, 1.0)
    assert all(math.isnan(value) for value in bootstrap([]))


@pytest.mark.parametrize(("successes", "n"), [(3, 2), (-1, 2), (1, 0)])
def test_impossible_counts(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match=r"allowed is 0 to n"):
        wilson(successes, n)
    with pytest.raises(ValueError, match=r"confidence is 95; allowed is between 0 and 1"):
        wilson(1, 2, confidence=95)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_laws(counts: tuple[int, int]) -> None:
    successes, n = counts
    mean, low, high = wilson(successes, n)
    assert 0.0 <= low <= mean <= high <= 1.0
    mirrored = wilson(n - successes, n)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((low, high))
    more = wilson(4 * successes, 4 * n)
    assert more.high - more.low < high - low


def test_difference_is_newcombe_s() -> None:
    """The examples of Newcombe 1998 (difference of proportions), method 10, to the digits printed there."""
    assert difference(wilson(48, 80), wilson(56, 70)) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)
    assert difference(wilson(3, 10), wilson(9, 10)) == pytest.approx((0.6, 0.1705, 0.8090), abs=5e-5)
    assert difference(wilson(0, 20), wilson(10, 10)) == pytest.approx((1.0, 0.6791, 1.0), abs=5e-5)


# -- bootstrap ----------------------------------------------------------------------------------------------------------------


def test_bootstrap_of_two_values_by_enumeration() -> None:
    """Of {0, 1} the resampled mean is 0, 0.5, 1 with probability 1/4, 1/2, 1/4."""
    assert bootstrap([0.0, 1.0], confidence=0.4) == Interval(0.5, 0.5, 0.5)
    assert bootstrap([0.0, 1.0], confidence=0.6) == Interval(0.5, 0.0, 1.0)


def test_bootstrap_is_close_to_the_normal_interval_of_many_values() -> None:
    values = generator(3).normal(2.0, 1.0, size=400)
    mean, low, high = bootstrap(values)
    half = 1.96 * values.std() / 20
    assert mean == values.mean()
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=0.01)


def test_bootstrap_is_reproducible_and_takes_a_generator() -> None:
    values = generator(3).normal(size=30)
    assert bootstrap(values) == bootstrap(values)
    assert bootstrap(values, generator(1)) == bootstrap(values, generator(1)) != bootstrap(values, generator(2))


def test_values_of_one_task_count_as_one() -> None:
    """Ten copies of each value say no more than one; taken as independent they would seem to."""
    values = generator(4).normal(size=30)
    once = bootstrap(values)
    copied, task = np.repeat(values, 10), np.repeat(np.arange(30) * 7, 10)
    assert bootstrap(copied, cluster_N=task) == pytest.approx(once)
    alone = bootstrap(copied)
    assert alone.high - alone.low < 0.5 * (once.high - once.low)


def test_clusters_of_unequal_size_weigh_their_values_equally() -> None:
    mean, low, high = bootstrap([1.0, 1.0, 1.0, 0.0], cluster_N=[5, 5, 5, 9])
    assert (mean, low, high) == (0.75, 0.0, 1.0)


def test_bad_values() -> None:
    with pytest.raises(ValueError, match=r"1 of 2 are not"):
        bootstrap([1.0, math.nan])
    with pytest.raises(ValueError, match=r"Got 1 cluster numbers for 2 values"):
        bootstrap([1.0, 2.0], cluster_N=[0])


def test_many_values_need_little_memory() -> None:
    import tracemalloc

    values = generator(5).normal(size=200_000)
    tracemalloc.start()
    bootstrap(values, resamples=40)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60 * 2**20
