"""Properties of credit that hold for every input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import make_episode, make_group, make_scored
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stepwell.credit import (
    Centred,
    IStar,
    LeaveOneOut,
    OutcomeOnly,
    ProcessToGo,
    Standardised,
    by_line,
    by_token,
    by_turn,
    by_window,
    compare,
    pool,
    spread,
    step_of_tokens,
    to_go,
)
from stepwell.protocols import Assign
from stepwell.types import Floats, Group, Ids, Scored

numbers = st.integers(-1000, 1000).map(lambda n: n / 100)
values = st.lists(numbers, min_size=1, max_size=8).map(np.array)
lengths = st.lists(st.integers(0, 6), max_size=5)
RULES: list[Assign] = [
    OutcomeOnly(),
    OutcomeOnly(Centred()),
    IStar(),
    IStar(LeaveOneOut(), 0.3, Centred(), only_mixed=False),
    ProcessToGo(),
]

few = settings(max_examples=25)


@st.composite
def members(draw: st.DrawFn) -> Scored:
    """Any scored episode: failed or not, with unscored outcome or steps, with turns without tokens."""
    turns = draw(lengths)
    process = draw(st.lists(st.none() | numbers, min_size=len(turns), max_size=len(turns)))
    return make_scored(turns, outcome=draw(st.none() | numbers), process=process, failed=draw(st.integers(0, 4)) == 0)


groups = st.lists(members(), min_size=2, max_size=6).map(lambda drawn: make_group(*drawn))


def advantages(rule: Assign, group: Group[Scored]) -> list[Floats]:
    return [member.advantages_S for member in rule([group])[0].members]


@given(values)
def test_centred_credit_sums_to_zero(x: Floats) -> None:
    for baseline in (Centred(), Standardised(), LeaveOneOut()):
        credit = compare(baseline, x)
        assert abs(credit.sum()) <= 1e-9 * (1 + np.abs(credit).sum())


@given(values, st.floats(0.1, 100), numbers)
def test_standardised_credit_ignores_scale_and_shift(x: Floats, scale: float, shift: float) -> None:
    baseline = Standardised(noise_floor=0.0)
    assume(len(x) < 2 or x.std() > 0)
    assert np.allclose(compare(baseline, scale * x + shift), compare(baseline, x), atol=1e-6)


@given(values)
def test_leave_one_out_is_n_over_n_minus_one_times_centred(x: Floats) -> None:
    assume(len(x) > 1)
    assert np.allclose(compare(LeaveOneOut(), x), len(x) / (len(x) - 1) * compare(Centred(), x), atol=1e-9)


@given(values)
def test_leave_one_out_does_not_depend_on_itself(x: Floats) -> None:
    assume(len(x) > 1 and len(set(x)) > 1)
    moved = x.copy()
    moved[0] += 3.25
    assume(len(set(moved)) > 1)
    assert compare(LeaveOneOut(), moved)[0] - compare(LeaveOneOut(), x)[0] == pytest.approx(3.25)


@pytest.mark.parametrize("rule", RULES)
@few
@given(group=groups, data=st.data())
def test_permuting_a_group_permutes_credit(rule: Assign, group: Group[Scored], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(group.members))))
    plain = advantages(rule, group)
    permuted = advantages(rule, make_group(*(group.members[i] for i in order)))
    assert all(np.allclose(permuted[place], plain[i], atol=1e-9) for place, i in enumerate(order))


@pytest.mark.parametrize("rule", RULES)
@few
@given(group=groups, other=groups)
def test_groups_do_not_see_each_other(rule: Assign, group: Group[Scored], other: Group[Scored]) -> None:
    alone, together = advantages(rule, group), [member.advantages_S for member in rule([other, group])[1].members]
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize("rule", RULES)
@few
@given(group=groups)
def test_what_failed_gets_nothing_and_moves_nobody(rule: Assign, group: Group[Scored]) -> None:
    alive = [member for member in group.members if not member.episode.failed]
    for member, credit in zip(group.members, advantages(rule, group), strict=True):
        assert not member.episode.failed or not credit.any()
    assume(len(alive) >= 2)
    survivors = [c for m, c in zip(group.members, advantages(rule, group), strict=True) if not m.episode.failed]
    assert all(np.array_equal(a, b) for a, b in zip(survivors, advantages(rule, make_group(*alive)), strict=True))


@given(group=groups)
def test_unscored_steps_get_no_process_part_and_move_nobody(group: Group[Scored]) -> None:
    """What stands at an unscored step does not matter."""
    changed = make_group(*(replace(m, rewards={"judge": np.where(m.scored_S, m.rewards["judge"], 77.0)}) for m in group.members))
    for rule in (IStar(), ProcessToGo()):
        before, after = rule([group])[0].members, rule([changed])[0].members
        for old, new in zip(before, after, strict=True):
            assert np.array_equal(old.advantages_S, new.advantages_S)
            assert not old.parts["process"][~old.scored.scored_S].any()


@given(group=groups)
def test_istar_process_parts_of_a_group_sum_to_zero(group: Group[Scored]) -> None:
    total = sum(float(member.parts["process"].sum()) for member in IStar(only_mixed=False)([group])[0].members)
    assert abs(total) < 1e-6


@given(group=groups, alpha=st.floats(0, 4))
def test_the_process_part_is_proportional_to_alpha(group: Group[Scored], alpha: float) -> None:
    for one, scaled in ((IStar(), IStar(alpha=alpha)), (ProcessToGo(), ProcessToGo(alpha=alpha))):
        for a, b in zip(one([group])[0].members, scaled([group])[0].members, strict=True):
            assert np.allclose(alpha * a.parts["process"], b.parts["process"], atol=1e-9)


@given(lengths, st.integers(1, 4))
def test_steps_partition_the_sampled_tokens(turns: list[int], size: int) -> None:
    episode = make_episode(turns)

    def text_of(ids: Ids) -> list[str]:
        return ["\n" if token % 3 == 2 else "a" for token in ids]

    ends = np.cumsum([0, *turns])
    for segment in (by_turn, by_token, by_window(size), by_line(text_of)):
        steps = segment(episode)
        assert steps.num_tokens == episode.num_tokens
        assert sorted(set(steps.turn_S.tolist())) == list(range(len(turns)))
        assert step_of_tokens(steps).shape == (episode.num_tokens,)
        assert np.all(ends[steps.turn_S] <= steps.start_S)
        assert np.all(steps.stop_S <= ends[steps.turn_S + 1])


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.data())
def test_pooling_undoes_spreading(turns: list[int], data: st.DataObject) -> None:
    steps = by_turn(make_episode(turns))
    x = np.array(data.draw(st.lists(numbers, min_size=len(turns), max_size=len(turns))))
    assert np.allclose(pool(spread(x, steps), steps, "mean"), x, atol=1e-12)
    assert np.allclose(pool(spread(x, steps), steps, "sum"), x * steps.lengths_S, atol=1e-12)


@given(values, st.floats(0, 1))
def test_to_go_is_its_definition(x: Floats, discount: float) -> None:
    definition = [sum(discount ** (k - s) * x[k] for k in range(s, len(x))) for s in range(len(x))]
    assert np.allclose(to_go(x, discount), definition)
