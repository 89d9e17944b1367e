"""One step on the server and one here, on the same base, adapter weights, rows and loss: do the same log-probs move as far?"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load

from stepwell.connect import checked_service
from stepwell.engine.load import load_pretrained
from stepwell.engine.local import LocalEngine, LocalModel, Text
from stepwell.engine.remote import RemoteEngine, RemoteModel
from stepwell.engine.tinker_api import TinkerTrainee
from stepwell.losses import Clip, CloningLoss, PolicyLoss, PreferenceLoss
from stepwell.protocols import Loss, ModelSpec, OptimizerSpec
from stepwell.types import Floats, Row

LOSSES: dict[str, Loss] = {
    "clip": PolicyLoss(Clip(0.2, 0.28), old="given"),
    "clip, ratio of an episode": PolicyLoss(Clip(0.2, 0.28), old="given", level="episode", pooling="mean"),
    "preference of the judge": PreferenceLoss(0.05),
    "cloning": CloningLoss(),
}
DESCENT = OptimizerSpec(betas=(0.0, 0.0), eps=100.0, max_grad_norm=1e9)
ADAM = OptimizerSpec(max_grad_norm=1e9, eps=1e-6)


def rows() -> list[Row]:
    """Six rows of different lengths, three pairs of episodes."""
    draw = np.random.default_rng(5)
    made = []
    for b in range(6):
        ids = draw.integers(5, 100, 6 + 3 * b)
        targets = np.arange(3, len(ids))
        n = len(targets)
        row = Row.of(ids, targets, step=np.arange(n) // 3)
        made.append(replace(row, advantage=draw.normal(size=n), ref_logprobs=np.full(n, -4.0), episode=b, group=b // 2, label=float(b % 2)))
    return made


def compare(url: str, base: Path, checkpoints: Path) -> Iterator[tuple[str, bool]]:
    """Sentences with numbers, and whether they are what they should be."""
    service = checked_service(url, "auto", str(base), "TINKER_API_KEY", "refused")
    for name, loss in LOSSES.items():
        for words, spec, lr in (("plain descent", DESCENT, 3e-2), ("Adam", ADAM, 1e-3)):
            there = RemoteEngine(service, Text(str, frozenset()), 256).model("policy", _spec(spec))
            module, _ = load_pretrained(str(base), torch.float32, torch.device("cpu"))
            here = LocalEngine(module, Text(str, frozenset())).model("policy", _spec(spec))
            take_adapter(here, there, checkpoints)
            moved, away, apart = one_step(here, there, loss, lr)
            share = apart / moved if moved else float("nan")
            text = f"exactness, {name}, {words}: log-probs move by up to {moved:.3g} nats, the two by {apart:.2g} apart ({share:.2g} of it)"
            yield f"{text}; before the step {away:.2g} apart", bool(moved > 0 and share < 0.02 and away < 1e-4)
            there.close()
    service.close()


def _spec(optimizer: OptimizerSpec) -> ModelSpec:
    return ModelSpec(kind="lora", rank=4, alpha=32.0, optimizer=optimizer)


def take_adapter(here: LocalModel, there: RemoteModel, checkpoints: Path) -> None:
    """The server's adapter, from the file that it wrote, into the local one."""
    trainee = there.trainee
    assert isinstance(trainee, TinkerTrainee)
    trainee.client.save_weights_for_sampler("exactness").result()
    archive = checkpoints / str(trainee.client.model_id) / "sampler_weights" / "exactness.tar.gz"
    with tarfile.open(archive) as tar:
        member = next(one for one in tar.getmembers() if one.name.endswith("adapter_model.safetensors"))
        file = tar.extractfile(member)
        assert file is not None
        found = load(BytesIO(file.read()).getvalue())
    named = {name.removeprefix("base_model.model."): tensor for name, tensor in found.items()}
    taken = 0
    for name, master in here.optimizer.masters.items():
        its = named[name.replace(".policy.", ".")]
        with torch.no_grad():
            master.copy_(its)
        taken += 1
    assert taken == len(named), f"the server's adapter has {len(named)} tensors, the local one {taken}"
    here.optimizer.publish()


def one_step(here: LocalModel, there: RemoteModel, loss: Loss, lr: float) -> tuple[float, float, float]:
    """(largest movement, how far the two are apart before, and after)"""
    given = rows()
    before = said(here, given)
    away = worst(before, said(there, given))
    near = [replace(row, old_logprobs=lp - 0.05 * row.advantage) for row, lp in zip(given, before, strict=True)]
    for model in (here, there):
        model.backward(near, loss)
        model.step(lr)
    after = said(here, given)
    return worst(after, before), away, worst(after, said(there, given))


def said(model: LocalModel | RemoteModel, given: list[Row]) -> list[Floats]:
    return [made["logprobs"] for made in model.forward(given)]


def worst(one: list[Floats], two: list[Floats]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, two, strict=True))
