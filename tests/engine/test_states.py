"""A critic is asked about exactly the contexts that sampling saw: no token early, no token late."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from builders import make_task
from hypothesis import given
from hypothesis import strategies as st
from speakers import ids

from stepwell.credit import Segment, by_token, by_turn, by_window
from stepwell.engine.states import StateRow, state_rows, step_end_rows
from stepwell.types import Action, Ending, EndingKind, Episode, Ids, Observation, Reply, Stop, Turn, Verdict


def episode(*turns: tuple[Ids, Ids]) -> Episode:
    made = [Turn(context, said, np.zeros(len(said)), "a", Action("a"), Reply(Observation("")), Stop.EOS, 0) for context, said in turns]
    return Episode(make_task(), 0, Observation("start"), tuple(made), Ending(EndingKind.TERMINATED), Verdict.of(1.0))


CHAT = episode((ids(1, 2), ids(10, 11)), (ids(1, 2, 10, 11, 4, 5), ids(12)), (ids(1, 2, 10, 11, 4, 5, 12, 6), ids(13, 14)))


def seen(made: Sequence[StateRow], places: str) -> dict[int, list[int]]:
    """What stands before each step's state, by step."""
    found = {}
    for one in made:
        for step, place in zip(one.steps.tolist(), getattr(one, places).tolist(), strict=True):
            found[step] = one.row.ids[: one.row.targets[place]].tolist()
    return found


def test_by_hand() -> None:
    """Turns are steps: six states, and between turns the one after a step is not the one before the next."""
    (made,) = state_rows(CHAT, by_turn(CHAT), index=3, group=2)
    assert made.row.targets.tolist() == [2, 4, 6, 7, 8, 10]
    assert (made.row.episode, made.row.group) == (3, 2)
    assert seen([made], "before") == {0: [1, 2], 1: [1, 2, 10, 11, 4, 5], 2: [1, 2, 10, 11, 4, 5, 12, 6]}
    assert seen([made], "after")[0] == [1, 2, 10, 11]
    assert seen([made], "after")[2] == [1, 2, 10, 11, 4, 5, 12, 6, 13, 14], "the very last state is there, though no token follows it"


def test_inside_a_turn_the_state_after_a_step_is_the_one_before_the_next() -> None:
    (made,) = state_rows(CHAT, by_token(CHAT))
    assert made.row.targets.tolist() == [2, 3, 4, 6, 7, 8, 9, 10]
    assert (made.after[0], made.after[3]) == (made.before[1], made.before[4])
    assert made.after[1] != made.before[2]


def test_turns_that_follow_with_nothing_between_share_the_state() -> None:
    plain = episode((ids(1), ids(2)), (ids(1, 2), ids(3)))
    (made,) = state_rows(plain, by_turn(plain))
    assert made.row.targets.tolist() == [1, 2, 3]
    assert made.after[0] == made.before[1]


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    """Turns of 0 to 4 tokens with 0 to 3 tokens of the environment between; now and then the past is rewritten."""
    context, turns, fresh = [1], [], iter(range(10, 10_000))
    for n in draw(st.lists(st.integers(0, 4), max_size=5)):
        said = [next(fresh) for _ in range(n)]
        turns.append((np.array(context), np.array(said, np.int64)))
        rewritten = draw(st.integers(0, 3)) == 0
        context = [*([7, next(fresh)] if rewritten else [*context, *said]), *(next(fresh) for _ in range(draw(st.integers(0, 3))))]
    return episode(*turns)


@given(episodes(), st.sampled_from([by_turn, by_token, by_window(2)]))
def test_states_are_what_sampling_saw(made: Episode, segment: Segment) -> None:
    steps = segment(made)
    rows = state_rows(made, steps)
    before, after = seen(rows, "before"), seen(rows, "after")
    assert sorted(before) == sorted(after) == np.flatnonzero(steps.lengths_S > 0).tolist()
    firsts = np.cumsum([0, *(len(turn.token_ids) for turn in made.turns)])
    for step in before:
        turn = made.turns[steps.turn_S[step]]
        start, stop = (int(x) - firsts[steps.turn_S[step]] for x in (steps.start_S[step], steps.stop_S[step]))
        assert before[step] == [*turn.context_ids.tolist(), *turn.token_ids[:start].tolist()]
        assert after[step] == [*turn.context_ids.tolist(), *turn.token_ids[:stop].tolist()]


@pytest.mark.parametrize("nothing", [episode(), episode((ids(1), np.zeros(0, np.int64)))])
def test_without_tokens_there_is_no_state(nothing: Episode) -> None:
    assert state_rows(nothing, by_turn(nothing)) == []


# -- ends of steps ------------------------------------------------------------------------------------------------------------


def test_ends_of_steps_by_hand() -> None:
    """Behind each step's last token, whatever row it lies in; a step without tokens has no end."""
    (row,) = step_end_rows(CHAT, by_turn(CHAT), old_logprobs=np.array([-1.0, -2.0, -3.0]))
    assert [row.ids[:target].tolist()[-1] for target in row.targets] == [11, 12, 14]
    assert row.step.tolist() == [0, 1, 2]
    assert row.old_logprobs.tolist() == [-1.0, -2.0, -3.0]
    rewritten = episode((ids(1), ids(10, 11)), (ids(1, 10, 11, 4), ids()), (ids(1, 9), ids(12, 13)))
    first, second = step_end_rows(rewritten, by_turn(rewritten))
    assert (first.ids[: first.targets[0]].tolist(), first.step.tolist()) == ([1, 10, 11], [0])
    assert (second.ids[: second.targets[0]].tolist(), second.step.tolist()) == ([1, 9, 12, 13], [2])
    tokens = step_end_rows(rewritten, by_token(rewritten))
    assert [row.step.tolist() for row in tokens] == [[0, 1], [3, 4]], "a turn without tokens is a step without any"
    assert [row.ids[target - 1] for row in tokens for target in row.targets] == [10, 11, 12, 13]
