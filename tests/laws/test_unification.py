"""Six methods as special cases of inverse reinforcement learning, in a cave whose episodes can all be listed.

The objective (rePIRL, arXiv 2602.07832): `log Z - E_experts[R]`, `Z = sum over tau of mu(tau) exp R(tau)`, R the sum of an episode's
rewards, mu the base measure. That other methods are special cases of it is that paper's claim; how each reduces is Stepwell's own
reconstruction. Each test says what a method assumes and what is then equal, to 1e-8; then it breaks the assumption, and says by how much
the equality fails: numbers of docs/methods/unification.md. What needs episodes that
were played is in `test_unification_played`.

Legend: N episode (all there are), T turn, H turn, X state, A action, D all of [H, X, A] flattened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from typing import Literal

import numpy as np
import pytest
import torch
from every_way import (
    BEST_HXA,
    BEST_NT,
    BETA,
    FREE_HXA,
    GRAPH,
    MASK_NT,
    ONE_N,
    OPEN_HXA,
    OTHER_NT,
    REF_HXA,
    REF_NT,
    REWARD_HXA,
    SCORE_N,
    SCORES,
    SHAPE,
    SOFT,
    TURNS,
    WAYS,
    Side,
    Term,
    along,
    apart,
    batch_of,
    chance,
    gradient,
    log_table,
    reference,
    said,
    slope,
    unshaped,
    zero_of,
)
from torch import Tensor

from stepwell.envs.exact import soft_values, trajectories
from stepwell.losses import CloningLoss, DiscriminatorLoss, InverseLoss, LogRatio, OutcomeLoss, PreferenceLoss, Scalar, SoftQLoss
from stepwell.losses.inverse import Weights
from stepwell.seeding import generator
from stepwell.types import Floats, Outputs

EXACT = 1e-8
EVERY = range(len(WAYS))


def off_by(share: float) -> object:
    """As on the page."""
    return pytest.approx(share, rel=0.01)


LIKELIHOOD = InverseLoss(Scalar("none"), "raw", total="cumulative")
"""The objective, of rewards that are free numbers."""
RATIO = InverseLoss(LogRatio(BETA), "raw", total="cumulative")
"""The same of a log-ratio."""
EXPERTS = Side(chance(BEST_NT), 1.0)
"""Soft-optimal: `p(tau)` is proportional to `p_ref(tau) exp(R(tau) / beta)`."""


def sampled(policy_NT: Tensor, base_NT: Tensor = REF_NT) -> Side:
    """A policy's episodes by their probability; importance is measured against `mu = base`."""
    return Side(chance(policy_NT), 0.0, policy_NT - base_NT)


# -- the objective itself ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy_NT", "margins"), [(REF_NT, (0.426, 0.524)), (OTHER_NT, (0.729, 1.190))], ids=["reference", "another policy"]
)
def test_the_objective_is_the_experts_likelihood(policy_NT: Tensor, margins: tuple[float, float]) -> None:
    """Assumed: raw weights, sums over episodes, all episodes in the batch by their probability. Equal: the gradient of `InverseLoss` and
    that of `log Z - E_experts[R]`, which is how often the soft-optimal policy of R (`soft_values`) comes by, less how often the experts do;
    whoever samples. Broken: other weights."""
    reward_XA = FREE_HXA[0].numpy()
    table_HXA = torch.from_numpy(np.broadcast_to(reward_XA, SHAPE).copy())
    learner = soft_values(replace(GRAPH, reward_XA=reward_XA), temperature=1.0, reference=reference)
    likely_N = np.array([way.probability for way in trajectories(GRAPH, learner.policy)])
    true = np.zeros(SHAPE)
    for way, surplus in zip(WAYS, likely_N - EXPERTS.weight_N.numpy(), strict=True):
        for t, (x, a) in enumerate(zip(way.states, way.actions, strict=True)):
            true[t, x, a] += surplus
    got = gradient(LIKELIHOOD, [sampled(policy_NT), EXPERTS], table_HXA)
    assert apart(got, true.reshape(-1)) < EXACT
    broken = [apart(gradient(replace(LIKELIHOOD, weights=w), [sampled(policy_NT), EXPERTS], table_HXA), true.reshape(-1)) for w in OTHERS]
    assert broken == [off_by(margin) for margin in margins]


OTHERS: tuple[Weights, ...] = ("length", "uniform")


def test_a_log_ratio_needs_no_partition_function() -> None:
    """Assumed: a log-ratio reward with beta 1, experts' episodes, mu the reference. Equal: the gradient of the objective and that of
    cloning: Z is 1 whatever the judge says. Broken: beta is not 1."""
    sides = [sampled(OTHER_NT), EXPERTS]
    cloning = gradient(CloningLoss(), [EXPERTS], FREE_HXA)
    one = apart(gradient(replace(RATIO, form=LogRatio(1.0)), sides, FREE_HXA), cloning)
    half = apart(gradient(RATIO, sides, FREE_HXA) / BETA, cloning)
    assert one < EXACT
    assert half == off_by(0.249)


# -- DPO --------------------------------------------------------------------------------------------------------------------------


def test_dpo_is_the_objective_in_a_world_of_two_episodes() -> None:
    """Assumed: the better episode is the expert's, and the two are all that could have been, each as likely under mu, with the same
    log-ratio reward. Equal: the gradients of `PreferenceLoss` and of the objective, for every pair. Broken: weights by length, or
    importance measured by a policy that does not say both alike."""
    off: dict[str, list[float]] = {"dpo": [], "length": [], "policy": []}
    for better, worse in permutations(range(len(WAYS)), 2):
        pair = [Side(ONE_N, 1.0, None, [better]), Side(ONE_N, 0.0, None, [worse])]
        dpo = gradient(PreferenceLoss(BETA), pair, FREE_HXA)
        world = [Side(ONE_N, 1.0, None, [better]), Side(ONE_N, 0.0, None, [better, worse])]
        off["dpo"].append(apart(gradient(RATIO, world, FREE_HXA), dpo))
        off["length"].append(apart(gradient(replace(RATIO, weights="length"), world, FREE_HXA), dpo))
        off["policy"].append(apart(gradient(RATIO, [world[0], world[1]._replace(old_NT=OTHER_NT)], FREE_HXA), dpo))
    assert max(off["dpo"]) < EXACT
    assert [np.median(off["length"]), np.median(off["policy"])] == [off_by(0.201), off_by(0.490)]


def pair_of(better: int, worse: int) -> list[Side]:
    return [Side(ONE_N, 1.0, None, [better]), Side(ONE_N, 0.0, None, [worse])]


def preferred(logits_HXA: Tensor, temperature: float) -> Floats:
    """The expected gradient of DPO over all pairs of the reference's episodes, preferred as by Bradley and Terry. [D]"""
    drawn_N = chance(REF_NT)
    pairs = list(permutations(EVERY, 2))
    often = [float(drawn_N[b] * drawn_N[w] * torch.sigmoid((SCORES[b] - SCORES[w]) / temperature)) for b, w in pairs]
    return slope([Term(p, PreferenceLoss(BETA), pair_of(*pair)) for p, pair in zip(often, pairs, strict=True)])(logits_HXA)


def test_dpo_has_the_optimum_of_the_objective() -> None:
    """Assumed: pairs are preferred with the probability `sigmoid(R+ - R-)` of the reward whose soft optimum the experts are. Equal: at the
    experts' policy both gradients are 0. Broken: preferences of twice the temperature."""
    irl = float(np.linalg.norm(gradient(replace(RATIO, form=LogRatio(1.0)), [sampled(OTHER_NT), EXPERTS], BEST_HXA)))
    dpo, hotter = (float(np.linalg.norm(preferred(BEST_HXA, t))) for t in (1.0, 2.0))
    assert max(irl, dpo) < EXACT
    assert hotter / float(np.linalg.norm(preferred(REF_HXA, 1.0))) == off_by(0.439)


# -- PRIME ------------------------------------------------------------------------------------------------------------------------


def test_prime_is_the_objective_against_one_alternative_of_reward_0() -> None:
    """Assumed: an episode's world is itself and an alternative that pays 0; of a right episode the expert chose it, of a wrong one the
    alternative. Equal: the gradients of `OutcomeLoss` and of the objective, episode by episode. Broken: the alternative pays 1."""
    off: dict[str, list[float]] = {"prime": [], "paid": []}
    for n in range(len(WAYS)):
        for right in (True, False):
            prime = gradient(OutcomeLoss(BETA), [Side(ONE_N, float(right), None, [n])], FREE_HXA)
            for name, paid in (("prime", 0.0), ("paid", 1.0)):
                off[name].append(apart(against(n, right, paid), prime))
    assert max(off["prime"]) < EXACT
    assert np.median(off["paid"]) == off_by(0.461)


def against(number: int, right: bool, paid: float) -> Floats:
    """The objective's gradient where all that could have been is this episode and an alternative that is paid for."""
    leaf = FREE_HXA.clone().requires_grad_()
    own_T = BETA * (said(leaf) - REF_NT)[number]
    nothing_T = torch.where(MASK_NT[number] & (torch.arange(TURNS) == 0), paid, 0.0)
    chosen_T = own_T if right else nothing_T
    batch = batch_of([Side(ONE_N, 1.0, None, [number]), Side(ONE_N, 0.0, None, [number, number])])
    values = torch.stack([chosen_T, own_T, nothing_T])
    value, _ = LIKELIHOOD(Outputs(torch.zeros_like(values), values=values), batch)
    return np.asarray(torch.autograd.grad(value, leaf)[0].numpy().reshape(-1))


def outcome_gradient(labels_N: Tensor) -> Floats:
    """The expected gradient of PRIME's loss at the experts' policy, episodes being the reference's. [D]"""
    drawn = zip(chance(REF_NT).tolist(), labels_N.tolist(), strict=True)
    return slope([Term(p, OutcomeLoss(BETA), [Side(ONE_N, label, None, [n])]) for n, (p, label) in enumerate(drawn)])(BEST_HXA)


def test_prime_has_the_optimum_of_the_objective_where_rewards_are_normalised() -> None:
    """Assumed: an episode is right with the probability `sigmoid(R - beta log Z)`, where mu is the reference and Z of `R / beta`: rewards
    have a zero of their own. Equal: at the experts' policy the gradient is 0. Broken: `sigmoid(R)`: a constant is not free, as it is for
    DPO; and labels that are rounded to 0 and 1."""
    normalised = SCORES - BETA * SOFT.log_z
    labels = {"normalised": torch.sigmoid(normalised), "raw": torch.sigmoid(SCORES), "hard": (SCORES > 0.5).double()}
    found = {name: float(np.linalg.norm(outcome_gradient(label))) for name, label in labels.items()}
    assert found["normalised"] < EXACT
    assert [found["raw"], found["hard"]] == [off_by(0.0230), off_by(0.0714)]


def test_prime_is_a_discriminator_of_right_episodes() -> None:
    """Assumed: an episode is one target. Equal: the gradients of `OutcomeLoss` and of `DiscriminatorLoss` with a log-ratio for its logit.
    Broken: a logit for each step."""
    right, wrong = np.flatnonzero(SCORE_N > 0.5).tolist(), np.flatnonzero(SCORE_N <= 0.5).tolist()
    sides = [Side(ONE_N, 1.0, None, right), Side(ONE_N, 0.0, None, wrong)]
    prime = gradient(OutcomeLoss(BETA), sides, FREE_HXA)
    whole = apart(gradient(DiscriminatorLoss(LogRatio(BETA), 0.0), sides, FREE_HXA, whole=True), prime)
    steps = apart(gradient(DiscriminatorLoss(LogRatio(BETA), 0.0), sides, FREE_HXA), prime)
    assert whole < EXACT
    assert steps == off_by(0.694)


# -- AIRL -------------------------------------------------------------------------------------------------------------------------


def test_airl_is_the_objective_sampled_from_experts_and_policy() -> None:
    """Assumed: f is of whole episodes, its constant is right for the partition function (`E_mixture[exp f / mixture] = 1`), and importance
    is measured against half experts' and half policy's, the experts' density being `exp f`. Equal: twice the gradient of
    `DiscriminatorLoss` and that of the objective, for any f and any policy (Finn et al., arXiv 1611.03852, for GANs; here with AIRL's
    logit). Broken: a constant that is 1 off, or importance against the policy alone."""
    for seed, policy_NT in enumerate([OTHER_NT, REF_NT, BEST_NT]):
        f_HXA = torch.from_numpy(generator("f", seed).normal(size=SHAPE))
        assert airl_apart(f_HXA, policy_NT) < EXACT
    assert airl_apart(FREE_HXA, OTHER_NT, shift=1.0) == off_by(0.915)
    assert airl_apart(FREE_HXA, OTHER_NT, is_mixed=False) == off_by(1.870)


def airl_apart(free_HXA: Tensor, policy_NT: Tensor, *, shift: float = 0.0, is_mixed: bool = True) -> float:
    q_N, e_N = chance(policy_NT), EXPERTS.weight_N
    f_HXA = free_HXA.clone()
    f_HXA[0] += normalising(along(free_HXA).sum(dim=1), q_N, e_N) + shift
    sides = [Side(q_N, 0.0, policy_NT), Side(e_N, 1.0, policy_NT)]
    airl = gradient(DiscriminatorLoss(Scalar("none"), 0.0, "airl"), sides, f_HXA, whole=True)
    measure_N = (0.5 * (along(f_HXA).sum(dim=1).exp() + q_N)).log() if is_mixed else q_N.log()
    others = Side(0.5 * (q_N + e_N) if is_mixed else q_N, 0.0, first(measure_N))
    return apart(gradient(LIKELIHOOD, [others, EXPERTS], f_HXA, whole=True), 2.0 * airl)


def first(values_N: Tensor) -> Tensor:
    """At the first target of each episode. [N, T]"""
    return torch.where(torch.arange(TURNS) == 0, values_N[:, None], 0.0)


def normalising(total_N: Tensor, q_N: Tensor, e_N: Tensor) -> float:
    """The constant c with `E_mixture[exp(f + c) / ((exp(f + c) + q) / 2)] = 1`, by bisection: it rises with c."""
    low, high = -50.0, 50.0
    for _ in range(100):
        c = 0.5 * (low + high)
        mean = float((0.5 * (q_N + e_N) * torch.sigmoid(total_N + c - q_N.log()) * 2.0).sum())
        low, high = (c, high) if mean < 1.0 else (low, c)
    return 0.5 * (low + high)


def test_airl_of_steps_has_the_optimum_of_the_objective_where_policy_and_experts_agree() -> None:
    """Assumed: f is of steps, and the policy is already the experts'. Equal: at `f = log pi_expert` the gradient is 0, and beta (f - log
    pi_ref) is the reward that the objective finds, but for a potential. Broken: another policy: states are then not met as often."""
    loss = DiscriminatorLoss(Scalar("none"), 0.0, "airl")
    found = {}
    for name, policy_NT in (("experts'", BEST_NT), ("another", OTHER_NT)):
        sides = [Side(chance(policy_NT), 0.0, policy_NT), Side(EXPERTS.weight_N, 1.0, policy_NT)]
        found[name] = float(np.linalg.norm(gradient(loss, sides, BEST_HXA)))
    assert found["experts'"] < EXACT
    assert found["another"] == off_by(0.0220)


# -- one reward -------------------------------------------------------------------------------------------------------------------


def ratio(logits_HXA: Tensor) -> Tensor:
    """`beta log pi/pi_ref` of a step, in reward. [H, X, A]"""
    judge_HXA = torch.log_softmax(logits_HXA.masked_fill(~OPEN_HXA, -1e9), dim=-1)
    return torch.where(OPEN_HXA, BETA * (judge_HXA - REF_HXA), 0.0)


def by_pairs(temperature: float) -> Callable[[Tensor], Floats]:
    """DPO on each episode and the next, both ways round, as often as Bradley and Terry prefer it so."""
    pairs = [pair for n in EVERY[1:] for pair in ((n, n - 1), (n - 1, n))]
    wins = [float(torch.sigmoid((SCORES[better] - SCORES[worse]) / temperature)) for better, worse in pairs]
    return slope([Term(won, PreferenceLoss(BETA), pair_of(*pair)) for won, pair in zip(wins, pairs, strict=True)])


def by_outcomes(labels_N: Tensor) -> Callable[[Tensor], Floats]:
    """PRIME on each episode once."""
    return slope([Term(1.0, OutcomeLoss(BETA), [Side(ONE_N, label, None, [n]) for n, label in enumerate(labels_N.tolist())])])


def by_bellman(values_NT: Tensor) -> Callable[[Tensor], Floats]:
    """DQO on each episode once; V as given, before each step."""
    after_NT = torch.cat([values_NT[:, 1:], 0.0 * values_NT[:, :1]], dim=1)
    return slope([Term(1.0, SoftQLoss(BETA), [Side(ONE_N)])], returns_NT=along(REWARD_HXA) + after_NT - values_NT)


def by_discriminator(logit: Literal["f", "airl"]) -> Callable[[Tensor], Floats]:
    """AIRL, f of whole episodes."""
    sides = [Side(chance(OTHER_NT), 0.0, OTHER_NT), EXPERTS._replace(old_NT=OTHER_NT)]
    return slope([Term(1.0, DiscriminatorLoss(Scalar("none"), 0.0, logit), sides)], whole=True)


def by_likelihood(loss: InverseLoss, base_NT: Tensor = REF_NT) -> Callable[[Tensor], Floats]:
    """Another policy's episodes against the experts'."""
    return slope([Term(1.0, loss, [sampled(OTHER_NT, base_NT), EXPERTS])])


def values_NT() -> Tensor:
    """Soft values before each step. [N, T]"""
    v_HXA = torch.from_numpy(SOFT.values.v_HX[:-1, :-1, None] * np.ones(SHAPE))
    return along(v_HXA)


FOUND: dict[str, tuple[Callable[[], Tensor], float | None]] = {
    "rePIRL": (lambda: BETA * zero_of(by_likelihood(LIKELIHOOD)), None),
    "rePIRL, log-ratio": (lambda: ratio(zero_of(by_likelihood(replace(RATIO, form=LogRatio(1.0))))), None),
    "DPO": (lambda: ratio(zero_of(by_pairs(1.0))), None),
    "PRIME": (lambda: ratio(zero_of(by_outcomes(torch.sigmoid(SCORES - BETA * SOFT.log_z)))), None),
    "DQO": (lambda: ratio(zero_of(by_bellman(values_NT()))), None),
    "AIRL": (lambda: BETA * (zero_of(by_discriminator("airl")) - REF_HXA), None),
    "rePIRL, mu uniform": (lambda: BETA * zero_of(by_likelihood(LIKELIHOOD, 0.0 * REF_NT)), 0.839),
    "DPO, temperature 2": (lambda: ratio(zero_of(by_pairs(2.0))), 0.338),
    "PRIME, not normalised": (lambda: ratio(zero_of(by_outcomes(torch.sigmoid(SCORES)))), 0.581),
    "DQO, V = 0": (lambda: ratio(zero_of(by_bellman(0.0 * values_NT()))), 0.706),
    "AIRL, without log pi": (lambda: BETA * (zero_of(by_discriminator("f")) - REF_HXA), 0.774),
}


@pytest.mark.parametrize("method", list(FOUND))
def test_each_finds_the_same_reward_but_for_a_potential(method: str) -> None:
    """Assumed: as in the tests above; of DQO, V as it is in the end; every episode is learnt from. Equal: what is found from nothing, and
    what the cave pays, but for a potential of turn and state. Broken: as named with the method; the largest step reward is 1."""
    find, margin = FOUND[method]
    off = unshaped(find() - REWARD_HXA)
    assert off < EXACT if margin is None else off == off_by(margin)


def test_the_shared_optimum_pays_what_the_solver_says() -> None:
    """Equal: `beta log pi/pi_ref` of the soft-optimal policy, and `r + V(after) - V(before)`. Broken: a policy of twice the temperature."""
    hotter = log_table(soft_values(GRAPH, temperature=2 * BETA, reference=reference).policy_HXA)
    np.testing.assert_allclose(ratio(BEST_HXA).numpy(), SOFT.values.advantages_HXA, atol=EXACT)
    assert unshaped(ratio(BEST_HXA) - REWARD_HXA) < EXACT
    assert unshaped(ratio(hotter) - REWARD_HXA) == off_by(0.338)
