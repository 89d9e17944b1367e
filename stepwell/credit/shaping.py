"""Costs that are no judge's: length, and distance from a reference.

`Overlong` changes what the end is paid, before a credit rule reads it; `charge_kl` changes advantages, after one has made them.
Legend: S step, T sampled token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepwell.credit.segment import spread
from stepwell.errors import ConfigError, CreditError
from stepwell.types import Credited, Floats, Group, Metrics, Scored

__all__ = ["Overlong", "charge_kl", "charge_metrics"]


@dataclass(frozen=True, slots=True)
class Overlong:
    """Soft overlong penalty: episodes that come near the token limit lose some of their outcome.

    With n the sampled tokens of an episode: 0 up to `limit - buffer`, then linear to `-penalty` at `limit`, and `-penalty` beyond.
    Source: DAPO, arXiv 2503.14476, equation 13 (limit 20480, buffer 4096, penalty 1). An unscored outcome stays unscored.

    Attributes:
        limit: Sampled tokens of an episode.
        buffer: Tokens over which the penalty grows; in [1, limit].
        penalty: What is lost at the limit, in units of the outcome.

    Raises (when built):
        ConfigError: a value out of range.

    >>> Overlong(limit=10, buffer=4).cost(5), Overlong(limit=10, buffer=4).cost(8), Overlong(limit=10, buffer=4).cost(12)
    (0.0, 0.5, 1.0)
    """

    limit: int
    buffer: int = 4096
    penalty: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.buffer <= self.limit:
            raise ConfigError(f"The overlong buffer is {self.buffer} tokens of a limit of {self.limit}; it lies in [1, limit].")
        if not (math.isfinite(self.penalty) and self.penalty > 0):
            raise ConfigError(f"The overlong penalty is {self.penalty}; it needs to be a positive number.")

    def cost(self, num_tokens: int) -> float:
        """What an episode of this many sampled tokens loses; in [0, penalty]."""
        return self.penalty * min(max((num_tokens - self.limit + self.buffer) / self.buffer, 0.0), 1.0)

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Scored]]:
        """The same episodes, with what is left of their outcomes."""

        def charged(scored: Scored) -> Scored:
            return scored if scored.outcome is None else replace(scored, outcome=scored.outcome - self.cost(scored.episode.num_tokens))

        return [Group(group.task, tuple(charged(member) for member in group.members)) for group in groups]


def charge_kl(groups: Sequence[Group[Credited]], coef: float) -> list[Group[Credited]]:
    """Charges every step for the divergence from the reference that it leads to: k1 in the reward, for any credit rule.

    With d_t = log pi_old - log pi_ref of sampled token t (the k1 estimate of KL, nats), step s of episode i loses
    `coef (D_s - b_s)`: D_s is the sum of d_t over all tokens from the step's first on, and b_s the mean of D_s over the other episodes
    of the group that did not fail (0 from those that have ended before step s; 0 where there is no other).

    This is the policy gradient of `E[return] - coef KL(pi || pi_ref)` over whole episodes: E[d] over a token is its KL, and E[grad d]
    is 0, so a score-function estimate with the sum to come is exact. What came before a step cannot depend on it, and b_s depends only
    on other episodes: both leave the expectation alone, also where the policy decides how many steps it takes.

    Differs from the form that adds -coef d to token rewards before a group is normalised (arXiv 2203.02155, and common in GRPO
    code): there the standard deviation of the group divides the KL term too, so that its weight depends on the outcomes.
    Here it keeps its own scale.

    Args:
        groups: With `ref_logprobs_T` and `old_logprobs_T` (both by the trainer's forward path) of all episodes that did not fail.
        coef: At least 0.

    Returns:
        The same with new advantages; the part is kept as `parts["kl"]`. Failed episodes are unchanged.

    Raises:
        ConfigError: coef is negative or not finite.
        CreditError: log-probs are missing or not finite.
    """
    if not (math.isfinite(coef) and coef >= 0.0):
        raise ConfigError(f"The weight of KL in the reward is {coef}; it needs to be a finite number of at least 0.")
    return [_charged(group, coef) for group in groups]


def _charged(group: Group[Credited], coef: float) -> Group[Credited]:
    alive = [not member.scored.episode.failed for member in group.members]
    costs = [_kl_to_go(member.scored) if counts else np.zeros(0) for member, counts in zip(group.members, alive, strict=True)]
    longest = max(map(len, costs), default=0)
    total_S = np.sum([np.pad(cost_S, (0, longest - len(cost_S))) for cost_S in costs], axis=0)
    num_others = sum(alive) - 1

    def charge(member: Credited, cost_S: Floats) -> Credited:
        others_S = (total_S[: len(cost_S)] - cost_S) / num_others if num_others else 0.0
        kl_S = -coef * (cost_S - others_S)
        return replace(member, advantages_S=member.advantages_S + kl_S, parts={**member.parts, "kl": kl_S})

    pairs = zip(group.members, costs, alive, strict=True)
    return Group(group.task, tuple(charge(member, cost_S) if counts else member for member, cost_S, counts in pairs))


def charge_metrics(scored: Sequence[Group[Scored]], charged: Sequence[Group[Scored]], credited: Sequence[Group[Credited]]) -> Metrics:
    """What was charged; names appear where something was.

    | name | meaning |
    |---|---|
    | `reward/overlong` | mean change of the outcome by `Overlong`, over episodes with an outcome; at most 0 |
    | `credit/kl_abs` | mean size of the KL part of the advantage, over sampled tokens |
    | `policy/kl_ref` | mean d (k1) over sampled tokens, nats |

    Args:
        scored: Before `Overlong`.
        charged: After it; the same object where it is off.
        credited: After `charge_kl`, or without it.
    """
    metrics: Metrics = {}
    before, after = ([member.outcome for group in groups for member in group.members] for groups in (scored, charged))
    changes = [new - old for old, new in zip(before, after, strict=True) if old is not None and new is not None]
    if scored is not charged and changes:
        metrics["reward/overlong"] = float(np.mean(changes))
    paid = [member for group in credited for member in group.members if "kl" in member.parts and member.scored.episode.num_tokens]
    if paid:
        metrics["credit/kl_abs"] = float(np.mean(np.concatenate([np.abs(spread(m.parts["kl"], m.scored.steps)) for m in paid])))
        metrics["policy/kl_ref"] = float(np.mean(np.concatenate([_distance(m.scored) for m in paid])))
    return metrics


def _kl_to_go(scored: Scored) -> Floats:
    """Sum of d over all tokens from each step's first on. [S]"""
    to_come_T = np.append(np.cumsum(_distance(scored)[::-1])[::-1], 0.0)
    return to_come_T[scored.steps.start_S]


def _distance(scored: Scored) -> Floats:
    """d of each sampled token. [T]"""
    if scored.ref_logprobs_T is None or scored.old_logprobs_T is None:
        missing = "reference's" if scored.ref_logprobs_T is None else "trainer's old"
        raise CreditError(
            f"KL in the reward needs the {missing} log-probs, and episode {scored.episode.task.key!r}, member {scored.episode.member}, has "
            "none; attach them to Scored before the charge."
        )
    d_T = scored.old_logprobs_T - scored.ref_logprobs_T
    if not np.all(np.isfinite(d_T)):
        raise CreditError(f"Log-probs of episode {scored.episode.task.key!r}, member {scored.episode.member}, hold NaN or infinity.")
    return d_T
