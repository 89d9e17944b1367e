"""Math-Shepherd, DQO and PRL as special cases of inverse reinforcement learning: judges and credit through the engine.

As `test_unification`: what is assumed, what is then equal to 1e-8, and by how much it fails where the assumption is broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from every_way import (
    BETA,
    GRAPH,
    OTHER_HXA,
    REF_HXA,
    REWARD_HXA,
    SHAPE,
    SOFT,
    TURNS,
    apart,
    completer,
    log_table,
    looked_up,
    moved,
    other,
    places,
    played,
    reference,
    spoken,
    unshaped,
)
from exact_expectations import World, expected_gradient, policy_gradient
from torch import Tensor

from stepwell.credit import LeaveOneOut, SuffixLogRatio, by_turn
from stepwell.engine.batch import episode_rows
from stepwell.envs.exact import StateGraph, StatePolicy, policy_values, soft_values, uniform
from stepwell.losses import SoftQLoss
from stepwell.rewards.entropy import EntropyReward, EntropySettings
from stepwell.rewards.montecarlo import MonteCarlo, MonteCarloReward, MonteCarloSettings
from stepwell.rewards.soft_q import soft_targets
from stepwell.seeding import generator
from stepwell.types import Episode, Floats, Group, Scored

EXACT = 1e-8


def off_by(share: float) -> object:
    """As on the page."""
    return pytest.approx(share, rel=0.01)


def all_of(world: World) -> Group[Episode]:
    return Group(world.task, tuple(replace(e, member=n) for n, e in enumerate(world.episodes)))


def paid_by(reward: MonteCarloReward | EntropyReward, world: World) -> Tensor:
    """Step rewards by turn, state and action. [H, X, A]"""
    table_HXA = torch.zeros(SHAPE, dtype=torch.float64)
    [group] = reward.score([all_of(world)])
    for member in group.members:
        for place, step in zip(places(member.episode), member.rewards["judge"].tolist(), strict=True):
            assert table_HXA[place] == 0.0 or abs(table_HXA[place] - step) < EXACT, "it depends on how the state was reached"
            table_HXA[place] = step
    return table_HXA


def labels(world: World, settings: MonteCarloSettings) -> Floats:
    """Math-Shepherd's label of every step. [sum of S]"""
    found, _ = MonteCarlo(completer(world), settings)([all_of(world)])
    return np.concatenate([one.worth[1:] for one in found[0]])


def test_math_shepherd_is_the_soft_value_of_a_known_reward() -> None:
    """Assumed: the reward is known and is 0 or 1 at the end, the completer is the reference, continuations are many (here: all, each as
    often as it is likely). Equal, at any temperature T: the soft Q of the objective and `T log(1 + (exp(1 / T) - 1) p)`, p the soft label.
    So labels and soft values rank steps alike; soft labels are the limit of high T, hard ones of low T. Broken: graded rewards; a completer
    that is not the reference."""
    world = played(None)
    many = MonteCarloSettings(pay="success", continuations=3**TURNS)
    p, hard = labels(world, many), labels(world, replace(many, labels="hard"))
    graded = labels(world, replace(many, pay="score"))
    binary = replace(GRAPH, reward_XA=np.where(GRAPH.reward_XA == 1.0, 1.0, 0.0))

    def soft(temperature: float, graph: StateGraph = binary, by: StatePolicy = uniform) -> Floats:
        return looked_up(world, soft_values(graph, temperature=temperature, reference=by).values.q_HXA)

    def carried(p: Floats, temperature: float) -> Floats:
        return np.asarray(temperature * np.log1p(np.expm1(1.0 / temperature) * p))

    mean = looked_up(world, policy_values(binary, uniform).q_HXA)
    assert np.abs(p - mean).max() < EXACT
    off = {t: float(np.abs(soft(t) - carried(p, t)).max()) for t in (0.1, 0.5, 2.0)}
    ends = float(np.abs(2 * soft(2e4) - soft(1e4) - p).max()), float(np.abs(soft(1e-10) - hard).max())
    broken = float(np.abs(soft(0.5, GRAPH) - carried(graded, 0.5)).max()), float(np.abs(soft(0.5, binary, other) - carried(p, 0.5)).max())
    gap = {t: float(np.abs(soft(t) - p).max()) for t in (0.5, 5.0, 50.0)}
    assert max(off.values()) < EXACT and max(ends) < EXACT
    assert broken == (off_by(0.235), off_by(0.200))
    assert [gap[t] for t in (0.5, 5.0, 50.0)] == [off_by(0.237), off_by(0.0227), off_by(0.00223)], "how far soft labels are"


def test_math_shepherds_progress_is_the_reward_but_for_a_potential() -> None:
    """Assumed: as above, at any reward. Equal: what `form: progress` pays, and the reward, but for a potential of turn and state: the value
    under the completer. Broken: `form: value`, which pays for standing well at every step again."""
    world = played(None)
    settings = MonteCarloSettings(pay="score", continuations=3**TURNS, form="progress")
    progress, value = (MonteCarloReward(completer(world), s) for s in (settings, replace(settings, form="value")))
    assert unshaped(paid_by(progress, world) - REWARD_HXA) < EXACT
    assert unshaped(paid_by(value, world) - REWARD_HXA) == off_by(0.259)


def dressed(world: World, ref: Sequence[Floats]) -> list[Scored]:
    return [
        Scored(e, by_turn(e), e.verdict.score, {}, np.zeros(len(e.turns), np.bool_), ref_logprobs_T=ref_T, old_logprobs_T=now_T)
        for e, ref_T, now_T in zip(world.episodes, ref, spoken(world), strict=True)
    ]


def dqo_gradient(world: World, ref: Sequence[Floats], weight_N: Floats, lam: float = 1.0) -> Floats:
    """Of `SoftQLoss`, V being some function of turn and state. [D]"""
    v_HX = generator("values").normal(size=(TURNS, len(GRAPH.keys)))
    made = []
    for e, ref_T, now_T, weight in zip(world.episodes, ref, spoken(world), weight_N, strict=True):
        values = np.array([v_HX[t, x] for t, x, _ in places(e)])
        score = e.verdict.score
        assert score is not None
        returns = soft_targets(values, BETA * (now_T - ref_T), score, lam) - values
        made += episode_rows(e, step_T=np.arange(len(now_T)), weight=np.full(len(now_T), weight), returns=returns, ref_logprobs=ref_T)
    world.model.backward(made, SoftQLoss(BETA))
    gradient = world.model.gradient()
    world.model.optimizer.drop_gradient()
    return np.concatenate([gradient[context] for context in sorted(gradient)])


def test_prl_and_dqo_climb_the_same_objective() -> None:
    """Assumed: the reward is known, episodes are the policy's own, lambda is 1. Equal: what PRL's credit climbs (RLOO and the suffix
    log-ratio), `- 1 / beta` of DQO's gradient whatever its values say, and the gradient of `E[R] - beta KL(pi || pi_ref)`, the policy's
    half of inverse reinforcement learning. Broken: episodes of the reference (DQO is then another), lambda 0, PRL without its suffix."""
    world = played(reference)
    ref = spoken(world)
    world_now = moved(world, OTHER_HXA - REF_HXA)
    scored = dressed(world_now, ref)
    score_N = np.array([float(e.verdict.score or 0.0) for e in world_now.episodes])
    nats_N = np.array([(now_T - ref_T).sum() for now_T, ref_T in zip(spoken(world_now), ref, strict=True)])
    true = policy_gradient(world_now, score_N - BETA * nats_N)
    prl = {beta: expected_gradient(world_now, scored, SuffixLogRatio(LeaveOneOut(), beta)) for beta in (BETA, 0.0)}
    found = {
        "prl": apart(prl[BETA], true),
        "dqo": apart(-dqo_gradient(world_now, ref, world_now.probabilities) / BETA, true),
        "prl without": apart(prl[0.0], true),
        "dqo off": apart(-dqo_gradient(world_now, ref, world.probabilities) / BETA, true),
        "dqo lam 0": apart(-dqo_gradient(world_now, ref, world_now.probabilities, 0.0) / BETA, true),
    }
    assert max(found["prl"], found["dqo"]) < EXACT
    assert [found[name] for name in ("prl without", "dqo off", "dqo lam 0")] == [off_by(0.849), off_by(2.865), off_by(0.885)]


def test_prl_pays_the_reward_but_for_a_potential() -> None:
    """Assumed: the policy maximises `E[R] - beta KL(pi || pi_ref)`. Equal: PRL's step rewards (`EntropyReward`, immediate) and the
    potential less the reward, `V(before) - V(after) - r`; so that R and what the entropy pays from a step on add up to V there, whatever
    comes after. And nothing is left to climb. Broken: a policy of another temperature."""
    found = {}
    for name, temperature in (("optimal", BETA), ("hotter", 2 * BETA)):
        world = played(reference)
        reward = EntropyReward(world.model, EntropySettings(BETA, "immediate", pay="score"))
        ref = spoken(world)
        best = log_table(soft_values(GRAPH, temperature=temperature, reference=reference).policy_HXA)
        now = moved(world, best - REF_HXA)
        paid_HXA = paid_by(reward, now)
        gap = float(np.abs(looked_up(now, paid_HXA.numpy()) + looked_up(now, SOFT.values.advantages_HXA)).max())
        climb = expected_gradient(now, dressed(now, ref), SuffixLogRatio(LeaveOneOut(), BETA))
        found[name] = (gap, unshaped(-paid_HXA - REWARD_HXA), float(np.linalg.norm(climb)))
    assert max(found["optimal"]) < EXACT
    assert found["hotter"] == (off_by(0.480), off_by(0.338), off_by(0.0761))
