"""What each credit around interruptions claims of its gradient holds exactly: all pairs of episodes of a small world are listed."""

from __future__ import annotations

import importlib.util
import sys
from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from stepwell.types import Floats

PATH = Path(__file__).parents[2] / "studies" / "interrupted_credit" / "run.py"
BEFORE = slice(0, 1)
"""Rows of the states before the event can happen; all others lie after it."""


def _study() -> ModuleType:
    spec = importlib.util.spec_from_file_location("interrupted_credit_study", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


study = _study()
CALM = study.CALM


def expected(kind: str, world: object, policy: object) -> Floats:
    """The mean of the estimate from a pair, over all pairs, times what RLOO's mean over a pair leaves (1)."""
    pairs = list(product(study.PATHS, repeat=2))
    told, _ = study.advantages(kind, world, pairs, study.exactly(policy, world))
    total = np.zeros_like(policy.logits)  # type: ignore[attr-defined]
    for (a, b), (for_a, for_b) in zip(pairs, told, strict=True):
        chance = study.odds(a) * study.odds(b) * policy.chance(a) * policy.chance(b)  # type: ignore[attr-defined]
        total += chance * (policy.ascent(a, for_a) + policy.ascent(b, for_b)) / 2  # type: ignore[attr-defined]
    return total


def policy_of(seed: int) -> object:
    return study.Policy(np.random.default_rng(seed).normal(size=(study.NUM_STATES, study.WIDTH)))


def indifferent_policy(seed: int) -> object:
    """One that does the same after an event as without it."""
    logits = np.random.default_rng(seed).normal(size=(study.NUM_STATES, study.WIDTH))
    logits[8:14] = logits[1:7]
    return study.Policy(logits)


@pytest.mark.parametrize("name", study.WORLDS)
def test_without_it_the_gradient_is_that_of_the_return(name: str) -> None:
    policy, world = policy_of(0), study.WORLDS[name]
    np.testing.assert_allclose(expected("none", world, policy), policy.gradient(world), atol=1e-13)  # type: ignore[attr-defined]


def test_an_event_that_changes_nothing_changes_no_expected_gradient() -> None:
    policy, world = indifferent_policy(1), study.World(CALM, CALM)
    np.testing.assert_allclose(expected("counterfactual", world, policy), policy.gradient(world), atol=1e-13)


@pytest.mark.parametrize("name", study.WORLDS)
def test_counterfactual_is_exact_after_the_event_and_that_of_the_calm_world_before_it(name: str) -> None:
    policy, world = policy_of(2), study.WORLDS[name]
    got = expected("counterfactual", world, policy)
    true = policy.gradient(world)  # type: ignore[attr-defined]
    unstruck = [path for path in study.PATHS if not path.struck]
    calm = sum(policy.chance(path) * policy.ascent(path, [CALM[path.end]] * study.TURNS) for path in unstruck)  # type: ignore[attr-defined]
    np.testing.assert_allclose(got[1:], true[1:], atol=1e-13)
    np.testing.assert_allclose(got[BEFORE], calm[BEFORE], atol=1e-13)
    assert np.abs(calm[BEFORE] - true[BEFORE]).max() > 1e-3, "the two are different things"


@pytest.mark.parametrize("kind", ["decay", "segment"])
def test_weighing_by_events_is_biased_where_luck_strikes(kind: str) -> None:
    left = [study.exact(kind, study.WORLDS["prepare"], seed)["unexplained"] for seed in range(5)]
    assert np.mean(left) > 0.1
    assert study.exact("none", study.WORLDS["prepare"], 0)["unexplained"] < 1e-12


def test_decay_halves_what_struck_episodes_say_of_the_steps_before() -> None:
    policy, world = indifferent_policy(4), study.World(CALM, CALM)
    true, got = policy.gradient(world), expected("decay", world, policy)  # type: ignore[attr-defined]
    np.testing.assert_allclose(got[BEFORE], 0.75 * true[BEFORE], atol=1e-13)
    np.testing.assert_allclose(got[1:], true[1:], atol=1e-13)
