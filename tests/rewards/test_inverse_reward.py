"""Judges that learn from experts: exactly 0 at first, right about episodes they have not seen, and honest about what they do not know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from builders import make_episode
from speakers import Script, Scripted, toy_speaker

from stepwell.credit import by_token, by_turn
from stepwell.engine.batch import episode_rows
from stepwell.engine.local import LocalModel
from stepwell.engine.states import step_end_rows
from stepwell.errors import CapabilityError, ConfigError, RunError, StaleWeightsError
from stepwell.losses import CloningLoss, LogRatio
from stepwell.protocols import Loss, ModelSpec
from stepwell.rewards.examples import Examples, spoilt
from stepwell.rewards.inverse import InverseReward, InverseSettings
from stepwell.rewards.readers import Columns, ImpliedReader, LogRatioReader
from stepwell.rollout import demonstrate, rollout
from stepwell.seeding import generator
from stepwell.testing import check_reward
from stepwell.types import Action, Ending, EndingKind, Episode, Group, Invalid, Row, Scored, Task, Verdict

BEST = ("bbab", "abb", "bb", "abab")


def graded(episode: Episode) -> Verdict:
    """The share of sampled tokens with an even id, which are b, ab and the end of a turn."""
    tokens = np.concatenate([np.zeros(0, np.int64), *(turn.token_ids for turn in episode.turns)])
    share = float(np.mean(tokens % 2 == 0)) if len(tokens) else 0.0
    return Verdict.of(share, success=share > 0.5)


DOMAIN = Scripted(lambda task, member: Script("abc", ["ab", "cab", "b"]), graded)
SPEAKER = toy_speaker()


def replay(task: Task, actions: Sequence[Action | Invalid]) -> Episode:
    return demonstrate(DOMAIN, task, SPEAKER.player, actions)


def demonstration(number: int) -> Episode:
    words = generator("expert", number).choice(BEST, 3)
    return replay(DOMAIN.task(0.5, number, "train"), [Invalid(str(word), "") for word in words])


EXPERTS = Examples(demonstration)


@dataclass
class World:
    policy: LocalModel
    judge: LocalModel
    drawn: int = 0

    def play(self, num_groups: int = 6, size: int = 4) -> list[Group[Episode]]:
        self.drawn += 1
        tasks = [DOMAIN.task(0.5, 100 * self.drawn + g, "train") for g in range(num_groups)]
        return rollout(DOMAIN, tasks, self.policy.snapshot(), SPEAKER.player, group_size=size, seed=(self.drawn,))

    def reward(self, examples: Examples | None = EXPERTS, **settings: object) -> InverseReward:
        made = InverseSettings(**{"pay": "score", "form": self.form, **settings})  # type: ignore[arg-type]
        return InverseReward(self.judge, self.policy, made, examples)

    @property
    def form(self) -> str:
        return "log_ratio" if self.judge.head is None else "head"


def world(model: str = "shared") -> World:
    """With a judge that is a head on a `shared` or its `own` trunk, or a `full` language model."""
    engine = toy_speaker().engine
    policy = engine.model("policy", ModelSpec())
    spec = ModelSpec(of="policy") if model == "full" else ModelSpec(kind="head", of="policy", trunk=model)  # type: ignore[arg-type]
    return World(policy, engine.model("judge", spec))


def move(model: LocalModel, groups: Sequence[Group[Episode]]) -> None:
    model.backward([row for group in groups for episode in group.members for row in episode_rows(episode)], CloningLoss())
    model.step(3e-3)


def members(scored: Sequence[Group[Scored]]) -> list[Scored]:
    return [member for group in scored for member in group.members]


WAYS: dict[str, tuple[str, dict[str, object]]] = {
    "irl head": ("shared", {"lr": 3e-2}),
    "irl head, own trunk, raw": ("own", {"lr": 1e-2, "weights": "raw", "total": "cumulative"}),
    "irl log-ratio": ("full", {"lr": 1e-2, "beta": 0.5, "weights": "uniform"}),
    "irl log-ratio, moving": ("full", {"lr": 1e-2, "beta": 0.5, "reference": "moving", "weights": "tempered"}),
    "discriminator": ("shared", {"lr": 3e-2, "objective": "discriminator"}),
    "airl": ("shared", {"lr": 1e-1, "objective": "discriminator", "logit": "airl"}),
    "discriminator log-ratio": ("full", {"lr": 1e-2, "beta": 0.5, "objective": "discriminator"}),
    "iq": ("own", {"lr": 1e-2, "objective": "iq"}),
}
way = pytest.mark.parametrize("name", WAYS)


def of(name: str, **settings: object) -> tuple[World, InverseReward]:
    model, own = WAYS[name]
    made = world(model)
    return made, made.reward(EXPERTS, **{**own, **settings})


# -- what it says -------------------------------------------------------------------------------------------------------------


@way
def test_credit_is_exactly_zero_at_first_and_the_contract_holds(name: str) -> None:
    made, reward = of(name)
    groups = made.play(5)
    scored = members(reward.score(groups))
    for member in scored:
        np.testing.assert_array_equal(member.rewards["judge"], 0.0)
        assert member.scored_S.all()
    check_reward(reward, groups)
    reward.learn(reward.score(groups))
    assert min(float(np.abs(member.rewards["judge"]).max()) for member in members(reward.score(groups))) > 0
    check_reward(reward, groups)


def test_a_head_is_read_behind_each_steps_last_token_and_bounded() -> None:
    made = world()
    reward = made.reward(lr=1.0, correct="policy")
    groups = made.play(3)
    reward.learn(reward.score(groups))
    for segment in (by_turn, by_token):
        again = InverseReward(made.judge, made.policy, InverseSettings(), EXPERTS, segment=segment)
        for member in members(again.score(groups)):
            (row,) = step_end_rows(member.episode, member.steps)
            tokens = np.concatenate([turn.token_ids for turn in member.episode.turns])
            np.testing.assert_array_equal(row.ids[row.targets - 1], tokens[member.steps.stop_S - 1])
            (said,) = made.judge.forward([row], frozenset({"values"}))
            np.testing.assert_allclose(member.rewards["judge"], np.tanh(said["values"]), atol=1e-5)
            assert np.abs(member.rewards["judge"]).max() < 1.0
            assert np.abs(said["values"]).max() > 1.0, "so the bound is seen to bind"
            # Nothing that comes after a step is seen at its end.
            at = int(row.targets[0])
            short_row = Row.of(np.append(row.ids[:at], 0), row.targets[:1])
            (short,) = made.judge.forward([short_row], frozenset({"values"}))
            assert short["values"][0] == pytest.approx(said["values"][0], abs=1e-5)


def test_implied_rewards_are_differences_of_values_and_the_end_of_a_cut_episode_is_unscored() -> None:
    made, reward = of("iq", discount=0.9)
    groups = made.play(2)
    reward.learn(reward.score(groups))
    (group, *_) = made.play(1)
    cut = replace(group.members[1], ending=Ending(EndingKind.TRUNCATED, "the context is full"))
    (scored,) = reward.score([Group(group.task, (group.members[0], cut))])
    for member, is_cut in zip(scored.members, (False, True), strict=True):
        (row,) = step_end_rows(member.episode, member.steps)
        (said,) = made.judge.forward([row], frozenset({"values"}))
        q_S = said["values"]
        expected = q_S - 0.9 * np.append(q_S[1:], 0.0)
        expected[-1] = 0.0 if is_cut else expected[-1]
        np.testing.assert_allclose(member.rewards["judge"], expected, atol=1e-5)
        assert member.scored_S.tolist() == [True] * (len(q_S) - 1) + [not is_cut]


def test_an_episode_in_several_rows_is_one_episode() -> None:
    """Where the context is rewritten at every turn: the next value lies in another row, and a step without tokens is in none."""
    reader, episode = ImpliedReader(0.5), make_episode([2, 0, 3, 1])
    steps = by_turn(episode)
    nothing = Columns(np.zeros(6), np.zeros(6))
    rows = reader.rows(episode, steps, nothing)
    assert [row.step.tolist() for row in rows] == [[0], [2], [3]]
    rewards_S, known_S = reader.rewards(rows, [{"values": np.array([q])} for q in (1.0, 3.0, 4.0)], 4)
    assert rewards_S.tolist() == [1.0 - 0.5 * 3.0, 0.0, 3.0 - 0.5 * 4.0, 4.0]
    assert known_S.tolist() == [True, False, True, True]
    rewards_S, known_S = reader.rewards(rows, [{"values": np.array([q])} for q in (1.0, np.nan, 4.0)], 4)
    assert (rewards_S.tolist(), known_S.tolist()) == ([0.0, 0.0, 0.0, 4.0], [False, False, False, True])
    (total,) = LogRatioReader(LogRatio(0.5)).rewards(
        LogRatioReader(LogRatio(0.5)).rows(episode, steps, nothing), [{"logprobs": np.full(n, 1.0)} for n in (2, 3, 1)], 4
    )[:1]
    assert total.tolist() == [1.0, 0.0, 1.5, 0.5]


def test_rewards_of_a_discriminator_are_cut_where_asked() -> None:
    made, reward = of("discriminator", lr=1.0, clip=0.25)
    reward.learn(reward.score(made.play(2)))
    values = np.concatenate([member.rewards["judge"] for member in members(reward.score(made.play(2)))])
    assert np.abs(values).max() == 0.25


# -- what it learns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "correct"), [*((name, "policy") for name in WAYS), ("irl head", "positive"), ("discriminator", "positive")]
)
def test_it_learns_from_experts_and_ranks_fresh_episodes_as_the_verdict_does(name: str, correct: str) -> None:
    """With `policy` no verdict is read: what it knows of the task it has from eight new demonstrations a batch."""
    made, reward = of(name, correct=correct)
    before = {name: p.detach().clone() for name, p in made.judge.params.items()}
    accuracies = []
    for _ in range(10):
        metrics = reward.learn(reward.score(made.play(6)))
        accuracies.append(metrics["judge/fresh_pair_accuracy"])
        assert metrics["judge/grad_norm"] > 0
    assert accuracies[0] == 0.5, "nothing is known: every pair is a tie"
    assert np.mean(accuracies[-5:]) > 0.65, accuracies
    assert metrics["judge/pseudo_experts"] > 0 if correct == "positive" else metrics["judge/pseudo_experts"] == 0
    assert all(float((p.detach() - before[name]).abs().max()) > 0 for name, p in made.judge.params.items())
    assert (made.judge.version, made.policy.version) == (10, 0)
    assert metrics["judge/confidence"] > 0.55


def test_without_demonstrations_the_policys_own_successes_teach() -> None:
    made = world()
    reward = made.reward(None, lr=3e-2)
    accuracies = [reward.learn(reward.score(made.play(6)))["judge/fresh_pair_accuracy"] for _ in range(12)]
    assert np.mean(accuracies[-5:]) > 0.65
    with pytest.raises(ConfigError, match=r"There are no experts: no demonstrations.*set reward.correct=positive"):
        made.reward(None, correct="policy")


def test_sides_are_counted() -> None:
    """Own successes and demonstrations on one side, failures and spoilt copies on the other; what is neither is left out and counted."""
    made = world()
    (group, flat) = made.play(2, 5)
    verdicts = [Verdict.of(1.0), Verdict.of(0.0), Verdict.unscored("the grader timed out"), Verdict.of(0.0), Verdict.of(0.0)]
    episodes = [replace(e, verdict=v) for e, v in zip(group.members, verdicts, strict=True)]
    episodes[3] = replace(episodes[3], ending=Ending(EndingKind.FAILED, "gone"), verdict=Verdict.unscored("gone"))
    episodes[4] = replace(episodes[4], turns=())
    mixed = Group(group.task, tuple(episodes))
    bad = Examples(lambda n: replace(demonstration(n), verdict=Verdict.of(0.0 if n == 1 else 1.0)), size=3, copies=2, replay=spoil)
    positive = made.reward(bad, objective="discriminator")
    metrics = positive.learn(positive.score([mixed]))
    counts = {name: metrics[f"judge/{name}"] for name in ("experts", "pseudo_experts", "others", "spoilt", "left_out")}
    assert counts == {"experts": 3, "pseudo_experts": 1, "others": 7, "spoilt": 6, "left_out": 2}
    pure = made.reward(replace(bad, copies=0), correct="policy")
    metrics = pure.learn(pure.score([mixed]))
    counts = {name: metrics[f"judge/{name}"] for name in ("experts", "pseudo_experts", "others", "spoilt", "left_out")}
    assert counts == {"experts": 3, "pseudo_experts": 0, "others": 3, "spoilt": 0, "left_out": 0}
    own = made.reward(None)
    version = made.judge.version
    failures = Group(flat.task, tuple(replace(e, verdict=Verdict.of(0.0)) for e in flat.members))
    metrics = own.learn(own.score([failures]))
    assert (metrics["judge/experts"], metrics["judge/others"]) == (0, 5)
    assert made.judge.version == version, "all failed: there is nothing to compare with"
    assert "judge/loss" not in metrics
    assert np.isnan(metrics["judge/fresh_pair_accuracy"])
    assert own.learn(own.score([]))["judge/others"] == 0


def spoil(task: Task, actions: Sequence[Action | Invalid]) -> Episode:
    return replace(replay(task, actions), verdict=Verdict.of(0.0))


def test_both_sides_of_a_discriminator_weigh_the_same() -> None:
    """Otherwise the best logit is off by the log of how many there are of each."""
    for objective in ("discriminator", "iq"):
        made = world()
        caught: list[list[Row]] = []

        def watched(rows: Sequence[Row], loss: Loss, caught: list[list[Row]] = caught) -> dict[str, float]:
            caught.append(list(rows))
            return {}

        made.judge.backward = watched  # type: ignore[method-assign]
        reward = made.reward(objective=objective, correct="policy")
        reward.learn(reward.score(made.play(3)))
        (rows,) = caught
        for label in (0.0, 1.0):
            weights = [row.weight[:1] if objective == "discriminator" else row.weight for row in rows if row.label == label]
            assert np.concatenate(weights).sum() == pytest.approx(1.0)
        steps = np.concatenate([row.step for row in rows])
        assert len(set(steps.tolist())) == len(steps)
        assert len({row.episode for row in rows}) == len(rows) == 12 + 8


# -- demonstrations -----------------------------------------------------------------------------------------------------------


def test_every_batch_has_new_demonstrations_and_a_resumed_judge_goes_on_with_the_next() -> None:
    shown: list[int] = []
    made = world()

    def noted(number: int) -> Episode:
        shown.append(number)
        return demonstration(number)

    reward = made.reward(Examples(noted, size=2))
    for _ in range(2):
        groups = made.play(2)
        reward.score(groups)
        reward.learn(reward.score(groups))
        again = reward.score(groups)
    assert shown == [0, 1, 0, 1, 2, 3, 2, 3], "episodes that were learnt from need no further demonstrations"
    version = made.judge.version
    assert "judge/loss" not in reward.learn(again)
    assert made.judge.version == version
    resumed = made.reward(Examples(noted, size=2))
    resumed.restore(reward.state())
    shown.clear()
    (scored, _) = resumed.score(made.play(2))
    assert shown == [4, 5]
    assert scored.members[0].confidence == reward.state()["confidence"] is not None
    static = made.reward(Examples(noted, size=2), updates=0)
    shown.clear()
    static.learn(static.score(made.play(1)))
    assert shown == []


def test_a_demonstration_that_fails_stops_the_run() -> None:
    made = world()
    failed = replace(demonstration(0), ending=Ending(EndingKind.FAILED, "starting the environment: OSError: gone"))
    with pytest.raises(RunError, match=r"Demonstration 0, of task 'script/train/0', failed: starting the environment: OSError: gone"):
        made.reward(Examples(lambda n: failed)).score(made.play(1))


def test_spoilt_copies_hold_one_mistake_and_those_that_succeed_are_left_out() -> None:
    actions = [Action("a"), Action("b"), Action("c")]
    names = {"".join(a.name for a in spoilt(actions, np.random.default_rng(n)) if isinstance(a, Action)) for n in range(200)}
    assert names == {"bc", "ac", "ab", "aabc", "abbc", "abcc", "bac", "acb"}
    assert spoilt([], np.random.default_rng(0)) == []
    one = {len(spoilt(actions[:1], np.random.default_rng(n))) for n in range(20)}
    assert one == {0, 2}
    drawn = Examples(demonstration, size=4, copies=2, replay=replay).drawn(0)
    again = Examples(demonstration, size=4, copies=2, replay=replay).drawn(0)
    assert not any(e.verdict.success for e in drawn.spoilt), "the copies of these experts still succeed, so there is none"
    assert [e.num_tokens for e in drawn.experts] == [e.num_tokens for e in again.experts]
    assert len(Examples(demonstration, size=4, copies=2, replay=spoil).drawn(0).spoilt) == 8
    assert len(Examples(demonstration, size=4, copies=2, replay=lambda t, a: replay(t, [])).drawn(0).spoilt) == 0


# -- bad input ----------------------------------------------------------------------------------------------------------------


def test_a_judge_that_says_no_number_leaves_steps_unscored_and_counts_them() -> None:
    made = world()
    groups = made.play(2)
    with torch.no_grad():
        made.judge.params["bias"].fill_(torch.nan)
    reward = made.reward()
    scored = members(reward.score(groups))
    assert not any(member.scored_S.any() or member.rewards["judge"].any() for member in scored)
    metrics = reward.learn(reward.score(groups))
    assert metrics["judge/not_finite"] == sum(len(member.steps) for member in scored) > 0
    assert metrics["judge/left_out"] == len(scored)
    assert np.isnan(metrics["judge/fresh_pair_accuracy"])


def test_one_version_of_the_policy_is_asked_at_a_time() -> None:
    """U15: who is asked about a batch must have sampled it; where only what the sampler said is read, any version may be judged."""
    made, moving = world(), world("full")
    groups = made.play(1)
    asks, weighs = made.reward(objective="discriminator", logit="airl"), made.reward()
    move(made.policy, groups)
    with pytest.raises(StaleWeightsError, match=r"turns of policy version 0, and the policy is now version 1; score before.*read.*\(f\)"):
        asks.score(groups)
    assert weighs.learn(weighs.score([*groups, *made.play(1)]))["judge/ess"] > 1.0
    reward = moving.reward(reference="moving")
    groups = moving.play(1)
    move(moving.policy, groups)
    with pytest.raises(StaleWeightsError, match="with reference=moving all must be the same"):
        reward.score(groups)


@pytest.mark.parametrize("model", ["shared", "own", "full"])
def test_episodes_are_weighed_by_how_they_were_sampled_and_the_policy_is_not_asked(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of demonstrations no log-prob is read; the policy's own are the sampler's, which are the trainer's but for rounding."""
    made = world(model)
    groups = made.play(3)
    trainers = made.policy.snapshot()
    said = {id(e): np.concatenate(trainers.logprobs(episode_rows(e))) for group in groups for e in group.members}
    caught: list[list[Row]] = []
    backward = made.judge.backward

    def watched(rows: Sequence[Row], loss: Loss) -> dict[str, float]:
        caught.append(list(rows))
        return backward(rows, loss)

    def refuse(rows: Sequence[Row], want: frozenset[str] = frozenset()) -> list[dict[str, np.ndarray]]:
        raise AssertionError("The policy was asked.")

    made.judge.backward = watched  # type: ignore[method-assign]
    reward = made.reward(correct="policy", lr=1e-2)
    monkeypatch.setattr(made.policy, "say", refuse)
    metrics = reward.learn(reward.score(groups))
    (rows,) = caught
    assert all(np.isnan(row.old_logprobs).all() for row in rows if row.label == 1.0)
    own = [row.old_logprobs for row in rows if row.label == 0.0]
    for found, episode in zip(own, (e for group in groups for e in group.members), strict=True):
        parts = by_token(episode) if model == "full" else by_turn(episode)
        np.testing.assert_array_equal(found, np.add.reduceat(episode.logprobs_T, parts.start_S))
        np.testing.assert_allclose(found, np.add.reduceat(said[id(episode)], parts.start_S), atol=1e-5)
    share = np.array([-found.sum() / len(found) for found in own])  # all rewards are 0 yet
    share = np.exp(share) / np.exp(share).sum()
    assert metrics["judge/ess"] == pytest.approx(1.0 / (share**2).sum(), rel=1e-5)
    assert metrics["judge/ess"] < len(own) - 0.01


def test_what_was_not_scored_last_cannot_be_learnt() -> None:
    made = world()
    reward = made.reward()
    old = reward.score(made.play(1))
    reward.score(made.play(1))
    with pytest.raises(ConfigError, match="did not see; score and learn the same groups"):
        reward.learn(old)


def test_settings_are_checked() -> None:
    wrong_settings: tuple[tuple[dict[str, Any], str], ...] = (
        ({"objective": "gail"}, "Unknown objective 'gail' of the inverse judge; Known: discriminator, iq, irl"),
        ({"form": "scalar"}, "Unknown form 'scalar'"),
        ({"reference": "old"}, "Unknown reference 'old'"),
        ({"correct": "negative"}, "Unknown use of correct episodes 'negative'; Known: policy, positive"),
        ({"objective": "iq", "form": "log_ratio"}, "action values are a head's: set form to 'head'"),
        ({"clip": 0.0}, "The clip of rewards is 0.0; it needs to be a positive number"),
        ({"temper": 2.0}, "The temper of the weights is 2.0"),
        ({"beta": 0.0, "form": "log_ratio"}, "The judge's beta is 0.0"),
    )
    for settings, said in wrong_settings:
        with pytest.raises(ConfigError, match=said):
            InverseSettings(**settings)
    head, full = world(), world("full")
    with pytest.raises(CapabilityError, match="A head gives values and nothing else"):
        head.reward(form="log_ratio")
    with pytest.raises(CapabilityError, match="Values are wanted from a model without a head"):
        full.reward(form="head")
    with pytest.raises(ConfigError, match=r"The judge's memory is 1.0; it lies in \[0, 1\)"):
        head.reward(memory=1.0)
    with pytest.raises(ConfigError, match=r"spoilt copies of demonstrations with objective 'irl'.*reward.objective=discriminator"):
        head.reward(Examples(demonstration, copies=1, replay=replay))
    wrong_examples: tuple[dict[str, Any], ...] = ({"size": 0}, {"copies": 1}, {"copies": -1, "replay": replay})
    for wrong in wrong_examples:
        with pytest.raises(ConfigError, match="needs at least"):
            Examples(demonstration, **wrong)
