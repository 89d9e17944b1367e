"""The implicit judge: exactly 0 at its reference, taught by a gradient that reaches it, better on episodes it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from builders import make_episode
from exact_expectations import cave_world
from speakers import Script, Scripted, toy_speaker

from stepwell.credit import by_token, by_turn
from stepwell.engine.batch import episode_rows
from stepwell.engine.local import Budget, LocalEngine, LocalModel
from stepwell.errors import CapabilityError, ConfigError, StaleWeightsError
from stepwell.losses import CloningLoss, OutcomeLoss, PreferenceLoss
from stepwell.protocols import ModelSpec, OptimizerSpec, ProcessReward
from stepwell.rewards.implicit import ImplicitReward, ImplicitSettings
from stepwell.rewards.outcome import EnvironmentReward, OutcomeReward
from stepwell.rollout import rollout
from stepwell.seeding import generator
from stepwell.testing import check_reward
from stepwell.types import Ending, EndingKind, Episode, Group, Row, Verdict

BETA = 0.5


def graded(episode: Episode) -> Verdict:
    """The share of sampled tokens with an even id: easy for a judge to see, and in all of the episode."""
    tokens = np.concatenate([turn.token_ids for turn in episode.turns])
    return Verdict.of(float(np.mean(tokens % 2 == 0)), success=bool(np.mean(tokens % 2 == 0) > 0.5))


DOMAIN = Scripted(lambda task, member: Script("abc", ["ab", "cab", "b"]), graded)


@dataclass
class World:
    """Policy and judge on one engine, and episodes of the policy."""

    engine: LocalEngine
    policy: LocalModel
    judge: LocalModel
    drawn: int = 0

    def play(self, num_groups: int = 6, size: int = 4) -> list[Group[Episode]]:
        self.drawn += 1
        tasks = [DOMAIN.task(0.5, 100 * self.drawn + g, "train") for g in range(num_groups)]
        return rollout(DOMAIN, tasks, self.policy.snapshot(), SPEAKER.player, group_size=size, seed=(self.drawn,))

    def reward(self, **settings: object) -> ImplicitReward:
        return ImplicitReward(self.judge, self.policy, ImplicitSettings(beta=BETA, pay="score", **settings))  # type: ignore[arg-type]


SPEAKER = toy_speaker()


def world(*, kind: str = "full", budget: Budget | None = None, optimizer: OptimizerSpec | None = None) -> World:
    engine = toy_speaker(budget=budget).engine
    spec = ModelSpec(kind=kind, rank=8, alpha=16.0, optimizer=optimizer or OptimizerSpec())  # type: ignore[arg-type]
    policy = engine.model("policy", spec)
    return World(engine, policy, engine.model("judge", replace(spec, of="policy")))


def move(model: LocalModel, groups: Sequence[Group[Episode]], lr: float = 3e-3) -> None:
    """Any update."""
    model.backward([row for group in groups for episode in group.members for row in episode_rows(episode)], CloningLoss())
    model.step(lr)


def judged(groups: Sequence[Group[Episode]], reward: ProcessReward) -> np.ndarray:
    return np.concatenate([m.rewards["judge"] for group in reward.score(groups) for m in group.members])


# -- what it says -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["moving", "frozen"])
@pytest.mark.parametrize("budget", [Budget(), Budget(tokens=100, rows=3)])
@pytest.mark.parametrize("kind", ["full", "lora"])
def test_step_credit_is_exactly_zero_while_judge_equals_reference(reference: str, budget: Budget, kind: str) -> None:
    if kind == "lora":
        pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    made = world(budget=budget, kind=kind)
    reward = made.reward(reference=reference)
    groups = made.play()
    np.testing.assert_array_equal(judged(groups, reward), 0.0)
    move(made.judge, groups)
    assert np.abs(judged(groups, reward)).min() > 0


def test_a_frozen_reference_stays_while_policy_and_judge_move() -> None:
    made = world()
    frozen, moving = made.reward(reference="frozen"), made.reward(reference="moving")
    move(made.policy, made.play())
    groups = made.play()
    np.testing.assert_array_equal(judged(groups, frozen), 0.0)
    assert np.abs(judged(groups, moving)).max() > 0


def test_step_rewards_are_beta_times_the_log_ratio_and_telescope() -> None:
    made = world()
    groups = made.play(2)
    move(made.judge, groups)
    (scored, *_), _ = (group.members for group in made.reward().score(groups))
    row = episode_rows(scored.episode)
    judge, ref = made.judge.forward(row)[0]["logprobs"], made.policy.forward(row)[0]["logprobs"]
    np.testing.assert_allclose(scored.old_logprobs_T, ref, atol=1e-6)
    at = 0
    for turn, value in zip(scored.episode.turns, scored.rewards["judge"], strict=True):
        stop = at + len(turn.token_ids)
        assert value == pytest.approx(BETA * (judge - ref)[at:stop].sum(), abs=1e-5)
        at = stop
    tokens = ImplicitReward(made.judge, made.policy, ImplicitSettings(beta=BETA), by_token).score(groups)[0].members[0]
    assert tokens.rewards["judge"].sum() == pytest.approx(scored.rewards["judge"].sum(), abs=1e-6)
    assert len(tokens.steps) == scored.episode.num_tokens


def test_failed_unscored_and_empty_episodes() -> None:
    made = world()
    (group,) = made.play(1)
    lost = Verdict.unscored("gone")
    failed = replace(group.members[0], ending=Ending(EndingKind.FAILED, "gone"), verdict=lost)
    unscored = replace(group.members[1], verdict=Verdict.unscored("the grader timed out"))
    empty = replace(group.members[2], turns=())
    move(made.judge, [group])
    reward = made.reward()
    (scored,) = reward.score([Group(group.task, (failed, unscored, empty, group.members[3]))])
    assert [m.outcome is None for m in scored.members] == [True, True, False, False]
    assert [bool(m.scored_S.any()) for m in scored.members] == [False, True, False, True]
    assert len(scored.members[2].steps) == 0
    assert (scored.members[0].rewards["judge"] == 0).all()
    before = made.judge.version
    metrics = reward.learn([scored])
    assert metrics["judge/mixed_groups"] == 0.0, "the empty episode has nothing to learn from, so there is no pair"
    assert made.judge.version == before
    assert np.isfinite(judged([Group(group.task, (failed,))], reward)).all()
    (nothing,) = reward.score([Group(group.task, (empty,))])
    assert nothing.members[0].rewards["judge"].shape == (0,)
    assert reward.learn([nothing])["judge/mixed_groups"] == 0.0
    assert reward.learn([])["judge/mixed_groups"] == 0.0


@pytest.mark.parametrize("reference", ["moving", "frozen"])
def test_contract(reference: str) -> None:
    made = world()
    check_reward(made.reward(reference=reference), made.play(2))


@pytest.mark.parametrize("reward", [OutcomeReward(), OutcomeReward("score"), EnvironmentReward(), EnvironmentReward(invalid_penalty=0.1)])
def test_contract_of_the_simple_rewards(reward: ProcessReward) -> None:
    check_reward(reward, world().play(2))


# -- versions -----------------------------------------------------------------------------------------------------------------


def aged(group: Group[Episode], versions: Sequence[int]) -> Group[Episode]:
    members = [replace(e, turns=tuple(replace(turn, version=v) for turn in e.turns)) for e, v in zip(group.members, versions, strict=True)]
    return Group(group.task, tuple(members))


def test_one_version_of_the_policy_is_judged_at_a_time() -> None:
    """U15: a group of two versions, and a policy that has moved on since."""
    made = world()
    (group,) = made.play(1)
    moving, frozen = made.reward(), made.reward(reference="frozen")
    with pytest.raises(StaleWeightsError, match="turns of policy version 0, 3, and the policy is now version 0; with reference=moving"):
        moving.score([aged(group, [0, 0, 3, 0])])
    frozen.score([aged(group, [0, 0, 3, 0])])
    move(made.policy, [group])
    with pytest.raises(StaleWeightsError, match="turns of policy version 0, and the policy is now version 1"):
        moving.score([group])
    moving.score(made.play(1))


# -- what it learns -----------------------------------------------------------------------------------------------------------


def test_the_gradient_reaches_the_judge() -> None:
    """The released code detaches the scores; then nothing would be learnt. The gradient is that of the paper's loss, by autograd."""
    spec = OptimizerSpec(eps=1.0, max_grad_norm=1e9)
    made, plain = world(optimizer=spec), world(optimizer=spec)
    groups = made.play()
    move(made.judge, groups)
    move(plain.judge, groups)
    reward = made.reward(lr=1.0)
    scored = reward.score(groups)
    caught: list[dict[str, np.ndarray]] = []
    for model in (made.judge, plain.judge):
        step = model.step

        def watched(lr: float, model: LocalModel = model, step: object = step) -> dict[str, float]:
            caught.append({name: p.grad.numpy().copy() for name, p in model.params.items() if p.grad is not None})
            return step(lr)  # type: ignore[operator, no-any-return]

        model.step = watched  # type: ignore[method-assign]
    metrics = reward.learn(scored)
    rows = []
    for g, group in enumerate(groups):
        for e, episode in enumerate(group.members):
            made_rows = episode_rows(episode)
            ref = np.concatenate([o["logprobs"] for o in plain.policy.forward(made_rows)])
            rows += episode_rows(episode, index=10 * g + e, group=g, label=float(episode.verdict.score or 0), ref_logprobs=ref)
    same = plain.judge.backward(rows, PreferenceLoss(BETA))
    plain.judge.step(1.0)
    largest = max(np.abs(grad).max() for grad in caught[1].values())
    assert largest > 1e-3
    for name, grad in caught[1].items():
        np.testing.assert_allclose(caught[0][name], grad, atol=1e-5 * largest)
    assert {name: metrics[name] for name in same} == pytest.approx({**same, "judge/mixed_groups": metrics["judge/mixed_groups"]}, rel=1e-4)
    assert metrics["judge/grad_norm"] > 0


@pytest.mark.parametrize("reference", ["moving", "frozen"])
def test_pair_accuracy_on_fresh_episodes_rises(reference: str) -> None:
    made = world()
    reward = made.reward(reference=reference, lr=5e-3)
    before = {name: p.detach().clone() for name, p in made.judge.params.items()}
    accuracies, losses = [], []
    for _ in range(6):
        metrics = reward.learn(reward.score(made.play(8)))
        accuracies.append(metrics["judge/fresh_pair_accuracy"])
        losses.append(metrics["judge/loss"])
    assert accuracies[0] == 0.5, "judge and reference are equal: every pair is a tie"
    assert np.mean(accuracies[-3:]) > 0.85
    assert losses[0] == pytest.approx(np.log(2))
    assert np.mean(losses[-3:]) < 0.4
    assert all(float((p.detach() - before[name]).abs().max()) > 0 for name, p in made.judge.params.items())
    assert made.judge.version == 6
    assert made.policy.version == 0


def test_further_updates_learn_from_the_judge_as_it_is_by_then() -> None:
    one, three = world(), world()
    groups = one.play()
    losses = []
    for made, updates in ((one, 1), (three, 3)):
        reward = made.reward(lr=5e-3, updates=updates)
        losses.append(reward.learn(reward.score(groups))["judge/loss"])
    assert three.judge.version == 3
    assert losses[0] == pytest.approx(np.log(2))
    assert losses[1] < 0.9 * losses[0], "the loss is that before the third update"


def test_a_judge_that_does_not_learn() -> None:
    made = world()
    reward = made.reward(updates=0)
    metrics = reward.learn(reward.score(made.play()))
    assert made.judge.version == 0
    assert metrics["judge/mixed_groups"] == 1.0
    assert "judge/loss" not in metrics


def test_flat_groups_have_no_pair() -> None:
    made = world()
    flat = [Group(group.task, tuple(replace(e, verdict=Verdict.of(0.5)) for e in group.members)) for group in made.play(2)]
    reward = made.reward()
    metrics = reward.learn(reward.score([*flat, *made.play(2)]))
    assert metrics["judge/mixed_groups"] == 0.5
    metrics = reward.learn(reward.score(flat))
    assert metrics["judge/mixed_groups"] == 0.0
    assert np.isnan(metrics["judge/fresh_pair_accuracy"]), "there is nothing to measure, which is not 0"


def test_judging_mixed_groups_alone_leaves_the_others_unscored() -> None:
    whole, part = world(), world()
    mixed = whole.play(2)
    flat = [Group(group.task, tuple(replace(e, verdict=Verdict.of(0.5)) for e in group.members)) for group in whole.play(2)]
    for made in (whole, part):
        move(made.judge, mixed)
    rewards = [whole.reward(), part.reward(judged="mixed")]
    scored = [reward.score([*flat, *mixed]) for reward in rewards]
    for group in scored[1][:2]:
        assert not any(member.scored_S.any() or member.rewards["judge"].any() for member in group.members)
    for one, other in zip(*(made[2:] for made in scored), strict=True):
        for a, b in zip(one.members, other.members, strict=True):
            np.testing.assert_allclose(a.rewards["judge"], b.rewards["judge"], atol=1e-6)
            assert b.scored_S.all()
    metrics = [reward.learn(made) for reward, made in zip(rewards, scored, strict=True)]
    assert metrics[0]["judge/mixed_groups"] == metrics[1]["judge/mixed_groups"] == 0.5
    assert metrics[0]["judge/loss"] == pytest.approx(metrics[1]["judge/loss"], abs=1e-6)


def test_what_was_not_scored_last_cannot_be_learnt() -> None:
    made = world()
    reward = made.reward()
    first = reward.score(made.play(2))
    reward.score(made.play(2))
    with pytest.raises(ConfigError, match="did not see; score and learn the same groups"):
        reward.learn(first)


def test_settings_are_checked_and_a_head_is_no_language_model() -> None:
    made = world()
    with pytest.raises(ConfigError, match=r"reward.beta is 0.0; it needs to be a positive number"):
        ImplicitReward(made.judge, made.policy, ImplicitSettings(beta=0.0))
    with pytest.raises(ConfigError, match=r"The judge's memory is 1.0; it lies in \[0, 1\)"):
        made.reward(memory=1.0)
    head = made.engine.model("head", ModelSpec(kind="head", of="policy"))
    with pytest.raises(CapabilityError, match="no words of its own"):
        ImplicitReward(head, made.policy, ImplicitSettings())


def test_confidence_is_the_running_mean_of_what_was_right_before_it_was_learnt() -> None:
    """A batch is scored with what batches before it have shown, and kept over a restart."""
    made = world()
    reward, mean = made.reward(memory=0.5), None
    for _ in range(3):
        groups = made.play(2)
        assert {member.confidence for group in reward.score(groups) for member in group.members} == {mean}
        metrics = reward.learn(reward.score(groups))  # Scoring twice counts once.
        fresh = metrics["judge/fresh_pair_accuracy"]
        mean = fresh if mean is None else 0.5 * mean + 0.5 * fresh
        assert metrics["judge/confidence"] == mean
    assert mean not in (None, 0.5)
    resumed = made.reward(memory=0.5)
    resumed.restore(reward.state())
    assert resumed.score(made.play(1))[0].members[0].confidence == mean


def test_batches_without_a_pair_say_nothing_about_confidence() -> None:
    made = world()
    flat = [Group(group.task, tuple(replace(e, verdict=Verdict.of(0.5)) for e in group.members)) for group in made.play(2)]
    reward = made.reward()
    assert "judge/confidence" not in reward.learn(reward.score(flat))
    known = reward.learn(reward.score(made.play(2)))["judge/confidence"]
    assert reward.learn(reward.score(flat))["judge/confidence"] == known
    assert reward.score(flat)[0].members[0].confidence == known


def test_models_and_state() -> None:
    made = world()
    assert set(made.reward().models()) == {"judge"}
    assert set(made.reward(reference="frozen").models()) == {"judge", "judge_reference"}
    reward = made.reward()
    reward.restore(reward.state())
    assert len(by_turn(make_episode([2, 3]))) == 2


# -- outcomes, each for itself ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["moving", "frozen"])
def test_a_judge_of_outcomes_learns_without_pairs(reference: str) -> None:
    """PRIME's cross-entropy with soft labels: groups of one, so that there is never a pair. Pairs of other groups' episodes say how far."""
    made = world()
    reward = made.reward(reference=reference, lr=5e-3, objective="cross_entropy")
    assert reward.learn(reward.score(made.play(6, 1)))["judge/loss"] == pytest.approx(np.log(2))
    before = {name: p.detach().clone() for name, p in made.judge.params.items()}
    for _ in range(5):
        metrics = reward.learn(reward.score(made.play(24, 1)))
        assert metrics["judge/mixed_groups"] == 0.0
        assert np.isnan(metrics["judge/fresh_pair_accuracy"])
    assert "judge/confidence" not in metrics
    accuracy = reward.learn(reward.score(made.play(6)))["judge/fresh_pair_accuracy"]
    assert accuracy > 0.75
    assert all(float((p.detach() - before[name]).abs().max()) > 0 for name, p in made.judge.params.items())
    assert made.policy.version == 0


def test_outcomes_that_are_all_equal_teach_outcomes_and_no_pairs() -> None:
    """A flat group has no pair: preference leaves it out and says so, cross-entropy moves the judge towards the outcome."""
    for objective in ("preference", "cross_entropy"):
        made = world()
        flat = [Group(group.task, tuple(replace(e, verdict=Verdict.of(1.0)) for e in group.members)) for group in made.play(2)]
        reward = made.reward(lr=5e-3, objective=objective)
        metrics = reward.learn(reward.score(flat))
        assert metrics["judge/mixed_groups"] == 0.0
        assert made.judge.version == ("judge/loss" in metrics) == (objective == "cross_entropy")
        totals = [m.rewards["judge"].sum() for group in reward.score(flat) for m in group.members]
        assert np.mean(totals) > 0.1 if objective == "cross_entropy" else not any(totals)


def test_scores_that_are_no_probabilities_are_refused_by_cross_entropy() -> None:
    made = world()
    (group,) = made.play(1)
    reward = made.reward(objective="cross_entropy")
    scored = reward.score([Group(group.task, tuple(replace(e, verdict=Verdict.of(10.0)) for e in group.members))])
    with pytest.raises(ConfigError, match=r"lie in \[0, 1\], and these reach from 10 to 10; scale the domain's scores, pay success"):
        reward.learn(scored)


def test_the_whole_episode_is_paid_at_its_end() -> None:
    """U14: a sum of log-ratios does not depend on how the text is cut, by tokens, turns or not at all."""
    made = world()
    groups = made.play(2)
    move(made.judge, groups)
    steps, tokens, whole = (
        ImplicitReward(made.judge, made.policy, ImplicitSettings(beta=BETA, unit=unit), segment).score(groups)  # type: ignore[arg-type]
        for unit, segment in (("step", by_turn), ("step", by_token), ("episode", by_turn))
    )
    for one, other, end in zip(
        *([m for group in made_groups for m in group.members] for made_groups in (steps, tokens, whole)), strict=True
    ):
        total = one.rewards["judge"].sum()
        assert other.rewards["judge"].sum() == pytest.approx(total, abs=1e-6)
        assert end.rewards["judge"].tolist() == [0.0] * (len(end.steps) - 1) + [pytest.approx(total, abs=1e-6)]
        assert end.scored_S.all()


def test_an_episode_of_which_a_model_says_no_number_is_unscored_and_counted() -> None:
    made = world()
    groups = made.play(2)
    forward = made.judge.forward

    def broken(rows: Sequence[Row], want: frozenset[str] = frozenset()) -> list[dict[str, np.ndarray]]:
        said = forward(rows, want)
        said[0]["logprobs"][-1] = np.nan
        return said

    made.judge.forward = broken  # type: ignore[method-assign]
    reward = made.reward(lr=5e-3)
    scored = reward.score(groups)
    assert [bool(m.scored_S.any()) for group in scored for m in group.members] == [False] + [True] * 7
    assert not scored[0].members[0].rewards["judge"].any()
    metrics = reward.learn(scored)
    assert metrics["judge/not_finite"] == 1
    assert np.isfinite(metrics["judge/loss"])
    assert metrics["judge/grad_norm"] > 0


def test_the_sum_so_far_is_the_soft_value_of_what_is_to_come() -> None:
    """ImplicitPRM's identity, exactly: `sum up to t of beta log(judge / ref) = beta log E_ref[exp(r / beta) | up to t]`."""
    beta, cave = 0.3, cave_world(spread=0.7, seed=1)
    judge = cave.model.engine.model("judge", ModelSpec(optimizer=OptimizerSpec(kind="sgd", max_grad_norm=1e9)))
    rows = [episode_rows(episode, label=generator("outcome", n).random(), index=n)[0] for n, episode in enumerate(cave.episodes)]
    ref = [made["logprobs"] for made in cave.model.forward(rows)]
    judge.backward([replace(row, ref_logprobs=r) for row, r in zip(rows, ref, strict=True)], OutcomeLoss(beta))
    judge.step(20.0)
    ratio = [beta * (made["logprobs"] - r) for made, r in zip(judge.forward(rows), ref, strict=True)]
    assert max(np.abs(r).max() for r in ratio) > 0.05
    said = [tuple(row.ids[row.targets].tolist()) for row in rows]
    for words, r in zip(said, ratio, strict=True):
        for t in range(1, len(words)):
            to_come = [n for n, other in enumerate(said) if other[:t] == words[:t]]
            chance = cave.probabilities[to_come] / cave.probabilities[to_come].sum()
            soft = beta * np.log(chance @ np.exp([ratio[n].sum() / beta for n in to_come]))
            assert r[:t].sum() == pytest.approx(soft, abs=1e-12)
