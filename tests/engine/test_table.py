"""The table of free logits: its numbers by hand, its gradients by finite differences, and a table that is as good as infinite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from speakers import ids, shop_texts, write_qwen2
from torch import Tensor

from stepwell.engine.batch import pad
from stepwell.engine.load import load_pretrained
from stepwell.engine.local import Budget, LocalEngine, Text
from stepwell.engine.table import TableEngine, TableModel
from stepwell.engine.tiny import TinySpec, tiny_model
from stepwell.errors import CapabilityError, ConfigError, RunError, StaleWeightsError
from stepwell.losses import CloningLoss, PolicyLoss
from stepwell.protocols import Engine, Loss, ModelSpec, OptimizerSpec
from stepwell.testing import check_engine
from stepwell.types import Batch, Floats, Outputs, Row, Sampling, Stop, Tallies

SGD = OptimizerSpec(kind="sgd", max_grad_norm=1e9)
ENTROPY = frozenset({"entropy"})
VALUES = frozenset({"values"})


def table(vocabulary: int = 3, *, spread: float = 0.0, eos: int = 99, seed: int = 0) -> TableEngine:
    return TableEngine(vocabulary, Text(lambda tokens: "".join("abcdefgh"[i] for i in tokens), frozenset({eos})), spread=spread, seed=seed)


def policy(engine: TableEngine, *, temperature: float = 1.0, optimizer: OptimizerSpec = SGD) -> TableModel:
    return engine.model("policy", ModelSpec(temperature=temperature, optimizer=optimizer))


def paid(tokens: Sequence[int], targets: Sequence[int], *advantages: float) -> Row:
    return replace(Row.of(ids(*tokens), ids(*targets)), advantage=np.array(advantages))


# -- the contract -------------------------------------------------------------------------------------------------------------


def tiny() -> Engine:
    module = tiny_model(64, TinySpec(width=32, feedforward=48, layers=1), seed=0)
    return LocalEngine(module, Text(str, frozenset({2})), Budget(rows=2))


def local(folder: Path) -> Engine:
    module, tokenizer = load_pretrained(str(write_qwen2(folder, shop_texts())), torch.float32, torch.device("cpu"))
    return LocalEngine(module, Text(tokenizer.decode, frozenset({tokenizer.eos_token_id})))


@pytest.mark.parametrize("name", ["table", "table that is not uniform", "tiny", "local"])
def test_every_engine_keeps_the_contract(name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    if name == "tiny":
        check_engine(tiny())
    elif name == "local":
        check_engine(local(tmp_path))
    else:
        check_engine(TableEngine(8, Text(str, frozenset({2})), spread=0.0 if name == "table" else 1.0))


# -- a window ----------------------------------------------------------------------------------------------------------------


def test_with_a_window_contexts_of_equal_ends_are_one() -> None:
    engine = TableEngine(3, Text(str, frozenset({99})), window=2)
    model = policy(engine)
    model.backward([paid([7, 5, 6, 1], [3], 1.0)], PolicyLoss())
    model.step(1.0)
    elsewhere, other = model.forward([Row.of(ids(8, 8, 5, 6, 1), ids(4)), Row.of(ids(7, 6, 1), ids(2))])
    learnt = math.log(math.exp(2 / 3) / (math.exp(2 / 3) + 2 * math.exp(-1 / 3)))  # one step of 1 - pi for the token, -pi for the others
    assert elsewhere["logprobs"][0] == pytest.approx(learnt)
    assert other["logprobs"][0] == pytest.approx(math.log(1 / 3))


def test_a_window_samples_by_what_it_has_learnt() -> None:
    engine = TableEngine(3, Text(str, frozenset({99})), window=2)
    model = policy(engine)
    model.backward([paid([5, 6, 1], [2], 1.0)], PolicyLoss())
    model.step(30.0)
    said = model.snapshot().sample([ids(9, 9, 9, 5, 6)], [Sampling(max_tokens=1)], [0])
    assert said[0].token_ids.tolist() == [1] and said[0].logprobs[0] == pytest.approx(0.0, abs=1e-6)


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"window is 0 tokens; it needs at least 1"):
        TableEngine(3, Text(str, frozenset({99})), window=0)


# -- numbers by hand ----------------------------------------------------------------------------------------------------------


def test_a_fresh_table_says_all_tokens_alike() -> None:
    [made] = policy(table(4)).forward([Row.of(ids(50, 1, 2), ids(1, 2))], ENTROPY)
    assert made["logprobs"] == pytest.approx([-math.log(4)] * 2)
    assert made["entropy"] == pytest.approx([math.log(4)] * 2)


def test_one_step_of_gradient_descent_is_the_formula() -> None:
    """d log pi(a) / d logit(b) = [a = b] - pi(b): with advantage 2 at weight 1 the logits of a context move by lr 2 ([a = b] - 1/3)."""
    model = policy(table())
    model.backward([paid([50, 1], [1], 2.0)], PolicyLoss())
    assert np.allclose(model.gradient()[50,], [2 / 3, -4 / 3, 2 / 3], atol=1e-15)
    metrics = model.step(0.3)
    assert metrics["grad_norm"] == pytest.approx(math.sqrt(24) / 3)
    moved = 0.3 * np.array([-2 / 3, 4 / 3, -2 / 3])
    said = [made["logprobs"][0] for made in model.forward([Row.of(ids(50, a), ids(1)) for a in range(3)])]
    assert np.allclose(said, moved - np.log(np.exp(moved).sum()), atol=1e-15)
    assert model.forward([Row.of(ids(51, 1), ids(1))])[0]["logprobs"][0] == pytest.approx(-math.log(3)), "another context moved"
    assert model.gradient() == {} and model.version == 1


def test_the_key_is_all_that_stands_before() -> None:
    """The same last token after another beginning, or the same ids shifted, is another context."""
    model = policy(table())
    model.backward([paid([7, 8, 0], [2], 1.0)], PolicyLoss())
    model.step(1.0)
    rows = [Row.of(ids(*before, 0), ids(len(before))) for before in ([7, 8], [8], [9, 8], [7, 7, 8])]
    said = [made["logprobs"][0] for made in model.forward(rows)]
    assert said[0] > -0.7
    assert said[1:] == pytest.approx([-math.log(3)] * 3)


@given(st.integers(0, 10_000), st.sampled_from([0.5, 1.0, 2.0]))
@settings(max_examples=15)
def test_gradients_are_those_of_finite_differences(seed: int, temperature: float) -> None:
    """Of a loss that couples rows and reads entropy too, for every logit."""
    rng = np.random.default_rng(seed)
    rows = [paid(rng.integers(0, 3, 4).tolist(), [1, 2, 3], *rng.normal(size=3)) for _ in range(3)]
    model = policy(table(spread=1.0, seed=seed), temperature=temperature)
    loss = _Coupled()
    model.backward(rows, loss)
    gradient = model.gradient()
    for context, exact in gradient.items():
        for token in range(3):
            numeric = [_loss_at(model, rows, loss, (context, token), shift) for shift in (1e-5, -1e-5)]
            assert (numeric[0] - numeric[1]) / 2e-5 == pytest.approx(exact[token], abs=1e-7)


class _Coupled:
    spans_rows = True
    wants = ENTROPY

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        assert outputs.entropy is not None
        total = (outputs.logprobs * batch.advantage).masked_fill(~batch.mask, 0.0).sum()
        return total * total + outputs.entropy.masked_fill(~batch.mask, 0.0).sum() ** 3, {}


def _loss_at(model: TableModel, rows: Sequence[Row], loss: Loss, where: tuple[tuple[int, ...], int], shift: float) -> float:
    """The loss with one logit moved."""
    weights = model.weights()
    with torch.no_grad():
        weights.table[weights.places[np.array(where[0]).tobytes()], where[1]] += shift
    made = model.forward(rows, ENTROPY, weights)
    outputs = Outputs(*(torch.tensor(np.stack([row[name] for row in made])) for name in ("logprobs", "entropy")))
    _, _, batch = pad(rows, torch.device("cpu"), torch.float64)
    return float(loss(outputs, batch)[0])


# -- a table without end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", [SGD, OptimizerSpec(eps=1e-3)], ids=["sgd", "adamw"])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_a_context_met_late_was_always_there(optimizer: OptimizerSpec, spread: float) -> None:
    """Training in which a context appears at the third step equals training in which it was listed, with zero gradient, from the first."""
    early, late = ([paid([50, 1], [1], 1.0)], [paid([50, 1], [1], -0.5), paid([51, 2, 0], [1, 2], 1.0, 2.0)])
    known = [*early, paid([51, 2, 0], [1, 2], 0.0, 0.0)]
    grown, listed = (policy(table(spread=spread), optimizer=optimizer) for _ in range(2))
    for model, first in ((grown, early), (listed, known)):
        for rows in (first, first, late, late):
            model.backward(rows, PolicyLoss())
            model.step(0.1)
    for one, two in zip(grown.forward(late), listed.forward(late), strict=True):
        assert np.array_equal(one["logprobs"], two["logprobs"])
    assert not np.allclose(grown.forward(late)[0]["logprobs"], policy(table(spread=spread)).forward(late)[0]["logprobs"])


def test_gradients_of_several_calls_add_up_while_the_table_grows() -> None:
    rows = [paid([50, 1], [1], 1.0), paid([51, 2, 0], [1, 2], 1.0, 2.0), paid([50, 2], [1], 3.0)]
    whole, pieces = policy(table(spread=1.0)), policy(table(spread=1.0))
    whole.backward(rows, PolicyLoss())
    for row in rows:
        pieces.backward([row], PolicyLoss())
    assert whole.gradient().keys() == pieces.gradient().keys() == {(50,), (51,), (51, 2)}
    assert all(np.allclose(pieces.gradient()[c], g, atol=1e-15) for c, g in whole.gradient().items())


def test_initial_logits_are_drawn_by_seed_and_context() -> None:
    rows = [Row.of(ids(50, 1), ids(1)), Row.of(ids(51, 1), ids(1))]

    def said(seed: int) -> list[float]:
        return [float(made["logprobs"][0]) for made in policy(table(spread=1.0, seed=seed)).forward(rows)]

    assert said(0) == said(0)
    assert len({*said(0), *said(1)}) == 4


# -- sampling -----------------------------------------------------------------------------------------------------------------


def test_samples_have_the_frequencies_of_the_table() -> None:
    model = policy(table())
    model.backward([paid([50, 1], [1], 1.0)], PolicyLoss())
    model.step(1.5)
    said = [float(made["logprobs"][0]) for made in model.forward([Row.of(ids(50, a), ids(1)) for a in range(3)])]
    n = 1500
    drawn = model.snapshot().sample([ids(50)] * n, [Sampling(max_tokens=1)] * n, range(n))
    counts = np.bincount([int(made.token_ids[0]) for made in drawn], minlength=3)
    assert np.allclose(counts / n, np.exp(said), atol=4 * 0.5 / math.sqrt(n))
    assert np.exp(said).sum() == pytest.approx(1.0) and said[1] > said[0]


def test_a_turn_ends_by_its_token_its_string_or_its_limit() -> None:
    engine = table(3, eos=0)
    model = policy(engine)
    made = model.snapshot().sample([ids(50)] * 60, [Sampling(max_tokens=3, stop=("bc",))] * 60, range(60))
    for completion in made:
        tokens = completion.token_ids.tolist()
        if completion.stop is Stop.EOS:
            assert tokens[-1] == 0 and 0 not in tokens[:-1] and len(completion.text) == len(tokens) - 1
        elif completion.stop is Stop.STRING:
            assert completion.text.endswith("bc") and tokens[-2:] == [1, 2]
        else:
            assert len(tokens) == 3 and "bc" not in completion.text and 0 not in tokens
    assert {completion.stop for completion in made} == set(Stop)


# -- other models, and what is on disk ----------------------------------------------------------------------------------------


def test_a_head_learns_values_and_says_nothing_else() -> None:
    engine = table()
    policy(engine)
    critic = engine.model("critic", ModelSpec(kind="head", of="policy", optimizer=SGD))
    row = replace(Row.of(ids(50, 1, 2), ids(1, 2)), returns=np.array([1.0, -2.0]))
    assert critic.forward([row], VALUES)[0]["values"].tolist() == [0.0, 0.0]
    critic.backward([row], _Squared())
    critic.step(0.25)
    assert critic.forward([row], VALUES)[0]["values"] == pytest.approx([0.5, -1.0])
    for act in (lambda: critic.forward([row]), critic.snapshot, critic.keep):
        with pytest.raises(CapabilityError):
            act()


class _Squared:
    spans_rows = False
    wants = VALUES

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        assert outputs.values is not None
        return ((outputs.values - batch.returns) ** 2).masked_fill(~batch.mask, 0.0).sum(), {}


def test_a_model_may_start_from_another() -> None:
    engine = table(spread=1.0)
    first = policy(engine)
    row = paid([50, 1], [1], 1.0)
    first.backward([row], PolicyLoss())
    first.step(1.0)
    second = engine.model("judge", ModelSpec(of="policy", optimizer=SGD))
    assert np.array_equal(second.forward([row])[0]["logprobs"], first.forward([row])[0]["logprobs"])
    first.backward([row], PolicyLoss())
    first.step(1.0)
    assert second.forward([row])[0]["logprobs"][0] < first.forward([row])[0]["logprobs"][0]


def test_what_is_saved_comes_back_bit_for_bit(tmp_path: Path) -> None:
    rows = [paid([50, 1], [1], 1.0), paid([51, 2, 0], [1, 2], 1.0, 2.0)]
    more = [*rows, paid([52, 1], [1], 1.0)]
    trained, fresh = (policy(table(spread=1.0), optimizer=OptimizerSpec(eps=1e-3)) for _ in range(2))
    for _ in range(3):
        trained.backward(rows, PolicyLoss())
        trained.step(0.1)
    kept = trained.keep()
    trained.save(tmp_path / "model")
    kept.save(tmp_path / "kept")
    fresh.load(tmp_path / "model")
    assert fresh.version == 3
    for model in (trained, fresh):
        model.backward(more, PolicyLoss())
        model.step(0.1)
    assert _said(fresh.forward(more)) == _said(trained.forward(more))
    other = fresh.keep()
    other.load(tmp_path / "kept")
    assert [a.tolist() for a in other.logprobs(more)] == [a.tolist() for a in kept.logprobs(more)] != _said(trained.forward(more))


def test_a_row_without_targets_says_nothing() -> None:
    model = policy(table())
    rows = [Row.of(ids(50, 1), ids()), Row.of(ids(50, 1), ids(1))]
    assert [len(made["logprobs"]) for made in model.forward(rows)] == [0, 1]
    model.backward(rows[:1], PolicyLoss())
    assert model.gradient() == {}


def test_an_empty_table_is_saved_too(tmp_path: Path) -> None:
    policy(table(spread=1.0)).save(tmp_path / "model")
    model = policy(table(spread=1.0))
    model.load(tmp_path / "model")
    assert model.forward([Row.of(ids(50, 1), ids(1))])[0]["logprobs"][0] < 0
    assert model.forward([]) == [] and model.backward([], PolicyLoss()) == {}


def _said(made: list[dict[str, Floats]]) -> list[list[float]]:
    return [row["logprobs"].tolist() for row in made]


# -- refusals -----------------------------------------------------------------------------------------------------------------


def test_what_a_table_cannot_do_is_refused_by_a_sentence(tmp_path: Path) -> None:
    engine = table()
    model = policy(engine)
    for spec, words in {
        ModelSpec(kind="lora"): "no base",
        ModelSpec(kind="head"): "whose contexts",
        ModelSpec(of="nobody"): "does not exist; known: policy",
        ModelSpec(temperature=0.0): "positive",
        ModelSpec(optimizer=OptimizerSpec(kind="muon")): "Muon",
        ModelSpec(optimizer=OptimizerSpec(weight_decay=0.1)): "weight_decay is 0.1",
    }.items():
        with pytest.raises(ConfigError, match=words):
            engine.model("other", spec)
    with pytest.raises(ConfigError, match="already has a model"):
        policy(engine)
    with pytest.raises(CapabilityError, match="Muon"):
        model.restart_optimizer(OptimizerSpec(kind="muon"))
    with pytest.raises(CapabilityError, match="kind head"):
        model.forward([Row.of(ids(50, 1), ids(1))], VALUES)
    with pytest.raises(ValueError, match="Token 7 is a target, but the table can say 0 to 2"):
        model.backward([Row.of(ids(50, 7), ids(1))], CloningLoss())
    with pytest.raises(ConfigError, match="at least 2"):
        table(1)
    with pytest.raises(ConfigError, match="spread"):
        table(spread=math.nan)
    with pytest.raises(ConfigError, match="one temperature for both"):
        model.snapshot().sample([ids(50)], [Sampling(temperature=0.5)], [0])
    with pytest.raises(CapabilityError, match="keep"):
        model.snapshot().save(tmp_path)
    model.save(tmp_path / "model")
    with pytest.raises(RunError, match="a table of 3 columns; this model's has 4"):
        policy(table(4)).load(tmp_path / "model")
    with pytest.raises(RunError, match="optimiser 'sgd'"):
        policy(table(), optimizer=OptimizerSpec()).load(tmp_path / "model")


def test_loading_makes_snapshots_stale(tmp_path: Path) -> None:
    model = policy(table())
    model.save(tmp_path / "model")
    snapshot = model.snapshot()
    model.load(tmp_path / "model")
    with pytest.raises(StaleWeightsError):
        snapshot.sample([ids(50)], [Sampling()], [0])
