"""What each credit rule claims of its gradient holds exactly, where the policy decides how many steps an episode takes.

Every claim is checked against `d/d logits E[return]`, with all groups that can happen listed: see `exact_expectations`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import pytest
from exact_expectations import (
    StepRewards,
    World,
    cave_world,
    expected_gradient,
    policy_gradient,
    potential,
    silent,
    taste,
    thinking_world,
    unexplained,
    with_rewards,
)

from stepwell.credit import Centred, IStar, LeaveOneOut, OutcomeOnly, ProcessToGo, Standardised
from stepwell.losses.reduce import Averaging
from stepwell.protocols import Assign
from stepwell.types import Credited, Floats, Group, Scored

RLOO, DRGRPO, GRPO = LeaveOneOut(), Centred(), Standardised()


def outcome(scored: Scored) -> float:
    """What the end is paid."""
    return float(scored.outcome or 0.0)


def process(scored: Scored) -> float:
    """The sum of the step rewards."""
    return float(scored.process_S.sum())


def outcome_and(alpha: float) -> Callable[[Scored], float]:
    """The outcome and alpha x the step rewards."""
    return lambda scored: outcome(scored) + alpha * process(scored)


def undressed(here: World, scored: Scored) -> Scored:
    """As it is."""
    return scored


@dataclass(frozen=True)
class Case:
    """A rule and its claim.

    Attributes:
        claim: `unbiased`; a number: the true gradient times that; `biased`: no number times the true gradient.
        rewards: What a judge says of each step.
        returns: The return whose expectation is to grow, of one episode.
        dress: What else the rule needs of an episode (values, log-probs of a reference), put on it.
        averaging: Of tokens, in the loss.
        group_size: Members of a group.
        groups: Of a batch (rules that normalise over the batch are listed with more than one).
    """

    rule: Assign
    claim: Literal["unbiased", "biased"] | float
    rewards: StepRewards = silent
    returns: Callable[[Scored], float] = outcome
    dress: Callable[[World, Scored], Scored] = undressed
    averaging: Averaging = "constant"
    group_size: int = 2
    groups: int = 1


CASES: dict[str, Case] = {
    # -- the outcome alone
    "rloo": Case(OutcomeOnly(RLOO), "unbiased"),
    "rloo, groups of 3": Case(OutcomeOnly(RLOO), "unbiased", group_size=3),
    "rloo, two groups in a batch": Case(OutcomeOnly(RLOO), "unbiased", groups=2),
    "drgrpo": Case(OutcomeOnly(DRGRPO), 1 / 2),
    "drgrpo, groups of 3": Case(OutcomeOnly(DRGRPO), 2 / 3, group_size=3),
    "grpo": Case(OutcomeOnly(GRPO), "biased"),
    "grpo, groups of 3": Case(OutcomeOnly(GRPO), "biased", group_size=3),
    # -- averaging, where episodes differ in length
    "rloo, averaged over an episode's tokens": Case(OutcomeOnly(RLOO), "biased", averaging="episode"),
    "rloo, averaged over all tokens": Case(OutcomeOnly(RLOO), "biased", averaging="token"),
    # -- rewards of steps
    "to go": Case(ProcessToGo(RLOO), "unbiased", taste, outcome_and(1.0)),
    "to go, groups of 3": Case(ProcessToGo(RLOO, alpha=0.5), "unbiased", taste, outcome_and(0.5), group_size=3),
    "to go, step rewards alone": Case(ProcessToGo(None), "unbiased", taste, process),
    "to go, mean of the group": Case(ProcessToGo(DRGRPO, return_baseline=DRGRPO), 1 / 2, taste, outcome_and(1.0)),
    "to go, of the outcome": Case(ProcessToGo(RLOO), "biased", taste),
    "to go, potentials do not move the outcome": Case(ProcessToGo(RLOO, alpha=2.0), "unbiased", potential),
    "to go, discounted": Case(ProcessToGo(RLOO, discount=0.9), "biased", taste, outcome_and(1.0)),
    "to go, averaged over an episode's tokens": Case(ProcessToGo(RLOO), "biased", taste, outcome_and(1.0), averaging="episode"),
    "istar without step rewards": Case(IStar(RLOO, alpha=0.0), "unbiased", taste),
    "istar, of the outcome": Case(IStar(RLOO), "biased", taste),
    "istar, of all rewards": Case(IStar(RLOO), "biased", taste, outcome_and(1.0)),
}
"""Every rule, by being listed here: rule, claim, step rewards, and what the return is."""

WORLDS = {"turns are steps": cave_world, "lines are steps": thinking_world}


@lru_cache
def world(name: str, turns: int) -> World:
    return WORLDS[name](turns=turns)


PAIRS = {
    f"{name}, {where}": (case, where)
    for name, case in CASES.items()
    for where in WORLDS
    if where == "turns are steps" or case.group_size * case.groups == 2
}


@pytest.mark.parametrize(("case", "where"), PAIRS.values(), ids=PAIRS)
def test_claim(case: Case, where: str) -> None:
    few = case.group_size * case.groups > 2
    here = world(where, 2 if few or where == "lines are steps" else 3)
    scored = [case.dress(here, member) for member in with_rewards(here, case.rewards)]
    true = policy_gradient(here, np.array([case.returns(member) for member in scored]))
    got = expected_gradient(here, scored, case.rule, group_size=case.group_size, groups=case.groups, averaging=case.averaging)
    if case.claim == "biased":
        assert unexplained(got, true) > 1e-3
    else:
        assert unexplained(got, true, 1.0 if case.claim == "unbiased" else case.claim) < 1e-12


def test_episodes_differ_in_their_numbers_of_steps() -> None:
    """Otherwise the claims would say little."""
    assert {len(s.steps) for s in with_rewards(world("turns are steps", 3), silent)} == {1, 2, 3}
    assert {len(s.steps) for s in with_rewards(world("lines are steps", 2), silent)} == {1, 2, 3, 4}


def test_a_rule_that_uses_what_it_may_not_is_caught() -> None:
    """A baseline that holds a share of the member's own outcome: harmless to look at, and biased."""

    def own_share(groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        credited = OutcomeOnly(RLOO)(groups)
        return [
            Group(group.task, tuple(replace(m, advantages_S=m.advantages_S - _share(m.scored)) for m in group.members))
            for group in credited
        ]

    def _share(member: Scored) -> float:
        return 0.1 * outcome(member) * len(member.steps)

    here = world("turns are steps", 3)
    scored = with_rewards(here, silent)
    true = policy_gradient(here, np.array([outcome(member) for member in scored]))
    assert unexplained(expected_gradient(here, scored, own_share), true) > 1e-3


def test_the_yardstick_is_the_policy_gradient_by_hand() -> None:
    """In a table, dJ / d logit(context, a) is the sum of p R over episodes through (context, a), less pi(a) x the sum over all of a."""
    here = world("turns are steps", 3)
    returns = np.array([float(episode.verdict.score or 0.0) for episode in here.episodes])
    weights: dict[tuple[int, ...], Floats] = {}
    passes: dict[tuple[int, ...], Floats] = {}
    for episode, p, value in zip(here.episodes, here.probabilities, returns, strict=True):
        for turn in episode.turns:
            context, [token] = tuple(turn.context_ids.tolist()), turn.token_ids.tolist()
            weights.setdefault(context, np.zeros(3))[token] += p * value
            passes.setdefault(context, np.zeros(3))[token] += p
    by_hand = [weights[c] - passes[c] / passes[c].sum() * weights[c].sum() for c in sorted(weights)]
    assert np.allclose(policy_gradient(here, returns), np.concatenate(by_hand), atol=1e-14)
    assert np.abs(np.concatenate(by_hand)).max() > 0.01
