"""Slots: every context gets the longest prefix that is to be had, and the states that come out are those of the whole text."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from speakers import engine, ids

from stepwell.engine.kv import SlotCache
from stepwell.engine.trunk import Trunk
from stepwell.types import Ids

TRUNK: Trunk = engine()._trunk
LONG = np.arange(3, 33)


def feed(cache: SlotCache, slots: list[int], contexts: list[Ids]) -> torch.Tensor:
    """Feeds what is new in one padded chunk; returns the states of the last tokens."""
    new = [context[cache.lengths[slot] :] for slot, context in zip(slots, contexts, strict=True)]
    chunk = torch.zeros((len(new), max(map(len, new))), dtype=torch.int64)
    for i, tokens in enumerate(new):
        chunk[i, : len(tokens)] = torch.from_numpy(tokens)
    positions, mask = cache.place(slots, chunk.shape[1])
    with torch.no_grad():
        hidden = TRUNK.hidden_cached(chunk, cache, positions, mask)
    for slot, context in zip(slots, contexts, strict=True):
        cache.hold(slot, context)
    return torch.stack([hidden[i, len(tokens) - 1] for i, tokens in enumerate(new)])


def check(cache: SlotCache, slots: list[int], contexts: list[Ids]) -> None:
    states = feed(cache, slots, contexts)
    for state, context in zip(states, contexts, strict=True):
        with torch.no_grad():
            whole = TRUNK.hidden(torch.from_numpy(context)[None])[0, -1]
        torch.testing.assert_close(state, whole, atol=2e-5, rtol=1e-4)


def held(*contexts: Ids) -> tuple[SlotCache, list[int]]:
    cache = TRUNK.new_cache()
    slots = cache.admit(contexts)
    check(cache, slots, list(contexts))
    return cache, slots


def test_a_context_that_extends_a_row_keeps_all_of_it() -> None:
    cache, slots = held(LONG[:10], LONG[5:12])
    longer = [np.append(LONG[:10], [40, 41]), np.append(LONG[5:12], [42])]
    assert cache.admit(longer) == slots
    assert cache.lengths == [10, 7]
    check(cache, slots, longer)


def test_order_does_not_matter() -> None:
    cache, slots = held(LONG[:10], LONG[5:12])
    assert cache.admit([np.append(LONG[5:12], 9), np.append(LONG[:10], 9)]) == slots[::-1]


def test_identical_histories_of_two_members_keep_a_slot_each() -> None:
    cache, slots = held(LONG[:10], LONG[:10], LONG[:10])
    longer = [np.append(LONG[:10], last) for last in ([40, 41], [50], [40, 41])]
    again = cache.admit(longer)
    assert sorted(again) == sorted(slots)
    assert cache.lengths == [10, 10, 10]
    check(cache, again, longer)


def test_the_last_token_of_a_context_is_always_left_to_be_fed() -> None:
    cache, _ = held(LONG[:10], LONG[:12])
    assert cache.admit([LONG[:12]]) == [0], "slot 0 is extended; slot 1 holds all of the context"
    assert cache.lengths[0] == 10
    cache, _ = held(LONG[:12])
    slots = cache.admit([LONG[:12]])
    assert cache.lengths == [11], "cut back by one"
    check(cache, slots, [LONG[:12]])


def test_rows_that_left_free_their_slots() -> None:
    cache, _ = held(*(np.append(LONG[:10], last) for last in (40, 41, 42)))
    stay = [np.append(LONG[:10], [42, 7, 8])]
    assert cache.admit(stay) == [2], "nothing moves"
    check(cache, [2], stay)
    many = [np.append(LONG[:10], [last, 9]) for last in (40, 41, 43, 44)]
    slots = cache.admit(many)
    assert slots[:2] == [0, 1]
    assert [cache.lengths[slot] for slot in slots] == [11, 11, 10, 10], "strangers take the common beginning"
    check(cache, slots, many)


def test_a_context_that_rewrites_the_past_keeps_the_common_beginning() -> None:
    cache, slots = held(LONG[:20])
    rewritten = [np.concatenate([LONG[:12], [60, 61, 62]])]
    assert cache.admit(rewritten) == slots
    assert cache.lengths == [12]
    check(cache, slots, rewritten)


def test_a_short_common_beginning_is_not_worth_it() -> None:
    cache, _ = held(LONG[:20])
    assert cache.lengths[cache.admit([np.concatenate([LONG[:3], [60, 61, 62, 63]])])[0]] == 0


def test_the_longest_of_several_rows_is_taken() -> None:
    cache, _ = held(LONG[:10], LONG[:15], LONG[:12])
    slots = cache.admit([LONG[:20]])
    assert (slots, cache.lengths[1]) == ([1], 15)


def test_copies_read_everything_before_they_write() -> None:
    """Two free slots whose rows are wanted in each other's place, and one that is wanted twice."""
    a, b = np.append(LONG[:20], 40), np.append(LONG[10:30], 41)
    cache, _ = held(a, b)
    wanted = [np.append(b[:15], 50), np.append(b[:12], 51), np.append(a[:9], 52), np.append(a[:18], 53)]
    slots = cache.admit(wanted)
    assert [cache.lengths[slot] for slot in slots] == [15, 12, 9, 18]
    check(cache, slots, wanted)


def test_compact_brings_rows_to_the_first_slots() -> None:
    contexts = [np.append(LONG[:9], np.full(n, 40 + n)) for n in range(6)]
    cache, _ = held(*contexts)
    moved = cache.compact([1, 5, 4])
    slots = [moved.get(slot, slot) for slot in range(6)]
    assert sorted(slots) == list(range(6))
    assert sorted(slots[r] for r in (1, 5, 4)) == [0, 1, 2]
    assert [cache.lengths[slot] for slot in slots] == [len(context) for context in contexts]
    longer = [np.append(context, [7, 8]) for context in contexts]
    assert cache.admit(longer) == slots
    check(cache, slots, longer)


@pytest.mark.parametrize("seed", range(4))
def test_any_history_of_turns(seed: int) -> None:
    """Rows come, go, split, rewrite and repeat: states are always those of the whole text."""
    rng = np.random.default_rng(seed)
    cache = TRUNK.new_cache()
    contexts = [ids(5, 6, 7)]
    for _ in range(12):
        pool = [contexts[i][: rng.integers(1, len(contexts[i]) + 1)] if rng.random() < 0.3 else contexts[i] for i in range(len(contexts))]
        picked = [pool[i] for i in rng.integers(0, len(pool), rng.integers(1, 7))]
        contexts = [np.concatenate([context, rng.integers(3, 64, rng.integers(1, 12))]) for context in picked]
        if rng.random() < 0.3:
            contexts.append(contexts[0].copy())
        slots = cache.admit(contexts)
        assert len(set(slots)) == len(contexts)
        assert all(cache.lengths[slot] < len(context) for slot, context in zip(slots, contexts, strict=True))
        check(cache, slots, contexts)
        if rng.random() < 0.5:
            cache.compact(list(dict.fromkeys(slots[: 1 + len(slots) // 2])))


def test_positions_end_where_the_model_does() -> None:
    cache = SlotCache(1, max_length=8, device=torch.device("cpu"), dtype=torch.float32)
    cache.admit([LONG[:6], LONG[:3]])
    cache.hold(0, LONG[:5])
    positions, mask = cache.place([0, 1], 6)
    assert positions.tolist() == [[5, 6, 7, 7, 7, 7], [0, 1, 2, 3, 4, 5]]
    assert mask.shape == (2, 1, 6, 11)
    assert (mask[0, 0] == 0).sum(dim=1).tolist() == [6, 7, 8, 9, 10, 11]
