"""Properties of credit that hold for every input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from builders import make_episode, make_group, make_scored
from credit_rules import RULES, Listed, ready, ready_group
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import stepwell.credit as credit_module
from stepwell.credit import (
    Baseline,
    Centred,
    IStar,
    LeaveOneOut,
    MinForm,
    Raw,
    ReinforcePlusPlus,
    Rule,
    Standardised,
    by_line,
    by_token,
    by_turn,
    by_window,
    compare,
    compare_each,
    pool,
    spread,
    step_of_tokens,
    to_go,
)
from stepwell.credit.min_form import least_to_go
from stepwell.protocols import Assign
from stepwell.types import Credited, Floats, Group, Ids, Scored

numbers = st.integers(-1000, 1000).map(lambda n: n / 100)
values = st.lists(numbers, min_size=1, max_size=8).map(np.array)
lengths = st.lists(st.integers(0, 6), max_size=5)
few = settings(max_examples=20)
every_rule = pytest.mark.parametrize("listed", RULES, ids=lambda listed: listed.name)


def holds(law: Callable[[Listed], None], keep: Callable[[Listed], bool] = lambda listed: True) -> None:
    """The law holds for every rule of the list that it is about; a failure names the rule."""
    for listed in filter(keep, RULES):
        try:
            law(listed)
        except AssertionError as error:
            error.add_note(f"rule: {listed.name}")
            raise


def those(keep: Callable[[Listed], bool]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("listed", [listed for listed in RULES if keep(listed)], ids=lambda listed: listed.name)


@st.composite
def members(draw: st.DrawFn) -> Scored:
    """Any scored episode: failed or not, with unscored outcome or steps, with turns without tokens."""
    turns = draw(lengths)
    process = draw(st.lists(st.none() | numbers, min_size=len(turns), max_size=len(turns)))
    return make_scored(turns, outcome=draw(st.none() | numbers), process=process, failed=draw(st.integers(0, 4)) == 0)


groups = st.lists(members(), min_size=2, max_size=5).map(lambda drawn: ready_group(make_group(*drawn)))


def credit(rule: Assign, group: Group[Scored]) -> tuple[Credited, ...]:
    return rule([group])[0].members


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


@few
@given(group=groups, data=st.data())
def test_permuting_a_group_permutes_credit(group: Group[Scored], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(group.members))))

    def law(listed: Listed) -> None:
        plain = advantages(listed.rule, group)
        permuted = advantages(listed.rule, make_group(*(group.members[i] for i in order)))
        assert all(np.allclose(permuted[place], plain[i], atol=1e-6) for place, i in enumerate(order))

    holds(law)


@few
@given(group=groups, other=groups)
def test_groups_do_not_see_each_other(group: Group[Scored], other: Group[Scored]) -> None:
    def law(listed: Listed) -> None:
        alone, together = advantages(listed.rule, group), [member.advantages_S for member in listed.rule([other, group])[1].members]
        assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))

    holds(law, lambda listed: not listed.across)


@few
@given(group=groups, other=groups)
def test_the_order_of_groups_does_not_matter(group: Group[Scored], other: Group[Scored]) -> None:
    def law(listed: Listed) -> None:
        one, two = listed.rule([other, group]), listed.rule([group, other])
        for a, b in zip([*one[0].members, *one[1].members], [*two[1].members, *two[0].members], strict=True):
            assert np.allclose(a.advantages_S, b.advantages_S, atol=1e-6)

    holds(law)


@few
@given(group=groups)
def test_what_failed_gets_nothing_and_moves_nobody(group: Group[Scored]) -> None:
    def law(listed: Listed) -> None:
        alive = [member for member in group.members if not member.episode.failed]
        for member, given_credit in zip(group.members, advantages(listed.rule, group), strict=True):
            assert not member.episode.failed or not given_credit.any()
        assume(len(alive) >= 2)
        survivors = [c for m, c in zip(group.members, advantages(listed.rule, group), strict=True) if not m.episode.failed]
        assert all(np.array_equal(a, b) for a, b in zip(survivors, advantages(listed.rule, make_group(*alive)), strict=True))

    holds(law)


@few
@given(group=groups)
def test_a_member_without_tokens_moves_nobody(group: Group[Scored]) -> None:
    """U20: a fully masked row is no part of its siblings' baseline."""

    def law(listed: Listed) -> None:
        empty = ready(make_scored([0, 0], outcome=7.0, process=[5.0, -5.0]))
        with_empty = advantages(listed.rule, make_group(*group.members, empty))
        assert all(np.array_equal(a, b) for a, b in zip(advantages(listed.rule, group), with_empty, strict=False))

    holds(law)


@few
@given(group=groups)
def test_what_is_unscored_gets_no_process_part_and_moves_nobody(group: Group[Scored]) -> None:
    """U19, U21: what stands at an unscored step does not matter."""

    def law(listed: Listed) -> None:
        changed = make_group(*(replace(m, rewards={"judge": np.where(m.scored_S, m.rewards["judge"], 77.0)}) for m in group.members))
        for old, new in zip(credit(listed.rule, group), credit(listed.rule, changed), strict=True):
            assert np.array_equal(old.advantages_S, new.advantages_S)
            assert old.told_S is None or not old.parts["process"][~old.told_S].any()
            others_count = not listed.reads_rewards or "gigpo" in listed.name or "gae" in listed.name
            assert old.told_S is None or others_count or not old.told_S[~old.scored.scored_S].any()

    holds(law)


@few
@given(group=groups)
def test_parts_add_up_to_advantages_that_are_finite(group: Group[Scored]) -> None:
    def law(listed: Listed) -> None:
        for member in credit(listed.rule, group):
            assert np.array_equal(sum(member.parts.values(), np.zeros(len(member.advantages_S))), member.advantages_S)
            assert np.all(np.isfinite(member.advantages_S))

    holds(law)


@few
@given(group=groups)
def test_equal_outcomes_give_no_outcome_part(group: Group[Scored]) -> None:
    """U16."""

    def law(listed: Listed) -> None:
        flat = make_group(*(replace(m, outcome=None if m.outcome is None else 0.1) for m in group.members))
        assert not any(member.parts["outcome"].any() for member in credit(listed.rule, flat) if "outcome" in member.parts)

    holds(law, lambda listed: listed.compares)


@few
@given(group=groups)
def test_the_process_part_is_proportional_to_its_weight(group: Group[Scored]) -> None:
    def law(listed: Listed) -> None:
        assert listed.doubled is not None
        for one, two in zip(credit(listed.rule, group), credit(listed.doubled, group), strict=True):
            assert np.allclose(2.0 * one.parts["process"], two.parts["process"], atol=1e-9)
            assert np.array_equal(one.parts.get("outcome", 0.0), two.parts.get("outcome", 0.0))

    holds(law, lambda listed: listed.doubled is not None)


@few
@given(group=groups, steps=st.integers(1, 9))
def test_the_outcome_part_does_not_depend_on_the_number_of_steps(group: Group[Scored], steps: int) -> None:
    """U22, U32: an episode counts once in a baseline, whatever its number of steps. rePIRL compares those that are still going."""

    def law(listed: Listed) -> None:
        longer = ready(make_scored([1] * steps, outcome=3.0, process=[0.5] * steps))
        for number, member in enumerate(credit(listed.rule, make_group(*group.members, longer))[:-1]):
            short = credit(listed.rule, make_group(*group.members, ready(make_scored([1], outcome=3.0, process=[0.5]))))[number]
            assert np.array_equal(member.parts.get("outcome", 0.0), short.parts.get("outcome", 0.0))

    holds(law, lambda listed: listed.compares and not listed.across and "repirl" not in listed.name)


@those(lambda listed: listed.reads_rewards)
@pytest.mark.parametrize("step", [0, 1, 2])
def test_every_step_reward_reaches_the_advantages(listed: Listed, step: int) -> None:
    """U27: no reward of an intermediate step is lost. (The hard minimum sees the least one alone.)"""
    rewards = [0.3, 0.1, 0.5]
    least = [value - (0.7 if s == step else 0.0) for s, value in enumerate(rewards)]
    others = [
        ready(make_scored([1, 2, 1], outcome=0.0, process=[0.4, 0.6, 0.45])),
        ready(make_scored([3, 1, 1], outcome=0.0, process=[-0.2, 0.2, 0.1])),
    ]
    before = advantages(listed.rule, make_group(ready(make_scored([2, 1, 1], outcome=1.0, process=rewards)), *others))[0]
    after = advantages(listed.rule, make_group(ready(make_scored([2, 1, 1], outcome=1.0, process=least)), *others))[0]
    assert abs(after[step] - before[step]) > 1e-4
    later = after[step + 1 :] - before[step + 1 :]
    own_baseline = ("istar", "gigpo", "supervision", "released", "adaptive", "whitened", "unit", "reinforce_pp", "min_form", "deviation")
    assert any(word in listed.name for word in own_baseline) or listed.name == "adaptive to go" or np.allclose(later, 0.0)


@every_rule
def test_observations_are_nobodys_tokens(listed: Listed) -> None:
    """U23, U24, U40, U43: whatever the environment says between and after turns, the sampled tokens get the same credit."""
    group = ready_group(make_group(make_scored([2, 1], outcome=1.0, process=[0.5, 0.2]), make_scored([3], outcome=0.0, process=[0.1])))

    def talkative(member: Scored) -> Scored:
        turns = tuple(replace(turn, context_ids=np.arange(1, 50)) for turn in member.episode.turns)
        return replace(member, episode=replace(member.episode, turns=turns))

    louder = make_group(*(talkative(member) for member in group.members))
    assert all(np.array_equal(a, b) for a, b in zip(advantages(listed.rule, group), advantages(listed.rule, louder), strict=True))


@every_rule
def test_no_rule_minds_strange_groups(listed: Listed) -> None:
    """Nothing at all, an empty batch, all unscored, all failed, nobody with tokens, unequal steps: no NaN, and no credit from nothing."""
    assert listed.rule([]) == []
    nothing = [
        [make_scored([1, 1], outcome=None, process=[None, None])] * 2,
        [make_scored([2], outcome=1.0, process=[0.5], failed=True)] * 2,
        [make_scored([0], outcome=1.0, process=[0.5])] * 2,
        [make_scored([], outcome=1.0, process=[])] * 2,
    ]
    for members in nothing:
        group = ready_group(make_group(*members))
        bare = make_group(*(replace(member, ref_logprobs_T=member.old_logprobs_T) for member in group.members))
        assert not any(values.any() for values in advantages(listed.rule, bare))
    uneven = [make_scored([1] * n, outcome=float(n), process=[0.1 * s for s in range(n)]) for n in (2, 4, 1)]
    assert all(np.all(np.isfinite(values)) for values in advantages(listed.rule, ready_group(make_group(*uneven))))


def test_every_rule_is_listed_and_says_what_bias_it_has() -> None:
    known = {type(listed.rule) for listed in RULES}
    public = {value for name in credit_module.__all__ if isinstance(value := vars(credit_module)[name], type) and hasattr(value, "parts")}
    assert {rule for rule in public if rule is not Rule and "__call__" in vars(rule)} <= known
    for rule in known:
        assert "\n    Bias: " in (rule.__doc__ or ""), rule


@given(group=groups)
def test_istar_process_parts_of_a_group_sum_to_zero(group: Group[Scored]) -> None:
    total = sum(float(member.parts["process"].sum()) for member in credit(IStar(only_mixed=False), group))
    assert abs(total) < 1e-6


@given(group=groups)
def test_whitened_credit_has_mean_zero_and_deviation_one_over_tokens(group: Group[Scored]) -> None:
    """U30: over tokens that have an advantage; nothing where there are fewer than two, or all are equal."""
    made = credit(ReinforcePlusPlus(), group)
    told = [m for m in made if m.parts["offset"].any() or m.advantages_S.any()]
    weights = np.concatenate([np.zeros(0), *(m.scored.steps.lengths_S * (m.parts["offset"] != 0) for m in told)])
    values = np.concatenate([np.zeros(0), *(m.advantages_S for m in told)])
    assume(weights.sum() >= 2 and np.ptp(values[weights > 0]) > 0.01)
    mean = (weights * values).sum() / weights.sum()
    assert abs(mean) < 1e-6
    assert (weights * (values - mean) ** 2).sum() / (weights.sum() - 1) == pytest.approx(1.0, abs=1e-3)


@given(st.lists(st.tuples(numbers, st.integers(0, 3)), max_size=12), st.sampled_from([Centred(), Standardised(), LeaveOneOut(), Raw()]))
def test_comparing_by_key_is_comparing_key_by_key(pairs: list[tuple[float, int]], baseline: Baseline) -> None:
    x, key = np.array([value for value, _ in pairs], np.float64), np.array([k for _, k in pairs], np.int64)
    together = compare_each(baseline, x, key)
    for k in set(key.tolist()):
        assert np.allclose(together[key == k], compare(baseline, x[key == k]), atol=1e-6)


@given(st.lists(numbers, min_size=1, max_size=6), st.integers(0, 5))
def test_the_smooth_minimum_tends_to_the_minimum_and_unscored_steps_take_no_part(rewards: list[float], place: int) -> None:
    hard, soft = least_to_go(np.array(rewards)), least_to_go(np.array(rewards), 1e-4)
    assert hard[0] == min(rewards)
    assert soft[0] == pytest.approx(hard[0], abs=1e-3)
    unscored: list[float | None] = [*rewards]
    unscored.insert(place, None)
    other = make_scored([1], outcome=0.0, process=[0.0])
    for rule in (MinForm(None), MinForm(None, temperature=0.0)):
        plain = advantages(rule, make_group(make_scored([1] * len(rewards), outcome=1.0, process=rewards), other))[0]
        with_unscored = advantages(rule, make_group(make_scored([1] * len(unscored), outcome=1.0, process=unscored), other))[0]
        assert np.allclose(np.delete(with_unscored, min(place, len(rewards))), plain)


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
