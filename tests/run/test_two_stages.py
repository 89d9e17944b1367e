"""Two stages: the policy and the judge of one run go on in another domain; a judge that would read something else is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stepwell.build import build
from stepwell.configure import load
from stepwell.errors import ConfigError, RunError
from stepwell.run import train
from stepwell.trained import export

TINY = (*(f"engine.{name}" for name in ("threads=1", "width=16", "feedforward=16", "layers=1", "corpus_tasks=20", "max_length=256")),)
SMALL = (
    *("domain.kind=reasoning", "test_tasks=4", "chat.tools=false", "cloning.steps=0", "evaluation.every=0", "evaluation.episodes=2"),
    *(f"rollout.{name}" for name in ("groups=2", "group_size=2", "turns=10", "max_tokens=8")),
    *(
        "reward.kind=inverse",
        "reward.lr=0.01",
        "reward.batch=2",
        "credit.kind=repirl",
        "steps=2",
        "checkpoint.every=1",
        "optimizer.lr=0.001",
    ),
)
FIRST = (*TINY, *SMALL, "task=arithmetic")


def second(folder: Path, *settings: str) -> list[str]:
    base = ["engine.kind=local", f"engine.model={folder / 'model'}", "engine.device=cpu", "engine.threads=1"]
    return [*base, *SMALL, "task=strings", f"reward.start={folder / 'first'}", *settings]


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stages")
    list(train(load("smoke", FIRST), folder / "first"))
    export(folder / "first", folder / "model")
    return folder


def judge_of(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step-{step:06d}" / "models" / "judge" / "model.safetensors")


def weights(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name.startswith("weight/")}


def test_the_judge_begins_with_what_the_first_stage_has_taught_it_and_goes_on_learning(stages: Path) -> None:
    taught = weights(judge_of(stages / "first", 2))
    assert max(tensor.abs().max().item() for tensor in taught.values()) > 0.0
    still = [metrics for _, metrics in train(load("smoke", second(stages, "reward.updates=0", "steps=1")), stages / "still")]
    assert still[0]["reward/judge_step"] != 0.0, "a fresh judge says 0"
    kept = weights(judge_of(stages / "still", 1))
    assert all(torch.equal(kept[name], tensor) for name, tensor in taught.items()) and set(kept) == set(taught)
    list(train(load("smoke", second(stages)), stages / "second"))
    gone = weights(judge_of(stages / "second", 2))
    assert any(not torch.equal(gone[name], tensor) for name, tensor in taught.items())


def test_a_policy_that_begins_as_another_is_refused_before_anything_is_sampled(stages: Path) -> None:
    with pytest.raises(ConfigError, match=r"the policy does not begin as that run's.*stepwell export .*first DIR.*reward.kind=trained"):
        build(load("smoke", [*FIRST, f"reward.start={stages / 'first'}"]))
    list(train(load("smoke", [*FIRST, "seed=1"]), stages / "other"))
    with pytest.raises(ConfigError, match="the policy does not begin as that run's"):
        build(load("smoke", second(stages, f"reward.start={stages / 'other'}")))


def test_a_judge_of_another_form_is_refused(stages: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"reward.trunk is 'own', and was 'shared' in .*first, whose judge is to go on; set reward.trunk=shared"
    ):
        build(load("smoke", second(stages, "reward.trunk=own")))
    plain = [one for one in FIRST if not one.startswith(("reward.", "credit."))]
    list(train(load("smoke", [*plain, "reward.kind=outcome", "credit.kind=rloo"]), stages / "outcome"))
    with pytest.raises(ConfigError, match="whose judge is of kind 'outcome'; only one of kind 'inverse' goes on learning"):
        build(load("smoke", second(stages, f"reward.start={stages / 'outcome'}")))
    with pytest.raises(RunError, match="holds no run"):
        build(load("smoke", second(stages, f"reward.start={stages / 'nothing'}")))
