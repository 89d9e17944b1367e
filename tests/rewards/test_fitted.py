"""What fitted judges share: places, readers, and how numbers become step rewards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from builders import make_episode
from hypothesis import given
from hypothesis import strategies as st
from speakers import engine, ids, random_rows
from transformers import GPT2Config, GPT2LMHeadModel

from stepwell.credit import by_token, by_turn
from stepwell.engine.local import Budget, LocalEngine, Text
from stepwell.errors import CapabilityError, ConfigError, RunError
from stepwell.protocols import Capabilities, ModelSpec
from stepwell.rewards.fitted import HeadReader, LabelReader, Lesson, Places, Reading, check_head, readings, step_rewards


def reading(*ends: int, length: int = 8, seed: int = 0) -> Reading:
    text = np.random.default_rng(seed).integers(3, 60, length)
    return Reading(text, np.array(ends), np.arange(1, len(ends) + 1))


def label_reader(labels: Sequence[int] = (40, 41), worths: Sequence[float] = (1.0, 0.0), budget: Budget | None = None) -> LabelReader:
    made: LocalEngine = engine(budget=budget)
    made.model("policy", ModelSpec())
    return LabelReader(made.model("judge", ModelSpec(of="policy")), tuple(labels), tuple(worths))


def head_reader(budget: Budget | None = None) -> HeadReader:
    made = engine(budget=budget)
    made.model("policy", ModelSpec())
    return HeadReader(made.model("judge", ModelSpec(kind="head", of="policy", trunk="own")))


# -- places ----------------------------------------------------------------------------------------------------------------------


def test_every_step_with_tokens_has_its_place() -> None:
    """U01: as many places as steps with tokens, and the one before the first."""
    episode = make_episode([2, 0, 3])
    made = readings(episode, by_turn(episode))
    assert [r.places.tolist() for r in made] == [[0, 1], [3]], "contexts that do not extend each other are rows of their own"
    assert [r.ids.tolist() for r in made] == [[1, 0, 1], [1, 2, 3, 4]]
    assert [r.ends.tolist() for r in made] == [[1, 3], [4]]
    (first, second) = readings(episode, by_token(episode))
    assert first.places.tolist() == [0, 1, 2] and first.ends.tolist() == [1, 2, 3]
    assert second.places.tolist() == [4, 5, 6], "step 2 is the empty one of the turn without tokens"
    silent = make_episode([0, 0])
    assert readings(silent, by_turn(silent)) == []


def test_progress_by_hand() -> None:
    episode = make_episode([1, 0, 1, 1])
    steps = by_turn(episode)
    places = Places(np.array([0.5, 0.6, 0.0, 0.9, 1.0]), np.array([True, True, False, True, True]))
    value, known = step_rewards(places, steps, "value")
    assert value.tolist() == [0.6, 0.0, 0.9, 1.0] and known.tolist() == [True, False, True, True]
    progress, known = step_rewards(places, steps, "progress")
    assert progress == pytest.approx(np.array([0.1, 0.0, 0.3, 0.1])) and known.tolist() == [True, False, True, True]
    halved, _ = step_rewards(places, steps, "progress", 0.5)
    assert halved == pytest.approx(np.array([0.1, 0.0, 0.9 - 4 * 0.6, 1.0 - 2 * 0.9])), "the empty turn is a turn too"
    unknown = Places(places.worth, np.array([True, False, False, True, True]))
    assert step_rewards(unknown, steps, "progress")[1].tolist() == [False, False, False, True], "nothing to be compared with"


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(-3, 3)), min_size=1, max_size=7), st.floats(-3, 3))
def test_progress_telescopes(turns: list[tuple[int, float]], start: float) -> None:
    """Its sum is what stands at the end less what stood at the start, whatever lies between and whichever steps are empty."""
    lengths, worth = [n for n, _ in turns], [start, *(v for _, v in turns)]
    episode = make_episode(lengths)
    steps = by_turn(episode)
    known = np.array([True, *(n > 0 for n in lengths)])
    progress, told = step_rewards(Places(np.array(worth), known), steps, "progress")
    last = max((s + 1 for s, n in enumerate(lengths) if n), default=0)
    assert told.tolist() == [n > 0 for n in lengths]
    assert progress.sum() == pytest.approx(worth[last] - start)


# -- readers ---------------------------------------------------------------------------------------------------------------------


def test_scores_are_probabilities_one_for_each_place() -> None:
    """U06: 3 steps are 3 floats in [0, 1]; a fresh head says 1/2 (U01: an untrained judge is at chance)."""
    asked = [reading(2, 5, 8), reading(3, length=5, seed=1)]
    for reader in (head_reader(), label_reader()):
        said = reader.say(asked)
        assert [len(values) for values in said] == [3, 1] and all(((v >= 0) & (v <= 1)).all() for v in said)
        assert reader.say([]) == []
    assert head_reader().say(asked)[0].tolist() == [0.5] * 3


def test_a_place_is_read_from_what_stands_before_it_alone() -> None:
    """U44: nor do other texts in the batch change it."""
    text = reading(2, 5)
    longer = Reading(np.append(text.ids[:5], ids(9, 9, 9)), text.ends, text.places)
    for reader in (head_reader(), label_reader()):
        reader.teach([Lesson(reading(3, 6, seed=2), np.array([1.0, 0.0]))], 0.01)
        alone = reader.say([text])[0]
        assert len(set(alone.round(6))) == 2
        assert reader.say([longer])[0] == pytest.approx(alone, abs=1e-6)
        assert reader.say([reading(20, length=30, seed=5), text])[1] == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize("turned", [False, True])
def test_good_and_bad_are_told_apart_whatever_the_order_of_labels(turned: bool) -> None:
    """U05: after overfitting one good and one bad step, score(good) > score(bad) under both orders; soft labels are met."""
    order = slice(None, None, -1 if turned else 1)
    reader = label_reader([40, 41][order], [1.0, 0.0][order])
    lessons = [Lesson(reading(2, 5, 8), np.array([1.0, 0.0, 0.3]))]
    first = reader.teach(lessons, 3e-3)
    for _ in range(60):
        last = reader.teach(lessons, 3e-3)
    assert reader.say([lessons[0].reading])[0] == pytest.approx(np.array([1.0, 0.0, 0.3]), abs=0.05)
    assert last["judge/error"] < 0.05 < first["judge/error"] and last["judge/grad_norm"] >= 0


def test_three_labels_share_what_lies_between_them() -> None:
    reader = label_reader((40, 41, 42), (0.0, 1.0, 0.5))
    assert reader.shares(np.array([0.0, 0.25, 0.5, 0.9, 1.0])).tolist() == [
        [1.0, 0.0, 0.0],
        [0.5, 0.0, 0.5],
        [0.0, 0.0, 1.0],
        pytest.approx([0.0, 0.8, 0.2]),
        [0.0, 1.0, 0.0],
    ]
    with pytest.raises(ValueError, match=r"outside the labels' worths, 0\.0 to 1\.0"):
        reader.shares(np.array([1.2]))


def test_micro_batches_change_nothing() -> None:
    """The labels of a step may lie in different micro-batches."""
    lessons = [Lesson(reading(2, 5, 8), np.array([1.0, 0.0, 0.3])), Lesson(reading(3, length=5, seed=1), np.array([0.6]))]
    for make in (head_reader, lambda budget: label_reader(budget=budget)):
        whole, cut = make(Budget(10_000, 64)), make(Budget(10_000, 1))
        metrics = [reader.teach(lessons, 1e-3) for reader in (whole, cut)]
        assert metrics[0] == pytest.approx(metrics[1], rel=1e-4)
        assert np.concatenate(whole.say([one.reading for one in lessons])) == pytest.approx(
            np.concatenate(cut.say([one.reading for one in lessons])), abs=1e-5
        )


def test_a_head_on_the_policys_states_leaves_the_policy_alone() -> None:
    made = engine()
    policy = made.model("policy", ModelSpec())
    rows = random_rows(3)
    before = policy.forward(rows)
    reader = HeadReader(made.model("judge", ModelSpec(kind="head", of="policy", trunk="shared")))
    for _ in range(5):
        reader.teach([Lesson(reading(2, 5), np.array([1.0, 0.0]))], 0.1)
    assert abs(reader.say([reading(2, 5)])[0] - 0.5).min() > 0.01
    assert all(np.array_equal(a["logprobs"], b["logprobs"]) for a, b in zip(before, policy.forward(rows), strict=True))


def test_a_label_may_stand_beyond_the_last_position() -> None:
    """An episode that fills the context is judged like any other, also where positions are learnt."""
    module = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2))
    made = LocalEngine(module, Text(str, frozenset({2})))
    made.model("policy", ModelSpec())
    reader = LabelReader(made.model("judge", ModelSpec(of="policy")), (40, 41))
    whole = reading(3, 8)
    assert reader.say([whole])[0][0] == pytest.approx(reader.say([reading(3)])[0][0], abs=1e-6)
    before = reader.say([whole])[0]
    reader.teach([Lesson(whole, np.array([1.0, 1.0]))], 1e-3)
    assert (reader.say([whole])[0] > before).all()


# -- bad input -------------------------------------------------------------------------------------------------------------------


def test_what_cannot_work_is_said() -> None:
    with pytest.raises(CapabilityError, match=r"reward\.kind is 'temporal' with a scalar head, and this engine has only full"):
        check_head(Capabilities(frozenset({"full"}), entropy=True, values=False), "temporal")
    for labels, worths in (((40,), (1.0,)), ((40, 40), (1.0, 0.0)), ((40, 41), (1.0, 1.0)), ((40, 41), (1.0, 0.5, 0.0))):
        with pytest.raises(ConfigError, match="at least two labels are needed, all different"):
            label_reader(labels, worths)
    made = engine()
    made.model("policy", ModelSpec())
    with pytest.raises(CapabilityError, match="A head has no words"):
        LabelReader(made.model("judge", ModelSpec(kind="head", of="policy")), (40, 41))


def test_a_judge_that_is_not_a_number_says_so() -> None:
    for reader in (head_reader(), label_reader()):
        for parameter in reader.model.params.values():  # type: ignore[attr-defined]
            parameter.data.fill_(float("nan"))
        with pytest.raises(RunError, match=r"The judge said nan: its weights hold NaN or infinity\. Lower reward\.lr"):
            reader.say([reading(2, 5)])
