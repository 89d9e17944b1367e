"""Episodes become rows that train exactly what was sampled, where it was sampled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from builders import make_task
from speakers import ids, random_rows

from stepwell.credit import by_turn
from stepwell.engine.batch import episode_rows, join, micro_batches, pad, parts_of, policy_rows
from stepwell.losses import token_weights
from stepwell.types import (
    Action,
    Credited,
    Ending,
    EndingKind,
    Episode,
    Group,
    Ids,
    Observation,
    Reply,
    Row,
    Scored,
    Stop,
    Turn,
    Verdict,
)

CPU = torch.device("cpu")
REPLY = Reply(Observation("seen"))


def turn(context: Ids, tokens: Ids) -> Turn:
    return Turn(context, tokens, -0.1 * np.arange(1, len(tokens) + 1), "look[]", Action("look"), REPLY, Stop.EOS, 0)


def episode(*turns: tuple[Ids, Ids], failed: bool = False) -> Episode:
    ending = Ending(EndingKind.FAILED, "gone") if failed else Ending(EndingKind.TERMINATED)
    verdict = Verdict.unscored("gone") if failed else Verdict.of(1.0)
    return Episode(make_task(), 0, Observation("start"), tuple(turn(*pair) for pair in turns), ending, verdict)


CHAT = episode((ids(1, 2, 3), ids(10, 11)), (ids(1, 2, 3, 10, 11, 4, 5), ids(12)), (ids(1, 2, 3, 10, 11, 4, 5, 12, 6), ids(13, 14)))
REWRITTEN = episode((ids(1, 2, 3), ids(10, 11)), (ids(1, 2, 3, 11, 4), ids(12)), (ids(1, 2, 3, 11, 4, 12, 6), ids(13, 14)))


def test_turns_that_extend_each_other_are_one_row() -> None:
    (part,) = parts_of(CHAT)
    assert part.ids.tolist() == [1, 2, 3, 10, 11, 4, 5, 12, 6, 13, 14]
    assert part.targets.tolist() == [3, 4, 7, 9, 10]
    assert (part.first, part.last) == (0, 5)


def test_a_rewritten_past_starts_a_row_of_its_own() -> None:
    one, two = parts_of(REWRITTEN)
    assert (one.ids.tolist(), one.targets.tolist(), one.first, one.last) == ([1, 2, 3, 10, 11], [3, 4], 0, 2)
    assert (two.ids.tolist(), two.targets.tolist()) == ([1, 2, 3, 11, 4, 12, 6, 13, 14], [5, 7, 8])
    assert (two.first, two.last) == (2, 5)


@pytest.mark.parametrize("made", [CHAT, REWRITTEN], ids=["chat", "rewritten"])
def test_every_token_is_trained_on_the_context_it_was_sampled_in(made: Episode) -> None:
    """U35, U37, U38."""
    sampled = [(context, token) for t in made.turns for context, token in _grow(t)]
    trained = [(row.ids[:at].tolist(), int(row.ids[at])) for row in episode_rows(made) for at in row.targets]
    assert trained == sampled


def _grow(t: Turn) -> list[tuple[list[int], int]]:
    return [([*t.context_ids.tolist(), *t.token_ids[:at].tolist()], int(token)) for at, token in enumerate(t.token_ids)]


@pytest.mark.parametrize(
    ("turns", "parts"),
    [
        ([], []),
        ([(ids(1), ids())], []),
        ([(ids(1), ids()), (ids(1, 2), ids(10))], [([1, 2, 10], [2])]),
        ([(ids(1), ids(10)), (ids(1, 10, 2), ids())], [([1, 10, 2], [1])]),
        ([(ids(1), ids()), (ids(7, 8), ids(10)), (ids(9), ids())], [([7, 8, 10], [2])]),
        ([(ids(1), ids(10)), (ids(1), ids(10))], [([1, 10], [1]), ([1, 10], [1])]),
    ],
)
def test_turns_without_tokens(turns: Sequence[tuple[Ids, Ids]], parts: Sequence[tuple[list[int], list[int]]]) -> None:
    assert [(part.ids.tolist(), part.targets.tolist()) for part in parts_of(episode(*turns))] == list(parts)


def test_columns_go_to_their_tokens() -> None:
    rows = episode_rows(REWRITTEN, index=3, group=2, label=0.5, step_T=np.array([7, 7, 8, 9, 9]), advantage=np.arange(5.0))
    assert [row.advantage.tolist() for row in rows] == [[0, 1], [2, 3, 4]]
    assert [row.step.tolist() for row in rows] == [[7, 7], [8, 9, 9]]
    assert [(row.episode, row.group, row.label) for row in rows] == [(3, 2, 0.5)] * 2
    assert [row.weight.tolist() for row in rows] == [[1, 1], [1, 1, 1]]
    with pytest.raises(TypeError, match=r"no column named \['advantages'\]"):
        episode_rows(CHAT, advantages=np.arange(5.0))


def test_rows_join_to_episodes() -> None:
    values = [np.array([1.0, 2.0]), np.array([3.0]), np.array([4.0])]
    assert [joined.tolist() for joined in join(values, [2, 0, 1])] == [[1, 2, 3], [], [4]]


def credited(made: Episode, advantages: Sequence[float]) -> Credited:
    steps = by_turn(made)
    ref = np.full(made.num_tokens, -2.0)
    return Credited(Scored(made, steps, 1.0, {}, np.zeros(len(steps), np.bool_), ref_logprobs_T=ref), np.array(advantages, np.float64))


def test_policy_rows() -> None:
    failed = credited(episode((ids(1), ids(10)), failed=True), [9.0])
    groups = [Group(make_task(), (failed, credited(CHAT, [1, 2, 3]))), Group(make_task("test/1"), (credited(REWRITTEN, [-1, -2, -3]),))]
    rows = policy_rows(groups, lambda n: token_weights(n, "episode"), lambda scored: scored.episode.logprobs_T)
    assert [(row.episode, row.group) for row in rows] == [(0, 0), (1, 1), (1, 1)]
    assert [row.advantage.tolist() for row in rows] == [[1, 1, 2, 3, 3], [-1, -1], [-2, -3, -3]]
    assert [row.step.tolist() for row in rows] == [[0, 0, 1, 2, 2], [3, 3], [4, 5, 5]]
    np.testing.assert_allclose(np.concatenate([row.weight for row in rows]), 0.1)
    for row in rows:
        np.testing.assert_array_equal(row.old_logprobs, row.sampler_logprobs)
        np.testing.assert_array_equal(row.ref_logprobs, -2.0)
    np.testing.assert_allclose(rows[0].old_logprobs, [-0.1, -0.2, -0.1, -0.1, -0.2])


def test_masks_come_from_positions_not_from_ids() -> None:
    """U41, U42, U43: the end of turn is the padding token, and is trained."""
    eos = 0
    rows = [Row.of(ids(5, 6, eos, eos), np.array([1, 2])), Row.of(ids(5, 6, 7, 8, eos, 9), np.array([1, 3, 4, 5]))]
    rows[0] = replace(rows[0], advantage=np.array([1.0, 2.0]), returns=np.array([0.0, 7.0]))
    tokens, targets, batch = pad(rows, CPU)
    assert tokens.tolist() == [[5, 6, 0, 0, 0, 0], [5, 6, 7, 8, 0, 9]]
    assert batch.mask.tolist() == [[True, True, False, False], [True] * 4]
    assert targets.tolist() == [[1, 2, 1, 1], [1, 3, 4, 5]]
    assert batch.returns.tolist()[0] == [0, 7, 0, 0], "the end's number stands on the last token, not behind it"
    assert batch.weight.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert batch.step.tolist() == [[0, 0, -1, -1], [0, 0, 0, 0]]
    assert batch.sampler_logprobs is None


def test_padding_keeps_every_column() -> None:
    rng = np.random.default_rng(0)
    rows = [
        replace(
            row,
            old_logprobs=rng.normal(size=n),
            returns=rng.normal(size=n),
            old_values=rng.normal(size=n),
            sampler_logprobs=rng.normal(size=n),
        )
        for row in random_rows(4)
        for n in [len(row.targets)]
    ]
    _, _, batch = pad(rows, CPU)
    for name in ("weight", "advantage", "old_logprobs", "ref_logprobs", "returns", "old_values", "sampler_logprobs"):
        for b, row in enumerate(rows):
            column = getattr(batch, name)[b]
            np.testing.assert_allclose(column[: len(row.targets)], getattr(row, name), rtol=1e-6)
            assert (column[len(row.targets) :] == 0).all()
    assert batch.episode.tolist() == [0, 1, 2, 3]
    assert batch.group.tolist() == [0, 0, 1, 1]
    assert batch.label.tolist() == [0, 1, 0, 1]
    _, _, batch = pad([replace(rows[0], sampler_logprobs=None), rows[1]], CPU)
    assert batch.sampler_logprobs is None, "known for some rows is known for none"


def test_micro_batches_hold_to_their_budget() -> None:
    rows = random_rows(40, longest=60)
    made = micro_batches(rows, max_tokens=100, max_rows=3)
    assert sorted(i for picked in made for i in picked) == list(range(40))
    for picked in made:
        lengths = [len(rows[i].ids) for i in picked]
        assert lengths == sorted(lengths)
        assert len(picked) == 1 or len(picked) * max(lengths) <= 100
        assert len(picked) <= 3
    assert micro_batches([Row.of(np.arange(500), np.array([1]))], max_tokens=100, max_rows=3) == [[0]], "a row that is too long is alone"


def test_512_episodes_of_2000_tokens_take_less_than_a_second() -> None:
    rng = np.random.default_rng(0)
    text = rng.integers(0, 50_000, 2000)
    cuts = [(at - 60, at) for at in range(200, 2001, 200)]
    made = [episode(*((text[:start], text[start:stop]) for start, stop in cuts)) for _ in range(512)]
    groups = [Group(make_task(str(g)), tuple(credited(e, [1.0] * 10) for e in made[g * 8 : g * 8 + 8])) for g in range(64)]
    begin = time.process_time()
    rows = policy_rows(groups, lambda n: token_weights(n, "token"), lambda scored: scored.episode.logprobs_T)
    for picked in micro_batches(rows, 16384, 16):
        pad([rows[i] for i in picked], CPU)
    taken = time.process_time() - begin
    print(f"512 episodes of 2,000 tokens in 10 turns: {taken:.2f} s")
    assert len(rows) == 512
    assert taken < 1.0
