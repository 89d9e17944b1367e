"""Sampling: tokens follow the model and the seed, with or without a cache; turns stop where they should."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from speakers import chatml_tokenizer, engine, ids

from stepwell.engine.kv import _SlotLayer
from stepwell.engine.local import LocalEngine
from stepwell.engine.sampler import Sampler, _buckets
from stepwell.errors import RunError
from stepwell.types import Completion, Ids, Sampling, Stop

PLAIN = Sampling(max_tokens=5)
NEVER = -1
"""An end of turn that no model samples."""


def sampler(*, eos: int = 2, caches: bool = True, vocab: int = 64) -> Sampler:
    trunk = engine(vocab)._trunk
    trunk.caches = caches
    return Sampler(trunk, lambda tokens: "".join(chr(60 + token) for token in tokens), frozenset({eos}))


def tokens(made: Sequence[Completion]) -> list[list[int]]:
    return [completion.token_ids.tolist() for completion in made]


def history(rng: np.random.Generator, contexts: list[Ids], made: Sequence[Completion]) -> list[Ids]:
    """The next turn: most rows go on, one leaves, one rewrites its past, one repeats another."""
    longer = [np.concatenate([c, m.token_ids, rng.integers(3, 64, rng.integers(1, 9))]) for c, m in zip(contexts, made, strict=True)]
    longer.pop(int(rng.integers(len(longer))))
    longer[0] = np.concatenate([longer[0][:7], rng.integers(3, 64, 6)])
    return [*longer, longer[-1]]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("other", ["forgets every turn", "has no cache"])
def test_the_cache_changes_no_token(seed: int, other: str) -> None:
    rng = np.random.default_rng(seed)
    one, two = sampler(), sampler(caches=other != "has no cache")
    contexts = [rng.integers(3, 64, n) for n in rng.integers(2, 30, 7)]
    contexts += [contexts[0], contexts[1][:4]]
    for turn in range(5):
        limits = [Sampling(max_tokens=int(n)) for n in rng.integers(1, 7, len(contexts))]
        seeds = list(range(100 * turn, 100 * turn + len(contexts)))
        made, same = one.sample(contexts, limits, seeds), two.sample(contexts, limits, seeds)
        assert tokens(made) == tokens(same)
        for a, b in zip(made, same, strict=True):
            np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)
        two.forget()
        contexts = history(rng, contexts, made)
    assert one.work.positions < 0.75 * two.work.positions


@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_a_model_that_computes_no_numbers_is_not_played(temperature: float) -> None:
    """Or a run would go on with whatever tokens fall out of NaN."""
    spoilt = sampler()
    with torch.no_grad():
        next(iter(spoilt.trunk.module.parameters()))[:] = torch.nan
    with pytest.raises(RunError, match=r"are not numbers \(NaN\): its weights hold NaN"):
        spoilt.sample([ids(5, 6, 7)], [Sampling(temperature=temperature, max_tokens=3)], [1])


def test_logprobs_are_those_of_the_model() -> None:
    made = sampler().sample([ids(5, 6, 7), ids(9, 8)], [PLAIN] * 2, [1, 2])
    trunk = engine()._trunk
    for context, completion in zip((ids(5, 6, 7), ids(9, 8)), made, strict=True):
        text = torch.from_numpy(np.concatenate([context, completion.token_ids]))[None]
        with torch.no_grad():
            logprobs = torch.log_softmax(trunk.module(input_ids=text).logits[0], -1)
        own = [float(logprobs[at - 1, text[0, at]]) for at in range(len(context), text.shape[1])]
        np.testing.assert_allclose(completion.logprobs, own, atol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_tokens_are_drawn_from_the_models_distribution(temperature: float) -> None:
    n, context = 3000, ids(11, 12, 13)
    drawn = sampler().sample([context] * n, [Sampling(temperature=temperature, max_tokens=1)] * n, range(n))
    counts = np.bincount([completion.token_ids[0] for completion in drawn], minlength=64)
    with torch.no_grad():
        logits = engine()._trunk.module(input_ids=torch.from_numpy(context)[None]).logits[0, -1].double()
    p = torch.softmax(logits / temperature, -1).numpy()
    assert p.max() < 0.9
    deviations = (counts - n * p) / np.sqrt(n * p * (1 - p))
    assert np.abs(deviations).max() < 5


def test_greedy_takes_the_most_likely_and_says_its_logprob_at_temperature_1() -> None:
    made = sampler().sample([ids(5, 6, 7)], [Sampling(temperature=0.0, max_tokens=1)], [0])[0]
    with torch.no_grad():
        logprobs = torch.log_softmax(engine()._trunk.module(input_ids=torch.tensor([[5, 6, 7]])).logits[0, -1], -1)
    assert made.token_ids.tolist() == [int(logprobs.argmax())]
    np.testing.assert_allclose(made.logprobs, [float(logprobs.max())], atol=1e-5)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    rng = np.random.default_rng(5)
    contexts = [rng.integers(3, 64, n) for n in (3, 17, 9, 26, 4)]
    together = tokens(sampler().sample(contexts, [PLAIN] * 5, [1, 2, 3, 4, 5]))
    assert [tokens(sampler().sample([c], [PLAIN], [i + 1]))[0] for i, c in enumerate(contexts)] == together


# -- work ---------------------------------------------------------------------------------------------------------------------


def test_a_turn_feeds_only_its_new_tokens() -> None:
    one = sampler(eos=NEVER)
    context = np.arange(3, 23)
    made = one.sample([context], [Sampling(max_tokens=4)], [0])[0]
    assert one.work.positions == 20 + len(made.token_ids) - 1
    before = one.work.positions
    one.sample([np.concatenate([context, made.token_ids, ids(7, 8, 9)])], [Sampling(max_tokens=1)], [0])
    assert one.work.positions == before + 1 + 3, "the last sampled token, and three new ones"


def test_equal_prompts_are_fed_once() -> None:
    one = sampler()
    one.sample([np.arange(3, 43)] * 8, [Sampling(max_tokens=1)] * 8, range(8))
    assert one.work.positions == 40


def test_a_common_beginning_is_fed_once() -> None:
    one = sampler()
    contexts = [np.concatenate([np.arange(3, 43), ids(50 + i, 9)]) for i in range(6)]
    alone = [sampler().sample([c], [PLAIN], [i])[0].token_ids.tolist() for i, c in enumerate(contexts)]
    made = one.sample(contexts, [PLAIN] * 6, range(6))
    assert tokens(made) == alone
    one = sampler()
    one.sample(contexts, [Sampling(max_tokens=1)] * 6, range(6))
    assert one.work.positions == 40 + 6 * 2


def test_padding_is_counted() -> None:
    one = sampler()
    one.sample([np.arange(3, 13), np.arange(20, 29)], [Sampling(max_tokens=1)] * 2, [0, 1])
    assert (one.work.positions, one.work.padding, one.work.padding_share) == (20, 1, 0.05)


def test_chunks_are_fed_with_those_of_similar_length() -> None:
    assert _buckets({0: 100, 1: 10, 2: 61, 3: 59, 4: 9, 5: 5}) == [[0, 2], [3], [1, 4], [5]]
    assert _buckets({0: 9000, 1: 9000, 2: 30000}) == [[2], [0], [1]]
    assert _buckets({}) == []


def test_what_an_error_leaves_half_written_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory runs out after the second row has been overwritten in one of two layers."""
    one, (first, second) = sampler(eos=NEVER), (np.arange(3, 23), np.arange(30, 50))
    one.sample([first, second], [PLAIN] * 2, [0, 1])
    copy = _SlotLayer.copy
    calls = 0

    def fails_in_the_middle(*args: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise MemoryError("no room")
        copy(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(_SlotLayer, "copy", fails_in_the_middle)
    with pytest.raises(MemoryError):
        one.sample([np.append(first, 7), np.append(first[:12], 8)], [PLAIN] * 2, [0, 1])
    longer = [np.append(second, 9)]
    made, right = one.sample(longer, [PLAIN], [5]), sampler(eos=NEVER).sample(longer, [PLAIN], [5])
    np.testing.assert_allclose(made[0].logprobs, right[0].logprobs, atol=1e-5)


# -- stopping -----------------------------------------------------------------------------------------------------------------


class Spelled:
    """A sampler whose model says given tokens, by a trunk that wants them for certain."""

    def __init__(self, said: list[int], decode: object, eos: int = 1) -> None:
        self.sampler = sampler(eos=eos, vocab=512)
        self.sampler.decode = decode  # type: ignore[assignment]
        self.said = said
        self.at = 0
        self.sampler.trunk.logits = self.logits  # type: ignore[method-assign]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        made = torch.full((len(hidden), 512), -1e4)
        made[:, self.said[self.at]] = 0.0
        self.at += 1
        return made

    def sample(self, stop: tuple[str, ...] = (), max_tokens: int = 20) -> Completion:
        return self.sampler.sample([ids(5, 6)], [Sampling(max_tokens=max_tokens, stop=stop)], [0])[0]


TEXT = {3: "buy", 4: "]", 5: "]\nthen", 6: " </", 7: "answer", 8: ">", 9: ""}


def spelled(*said: int) -> Spelled:
    return Spelled([*said, 1], lambda tokens: "".join(TEXT.get(token, f"<{token}>") for token in tokens))


def test_end_of_turn() -> None:
    made = spelled(3, 4, 1).sample()
    assert (made.stop, made.text, made.token_ids.tolist()) == (Stop.EOS, "buy]", [3, 4, 1])


def test_length() -> None:
    made = spelled(3, 4, 3).sample(max_tokens=2)
    assert (made.stop, made.text) == (Stop.LENGTH, "buy]")


def test_end_of_turn_as_the_last_token_is_no_length_stop() -> None:
    assert spelled(3, 1).sample(max_tokens=2).stop is Stop.EOS


def test_a_stop_string_over_several_tokens() -> None:
    made = spelled(3, 6, 7, 8, 3).sample(stop=("</answer>",))
    assert (made.stop, made.text) == (Stop.STRING, "buy </answer>")


def test_a_stop_string_inside_a_token_stops_too() -> None:
    made = spelled(3, 5, 3).sample(stop=("]",))
    assert (made.stop, made.text) == (Stop.STRING, "buy]\nthen")


def test_a_stop_string_after_a_long_text_with_tokens_that_are_no_text() -> None:
    made = spelled(*[3] * 6, 6, 7, *[9] * 14, 8, 3).sample(("</answer>", "never"), max_tokens=40)
    assert (made.stop, made.text) == (Stop.STRING, "buy" * 6 + " </answer>")


def test_a_stop_string_of_characters_that_take_several_tokens() -> None:
    tokenizer = chatml_tokenizer(["abc"], 260)
    said = tokenizer("preis: 5 €, gut", add_special_tokens=False)["input_ids"]
    made = Spelled(said, tokenizer.decode, eos=511).sample(stop=("€",))
    assert (made.stop, made.text) == (Stop.STRING, "preis: 5 €")


# -- bad calls ----------------------------------------------------------------------------------------------------------------


def test_bad_calls_are_refused() -> None:
    one = sampler()
    assert one.sample([], [], []) == []
    with pytest.raises(ValueError, match="2 contexts, 1 samplings and 1 seeds"):
        one.sample([ids(1), ids(2)], [PLAIN], [0])
    with pytest.raises(ValueError, match="empty context"):
        one.sample([ids()], [PLAIN], [0])
    with pytest.raises(ValueError, match="different temperatures or stop strings"):
        one.sample([ids(1), ids(2)], [PLAIN, Sampling(temperature=0.5)], [0, 1])
    with pytest.raises(ValueError, match="different temperatures or stop strings"):
        one.sample([ids(1), ids(2)], [PLAIN, Sampling(stop=("x",))], [0, 1])
    with pytest.raises(ValueError, match="context of 510 tokens with max_tokens 5 exceeds the model's 512"):
        one.sample([np.full(510, 7)], [PLAIN], [0])


def test_the_context_may_be_filled_to_the_last_token() -> None:
    made = sampler(eos=NEVER).sample([np.full(507, 7), ids(7)], [PLAIN] * 2, [0, 1])
    assert [len(completion.token_ids) for completion in made] == [5, 5]


def test_an_engine_without_cache_says_so() -> None:
    made: LocalEngine = engine()
    assert made.notice == ""
    made._trunk.caches = False
    assert "every turn feeds the whole history" in made.notice
