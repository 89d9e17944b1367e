"""Generalised advantage estimation: by hand, by its laws, and by the exact gradient that it estimates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from builders import make_episode, make_group, make_scored, make_task
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stepwell.credit import Whitened, by_token, by_turn, needs_of, to_go
from stepwell.credit.gae import GAE, lambda_advantages
from stepwell.engine.batch import policy_rows
from stepwell.errors import ConfigError, CreditError
from stepwell.losses import token_weights
from stepwell.protocols import Assign
from stepwell.types import (
    Action,
    Credited,
    Ending,
    EndingKind,
    Episode,
    Floats,
    Group,
    Observation,
    Reply,
    Scored,
    Stop,
    Turn,
    Verdict,
)

PLAIN, WHITE = GAE(), Whitened(GAE())
numbers = st.integers(-1000, 1000).map(lambda n: n / 100)
factors = st.sampled_from([0.0, 0.3, 0.9, 1.0])
few = settings(max_examples=40)


def valued(
    values: Sequence[float],
    *,
    outcome: float | None = 1.0,
    process: Sequence[float | None] | None = None,
    kind: EndingKind = EndingKind.TERMINATED,
    final: float | None = None,
    lengths: Sequence[int] | None = None,
) -> Scored:
    """A scored episode with a critic's values, one turn of two tokens for each unless `lengths` says otherwise."""
    made = make_scored([2] * len(values) if lengths is None else lengths, outcome=outcome, process=process)
    episode = replace(made.episode, ending=Ending(kind, "as the test says"))
    return replace(made, episode=episode, values_S=np.array(values, np.float64), final_value=final)


def credit(rule: Assign, *members: Scored) -> list[Floats]:
    return [member.advantages_S for member in rule([make_group(*members)])[0].members]


# -- by hand ------------------------------------------------------------------------------------------------------------------


def test_three_episodes_by_hand() -> None:
    """A success, a failure with a process reward, and one that was cut: deltas [.1, .5], [.1, -.6] and [.2]; lam .5."""
    won = valued([0.4, 0.5], outcome=1.0)
    lost = valued([0.4, 0.5], outcome=0.0, process=[0.0, -0.1])
    cut = valued([0.4], outcome=0.0, kind=EndingKind.TRUNCATED, final=0.6)
    rule = GAE(lam=0.5)
    for found, expected in zip(credit(rule, won, lost, cut), ([0.35, 0.5], [-0.2, -0.6], [0.2]), strict=True):
        assert found == pytest.approx(np.array(expected))
    returns = [estimate.returns_S for estimate in rule.estimate([won, lost, cut])]
    assert [r.round(9).tolist() for r in returns] == [[0.75, 1.0], [0.2, -0.1], [0.6]]


def test_whitening_is_over_the_tokens_of_all_groups() -> None:
    groups = [make_group(valued([0.4, 0.5])), make_group(valued([0.1], outcome=0.0, lengths=[6]), valued([0.0, 0.2], outcome=0.0))]
    raw = np.concatenate([member.advantages_S for group in PLAIN(groups) for member in group.members])
    white = np.concatenate([member.advantages_S for group in WHITE(groups) for member in group.members])
    weight = np.array([2, 2, 6, 2, 2])
    mean = (weight * raw).sum() / 14
    assert white == pytest.approx((raw - mean) / np.sqrt((weight * (raw - mean) ** 2).sum() / 13 + 1e-8))


def test_parts_say_where_the_advantage_comes_from() -> None:
    """With lam .5: the outcome, the process rewards and the values, each summed alike; their sum is the advantage."""
    member = valued([0.4, 0.5], outcome=1.0, process=[0.2, -0.1])
    (credited,) = GAE(lam=0.5)([make_group(member)])[0].members
    assert credited.parts["outcome"] == pytest.approx(np.array([0.5, 1.0]))
    assert credited.parts["process"] == pytest.approx(np.array([0.15, -0.1]))
    assert credited.parts["values"] == pytest.approx(np.array([0.1 - 0.25, -0.5]))
    assert credited.advantages_S == pytest.approx(sum(credited.parts.values()))


@pytest.mark.parametrize(
    ("kind", "rule", "paid", "after"),
    [
        (EndingKind.TERMINATED, PLAIN, 0.3, 0.0),
        (EndingKind.TURN_LIMIT, PLAIN, 0.3, 0.0),
        (EndingKind.TRUNCATED, PLAIN, 0.0, 0.7),
        (EndingKind.TRUNCATED, GAE(truncated="graded"), 0.3, 0.0),
    ],
)
def test_what_comes_after_the_end_depends_on_the_ending(kind: EndingKind, rule: GAE, paid: float, after: float) -> None:
    """The turn limit is a part of the task; a cut episode has not reached its outcome, and the critic speaks in its place (U53)."""
    member = valued([0.2, 0.5], outcome=0.3, process=[0.1, 0.2], kind=kind, final=0.7)
    last = 0.2 + paid + after - 0.5
    assert credit(rule, member)[0] == pytest.approx(np.array([0.1 + 0.5 - 0.2 + last, last]))
    assert rule.bootstraps(member) == (after != 0)


def test_a_failed_episode_counts_nowhere() -> None:
    good = [valued([0.4, 0.5]), valued([0.2], outcome=0.0)]
    failed = make_scored([2, 2], outcome=None, failed=True)
    among = credit(WHITE, good[0], failed, good[1])
    assert not among[1].any()
    for alone, found in zip(credit(WHITE, *good), (among[0], among[2]), strict=True):
        assert np.array_equal(alone, found)
    estimate = PLAIN.estimate([failed])[0]
    assert not estimate.counts_S.any() and not estimate.returns_S.any()


def test_an_unscored_outcome_is_not_a_failure() -> None:
    """Taken as 0 it would say that every step was worse than expected."""
    known, unknown = valued([0.4, 0.5]), valued([0.4, 0.5], outcome=None, process=[0.5, 0.5])
    found = credit(PLAIN, known, unknown)
    assert found[0] == pytest.approx(np.array([0.6, 0.5]))
    assert not found[1].any()
    process_alone = GAE(outcome_weight=0.0)
    assert credit(process_alone, unknown)[0] == pytest.approx(np.array([0.6, 0.0]))
    assert credit(process_alone, known)[0] == pytest.approx(np.array([-0.4, -0.5])), "paid nothing, by setting"
    cut = replace(unknown, episode=replace(unknown.episode, ending=Ending(EndingKind.TRUNCATED, "full")), final_value=0.1)
    assert credit(PLAIN, cut)[0] == pytest.approx(np.array([0.7, 0.1])), "it would not have been paid its outcome anyway"


def test_an_unscored_step_is_skipped_by_the_sums() -> None:
    member = valued([0.0, 0.0, 0.0], outcome=1.0, process=[0.5, None, 0.25])
    assert credit(PLAIN, member)[0] == pytest.approx(np.array([1.75, 1.25, 1.25]))
    half = GAE(alpha=0.5, outcome_weight=2.0)
    assert credit(half, member)[0] == pytest.approx(np.array([2.375, 2.125, 2.125]))


def test_a_step_without_tokens_is_no_decision() -> None:
    """Its reward belongs to the step before it, no discount is spent on it; before the first decision there is nobody to credit."""
    lengths, process = [0, 2, 0, 2, 0], [9.0, 0.1, 0.2, 0.4, 0.8]
    member = valued([7.0, 0.5, 7.0, 0.25, 7.0], outcome=1.0, process=process, lengths=lengths)
    same = lambda_advantages(np.array([0.1 + 0.2, 0.4 + 0.8 + 1.0]), np.array([0.5, 0.25]), discount=0.5, lam=0.5)
    found = credit(GAE(discount=0.5, lam=0.5), member)[0]
    assert found == pytest.approx(np.array([0.0, same[0], 0.0, same[1], 0.0]))
    estimate = PLAIN.estimate([member])[0]
    assert estimate.counts_S.tolist() == [False, True, False, True, False]
    nothing = valued([], outcome=1.0)
    assert [part.tolist() for part in PLAIN.estimate([nothing])[0]] == [[], [], []]
    assert credit(WHITE, nothing)[0].shape == (0,)
    assert WHITE([]) == []


# -- cases --------------------------------------------------------------------------------------------------------------------


def spoken(actions: Sequence[int], observed: int) -> Episode:
    """Turns of so many tokens, and `observed` tokens of the environment after each."""
    context, turns = [1], []
    for n in actions:
        ids = list(range(10, 10 + n))
        turns.append(
            Turn(np.array(context), np.array(ids), np.full(n, -1.0), "a", Action("a"), Reply(Observation("seen")), Stop.EOS, version=0)
        )
        context = [*context, *ids, *[5] * observed]
    return Episode(make_task(), 0, Observation("start"), tuple(turns), Ending(EndingKind.TERMINATED), Verdict.of(1.0))


@pytest.mark.parametrize("observed", [0, 1, 2, 50])
@pytest.mark.parametrize("actions", [(2,), (1, 1)])
def test_observation_tokens_neither_absorb_nor_decay_the_reward(observed: int, actions: tuple[int, ...]) -> None:
    """U24: two trained tokens, V = 0, gamma 1, lambda .9, reward 1: [.9, 1], in the very rows that train (faulty: [.729, .81])."""
    episode = spoken(actions, observed)
    steps = by_token(episode)
    scored = Scored(episode, steps, 1.0, {}, np.zeros(len(steps), np.bool_), values_S=np.zeros(len(steps)))
    credited = GAE(lam=0.9)([Group(episode.task, (scored,))])
    rows = policy_rows(credited, lambda n: token_weights(n, "token"), lambda s: s.episode.logprobs_T)
    assert np.concatenate([row.advantage for row in rows]) == pytest.approx(np.array([0.9, 1.0]))


def test_the_first_reward_moves_the_first_step_alone() -> None:
    """U27: 3 turns with rewards (.2, 0, 1): per-turn returns are 1.2, 1, 1."""
    returns = [PLAIN.estimate([valued([0.5, 0.25, 0.1], outcome=0.0, process=[r, 0.0, 1.0])])[0].returns_S for r in (0.2, 0.7)]
    assert returns[0] == pytest.approx(np.array([1.2, 1.0, 1.0]))
    assert returns[1] - returns[0] == pytest.approx(np.array([0.5, 0.0, 0.0]))


def test_whitening_nothing_or_one_step_is_zero() -> None:
    """U30: finite, and 0."""
    assert not credit(WHITE, make_scored([2], outcome=None, failed=True))[0].any()
    assert credit(WHITE, valued([0.3], lengths=[1]))[0].tolist() == [0.0]
    assert credit(WHITE, valued([0.3]), valued([0.3]))[1].tolist() == [0.0], "equal, exactly"


# -- laws ---------------------------------------------------------------------------------------------------------------------


@st.composite
def members(draw: st.DrawFn) -> Scored:
    """Any episode with values: any ending, unscored outcome or steps, turns without tokens."""
    lengths = draw(st.lists(st.integers(0, 3), max_size=6))
    n = len(lengths)
    process = draw(st.lists(st.none() | numbers, min_size=n, max_size=n))
    values = draw(st.lists(numbers, min_size=n, max_size=n))
    kind = draw(st.sampled_from(list(EndingKind)))
    made = valued(values, outcome=draw(st.none() | numbers), process=process, kind=kind, final=draw(numbers), lengths=lengths)
    return make_scored(lengths, outcome=None, process=process, failed=True) if kind is EndingKind.FAILED else made


rules = st.builds(GAE, factors, factors, st.sampled_from([0.0, 1.0]), st.sampled_from([0.5, 1.0]))
batches = st.lists(members(), min_size=1, max_size=6)


def slowly(rule: GAE, member: Scored) -> Floats:
    """The definition, term by term."""
    advantages_S = np.zeros(len(member.steps))
    has = np.flatnonzero(member.steps.lengths_S > 0)
    cut = member.episode.ending.kind is EndingKind.TRUNCATED
    if member.episode.failed or not len(has) or (member.outcome is None and rule.outcome_weight and not cut):
        return advantages_S
    assert member.values_S is not None and member.final_value is not None
    rewards = np.array([rule.alpha * member.process_S[s : (*has[1:], len(member.steps))[i]].sum() for i, s in enumerate(has)])
    rewards[-1] += 0.0 if cut or member.outcome is None else rule.outcome_weight * member.outcome
    values = np.append(member.values_S[has], member.final_value if cut else 0.0)
    delta = rewards + rule.discount * values[1:] - values[:-1]
    for i, s in enumerate(has):
        advantages_S[s] = sum((rule.discount * rule.lam) ** k * d for k, d in enumerate(delta[i:]))
    return advantages_S


@few
@given(rules, batches)
def test_a_batch_is_the_definition_of_each(rule: GAE, batch: list[Scored]) -> None:
    for estimate, member in zip(rule.estimate(batch), batch, strict=True):
        assert np.allclose(estimate.advantages_S, slowly(rule, member), atol=1e-9)
        if member.values_S is not None:
            expected = np.where(estimate.counts_S, estimate.advantages_S + member.values_S, 0.0)
            assert np.allclose(estimate.returns_S, expected, atol=1e-9)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8), factors, factors, numbers)
def test_the_ends_of_lambda(pairs: list[tuple[float, float]], discount: float, lam: float, after: float) -> None:
    """lam=1: the sum of rewards to come (and the discounted value after the end) minus the value; lam=0: one step."""
    rewards, values = np.array(pairs).T
    paid = rewards.copy()
    paid[-1] += discount * after
    one = lambda_advantages(rewards, values, after=after, discount=discount, lam=1.0)
    assert np.allclose(one, to_go(paid, discount) - values, atol=1e-9)
    zero = lambda_advantages(rewards, values, after=after, discount=discount, lam=0.0)
    assert np.allclose(zero, rewards + discount * np.append(values[1:], after) - values, atol=1e-9)
    returns = lambda_advantages(rewards, values, after=after, discount=discount, lam=lam) + values
    following = np.append(returns[1:], after)
    mixed = rewards + discount * (lam * following + (1 - lam) * np.append(values[1:], after))
    assert np.allclose(returns, mixed, atol=1e-9), "lambda-returns mix what came and what was expected"


@few
@given(batches)
def test_order_and_company_do_not_matter(batch: list[Scored]) -> None:
    order = np.random.default_rng(len(batch)).permutation(len(batch))
    found, shuffled = GAE(lam=0.5).estimate(batch), GAE(lam=0.5).estimate([batch[i] for i in order])
    for place, i in enumerate(order):
        assert np.array_equal(found[i].advantages_S, shuffled[place].advantages_S)
        alone = GAE(lam=0.5).estimate([batch[i]])[0]
        assert np.array_equal(found[i].advantages_S, alone.advantages_S)


@few
@given(batches)
def test_whitening_leaves_out_what_does_not_count(batch: list[Scored]) -> None:
    raw, white = GAE(lam=0.5).estimate(batch), credit(Whitened(GAE(lam=0.5)), *batch)
    weights = [np.where(e.counts_S, m.steps.lengths_S, 0) for e, m in zip(raw, batch, strict=True)]
    assert not any(w[~e.counts_S].any() for w, e in zip(white, raw, strict=True))
    assert abs(sum(float(weight @ w) for weight, w in zip(weights, white, strict=True))) < 1e-6
    size = sum(float(weight @ w**2) for weight, w in zip(weights, white, strict=True))
    assert size == 0.0 or size == pytest.approx(sum(int(weight.sum()) for weight in weights) - 1, rel=1e-3)


@few
@given(batches)
def test_what_stands_at_places_that_do_not_count_does_not_matter(batch: list[Scored]) -> None:
    def changed(member: Scored) -> Scored:
        rewards = {"judge": np.where(member.scored_S, member.rewards["judge"], 77.0)}
        values = None if member.values_S is None else np.where(member.steps.lengths_S > 0, member.values_S, 55.0)
        return replace(member, rewards=rewards, values_S=values)

    for before, after in zip(credit(WHITE, *batch), credit(WHITE, *map(changed, batch)), strict=True):
        assert np.array_equal(before, after)


# -- what it estimates --------------------------------------------------------------------------------------------------------

PAID = (0.2, 1.0, 0.4, 0.3)
"""Of stopping in state 0, 1, 2, and of going on from the last one, where the turn limit ends it."""
COST = -0.05
"""Process reward of going on."""
THETA = torch.tensor([0.3, -0.4, 0.8], dtype=torch.float64)


def trajectories(theta: Tensor, limit: int = 3) -> list[tuple[Tensor, list[Tensor], list[float], float | None]]:
    """Every episode: its log-probability, its steps' log-probabilities, process rewards, and outcome (None where it was cut)."""
    go, stop = torch.nn.functional.logsigmoid(theta), torch.nn.functional.logsigmoid(-theta)
    made: list[tuple[Tensor, list[Tensor], list[float], float | None]] = []
    for n in range(limit):
        steps = [*go[:n], stop[n]]
        made.append((torch.stack(steps).sum(), steps, [COST] * n + [0.0], PAID[n]))
    made.append((go[:limit].sum(), list(go[:limit]), [COST] * limit, PAID[3] if limit == 3 else None))
    return made


def true_values() -> Floats:
    go, values, later = torch.sigmoid(THETA).tolist(), [], PAID[3]
    for p, paid in zip(reversed(go), reversed(PAID[:3]), strict=True):
        later = p * (COST + later) + (1 - p) * paid
        values.append(later)
    return np.array(values[::-1])


def exact_gradient() -> Tensor:
    theta = THETA.clone().requires_grad_()
    total = sum((logp.exp() * (sum(costs) + (paid or 0.0)) for logp, _, costs, paid in trajectories(theta)), torch.zeros(()))
    return torch.autograd.grad(total, theta)[0]


def scored_of(costs: Sequence[float], paid: float | None, values: Floats) -> Scored:
    """How a trajectory looks to the rule. Where it was cut, the critic speaks of the state that comes next."""
    n = len(costs)
    if paid is None:
        return valued(values[:n].tolist(), outcome=0.9, process=costs, kind=EndingKind.TRUNCATED, final=float(values[n]), lengths=[1] * n)
    return valued(values[:n].tolist(), outcome=paid, process=costs, lengths=[1] * n)


def expected_gradient(rule: Assign, values: Floats, *, limit: int = 3, batch: int = 1) -> Tensor:
    """E of the mean over the batch of `sum over steps of A_s grad log pi_s`, over every batch of so many episodes."""
    theta = THETA.clone().requires_grad_()
    every = trajectories(theta, limit)
    total = torch.zeros(3, dtype=torch.float64)
    for picked in np.ndindex(*[len(every)] * batch):
        chosen = [every[i] for i in picked]
        advantages = credit(rule, *(scored_of(costs, paid, values) for _, _, costs, paid in chosen))
        chance = math.exp(sum(float(logp.detach()) for logp, *_ in chosen))
        terms = [
            a * logp for (_, steps, *_), adv in zip(chosen, advantages, strict=True) for a, logp in zip(adv.tolist(), steps, strict=True)
        ]
        (grad,) = torch.autograd.grad(torch.stack(terms).sum() / batch, theta, retain_graph=True)
        total += chance * grad
    return total


WRONG = np.array([0.9, -0.5, 0.3])


@pytest.mark.parametrize(
    ("rule", "values", "unbiased"),
    [
        (PLAIN, WRONG, True),
        (PLAIN, true_values(), True),
        (GAE(lam=0.5), true_values(), True),
        (GAE(lam=0.0), true_values(), True),
        (GAE(lam=0.5), WRONG, False),
        (GAE(lam=0.0), WRONG, False),
        (GAE(discount=0.8), WRONG, False),
    ],
)
def test_what_is_said_about_bias(rule: GAE, values: Floats, unbiased: bool) -> None:
    """The policy decides how long an episode is: one to three steps."""
    distance = float((expected_gradient(rule, values) - exact_gradient()).abs().max())
    assert distance < 1e-12 if unbiased else distance > 1e-3


def test_whitening_is_biased_even_in_direction() -> None:
    found, exact = expected_gradient(WHITE, WRONG, batch=2), exact_gradient()
    cosine = torch.nn.functional.cosine_similarity(found, exact, dim=0)
    assert cosine < 0.999
    assert torch.allclose(expected_gradient(PLAIN, WRONG, batch=2), exact, atol=1e-12)


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_a_cut_with_the_true_value_is_as_good_as_going_on(lam: float) -> None:
    """Cut after two steps: where the policy acted, the gradient is that of the whole task. Taken as graded (0.9), it is not."""
    found = expected_gradient(GAE(lam=lam), true_values(), limit=2)
    assert torch.allclose(found[:2], exact_gradient()[:2], atol=1e-12)
    graded = expected_gradient(GAE(lam=lam, truncated="graded"), true_values(), limit=2)
    assert (graded[:2] - exact_gradient()[:2]).abs().max() > 1e-2


# -- bad input ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings_", "match"),
    [
        ({"discount": 1.5}, r"credit\.discount is 1\.5; it lies in \[0, 1\]"),
        ({"lam": -0.1}, r"credit\.lam is -0\.1"),
        ({"lam": math.nan}, r"credit\.lam is nan"),
        ({"alpha": -1.0}, r"credit\.alpha is -1\.0; allowed is a finite number"),
        ({"outcome_weight": math.inf}, r"credit\.outcome_weight is inf"),
        ({"alpha": 0.0, "outcome_weight": 0.0}, "nothing is paid"),
        ({"truncated": "grade"}, "credit.truncated is 'grade'; did you mean 'graded'"),
    ],
)
def test_settings_that_cannot_work(settings_: dict[str, float], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        GAE(**settings_)  # type: ignore[arg-type]


def test_what_is_missing_is_said() -> None:
    assert needs_of(PLAIN) == {"values"}
    with pytest.raises(CreditError, match=r"Member 0 of task 'test/0' has no values.*credit\.kind=gae"):
        credit(PLAIN, make_scored([2], outcome=1.0))
    with pytest.raises(CreditError, match=r"was truncated and has no final_value.*credit\.truncated=graded"):
        credit(PLAIN, valued([0.5], kind=EndingKind.TRUNCATED))
    with pytest.raises(CreditError, match="outcomes are finite, and None where there is no score"):
        credit(PLAIN, replace(valued([0.5]), outcome=math.nan))
    with pytest.raises(CreditError, match="2 rewards and 1 values"):
        lambda_advantages(np.zeros(2), np.zeros(1))
    with pytest.raises(CreditError, match="NaN or infinity"):
        lambda_advantages(np.zeros(2), np.array([0.0, math.nan]))
    with pytest.raises(CreditError, match="NaN or infinity"):
        lambda_advantages(np.zeros(1), np.zeros(1), after=math.inf)
    assert lambda_advantages(np.zeros(0), np.zeros(0)).shape == (0,)


@pytest.mark.parametrize("values", [{"values_S": np.array([math.nan])}, {"final_value": math.inf}])
def test_values_that_are_no_numbers_are_refused_where_they_are_made(values: dict[str, Floats]) -> None:
    with pytest.raises(ValueError, match=r"(values_S|final_value) holds NaN or infinity; values are finite, and None where"):
        replace(make_scored([2], outcome=1.0), **values)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="values_S has 2 entries; the episode has 1 steps"):
        replace(make_scored([2], outcome=1.0), values_S=np.zeros(2))


def test_turns_are_the_default_step() -> None:
    episode = make_episode([3, 1])
    steps = by_turn(episode)
    scored = Scored(episode, steps, 1.0, {}, np.zeros(2, np.bool_), values_S=np.array([0.25, 0.5]))
    made: list[Group[Credited]] = PLAIN([Group(episode.task, (scored,))])
    assert made[0].members[0].advantages_S == pytest.approx(np.array([0.75, 0.5]))
