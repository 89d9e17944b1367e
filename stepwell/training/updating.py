"""One batch of credited episodes, and what the policy makes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stepwell.engine.batch import episode_rows, join, policy_rows
from stepwell.losses import PolicyLoss, Watched, token_weights
from stepwell.protocols import Model, Policy
from stepwell.seeding import generator
from stepwell.training.plan import Learning
from stepwell.types import Credited, Episode, Floats, Group, Metrics, Row, Scored

__all__ = ["update", "with_old", "with_old_credited", "with_reference"]


def update(policy: Model, groups: Sequence[Group[Credited]], plan: Learning, *, lr: float, seed: tuple[int | str, ...]) -> Metrics:
    """Epochs x minibatches of policy updates on one batch; returns means over the updates."""
    groups = with_old_credited(policy, groups) if plan.old_logprobs == "trainer" else groups
    old = _sampled if plan.old_logprobs == "sampler" else _old
    loss = Watched(plan.loss)
    metrics: list[Metrics] = []
    for epoch in range(plan.epochs):
        order = generator(*seed, epoch).permutation(len(groups)) if plan.minibatches > 1 else np.arange(len(groups))
        for picked in np.array_split(order, plan.minibatches):
            rows = policy_rows([groups[i] for i in sorted(picked)], lambda n: token_weights(n, plan.averaging, constant=plan.constant), old)
            made = policy.backward(_pulling(rows, plan.loss) or rows, loss)  # Where nothing pulls, all are measured; the update is empty.
            stepped = policy.step(lr)
            metrics.append(made | {f"policy/{name}": value for name, value in stepped.items()})
    total = {name: float(np.mean([m[name] for m in metrics if name in m])) for m in metrics for name in m}
    if "sampler/mismatch_ms" in total:
        total["sampler/mismatch_rms"] = math.sqrt(total.pop("sampler/mismatch_ms"))
    total["policy/lr"] = lr
    return total


def _pulling(rows: Sequence[Row], loss: PolicyLoss) -> list[Row]:
    """The rows worth computing: without those where every advantage is 0 and no other term pulls, which change nothing.

    A loss that spans rows needs all of an episode of which one row pulls.
    """
    if loss.kl_coef or loss.entropy_coef:
        return list(rows)
    pulls = [bool(np.any(row.advantage != 0)) for row in rows]
    episodes = {row.episode for row, pull in zip(rows, pulls, strict=True) if pull}
    return [row for row, pull in zip(rows, pulls, strict=True) if pull or (loss.spans_rows and row.episode in episodes)]


def _sampled(scored: Scored) -> Floats:
    return scored.episode.logprobs_T


def _old(scored: Scored) -> Floats:
    return scored.episode.logprobs_T if scored.old_logprobs_T is None else scored.old_logprobs_T


def _token_logprobs(policy: Policy, episodes: Sequence[Episode]) -> list[Floats]:
    """Log-probs of each episode's sampled tokens by the trainer's forward path. [T] each"""
    rows = [episode_rows(episode) for episode in episodes]
    return join(policy.logprobs([row for made in rows for row in made]), [len(made) for made in rows])


def with_reference(groups: Sequence[Group[Scored]], reference: Policy) -> list[Group[Scored]]:
    """Attaches the reference's log-probs."""
    found = iter(_token_logprobs(reference, [member.episode for group in groups for member in group.members]))
    return [Group(group.task, tuple(replace(member, ref_logprobs_T=next(found)) for member in group.members)) for group in groups]


def with_old(model: Model, groups: Sequence[Group[Scored]]) -> list[Group[Scored]]:
    """Attaches the trainer's log-probs where no earlier stage has."""
    missing = [member.episode for group in groups for member in group.members if member.old_logprobs_T is None]
    found = iter(_token_logprobs(model.snapshot(), missing) if missing else ())

    def attach(member: Scored) -> Scored:
        return member if member.old_logprobs_T is not None else replace(member, old_logprobs_T=next(found))

    return [Group(group.task, tuple(attach(member) for member in group.members)) for group in groups]


def with_old_credited(model: Model, groups: Sequence[Group[Credited]]) -> list[Group[Credited]]:
    """The same for episodes with credit."""
    scored = with_old(model, [Group(group.task, tuple(member.scored for member in group.members)) for group in groups])
    return [
        Group(group.task, tuple(replace(member, scored=known) for member, known in zip(group.members, with_old.members, strict=True)))
        for group, with_old in zip(groups, scored, strict=True)
    ]
