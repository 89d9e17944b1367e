"""The contract of an engine: what it samples, says and learns agree.

Legend: B row (context), N target.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from stepwell.errors import StaleWeightsError
from stepwell.protocols import Engine, Loss, Model, ModelSpec, OptimizerSpec, Policy
from stepwell.seeding import derive
from stepwell.testing.demand import demand, demand_close
from stepwell.types import Batch, Completion, Floats, Ids, Outputs, Row, Sampling, Stop, Tallies

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Probe", "check_engine"]

NOTHING: frozenset[str] = frozenset()
# A large eps makes AdamW nearly plain gradient descent, and no clipping keeps the gradient's scale: a wrong scale then shows.
_OPTIMIZER = OptimizerSpec(eps=1.0, max_grad_norm=1e9)
_CONTEXTS: tuple[Ids, ...] = tuple(np.array(ids, dtype=np.int64) for ids in ([3, 1, 4], [1, 5], [2, 6, 5, 3, 5], [3, 1, 4, 1]))


@dataclass(frozen=True)
class Probe:
    """With what an engine is tried.

    Attributes:
        contexts: At least two token sequences of different lengths that the model can be asked to continue. [B] of [L]
        kind: The kind of models to make; see `ModelSpec`.
        max_tokens: Tokens of one completion.
        tolerance: Nats that two computations of the same log-prob may differ. 1e-4 is for float32, in which an engine should be checked.
        lr: Learning rate of the updates (of AdamW with eps 1, which is nearly plain gradient descent). One update must move some
            log-prob by more than the tolerance; adapters, which start at zero, need about 1.
    """

    contexts: Sequence[Ids] = _CONTEXTS
    kind: Literal["full", "lora"] = "full"
    max_tokens: int = 6
    tolerance: float = 1e-4
    lr: float = 0.02


def check_engine(engine: Engine, probe: Probe | None = None) -> None:
    """Checks what rollouts and training rely on. Makes models named `contract-...` on the engine and trains them: give it a fresh one.

    - Sampling: lengths and stop reasons are right; a seed decides a row's tokens, whatever its neighbours; temperature 0 is greedy.
    - The sampler's log-probs are those of `forward` and of `Policy.logprobs`, at temperature 1 and 0.7, also in a later turn (cache) and
      after an update (no stale cache); `forward` ignores padding and row order.
    - A snapshot raises `StaleWeightsError` once its model has moved on; `keep()` is a copy that training does not touch.
    - The gradient is the plain weighted sum over rows: the same for one `backward` or one for each row, and exact for losses that
      span rows. A zero advantage moves nothing, a positive one raises the log-prob, a negative one lowers it.
    - `save` and `load` give back weights, version and optimiser: the next update is the same.

    Raises:
        ContractViolation: A promise is broken; the sentence says which.
    """
    probe = probe or Probe()
    kinds = sorted(engine.capabilities.kinds)
    demand(probe.kind in kinds, f"The engine has no models of kind {probe.kind!r}; it has {kinds}.")
    spec = ModelSpec(kind=probe.kind, optimizer=_OPTIMIZER)
    model = engine.model("contract-warm", spec)
    _check_sampler(engine.model("contract-cool", replace(spec, temperature=0.7)), probe, 0.7)
    rows = _advantages(_check_sampler(model, probe, 1.0))
    _check_seeds(model, probe)
    _check_greedy(model, probe)
    _check_forward(model, rows, probe, engine)
    _check_snapshots(model, rows, probe)
    _check_sampler(model, probe, 1.0)
    _check_nothing(model, rows, probe)
    with tempfile.TemporaryDirectory() as folder:
        _check_save(model, rows, probe, Path(folder) / "middle")
        trial = _Trial(model, Path(folder) / "start", probe)
        _check_direction(trial, rows)
        _check_sums(trial, rows)
        _check_spanning(trial, rows)


# -- sampling -----------------------------------------------------------------------------------------------------------------


def _draw(policy: Policy, probe: Probe, contexts: Sequence[Ids], temperature: float, seed: str = "") -> list[Completion]:
    samplings = [Sampling(temperature=temperature, max_tokens=probe.max_tokens)] * len(contexts)
    made = policy.sample(contexts, samplings, [derive("check_engine", seed, index) for index in range(len(contexts))])
    demand(len(made) == len(contexts), f"sample returned {len(made)} completions for {len(contexts)} contexts.")
    for completion in made:
        n = len(completion.token_ids)
        demand(n == len(completion.logprobs), f"A completion has {n} token ids and {len(completion.logprobs)} log-probs.")
        demand(1 <= n <= probe.max_tokens, f"A completion has {n} tokens; 1 to {probe.max_tokens} were allowed.")
        demand(
            completion.stop is not Stop.LENGTH or n == probe.max_tokens,
            f"A completion of {n} of {probe.max_tokens} tokens says stop=length.",
        )
        demand(completion.stop is not Stop.STRING, "A completion says stop=stop_string; no stop string was given.")
        demand(bool(np.all(completion.logprobs <= 1e-6)), f"A completion has a log-prob above 0: {completion.logprobs}.")
    return made


def _rows(contexts: Sequence[Ids], completions: Sequence[Completion]) -> list[Row]:
    pairs = zip(contexts, completions, strict=True)
    return [Row.of(np.concatenate([c, made.token_ids]), np.arange(len(c), len(c) + len(made.token_ids))) for c, made in pairs]


def _check_sampler(model: Model, probe: Probe, temperature: float) -> list[Row]:
    """Two turns from one policy: the second extends the first. Returns the rows of the first."""
    policy = model.snapshot()
    demand(policy.version == model.version, f"A snapshot of version {model.version} says that it is version {policy.version}.")
    contexts = list(probe.contexts)
    first: list[Row] = []
    for turn in ("first", "second"):
        made = _draw(policy, probe, contexts, temperature, seed=turn)
        rows = _rows(contexts, made)
        where = f"in the {turn} turn at temperature {temperature}, weights of version {model.version}"
        forward = [outputs["logprobs"] for outputs in model.forward(rows)]
        for completion, own, said in zip(made, forward, policy.logprobs(rows), strict=True):
            demand_close(completion.logprobs, own, probe.tolerance, f"Log-probs of sampler and model.forward differ {where}.")
            demand_close(said, own, probe.tolerance, f"Log-probs of Policy.logprobs and model.forward differ {where}.")
        first = first or rows
        contexts = [np.concatenate([row.ids, context[-1:]]) for row, context in zip(rows, contexts, strict=True)]
    return first


def _check_seeds(model: Model, probe: Probe) -> None:
    policy = model.snapshot()
    contexts = probe.contexts
    samplings = [Sampling(max_tokens=probe.max_tokens)] * len(contexts)
    seeds = [derive("check_engine seeds", index) for index in range(len(contexts))]
    together = [completion.token_ids.tolist() for completion in policy.sample(contexts, samplings, seeds)]
    again = [completion.token_ids.tolist() for completion in model.snapshot().sample(contexts, samplings, seeds)]
    demand(together == again, f"The same seeds gave other tokens: {together}, then {again}.")
    backwards = [c.token_ids.tolist() for c in model.snapshot().sample(contexts[::-1], samplings, seeds[::-1])][::-1]
    alone = [policy.sample([c], samplings[:1], [seed])[0].token_ids.tolist() for c, seed in zip(contexts, seeds, strict=True)]
    for other, how in ((backwards, "in another order"), (alone, "alone")):
        demand(together == other, f"A row's tokens depend on its neighbours: {together} together, {other} sampled {how}.")
    repeated = policy.sample([contexts[0]] * 8, samplings[:1] * 8, [derive("check_engine", "many", index) for index in range(8)])
    certain = max(float(np.mean(completion.logprobs)) for completion in repeated) > -0.1
    distinct = {tuple(completion.token_ids.tolist()) for completion in repeated}
    demand(certain or len(distinct) > 1, "Eight different seeds gave the same tokens; a seed must decide the draw.")


def _check_greedy(model: Model, probe: Probe) -> None:
    policy = model.snapshot()
    one, two = ([c.token_ids.tolist() for c in _draw(policy, probe, probe.contexts, 0.0, seed)] for seed in "ab")
    demand(one == two, f"At temperature 0 the seed changed the tokens: {one}, then {two}.")
    made = _draw(policy, probe, probe.contexts, 0.0)
    for completion, outputs in zip(made, model.forward(_rows(probe.contexts, made)), strict=True):
        demand_close(
            completion.logprobs, outputs["logprobs"], probe.tolerance, "Log-probs at temperature 0 must be those at temperature 1."
        )
    sampled = _draw(policy, probe, probe.contexts, 1.0)
    for greedy, other in zip(made, sampled, strict=True):
        demand(
            greedy.logprobs[0] >= other.logprobs[0] - probe.tolerance, "At temperature 0 a less likely token was taken than was sampled."
        )


def _check_forward(model: Model, rows: list[Row], probe: Probe, engine: Engine) -> None:
    together = _logprobs(model, rows)
    backwards = _logprobs(model, rows[::-1])[::-1]
    alone = [_logprobs(model, [row])[0] for row in rows]
    for own, other, single in zip(together, backwards, alone, strict=True):
        demand_close(other, own, probe.tolerance, "model.forward depends on the order of rows.")
        demand_close(single, own, probe.tolerance, "model.forward depends on the other rows (padding).")
    if engine.capabilities.entropy:
        for outputs, own in zip(model.forward(rows, frozenset({"entropy"})), together, strict=True):
            demand("entropy" in outputs, "The engine says that it carries entropy, but model.forward does not return it.")
            demand(outputs["entropy"].shape == own.shape, f"Entropy has {outputs['entropy'].shape} entries for {own.shape} targets.")
            demand(bool(np.all(outputs["entropy"] >= -1e-5)), f"Entropy is negative: {outputs['entropy'].min()}.")
    if engine.capabilities.certainty:
        for outputs, own in zip(model.forward(rows, frozenset({"certainty"})), together, strict=True):
            demand("certainty" in outputs, "The engine says that it carries certainty, but model.forward does not return it.")
            demand(outputs["certainty"].shape == own.shape, f"Certainty has {outputs['certainty'].shape} entries for {own.shape} targets.")
            demand(bool(np.all(outputs["certainty"] >= -1e-5)), f"Certainty is negative: {outputs['certainty'].min()}.")


# -- updates ------------------------------------------------------------------------------------------------------------------


class _Reinforce(NamedTuple):
    """`-sum of weight x advantage x log pi`, and for `spanning` S the loss `-S^2 / (2 |S0|)` of that sum, which couples all rows."""

    scale: float | None = None

    @property
    def spans_rows(self) -> bool:
        return self.scale is not None

    @property
    def wants(self) -> frozenset[str]:
        return NOTHING

    def __call__(self, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tallies]:
        total = (outputs.logprobs * batch.weight * batch.advantage).masked_fill(~batch.mask, 0.0).sum()
        return (-total if self.scale is None else total * total * (0.5 / self.scale)), {}


def _advantages(rows: Sequence[Row]) -> list[Row]:
    """Rows of different weights and advantages, with mean advantage above 0."""
    return [
        replace(row, weight=np.full(len(row.targets), 0.5 + index), advantage=np.full(len(row.targets), 1.0 - 0.3 * index))
        for index, row in enumerate(rows)
    ]


def _paid(rows: Sequence[Row], advantage: float) -> list[Row]:
    return [replace(row, weight=np.ones(len(row.targets)), advantage=np.full(len(row.targets), advantage)) for row in rows]


def _logprobs(model: Model, rows: Sequence[Row]) -> list[Floats]:
    made = model.forward(rows)
    demand(len(made) == len(rows), f"model.forward returned {len(made)} entries for {len(rows)} rows.")
    for row, outputs in zip(rows, made, strict=True):
        values = outputs["logprobs"]
        demand(
            values.shape == (len(row.targets),), f"model.forward returned log-probs of shape {values.shape} for {len(row.targets)} targets."
        )
        demand(bool(np.all(np.isfinite(values))), "model.forward returned NaN or infinity.")
    return [outputs["logprobs"] for outputs in made]


def _check_snapshots(model: Model, rows: list[Row], probe: Probe) -> None:
    old, kept, version = model.snapshot(), model.keep(), model.version
    before = _logprobs(model, rows)
    _draw(old, probe, probe.contexts, 1.0)
    model.backward(rows, _Reinforce())
    for own, said in zip(before, old.logprobs(rows), strict=True):
        demand_close(said, own, probe.tolerance, "backward alone changed the weights; only step may.")
    model.step(probe.lr)
    demand(model.version == version + 1, f"step took the version from {version} to {model.version}; it grows by one.")
    for verb, use in _uses(old, rows, probe).items():
        demand(
            _raises_stale(use), f"A snapshot of version {version} was used to {verb} at version {model.version} without StaleWeightsError."
        )
    demand(kept.version == version, f"keep() at version {version} says version {kept.version} after an update.")
    after = _logprobs(model, rows)
    moved = max(float(np.max(np.abs(a - b))) for a, b in zip(before, after, strict=True))
    demand(
        moved > probe.tolerance,
        f"An update at lr {probe.lr} moved no log-prob by more than {moved:.3g}; if that is right, raise Probe.lr.",
    )
    for own, said in zip(before, kept.logprobs(rows), strict=True):
        demand_close(said, own, probe.tolerance, "keep() was changed by an update of its model.")
    made = _draw(kept, probe, probe.contexts, 1.0)
    for completion, said in zip(made, kept.logprobs(_rows(probe.contexts, made)), strict=True):
        demand_close(completion.logprobs, said, probe.tolerance, "What keep() samples is not from the weights it kept.")
    for own, said in zip(after, model.snapshot().logprobs(rows), strict=True):
        demand_close(said, own, probe.tolerance, "Use of keep() changed the weights of its model.")


def _uses(policy: Policy, rows: list[Row], probe: Probe) -> dict[str, Callable[[], object]]:
    samplings = [Sampling(max_tokens=1)] * len(probe.contexts)
    return {
        "sample": lambda: policy.sample(probe.contexts, samplings, range(len(probe.contexts))),
        "compute log-probs": lambda: policy.logprobs(rows),
    }


def _raises_stale(use: Callable[[], object]) -> bool:
    try:
        use()
    except StaleWeightsError:
        return True
    return False


def _update(model: Model, rows: Sequence[Row], probe: Probe, loss: Loss | None = None) -> None:
    model.backward(rows, loss or _Reinforce())
    model.step(probe.lr)


def _compare(got: Sequence[Floats], expected: Sequence[Floats], probe: Probe, sentence: str) -> None:
    for one, two in zip(got, expected, strict=True):
        demand_close(one, two, probe.tolerance, sentence)


def _check_nothing(model: Model, rows: list[Row], probe: Probe) -> None:
    """After an update, one that asks for nothing."""
    model.restart_optimizer(_OPTIMIZER)
    before = _logprobs(model, rows)
    _update(model, _paid(rows, 0.0), probe)
    sentence = "An update with advantage 0 moved the log-probs; it has no gradient, and step must clear the one before it."
    _compare(_logprobs(model, rows), before, probe, sentence)


def _check_save(model: Model, rows: list[Row], probe: Probe, folder: Path) -> None:
    """Save, go on, go back, go on in the same way; the update turns round, so that a lost momentum shows."""
    opposite = [replace(row, advantage=-row.advantage) for row in rows]
    model.restart_optimizer(_OPTIMIZER)
    _update(model, rows, probe)
    model.save(folder)
    version, middle = model.version, _logprobs(model, rows)
    _update(model, opposite, probe)
    end = _logprobs(model, rows)
    model.load(folder)
    demand(model.version == version, f"load gave version {model.version}; {version} was saved.")
    _compare(_logprobs(model, rows), middle, probe, "load did not give back the weights that save wrote.")
    _update(model, opposite, probe)
    _compare(_logprobs(model, rows), end, probe, "The update after load differs; save must keep the optimiser's state.")


class _Trial:
    """Updates of one model from the same start, with a fresh optimiser."""

    def __init__(self, model: Model, folder: Path, probe: Probe) -> None:
        self.model, self.probe = model, probe
        self._folder = folder
        model.restart_optimizer(_OPTIMIZER)
        model.save(folder)

    def update(self, *parts: Sequence[Row], loss: Loss | None = None) -> Model:
        """The model after one step on the gradients of all parts."""
        self.model.load(self._folder)
        for rows in parts:
            self.model.backward(rows, loss or _Reinforce())
        self.model.step(self.probe.lr)
        return self.model


def _check_direction(trial: _Trial, rows: list[Row]) -> None:
    before = sum(float(values.sum()) for values in _logprobs(trial.model, rows))
    for advantage, verb in ((1.0, "raise"), (-1.0, "lower")):
        moved = sum(float(values.sum()) for values in _logprobs(trial.update(_paid(rows, advantage)), rows)) - before
        sentence = f"An update with advantage {advantage:+g} did not {verb} the log-probs: they changed by {moved:+.3g} nats in all."
        demand(moved * advantage > 0, sentence)


def _check_sums(trial: _Trial, rows: list[Row]) -> None:
    whole = _logprobs(trial.update(rows), rows)
    single = _logprobs(trial.update(*([row] for row in rows[::-1])), rows)
    sentence = "One backward over all rows and one for each row gave different updates; the gradient must be the plain sum."
    _compare(single, whole, trial.probe, sentence)
    halves = [replace(row, weight=row.weight / 2) for row in rows]
    sentence = "Every row twice at half the weight gave another update; the gradient must be the plain sum of weight x loss."
    _compare(_logprobs(trial.update([*halves, *halves]), rows), whole, trial.probe, sentence)


def _check_spanning(trial: _Trial, rows: list[Row]) -> None:
    # d/dS of S^2 / (2 |S0|) at S0 is the sign of S0, so a plain loss with that sign has the same gradient.
    start = _logprobs(trial.update(_paid(rows, 0.0)), rows)
    total = sum(float((row.weight * row.advantage * values).sum()) for row, values in zip(rows, start, strict=True))
    plain = _logprobs(trial.update([replace(row, advantage=-np.sign(total) * row.advantage) for row in rows]), rows)
    spanning = _logprobs(trial.update(rows, loss=_Reinforce(scale=abs(total))), rows)
    sentence = "A loss that spans rows got another gradient than its chain rule gives; run it over all rows at once."
    _compare(spanning, plain, trial.probe, sentence)
