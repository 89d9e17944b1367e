"""Draws follow the distribution, and hardly ever change where the logits change in their last bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from stepwell.engine import draw as draw_module
from stepwell.engine.draw import _gumbel, draw


def seeds(n: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 2**63, n))


def logprobs(vocab: int, scale: float = 2.0) -> Tensor:
    return torch.log_softmax(scale * torch.randn(vocab, generator=torch.Generator().manual_seed(1)), -1)


@pytest.mark.parametrize("candidates", [1, 4, 64], ids=lambda n: f"{n} candidates")
def test_tokens_are_drawn_with_their_probability(monkeypatch: pytest.MonkeyPatch, candidates: int) -> None:
    monkeypatch.setattr(draw_module, "_CANDIDATES", candidates)
    n, vocab = 40_000, 30
    told = logprobs(vocab)
    counts = np.bincount(draw(told.expand(n, vocab), seeds(n)).numpy(), minlength=vocab)
    p = told.double().exp().numpy()
    assert np.abs((counts - n * p) / np.sqrt(n * p * (1 - p))).max() < 4.5


def test_consecutive_seeds_are_as_good_as_any() -> None:
    n, vocab = 40_000, 30
    told = logprobs(vocab)
    counts = np.bincount(draw(told.expand(n, vocab), torch.arange(n)).numpy(), minlength=vocab)
    p = told.double().exp().numpy()
    assert np.abs((counts - n * p) / np.sqrt(n * p * (1 - p))).max() < 4.5


def test_noise_is_standard_gumbel_and_independent() -> None:
    noise = _gumbel(seeds(400)[:, None], torch.arange(500)[None])
    assert float(noise.mean()) == pytest.approx(np.euler_gamma, abs=0.01)
    assert float(noise.var()) == pytest.approx(np.pi**2 / 6, abs=0.02)
    for one, two in ((noise[:, :-1], noise[:, 1:]), (noise[:-1], noise[1:])):
        assert abs(np.corrcoef(one.flatten(), two.flatten())[0, 1]) < 0.01
    assert noise.unique().numel() == noise.numel()


def test_the_last_bits_of_logits_hardly_ever_matter() -> None:
    """With 50,000 tokens and such an error, one draw in 200 changes by inverse transform, and none of 2,000 by the race."""
    n, vocab = 100, 50_000
    generator = torch.Generator().manual_seed(0)
    logits = 1.5 * torch.randn(n, vocab, generator=generator)
    other = logits + 3e-5 * torch.randn(n, vocab, generator=generator)
    one, two = (draw(torch.log_softmax(made, -1), seeds(n)) for made in (logits, other))
    assert int((one != two).sum()) <= 1


def test_a_token_without_probability_is_never_drawn() -> None:
    told = torch.full((2000, 100), -torch.inf)
    told[:, [3, 97]] = float(np.log(0.5))
    assert set(draw(told, seeds(2000)).tolist()) == {3, 97}
    certain = torch.full((2000, 100), -1e4)
    certain[:, 5] = 0.0
    assert set(draw(certain, seeds(2000)).tolist()) == {5}


def test_what_is_all_but_certain_is_drawn() -> None:
    """The probability of all others is far below float32's rounding of 1."""
    told = torch.log_softmax(torch.cat([torch.zeros(1), torch.full((999,), -40.0)]), -1)
    assert set(draw(told.expand(100_000, 1000), seeds(100_000)).tolist()) == {0}


def test_a_row_does_not_depend_on_the_others() -> None:
    told = torch.stack([logprobs(200, scale) for scale in (0.1, 1.0, 3.0)])
    given = seeds(3)
    alone = [int(draw(told[r : r + 1], given[r : r + 1])) for r in range(3)]
    assert draw(told, given).tolist() == alone
