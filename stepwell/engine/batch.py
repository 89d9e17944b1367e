"""Episodes -> rows -> padded tensors: the one bridge from numpy to torch.

Legend: B row, L row length, N target, T sampled token of an episode, S step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stepwell.credit import spread
from stepwell.types import Batch, Credited, Episode, Floats, Group, Ids, Row, Scored

__all__ = ["Part", "episode_rows", "join", "micro_batches", "pad", "parts_of", "policy_rows"]


class Part(NamedTuple):
    """A stretch of an episode that is one row: turns that extend each other.

    `first` and `last` delimit the row's sampled tokens among the episode's T (half-open).
    """

    ids: Ids
    targets: Ids
    first: int
    last: int


def parts_of(episode: Episode) -> list[Part]:
    """Cuts an episode into rows: a turn joins the row before it if its context begins with all that this row holds.

    Training sees exactly the contexts that sampling saw; where a template rewrites the past, every turn becomes its own row.
    Turns without sampled tokens leave no row of their own.
    """
    parts: list[Part] = []
    targets: list[Ids] = []
    said, ids = b"", np.zeros(0, np.int64)  # As bytes, because to compare short arrays costs more than all else here.
    first = done = 0

    def close() -> None:
        if targets and done > first:
            parts.append(Part(ids, np.concatenate(targets), first, done))

    for turn in episode.turns:
        context, tokens = np.asarray(turn.context_ids, np.int64), np.asarray(turn.token_ids, np.int64)
        seen = context.tobytes()
        if not (said and seen.startswith(said)):
            close()
            targets, first = [], done
        said, ids = seen + tokens.tobytes(), np.concatenate([context, tokens])
        targets.append(np.arange(len(context), len(ids)))
        done += len(tokens)
    close()
    return parts


def episode_rows(
    episode: Episode,
    *,
    step_T: Ids | None = None,
    index: int = 0,
    group: int = 0,
    label: float = 0.0,
    **columns: Floats,
) -> list[Row]:
    """The rows of one episode; `columns` are [T] arrays named like the fields of `Row` (weight, advantage, old_logprobs, ...)."""
    rows = []
    for part in parts_of(episode):
        cut = slice(part.first, part.last)
        n = part.last - part.first
        zero = np.zeros(n)
        column = {name: values[cut] for name, values in columns.items()}
        rows.append(
            Row(
                ids=part.ids,
                targets=part.targets,
                weight=column.pop("weight", np.ones(n)),
                advantage=column.pop("advantage", zero),
                old_logprobs=column.pop("old_logprobs", zero),
                ref_logprobs=column.pop("ref_logprobs", zero),
                returns=column.pop("returns", zero),
                old_values=column.pop("old_values", zero),
                step=np.zeros(n, np.int64) if step_T is None else step_T[cut],
                episode=index,
                group=group,
                label=label,
                sampler_logprobs=column.pop("sampler_logprobs", None),
            )
        )
        if column:
            raise TypeError(f"Row has no column named {sorted(column)}.")
    return rows


def join(values: Sequence[Floats], counts: Sequence[int]) -> list[Floats]:
    """Joins per-row arrays back to per-episode arrays; `counts[e]` is the number of rows of episode e."""
    joined, at = [], 0
    for count in counts:
        joined.append(np.concatenate([np.zeros(0), *values[at : at + count]]))
        at += count
    return joined


def policy_rows(
    groups: Sequence[Group[Credited]],
    weigh: Callable[[Sequence[int]], Floats],
    old_logprobs: Callable[[Scored], Floats],
) -> list[Row]:
    """Rows for the policy's update. Where no reference has spoken, `ref_logprobs` is NaN, which no loss takes for a log-prob.

    Args:
        groups: Credited episodes; failed ones are left out and count nowhere.
        weigh: From the number of sampled tokens of each episode to the weight of its tokens: the averaging rule.
        old_logprobs: [T] of an episode.
    """
    kept = [(g, member) for g, group in enumerate(groups) for member in group.members if not member.scored.episode.failed]
    weights = weigh([member.scored.episode.num_tokens for _, member in kept])
    rows: list[Row] = []
    first_step = 0
    for e, ((g, member), weight) in enumerate(zip(kept, weights, strict=True)):
        scored = member.scored
        unknown = np.full(scored.episode.num_tokens, np.nan)
        rows += episode_rows(
            scored.episode,
            step_T=np.repeat(np.arange(first_step, first_step + len(scored.steps)), scored.steps.lengths_S),
            index=e,
            group=g,
            weight=np.full(scored.episode.num_tokens, weight),
            sampler_logprobs=scored.episode.logprobs_T,
            advantage=spread(member.advantages_S, scored.steps),
            old_logprobs=old_logprobs(scored),
            ref_logprobs=unknown if scored.ref_logprobs_T is None else scored.ref_logprobs_T,
        )
        first_step += len(scored.steps)
    return rows


def micro_batches(rows: Sequence[Row], max_tokens: int, max_rows: int) -> list[list[int]]:
    """Indices of rows, length-sorted and cut so that a padded micro-batch holds at most `max_tokens` positions and `max_rows` rows."""
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i].ids), i))
    batches: list[list[int]] = []
    for i in order:
        longest = len(rows[i].ids)
        if not batches or len(batches[-1]) >= max_rows or (len(batches[-1]) + 1) * longest > max_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches


def pad(rows: Sequence[Row], device: torch.device, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Batch]:
    """Pads rows on the right; what is a float in them has this data type.

    Returns:
        ids [B, L] (padded with 0: causal models never see it at a target), targets [B, N] (padded with 1), and the batch.
    """
    num_rows = len(rows)
    length = max(len(row.ids) for row in rows)
    width = max(max(len(row.targets) for row in rows), 1)
    ids = np.zeros((num_rows, length), np.int64)
    targets = np.ones((num_rows, width), np.int64)
    mask = np.zeros((num_rows, width), np.bool_)
    for b, row in enumerate(rows):
        ids[b, : len(row.ids)] = row.ids
        targets[b, : len(row.targets)] = row.targets
        mask[b, : len(row.targets)] = True

    def floats(columns: Sequence[Floats]) -> Tensor:
        padded = np.zeros((num_rows, width), np.float64)
        for b, column in enumerate(columns):
            padded[b, : len(column)] = column
        return torch.from_numpy(padded).to(device, dtype)

    step = np.full((num_rows, width), -1, np.int64)
    for b, row in enumerate(rows):
        step[b, : len(row.targets)] = row.step

    def tensor(values: NDArray[np.int64] | NDArray[np.bool_]) -> Tensor:
        return torch.from_numpy(values).to(device)

    sampled = [row.sampler_logprobs for row in rows if row.sampler_logprobs is not None]
    batch = Batch(
        mask=tensor(mask),
        weight=floats([row.weight for row in rows]),
        advantage=floats([row.advantage for row in rows]),
        old_logprobs=floats([row.old_logprobs for row in rows]),
        ref_logprobs=floats([row.ref_logprobs for row in rows]),
        returns=floats([row.returns for row in rows]),
        old_values=floats([row.old_values for row in rows]),
        step=tensor(step),
        episode=torch.tensor([row.episode for row in rows], device=device),
        group=torch.tensor([row.group for row in rows], device=device),
        label=torch.tensor([row.label for row in rows], dtype=dtype, device=device),
        sampler_logprobs=floats(sampled) if len(sampled) == num_rows else None,
    )
    return tensor(ids), tensor(targets), batch
