"""The local engine: its contract in every form, gradients that do not depend on micro-batches, models that do not disturb each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from speakers import SMALL, engine, ids, loud, random_rows, shop, shop_speaker
from torch import Tensor

from stepwell.engine.batch import policy_rows
from stepwell.engine.local import Budget, LocalEngine, LocalModel, Text
from stepwell.engine.tiny import tiny_model
from stepwell.errors import CapabilityError, ConfigError, RunError, StaleWeightsError
from stepwell.losses import Clip, PolicyLoss, PreferenceLoss, token_weights
from stepwell.protocols import ModelSpec, OptimizerSpec
from stepwell.rewards.outcome import OutcomeReward
from stepwell.rollout import rollout
from stepwell.testing import check_engine
from stepwell.testing.engine import Probe
from stepwell.types import Batch, Credited, Group, Mean, Outputs, Row, Sampling, Tallies

ROWS = random_rows(7)
NOTHING: frozenset[str] = frozenset()
ONE_BY_ONE, TWO, FOUR, ALL = Budget(rows=1), Budget(rows=2), Budget(rows=4), Budget(tokens=10**6, rows=10**3)
PLAIN_DESCENT = OptimizerSpec(eps=1.0, max_grad_norm=1e9)


@dataclass(frozen=True)
class Weighted:
    """Sum of w A x (log-probs, entropy or values); squared as a whole where it spans rows."""

    squared: bool = False
    of: tuple[str, ...] = ("logprobs",)

    @property
    def spans_rows(self) -> bool:
        return self.squared

    @property
    def wants(self) -> frozenset[str]:
        return frozenset(self.of) - {"logprobs"}

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        named = {"logprobs": outputs.logprobs, "entropy": outputs.entropy, "values": outputs.values}
        total = torch.zeros(())
        for name in self.of:
            output = named[name]
            assert output is not None
            total = total + torch.where(batch.mask, batch.weight * batch.advantage * output, 0.0).sum()
        return total * total if self.squared else total, {"test/weight": Mean(batch.weight.sum().item(), batch.mask.sum().item())}


def gradient(model: LocalModel) -> dict[str, Tensor]:
    masters = model.optimizer.masters
    found = {name: master.grad.clone() for name, master in masters.items() if master.grad is not None}
    assert found
    model.optimizer.drop_gradient()
    return found


def assert_same_gradient(one: dict[str, Tensor], two: dict[str, Tensor], tolerance: float = 1e-6) -> None:
    assert one.keys() == two.keys()
    scale = max(float(grad.abs().max()) for grad in one.values())
    assert scale > 0
    for name, grad in one.items():
        assert float((grad - two[name]).abs().max()) <= tolerance * scale, name


def logprobs(model: LocalModel, rows: Sequence[Row] = ROWS) -> np.ndarray:
    return np.concatenate([made["logprobs"] for made in model.forward(rows)])


# -- the contract -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("budget", [Budget(), Budget(tokens=16, rows=2)], ids=["one micro-batch", "many"])
def test_contract(kind: str, budget: Budget) -> None:
    if kind == "lora":
        pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
        check_engine(engine(budget=budget), Probe(kind="lora", lr=0.1))
    else:
        check_engine(engine(budget=budget))


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_contract_in_bfloat16(kind: str) -> None:
    """The same within what bfloat16 can tell apart."""
    if kind == "lora":
        pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
        check_engine(engine(dtype=torch.bfloat16), Probe(kind="lora", tolerance=0.2, lr=4.0))
    else:
        check_engine(engine(dtype=torch.bfloat16), Probe(tolerance=0.2, lr=0.5))


def test_mismatch_of_sampler_and_trainer_in_bfloat16() -> None:
    model = engine(dtype=torch.bfloat16).model("policy", ModelSpec())
    rng = np.random.default_rng(0)
    contexts = [rng.integers(3, 64, n) for n in rng.integers(4, 40, 24)]
    made = model.snapshot().sample(contexts, [Sampling(max_tokens=12)] * 24, range(24))
    rows = [
        Row.of(np.concatenate([c, m.token_ids]), np.arange(len(c), len(c) + len(m.token_ids))) for c, m in zip(contexts, made, strict=True)
    ]
    apart = np.concatenate([m.logprobs for m in made]) - logprobs(model, rows)
    rms = float(np.sqrt(np.mean(apart**2)))
    print(f"bfloat16: sampler and trainer are {rms:.3g} nats apart (rms), at most {np.abs(apart).max():.3g}")
    assert 0 < rms < 0.1


# -- policies -----------------------------------------------------------------------------------------------------------------


def sampled(model: LocalModel, temperature: float, **how: str) -> None:
    model.snapshot().sample([ids(5, 6)], [Sampling(temperature=temperature, max_tokens=1, **how)], [0])  # type: ignore[arg-type]


def test_another_temperature_than_the_trainers_is_refused() -> None:
    """U48."""
    model = engine().model("policy", ModelSpec(temperature=0.7))
    for temperature in (0.7, 0.0):
        sampled(model, temperature)
    with pytest.raises(ConfigError, match=r"sampling temperature is 1.0, but the model's log-probs are those at 0.7"):
        sampled(model, 1.0)
    sampled(model, 1.0, purpose="evaluation")


@pytest.mark.parametrize("moved", ["step", "load", "copy_from"])
def test_a_policy_whose_model_moved_on_is_stale(moved: str, tmp_path: Path) -> None:
    """U52. Also where the version is the same again."""
    made = engine()
    model, other = made.model("policy", ModelSpec()), made.model("other", ModelSpec())
    other.save(tmp_path)
    policy, kept = model.snapshot(), model.keep()
    if moved == "step":
        model.step(0.1)
    elif moved == "load":
        model.load(tmp_path)
        assert model.version == policy.version
    else:
        model.copy_from(other)
    for use in (lambda: policy.logprobs(ROWS), lambda: policy.sample([ids(5)], [Sampling(max_tokens=1)], [0])):
        with pytest.raises(StaleWeightsError, match="take a new snapshot"):
            use()
    kept.logprobs(ROWS)


def test_kept_weights_survive_saving_and_forget_the_cache(tmp_path: Path) -> None:
    made = engine()
    model = made.model("policy", ModelSpec(optimizer=PLAIN_DESCENT))
    first = model.keep()
    first.save(tmp_path)
    model.backward(ROWS, Weighted())
    model.step(0.5)
    second = model.keep()
    context, how = [np.arange(3, 30)], [Sampling(max_tokens=4)]
    want = first.sample(context, how, [0])[0]
    second.sample(context, how, [0])
    second.load(tmp_path)
    got = second.sample(context, how, [0])[0]
    assert got.token_ids.tolist() == want.token_ids.tolist()
    np.testing.assert_array_equal(got.logprobs, want.logprobs)
    with pytest.raises(CapabilityError, match="keeps its weights can be saved"):
        model.snapshot().save(tmp_path)
    with pytest.raises(CapabilityError, match="keeps its weights can be loaded"):
        model.snapshot().load(tmp_path)
    other = LocalEngine(tiny_model(64, replace(SMALL, width=16), 0), Text(str, frozenset({2}))).model("policy", ModelSpec())
    with pytest.raises(RunError, match="weights of another model"):
        other.keep().load(tmp_path)


def test_an_error_while_kept_weights_are_used_gives_the_model_its_own_back() -> None:
    model = engine().model("policy", ModelSpec(optimizer=PLAIN_DESCENT))
    kept = model.keep()
    model.backward(ROWS, Weighted())
    model.step(0.5)
    before = logprobs(model)
    with pytest.raises(ValueError, match="empty context"):
        kept.sample([ids()], [Sampling(max_tokens=1)], [0])
    np.testing.assert_array_equal(logprobs(model), before)


def test_the_base_as_it_is() -> None:
    made = engine()
    policy = made.as_it_is()
    want = np.concatenate(policy.logprobs(ROWS))
    model = made.model("policy", ModelSpec())
    np.testing.assert_array_equal(logprobs(model), want)
    with pytest.raises(ConfigError, match="trained by policy"):
        made.as_it_is()


# -- references and copies ----------------------------------------------------------------------------------------------------


def trained(made: LocalEngine, kind: str, name: str = "policy") -> LocalModel:
    model = made.model(name, ModelSpec(kind=kind, rank=4, alpha=8.0, optimizer=PLAIN_DESCENT))  # type: ignore[arg-type]
    for _ in range(2):
        model.backward(ROWS, Weighted())
        model.step(0.3)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["full", "lora"])
def test_kl_to_the_reference_is_zero_at_the_start(kind: str, dtype: torch.dtype) -> None:
    """U50: a fresh model, a trained one, and one that starts from another."""
    if kind == "lora":
        pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    made = engine(dtype=dtype)
    fresh = made.model("fresh", ModelSpec(kind=kind, rank=4, alpha=8.0))  # type: ignore[arg-type]
    policy = trained(made, kind)
    started = made.model("started", ModelSpec(kind=kind, of="policy", rank=4, alpha=8.0))  # type: ignore[arg-type]
    assert np.abs(logprobs(policy) - logprobs(fresh)).max() > 0.01
    for model in (fresh, policy, started):
        np.testing.assert_array_equal(np.concatenate(model.keep().logprobs(ROWS)), logprobs(model))
    np.testing.assert_array_equal(logprobs(started), logprobs(policy))


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_copy_and_its_source_go_their_own_ways(kind: str) -> None:
    if kind == "lora":
        pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    made = engine()
    policy = trained(made, kind)
    judge = made.model("judge", ModelSpec(kind=kind, of="policy", rank=4, alpha=8.0, optimizer=PLAIN_DESCENT))  # type: ignore[arg-type]
    before = logprobs(policy)
    judge.backward(ROWS, Weighted())
    judge.step(0.3)
    np.testing.assert_array_equal(logprobs(policy), before)
    assert np.abs(logprobs(judge) - before).max() > 0.01


def test_a_copy_takes_the_masters_not_their_rounding() -> None:
    made = engine(dtype=torch.bfloat16)
    policy = trained(made, "full")
    judge = made.model("judge", ModelSpec(of="policy"))
    for name, master in policy.optimizer.masters.items():
        torch.testing.assert_close(judge.optimizer.masters[name], master, atol=0, rtol=0)
    assert any(not torch.equal(master, master.bfloat16().float()) for master in policy.optimizer.masters.values())


def test_shapes_must_agree() -> None:
    pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    made = engine()
    made.model("policy", ModelSpec(kind="lora", rank=4))
    with pytest.raises(ConfigError, match="same kind and rank"):
        made.model("judge", ModelSpec(kind="lora", rank=8, of="policy"))


# -- gradients ----------------------------------------------------------------------------------------------------------------


LOSSES: dict[str, object] = {
    "plain": Weighted(),
    "plain with entropy": Weighted(of=("logprobs", "entropy")),
    "spanning": Weighted(squared=True),
    "spanning with entropy": Weighted(squared=True, of=("logprobs", "entropy")),
    "policy": PolicyLoss(kl_coef=0.1, entropy_coef=0.01),
    "policy by episode": PolicyLoss(Clip(1.0, 1e9), level="episode", old="given"),
    "preference": PreferenceLoss(0.5),
}


def budgeted(
    budget: Budget, loss: object, rows: Sequence[Row], dtype: torch.dtype = torch.float32
) -> tuple[dict[str, Tensor], dict[str, float]]:
    model = engine(budget=budget, dtype=dtype).model("policy", ModelSpec())
    near = [replace(row, old_logprobs=made["logprobs"] - 0.1) for row, made in zip(rows, model.forward(rows), strict=True)]
    metrics = model.backward(near, loss)  # type: ignore[arg-type]
    return gradient(model), metrics


@pytest.mark.parametrize("name", LOSSES)
def test_micro_batches_change_nothing(name: str) -> None:
    """U45. A loss that spans rows has the gradient of one big batch, too."""
    whole, metrics = budgeted(ALL, LOSSES[name], ROWS)
    for budget in (ONE_BY_ONE, TWO, FOUR, Budget(tokens=30)):
        grads, same = budgeted(budget, LOSSES[name], ROWS[::-1])
        assert_same_gradient(whole, grads, 2e-6)
        assert same == pytest.approx(metrics, rel=1e-5)


@pytest.mark.parametrize("name", ["policy", "policy by episode", "preference"])
def test_micro_batches_change_nothing_in_rows_of_real_episodes(name: str) -> None:
    """U45, through rollout, credit and row builder."""
    found: list[dict[str, Tensor]] = []
    for budget in (ALL, ONE_BY_ONE, TWO, FOUR):
        speaker = shop_speaker(budget=budget)
        model = speaker.engine.model("policy", ModelSpec())
        domain = shop()
        groups = rollout(domain, [domain.draw(seed) for seed in range(2)], model.snapshot(), speaker.player, group_size=3, seed=(0,))
        credited = [
            Group(g.task, tuple(Credited(m, np.linspace(-1, 1, len(m.steps)) + m.episode.member) for m in g.members))
            for g in OutcomeReward().score(groups)
        ]
        rows = policy_rows(credited, lambda n: token_weights(n, "episode"), lambda scored: scored.episode.logprobs_T - 0.1)
        rows = [replace(row, label=float(row.episode % 2), ref_logprobs=row.old_logprobs) for row in rows]
        model.backward(rows, LOSSES[name])  # type: ignore[arg-type]
        found.append(gradient(model))
    for grads in found[1:]:
        assert_same_gradient(found[0], grads, 2e-6)


def test_two_calls_add_up() -> None:
    model = engine().model("policy", ModelSpec())
    model.backward(ROWS, Weighted())
    whole = gradient(model)
    model.backward(ROWS[:3], Weighted())
    model.backward(ROWS[3:], Weighted())
    assert_same_gradient(whole, gradient(model))
    assert model.backward([], Weighted()) == {}


@pytest.mark.parametrize("splits", [True, False])
def test_observation_tokens_get_no_gradient(splits: bool) -> None:
    """U39, U40: not one bit at the logits that predict them, and some at those of each action."""
    model = engine().model("policy", ModelSpec())
    model.trunk.splits = splits
    row = replace(Row.of(np.array([5, 6, 7, 8, 9, 10, 11]), np.array([2, 3, 6])), advantage=np.ones(3))
    seen: list[Tensor] = []
    handle = model.trunk.module.get_output_embeddings().register_forward_hook(lambda _, __, out: (out.retain_grad(), seen.append(out))[1])
    model.backward([row], Weighted())
    handle.remove()
    pulls = seen[0].grad.abs().sum(dim=-1).flatten().tolist()
    assert [pull > 0.1 for pull in pulls] == ([True] * 3 if splits else [False, True, True, False, False, True, False])
    assert sum(pull == 0.0 for pull in pulls) == (0 if splits else 4)


def test_a_gradient_that_is_not_finite_is_not_applied() -> None:
    model = engine().model("policy", ModelSpec())
    before = logprobs(model)
    model.backward([replace(ROWS[0], advantage=np.full(len(ROWS[0].targets), np.inf))], Weighted())
    assert model.step(0.1)["skipped_updates"] == 1.0
    np.testing.assert_array_equal(logprobs(model), before)
    model.backward(ROWS, Weighted())
    assert model.step(0.1)["skipped_updates"] == 0.0


def test_large_gradients_are_clipped() -> None:
    model = engine().model("policy", ModelSpec(optimizer=OptimizerSpec(max_grad_norm=0.5)))
    model.backward(ROWS, Weighted())
    norm = float(torch.sqrt(sum((p.grad**2).sum() for p in model.params.values() if p.grad is not None)))  # type: ignore[arg-type]
    assert norm > 0.5
    caught: list[float] = []
    step = torch.optim.AdamW.step
    with pytest.MonkeyPatch.context() as patch:

        def watched(self: torch.optim.AdamW) -> None:
            caught.append(float(torch.sqrt(sum((p.grad**2).sum() for p in self.param_groups[0]["params"] if p.grad is not None))))
            step(self)

        patch.setattr(torch.optim.AdamW, "step", watched)
        assert model.step(0.1)["grad_norm"] == pytest.approx(norm, rel=1e-5)
    assert caught == [pytest.approx(0.5, rel=1e-5)]


# -- bfloat16 with masters ----------------------------------------------------------------------------------------------------


def test_small_updates_are_not_lost_in_bfloat16() -> None:
    model = engine(dtype=torch.bfloat16).model("policy", ModelSpec(optimizer=OptimizerSpec(eps=1e-12)))
    name, weight = next((n, p) for n, p in model.params.items() if n.endswith("q_proj.weight"))
    start, rounded = model.optimizer.masters[name].detach().clone(), weight.detach().clone()
    for _ in range(60):
        model.backward(ROWS[:1], Weighted())
        model.step(1e-5)
    moved = model.optimizer.masters[name].detach() - start
    assert 4e-4 < float(moved.abs().median()) < 8e-4, "60 steps of 1e-5, each of which bfloat16 would round away"
    assert not torch.equal(weight, rounded)
    torch.testing.assert_close(weight, model.optimizer.masters[name].bfloat16(), atol=0, rtol=0)


def test_gradients_of_micro_batches_add_up_in_float32() -> None:
    one, _ = budgeted(ALL, Weighted(), ROWS, torch.bfloat16)
    many, _ = budgeted(ONE_BY_ONE, Weighted(), ROWS, torch.bfloat16)
    assert all(grad.dtype == torch.float32 for grad in many.values())
    assert_same_gradient(one, many, 0.05)


def test_tied_embeddings_are_one_weight_with_one_master() -> None:
    model = engine(dtype=torch.bfloat16).model("policy", ModelSpec(optimizer=PLAIN_DESCENT))
    assert not any("lm_head" in name for name in model.params)
    module = model.trunk.module
    assert module.get_output_embeddings().weight is module.get_input_embeddings().weight
    before = module.get_output_embeddings().weight.clone()
    model.backward(ROWS, Weighted())
    model.step(0.5)
    assert module.get_output_embeddings().weight is module.get_input_embeddings().weight
    assert not torch.equal(module.get_output_embeddings().weight, before)


def test_a_restarted_optimiser_keeps_the_masters_and_no_gradient() -> None:
    model = trained(engine(dtype=torch.bfloat16), "full")
    masters = {name: master.clone() for name, master in model.optimizer.masters.items()}
    model.backward(ROWS, Weighted())
    model.restart_optimizer(OptimizerSpec(kind="muon"))
    for name, master in model.optimizer.masters.items():
        torch.testing.assert_close(master, masters[name], atol=0, rtol=0)
        assert master.grad is None
    assert model.step(0.1)["grad_norm"] == 0.0


# -- several models on one base -----------------------------------------------------------------------------------------------


def test_adapters_keep_their_gradients_apart() -> None:
    """Two adapters with a gradient each at the same time, and forward passes of both in between."""
    pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    made = engine()
    spec = ModelSpec(kind="lora", rank=4, alpha=8.0, optimizer=PLAIN_DESCENT)
    policy = made.model("policy", spec)
    policy.backward(ROWS, Weighted())
    alone = {name: grad for name, grad in gradient(policy).items() if ".lora_B." in name}
    judge = made.model("judge", replace(spec, of="policy"))
    policy.backward(ROWS[:3], Weighted())
    judge.backward(ROWS, Weighted(squared=True))
    judge.forward(ROWS)
    policy.backward(ROWS[3:], Weighted())
    kept = judge.keep()
    judge.step(0.5)
    policy.forward(ROWS)
    together = {name: grad for name, grad in gradient(policy).items() if ".lora_B." in name}
    assert_same_gradient(alone, together)
    assert np.abs(np.concatenate(kept.logprobs(ROWS)) - logprobs(judge)).max() > 1e-3
    assert all(parameter.grad is None for parameter in made._trunk.module.parameters())
    assert not any(p.requires_grad for n, p in made._trunk.module.named_parameters() if "lora_" not in n)


def test_an_adapter_made_later_does_not_switch_off_the_first() -> None:
    pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    made = engine()
    policy = trained(made, "lora")
    before = logprobs(policy)
    made.model("judge", ModelSpec(kind="lora", rank=4))
    np.testing.assert_array_equal(logprobs(policy), before)
    policy.backward(ROWS, Weighted())
    assert policy.step(0.1)["grad_norm"] > 0


def test_adapter_weights_come_from_the_seed_alone() -> None:
    pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    made = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        state = torch.get_rng_state()
        made.append(engine().model("policy", ModelSpec(kind="lora", rank=4)))
        assert torch.equal(torch.get_rng_state(), state), "the global random state is not touched"
    for one, two in zip(*(model.params.values() for model in made), strict=True):
        assert torch.equal(one, two)


REFUSED: dict[str, tuple[Callable[[LocalEngine], object], type[Exception], str]] = {
    "a name twice": (lambda e: (e.model("a", ModelSpec()), e.model("a", ModelSpec())), ConfigError, "already has a model named 'a'"),
    "an unknown source": (lambda e: e.model("a", ModelSpec(of="b")), ConfigError, "starts from 'b', which does not exist; known: none"),
    "temperature 0": (lambda e: e.model("a", ModelSpec(temperature=0.0)), ConfigError, "log-probs need a positive one"),
    "a head of nothing": (lambda e: e.model("a", ModelSpec(kind="head")), ConfigError, "say whose hidden states it reads"),
    "an adapter on trained weights": (
        lambda e: (e.model("policy", ModelSpec()), e.model("judge", ModelSpec(kind="lora"))),
        CapabilityError,
        "adapters need a frozen base",
    ),
    "an adapter of trained weights": (
        lambda e: (e.model("policy", ModelSpec()), e.model("judge", ModelSpec(kind="lora", of="policy"))),
        CapabilityError,
        "adapters need a frozen base",
    ),
    "full weights beside adapters": (
        lambda e: (e.model("policy", ModelSpec(kind="lora")), e.model("judge", ModelSpec())),
        CapabilityError,
        "full weights beside adapters",
    ),
    "a base that was trained meanwhile": (
        lambda e: (e.model("policy", ModelSpec()).step(0.1), e.model("judge", ModelSpec())),
        ConfigError,
        "which 'policy' has trained meanwhile",
    ),
    "a start from a head": (
        lambda e: (e.model("p", ModelSpec()), e.model("h", ModelSpec(kind="head", of="p")), e.model("j", ModelSpec(of="h"))),
        ConfigError,
        "starts from 'h', which is a head",
    ),
    "a rank of 0": (lambda e: e.model("a", ModelSpec(kind="lora", rank=0)), ConfigError, "needs at least 1"),
    "a dotted name": (lambda e: e.model("a.b", ModelSpec(kind="lora")), ConfigError, "must not hold a dot"),
    "values without a head": (lambda e: e.model("a", ModelSpec()).forward(ROWS, frozenset({"values"})), CapabilityError, "without a head"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_together_is_refused(name: str) -> None:
    pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    use, error, match = REFUSED[name]
    with pytest.raises(error, match=match):
        use(engine())


# -- heads --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_head_reads_the_hidden_states_of_its_model(kind: str) -> None:
    if kind == "lora":
        pytest.importorskip("peft", reason="adapters need peft: pip install 'stepwell[lora]'")
    made = engine(budget=TWO)
    policy = trained(made, kind)
    if kind == "lora":
        made.model("other", ModelSpec(kind="lora", rank=4))
    critic = made.model("critic", ModelSpec(kind="head", of="policy", optimizer=PLAIN_DESCENT))
    assert all((values["values"] == 0).all() and "logprobs" not in values for values in critic.forward(ROWS, frozenset({"values"})))
    rng = np.random.default_rng(3)
    with torch.no_grad():
        critic.head.weight.copy_(torch.from_numpy(rng.normal(size=(1, 32))))  # type: ignore[union-attr]
        policy.forward(ROWS[:1])
        hidden = [policy.trunk.hidden(torch.from_numpy(row.ids)[None])[0] for row in ROWS]
    for made_values, row, states in zip(critic.forward(ROWS, frozenset({"values"})), ROWS, hidden, strict=True):
        own = states[row.targets - 1] @ critic.head.weight[0]  # type: ignore[union-attr]
        np.testing.assert_allclose(made_values["values"], own.detach().numpy(), atol=1e-4)


@pytest.mark.parametrize("squared", [False, True])
def test_a_heads_gradient_is_its_own(squared: bool) -> None:
    grads = []
    for budget in (ALL, ONE_BY_ONE):
        made = engine(budget=budget)
        policy = made.model("policy", ModelSpec())
        critic = made.model("critic", ModelSpec(kind="head", of="policy"))
        critic.backward(ROWS, Weighted(squared=squared, of=("values",)))
        assert all(parameter.grad is None for parameter in policy.params.values()), "no gradient into the policy"
        if squared:
            assert float(critic.params["bias"].grad) == 0.0, "values are 0, and so is the gradient of their square"
            with torch.no_grad():
                critic.params["bias"].fill_(1.0)
            critic.optimizer.drop_gradient()
            critic.backward(ROWS, Weighted(squared=True, of=("values",)))
        grads.append(gradient(critic))
    assert_same_gradient(*grads, 2e-6)
    total = sum(float((row.weight * row.advantage).sum()) for row in ROWS)
    assert float(grads[0]["bias"]) == pytest.approx(2 * total * total if squared else total, rel=1e-4)


def test_a_head_learns_and_says_nothing_else() -> None:
    made = engine()
    made.model("policy", ModelSpec())
    critic = made.model("critic", ModelSpec(kind="head", of="policy", optimizer=OptimizerSpec(kind="muon")))
    critic.backward(ROWS, Weighted(of=("values",)))
    critic.step(0.1)
    values = np.concatenate([v["values"] for v in critic.forward(ROWS, frozenset({"values"}))])
    weights = np.concatenate([row.weight * row.advantage for row in ROWS])
    assert float((values * weights).sum()) < 0
    for use in (critic.snapshot, critic.keep):
        with pytest.raises(CapabilityError, match="no words of its own"):
            use()
    for wants in (lambda: critic.forward(ROWS), lambda: critic.backward(ROWS, Weighted())):
        with pytest.raises(CapabilityError, match="gives values and nothing else"):
            wants()


def test_loud_weights_make_positions_matter() -> None:
    """What the tests above lean on: with the weights that models start from, a shuffled context would hardly show."""
    module = loud(tiny_model(64, SMALL, seed=0))
    with torch.no_grad():
        one, two = (module(input_ids=torch.tensor([order])).logits[0, -1] for order in ([5, 6, 7, 8], [6, 5, 7, 8]))
    assert float((torch.log_softmax(one, -1) - torch.log_softmax(two, -1)).abs().max()) > 0.05
