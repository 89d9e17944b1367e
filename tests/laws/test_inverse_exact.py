"""What inverse reinforcement learning finds where all trajectories can be listed: the experts' reward, up to a constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from exact_expectations import World, cave_world

from stepwell.engine.batch import episode_rows
from stepwell.engine.table import TableModel
from stepwell.losses import DiscriminatorLoss, InverseLoss, Scalar
from stepwell.losses.inverse import Weights
from stepwell.protocols import Loss, ModelSpec, OptimizerSpec
from stepwell.types import Floats, Row

TEMPERATURE = 0.3
SCALAR = Scalar("none")
_VALUES = frozenset({"values"})


class Lesson:
    """The cave with a soft-optimal expert, `p(tau) ~ exp(score / temperature)`, and a table of step rewards."""

    def __init__(self) -> None:
        self.world: World = cave_world(spread=0.7)
        self.score_N = np.array([float(episode.verdict.score or 0.0) for episode in self.world.episodes])
        expert_N = np.exp(self.score_N / TEMPERATURE)
        self.expert_N = expert_N / expert_N.sum()
        self.head: TableModel = self.world.model.engine.model(
            "judge", ModelSpec(kind="head", of="policy", optimizer=OptimizerSpec(max_grad_norm=1e9))
        )
        said = [episode_rows(episode, index=n)[0] for n, episode in enumerate(self.world.episodes)]
        self.logprobs = [made["logprobs"] for made in self.world.model.forward(said)]
        # Read behind each token; a step is a token.
        self.places = [replace(row, ids=np.append(row.ids, 0), targets=row.targets + 1) for row in said]

    def rows(self, weight_N: Floats, label: float, index: int) -> list[Row]:
        return [
            replace(row, episode=index + n, label=label, weight=np.full(len(p), w), old_logprobs=p)
            for n, (row, p, w) in enumerate(zip(self.places, self.logprobs, weight_N, strict=True))
        ]

    def learn(self, loss: Loss, updates: int, lr: float = 0.05) -> Floats:
        """As if from endlessly many episodes of each; returns the sum of rewards of every trajectory. [N]"""
        rows = [*self.rows(self.world.probabilities, 0.0, 0), *self.rows(self.expert_N, 1.0, len(self.places))]
        for _ in range(updates):
            self.head.backward(rows, loss)
            self.head.step(lr)
        return np.array([said["values"].sum() for said in self.head.forward(self.places, _VALUES)])


def test_raw_weights_recover_the_experts_reward_up_to_a_constant() -> None:
    """Maximum likelihood: R = score / temperature + constant, though the policy that is sampled from has other preferences."""
    lesson = Lesson()
    total_N = lesson.learn(InverseLoss(SCALAR, "raw", total="cumulative"), 400)
    off_N = total_N - lesson.score_N / TEMPERATURE
    assert off_N.max() - off_N.min() < 0.02
    learnt_N = np.exp(total_N) / np.exp(total_N).sum()
    np.testing.assert_allclose(learnt_N, lesson.expert_N, rtol=0.02)
    assert np.abs(np.log(lesson.world.probabilities) - np.log(lesson.expert_N)).max() > 1.0, "the policy is another"


def test_with_uniform_weights_rewards_grow_without_end_where_nothing_bounds_them() -> None:
    """No partition function: a direction in which experts and policy differ pays for ever. So rePIRL's head has a bound."""
    few, many = (np.ptp(Lesson().learn(InverseLoss(SCALAR, "uniform", total="cumulative"), n)) for n in (50, 200))
    assert many > 3 * few > 3
    bounded = Lesson().learn(InverseLoss(Scalar("tanh"), "uniform", total="cumulative"), 200)
    assert np.isfinite(bounded).all()


@pytest.mark.parametrize(("weights", "correlation"), [("raw", 1.0), ("tempered", 0.88), ("length", 0.81), ("uniform", 0.31)])
def test_what_tempering_costs_where_raw_weights_can_be_had(weights: Weights, correlation: float) -> None:
    """Correlation of learnt sums with scores, as on the page about rePIRL."""
    lesson = Lesson()
    total_N = lesson.learn(InverseLoss(SCALAR, weights, 0.5, "cumulative"), 400)
    assert np.corrcoef(total_N, lesson.score_N)[0, 1] == pytest.approx(correlation, abs=0.005)


def test_a_discriminator_recovers_the_step_wise_log_ratio_of_expert_and_policy() -> None:
    """The best logit of a step is log of how often experts reach it over how often the policy does, episodes weighing alike."""
    lesson = Lesson()
    lesson.learn(DiscriminatorLoss(SCALAR, 0.0), 600, lr=0.1)
    reached: dict[bytes, Floats] = {}
    for row, policy, expert in zip(lesson.places, lesson.world.probabilities, lesson.expert_N, strict=True):
        for target in row.targets.tolist():
            key = row.ids[:target].tobytes()
            reached[key] = reached.get(key, np.zeros(2)) + np.array([policy, expert]) / len(row.targets)
    for row, said in zip(lesson.places, lesson.head.forward(lesson.places, _VALUES), strict=True):
        best = [float(np.log(reached[row.ids[:t].tobytes()][1] / reached[row.ids[:t].tobytes()][0])) for t in row.targets.tolist()]
        np.testing.assert_allclose(said["values"], best, atol=0.02)


def effective(weights: Weights, num: int, draws: int, temper: float = 0.1) -> float:
    """Mean effective share of `num` sampled episodes, under the experts' true reward."""
    lesson, shares = Lesson(), []
    true_N = lesson.score_N / TEMPERATURE
    raw_N = true_N - np.array([p.sum() for p in lesson.logprobs])
    lengths_N = np.array([len(p) for p in lesson.logprobs])
    rng = np.random.default_rng(0)
    for _ in range(draws):
        picked = rng.choice(len(raw_N), num, p=lesson.world.probabilities)
        log_w = {"raw": raw_N, "tempered": temper * raw_N, "length": raw_N / lengths_N, "uniform": 0 * raw_N}[weights][picked]
        w = np.exp(log_w - log_w.max())
        shares.append(w.sum() ** 2 / (w**2).sum() / num)
    return float(np.mean(shares))


def test_effective_numbers_are_ordered_as_the_weights_are_tempered() -> None:
    """As on the page about rePIRL."""
    found: Sequence[float] = [effective(w, 16, 50) for w in ("raw", "length", "tempered", "uniform")]
    assert found == pytest.approx([0.379, 0.836, 0.983, 1.0], abs=0.001)
