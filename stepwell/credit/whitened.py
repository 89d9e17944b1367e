"""Whitening over the batch, and REINFORCE++, whose only baseline it is.

Legend: S steps of all members of a group, end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.credit.returns import to_go
from stepwell.credit.rule import Flat, Need, Part, Parts, Rule, check_alpha, credited
from stepwell.types import Bools, Credited, Group, Scored

__all__ = ["ReinforcePlusPlus", "Whitened", "whiten"]

_EPS = 1e-8
"""Added to the variance, as in the code of verl, OpenRLHF, PRIME and rePIRL."""


@dataclass(frozen=True, slots=True)
class Whitened:
    """Another rule's advantages, whitened: `(A - mean) / sqrt(var + 1e-8)`, over all sampled tokens of the batch that have one.

    With `OutcomeOnly(Centred())` inside it is REINFORCE++ with baseline (arXiv 2501.03262), with `Prime` the last line of PRIME, with
    `RePIRL` that of rePIRL. Tokens count alike, so a long episode moves mean and deviation more than a short one. Steps about which
    the rule has nothing to tell (failed, unscored, alone) stay 0 and enter neither. The variance divides by the number of tokens
    minus 1.

    Bias: biased. Mean and deviation hold the episode's own advantage, and the mean that is taken away weighs episodes by length.

    Raises (when built):
        ConfigError: `apart` is negative or not finite.

    Attributes:
        rule: What is whitened.
        apart: If given, outcome and process are whitened each by itself, and the process part then weighs this much (iStar's released
            variant of REINFORCE++): whitening the sum lets the part with the larger variance rule.
    """

    rule: Rule
    apart: float | None = None

    def __post_init__(self) -> None:
        if self.apart is not None:
            check_alpha(self.apart)

    @property
    def needs(self) -> frozenset[Need]:
        """What the rule inside needs."""
        return self.rule.needs

    def parts(self, groups: Sequence[Group[Scored]]) -> list[Parts]:
        """The rule's parts in units of the deviation, and the `offset` that centres them."""
        made = self.rule.parts(groups)
        return whiten(made) if self.apart is None else _whiten_apart(made, self.apart)

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return credited(self.parts(groups))


@dataclass(frozen=True, slots=True)
class ReinforcePlusPlus:
    """No comparison within a group; the sum of all rewards to come, whitened over the batch: `A_s = whiten(G_s)`.

    `G_s = alpha * r_s + discount * G_(s+1)`, where the outcome is paid at the episode's last step that has tokens. Groups of one are
    welcome: the batch is what a return is compared with.

    Source: REINFORCE++, arXiv 2501.03262 (there the process reward is a KL penalty on every token, alpha = 1). With alpha = 0 and discount
    1 it is the outcome, whitened.

    Bias: biased, as `Whitened`; and a discount below 1 forgets.

    Raises (when built):
        ConfigError: alpha is negative or not finite, or the discount lies outside [0, 1].

    Attributes:
        alpha: Weight of the process rewards.
        discount: Per step, in [0, 1].
    """

    alpha: float = 1.0
    discount: float = 1.0
    needs: ClassVar[frozenset[Need]] = frozenset()

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        to_go(np.zeros(0), self.discount)

    def parts(self, groups: Sequence[Group[Scored]]) -> list[Parts]:
        """Returns of outcome and process, and the offset, in units of the batch's deviation."""
        return whiten([self._parts(flat) for flat in map(Flat.of, groups)])

    def __call__(self, groups: Sequence[Group[Scored]]) -> list[Group[Credited]]:
        """Credits all groups."""
        return credited(self.parts(groups))

    def _parts(self, flat: Flat) -> Parts:
        told_S = flat.counts_N[flat.member_S]
        paid_S = np.zeros(flat.num_steps)
        paid_S[flat.last_steps()] = flat.spread(flat.outcome_N)[flat.last_steps()]
        outcome_S = flat.each(lambda paid: to_go(paid, self.discount), paid_S)
        process_S = self.alpha * flat.each(lambda rewards: to_go(rewards, self.discount), flat.process_S)
        process = Part(np.where(flat.scored_S, process_S, 0.0), flat.scored_S)
        return Parts(flat, {"outcome": Part(np.where(told_S, outcome_S, 0.0), told_S), "process": process})


def whiten(made: Sequence[Parts]) -> list[Parts]:
    """Every part in units of the batch's deviation, and a part `offset` that takes the mean away; see `Whitened`.

    Fewer than two tokens, or equal advantages, are 0 exactly.
    """
    told = [np.logical_or.reduce([part.told_S for part in one.parts.values()]) & (one.flat.lengths_S > 0) for one in made]
    totals = [np.sum([part.values_S for part in one.parts.values()], axis=0) for one in made]
    value = np.concatenate([np.zeros(0), *(total_S[told_S] for total_S, told_S in zip(totals, told, strict=True))])
    weight = np.concatenate([np.zeros(0), *(one.flat.lengths_S[told_S] for one, told_S in zip(made, told, strict=True))])
    tokens = weight.sum()
    if tokens < 2 or value.min() == value.max():
        return [_rescaled(one, told_S & False, 0.0, 1.0) for one, told_S in zip(made, told, strict=True)]
    mean = float((weight * value).sum() / tokens)
    variance = float((weight * (value - mean) ** 2).sum() / (tokens - 1))
    return [_rescaled(one, told_S, mean, float(np.sqrt(variance + _EPS))) for one, told_S in zip(made, told, strict=True)]


def _whiten_apart(made: Sequence[Parts], alpha: float) -> list[Parts]:
    """Each part whitened by itself; the process part and its offset weigh alpha."""
    names = dict.fromkeys(name for one in made for name in one.parts)
    found: list[dict[str, Part]] = [{} for _ in made]
    for name in names:
        weight = alpha if name == "process" else 1.0
        for parts, one in zip(found, whiten([Parts(one.flat, {name: one.parts[name]}) for one in made]), strict=True):
            offset = one.parts["offset"]
            before = parts.get("offset", Part(np.zeros(one.flat.num_steps), offset.told_S))
            parts[name] = Part(weight * one.parts[name].values_S, one.parts[name].told_S)
            parts["offset"] = Part(before.values_S + weight * offset.values_S, before.told_S | offset.told_S)
    return [Parts(one.flat, parts) for one, parts in zip(made, found, strict=True)]


def _rescaled(made: Parts, told_S: Bools, mean: float, scale: float) -> Parts:
    parts = {name: Part(np.where(told_S, part.values_S / scale, 0.0), part.told_S) for name, part in made.parts.items()}
    return Parts(made.flat, {**parts, "offset": Part(np.where(told_S, -mean / scale, 0.0), told_S)})
