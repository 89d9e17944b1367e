"""Every loss over the wire has the gradient that it has at home, whatever the server divides by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from every_loss import LOSSES, NATIVE
from fake_remote import FakeRemote, Oddity
from speakers import SMALL, loud
from torch import Tensor

from stepwell.engine.carrier import Carrier, Datum, Dialect, Reduction, native_call, scales
from stepwell.engine.local import Budget, LocalEngine, Text
from stepwell.engine.servers import SERVERS, server_kind
from stepwell.engine.table import TableEngine, TableModel
from stepwell.engine.tiny import tiny_model
from stepwell.errors import CapabilityError, ConfigError
from stepwell.losses import Cispo, Clip, CloningLoss, LabelLoss, PolicyLoss, PreferenceLoss, Reinforce, Watched
from stepwell.losses.value import ValueLoss
from stepwell.protocols import Loss, ModelSpec, OptimizerSpec
from stepwell.types import Batch, Floats, Outputs, Row, Tallies

DESCENT = OptimizerSpec(kind="sgd", max_grad_norm=1e9)
ADAMW = OptimizerSpec(max_grad_norm=0.05, eps=1e-3)
VOCABULARY = 5
CARRIED: dict[str, Dialect] = {
    "sum": Dialect("sum", frozenset()),
    "sequence_mean": Dialect("sequence_mean", frozenset()),
    "token_mean": Dialect("token_mean", frozenset()),
}
SPEAKABLE = {name: loss for name, loss in LOSSES.items() if not loss.wants}


def table(optimizer: OptimizerSpec = DESCENT) -> TableModel:
    engine = TableEngine(VOCABULARY, Text(lambda ids: "".join(map(str, ids)), frozenset()), spread=0.7, seed=3)
    return engine.model("policy", ModelSpec(optimizer=optimizer))


def draw_rows(seed: int = 0, num_rows: int = 6) -> list[Row]:
    """Rows of several lengths with holes between targets, steps of two tokens, the last two rows one episode, three groups."""
    generator = np.random.default_rng(seed)
    rows = []
    for b in range(num_rows):
        length = int(generator.integers(4, 9))
        targets = np.flatnonzero(generator.random(length) < 0.6)
        targets = targets[targets > 0] if np.any(targets > 0) else np.array([1])
        n = len(targets)
        ids = generator.integers(0, VOCABULARY, length)
        row = Row.of(ids, targets, weight=generator.random(n) * (generator.random(n) < 0.9), step=10 * b + np.arange(n) // 2)
        old, ref, sampler = generator.normal(-1.6, 0.3, (3, n))
        row = replace(row, advantage=generator.normal(size=n), old_logprobs=old, ref_logprobs=ref, sampler_logprobs=sampler)
        episode = min(b, num_rows - 2)
        rows.append(replace(row, episode=episode, group=episode // 2, label=float(episode % 2)))
    return rows


def logits(model: TableModel, rows: Sequence[Row]) -> Floats:
    """Of all contexts in the rows. [C, V]"""
    contexts = dict.fromkeys(row.ids[:p].astype(np.int64).tobytes() for row in rows for p in range(1, len(row.ids)))
    return model.logits(list(contexts)).detach().numpy()


def carried(loss: Loss, rows: Sequence[Row], dialect: Dialect, remote: FakeRemote) -> dict[str, float]:
    made = Carrier(remote, dialect, OptimizerSpec())
    metrics = made.backward(rows, loss)
    made.step(1.0)
    return metrics


def label_rows() -> list[Row]:
    """Three steps, each with the labels 3 and 4 said behind it; the shares of the labels of a step sum to 1."""
    rows = []
    for number, (text, share, weight) in enumerate((([0, 1], 1.0, 0.5), ([0, 1, 2], 0.25, 0.3), ([2], 0.0, 0.2))):
        for label, share_of in enumerate((share, 1.0 - share)):
            made = Row.of(np.array([*text, 3 + label]), np.array([len(text)]), np.array([weight]), np.array([number]))
            rows.append(replace(made, returns=np.array([share_of]), label=float(label), episode=number))
    return rows


def check_same(loss: Loss, dialect: Dialect, remote: FakeRemote, seed: int = 0, given: Sequence[Row] | None = None) -> None:
    """One plain descent step with rate 1 moves the logits by the gradient; the metrics are those of the local model."""
    rows, local = draw_rows(seed) if given is None else list(given), table()
    before = logits(local, rows)
    metrics = local.backward(rows, loss)
    local.step(1.0)
    sent = carried(loss, rows, dialect, remote)
    moved = logits(local, rows) - before
    assert isinstance(remote.model, TableModel)
    assert np.abs(moved).max() > 1e-3
    np.testing.assert_allclose(logits(remote.model, rows) - before, moved, atol=1e-9)
    assert sent == pytest.approx(metrics, nan_ok=True)


@pytest.mark.parametrize("loss", SPEAKABLE.values(), ids=SPEAKABLE.keys())
@pytest.mark.parametrize("dialect", CARRIED.values(), ids=CARRIED.keys())
def test_every_loss_is_carried(loss: Loss, dialect: Dialect) -> None:
    remote = FakeRemote(table(), dialect.reduction)
    check_same(loss, dialect, remote)
    assert remote.calls == ["forward", "importance_sampling", "optim_step"]


@pytest.mark.parametrize("dialect", CARRIED.values(), ids=CARRIED.keys())
def test_a_loss_of_label_tokens_is_carried(dialect: Dialect) -> None:
    check_same(LabelLoss(), dialect, FakeRemote(table(), dialect.reduction), given=label_rows())


@pytest.mark.parametrize("name", SPEAKABLE)
@pytest.mark.parametrize("server", SERVERS)
def test_every_loss_on_every_kind_of_server(server: str, name: str) -> None:
    """By native call where a server sums and means what we mean; otherwise carried, past a cap or a clip of its own."""
    dialect = server_kind(server).dialect
    odd: dict[str, Oddity] = {"verl": "capped", "twinkle": "clipped"}
    remote = FakeRemote(table(), dialect.reduction, odd.get(server))
    check_same(Watched(SPEAKABLE[name]), dialect, remote, seed=1)
    native = dialect.reduction == "sum" and NATIVE.get(name) in dialect.native
    assert remote.calls == ([NATIVE[name], "optim_step"] if native else ["forward", "importance_sampling", "optim_step"])


@pytest.mark.parametrize("dialect", [*CARRIED.values(), SERVERS["tinker"].dialect])
def test_several_unequal_calls_before_one_clipped_step(dialect: Dialect) -> None:
    """U45: the scale of each call matters where they add up, and that of all where the gradient is clipped."""
    local, remote = table(ADAMW), FakeRemote(table(ADAMW), dialect.reduction)
    sender = Carrier(remote, dialect, ADAMW)
    many, few, third = draw_rows(2), draw_rows(3, num_rows=2), draw_rows(4, num_rows=3)
    for _ in range(3):
        for rows, loss in ((many, LOSSES["clip"]), (few, LOSSES["preference"]), (third, LOSSES["plain"])):
            local.backward(rows, loss)
            sender.backward(rows, loss)
        here, there = local.step(0.1), sender.step(0.1)
        assert there == pytest.approx(here)
        assert here["grad_norm"] > ADAMW.max_grad_norm
    np.testing.assert_allclose(logits(remote.model, many + few), logits(local, many + few), atol=1e-9)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["clip", "episode", "preference"])
@pytest.mark.parametrize("server", ["tinker", "skyrl-jax", "hatchery"])
def test_a_transformer_learns_the_same_over_the_wire(server: str, name: str) -> None:
    """The tiny engine, in float32, three updates."""
    dialect, rows, models = server_kind(server).dialect, draw_rows(6), []
    for _ in range(2):
        made = LocalEngine(loud(tiny_model(32, SMALL, 0)), Text(str, frozenset()), Budget(rows=2))
        models.append(made.model("policy", ModelSpec(optimizer=OptimizerSpec(eps=1e-3, max_grad_norm=0.5))))
    local, sender = models[0], Carrier(FakeRemote(models[1], dialect.reduction), dialect, OptimizerSpec())
    start = [made["logprobs"] for made in local.forward(rows)]
    near = [replace(row, old_logprobs=said - 0.1 * row.advantage) for row, said in zip(rows, start, strict=True)]
    for _ in range(3):
        here, there = local.backward(near, LOSSES[name]), sender.backward(near, LOSSES[name])
        assert there == pytest.approx(here, rel=1e-3, abs=1e-4)
        assert sender.step(0.01)["grad_norm"] == pytest.approx(local.step(0.01)["grad_norm"], rel=1e-3)
    said, heard = local.forward(rows), sender.forward(rows)
    for before, one, two in zip(start, said, heard, strict=True):
        np.testing.assert_allclose(two["logprobs"], one["logprobs"], atol=1e-3)
        assert np.abs(one["logprobs"] - before).max() > 0.02


def test_without_the_scales_an_averaging_server_applies_another_gradient() -> None:
    """Not only another length: long rows would pull less."""
    rows, one, two = draw_rows(), table(), FakeRemote(table(), "sequence_mean")
    before = logits(one, rows)
    one.backward(rows, LOSSES["clip"])
    one.step(1.0)
    carried(LOSSES["clip"], rows, CARRIED["sum"], two)
    assert isinstance(two.model, TableModel)
    right, wrong = logits(one, rows) - before, logits(two.model, rows) - before
    assert (right * wrong).sum() / np.sqrt((right**2).sum() * (wrong**2).sum()) < 0.999


@pytest.mark.parametrize("reduction", CARRIED)
def test_scales_by_hand(reduction: Reduction) -> None:
    """Sequences of 2 and 3 positions: the mean of 2 means, or the mean of 5 positions."""
    data = [Datum(np.arange(n), np.arange(n), {}) for n in (2, 3)]
    assert scales(data, reduction) == {"sum": [1.0, 1.0], "sequence_mean": [4.0, 6.0], "token_mean": [5.0, 5.0]}[reduction]


@pytest.mark.parametrize("name", LOSSES)
def test_which_losses_are_native(name: str) -> None:
    call = native_call(LOSSES[name])
    assert (None if call is None else call.loss_fn) == NATIVE.get(name)
    assert native_call(Watched(LOSSES[name])) == call


@pytest.mark.parametrize(
    ("loss", "call"),
    [
        (PolicyLoss(Clip(0.1, 0.28), old="given"), ("ppo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.28}, "advantages")),
        (PolicyLoss(Cispo(high=4.0), old="given"), ("cispo", {"clip_low_threshold": 0.0, "clip_high_threshold": 5.0}, "advantages")),
        (PolicyLoss(Clip(dual=3.0), level="step"), ("cross_entropy", {}, "advantages")),
        (PolicyLoss(Reinforce(), old="given"), ("cross_entropy", {}, "advantages")),
        (CloningLoss(), ("cross_entropy", {}, "weights")),
        (PolicyLoss(Clip(0.2, math.inf), old="given"), None),
        (PolicyLoss(Clip(dual=3.0), old="given"), None),
        (PolicyLoss(kl_coef=0.0), None),
        (PreferenceLoss(), None),
    ],
)
def test_native_calls_by_hand(loss: Loss, call: object) -> None:
    assert native_call(loss) == call


@dataclass(frozen=True)
class Poisoned:
    """A loss whose gradient is NaN at one target."""

    @property
    def spans_rows(self) -> bool:
        return False

    @property
    def wants(self) -> frozenset[str]:
        return frozenset()

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        return (outputs.logprobs * torch.where(batch.mask, math.nan, 0.0)).sum(), {}


@pytest.mark.parametrize("dialect", CARRIED.values(), ids=CARRIED.keys())
def test_a_gradient_that_is_not_finite_is_not_sent_and_counted(dialect: Dialect) -> None:
    remote = FakeRemote(table(), dialect.reduction)
    sender = Carrier(remote, dialect, ADAMW)
    rows = draw_rows()
    before = logits(table(), rows)
    sender.backward(rows, LOSSES["clip"])
    sender.backward(rows, Poisoned())
    assert sender.step(0.1) == {"grad_norm": 0.0, "skipped_updates": 1.0}
    assert remote.calls == ["forward", "forward"]
    np.testing.assert_array_equal(logits(remote.model, rows), before)  # type: ignore[arg-type]
    sender.backward(rows, LOSSES["clip"])
    assert sender.step(0.1)["skipped_updates"] == 0.0


def test_a_native_call_beside_a_gradient_that_is_not_finite_moves_nothing() -> None:
    """As at home, where the whole update is skipped; the next one is of its own gradient alone."""
    local, remote = table(), FakeRemote(table())
    sender = Carrier(remote, SERVERS["tinker"].dialect, ADAMW)
    rows = draw_rows()
    before = logits(table(), rows)
    for loss in (LOSSES["clip"], Poisoned()):
        sender.backward(rows, loss)
    assert sender.step(0.1)["skipped_updates"] == 1.0
    np.testing.assert_array_equal(logits(remote.model, rows), before)  # type: ignore[arg-type]
    for model in (local, sender):
        model.backward(rows, LOSSES["plain"])
        model.step(0.1)
    np.testing.assert_allclose(logits(remote.model, rows), logits(local, rows), atol=1e-9)  # type: ignore[arg-type]
    assert remote.calls == ["ppo", "forward", "optim_step", "cross_entropy", "optim_step"]


def test_where_nothing_pulls_nothing_is_sent() -> None:
    """Not even a step: momentum would move the weights."""
    remote = FakeRemote(table(ADAMW))
    sender = Carrier(remote, CARRIED["sum"], ADAMW)
    sender.backward([replace(row, advantage=0.0 * row.advantage) for row in draw_rows()], LOSSES["clip"])
    assert sender.backward([], LOSSES["clip"]) == {}
    assert sender.step(0.1) == {"grad_norm": 0.0, "skipped_updates": 0.0}
    assert remote.calls == ["forward"]


def test_what_a_server_would_read_otherwise_is_carried() -> None:
    """A negative weight turns a clip around; NaN old log-probs at a target of weight 0 would reach the wire."""
    remote = FakeRemote(table())
    odd = [replace(row, weight=-row.weight) for row in draw_rows()]
    local = table()
    before = logits(local, odd)
    local.backward(odd, LOSSES["clip"])
    local.step(1.0)
    carried(LOSSES["clip"], odd, SERVERS["tinker"].dialect, remote)
    np.testing.assert_allclose(logits(remote.model, odd) - before, logits(local, odd) - before, atol=1e-9)  # type: ignore[arg-type]
    assert remote.calls[0] == "forward"
    holed = [replace(row, old_logprobs=np.where(row.weight == 0, math.nan, row.old_logprobs)) for row in draw_rows()]
    assert any(np.isnan(row.old_logprobs).any() for row in holed)
    remote = FakeRemote(table())
    carried(LOSSES["clip"], holed, SERVERS["tinker"].dialect, remote)
    assert remote.calls == ["ppo", "optim_step"]


def test_forward_gives_log_probs_at_the_targets() -> None:
    rows, local = draw_rows(), table()
    found = Carrier(FakeRemote(table()), CARRIED["sum"], ADAMW).forward(rows)
    for here, there in zip(local.forward(rows), found, strict=True):
        np.testing.assert_array_equal(there["logprobs"], here["logprobs"])


@pytest.mark.parametrize("loss", [LOSSES["with entropy"], PolicyLoss(entropy_coef=0.0), ValueLoss()])
def test_what_cannot_be_carried_is_refused_before_anything_is_sent(loss: Loss) -> None:
    remote = FakeRemote(table())
    (wanted,) = loss.wants
    with pytest.raises(CapabilityError, match=f"{wanted.capitalize()} cannot be had from a remote engine"):
        Carrier(remote, SERVERS["tinker"].dialect, ADAMW).backward(draw_rows(), loss)
    with pytest.raises(CapabilityError, match=f"{wanted.capitalize()} cannot be had from a remote engine"):
        Carrier(remote, SERVERS["tinker"].dialect, ADAMW).forward(draw_rows(), loss.wants)
    assert remote.calls == []


def test_what_a_server_has_not_is_said() -> None:
    with pytest.raises(CapabilityError, match="No server of kind 'skyrl_jax' is known; did you mean 'skyrl-jax'"):
        server_kind("skyrl_jax")
    with pytest.raises(CapabilityError, match="The optimiser is 'muon'; a server of the Tinker API has adamw alone"):
        Carrier(FakeRemote(table()), SERVERS["tinker"].dialect, OptimizerSpec(kind="muon"))


class Short(FakeRemote):
    """Loses a log-prob on the way."""

    def forward(self, data: Sequence[Datum]) -> list[Floats]:
        return [values[1:] for values in super().forward(data)]


def test_a_list_of_another_length_is_said() -> None:
    with pytest.raises(ConfigError, match=r"The server returned \d+ log-probs for a sequence of"):
        Carrier(Short(table()), CARRIED["sum"], ADAMW).backward(draw_rows(), LOSSES["clip"])
