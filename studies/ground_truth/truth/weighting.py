"""rePIRL's importance weights against the exact partition function.

`Z` is the sum over all episodes of `exp(R)`; the gradient of `log Z` with respect to a step's reward is how often the step is met under
`p(tau) ~ exp(R(tau))`. Both are known exactly by soft values; `InverseLoss` estimates the second from a batch of the policy's episodes.

Legend: X state, A action, D all of [X, A] flattened, R repeat.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from stepwell.credit import by_turn
from stepwell.engine.batch import pad
from stepwell.engine.states import step_end_rows
from stepwell.envs.exact import SoftValues, soft_values
from stepwell.losses import InverseLoss, Scalar
from stepwell.losses.inverse import Weights
from stepwell.protocols import OptimizerSpec
from stepwell.seeding import generator
from stepwell.types import JSON, Episode, Floats, Ids, Outputs
from truth.cells import Cell, start_of
from truth.world import SEES, Player, World, all_episodes

__all__ = ["meetings", "weighed"]

BATCHES = (16, 64)
SCHEMES: tuple[Weights, ...] = ("raw", "tempered", "length", "uniform")


def weighed(horizon: int, seed: int, repeats: int) -> JSON:
    """Bias, spread and effective sample size of each weighting, for batches of some sizes, and of `log Z` itself.

    Rewards are `tanh` of normal draws by station and door; episodes are those of a policy that is right half the time at the start.
    """
    start = start_of(Cell(horizon, "common", 0.0), seed)
    world = start.world
    policy = world.policy(world.engine(SEES["view"]), start.policy_XA, OptimizerSpec())
    player = Player(world, policy, Cell().grader, generator(seed, "weights", horizon))
    drawn = generator(seed, "rewards", horizon).normal(size=(world.turns, len(world.words)))
    turn_X = np.array([0 if key == "start" else int(key.split()[1].rstrip(",")) - 1 for key in world.graph.keys])
    reward_XA = np.tanh(drawn)[turn_X]
    soft = soft_values(replace(world.graph, reward_XA=reward_XA), temperature=1.0)
    exact_D = _by_station(meetings(world, soft), turn_X, world.turns)
    log_z = soft.log_z + world.turns * np.log(len(world.words))
    made: dict[str, JSON] = {}
    for size in BATCHES:
        estimates: dict[str, list[Floats]] = {scheme: [] for scheme in SCHEMES}
        ess: dict[str, list[float]] = {scheme: [] for scheme in SCHEMES}
        logs = []
        for _ in range(repeats):
            episodes = all_episodes(player.play(1, size))
            batch = _Met(world, episodes, reward_XA)
            for scheme in SCHEMES:
                found_D, effective = batch.estimate(scheme, turn_X)
                estimates[scheme].append(found_D)
                ess[scheme].append(effective)
            logs.append(_log_z(world, episodes, reward_XA))
        for scheme in SCHEMES:
            mean_D, all_RD = np.mean(estimates[scheme], axis=0), np.array(estimates[scheme])
            length = float(np.linalg.norm(exact_D))
            noise = float(((all_RD - mean_D) ** 2).sum(axis=1).mean())
            made[f"{scheme}-{size}"] = {
                "bias": round(_unbiased(mean_D - exact_D, noise, repeats) / length, 4),
                "spread": round(float(np.sqrt(noise)) / length, 4),
                "error": round(float(np.sqrt(((all_RD - exact_D) ** 2).sum(axis=1).mean())) / length, 4),
                "ess": round(float(np.mean(ess[scheme])), 3),
            }
        made[f"log_z-{size}"] = {"bias": round(float(np.mean(logs)) - log_z, 4), "spread": round(float(np.std(logs)), 4)}
    return made


def _unbiased(gap_D: Floats, noise: float, repeats: int) -> float:
    """The length of a mean difference, less what its noise alone would give it."""
    return float(np.sqrt(max(float((gap_D**2).sum()) - noise / repeats, 0.0)))


def meetings(world: World, soft: SoftValues) -> Floats:
    """How often each step is met in an episode of the soft-optimal policy. [X, A]"""
    over = len(world.graph.keys)
    here_X = np.zeros(over + 1)
    here_X[0] = 1.0
    met_XA = np.zeros(world.graph.reward_XA.shape)
    for turn in range(world.turns):
        now_XA = here_X[:over, None] * soft.policy_HXA[turn]
        met_XA += now_XA
        here_X = np.bincount(world.graph.next_XA.ravel(), weights=now_XA.ravel(), minlength=over + 1).astype(np.float64)
    return met_XA


class _Met:
    """The steps of a batch, as `InverseLoss` is given them."""

    def __init__(self, world: World, episodes: list[Episode], reward_XA: Floats) -> None:
        self._world, self._reward_XA = world, reward_XA
        self._places = [world.places(episode) for episode in episodes]
        rows = [
            replace(step_end_rows(episode, by_turn(episode), old_logprobs=episode.logprobs_T)[0], episode=n)
            for n, episode in enumerate(episodes)
        ]
        self._batch = pad(rows, torch.device("cpu"), torch.float64)[2]

    def estimate(self, scheme: Weights, turn_X: Ids) -> tuple[Floats, float]:
        """How often each step is met, as the batch has it: the gradient of the loss by the rewards. [D], and the tally `judge/ess`."""
        values = torch.zeros(self._batch.mask.shape, dtype=torch.float64)
        for n, (states, actions) in enumerate(self._places):
            values[n, : len(states)] = torch.from_numpy(self._reward_XA[states, actions])
        values.requires_grad_()
        value, tallies = InverseLoss(Scalar("none"), scheme, 0.1, "cumulative")(
            Outputs(torch.zeros_like(values), values=values), self._batch
        )
        slope = torch.autograd.grad(value, values)[0].numpy()
        met_XA = np.zeros(self._reward_XA.shape)
        for n, (states, actions) in enumerate(self._places):
            np.add.at(met_XA, (states, actions), slope[n, : len(states)])
        return _by_station(met_XA, turn_X, self._world.turns), tallies["judge/ess"].value


def _by_station(met_XA: Floats, turn_X: Ids, turns: int) -> Floats:
    """States of one station look alike to this judge. [D]"""
    made = np.zeros((turns, met_XA.shape[1]))
    np.add.at(made, turn_X, met_XA)
    return made.ravel()


def _log_z(world: World, episodes: list[Episode], reward_XA: Floats) -> float:
    """The log of the mean importance weight."""
    logs = []
    for episode in episodes:
        states, actions = world.places(episode)
        logs.append(float(reward_XA[states, actions].sum() - episode.logprobs_T.sum()))
    most = max(logs)
    return most + float(np.log(np.mean(np.exp(np.array(logs) - most))))
