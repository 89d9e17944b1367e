"""Every credit rule on three short episodes, against values computed by hand; what a rule refuses; faults of other libraries (ids U..)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from builders import make_group, make_scored
from credit_rules import RULES, Listed, ready_group

from stepwell.credit import (
    Adaptive,
    Centred,
    Counterfactual,
    GiGPO,
    IStar,
    LeaveOneOut,
    MinForm,
    OutcomeOnly,
    Prime,
    ProcessSupervision,
    ProcessToGo,
    Raw,
    ReinforcePlusPlus,
    RePIRL,
    Standardised,
    SuffixLogRatio,
    Whitened,
    by_token,
    credit_metrics,
    group_by_hand,
    needs_of,
)
from stepwell.credit.adaptive import trust
from stepwell.errors import ConfigError, CreditError, RecordError
from stepwell.protocols import Assign
from stepwell.types import Episode, Group, Scored

OUTCOMES, REWARDS = [1.0, 0.0, 0.0], [[0.3, 0.1], [0.0, -0.4, -0.2], [0.1]]
STATES = [["shop", "page"], ["shop", "page", "cart"], ["shop"]]
TRIO = group_by_hand(OUTCOMES, REWARDS, states=STATES, log_ratios=[[0.5, 1.0], [0.0, -1.0, 2.0], [0.0]], confidence=0.75)

STD = math.sqrt(3.7 / 5)  # of the sums to come 1.4, 1.1, -0.6, -0.6, -0.2, 0.1, whose mean is 0.2
OVER = math.sqrt(4 / 15)  # of 2/3, 2/3, -1/3 four times

BY_HAND: dict[str, tuple[Assign, list[list[float]]]] = {
    "raw": (OutcomeOnly(Raw()), [[1, 1], [0, 0, 0], [0]]),
    "scale of the batch": (
        OutcomeOnly(Centred(), "batch"),
        [[2 / 3 / (math.sqrt(1 / 3) + 1e-4)] * 2, [-1 / 3 / (math.sqrt(1 / 3) + 1e-4)] * 3, [-1 / 3 / (math.sqrt(1 / 3) + 1e-4)]],
    ),
    "reinforce_pp": (ReinforcePlusPlus(), [[1.2 / STD, 0.9 / STD], [-0.8 / STD, -0.8 / STD, -0.4 / STD], [-0.1 / STD]]),
    "reinforce_pp_baseline": (Whitened(OutcomeOnly(Centred())), [[2 / 3 / OVER] * 2, [-1 / 3 / OVER] * 3, [-1 / 3 / OVER]]),
    "process_supervision": (
        ProcessSupervision(step_baseline=Centred()),
        [[0.4 + 2 / 60, 0.1 + 1 / 60], [-0.6 + 3 / 60, -0.6 + 2 / 60, -0.2 + 1 / 60], [0.1 + 1 / 60]],
    ),
    "process_supervision, with outcome": (
        ProcessSupervision(LeaveOneOut(), 0.5, Centred()),
        [[1 + 0.2 + 1 / 60, 1 + 0.05 + 0.5 / 60], [-0.5 - 0.3 + 1.5 / 60, -0.5 - 0.3 + 1 / 60, -0.5 - 0.1 + 0.5 / 60], [-0.45 + 0.5 / 60]],
    ),
    "prime": (Prime(), [[1.5, 1.15], [-1.55, -1.4, -0.85], [-0.4]]),
    "prime, discounted": (
        Prime(discount=0.5),
        [[1 + 0.35 + 0.075, 1.15], [-0.5 - 0.15 - 0.275 - 0.0875, -0.5 - 0.55 - 0.175, -0.85], [-0.4]],
    ),
    "prime, released": (Prime(form="released"), [[1.5, 1.1], [-1.55, -1.5, -0.85], [-0.4]]),
    "repirl": (RePIRL(1.0), [[1.65, 1.7], [-0.5 - 0.85, -1.0 - 0.7, -0.5 - 0.45], [-0.5 + 0.2]]),
    "repirl, alone raw": (RePIRL(1.0, alone="raw"), [[1.65, 1.7], [-1.35, -1.7, -0.2], [-0.3]]),
    "repirl, unit of the batch": (
        RePIRL(0.6, unit="largest_return"),  # The largest sum to come is -0.6: alpha is 1 (but for 1e-6).
        [[1.65, 1.7], [-1.35, -1.7, -0.95], [-0.3]],
    ),
    "gigpo": (
        GiGPO(Centred(), 1.0, Centred()),
        [[2 / 3 + 0.95 * 2 / 3, 2 / 3 + 0.5], [-1 / 3 - 0.95 / 3, -1 / 3 - 0.5, -1 / 3], [-1 / 3 - 0.95 / 3]],
    ),
    "gigpo, process": (
        GiGPO(Centred(), 2.0, Centred(), 1.0, "process"),
        [[2 / 3 + 2 * (0.4 + 0.1 / 3), 2 / 3 + 0.7], [-1 / 3 + 2 * (-0.6 + 0.1 / 3), -1 / 3 - 0.7, -1 / 3], [-1 / 3 + 2 * (0.1 + 0.1 / 3)]],
    ),
    "gigpo, both": (
        GiGPO(Centred(), 1.0, LeaveOneOut(), 1.0, "both"),
        [[2 / 3 + 1.4 + 0.25, 2 / 3 + 1.1 + 0.6], [-1 / 3 - 0.6 - 0.75, -1 / 3 - 1.7, -1 / 3], [-1 / 3 + 0.1 - 0.4]],
    ),
    "min_form, hard": (MinForm(temperature=0.0), [[1.25, 1.25], [-0.5 - 0.5, -0.5 - 0.5, -0.5 - 0.3], [-0.25]]),
    "min_form, mean of the group": (
        MinForm(None, 2.0, 0.0, Centred()),
        [[2 * (0.1 + 0.2 / 3)] * 2, [2 * (-0.4 + 0.2 / 3)] * 2 + [2 * (-0.2 + 0.2 / 3)], [2 * (0.1 + 0.2 / 3)]],
    ),
    "suffix": (SuffixLogRatio(Centred(), 0.1), [[2 / 3 - 0.15, 2 / 3 - 0.1], [-1 / 3 - 0.1, -1 / 3 - 0.1, -1 / 3 - 0.2], [-1 / 3]]),
    "adaptive": (
        Adaptive(IStar(Centred(), 1.0, Centred())),
        [
            [2 / 3 + 0.15 + 0.5 / 60, 2 / 3 + 0.05 + 0.5 / 60],
            [-1 / 3 + 0.5 / 60, -1 / 3 - 0.2 + 0.5 / 60, -1 / 3 - 0.1 + 0.5 / 60],
            [-1 / 3 + 0.05 + 0.5 / 60],
        ],
    ),
    "adaptive to go": (Adaptive(ProcessToGo(None)), [[0.5 * 0.65, 0.5 * 0.35], [0.5 * -0.85, 0.5 * -0.85, 0.5 * -0.45], [0.5 * 0.2]]),
}


def advantages(rule: Assign, group: Group[Scored]) -> list[list[float]]:
    return [member.advantages_S.tolist() for member in rule([group])[0].members]


@pytest.mark.parametrize("name", BY_HAND)
def test_three_short_episodes(name: str) -> None:
    rule, expected = BY_HAND[name]
    for mine, wanted in zip(advantages(rule, TRIO), expected, strict=True):
        assert mine == pytest.approx(wanted, abs=5e-6)


def test_the_smooth_minimum_weighs_by_softmax() -> None:
    """Rewards 0.3 and 0.1 at temperature 0.1: weights 1 / (1 + e^2) and e^2 / (1 + e^2)."""
    low = math.e**2 / (1 + math.e**2)
    group = group_by_hand([None, None], [[0.3, 0.1], [0.0]])
    assert advantages(MinForm(None), group)[0] == pytest.approx([0.3 * (1 - low) + 0.1 * low, 0.1 * low])


def test_whitening_counts_tokens() -> None:
    """One step of three tokens at 1, one of one token at 0: mean 3/4, variance (3 / 16 + 9 / 16) / 3."""
    members = [make_scored([3], outcome=1.0), make_scored([1], outcome=0.0)]
    assert advantages(ReinforcePlusPlus(), make_group(*members)) == [pytest.approx([0.5]), pytest.approx([-1.5])]


def test_u30_whitening_over_nothing_or_one_token_is_zero() -> None:
    for rule in (ReinforcePlusPlus(), Whitened(Prime()), Whitened(OutcomeOnly(Raw()))):
        assert rule([]) == []
        empty = make_group(make_scored([0], outcome=1.0), make_scored([0], outcome=0.0))
        assert advantages(rule, empty) == [[0.0], [0.0]]
        one_token = make_group(make_scored([1], outcome=1.0), make_scored([0], outcome=0.0))
        assert advantages(rule, one_token) == [[0.0], [0.0]]


def test_whitening_apart_gives_both_parts_the_deviation_one() -> None:
    """Outcomes 1 and 0 differ by ten times what process rewards do; whitened apart at 1, both weigh alike."""
    group = group_by_hand([1.0, 0.0], [[0.0], [0.1]])
    together = advantages(Whitened(IStar(Centred(), 1.0, Centred())), group)
    apart = advantages(Whitened(IStar(Centred(), 1.0, Centred()), apart=1.0), group)
    assert together[0][0] == pytest.approx(math.sqrt(0.5), abs=1e-4)
    assert apart == [pytest.approx([0.0], abs=1e-4), pytest.approx([0.0], abs=1e-4)]
    assert advantages(Whitened(IStar(Centred(), 1.0, Centred()), apart=0.0), group)[0][0] == pytest.approx(math.sqrt(0.5), abs=1e-4)


def test_the_outcome_is_paid_at_the_last_step_that_has_tokens() -> None:
    """U43: a turn without tokens behind it takes nothing from it."""
    group = make_group(make_scored([1, 1, 0], outcome=1.0), make_scored([1], outcome=0.0))
    made = ReinforcePlusPlus(discount=0.5).parts([group])[0]
    steps = made.parts["outcome"].values_S[:2]
    assert steps[1] == pytest.approx(2.0 * steps[0])
    assert made.parts["outcome"].values_S[2] == 0.0


def test_whitening_leaves_alone_what_nobody_could_compare() -> None:
    """A lone member of a group has no advantage to be whitened, a step without tokens none either."""
    pair, lone = group_by_hand([1.0, 0.0], [[None], [None, None]]), group_by_hand([1.0], [[None]])
    rule = Whitened(OutcomeOnly(Centred()))
    both, alone = rule([pair, lone])
    assert [member.advantages_S.tolist() for member in both.members] == advantages(rule, pair)
    assert alone.members[0].advantages_S.tolist() == [0.0]
    holed = make_group(make_scored([1, 0], outcome=1.0), make_scored([2], outcome=0.0))
    assert advantages(ReinforcePlusPlus(), holed)[0][1] == 0.0


@pytest.mark.parametrize("rule", [IStar(only_mixed=False), ProcessSupervision(), Prime(), RePIRL(), MinForm(), ProcessToGo()])
def test_the_only_scored_step_of_a_group_has_nothing_to_be_compared_with(rule: Assign) -> None:
    credited = rule([group_by_hand([1.0, 0.0], [[0.7, None], [None]])])
    assert not any(member.parts["process"].any() for member in credited[0].members)
    assert credit_metrics(credited)["credit/untold_steps"] == 3.0


def test_what_a_step_of_the_others_earned_is_a_mean_over_scored_steps() -> None:
    """The other's mean is 0.4, not 0.2."""
    group = group_by_hand([None, None], [[1.0], [0.4, None]])
    assert advantages(Prime(), group) == [pytest.approx([0.6]), pytest.approx([-0.6, 0.0])]


def test_states_met_once_and_states_without_a_key_get_nothing_and_are_counted() -> None:
    group = group_by_hand([1.0, 0.0], [[None, None], [None, None]], states=[["", "a"], ["", "b"]])
    credited = GiGPO()([group])
    assert all(not member.parts["process"].any() for member in credited[0].members)
    assert credit_metrics(credited)["credit/untold_steps"] == 4.0


def test_states_of_different_tasks_are_different() -> None:
    one = group_by_hand([1.0, 0.0], [[None], [None]], states=[["a"], ["b"]])
    two = group_by_hand([0.0, 1.0], [[None], [None]], states=[["b"], ["a"]])
    assert all(not member.parts["process"].any() for group in GiGPO()([one, two]) for member in group.members)


def test_a_state_that_one_episode_meets_twice_is_compared_with_itself() -> None:
    group = group_by_hand([1.0], [[None, None]], states=[["a", "a"]])
    parts = GiGPO(discount=0.5, step_baseline=Centred())([group])[0].members[0].parts
    assert parts["process"].tolist() == [-0.25, 0.25]


def test_all_steps_of_a_turn_share_what_its_state_says() -> None:
    group = group_by_hand([1.0, 0.0], [[0.5], [0.1]], states=[["a"], ["a"]])
    members = []
    for member in group.members:
        turn = replace(member.episode.turns[0], token_ids=np.array([2, 3]), logprobs=np.array([-1.0, -1.0]))
        episode = replace(member.episode, turns=(turn,))
        members.append(Scored(episode, by_token(episode), member.outcome, {"judge": np.array([0.2, 0.3])}, np.ones(2, np.bool_)))
    parts = [member.parts["process"].tolist() for member in GiGPO(step_baseline=Centred())([make_group(*members)])[0].members]
    assert parts == [[0.5, 0.5], [-0.5, -0.5]]


def test_the_suffix_starts_at_the_first_or_last_token_of_the_step() -> None:
    member = make_scored([2, 0, 1], outcome=1.0)
    member = replace(member, old_logprobs_T=np.array([-1.0, -1.0, -1.0]), ref_logprobs_T=np.array([-1.1, -1.2, -1.4]))
    lone = make_group(member, replace(member, outcome=None))
    assert advantages(SuffixLogRatio(Centred(), 1.0), lone)[0] == pytest.approx([-0.7, 0.0, -0.4])
    assert advantages(SuffixLogRatio(Centred(), 1.0, "last"), lone)[0] == pytest.approx([-0.6, 0.0, -0.4])


def test_the_suffix_is_of_the_trainers_log_probs_where_they_are_known() -> None:
    member = replace(make_scored([1], outcome=1.0), ref_logprobs_T=np.array([-2.0]))
    sampler = advantages(SuffixLogRatio(Raw(), 1.0), make_group(member))
    trainer = advantages(SuffixLogRatio(Raw(), 1.0), make_group(replace(member, old_logprobs_T=np.array([-1.5]))))
    assert (sampler, trainer) == ([[0.0]], [[0.5]])


@pytest.mark.parametrize(("old", "ref"), [([-1.0, math.nan], [-2.0, -1.0]), ([-1.0, -1.0], [math.nan, -1.0])])
def test_a_log_prob_that_is_no_number_is_refused(old: list[float], ref: list[float]) -> None:
    member = replace(make_scored([2], outcome=1.0), old_logprobs_T=np.array(old), ref_logprobs_T=np.array(ref))
    with pytest.raises(CreditError, match=r"Log-probs of member 0 of task 'test/0' hold NaN or infinity; credit by the suffix"):
        SuffixLogRatio(Raw())([make_group(member)])


def test_u16_in_a_flat_group_the_reference_still_pulls() -> None:
    """All outcomes equal: nothing without a price, the price alone with one."""
    group = group_by_hand([1.0, 1.0], [[None], [None]], log_ratios=[[0.5], [-0.5]])
    assert advantages(SuffixLogRatio(beta=0.0), group) == [[0.0], [0.0]]
    assert advantages(SuffixLogRatio(beta=0.1), group) == [pytest.approx([-0.05]), pytest.approx([0.05])]


def test_a_turn_is_worth_what_the_outcome_loses_without_it() -> None:
    def replay(episode: Episode, turn: int) -> float | None:
        return {(0, 0): 1.0, (0, 1): 0.25, (1, 0): 0.5, (1, 2): None}.get((episode.member, turn), 0.0)

    credited = Counterfactual(replay, Centred(), 2.0)([TRIO])
    assert [member.parts["process"].tolist() for member in credited[0].members] == [[0.0, 1.5], [-1.0, 0.0, 0.0], [0.0]]
    assert credit_metrics(credited)["credit/untold_steps"] == 1.0


def test_a_turn_without_tokens_owes_nothing_to_a_replay() -> None:
    [group] = Counterfactual(lambda episode, turn: 0.0)([make_group(make_scored([1, 0], outcome=1.0))])
    assert group.members[0].parts["process"].tolist() == [1.0, 0.0]
    assert group.members[0].told_S is not None and group.members[0].told_S.tolist() == [True, False]


def test_nothing_is_replayed_where_there_is_no_outcome_to_compare_with() -> None:
    def never(episode: Episode, turn: int) -> float | None:
        raise AssertionError("not to be called")

    members = [make_scored([1], outcome=None), make_scored([1], outcome=1.0, failed=True)]
    assert advantages(Counterfactual(never), make_group(*members)) == [[0.0], [0.0]]


def test_a_replay_that_is_not_finite_is_refused() -> None:
    with pytest.raises(CreditError, match=r"Replaying task 'by hand' without a turn gave the outcomes \[nan, nan\]; outcomes are finite"):
        Counterfactual(lambda episode, turn: math.nan)([TRIO])


def test_trust_grows_from_chance_to_certainty() -> None:
    assert [trust(c) for c in (None, 0.0, 0.5, 0.6, 1.0)] == pytest.approx([0.0, 0.0, 0.0, 0.2, 1.0])
    inside = IStar(Centred(), 1.0, Centred())
    for confidence, same in ((1.0, inside), (0.5, OutcomeOnly(Centred())), (None, OutcomeOnly(Centred()))):
        group = group_by_hand(OUTCOMES, REWARDS, confidence=confidence)
        assert advantages(Adaptive(inside), group) == [pytest.approx(row) for row in advantages(same, group)]


def test_an_unknown_confidence_is_counted() -> None:
    metrics = credit_metrics(Adaptive(IStar(Centred()))([group_by_hand(OUTCOMES, REWARDS)]))
    assert (metrics["credit/unknown_confidence"], metrics["credit/untold_steps"]) == (3.0, 6.0)
    assert "credit/confidence" not in metrics
    metrics = credit_metrics(Adaptive(IStar(Centred()))([TRIO]))
    assert (metrics["credit/unknown_confidence"], metrics["credit/confidence"], metrics["credit/untold_steps"]) == (0.0, 0.75, 0.0)


def test_a_rule_without_process_part_cannot_be_mixed() -> None:
    with pytest.raises(CreditError, match="no process part that a judge's confidence could weigh"):
        Adaptive(OutcomeOnly())([TRIO])


def test_what_rules_need_is_said_and_passed_on() -> None:
    assert needs_of(SuffixLogRatio()) == {"reference", "old_logprobs"}
    assert needs_of(Whitened(SuffixLogRatio())) == {"reference", "old_logprobs"}
    assert needs_of(Whitened(Adaptive(IStar()))) == {"confidence"}
    assert needs_of(lambda groups: []) == frozenset()


def test_a_reference_that_is_not_there_is_named() -> None:
    with pytest.raises(
        CreditError, match=r"Member 0 of task 'by hand' has no log-probs under a reference, .* give the trainer a reference"
    ):
        SuffixLogRatio()([group_by_hand(OUTCOMES, REWARDS)])


def test_u14_cutting_the_text_otherwise_does_not_move_the_minimum() -> None:
    """The same text as two steps of 0.8 and 0.6, or as one of 0.6; sums and means change."""
    other = [0.0]

    def first(rule: Assign, cut: list[float]) -> float:
        return advantages(rule, group_by_hand([None, None], [cut, other]))[0][0]

    hard = MinForm(None, temperature=0.0)
    assert first(hard, [0.8, 0.6]) == first(hard, [0.6]) == 0.6
    assert first(ProcessToGo(None), [0.8, 0.6]) == pytest.approx(1.4) != first(ProcessToGo(None), [0.6])


@pytest.mark.parametrize("rule", [IStar(LeaveOneOut(), 1.0, Centred()), Whitened(Prime()), MinForm(), RePIRL(0.05)])
def test_u28_many_tries_in_good_form_do_not_beat_one_that_is_right(rule: Assign) -> None:
    """A: one turn, form 1, correct. B: five turns of form 1, not correct."""
    a, b = advantages(rule, group_by_hand([1.0, 0.0], [[1.0], [1.0] * 5]))
    assert min(a) > max(b)


@pytest.mark.parametrize("listed", [x for x in RULES if x.compares and "gigpo" not in x.name], ids=lambda x: x.name)
def test_u29_no_outcome_leaks_raw_into_the_tail_of_the_longer_episode(listed: Listed) -> None:
    """Two and four steps: lifting all outcomes by 5 changes no outcome part, not even where nobody else is left."""
    rewards: list[list[float | None]] = [[0.1, 0.2], [0.3, 0.1, 0.4, 0.2]]

    def parts(lift: float) -> list[float]:
        members = [make_scored([1] * len(paid), outcome=o + lift, process=paid) for o, paid in zip([1.0, 0.0], rewards, strict=True)]
        made = listed.rule([ready_group(make_group(*members))])[0].members
        return [float(value) for m in made for value in m.parts.get("outcome", np.zeros(len(m.advantages_S)))]

    assert parts(5.0) == pytest.approx(parts(0.0), abs=1e-9)


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: OutcomeOnly(Centred(), "bach"), r"scale is 'bach'; did you mean 'batch'\? Known: batch, group"),  # type: ignore[arg-type]
    (lambda: OutcomeOnly(Standardised(), "batch"), "scale is 'batch' with a baseline that divides by the group's deviation"),
    (lambda: ReinforcePlusPlus(-1.0), r"credit\.alpha is -1\.0"),
    (lambda: ReinforcePlusPlus(discount=2.0), r"The discount is 2\.0; it lies in \[0, 1\]"),
    (lambda: Whitened(OutcomeOnly(), apart=math.inf), r"credit\.alpha is inf"),
    (lambda: ProcessSupervision(alpha=math.nan), r"credit\.alpha is nan"),
    (lambda: Prime(form="papers"), "form is 'papers'; did you mean 'paper'"),  # type: ignore[arg-type]
    (lambda: Prime(unit="nats"), "unit is 'nats'; Known: largest_return, reward"),  # type: ignore[arg-type]
    (lambda: Prime(discount=-0.1), "The discount is -0.1"),
    (lambda: RePIRL(alone="nobody"), "alone is 'nobody'; Known: episode, raw"),  # type: ignore[arg-type]
    (lambda: RePIRL(-1.0), r"credit\.alpha is -1\.0"),
    (lambda: GiGPO(pays="outcomes"), "pays is 'outcomes'; did you mean 'outcome'"),  # type: ignore[arg-type]
    (lambda: GiGPO(discount=1.01), "The discount is 1.01"),
    (lambda: MinForm(temperature=-1.0), r"credit\.temperature is -1\.0; allowed is a finite number of at least 0"),
    (lambda: MinForm(return_baseline=Standardised()), "The baseline of minima is group_std; allowed are leave_one_out, group_mean"),
    (lambda: SuffixLogRatio(beta=math.inf), r"credit\.beta is inf; allowed is a finite number"),
    (lambda: SuffixLogRatio(since="frist"), "since is 'frist'; did you mean 'first'"),  # type: ignore[arg-type]
    (lambda: Counterfactual(lambda episode, turn: 0.0, alpha=-2.0), r"credit\.alpha is -2\.0"),
]


@pytest.mark.parametrize(("build", "message"), BAD)
def test_settings_that_cannot_work_are_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


@pytest.mark.parametrize("rule", [Prime(), RePIRL(), MinForm(), MinForm(None), ProcessSupervision(LeaveOneOut()), Whitened(Prime())])
def test_leaving_one_out_of_a_group_of_one_is_refused(rule: Assign) -> None:
    with pytest.raises(CreditError, match=r"^rollout\.group_size is 1; leave_one_out needs at least 2\.$"):
        rule([group_by_hand([1.0], [[0.5]])])


@pytest.mark.parametrize("rule", [OutcomeOnly(), IStar(), ProcessSupervision(), GiGPO(), Counterfactual(lambda episode, turn: 0.0)])
def test_a_group_of_one_that_is_compared_gets_no_outcome_part_and_is_counted(rule: Assign) -> None:
    credited = rule([group_by_hand([1.0], [[0.5]], states=[["a"]])])
    assert not credited[0].members[0].parts.get("outcome", np.zeros(1)).any()
    assert credit_metrics(credited)["credit/lone_groups"] == 1.0


def test_a_mask_or_rewards_of_another_length_are_refused() -> None:
    member = TRIO.members[0]
    with pytest.raises(RecordError, match=r"Task '.*', member \d: scored_S has 1 entries; the episode has 2 steps"):
        replace(member, scored_S=np.ones(1, np.bool_))
    with pytest.raises(ValueError, match="holds NaN or infinity; a step without a reward is marked in scored_S"):
        replace(member, rewards={"judge": np.array([math.nan, 0.0])})
    with pytest.raises(RecordError, match="steps are marked as scored and there is no reward"):
        replace(member, rewards={}, scored_S=np.ones(2, np.bool_))
    with pytest.raises(ValueError, match=r"The judge's confidence is 1\.5; it lies in \[0, 1\]"):
        replace(member, confidence=1.5)
    with pytest.raises(ValueError, match=r"The judge's confidence is nan"):
        replace(member, confidence=math.nan)
    credited = OutcomeOnly()([TRIO])[0].members[0]
    with pytest.raises(ValueError, match="told_S has 1 entries for 2 steps"):
        replace(credited, told_S=np.ones(1, np.bool_))
