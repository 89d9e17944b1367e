"""Tasks that the agent can just about do: a generator whose parameters follow the agent.

Legend: B bins of difficulty, from easy to hard.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stepwell.curriculum.bins import Bins, falling
from stepwell.curriculum.gates import accuracy_of
from stepwell.errors import ConfigError
from stepwell.types import JSON, Episode, Floats, Group, Metrics, Task

__all__ = ["Zone", "zone_weight"]

_FARTHEST = 0.2


def zone_weight(success: Floats, *, beta: float, centre: float = 0.5) -> Floats:
    """The generator's reward: `exp(-beta (p - centre)^2)`. Source: GenEnv, arXiv 2512.19682, where centre is 0.5 (there called alpha).

    >>> zone_weight(np.array([0.5, 0.8]), beta=10.0).round(3).tolist()
    [1.0, 0.407]
    """
    weights: Floats = np.exp(-beta * (success - centre) ** 2)
    return weights


class Zone:
    """Draws bins of difficulty by how near to one half the agent's success there is.

    The generator's parameters are the logits of a distribution g over bins. They maximise `E_g[R] - kl KL(g || uniform)`, R being
    `zone_weight` of the bin's success, hence `g_b = exp(R_b / kl) / sum`: where GenEnv's update, reward-weighted regression with a penalty
    for leaving the first generator, comes to rest. Each step moves them by `rate` of the way. Success must not rise with difficulty
    (`falling`).

    Estimates lag behind an agent that learns, so success would stay above the centre: what is aimed at is moved against what was
    missed, a tenth of it each step, by 0.2 at most, and never to where no bin is: far from all of them R is flat, and where even the
    easiest tasks fail more often than not the generator would draw all alike.

    Differs from the paper: the generator is a distribution over the difficulty of tasks that are known to be solvable, not a language
    model, and its fixed point is computed in place of sampled; batches are not skipped.

    Args:
        bins: Of the domain.
        beta: Sharpness of the reward.
        kl: Price of leaving the uniform distribution; smaller is narrower.
        rate: In (0, 1].
        centre: The success that is aimed at.

    Raises:
        ConfigError: A value out of range.
    """

    def __init__(self, bins: Bins, *, beta: float = 20.0, kl: float = 0.15, rate: float = 0.5, centre: float = 0.5) -> None:
        for name, value in {"beta": beta, "kl": kl}.items():
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"curriculum.{name} is {value}; it needs a positive number.")
        if not 0.0 < rate <= 1.0 or not 0.0 < centre < 1.0:
            raise ConfigError(f"curriculum.rate is {rate} and curriculum.centre {centre}; allowed are (0, 1] and between 0 and 1.")
        self.bins, self._beta, self._kl, self._rate, self._centre = bins, beta, kl, rate, centre
        self.aim = centre
        self.logits_B = np.zeros(bins.number)

    @property
    def share_B(self) -> Floats:
        """The distribution that tasks are drawn from."""
        weights_B: Floats = np.exp(self.logits_B - self.logits_B.max())
        share_B: Floats = weights_B / weights_B.sum()
        return share_B

    def draw(self, n: int, step: int) -> list[Task]:
        """The next n training tasks."""
        return self.bins.draw(n, self.share_B)

    def admit(self, group: Group[Episode]) -> bool:
        """True; the group's success is noted."""
        self.bins.see(group.task, accuracy_of(group))
        return True

    def observe(self, groups: Sequence[Group[Episode]]) -> Metrics:
        """Moves the generator."""
        difficulty, success = self.bins.end_step()
        known_B = falling(self.bins.success_B, 2.0 + self.bins.tries_B)
        if not math.isnan(success):
            moved = np.clip(self.aim + 0.1 * (self._centre - success), self._centre - _FARTHEST, self._centre + _FARTHEST)
            self.aim = float(np.clip(moved, known_B.min(), known_B.max()))
        goal_B = zone_weight(known_B, beta=self._beta, centre=self.aim) / self._kl
        self.logits_B = (1.0 - self._rate) * self.logits_B + self._rate * goal_B
        return {
            "curriculum/difficulty": difficulty,
            "curriculum/drawn": float(self.bins.drawn),
            "curriculum/success": success,
            "curriculum/reward": float((self.share_B * zone_weight(known_B, beta=self._beta, centre=self._centre)).sum()),
        }

    def state(self) -> dict[str, JSON]:
        """All between two steps."""
        return {**self.bins.state(), "logits": self.logits_B.tolist(), "aim": self.aim}

    def restore(self, state: dict[str, JSON]) -> None:
        """Goes on from `state`."""
        self.bins.restore(state)
        aim = state["aim"]
        assert isinstance(aim, float | int)
        self.aim, self.logits_B = float(aim), np.array(state["logits"], np.float64)
