"""One key makes PPO: `credit.kind=gae`. What cannot work is said before a token is sampled."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np
import pytest

from stepwell.build import build
from stepwell.config import Config, GAECredit
from stepwell.configure import load
from stepwell.credit import Whitened, needs_of
from stepwell.credit.gae import GAE
from stepwell.engine.local import LocalEngine, LocalModel
from stepwell.errors import CapabilityError, ConfigError
from stepwell.protocols import Capabilities
from stepwell.rewards.critic import Critic
from stepwell.rewards.outcome import OutcomeReward
from stepwell.run import train
from stepwell.trainer import Trainer
from stepwell.types import Credited, Episode, Floats, Group, Scored

SMALL = (
    *(f"engine.{name}" for name in ("threads=1", "width=16", "layers=1", "corpus_tasks=6", "max_length=64", "vocabulary=256")),
    *(f"rollout.{name}" for name in ("groups=2", "group_size=2", "turns=2", "max_tokens=4")),
    *("domain.kind=kill_driver:Luck", "cloning.steps=0", "evaluation.every=0", "evaluation.episodes=2", "steps=3"),
    *("reward.kind=outcome", "credit.kind=gae", "optimizer.lr=0.01"),
)


@pytest.fixture(autouse=True)
def _its_own_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another folder has a kill_driver too."""
    monkeypatch.syspath_prepend(Path(__file__).parent)


def config(*settings: str) -> Config:
    return load("smoke", [*SMALL, *settings])


def trainer(*settings: str) -> Trainer:
    return build(config(*settings)).trainer


def tokens_of(member: Credited) -> int:
    return member.scored.episode.num_tokens


@pytest.mark.parametrize("critic", ["own", "shared"])
@pytest.mark.parametrize("level", ["turn", "token"])
def test_steps_have_values_and_the_critic_moves(critic: str, level: str) -> None:
    made = trainer(f"credit.critic={critic}", f"credit.level={level}", "credit.lr=0.05")
    before: list[Floats] = []
    for result in made.run():
        members = [m for group in result.groups for m in group.members]
        for member in members:
            values = member.scored.values_S
            assert values is not None and len(values) == (tokens_of(member) if level == "token" else len(member.scored.episode.turns))
        before.append(np.concatenate([m.scored.values_S for m in members if m.scored.values_S is not None]))
        assert {"critic/loss", "critic/value", "critic/return", "critic/grad_norm"} <= set(result.metrics)
        assert result.metrics["critic/value"] == pytest.approx(before[-1].mean())
        assert any(m.advantages_S.any() for m in members)
    assert not before[0].any() and before[1].all() and before[2].all()
    assert set(made.models()) == {"policy", "critic"}


def test_settings_reach_the_rule() -> None:
    rule = trainer(
        "credit.discount=0.9", "credit.lam=0.8", "credit.alpha=0.5", "credit.outcome_weight=2", "credit.truncated=graded"
    ).parts.assign
    assert rule == Whitened(GAE(0.9, 0.8, 2.0, 0.5, "graded"))
    plain = trainer("credit.whiten=false").parts.assign
    assert plain == GAE() and needs_of(plain) == needs_of(rule) == {"values"}
    credit = config().credit
    assert isinstance(credit, GAECredit)
    fields = {field.name: field.default for field in dataclasses.fields(GAE)}
    assert {name: getattr(credit, name) for name in fields} == fields, "the defaults of rule and config are the same"


@pytest.mark.parametrize("learn", ["before", "after"])
def test_a_judge_inside_learns_when_it_is_told_to(learn: str) -> None:
    made = trainer("reward.kind=implicit", f"reward.learn={learn}", "reward.lr=0.01", "rollout.group_size=8")
    assert made.learning.learn == "after", "the critic's values are never those of episodes that it has learnt from"
    results = list(made.run())
    assert isinstance(made.parts.judge, object) and set(made.models()) == {"policy", "critic", "judge"}
    assert all("judge/mixed_groups" in result.metrics and "critic/loss" in result.metrics for result in results)
    judged = [m.scored.rewards["judge"].any() for m in results[0].groups[0].members]
    mixed = results[0].metrics["judge/mixed_groups"] > 0
    assert any(judged) == (learn == "before" and mixed), "a judge that has not learnt yet says 0"


def test_values_foretell_what_is_paid() -> None:
    """Also where long episodes lose some of their outcome."""
    settings = ("loss.overlong_limit=2", "loss.overlong_buffer=1", "loss.overlong_penalty=0.5")
    (result, *_) = list(trainer(*settings).run())
    paid = [float(m.scored.outcome or 0.0) for group in result.groups for m in group.members for _ in m.scored.steps.turn_S]
    assert min(paid) == -0.5 and result.metrics["critic/return"] == pytest.approx(np.mean(paid))


def test_an_adapter_has_a_critic_that_is_an_adapter() -> None:
    pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    made = trainer("engine.policy=lora", "engine.rank=2", "credit.lr=0.05")
    results = list(made.run())
    critic = made.models()["critic"]
    assert isinstance(critic, LocalModel) and critic.adapter == "critic"
    assert results[0].metrics["critic/value"] == 0.0 != results[1].metrics["critic/value"]


def test_groups_of_one_will_do() -> None:
    """Nothing is compared inside a group."""
    (result, *_) = list(trainer("rollout.group_size=1", "rollout.groups=4", "seed=1").run())  # outcomes are not all alike
    assert any(member.advantages_S.any() for group in result.groups for member in group.members)


def test_a_resumed_run_has_the_critic_that_it_had(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    settings = ["checkpoint.every=1", "credit.updates=2", "steps=4"]
    list(train(config(*settings), whole))
    run = train(config(*settings), cut)
    assert isinstance(run, Generator)
    assert [next(run)[0], next(run)[0]] == [1, 2]
    run.close()
    list(train(config(*settings), cut, resume=True))

    def weights(folder: Path) -> dict[str, bytes]:
        models = folder / "checkpoints" / "step-000004" / "models"
        return {str(path.relative_to(models)): path.read_bytes() for path in sorted(models.rglob("*")) if path.is_file()}

    assert any(name.startswith("critic/") for name in weights(whole))
    assert weights(cut) == weights(whole)


# -- refused ----------------------------------------------------------------------------------------------------------------------


class Steps(OutcomeReward):
    """A reward of the user's."""


class Valued(OutcomeReward):
    """A reward of the user's with values of its own."""

    def score(self, groups: Sequence[Group[Episode]]) -> list[Group[Scored]]:
        scored = super().score(groups)
        return [
            Group(g.task, tuple(dataclasses.replace(m, values_S=np.zeros(len(m.steps)), final_value=0.0) for m in g.members))
            for g in scored
        ]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (["credit.lam=1.5"], r"credit\.lam"),
        (["credit.discount=-1"], r"credit\.discount"),
        (["credit.critic=other"], r"credit\.critic.*own"),
        (["credit.lr=0"], r"credit\.lr"),
        (["credit.clip=0"], r"credit\.clip"),
        (["credit.updates=0"], r"credit\.updates"),
        (["credit.lambda=0.9"], r"credit\.lambda.*lam"),
        (["reward.kind=test_ppo:Steps", "credit.level=token"], r"credit\.level is 'token', but reward 'test_ppo:Steps' is your own"),
    ],
)
def test_what_cannot_work_is_said_by_the_config(settings: list[str], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        config(*settings)


def test_nothing_paid_is_said_before_sampling() -> None:
    with pytest.raises(ConfigError, match="both 0: nothing is paid"):
        trainer("credit.alpha=0", "credit.outcome_weight=0")


def test_an_engine_without_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = property(lambda self: Capabilities(kinds=frozenset({"full", "lora"}), entropy=True, values=False))
    monkeypatch.setattr(LocalEngine, "capabilities", nothing)
    with pytest.raises(CapabilityError, match=r"A critic needs a model with a scalar head, and this engine has only full, lora"):
        trainer()


def test_a_rule_that_needs_values_and_gets_none_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"credit\.kind is 'stepwell\.credit\.gae:GAE', which needs a critic's values, and reward\.kind 'outcome' has none",
    ):
        trainer("credit.kind=stepwell.credit.gae:GAE")
    made = trainer("credit.kind=stepwell.credit.gae:GAE", "reward.kind=test_ppo:Valued")
    assert not isinstance(made.parts.judge(), Critic)
    assert len(list(made.run())) == 3
