"""Draws tokens by a race that small errors hardly ever decide otherwise.

The winner of `log p_v + Gumbel noise_v` is distributed as p (Gumbel-max), and the noise of a token is a function of (seed, token) alone.
So two computations whose logits differ in the last bits (another batch, another way through the cache) draw the same token unless the two
best are within that error. Inverse-transform sampling shifts the bounds of all later tokens instead, and with a vocabulary of 50,000 most
of the rare ones are narrower than the shift.

Only the likeliest tokens race one by one; the others race as one, and if they win, among themselves.

Legend: R row, K candidate, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["draw"]

_CANDIDATES = 64
_ROUNDING = 1e-5
"""More than the error of a sum of float32 probabilities; whoever might win within it is computed exactly."""
_OTHERS, _AMONG_OTHERS = -1, 1 << 40
"""What is put for a token's number in the noise of all others together, and added to it among them."""
_MIX = (-0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)
"""SplitMix64's constants as signed numbers."""


def draw(logprobs_RV: Tensor, seeds_R: Tensor) -> Tensor:
    """One token for each row.

    Args:
        logprobs_RV: Normalised log-probs, float32.
        seeds_R: int64.

    Returns:
        Token ids, [R].
    """
    candidates = logprobs_RV.topk(min(_CANDIDATES, logprobs_RV.shape[1]), dim=1, sorted=False)
    race_RK = candidates.values.double() + _gumbel(seeds_R[:, None], candidates.indices)
    best_R, place_R = race_RK.max(dim=1)
    chosen_R = candidates.indices.gather(1, place_R[:, None])[:, 0]
    if logprobs_RV.shape[1] <= _CANDIDATES:
        return chosen_R
    rest_R = 1.0 - candidates.values.double().exp().sum(dim=1)
    noise_R = _gumbel(seeds_R, torch.full_like(seeds_R, _OTHERS))
    rows = torch.nonzero((rest_R + _ROUNDING).log() + noise_R > best_R)[:, 0]
    if len(rows):
        others_RV = logprobs_RV[rows].double().scatter(1, candidates.indices[rows], -torch.inf)
        won = others_RV.exp().sum(dim=1).log() + noise_R[rows] > best_R[rows]
        tokens_V = torch.arange(logprobs_RV.shape[1], device=logprobs_RV.device)
        among_R = (others_RV + _gumbel(seeds_R[rows, None], tokens_V[None] + _AMONG_OTHERS)).argmax(dim=1)
        chosen_R[rows] = torch.where(won, among_R, chosen_R[rows])
    return chosen_R


def _gumbel(seeds: Tensor, numbers: Tensor) -> Tensor:
    """Standard Gumbel noise that is a function of seed and number, float64: two rounds of SplitMix64."""
    bits = _mixed(_mixed(seeds) + numbers * _MIX[0])
    uniform = (_shifted(bits, 11).double() + 0.5) * 2.0**-53
    return -torch.log(-torch.log(uniform))


def _mixed(x: Tensor) -> Tensor:
    x = x + _MIX[0]
    x = (x ^ _shifted(x, 30)) * _MIX[1]
    x = (x ^ _shifted(x, 27)) * _MIX[2]
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, by: int) -> Tensor:
    """Logical shift to the right."""
    return (x >> by) & ((1 << (64 - by)) - 1)
