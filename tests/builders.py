"""Episodes, scored groups and batches made by hand, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from stepwell.credit import by_turn
from stepwell.types import (
    Action,
    Batch,
    Ending,
    EndingKind,
    Episode,
    Group,
    Observation,
    Reply,
    Scored,
    Steps,
    Stop,
    Task,
    Turn,
    Verdict,
)


def make_task(key: str = "test/0") -> Task:
    return Task(key=key, prompt="do it", difficulty=0.5, split="test")


def make_episode(
    lengths: Sequence[int], *, member: int = 0, score: float | None = 1.0, rewards: Sequence[float] = (), failed: bool = False
) -> Episode:
    """An episode whose turns have these numbers of tokens (ids count upwards through the episode), and these environment rewards."""
    offsets = np.cumsum([0, *lengths])
    turns = tuple(
        Turn(
            context_ids=np.array([1]),
            token_ids=np.arange(offsets[i], offsets[i + 1]),
            logprobs=np.full(n, -1.0),
            text="look[]",
            action=Action("look"),
            reply=Reply(Observation("seen"), reward=rewards[i] if rewards else 0.0),
            stop=Stop.EOS,
            version=0,
        )
        for i, n in enumerate(lengths)
    )
    ending = Ending(EndingKind.FAILED, "the server went away") if failed else Ending(EndingKind.TERMINATED)
    verdict = Verdict.unscored("no verdict") if score is None or failed else Verdict.of(score)
    return Episode(make_task(), member, Observation("start"), turns, ending, verdict)


def make_scored(
    lengths: Sequence[int],
    *,
    outcome: float | None,
    process: Sequence[float | None] | None = None,
    failed: bool = False,
    steps: Steps | None = None,
) -> Scored:
    """A scored episode; `process` has one number a step, None where unscored; no `process` means no judge."""
    episode = make_episode(lengths, score=outcome, failed=failed)
    steps = by_turn(episode) if steps is None else steps
    if process is None:
        return Scored(episode, steps, outcome, {}, np.zeros(len(steps), np.bool_))
    values = np.array([0.0 if value is None else value for value in process])
    return Scored(episode, steps, outcome, {"judge": values}, np.array([value is not None for value in process], np.bool_))


def make_group(*members: Scored, key: str = "test/0") -> Group[Scored]:
    return Group(make_task(key), members)


def outcomes_group(outcomes: Sequence[float | None], key: str = "test/0") -> Group[Scored]:
    """One-step episodes with these outcomes and no judge."""
    return make_group(*(make_scored([2], outcome=outcome) for outcome in outcomes), key=key)


def make_batch(
    mask: Sequence[Sequence[int]],
    *,
    weight: Sequence[Sequence[float]] | None = None,
    advantage: Sequence[Sequence[float]] | None = None,
    old: Sequence[Sequence[float]] | None = None,
    ref: Sequence[Sequence[float]] | None = None,
    step: Sequence[Sequence[int]] | None = None,
    episode: Sequence[int] | None = None,
    group: Sequence[int] | None = None,
    label: Sequence[float] | None = None,
) -> Batch:
    """A float64 batch; what is not given is 0, weight is 1 and every row is an episode of its own."""
    mask_BN = torch.tensor(mask, dtype=torch.bool)
    zero = torch.zeros(mask_BN.shape, dtype=torch.float64)
    num_rows = len(mask)

    def floats(values: Sequence[Sequence[float]] | None) -> Tensor:
        return zero if values is None else torch.tensor(values, dtype=torch.float64)

    return Batch(
        mask=mask_BN,
        weight=torch.ones_like(zero) if weight is None else floats(weight),
        advantage=floats(advantage),
        old_logprobs=floats(old),
        ref_logprobs=floats(ref),
        returns=zero,
        old_values=zero,
        step=torch.zeros(mask_BN.shape, dtype=torch.int64) if step is None else torch.tensor(step),
        episode=torch.tensor(range(num_rows) if episode is None else episode),
        group=torch.tensor([0] * num_rows if group is None else group),
        label=torch.tensor([0.0] * num_rows if label is None else label, dtype=torch.float64),
    )
