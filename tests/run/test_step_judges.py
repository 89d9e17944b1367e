"""Judges that say a number for each step, by one key: they train, and resume to the same bits; what cannot work is said before."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

from stepwell.build import build
from stepwell.config import Config
from stepwell.configure import load
from stepwell.engine.local import LocalEngine
from stepwell.errors import CapabilityError, ConfigError, DataError, RunError
from stepwell.protocols import Capabilities
from stepwell.run import train
from stepwell.trained import export
from stepwell.trainer import Trainer

SMALL = (
    *(f"engine.{name}" for name in ("threads=1", "width=16", "layers=1", "corpus_tasks=6", "max_length=64", "vocabulary=256")),
    *(f"rollout.{name}" for name in ("groups=2", "group_size=2", "turns=2", "max_tokens=4")),
    *("domain.kind=kill_driver:Luck", "cloning.steps=0", "evaluation.every=0", "evaluation.episodes=2", "steps=3"),
    *("credit.kind=process_to_go", "optimizer.lr=0.01"),
)
JUDGES = {
    "montecarlo": ["reward.kind=montecarlo", "reward.continuations=2"],
    "montecarlo head": ["reward.kind=montecarlo", "reward.judge=head", "reward.lr=0.01", "reward.form=progress"],
    "montecarlo label": ["reward.kind=montecarlo", "reward.judge=label", "reward.lr=0.01", "reward.label_tokens=[a,b]"],
    "temporal": ["reward.kind=temporal", "reward.lr=0.01"],
    "temporal shared": ["reward.kind=temporal", "reward.trunk=shared", "reward.form=value"],
    "labelled": ["reward.kind=labelled", "reward.lr=0.01", "reward.warm=3", "reward.batch=2"],
    "labelled label": ["reward.kind=labelled", "reward.judge=label", "reward.label_tokens=[a,b]", "reward.warm=2", "reward.updates=1"],
    "entropy": ["reward.kind=entropy", "reward.beta=0.5", "reward.split=progress"],
    "soft_q": ["reward.kind=soft_q", "reward.lr=0.01", "reward.beta=0.5", "reward.warm=2", "reward.batch=2"],
    "soft_q own": ["reward.kind=soft_q", "reward.trunk=own", "reward.form=value"],
    "intrinsic": ["reward.kind=intrinsic"],
    "mixture": [
        *("reward.kind=mixture", "reward.judges.a.kind=implicit", "reward.judges.a.lr=0.01", "reward.judges.b.kind=temporal"),
        *("reward.judges.b.lr=0.01", "reward.judges.c.kind=environment", "reward.weights.b=0.5"),
    ],
    "visits": ["reward.kind=montecarlo", "reward.source=visits", "reward.judge=head", "reward.trunk=shared"],
}


@pytest.fixture(autouse=True)
def _its_own_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another folder has a kill_driver too."""
    monkeypatch.syspath_prepend(Path(__file__).parent)


@pytest.fixture(autouse=True)
def _labels_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [{"prompt": "say red", "steps": ["say red", "say blue"], "labels": [True, n % 2 == 0]} for n in range(4)]
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.chdir(tmp_path)


def config(*settings: str) -> Config:
    data = ["reward.data=labels.jsonl", "reward.separator=;"] if "reward.kind=labelled" in settings else []
    return load("smoke", [*SMALL, *settings, *data])


def trainer(*settings: str) -> Trainer:
    return build(config(*settings)).trainer


@pytest.mark.parametrize("name", JUDGES)
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path: Path, name: str) -> None:
    """Weights of all models, and the metrics of every step but times."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    settings = [*JUDGES[name], "checkpoint.every=1"]
    straight = [metrics for _, metrics in train(config(*settings), whole)]
    run = train(config(*settings), cut)
    assert isinstance(run, Generator)
    pieces = [next(run)[1]]
    run.close()
    pieces += [metrics for _, metrics in train(config(*settings), cut, resume=True)]

    def weights(folder: Path) -> dict[str, bytes]:
        models = folder / "checkpoints" / "step-000003" / "models"
        return {str(path.relative_to(models)): path.read_bytes() for path in sorted(models.rglob("*")) if path.is_file()}

    assert weights(cut) == weights(whole)
    made = {n.split("/")[0] for n in weights(whole)} - {"policy"}
    assert made == {"a_judge", "b_judge"} if name == "mixture" else bool(made) == (name not in ("montecarlo", "intrinsic"))
    for one, two in zip(straight, pieces, strict=True):
        assert {k: v for k, v in one.items() if not k.startswith("time/")} == pytest.approx(
            {k: v for k, v in two.items() if not k.startswith("time/")}, nan_ok=True, abs=0
        )
    assert ("reward/b_step" if name == "mixture" else "reward/judge_step") in straight[0]


@pytest.mark.parametrize("name", JUDGES)
@pytest.mark.parametrize("credit", [["credit.kind=istar"], ["credit.kind=gae", "credit.level=token"], ["credit.kind=prime"]])
def test_any_judge_goes_with_any_credit(name: str, credit: list[str]) -> None:
    for result in trainer(*JUDGES[name], *credit, "steps=2").run():
        members = [member for group in result.groups for member in group.members]
        assert any(member.scored.scored_S.any() for member in members)
        assert all(np.isfinite(member.advantages_S).all() for member in members)


@pytest.mark.parametrize("domain", ["shop", "maze", "cave"])
@pytest.mark.parametrize("name", ["montecarlo", "temporal"])
def test_any_judge_goes_with_any_domain(name: str, domain: str) -> None:
    """What is replayed answers as it did: no continuation is lost."""
    sizes = ("engine.max_length=512", "engine.vocabulary=600", "domain.kind=" + domain, "cloning.steps=3", "cloning.batch=2", "steps=1")
    results = list(trainer(*JUDGES[name], *sizes, *(["domain.products=60"] if domain == "shop" else [])).run())
    found = results[-1].metrics
    assert found.get("judge/lost_continuations", 0.0) == 0.0
    assert all(member.scored.scored_S.all() for group in results[-1].groups for member in group.members)
    assert (found.get("judge/continuations", 0.0) > 0) == (name == "montecarlo")


@pytest.mark.parametrize("name", ["soft_q", "labelled label", "temporal"])
def test_a_judge_that_speaks_can_be_exported(tmp_path: Path, name: str) -> None:
    list(train(config(*JUDGES[name], "steps=1"), tmp_path / "run"))
    if name == "temporal":
        with pytest.raises(RunError, match="has a judge of kind 'temporal', which is not written out as a language model"):
            export(tmp_path / "run", tmp_path / "judge", model="judge")
        return
    export(tmp_path / "run", tmp_path / "judge", model="judge")
    assert (tmp_path / "judge" / "model.safetensors").exists()


@pytest.mark.parametrize("kind", ["montecarlo", "entropy", "intrinsic"])
def test_rewards_without_confidence_are_not_mixed_by_it(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"credit.mix is 'adaptive', and reward '{kind}' does not say how far it can be trusted"):
        config(f"reward.kind={kind}", "credit.mix=adaptive")
    for name in ("montecarlo head", "temporal", "labelled", "soft_q"):
        assert config(*JUDGES[name], "credit.mix=adaptive").reward.kind == name.split()[0]


def test_adapters(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    for name in ("montecarlo head", "montecarlo label", "temporal", "temporal shared", "labelled", "soft_q"):
        made = trainer(*JUDGES[name], "engine.policy=lora", "engine.rank=2", "steps=2")
        assert len(list(made.run())) == 2 and {"policy", "judge"} <= set(made.models())


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (["reward.kind=montecarlo", "reward.continuations=0"], r"reward\.continuations"),
        (["reward.kind=montecarlo", "reward.judge=other"], r"reward\.judge.*none"),
        (["reward.kind=montecarlo", "reward.discount=0"], r"reward\.discount"),
        (["reward.kind=temporal", "reward.lam=2"], r"reward\.lam"),
        (["reward.kind=intrinsic", "reward.scale=0"], r"reward\.scale is 0"),
        (["reward.kind=soft_q", "reward.updates=0"], "or the judge never learns"),
        (["reward.kind=soft_q", "reward.warm=1", "reward.demonstrations=nowhere.jsonl"], r"nowhere\.jsonl"),
        (["reward.kind=labelled", "reward.warm=0"], r"reward\.warm and reward\.updates are both 0"),
        (["reward.kind=labelled", "reward.max_length=5"], r"No labelled step fits into 5 tokens"),
        (["reward.kind=temporal", "reward.beta=-1"], r"reward\.beta"),
        (["reward.kind=montecarlo", "reward.budget=adaptive", "reward.first=9"], r"reward\.first is 9"),
        (
            ["reward.kind=montecarlo", "reward.judge=label", "reward.label_tokens=[red,red]"],
            r"the tokens \[\d+, \d+\]; they must be different",
        ),
        (["reward.kind=montecarlo", "reward.judge=label", "reward.label_tokens=[a a,b]"], r"The label 'a a' is 2 tokens"),
        (["reward.kind=montecarlo", "reward.judge=label", "reward.label_tokens=[é,b]"], r"The label 'é' is unknown to the tokenizer"),
    ],
)
def test_what_cannot_work_is_said_before_sampling(settings: list[str], match: str) -> None:
    with pytest.raises((ConfigError, DataError), match=match):
        trainer(*settings)


@pytest.mark.parametrize("name", ["montecarlo head", "visits", "temporal", "soft_q"])
def test_an_engine_without_heads_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    nothing = property(lambda self: Capabilities(kinds=frozenset({"full", "lora"}), entropy=True, values=False))
    monkeypatch.setattr(LocalEngine, "capabilities", nothing)
    with pytest.raises(
        CapabilityError, match=r"reward\.kind is '(montecarlo|temporal|soft_q)' with a scalar head, and this engine has only full, lora"
    ):
        trainer(*JUDGES[name])
