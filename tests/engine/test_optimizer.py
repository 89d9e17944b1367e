"""Optimiser state: what is saved comes back bit for bit, here and in another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
import torch
from speakers import engine, random_rows
from torch import nn

from stepwell.engine.local import LocalModel
from stepwell.engine.optimizer import Optimizer
from stepwell.errors import RunError
from stepwell.losses import CloningLoss
from stepwell.protocols import ModelSpec, OptimizerSpec

Kind = Literal["adamw", "muon", "sgd"]
KINDS: list[tuple[Kind, str, torch.dtype]] = [
    ("adamw", "full", torch.float32),
    ("adamw", "full", torch.bfloat16),
    ("muon", "full", torch.float32),
    ("muon", "full", torch.bfloat16),
    ("muon", "lora", torch.float32),
    ("sgd", "full", torch.bfloat16),
]


def model(optimizer: Kind, kind: str, dtype: torch.dtype) -> LocalModel:
    if kind == "lora":
        pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    spec = OptimizerSpec(kind=optimizer, weight_decay=0.01)
    return engine(dtype=dtype).model("policy", ModelSpec(kind=kind, rank=4, alpha=8.0, optimizer=spec))  # type: ignore[arg-type]


def train(made: LocalModel, steps: range) -> None:
    """Every step has rows and a rate of its own."""
    for step in steps:
        made.backward(random_rows(5, seed=step), CloningLoss())
        made.step(0.01 / (1 + step))


def bits(made: LocalModel) -> dict[str, bytes]:
    tensors, _ = made.optimizer.state()
    found = {name: tensor.detach().numpy().tobytes() for name, tensor in tensors.items()}
    return found | {f"computed/{name}": p.detach().float().numpy().tobytes() for name, p in made.params.items()}


@pytest.mark.parametrize(("optimizer", "kind", "dtype"), KINDS)
def test_going_on_after_load_equals_never_having_stopped(optimizer: Kind, kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    whole = model(optimizer, kind, dtype)
    train(whole, range(6))
    first = model(optimizer, kind, dtype)
    train(first, range(3))
    first.save(tmp_path)
    second = model(optimizer, kind, dtype)
    train(second, range(7, 9))
    second.backward(random_rows(5), CloningLoss())
    second.load(tmp_path)
    assert bits(second) == bits(first)
    assert second.version == 3
    train(second, range(3, 6))
    assert bits(second) == bits(whole)
    assert second.version == whole.version


@pytest.mark.slow
def test_going_on_in_another_process(tmp_path: Path) -> None:
    whole = model("muon", "full", torch.float32)
    train(whole, range(3))
    whole.save(tmp_path)
    program = (
        "import sys; from pathlib import Path; import torch; sys.path[:0] = sys.argv[1:3]\n"
        "from test_optimizer import model, train\n"
        "made = model('muon', 'full', torch.float32); made.load(Path(sys.argv[3])); train(made, range(3, 6)); made.save(Path(sys.argv[4]))"
    )
    here = Path(__file__).parent
    arguments = [str(here), str(here.parent), str(tmp_path), str(tmp_path / "later")]
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, timeout=120)
    train(whole, range(3, 6))
    other = model("muon", "full", torch.float32)
    other.load(tmp_path / "later")
    assert bits(other) == bits(whole)


def test_saving_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    made = model("adamw", "full", torch.float32)
    train(made, range(2))
    for name in ("one", "two"):
        made.save(tmp_path / name)
    for file in ("model.safetensors", "model.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_muon_takes_the_hidden_matrices_alone() -> None:
    made = model("muon", "full", torch.float32)
    train(made, range(1))
    tensors, _ = made.optimizer.state()
    hidden = {name.removeprefix("moment/momentum_buffer/") for name in tensors if name.startswith("moment/momentum_buffer/")}
    assert hidden == {name for name, p in made.params.items() if name.endswith("_proj.weight")}
    assert {name for name in tensors if name.startswith("moment/exp_avg/")} == {f"moment/exp_avg/{n}" for n in set(made.params) - hidden}


@pytest.mark.parametrize("wrong", ["kind", "names", "shape"])
def test_state_of_another_model_is_refused_and_changes_nothing(wrong: str) -> None:
    made = Optimizer({"a": nn.Parameter(torch.ones(2, 2))}, OptimizerSpec())
    other = {
        "kind": Optimizer({"a": nn.Parameter(torch.zeros(2, 2))}, OptimizerSpec(kind="muon")),
        "names": Optimizer({"b": nn.Parameter(torch.zeros(2, 2))}, OptimizerSpec()),
        "shape": Optimizer({"a": nn.Parameter(torch.zeros(1, 2))}, OptimizerSpec()),
    }[wrong]
    with pytest.raises(RunError, match="Resume with the config that the checkpoint was made with"):
        made.restore(*other.state())
    assert made.params["a"].tolist() == [[1, 1], [1, 1]]


def test_weight_decay_and_rate_by_hand() -> None:
    """One AdamW step: w (1 - lr decay) - lr sign(g) for a tiny eps; Muon's other weights take `rest_scale` of the rate."""
    weight = nn.Parameter(torch.tensor([2.0, -2.0]))
    made = Optimizer({"w": weight}, OptimizerSpec(weight_decay=0.5, eps=1e-12))
    weight.grad = torch.tensor([0.1, 0.1])
    assert made.step(0.1)["grad_norm"] == pytest.approx(0.1 * 2**0.5)
    assert weight.tolist() == pytest.approx([2 * 0.95 - 0.1, -2 * 0.95 - 0.1])
    params = {"m": nn.Parameter(torch.eye(2)), "w": nn.Parameter(torch.tensor([2.0]))}
    muon = Optimizer(params, OptimizerSpec(kind="muon", rest_scale=0.5, eps=1e-12), matrices=frozenset({"m"}))
    params["m"].grad, params["w"].grad = torch.zeros(2, 2), torch.tensor([0.3])
    muon.step(0.1)
    assert params["w"].tolist() == pytest.approx([2 - 0.05])
