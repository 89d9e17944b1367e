"""Judges on the policy's hidden states say and learn the same, whether these are recalled and kept or computed each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from speakers import toy_speaker
from test_critic import COINS

from stepwell.credit import by_token
from stepwell.credit.gae import GAE
from stepwell.engine.batch import episode_rows
from stepwell.engine.local import Budget, LocalModel
from stepwell.engine.shared import SharedStates
from stepwell.engine.trunk import Trunk
from stepwell.protocols import ModelSpec, RewardLearner
from stepwell.rewards.critic import Critic, CriticSettings
from stepwell.rewards.inverse import InverseReward, InverseSettings
from stepwell.rewards.outcome import OutcomeReward
from stepwell.rewards.soft_q import SoftQReward, SoftQSettings
from stepwell.rewards.temporal import TemporalReward, TemporalSettings
from stepwell.rollout import rollout
from stepwell.types import Episode, Group, Scored

Judge = Callable[[LocalModel, LocalModel], RewardLearner]

JUDGES: dict[str, Judge] = {
    "temporal": lambda head, policy: TemporalReward(head, TemporalSettings(lr=0.1, updates=3)),
    "temporal, every token a step": lambda head, policy: TemporalReward(head, TemporalSettings(lr=0.1), by_token),
    "inverse": lambda head, policy: InverseReward(head, policy, InverseSettings(lr=0.1, updates=2)),
    "critic": lambda head, policy: Critic(OutcomeReward("success"), head, GAE(), CriticSettings(lr=0.1, updates=3)),
}


class Run(NamedTuple):
    """What was said about two batches, the head that was taught on the first, and the positions of whole rows computed meanwhile."""

    said: np.ndarray
    head: np.ndarray
    positions: int


def numbers(scored: Sequence[Group[Scored]]) -> np.ndarray:
    members = [member for group in scored for member in group.members]
    return np.concatenate([m.process_S if m.values_S is None else m.values_S for m in members])


def run(make: Judge, monkeypatch: pytest.MonkeyPatch, *, most: int, recalls: bool) -> Run:
    """Scores, learns, and scores the next batch, with the policy at rest."""
    speaker = toy_speaker(turns=3, budget=Budget(rows=5))
    policy = speaker.engine.model("policy", ModelSpec())
    head = speaker.engine.model("judge", ModelSpec(kind="head", of="policy"))
    with torch.no_grad():
        head.params["weight"].normal_(std=0.3, generator=torch.Generator().manual_seed(0))
    head.shared = SharedStates(policy, most=most)
    reward = make(head, policy)

    def play(seed: int) -> list[Group[Episode]]:
        tasks = [COINS.task(0.5, 100 * seed + g, "train") for g in range(4)]
        snapshot = policy.snapshot()
        groups = rollout(COINS, tasks, snapshot, speaker.player, group_size=4, seed=(seed,))
        if not recalls:
            snapshot.forget()
        return groups

    computed: list[int] = []
    hidden = Trunk.hidden

    def counted(self: Trunk, some: torch.Tensor) -> torch.Tensor:
        computed.append(some.numel())
        return hidden(self, some)

    monkeypatch.setattr(Trunk, "hidden", counted)
    scored = reward.score(play(0))
    reward.learn(scored)
    again = reward.score(play(1))
    monkeypatch.setattr(Trunk, "hidden", hidden)
    taught = np.concatenate([weight.detach().numpy().ravel() for weight in head.params.values()])
    return Run(np.concatenate([numbers(scored), numbers(again)]), taught, sum(computed))


@pytest.mark.parametrize("name", JUDGES)
def test_recalled_kept_or_computed_it_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run(JUDGES[name], monkeypatch, most=0, recalls=False)
    for most, recalls in ((2**27, False), (2**27, True), (0, True)):
        other = run(JUDGES[name], monkeypatch, most=most, recalls=recalls)
        np.testing.assert_allclose(other.said, plain.said, atol=1e-3, rtol=1e-3)
        np.testing.assert_allclose(other.head, plain.head, atol=1e-3, rtol=1e-3)
        assert other.positions == 0 if recalls else other.positions < plain.positions
    assert np.abs(plain.said).max() > 0.05 and plain.positions > 0


def test_values_on_a_judge_are_read_from_its_own_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Soft Q asks judge and reference, and nobody a third time."""
    speaker = toy_speaker(turns=3, budget=Budget(rows=5))
    policy = speaker.engine.model("policy", ModelSpec())
    judge = speaker.engine.model("judge", ModelSpec(of="policy"))
    head = speaker.engine.model("judge_value", ModelSpec(kind="head", of="judge"))
    with torch.no_grad():
        head.params["weight"].normal_(std=0.3, generator=torch.Generator().manual_seed(0))
    reward = SoftQReward(judge, head, SoftQSettings(form="value"))
    tasks = [COINS.task(0.5, g, "train") for g in range(4)]
    groups = rollout(COINS, tasks, policy.snapshot(), speaker.player, group_size=4, seed=(0,))
    computed: list[int] = []
    hidden = Trunk.hidden

    def counted(self: Trunk, some: torch.Tensor) -> torch.Tensor:
        computed.append(some.numel())
        return hidden(self, some)

    monkeypatch.setattr(Trunk, "hidden", counted)
    said = numbers(reward.score(groups))
    passes = sum(computed)
    computed.clear()
    judge.forward([row for group in groups for episode in group.members for row in episode_rows(episode)])
    assert passes == 2 * sum(computed) > 0
    monkeypatch.setattr(judge, "recall", lambda rows: [None] * len(rows))
    np.testing.assert_allclose(said, numbers(reward.score(groups)), atol=1e-5)
    assert np.abs(said).max() > 0.05
