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
    level_world,
    policy_gradient,
    potential,
    silent,
    taste,
    thinking_world,
    unexplained,
    with_rewards,
)

import stepwell.credit
from stepwell.credit import (
    GAE,
    Adaptive,
    Centred,
    Counterfactual,
    GiGPO,
    IStar,
    LeaveOneOut,
    MinForm,
    OutcomeOnly,
    Prime,
    ProcessSupervision,
    ProcessToGo,
    Raw,
    ReinforcePlusPlus,
    RePIRL,
    Rule,
    Standardised,
    SuffixLogRatio,
    Whitened,
    by_turn,
)
from stepwell.crediting import replayer
from stepwell.engine.batch import episode_rows
from stepwell.envs.cave import CaveDomain
from stepwell.losses.reduce import Averaging
from stepwell.protocols import Assign
from stepwell.seeding import generator
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


def least(scored: Scored) -> float:
    """The least of the step rewards."""
    return float(scored.process_S.min())


def leaving(here: World, scored: Scored) -> Scored:
    """With the policy's own log-probs, and those of a reference that likes some tokens more than others."""
    old_T = here.model.forward(episode_rows(scored.episode))[0]["logprobs"]
    tokens = np.concatenate([turn.token_ids for turn in scored.episode.turns])
    return replace(scored, old_logprobs_T=old_T, ref_logprobs_T=-1.0 - 0.3 * tokens)


def regularised(beta: float) -> Callable[[Scored], float]:
    """The outcome minus beta x the log-ratio to the reference (a constant here: the gradient of its expectation has no further term)."""

    def value(scored: Scored) -> float:
        assert scored.old_logprobs_T is not None and scored.ref_logprobs_T is not None
        return outcome(scored) - beta * float((scored.old_logprobs_T - scored.ref_logprobs_T).sum())

    return value


def trusted(confidence: float) -> Callable[[World, Scored], Scored]:
    """A judge of this confidence."""
    return lambda here, scored: replace(scored, confidence=confidence)


def guessing(here: World, scored: Scored) -> Scored:
    """With a critic's values that are drawn by what stands before each step: wrong, but no more than a baseline."""
    tokens = np.concatenate([turn.token_ids for turn in scored.episode.turns]).tolist()
    drawn = [generator("guess", *tokens[:start]).uniform(-1.0, 1.0) for start in scored.steps.start_S.tolist()]
    return replace(scored, values_S=np.array(drawn))


def knowing(here: World, scored: Scored) -> Scored:
    """With the true values of the outcome: its mean over all episodes that begin alike."""
    said = [np.concatenate([turn.token_ids for turn in episode.turns]).tolist() for episode in here.episodes]
    own = np.concatenate([turn.token_ids for turn in scored.episode.turns]).tolist()
    outcomes = np.array([float(episode.verdict.score or 0.0) for episode in here.episodes])
    values = []
    for start in scored.steps.start_S.tolist():
        alike = [tokens[:start] == own[:start] for tokens in said]
        values.append(float(here.probabilities[alike] @ outcomes[alike] / here.probabilities[alike].sum()))
    return replace(scored, values_S=np.array(values))


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
        only: The one world that the claim is about, if it is about one.
    """

    rule: Assign
    claim: Literal["unbiased", "biased"] | float
    rewards: StepRewards = silent
    returns: Callable[[Scored], float] = outcome
    dress: Callable[[World, Scored], Scored] = undressed
    averaging: Averaging = "constant"
    group_size: int = 2
    groups: int = 1
    only: str = ""


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
    # -- no baseline, or the batch's
    "reinforce": Case(OutcomeOnly(Raw()), "unbiased"),
    "reinforce++": Case(ReinforcePlusPlus(), "biased", taste, outcome_and(1.0), groups=2, group_size=1),
    "reinforce++ with baseline": Case(Whitened(OutcomeOnly(DRGRPO)), "biased", group_size=3),
    # -- process rewards to come, otherwise
    "process supervision": Case(ProcessSupervision(), "biased", taste, process),
    "process supervision, centred": Case(ProcessSupervision(step_baseline=DRGRPO), "biased", taste, process),
    "prime": Case(Prime(), "biased", taste, outcome_and(1.0)),
    "prime, of equally long episodes": Case(Prime(), "unbiased", taste, outcome_and(1.0), only="equally many steps"),
    "prime, released, of equally long episodes": Case(Prime(form="released"), "biased", taste, outcome_and(1.0), only="equally many steps"),
    "process supervision, of equally long episodes": Case(
        ProcessSupervision(step_baseline=DRGRPO), "biased", taste, process, only="equally many steps"
    ),
    "prime, released": Case(Prime(form="released"), "biased", taste, outcome_and(1.0)),
    "repirl": Case(RePIRL(0.5), "unbiased", taste, outcome_and(0.5)),
    "repirl, groups of 3": Case(RePIRL(0.5), "unbiased", taste, outcome_and(0.5), group_size=3),
    "repirl, raw where alone": Case(RePIRL(0.5, alone="raw"), "unbiased", taste, outcome_and(0.5), group_size=3),
    "repirl, discounted": Case(RePIRL(0.5, discount=0.9), "biased", taste, outcome_and(0.5)),
    "repirl, whitened": Case(Whitened(RePIRL(0.5)), "biased", taste, outcome_and(0.5)),
    "repirl, unit of the batch": Case(RePIRL(0.5, unit="largest_return"), "biased", taste, outcome_and(0.5)),
    "min form": Case(MinForm(None), "biased", taste, least),
    "min form, hard": Case(MinForm(None, temperature=0.0), "biased", taste, least),
    # -- states, the reference, replays, trust
    "gigpo": Case(GiGPO(RLOO, step_baseline=RLOO), "biased"),
    "suffix log-ratio": Case(SuffixLogRatio(RLOO, 0.5), "unbiased", returns=regularised(0.5), dress=leaving),
    "suffix log-ratio, several tokens": Case(
        SuffixLogRatio(RLOO, 0.5), "unbiased", returns=regularised(0.5), dress=leaving, only="steps of several tokens"
    ),
    "suffix log-ratio, without baseline": Case(SuffixLogRatio(Raw(), 0.5), "unbiased", returns=regularised(0.5), dress=leaving),
    "suffix log-ratio, of the outcome": Case(SuffixLogRatio(RLOO, 0.5), "biased", dress=leaving),
    "suffix log-ratio, grpo": Case(SuffixLogRatio(GRPO, 0.5), "biased", returns=regularised(0.5), dress=leaving),
    "suffix log-ratio, last token": Case(
        SuffixLogRatio(RLOO, 0.5, "last"), "biased", returns=regularised(0.5), dress=leaving, only="steps of several tokens"
    ),
    "counterfactual": Case(Counterfactual(replayer(CaveDomain(), "score"), RLOO), "biased"),
    "adaptive": Case(Adaptive(ProcessToGo(RLOO)), "unbiased", taste, outcome_and(0.5), dress=trusted(0.75)),
    "adaptive, at chance": Case(Adaptive(ProcessToGo(RLOO)), "unbiased", taste, dress=trusted(0.5)),
    # -- a critic
    "gae": Case(GAE(), "unbiased", taste, outcome_and(1.0), dress=guessing),
    "gae, groups of 1": Case(GAE(alpha=0.5), "unbiased", taste, outcome_and(0.5), dress=guessing, group_size=1),
    "gae, lambda below 1": Case(GAE(lam=0.5), "biased", dress=guessing),
    "gae, lambda below 1, true values": Case(GAE(lam=0.5), "unbiased", dress=knowing),
    "gae, one step, true values": Case(GAE(lam=0.0), "unbiased", dress=knowing),
    "gae, discounted": Case(GAE(discount=0.9), "biased", taste, outcome_and(1.0), dress=guessing),
    "gae, whitened": Case(Whitened(GAE()), "biased", taste, outcome_and(1.0), dress=guessing),
    "gae, averaged over all tokens": Case(GAE(), "biased", taste, outcome_and(1.0), dress=guessing, averaging="token"),
}
"""Every rule, by being listed here: rule, claim, step rewards, and what the return is."""

WORLDS = {
    "turns are steps": cave_world,
    "lines are steps": thinking_world,
    "equally many steps": level_world,
    "steps of several tokens": lambda *, turns: replace(thinking_world(turns=turns), segment=by_turn),
}


def worlds_of(case: Case) -> list[str]:
    """Where a claim is checked: in the worlds in which the policy decides how many steps it takes, if it is not about another."""
    if case.only:
        return [case.only]
    return ["turns are steps", "lines are steps"] if case.group_size * case.groups == 2 else ["turns are steps"]


@lru_cache
def world(name: str, turns: int) -> World:
    return WORLDS[name](turns=turns)


PAIRS = {f"{name}, {where}": (case, where) for name, case in CASES.items() for where in worlds_of(case)}


@pytest.mark.parametrize(("case", "where"), PAIRS.values(), ids=PAIRS)
def test_claim(case: Case, where: str) -> None:
    few = case.group_size * case.groups > 2
    here = world(where, 2 if few or where != "turns are steps" else 3)
    scored = [case.dress(here, member) for member in with_rewards(here, case.rewards)]
    true = policy_gradient(here, np.array([case.returns(member) for member in scored]))
    got = expected_gradient(here, scored, case.rule, group_size=case.group_size, groups=case.groups, averaging=case.averaging)
    if case.claim == "biased":
        assert unexplained(got, true) > 1e-3
    else:
        assert unexplained(got, true, 1.0 if case.claim == "unbiased" else case.claim) < 1e-12


DIRECTIONS = {
    "grpo": 0.98,
    "reinforce++": 0.88,
    "istar, of all rewards": 0.82,
    "process supervision": 0.93,
    "prime": 1.0,
    "repirl, whitened": 0.89,
    "min form": 1.0,
    "gigpo": 0.99,
    "counterfactual": 0.98,
}
"""Cosine between the expected and the true gradient, groups of 2 (REINFORCE++: two groups of 1); `docs/methods/index.md` shows them."""


@pytest.mark.parametrize("name", DIRECTIONS)
def test_biased_rules_go_uphill(name: str) -> None:
    case, here = CASES[name], world("turns are steps", 3)
    scored = [case.dress(here, member) for member in with_rewards(here, case.rewards)]
    true = policy_gradient(here, np.array([case.returns(member) for member in scored]))
    got = expected_gradient(here, scored, case.rule, group_size=case.group_size, groups=case.groups)
    assert case.claim == "biased"
    assert got @ true / np.linalg.norm(got) / np.linalg.norm(true) == pytest.approx(DIRECTIONS[name], abs=0.006)


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


def test_every_rule_has_a_claim() -> None:
    """A rule inside a wrapper counts, as does the wrapper."""
    checked: set[type] = set()
    for case in CASES.values():
        rule: object = case.rule
        while isinstance(rule, Whitened | Adaptive):
            checked.add(type(rule))
            rule = rule.rule
        checked.add(type(rule))
    rules = {value for name in stepwell.credit.__all__ if hasattr(value := vars(stepwell.credit)[name], "parts") and value is not Rule}
    assert rules <= checked
