"""Inverse and implicit judges by one key: they train anywhere, resume to the same bits, and what cannot work is said before."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from stepwell.build import build
from stepwell.configure import dump, load, parse
from stepwell.engine.local import LocalEngine
from stepwell.errors import CapabilityError, ConfigError, DataError, RunError
from stepwell.protocols import Capabilities
from stepwell.run import train
from stepwell.trained import export
from stepwell.trainer import Trainer

SMALL = (
    *(f"engine.{name}" for name in ("threads=1", "width=16", "layers=1", "corpus_tasks=6", "max_length=512", "vocabulary=256")),
    *(f"rollout.{name}" for name in ("groups=2", "group_size=2", "turns=2", "max_tokens=4")),
    *("cloning.steps=0", "evaluation.every=0", "evaluation.episodes=2", "steps=2", "optimizer.lr=0.01"),
)
LUCK = ("domain.kind=kill_driver:Luck", "reward.lr=0.01")
INVERSE = ("reward.kind=inverse", "reward.batch=2")
JUDGES = {
    "irl": (*INVERSE,),
    "irl, log-ratio": (*INVERSE, "reward.model=full", "reward.weights=raw", "reward.total=cumulative"),
    "irl, moving": (*INVERSE, "reward.model=full", "reward.reference=moving", "reward.learn=after"),
    "irl, own trunk": (*INVERSE, "reward.trunk=own", "reward.correct=policy"),
    "discriminator": (*INVERSE, "reward.objective=discriminator", "reward.spoilt=1", "reward.logit=airl"),
    "iq": (*INVERSE, "reward.objective=iq"),
    "cross-entropy": ("reward.kind=implicit", "reward.objective=cross_entropy", "reward.reference=frozen", "reward.judged=all"),
    "soft Q": ("reward.kind=soft_q",),
    "preference, paid at the end": ("reward.kind=implicit", "reward.unit=episode"),
}


@pytest.fixture(autouse=True)
def _its_own_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another folder has a kill_driver too."""
    monkeypatch.syspath_prepend(Path(__file__).parent)


def trainer(*settings: str) -> Trainer:
    return build(load("smoke", [*SMALL, *settings])).trainer


@pytest.mark.parametrize("name", ["irl", "irl, log-ratio", "discriminator", "soft Q", "cross-entropy"])
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path: Path, name: str) -> None:
    """U71: weights of all models, demonstrations and confidence, and the metrics of every step but times."""
    settings = load("smoke", [*SMALL, *LUCK, *JUDGES[name], "steps=2", "checkpoint.every=1", "credit.kind=process_to_go"])
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    straight = [metrics for _, metrics in train(settings, whole)]
    run = train(settings, cut)
    assert isinstance(run, Generator)
    pieces = [next(run)[1]]
    run.close()
    pieces += [metrics for _, metrics in train(settings, cut, resume=True)]

    def kept(folder: Path) -> dict[str, bytes]:
        models = folder / "checkpoints" / "step-000002" / "models"
        return {str(path.relative_to(models)): path.read_bytes() for path in sorted(models.rglob("*")) if path.is_file()}

    def reward(folder: Path) -> object:
        return json.loads((folder / "checkpoints" / "step-000002" / "state.json").read_text())["trainer"]["reward"]

    assert kept(cut) == kept(whole)
    assert reward(cut) == reward(whole)
    for one, two in zip(straight, pieces, strict=True):
        one, two = ({k: v for k, v in line.items() if not k.startswith("time/")} for line in (one, two))
        assert one == pytest.approx(two, nan_ok=True, abs=0)
    learnt = "judge/fresh_error" if name == "soft Q" else "judge/grad_norm"
    assert any(line.get(learnt, 0.0) > 0 for line in straight)


WHERE = (("irl", "cave"), ("irl", "maze"), ("irl", "shop"), ("discriminator", "shop"), ("iq", "maze"), ("cross-entropy", "cave"))


@pytest.mark.parametrize(("name", "domain"), WHERE)
def test_the_same_key_works_in_every_domain(name: str, domain: str) -> None:
    small = {"shop": ["domain.products=60", "domain.test_tasks=4"], "cave": ["domain.test_tasks=4"], "maze": ["domain.test_tasks=4"]}
    for result in trainer(f"domain.kind={domain}", *small[domain], *JUDGES[name], "reward.lr=0.01", "rollout.turns=12").run():
        members = [member for group in result.groups for member in group.members]
        assert all(member.scored.scored_S.all() for member in members)
        assert result.metrics["judge/not_finite"] == 0
        if name != "cross-entropy":
            assert result.metrics["judge/experts"] >= 2


@pytest.mark.parametrize(
    "credit", ["istar", "process_to_go", "prime", "repirl", "process_supervision", "gigpo", "min_form", "suffix", "gae", "grpo"]
)
def test_an_inverse_judge_goes_with_every_credit_rule(credit: str) -> None:
    settings = ["domain.kind=cave", "domain.test_tasks=4", *JUDGES["irl"], f"credit.kind={credit}"]
    for extra in ([], ["credit.level=token"] if credit in ("prime", "gae") else []):
        for result in trainer(*settings, *extra).run():
            assert all(np.isfinite(m.advantages_S).all() for group in result.groups for m in group.members)
    if credit in ("istar", "prime", "repirl"):
        assert list(trainer(*settings, "credit.mix=adaptive").run())


def test_adapters() -> None:
    pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    adapters = ("engine.policy=lora", "engine.rank=2", *LUCK)
    for judge in (["reward.model=lora"], ["reward.trunk=own"], []):
        made = trainer(*adapters, *INVERSE, *judge)
        assert len(list(made.run())) == 2
        assert {"policy", "judge"} <= set(made.models())
    with pytest.raises(ConfigError, match=r"reward.model is 'full' and engine.policy 'lora'; adapters need a frozen base"):
        trainer(*adapters, *INVERSE, "reward.model=full")


def test_demonstrations_from_a_file_teach_the_judge(tmp_path: Path) -> None:
    file = tmp_path / "cave.jsonl"
    lines = [{"difficulty": 0.1, "seed": seed, "actions": ["left[]", "stop[]"]} for seed in range(3)]
    file.write_text("\n".join(map(json.dumps, lines)))
    cave = ("domain.kind=cave", "domain.test_tasks=4", *INVERSE, "reward.correct=policy")
    (first, _) = trainer(*cave, f"reward.demonstrations={file}").run()
    assert first.metrics["judge/experts"] == 2
    with pytest.raises(DataError, match=r"cave.jsonl, line 1.*'left\[\]' is no action"):
        trainer("domain.kind=shop", "domain.products=60", "domain.test_tasks=4", *INVERSE, f"reward.demonstrations={file}")


WRONG: tuple[tuple[list[str], str], ...] = (
    (
        ["reward.weights=tempered", "reward.objective=iq"],
        r"reward.weights is 'tempered', and would change nothing: it belongs to objec",
    ),
    (["reward.temper=0.5"], r"reward.temper is 0.5, and would change nothing: it belongs to weights 'tempered', and weights is 'length'"),
    (["reward.smoothing=0.2"], r"reward.smoothing is 0.2.*objective 'discriminator', and objective is 'irl'"),
    (["reward.spoilt=1"], r"reward.spoilt is 1.*objective 'discriminator'"),
    (["reward.discount=0.5"], r"reward.discount is 0.5.*objective 'iq'"),
    (["reward.beta=0.1"], r"reward.beta is 0.1.*does not belong to model 'head'"),
    (["reward.model=full", "reward.trunk=own"], r"reward.trunk is 'own'.*does not belong to model 'full'"),
    (["reward.model=full", "reward.objective=iq"], r"action values are a head's: set reward.model to 'head'"),
    (["reward.demonstrations=none", "reward.batch=2"], r"reward.batch is 2.*demonstrations is 'none'"),
    (["reward.demonstrations=none", "reward.correct=policy"], r"there are no experts; set demonstrations to 'expert' or a file"),
    (["reward.temper=2", "reward.weights=tempered"], r"reward.temper is 2"),
    (["reward.objective=gail"], r"reward.objective is 'gail'"),
    (["reward.demonstrations=nowhere.jsonl"], r"Demonstrations cannot be read from nowhere.jsonl"),
)


@pytest.mark.parametrize(("settings", "said"), WRONG)
def test_what_cannot_work_is_said_before_sampling(settings: list[str], said: str) -> None:
    with pytest.raises((ConfigError, DataError), match=said):
        trainer("domain.kind=cave", "domain.test_tasks=4", "reward.kind=inverse", *settings)


AHEAD = (
    *("engine.kind=remote", "engine.url=http://127.0.0.1:1", "engine.model=m", "rollout.ahead=true", "loss.old_logprobs=sampler"),
    *("reward.kind=inverse", "reward.model=lora", "credit.kind=repirl", "reward.demonstrations=none"),
)


def test_a_judge_that_reads_what_the_sampler_said_goes_with_a_sampler_that_is_ahead() -> None:
    """Of the policy it asks nothing (see the rewards' tests); what plays, or asks, is refused and says which of the two."""
    assert load("smoke", AHEAD).rollout.ahead
    asks = "asks the policy that has played, which has moved on by then"
    for more, said in {
        ("reward.reference=moving",): asks,
        ("reward.objective=discriminator", "reward.logit=airl"): asks,
        ("reward.demonstrations=expert",): r"\(reward\) plays demonstrations in the domain, .* set reward\.demonstrations=none",
    }.items():
        with pytest.raises(ConfigError, match=said):
            load("smoke", [*AHEAD, *more])


def test_a_domain_without_an_expert_says_so_before_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    import kill_driver

    monkeypatch.setattr(kill_driver.Luck, "expert", lambda self, task: None)
    with pytest.raises(
        ConfigError, match=r"no expert for any of 20.*\(reward.demonstrations=FILE\), or learn from the policy's own successes"
    ):
        trainer(*LUCK, *INVERSE)


def test_a_config_that_was_written_out_is_read_back() -> None:
    for settings in JUDGES.values():
        config = load("smoke", [*settings])
        tree: Any = yaml.safe_load(yaml.safe_dump(dump(config)))
        assert parse(tree) == config


def test_an_engine_without_heads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = property(lambda self: Capabilities(kinds=frozenset({"full", "lora"}), entropy=True, values=False))
    monkeypatch.setattr(LocalEngine, "capabilities", nothing)
    with pytest.raises(CapabilityError, match=r"reward\.kind is 'inverse' with a scalar head, and this engine has only full, lora"):
        trainer(*LUCK, *INVERSE)
    assert trainer(*LUCK, *JUDGES["irl, log-ratio"])


def test_a_judge_that_is_a_language_model_is_written_out_and_a_head_is_not(tmp_path: Path) -> None:
    for name in ("irl", "irl, log-ratio"):
        settings = load("smoke", [*SMALL, "domain.kind=cave", "domain.test_tasks=4", *JUDGES[name], "reward.lr=0.01", "steps=1"])
        list(train(settings, tmp_path / name))
    folder = export(tmp_path / "irl, log-ratio", tmp_path / "out", model="judge")
    trained = load_file(tmp_path / "irl, log-ratio" / "checkpoints" / "step-000001" / "models" / "judge" / "model.safetensors")
    written = load_file(folder / "model.safetensors")
    assert written and all(torch.equal(tensor, trained[f"weight/{name}"]) for name, tensor in written.items())
    with pytest.raises(RunError, match=r"judge of kind 'inverse' with a head, which is not written out.*reward.model=full or lora"):
        export(tmp_path / "irl", tmp_path / "head", model="judge")
