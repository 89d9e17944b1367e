"""Credit rules against values computed by hand, and faults of other libraries (ids U..)."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from builders import make_group, make_scored, outcomes_group

from stepwell.credit import Baseline, Centred, IStar, LeaveOneOut, OutcomeOnly, ProcessToGo, Raw, Standardised, credit_metrics, to_go
from stepwell.errors import ConfigError, CreditError
from stepwell.protocols import Assign
from stepwell.types import Credited, Group, Scored

RULES: list[Assign] = [OutcomeOnly(), OutcomeOnly(LeaveOneOut()), IStar(), IStar(LeaveOneOut(), step_baseline=Centred()), ProcessToGo()]


def advantages(rule: Assign, group: Group[Scored]) -> list[list[float]]:
    return [member.advantages_S.tolist() for member in rule([group])[0].members]


def per_episode(rule: Assign, group: Group[Scored]) -> list[float]:
    """Advantages of one-step episodes."""
    return [values[0] for values in advantages(rule, group)]


S3 = math.sqrt(3.0)


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [
        (Centred(), [0.5, -0.5, 0.5, -0.5]),
        (Standardised(ddof=0, noise_floor=0.0), [1.0, -1.0, 1.0, -1.0]),
        (Standardised(ddof=1, noise_floor=0.0), [S3 / 2, -S3 / 2, S3 / 2, -S3 / 2]),
        (LeaveOneOut(), [2 / 3, -2 / 3, 2 / 3, -2 / 3]),
    ],
    ids=["U17-drgrpo", "U17-ddof0", "U17-ddof1", "U17-rloo"],
)
def test_outcome_advantages_compare_the_members_of_a_task(baseline: Baseline, expected: list[float]) -> None:
    assert per_episode(OutcomeOnly(baseline), outcomes_group([1.0, 0.0, 1.0, 0.0])) == pytest.approx(expected)


@pytest.mark.parametrize("rule", RULES)
def test_u16_a_flat_group_gives_exact_zeros_and_is_counted(rule: Assign) -> None:
    credited = rule([outcomes_group([0.1] * 4)])
    assert [member.advantages_S.tolist() for member in credited[0].members] == [[0.0]] * 4
    assert credit_metrics(credited)["credit/flat_groups"] == 1.0


def test_u16_the_share_of_flat_groups() -> None:
    credited = OutcomeOnly()([outcomes_group([1.0, 1.0]), outcomes_group([1.0, 0.0]), outcomes_group([None, None])])
    assert credit_metrics(credited)["credit/flat_groups"] == 0.5


@pytest.mark.parametrize("place", [0, 1, 2])
def test_u19_an_unscored_outcome_leaves_the_baseline(place: int) -> None:
    outcomes: list[float | None] = [1.0, 0.0]
    outcomes.insert(place, None)
    expected = [0.5, -0.5]
    expected.insert(place, 0.0)
    assert per_episode(OutcomeOnly(Centred()), outcomes_group(outcomes)) == expected


def test_u19_all_unscored_gives_zeros() -> None:
    credited = OutcomeOnly()([outcomes_group([None, None])])
    assert [member.advantages_S.tolist() for member in credited[0].members] == [[0.0], [0.0]]
    metrics = credit_metrics(credited)
    assert metrics["credit/unscored_outcomes"] == 2.0
    assert "credit/outcome" not in metrics
    assert "credit/flat_groups" not in metrics


@pytest.mark.parametrize("rule", RULES)
def test_u20_failed_and_empty_members_do_not_move_their_siblings(rule: Assign) -> None:
    good = [make_scored([2, 1], outcome=1.0, process=[0.5, 0.25]), make_scored([3], outcome=0.0, process=[-0.5])]
    failed = make_scored([4], outcome=1.0, process=[9.0], failed=True)
    empty = make_scored([0], outcome=1.0, process=[9.0])
    alone, together = advantages(rule, make_group(*good)), advantages(rule, make_group(failed, good[0], empty, good[1]))
    assert alone[0][0] > 0 > alone[1][0]
    assert together[0] == [0.0]
    assert [together[1], together[3]] == alone
    assert together[2] == [0.0]


def test_u20_the_number_of_the_report() -> None:
    members = [make_scored([1], outcome=1.0), make_scored([1], outcome=0.0), make_scored([1], outcome=1.0, failed=True)]
    assert per_episode(OutcomeOnly(Centred()), make_group(*members)) == [0.5, -0.5, 0.0]


def test_u21_a_missing_component_leaves_the_other_and_all_stays_finite() -> None:
    """Component A (process) is [1, None, 0], component B (outcome) [0, 1, 1]."""
    members = [make_scored([1], outcome=b, process=[a]) for a, b in [(1.0, 0.0), (None, 1.0), (0.0, 1.0)]]
    credited = IStar(Centred(), alpha=1.0, step_baseline=Centred())([make_group(*members)])[0]
    assert [float(member.parts["process"][0]) for member in credited.members] == [0.5, 0.0, -0.5]
    assert [float(member.parts["outcome"][0]) for member in credited.members] == pytest.approx([-2 / 3, 1 / 3, 1 / 3])


def test_u22_long_failures_do_not_outweigh_a_short_success() -> None:
    members = [make_scored([1], outcome=1.0), make_scored([1] * 9, outcome=-1.0)]
    assert advantages(OutcomeOnly(Centred()), make_group(*members)) == [[1.0], [-1.0] * 9]


def test_u25_raw_rewards_stay_beside_the_advantages() -> None:
    members = [make_scored([1, 1], outcome=1.0, process=[-0.2, 1.0]), make_scored([1, 1], outcome=0.0, process=[0.0, 0.0])]
    for rule in RULES:
        credited = rule([make_group(*members)])[0]
        assert credited.members[0].scored.rewards["judge"].tolist() == [-0.2, 1.0]
        assert credited.members[0].advantages_S.shape == (2,)


def test_u27_step_rewards_reach_their_turn() -> None:
    assert to_go(np.array([0.2, 0.0, 1.0])).tolist() == [1.2, 1.0, 1.0]
    rule = ProcessToGo(baseline=None)
    other = make_scored([1], outcome=None, process=[0.5])

    def of(first: float) -> list[float]:
        return advantages(rule, make_group(make_scored([1, 1, 1], outcome=None, process=[first, 0.0, 1.0]), other))[0]

    assert of(0.2) == pytest.approx([0.7, 0.5, 0.5])
    assert of(0.6) == pytest.approx([1.1, 0.5, 0.5])


def test_returns_with_discount_and_unscored_steps() -> None:
    members = [make_scored([1, 1, 1], outcome=None, process=[1.0, None, 4.0]), make_scored([1], outcome=None, process=[0.0])]
    group = make_group(*members)
    assert advantages(ProcessToGo(baseline=None, discount=0.5), group) == [[2.0, 0.0, 4.0], [-2.0]]
    assert advantages(ProcessToGo(baseline=None, alpha=0.5, discount=1.0), group) == [[2.5, 0.0, 2.0], [-2.5]]


def test_returns_may_be_compared_with_the_group_mean() -> None:
    members = [make_scored([1, 1], outcome=1.0, process=[1.0, 3.0]), make_scored([1], outcome=0.0, process=[0.0])]
    rule = ProcessToGo(baseline=Centred(), return_baseline=Centred())
    assert advantages(rule, make_group(*members)) == [[2.5, 1.5], [-2.5]]


def test_raw_returns_are_credited_also_where_nobody_else_is() -> None:
    rule = ProcessToGo(baseline=None, return_baseline=Raw())
    assert advantages(rule, make_group(make_scored([1, 1], outcome=None, process=[1.0, 3.0]))) == [[4.0, 3.0]]


def test_a_reward_at_the_end_alone_is_outcome_credit() -> None:
    members = [make_scored([1, 2], outcome=1.0, process=[0.0, 1.0]), make_scored([1, 1, 1], outcome=0.0, process=[0.0, 0.0, 0.0])]
    group = make_group(*members)
    assert advantages(ProcessToGo(baseline=None), group) == advantages(OutcomeOnly(LeaveOneOut()), group)


def test_istar_normalises_over_all_steps_of_all_members() -> None:
    """R_s = [0, 2, 4, 2]: mean 2, standard deviation (ddof 0) sqrt 2."""
    members = [make_scored([1, 1, 1], outcome=1.0, process=[0.0, 2.0, 4.0]), make_scored([5], outcome=0.0, process=[2.0])]
    rule = IStar(Centred(), alpha=0.5, step_baseline=Standardised(ddof=0, noise_floor=0.0))
    root = math.sqrt(2.0)
    values = advantages(rule, make_group(*members))
    assert values[0] == pytest.approx([0.5 - 0.5 * root, 0.5, 0.5 + 0.5 * root])
    assert values[1] == pytest.approx([-0.5])


def test_istar_steps_do_not_come_from_first_steps_alone() -> None:
    """The released code's fault: the mean of first steps (0 and 2, mean 1) would give the first step -1."""
    members = [make_scored([1, 1, 1], outcome=1.0, process=[0.0, 2.0, 4.0]), make_scored([5], outcome=0.0, process=[2.0])]
    parts = IStar(step_baseline=Centred())([make_group(*members)])[0].members[0].parts
    assert parts["process"].tolist() == [-2.0, 0.0, 2.0]


def test_istar_without_process_rewards_is_outcome_only() -> None:
    group = outcomes_group([1.0, 0.0, None, 0.5])
    assert advantages(IStar(), group) == advantages(OutcomeOnly(), group)


def test_a_judge_that_equals_its_reference_gives_exactly_zero_step_credit() -> None:
    members = [make_scored([1, 2, 3], outcome=1.0, process=[0.0] * 3), make_scored([4], outcome=0.0, process=[0.0])]
    credited = IStar()([make_group(*members)])[0]
    assert all(np.all(member.parts["process"] == 0.0) for member in credited.members)


def test_the_noise_floor_keeps_rounding_noise_small() -> None:
    noise = [make_scored([1, 1], outcome=1.0, process=[1e-8, -1e-8]), make_scored([1], outcome=0.0, process=[0.0])]
    credited = IStar(alpha=1.0)([make_group(*noise)])[0]
    assert np.abs(credited.members[0].parts["process"]).max() == pytest.approx(1e-4, rel=1e-3)


def test_groups_without_both_outcomes_get_no_process_part() -> None:
    members = [make_scored([1, 1], outcome=1.0, process=[1.0, -1.0]), make_scored([1], outcome=1.0, process=[0.5])]
    assert advantages(IStar(), make_group(*members)) == [[0.0, 0.0], [0.0]]
    paid = advantages(IStar(step_baseline=Centred(), only_mixed=False), make_group(*members))
    assert np.allclose(paid[0], [5 / 6, -7 / 6])
    assert np.allclose(paid[1], [1 / 3])


def test_an_unscored_outcome_keeps_its_process_part_and_an_unscored_step_its_outcome_part() -> None:
    members = [
        make_scored([1, 1], outcome=1.0, process=[1.0, None]),
        make_scored([1], outcome=0.0, process=[0.0]),
        make_scored([1], outcome=None, process=[5.0]),
    ]
    values = advantages(IStar(Centred(), step_baseline=Centred()), make_group(*members))
    assert values == [[0.5 - 1.0, 0.5], [-0.5 - 2.0], [3.0]]


def test_u29_steps_beyond_the_shorter_episode_are_compared_with_all_steps_of_the_group() -> None:
    members = [make_scored([1, 1], outcome=1.0, process=[1.0, 0.0]), make_scored([1] * 4, outcome=0.0, process=[0.0, 0.0, 1.0, 4.0])]
    credited = IStar(alpha=1.0, step_baseline=Centred())([make_group(*members)])[0]
    assert [member.parts["process"].tolist() for member in credited.members] == [[0.0, -1.0], [-1.0, -1.0, 0.0, 3.0]]


def test_leave_one_out_needs_two() -> None:
    for rule in (OutcomeOnly(LeaveOneOut()), IStar(LeaveOneOut()), ProcessToGo()):
        with pytest.raises(CreditError, match=r"^rollout\.group_size is 1; leave_one_out needs at least 2\.$"):
            rule([outcomes_group([1.0])])


def test_u17_a_group_of_one_gets_zero_and_is_counted() -> None:
    credited = OutcomeOnly()([outcomes_group([1.0]), outcomes_group([1.0, 0.0])])
    assert credited[0].members[0].advantages_S.tolist() == [0.0]
    assert credit_metrics(credited)["credit/lone_groups"] == 1.0


def test_one_survivor_of_a_group_gets_zero() -> None:
    members = [make_scored([1], outcome=1.0), make_scored([1], outcome=1.0, failed=True)]
    assert per_episode(OutcomeOnly(LeaveOneOut()), make_group(*members)) == [0.0, 0.0]
    judged = [make_scored([1, 1], outcome=1.0, process=[1.0, 2.0]), make_scored([1], outcome=1.0, process=[0.0], failed=True)]
    assert advantages(ProcessToGo(), make_group(*judged)) == [[0.0, 0.0], [0.0]]


def test_parts_add_up_to_the_advantages() -> None:
    members = [make_scored([1, 2], outcome=1.0, process=[0.3, -0.2]), make_scored([4], outcome=0.0, process=[0.1])]
    for rule in RULES:
        for member in rule([make_group(*members)])[0].members:
            assert np.array_equal(sum(member.parts.values()), member.advantages_S)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: IStar(alpha=-1.0), "credit.alpha is -1.0"),
        (lambda: IStar(alpha=math.nan), "credit.alpha is nan"),
        (lambda: ProcessToGo(discount=1.5), "The discount is 1.5; it lies in"),
        (
            lambda: ProcessToGo(return_baseline=Standardised()),
            "The baseline of returns is group_std; allowed are leave_one_out",
        ),
        (lambda: Standardised(ddof=2), "ddof is 2; allowed are 0"),
        (lambda: Standardised(noise_floor=-1.0), "noise_floor is -1.0"),
        (lambda: Standardised(noise_floor=math.inf), "noise_floor is inf; it needs to be a finite number"),
    ],
)
def test_settings_that_cannot_work_are_refused(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(ConfigError, match=message):
        build()


def test_an_outcome_that_is_nan_is_refused() -> None:
    scored = make_scored([1], outcome=1.0)
    broken = Scored(scored.episode, scored.steps, math.nan, {}, scored.scored_S)
    with pytest.raises(CreditError, match=r"outcomes \[nan, 1.0\]; outcomes are finite, and None where there is no score"):
        OutcomeOnly()([make_group(broken, scored)])


def test_credit_needs_no_torch() -> None:
    code = "import sys, stepwell.credit; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- metrics ------------------------------------------------------------------------------------------------------------------


def test_u31_a_rollout_counts_once_in_the_mean() -> None:
    members = [make_scored([1, 1], outcome=1.0), make_scored([1] * 8, outcome=0.0)]
    assert credit_metrics(OutcomeOnly()([make_group(*members)]))["credit/outcome"] == 0.5


def test_u34_raw_returns_and_advantages_are_reported_apart() -> None:
    members = [make_scored([1, 1], outcome=1.0, process=[1.0, 2.0]), make_scored([1], outcome=0.0, process=[5.0])]
    credited = ProcessToGo(baseline=None, return_baseline=Centred())([make_group(*members)])
    metrics = credit_metrics(credited)
    assert [float(member.scored.process_S.sum()) for member in credited[0].members] == [3.0, 5.0]
    assert [float(member.advantages_S[0]) for member in credited[0].members] == [-1.0, 1.0]
    assert metrics["credit/return"] == 4.0


def test_metrics_of_a_small_batch() -> None:
    members = [
        make_scored([1, 3], outcome=1.0, process=[1.0, None]),
        make_scored([2], outcome=0.0, process=[0.0]),
        make_scored([7], outcome=1.0, process=[9.0], failed=True),
        make_scored([2], outcome=None, process=[0.5]),
    ]
    credited = IStar(Centred(), alpha=2.0, step_baseline=Centred())([make_group(*members)])
    assert credit_metrics(credited) == pytest.approx(
        {
            "credit/flat_groups": 0.0,
            "credit/lone_groups": 0.0,
            "credit/failed": 1.0,
            "credit/unscored_outcomes": 1.0,
            "credit/unscored_steps": 1.0,
            "credit/untold_steps": 1.0,
            "credit/unknown_confidence": 3.0,
            "credit/outcome": 0.5,
            "credit/return": 0.5,
            "credit/outcome_abs": 6 * 0.5 / 8,
            "credit/process_abs": (1 * 1.0 + 2 * 1.0) / 8,
            "credit/advantage_abs": (1 * 1.5 + 3 * 0.5 + 2 * 1.5 + 0.0) / 8,
        }
    )


def test_metrics_of_nothing() -> None:
    assert credit_metrics([]) == {
        "credit/lone_groups": 0.0,
        "credit/failed": 0.0,
        "credit/unscored_outcomes": 0.0,
        "credit/unscored_steps": 0.0,
        "credit/untold_steps": 0.0,
        "credit/unknown_confidence": 0.0,
    }


def test_a_credited_member_keeps_its_scored_one() -> None:
    group = outcomes_group([1.0, 0.0])
    credited: Group[Credited] = OutcomeOnly()([group])[0]
    assert credited.task is group.task
    assert all(new.scored is old for new, old in zip(credited.members, group.members, strict=True))
