"""The overlong penalty and KL in the reward, by hand and against exact gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from builders import make_group, make_scored
from torch import Tensor

from stepwell.credit.shaping import Overlong, charge_kl, charge_metrics
from stepwell.errors import ConfigError, CreditError
from stepwell.types import Credited, Floats, Group

# -- length -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "cost"), [(0, 0.0), (16384, 0.0), (18432, 0.5), (20480, 1.0), (30000, 1.0)])
def test_dapos_overlong_penalty(tokens: int, cost: float) -> None:
    assert Overlong(limit=20480).cost(tokens) == cost
    assert Overlong(limit=20480, penalty=0.2).cost(tokens) == pytest.approx(0.2 * cost)


def test_the_outcome_is_charged_once_an_episode() -> None:
    """Over all its turns; an episode without outcome keeps none, and a failed one too."""
    group = make_group(
        make_scored([2, 2], outcome=1.0),
        make_scored([4, 4], outcome=0.0),
        make_scored([9], outcome=None),
        make_scored([9], outcome=None, failed=True),
    )
    charged = Overlong(limit=8, buffer=4)([group])
    assert [member.outcome for member in charged[0].members] == [1.0, -1.0, None, None]
    assert [member.episode for member in charged[0].members] == [member.episode for member in group.members]
    assert charge_metrics([group], charged, []) == {"reward/overlong": -0.5}
    same = [group]
    assert charge_metrics(same, same, []) == {}


@pytest.mark.parametrize(
    ("settings", "message"), [((8, 9), "lies in"), ((8, 0), "lies in"), ((8, 4, 0.0), "needs to be a positive number")]
)
def test_penalties_that_cannot_work_are_refused(settings: tuple[int, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Overlong(*settings)


# -- divergence ---------------------------------------------------------------------------------------------------------------


def credited(lengths: list[int], distance_T: list[float], advantage: float = 0.0, *, failed: bool = False) -> Credited:
    """An episode whose policy is `distance_T` nats from its reference."""
    scored = make_scored(lengths, outcome=None if failed else 1.0, failed=failed)
    scored = replace(scored, old_logprobs_T=np.full(len(distance_T), -1.0), ref_logprobs_T=-1.0 - np.array(distance_T))
    return Credited(scored, np.full(len(lengths), advantage), {"outcome": np.full(len(lengths), advantage)})


def group_of(*members: Credited) -> Group[Credited]:
    return Group(members[0].scored.episode.task, members)


def test_three_short_episodes_by_hand() -> None:
    """To go: [0.6, 0.4] (steps of 2 and 1 tokens), [0.2] and [0, -0.1, 0.1]; each loses its own minus the mean of the two others."""
    group = group_of(
        credited([2, 1], [0.1, 0.1, 0.4], 1.0),
        credited([1], [0.2], -0.5),
        credited([1, 1, 1], [0.1, -0.2, 0.1], -0.5),
        credited([1], [9.0], failed=True),
    )
    (charged,) = charge_kl([group], 0.5)
    expected = [[0.6 - 0.1, 0.4 - (-0.05)], [0.2 - 0.3], [0.0 - 0.4, -0.1 - 0.2, 0.1]]
    for member, before, excess in zip(charged.members, group.members, expected, strict=False):
        assert member.parts["kl"] == pytest.approx(-0.5 * np.array(excess))
        np.testing.assert_allclose(member.advantages_S, before.advantages_S + member.parts["kl"])
    assert charged.members[3] is group.members[3]
    metrics = charge_metrics([], [], [charged])
    assert metrics["policy/kl_ref"] == pytest.approx((0.6 + 0.2 + 0.0) / 7)
    assert metrics["credit/kl_abs"] == pytest.approx(0.5 * (2 * 0.5 + 0.45 + 0.1 + 0.4 + 0.3 + 0.1) / 7)


def test_a_lone_episode_is_charged_all() -> None:
    (charged,) = charge_kl([group_of(credited([1, 1], [0.3, -0.1]))], 2.0)
    assert charged.members[0].advantages_S == pytest.approx([-0.4, 0.2])


def test_at_the_reference_nothing_is_charged() -> None:
    """U50: exactly nothing, for the same log-probs."""
    (charged,) = charge_kl([group_of(credited([2], [0.0, 0.0], 1.0), credited([1], [0.0], -1.0))], 0.5)
    assert [member.advantages_S.tolist() for member in charged.members] == [[1.0], [-1.0]]


def test_what_is_missing_is_said() -> None:
    member = credited([2], [0.1, 0.2])
    without = {"reference's": replace(member.scored, ref_logprobs_T=None), "trainer's old": replace(member.scored, old_logprobs_T=None)}
    for whose, scored in without.items():
        with pytest.raises(CreditError, match=f"needs the {whose} log-probs, and episode 'test/0', member 0, has none"):
            charge_kl([group_of(replace(member, scored=scored))], 0.1)
    with pytest.raises(CreditError, match="hold NaN or infinity"):
        charge_kl([group_of(credited([1], [math.nan]))], 0.1)
    with pytest.raises(ConfigError, match=r"weight of KL in the reward is -0\.1"):
        charge_kl([], -0.1)


# -- exact expectations -------------------------------------------------------------------------------------------------------

PATHS = ((1,), (0, 1), (0, 0))
"""Token 1 ends the episode, or two tokens have been said: the policy decides how many steps it takes."""


def path_logprobs(theta: Tensor, path: tuple[int, ...]) -> Tensor:
    """Log-prob of each token; the state is how many came before."""
    return torch.stack([torch.log_softmax(theta[i], 0)[token] for i, token in enumerate(path)])


def episodes(theta: Tensor, ref: Tensor) -> Iterator[tuple[Tensor, Tensor, Floats, Floats]]:
    """For each path its log-prob and those of its tokens, and the same as arrays, with the reference's."""
    for path in PATHS:
        logprobs = path_logprobs(theta, path)
        yield logprobs.sum(), logprobs, logprobs.detach().numpy(), path_logprobs(ref, path).numpy()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_expected_gradient_is_that_of_the_exact_divergence(size: int) -> None:
    """Over all groups of 1, 2 and 3 episodes, of one or two steps each: unbiased, to rounding."""
    generator = torch.Generator().manual_seed(3)
    theta = torch.randn(2, 2, generator=generator, dtype=torch.float64).requires_grad_()
    ref = torch.randn(2, 2, generator=generator, dtype=torch.float64)
    found = list(episodes(theta, ref))
    exact = sum((whole.exp() * (logprobs - torch.from_numpy(said)).sum() for whole, logprobs, _, said in found), torch.zeros(()))
    (wanted,) = torch.autograd.grad(-0.7 * exact, theta, retain_graph=True)
    surrogate = torch.zeros((), dtype=torch.float64)
    for picked in itertools.product(found, repeat=size):
        probability = math.exp(sum(whole.item() for whole, *_ in picked))
        members = []
        for _, _, old_T, ref_T in picked:
            scored = make_scored([1] * len(old_T), outcome=1.0)
            members.append(Credited(replace(scored, old_logprobs_T=old_T, ref_logprobs_T=ref_T), np.zeros(len(old_T))))
        (charged,) = charge_kl([group_of(*members)], 0.7)
        for member, (_, logprobs, _, _) in zip(charged.members, picked, strict=True):
            surrogate = surrogate + probability / size * (torch.from_numpy(member.advantages_S) * logprobs).sum()
    (expected,) = torch.autograd.grad(surrogate, theta)
    assert torch.allclose(expected, wanted, atol=1e-12)
    assert wanted.abs().max() > 0.05
